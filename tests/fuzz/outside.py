"""Paths and names as strangers write them, and a box that shows whether one led out of it.

``Box.folder`` is where a test works. Each folder above it, up to ``Box.root``, has canaries, and so has one that a link
in the box leads to. The kernel (inotify) and a listing say what is opened, read, written, made or deleted outside.
A name drawn by ``names`` goes up by fewer steps than there are folders, and is absolute only below ``Box.root``: what a
fault lets through meets a canary, never a file of the host.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from hypothesis import strategies as st

STEPS = 6
"""That a name goes up at most."""
CANARY = "canary-5b0c7d"
ENDINGS = ("", ".yml", ".toml", ".json", ".html", ".vbundle", ".pem", ".parquet", ".seg", "/agent.pem")
_EVENTS = 0x1 | 0x2 | 0x4 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""IN_ACCESS, MODIFY, ATTRIB, OPEN, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF of inotify(7)."""
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Box:
    """A folder that nothing leaves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root.joinpath(*"abcdefg"[:STEPS], "box")
        self.folder.mkdir(parents=True)
        linked = root / "elsewhere"
        linked.mkdir()
        (self.folder / "out").symlink_to(linked)
        self._watched: dict[int, Path] = {}
        self._inotify = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in (linked, *self.folder.parents[: STEPS + 1]):
            for ending in ENDINGS:
                file = folder / f"canary{ending}"
                file = folder / "member" / "agent.pem" if ending.startswith("/") else file
                file.parent.mkdir(exist_ok=True)
                file.write_text(CANARY)
            for watched in (folder, folder / "member"):
                number = _libc.inotify_add_watch(self._inotify, os.fsencode(watched), _EVENTS)
                assert number >= 0, os.strerror(ctypes.get_errno())
                self._watched[number] = watched
        self._before = self._listing()

    def close(self) -> None:
        os.close(self._inotify)

    def _listing(self) -> dict[str, tuple[int, int, int]]:
        """All that lies outside: mode, size, time of change."""
        entries: dict[str, tuple[int, int, int]] = {}
        for folder, folders, files in os.walk(self.root):
            if Path(folder) == self.folder.parent:
                folders.remove(self.folder.name)
            for name in (*folders, *files):
                stat = os.lstat(os.path.join(folder, name))
                entries[os.path.join(folder, name)] = (stat.st_mode, stat.st_size, stat.st_mtime_ns)
        return entries

    def _seen(self) -> Iterator[str]:
        way = {self.folder, *self.folder.parents}
        while True:
            try:
                data = os.read(self._inotify, 1 << 16)
            except BlockingIOError:
                return
            while data:
                number, mask, _, size = _HEAD.unpack_from(data)
                name = data[_HEAD.size : _HEAD.size + size].rstrip(b"\0").decode()
                data = data[_HEAD.size + size :]
                path = self._watched[number] / name if name else self._watched[number]
                if path not in way:
                    yield f"{path}: event {mask:#x}"

    @contextmanager
    def closed(self, what: str) -> Iterator[None]:
        """What is done meanwhile touches nothing outside."""
        list(self._seen())
        yield
        seen = list(self._seen())
        assert not seen, f"{what}: {seen}"
        now = self._listing()
        changed = {path for path in self._before.keys() | now.keys() if self._before.get(path) != now.get(path)}
        assert not changed, f"{what}: {sorted(changed)}"


def refusal(what: str, doing: Callable[[], object], *errors: type[Exception]) -> str:
    """What ``doing`` says: its answer, or an error that it may raise: ValueError, OSError, ``errors``."""
    try:
        answer = doing()
    except (ValueError, OSError, *errors) as error:
        said = str(error)
        assert said, f"{what}: an error without a word"
    else:
        said = str(answer)
    assert CANARY not in said, f"{what}: {said}"
    return said


_PARTS = (
    "..", "..", "..", ".", "", "out", "member", "canary", *(f"canary{ending}" for ending in ENDINGS[1:-1]), "box", "a",
    ".hidden", "a b", "-x", "a\0b", "a\nb", "é", "․․", "..\\..", "x" * 300, "\ud800", "'", '"', "%", "*", "agent.pem",
)  # fmt: skip


def names(box: Box) -> st.SearchStrategy[str]:
    """Names like others among them."""
    path = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=8).map("/".join)
    up = st.tuples(st.integers(1, STEPS), path).map(lambda drawn: "../" * drawn[0] + drawn[1])
    spelled = st.one_of(path, up, path.map(lambda below: f"{box.root}/{below}"))
    coded = spelled.map(lambda text: quote(text.encode("utf-8", "replace"), safe=""))
    plain = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)
    return st.one_of(spelled, up, coded, coded.map(quote), plain, st.text(max_size=40)).filter(
        lambda it: _stays(it, box)
    )


def _stays(text: str, box: Box) -> bool:
    """Whether it names nothing of the host, however it is read."""
    for _ in range(3):
        below = text.replace(str(box.root), "").lstrip("/") if text.startswith(str(box.root)) else text
        if below.startswith(("/", "~")) or below.count("..") > STEPS:
            return False
        text = unquote(text)
    return True
