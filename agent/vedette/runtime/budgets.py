"""The agent's budgets: how much of each is used, and what happens at its end. One row each in the status."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from vedette.config.settings import Config
from vedette.rawlog.log import RawLog
from vedette.store.store import Account
from vedette.system import descriptors

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Budget(NamedTuple):
    """``used`` of ``max`` in ``unit``; ``reached``: its ``action`` is under way."""

    name: str
    unit: str
    used: float
    max: float
    reached: bool
    action: str


@cache
def _statm() -> int:
    """Kept open: it is read also when no descriptor is left."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def resident() -> int:
    """Bytes of memory that this process has. Raises OSError the first time only."""
    return int(os.pread(_statm(), 256, 0).split()[1]) * _PAGE


def collect(
    config: Config, now: int, log: RawLog, account: Account, memory: Mapping[str, Any], cache: Mapping[str, Any],
    lean: bool,
) -> list[Budget]:  # fmt: skip
    """All of them. ``now`` in UTC microseconds; ``memory``, ``cache``: as in the status; ``lean``: memory is short."""
    raw, most = config.raw_log, memory["max_bytes"]
    most_files = descriptors.limit()
    files = descriptors.used() or most_files
    days = round(max(0, now - log.oldest()) / 86400e6, 2)
    return [
        Budget("raw_log", "bytes", log.size(), raw.max_bytes, log.full(),
               "the oldest judged segments go; where none may go, inputs wait"),
        Budget("raw_log_age", "days", days, round(raw.max_age / 86400, 2), days * 86400 >= raw.max_age,
               "judged segments that are older go"),
        Budget("outbox", "bytes", account.bytes, config.uplink.max_bytes, account.bytes >= config.uplink.max_bytes,
               "judging waits, storing goes on"),
        Budget("state", "bytes", memory["bytes"], most, memory["bytes"] >= 0.99 * most,
               "the group that was touched least recently is forgotten"),
        Budget("cache", "bytes", cache["bytes"], config.engine.cache_bytes, cache["bytes"] >= config.engine.cache_bytes,
               "the oldest results give way"),
        Budget("memory", "bytes", resident(), config.agent.max_memory, lean,
               "the result cache is off, frames are judged from disk"),
        Budget("descriptors", "files", files, most_files, files >= most_files,
               "what needs one waits; connections that have sent nothing are closed"),
    ]  # fmt: skip


def _amount(value: float, unit: str) -> str:
    if unit != "bytes":
        return f"{value:g}"
    for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value:g} B"


def status(rows: Iterable[Budget]) -> dict[str, dict[str, Any]]:
    """JSON-able, by name."""
    return {row.name: {key: value for key, value in row._asdict().items() if key != "name"} for row in rows}


def render(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A ``status`` for people: a line each."""
    return [
        f"budget   {name.replace('_', ' ')}: {_amount(row['used'], row['unit'])} of {_amount(row['max'], row['unit'])}"
        + (" days" if row["unit"] == "days" else "")
        + (f"  REACHED: {row['action']}" if row["reached"] else "")
        for name, row in rows.items()
    ]
