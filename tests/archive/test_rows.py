"""Rows of an archive that are none, or lie: from a store that others write to, or a disk that decays."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.archive.samples import AGENT, EVENTS, SMALL, Life, events, filled, index, reach
from tests.rawlog.samples import NOW
from tests.waits import until
from vedette.archive.archiver import Archiver, stored_rows
from vedette.archive.index import STORED, Damaged, decode, own
from vedette.archive.stores import Store, digest
from vedette.config.settings import AgentSettings, ArchiveSettings, Config
from vedette.rawlog.log import RawLog
from vedette.rawlog.read import search
from vedette.rawlog.segment import segments
from vedette.runtime.options.archiving import Archiving

NAME = "00000001-00000000000000000010-" + "ab" * 16 + ".seg"
PLANTED: dict[str, Any] = {
    "segment": NAME, "state": "verified", "size": 10, "sha256": "0" * 64, "first_event": 0, "events": 1, "end": 20,
    "created_at": 1, "received_from": 1, "received_to": 1, "stored_size": 10, "stored_sha256": "0" * 64, "tags": [],
    "recipient": "",
}  # fmt: skip


@pytest.fixture
def mounted(tmp_path: Path) -> ArchiveSettings:
    (tmp_path / "mnt" / AGENT).mkdir(parents=True)
    return ArchiveSettings(str(tmp_path / "mnt"))


def _plant(folder: Path, name: str, data: bytes) -> None:
    (folder / "mnt" / AGENT / name).write_bytes(data)


def _row(**fields: Any) -> bytes:
    return json.dumps(PLANTED | fields).encode()


def _without(field: str) -> bytes:
    return json.dumps({key: value for key, value in PLANTED.items() if key != field}).encode()


NUMBERS = (
    "size", "first_event", "events", "end", "created_at", "received_from", "received_to", "stored_size",
)  # fmt: skip
NONE = [
    *(_row(**{field: value}) for field in NUMBERS for value in (-1, 2**53 + 1, "x", None, True, 1.5)),
    *(_row(**{field: value}) for field in ("sha256", "stored_sha256") for value in ("", "x" * 64, "0" * 63, 1, None)),
    *(_row(segment=name) for name in ("", "../x", f"../{NAME}", f"{NAME}\n", f"{NAME}.age", "٣" + NAME[1:])),
    *(_row(tags=tags) for tags in (None, "x", ["x"], [1], ["0" * 32] * 3)),
    *(_row(recipient=recipient) for recipient in (None, "x", "age1x", 1)),
    *(_row(state=state) for state in (None, "gone", 1)),
    *(_without(field) for field in PLANTED),
    _row(end=9), _row(more=1), b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000,
]  # fmt: skip


def test_what_no_row_is() -> None:
    """Each number, text and name has its bounds; none may lack: without its recipient an encrypted segment would count
    as plain."""
    assert decode(_row()).segment == NAME
    for data in NONE:
        with pytest.raises(ValueError):  # noqa: PT011  # each has a text of its own
            decode(data)


def test_rows_in_the_store_that_are_none_are_passed_over(tmp_path: Path, mounted: ArchiveSettings) -> None:
    """Each is named and counted; the others make the index; a folder or a pipe in a row's place holds nothing up."""
    for number, data in enumerate(NONE):
        _plant(tmp_path, f"{NAME[:8]}-{number:020}-{'cd' * 16}.seg.json", data)
    _plant(tmp_path, "notes.json", _row())
    _plant(tmp_path, f"{NAME}.json", _row())
    (tmp_path / "mnt" / AGENT / "folder.json").mkdir()
    os.mkfifo(tmp_path / "mnt" / AGENT / "pipe.json")
    life = Life(tmp_path, mounted)
    life.archiver.find(life.store)
    assert [row.segment for row in life.index.rows()] == [NAME]
    assert life.archiver.refused == len(NONE) + 3
    refused: list[OSError] = []
    assert len(stored_rows(life.store, AGENT, refused.append)) == 1
    assert any(str(error).startswith(f"{AGENT}/notes.json: not the row of") for error in refused)


