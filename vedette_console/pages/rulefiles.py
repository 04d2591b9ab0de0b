"""Rules as files: what the editor opens, found by a rule's id in the configured folders.

Read only, bounded, and only below these folders; a link that leads out of them is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ENDINGS = (".yml", ".yaml", ".sql")
MAX_FILES, MAX_BYTES = 20_000, 256 << 10


class RuleText(NamedTuple):
    """A rule's file: ``path`` below its folder, ``text``, and ``tests``, that of ``NAME.test.yml`` beside it or ""."""

    path: str
    text: str
    tests: str

    @property
    def kind(self) -> str:
        return "sql" if self.path.endswith(".sql") else "sigma"


def find(folders: Iterable[Path], rule_id: str) -> RuleText | None:
    """The file in which a rule of that id is; None when there is none. Blocking."""
    wanted = re.compile(rf"^\W*id\W+{re.escape(rule_id)}\W*$", re.MULTILINE)
    for folder in folders:
        for path in _files(folder):
            text = _read(path)
            if rule_id in text and (wanted.search(text) or path.suffix == ".sql" or path.stem == rule_id):
                beside = path.with_name(path.stem + ".test.yml")
                return RuleText(path.relative_to(folder).as_posix(), text, _read(beside) if beside.is_file() else "")
    return None


def _files(folder: Path) -> Iterator[Path]:
    top, seen = folder.resolve(), 0
    for path in sorted(folder.rglob("*")):
        if path.suffix not in ENDINGS or path.name.endswith(".test.yml") or not path.is_file():
            continue
        seen += 1
        if seen > MAX_FILES:
            return
        if path.resolve().is_relative_to(top):
            yield path


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
