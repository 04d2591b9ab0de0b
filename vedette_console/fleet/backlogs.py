"""Which raw logs a backtest reads: links to the segments of some agents and of a time, and the command that reads them.

A source is a folder of folders: the first level names the agent (``SOURCE/AGENT/…/*.seg``), as `vedette-spark backtest
--logs` takes it. Links are hard where they can be, so that what retention deletes meanwhile is still read.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vedette.rawlog.segment import Segment, SegmentFile, segments
from vedette_console.fleet.given import Given

MAX_AGENTS, MAX_SEGMENTS, MAX_DEPTH = 10_000, 200_000, 4
MEMORY = "1g"


class Chosen(NamedTuple):
    segments: int
    bytes: int


def agents(source: Path) -> list[str]:
    """Raises OSError never: a folder that is not there has none."""
    try:
        with os.scandir(source) as entries:
            return sorted(one.name for one in entries if one.is_dir() and not one.name.startswith("."))[:MAX_AGENTS]
    except OSError:
        return []


def link(source: Path, target: Path, names: Iterable[str], since: int, until: int) -> Chosen:
    """Link what was received from ``since`` on and before ``until``, whole segments. Raises OSError, ValueError."""
    number = size = 0
    for name in names:
        for folder in _folders(source / name, MAX_DEPTH):
            for one in _within(segments(folder), since, until):
                number += 1
                if number > MAX_SEGMENTS:
                    raise ValueError(f"more than {MAX_SEGMENTS:,} segments: ask for a shorter time")
                place = target / folder.relative_to(source)
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    os.link(one.path, place / one.path.name)
                except OSError:
                    (place / one.path.name).symlink_to(one.path.resolve())
                size += one.path.stat().st_size
    return Chosen(number, size)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    if depth:
        with os.scandir(folder) as entries:
            below = sorted(Path(one.path) for one in entries if one.is_dir(follow_symlinks=False))
        for one in below:
            yield from _folders(one, depth - 1)


def _within(every: list[Segment], since: int, until: int) -> Iterator[Segment]:
    """A segment has what came between its own beginning and that of the next one; 0: nobody knows."""
    if not every:
        return
    begun = [*map(_begun, every)]
    after = [*zip(every[1:], begun[1:], strict=True), (None, 0)]
    for one, begin, (next_, end) in zip(every, begun, after, strict=True):
        known = end if next_ is not None and next_.log_id == one.log_id else 0
        if (not known or known >= since) and begin < until:
            yield one


def _begun(segment: Segment) -> int:
    try:
        with SegmentFile(segment) as file:
            return file.header().created_at
    except (OSError, ValueError):
        return 0


def command(place: Path, route: bool, given: Given) -> list[str]:
    """Gives way to all else on the host; its progress goes to standard error."""
    words = [sys.executable, "-m", "spark_jobs", "backtest", "--logs", str(place / "logs"), "--rules",
             str(place / "rules"), "--output", str(place / "matches"), "--master", "local[1]", "--conf",
             "spark.ui.showConsoleProgress=true", "--conf", f"spark.driver.memory={MEMORY}"]  # fmt: skip
    for option, paths in (("--pipeline", given.pipelines), ("--lookup", given.lookups)):
        words += [word for path in paths for word in (option, str(path.resolve()))]
    nice = shutil.which("nice")
    return ([nice, "-n", "10"] if nice else []) + words + (["--route"] if route else [])
