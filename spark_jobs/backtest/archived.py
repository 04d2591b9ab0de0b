"""Segments of an archive (``vedette.archive``), straight from where they lie: a bucket, or a folder that is mounted.

The driver lists: a segment is an object ``AGENT/NAME.seg``, or ``….seg.age`` where it is encrypted to the owner, and
``KEY.json`` beside it has its digests and offsets. A task fetches its segment, and what it needs of those beside it, to
files without a name, as an agent does that reads on in its archive, and opens them with the owner's identity. Nothing
is written to the store.

What cannot be had, is not what was archived, or has no ``KEY.json``, is a row of the kind ``gap``; all else goes on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_jobs.backtest.rows import Rules
from spark_jobs.backtest.segments import AROUND, evaluated, gap

if TYPE_CHECKING:
    from vedette.archive.index import Row
    from vedette.archive.stores import Store

ROW = "agent string, segment string, near binary, reason string"
"""A task's view of a segment: the rows of the index of it and of those around it, or why it cannot be read."""
LISTED_AT_ONCE = 16
"""Objects ``KEY.json`` that the driver asks for at the same time."""
MAX_INDEX = 64 << 10
SUFFIXES = (".seg", ".seg.age")


class Archive(NamedTuple):
    """Where it is, for every executor: the paths of its options and of the identity are as they see them."""

    url: str
    options_file: Path | None = None
    identity: Path | None = None

    def store(self) -> Store:
        """Raises OSError."""
        from vedette.archive.stores import open_store
        from vedette.config.settings import ArchiveSettings

        return open_store(ArchiveSettings(self.url, self.options_file))


class Listed(NamedTuple):
    """The content of an archive."""

    rows: list[tuple[str, str, bytes, str]]
    """As ``ROW`` says."""
    logs: dict[str, list[str]]
    """The ids of each agent's logs, in order."""


class _Object(NamedTuple):
    agent: str
    segment: str
    row: Row | None
    reason: str = ""


def encrypted(root: Path) -> set[str]:
    """Agents below a folder of whose segments some are encrypted."""
    return {str(path.parent.relative_to(root)) for path in root.rglob("*.seg.age")}


def listed(archive: Archive, agents: Sequence[str] | None = None) -> Listed:
    """All segments, or those of ``agents``. Raises OSError, FileNotFoundError when there is none."""
    store = archive.store()
    keys = list(_below(Path(archive.url), agents)) if agents is not None else list(store.keys(""))
    every, names = [key for key in keys if key.endswith(SUFFIXES)], set(keys)
    with ThreadPoolExecutor(LISTED_AT_ONCE) as pool:
        objects = sorted(
            pool.map(lambda key: _object(store, key, f"{key}.json" in names), every), key=attrgetter("agent", "segment")
        )
    if not objects:
        raise FileNotFoundError(f"{archive.url}: holds no segments (AGENT/*.seg, *.seg.age)")
    rows, logs = list[tuple[str, str, bytes, str]](), dict[str, list[str]]()
    for agent, group in groupby(objects, attrgetter("agent")):
        of_agent = list(group)
        whole = [segment.row for segment in of_agent if segment.row is not None]
        logs[agent] = list(dict.fromkeys(_place(segment)[2] for segment in whole))
        for segment in of_agent:
            near = b"".join(row.encode() for row in _near(segment.row, whole)) if segment.row else b""
            rows.append((agent, segment.segment, near, segment.reason))
    return Listed(rows, logs)


def _below(root: Path, agents: Sequence[str]) -> Iterator[str]:
    for agent in agents:
        yield from (f"{agent}/{entry.name}" for entry in os.scandir(root / agent) if entry.is_file())


def _object(store: Store, key: str, indexed: bool) -> _Object:
    from vedette.archive.index import decode
    from vedette.rawlog.format import parse_segment_name

    agent, _, name = key.rpartition("/")
    segment = name.removesuffix(".age")
    if not agent:
        return _Object("", segment, None, "lies in no agent's folder: name the place above it")
    if not indexed:
        return _Object(agent, segment, None, "has no KEY.json: its upload was not finished or not verified")
    try:
        stat = store.stat(f"{key}.json")
        row = decode(store.read(f"{key}.json", 0, min(stat.size, MAX_INDEX) if stat else 1))
        if row.name != name or parse_segment_name(row.segment) is None:
            raise ValueError("it is about another segment")
    except (OSError, ValueError, TypeError) as error:
        return _Object(agent, segment, None, f"KEY.json: {error}")
    return _Object(agent, segment, row)


def _place(row: Row) -> tuple[int, int, str]:
    """Generation, offset and log."""
    from vedette.rawlog.format import parse_segment_name

    parsed = parse_segment_name(row.segment)
    assert parsed is not None  # as _object has seen
    return parsed


def _near(row: Row, whole: list[Row]) -> Iterator[Row]:
    """Segments of the same log that ``segments`` looks into, and the one behind them, where they end."""
    _, base, log = _place(row)
    for other in whole:
        _, start, of = _place(other)
        if of == log and other.end > base - AROUND and start <= row.end + AROUND:
            yield other


class _Index:
    """Rows as ``vedette.archive.reach`` wants them."""

    def __init__(self, rows: list[Row], folder: Path) -> None:
        self.folder = folder
        self._rows = {row.segment: row for row in rows}

    def again(self) -> None:
        pass

    def get(self, segment: str) -> Row | None:
        return self._rows.get(segment)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())


def archived_rows(
    entry: Mapping[str, Any], archive: Archive, store: Store, rules: Rules, logs: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """Rows of ``WORK`` of one segment, of which ``entry`` is as ``ROW`` says."""
    from vedette.archive.index import decode
    from vedette.archive.reach import Reach

    agent, name = entry["agent"], entry["segment"]
    about = {"agent": agent, "log_id": ""}
    if entry["reason"]:
        yield gap(about, None, f"{name}: {entry['reason']}")
        return
    rows = {row.segment: row for row in map(decode, entry["near"].splitlines())}
    row = rows[name]
    _, base, about["log_id"] = _place(row)
    with tempfile.TemporaryDirectory(prefix="vedette-backtest-") as folder:
        index: Any = _Index(list(rows.values()), Path(folder))
        reach = Reach(Path(folder, "raw"), index, lambda: store, agent, archive.identity)
        every = reach.segments()
        place = next(number for number, segment in enumerate(every) if segment.path.name == name)
        try:
            yield from evaluated(every, place, about, rules, logs[agent])
        except OSError as error:  # the other segments go on
            yield gap(about, base, f"{name}: {error.strerror or error}", row.events)