@pytest.mark.parametrize("encrypted", [False, True])
def test_rows_that_others_wrote_let_nothing_leave(tmp_path: Path, mounted: ArchiveSettings, encrypted: bool) -> None:
    """A host without an index, and a store that has rows of its segments with objects that are none of theirs, or none
    at all: nothing leaves, and nothing is hidden, until the store has the bytes of this host."""
    recipient = ""
    if encrypted:
        pyrage = pytest.importorskip("pyrage")
        recipient = str(pyrage.x25519.Identity.generate().to_public())
    mounted = ArchiveSettings(mounted.url, recipient=recipient)
    life = Life(tmp_path, mounted)
    with closing(filled(tmp_path, life.index)) as log:
        before, names = events(tmp_path / "raw"), [entry.segment.path.name for entry in log.final()]
        for number, name in enumerate(names):
            object, base = f"{name}.age" if encrypted else name, int(name[9:29])
            fields = {"segment": name, "recipient": recipient, "end": base}
            if number % 2:  # an object as its row says
                of = digest([b"something else"])
                _plant(tmp_path, object, b"something else")
                fields |= {"stored_size": of.size, "stored_sha256": of.sha256, "tags": list(of.tags)}
            _plant(tmp_path, f"{object}.json", _row(**fields))
        life.archiver.find(life.store)
        assert [row.state for row in life.index.rows()] == [STORED] * len(names)
        life = Life(tmp_path, mounted, life.index)
        assert not any(map(life.index.lets_go, names))
        _room(log)
        assert len(segments(tmp_path / "raw")) == len(names) + 1
        found = search(reach(tmp_path, mounted), since=NOW, until=NOW + EVENTS * 1_000_000)
        assert [(hit.offset, hit.raw) for hit in found] == before, "no row says what a segment here has"
        life.run(log)
        assert life.archiver.uploaded == len(names)
        assert all(map(life.index.lets_go, names))
        if not encrypted:
            _room(log)
            assert len(segments(tmp_path / "raw")) == 1
            assert events(reach(tmp_path, mounted)) == before


def _room(log: RawLog) -> None:
    while log.retain(log.end, NOW, make_room=True):
        pass


def test_a_damaged_index_is_made_again(tmp_path: Path, mounted: ArchiveSettings) -> None:
    """A reader names the file and the line; the agent sets it aside and has all again from the store."""
    life = Life(tmp_path, mounted)
    with closing(filled(tmp_path, life.index)) as log:
        life.run(log)
        before, rows = events(tmp_path / "raw"), life.index.rows()
        _room(log)
        path = tmp_path / "archive" / "index"
        damaged = path.read_bytes().replace(b'{"segment"', b'{"sXgment"', 1)
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=r"archive/index: line 2 is damaged: segment: expects"):
            index(tmp_path, mounted)
        life = Life(tmp_path, mounted, own(tmp_path / "archive", mounted, AGENT))
        assert path.with_name("index.damaged").read_bytes() == damaged
        life.run(log)
        assert [row.segment for row in life.index.rows()] == [row.segment for row in rows]
        assert life.archiver.uploaded == 0
        assert events(reach(tmp_path, mounted)) == before


def test_what_a_store_makes_fail_ends_nothing(
    tmp_path: Path, mounted: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised, the status says that it fails, and it is tried again; rows that are none count as failures,
    and all segments are archived."""
    _plant(tmp_path, f"{NAME}.json", _row(stored_size="x"))
    own_index, real, raising = index(tmp_path, mounted), Archiver.archive, [True]

    def archive(self: Archiver, segment: Any, store: Store) -> Any:
        if raising[0]:
            raise TypeError("'NoneType' object is not iterable")
        return real(self, segment, store)

    monkeypatch.setattr(Archiver, "archive", archive)
    config = Config(agent=AgentSettings(id=AGENT, data_dir=tmp_path), archive=mounted, raw_log=SMALL)
    with closing(filled(tmp_path, own_index)) as log:
        part = Archiving(config, log, own_index, lambda: NOW + 3_600_000_000)
        part.start()
        try:
            until("the failure", lambda: part.status()["failing"])
            assert part.status()["error"] == "TypeError: 'NoneType' object is not iterable"
            assert part.status()["failures"] >= 2
            raising[0] = False
            until("the archive", lambda: not part.status()["waiting"] and not part.status()["failing"])
            assert part.status()["segments"] == len(log.final())
        finally:
            part.stop()
