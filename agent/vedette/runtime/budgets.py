"""What the agent may take at most, what of it is taken, and what happens beyond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vedette.engine.cache import CACHE_BYTES
from vedette.runtime.pipeline import Pipeline
from vedette.store.store import Account
from vedette.system import descriptors
from vedette.system.resident import resident


class Budget(NamedTuple):
    """``used`` of ``max`` in ``unit``; ``reached``: its ``action`` is under way."""

    name: str
    unit: str
    used: float
    max: float
    reached: bool
    action: str


def budgets(
    pipeline: Pipeline, account: Account, state: Mapping[str, Any], statements: Mapping[str, Any],
    cache: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """JSON-able, by name; ``state``, ``statements``, ``cache``: as in the status."""
    config, log, now = pipeline.context.config, pipeline.context.raw_log, pipeline.context.clock()
    raw, outbox_max, most = config.raw_log, config.uplink.max_bytes, state["max_bytes"]
    most_files = descriptors.limit()
    files = descriptors.used() or most_files
    days = round(max(0, now - log.oldest()) / 86400e6, 2)
    rows = [
        Budget("raw_log", "bytes", log.size(), raw.max_bytes, log.full(),
               "the oldest evaluated segments are deleted; while none may be, inputs wait"),
        Budget("raw_log_age", "days", days, round(raw.max_age / 86400, 2), days * 86400 >= raw.max_age,
               "older evaluated segments are deleted"),
        Budget("outbox", "bytes", account.bytes, outbox_max, account.bytes >= outbox_max,
               "evaluation waits, events are still stored"),
        Budget("state", "bytes", state["bytes"], most, state["bytes"] >= 0.99 * most,
               "the least recently used group is evicted"),
        Budget("statements", "bytes", statements["bytes"], statements["max_bytes"],
               statements["bytes"] >= 0.99 * statements["max_bytes"], "the key unchanged longest is evicted"),
        Budget("cache", "bytes", cache["bytes"], CACHE_BYTES, cache["bytes"] >= CACHE_BYTES,
               "the oldest results are evicted"),
        Budget("memory", "bytes", resident(), config.agent.max_memory, pipeline.memory_pressure,
               "the result cache is off, frames are read back from disk"),
        Budget("descriptors", "files", files, most_files, files >= most_files,
               "what needs one waits; connections that have sent nothing are closed"),
    ]  # fmt: skip
    return {row.name: {key: value for key, value in row._asdict().items() if key != "name"} for row in rows}
