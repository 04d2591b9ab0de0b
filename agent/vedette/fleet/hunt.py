"""A retro-hunt: what is asked of a host, and what it answers. Pure: bytes and values in, values out.

Asked (``Hunt``) are the rules of a plan over everything that the host's raw log received from ``since`` on and before
``until``. Rules travel as a plan (``engine/artifact.py``), because hosts have no front end for rules; compressed
(``packed``) it may have ``MAX_PACKED`` bytes, unpacked ``MAX_PLAN``. A host answers with a **report**, at any time::

    {"id", "state": STATES, "reason", "since", "until",
     "oldest": receipt of the first event that was still stored, "reached": of the last one looked at (0: none yet),
     "events", "bytes", "matches", "seconds", "cpu",
     "rules": [{"id", "title", "level", "kind", "count"}], those that matched
     "hosts": {name: matches}, of "other" where there are more than MAX_HOSTS
     "first": [the first matches, as ``vedette scan`` prints them, with "input" for "file", "offset" for "line", and
               with "event_time", but for those of statements],
     "undecided": [{"title", "events", "reason"}], "not_run": [text], "not_correlated": [text],
     "gone": events that retention deleted before they were looked at, "damaged", "failed": events,
     "unreachable": in an archive that did not give them}

Times are UTC microseconds.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

STATES = ("queued", "running", "done", "failed")
ENDED = STATES[2:]
MAX_PACKED, MAX_PLAN = 700_000, 32 << 20
MAX_FIRST = 200
"""Matches in a report: so many detections, and so many of what fires over time."""
MAX_HOSTS = 1000
MAX_VALUE = 500
"""Characters of a field in a report."""


class Hunt(NamedTuple):
    """``first``: matches wanted in the report."""

    id: str
    since: int
    until: int
    first: int = 20


def packed(plan: bytes) -> bytes:
    """Raises ValueError when it is too large."""
    data = zlib.compress(plan, 9)
    if len(plan) > MAX_PLAN or len(data) > MAX_PACKED:
        raise ValueError(f"its plan has {len(plan)} bytes, {len(data)} compressed; at most {MAX_PLAN} and {MAX_PACKED}")
    return data


def unpacked(data: bytes) -> bytes:
    """Never more than ``MAX_PLAN`` bytes. Raises ValueError."""
    inflate = zlib.decompressobj()
    try:
        plan = inflate.decompress(data[: MAX_PACKED + 1], MAX_PLAN)
    except zlib.error as error:
        raise ValueError(f"a plan that cannot be unpacked: {error}") from error
    if not inflate.eof or len(data) > MAX_PACKED:
        raise ValueError(f"a plan that is cut short, or has more than {MAX_PLAN} bytes")
    return plan


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``vedette scan`` as it stands in a report."""
    fields = {name: str(value)[:MAX_VALUE] for name, value in row["fields"].items()}
    moved = {"input": row["file"], "offset": row["line"], "fields": fields}
    return {**{name: value for name, value in row.items() if name not in ("file", "line")}, **moved}
