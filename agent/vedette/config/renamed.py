"""Settings of the release before: taken for this one, each with a warning that says what to write instead.

The tables below are all there is of them: with a release that no longer takes a name its row goes.
"""

from __future__ import annotations

import re
from typing import Any

BROKER = ("url", "username", "password_file", "ca_file", "cert_file", "key_file", "keepalive")
"""Once given in ``[uplink]`` and in each MQTT input; now in ``[broker]`` or ``[broker.NAME]``."""
GONE = frozenset({
    "engine.cache_bytes", "engine.verify_sample", "raw_log.segment_bytes", "rules.poll", "rules.quarantine_after",
    "rules.quarantine_bytes", "uplink.max_inflight", "uplink.resend_after", "log.limit", "broker.keepalive",
    "uplink.keepalive", "input.keepalive", "input.poll", "input.client_id", "input.receive_maximum",
})  # fmt: skip
"""What the agent chooses itself. In this release a value still counts."""


def gone(where: str) -> bool:
    """Whether the setting ``where``, such as ``input[2].poll`` or ``broker.plant.keepalive``, is one of GONE."""
    return re.sub(r"\[\d+\]|(?<=^broker)\..+(?=\.)", "", where) in GONE  # a NAME may hold dots


def renew(document: dict[str, Any], *, internal: bool = False) -> tuple[dict[str, Any], list[str]]:
    """``document`` of TOML with the names of today, and a warning for each old one. With ``internal`` those of GONE are
    no matter. What is no table is left for the reader to refuse."""
    warnings: list[str] = []
    old = [] if internal else [where for where in _named(document) if gone(where)]
    uplink, brokers = document.get("uplink"), document.get("broker", {})
    inputs = document.get("input")
    if not isinstance(brokers, dict):
        return document, warnings
    brokers = dict(brokers)
    document = dict(document)
    if isinstance(uplink, dict) and (moved := _taken(uplink, BROKER)):
        document["uplink"] = {key: value for key, value in uplink.items() if key not in moved}
        brokers = {**moved, **brokers}
        warnings += [f"uplink.{key}: is now {key} of [broker]" for key in moved if key != "keepalive"]
    if isinstance(inputs, list):
        document["input"] = [_input(i, item, brokers, warnings) for i, item in enumerate(inputs)]
    if brokers:
        document["broker"] = brokers
    warnings += [f"{where}: the agent chooses this itself now: remove it" for where in old]
    return document, [f"{line}; the next release refuses it" for line in warnings]


def _input(i: int, item: Any, brokers: dict[str, Any], warnings: list[str]) -> Any:
    """The input ``item`` without the keys of its broker, which are in ``brokers`` afterwards."""
    if not isinstance(item, dict) or item.get("type") != "mqtt" or not (moved := _taken(item, BROKER)):
        return item
    rest = {key: value for key, value in item.items() if key not in moved}
    if set(moved) == {"keepalive"}:  # its broker has moved before: the agent's own choice is as good
        return rest
    if moved == {key: value for key, value in brokers.items() if not isinstance(value, dict)}:
        return _moved(rest, i, moved, "[broker], once for all", warnings)
    name = str(item.get("name", "mqtt"))
    while name in BROKER or name in brokers:
        name += "-broker"
    brokers[name] = moved
    return _moved({**rest, "broker": name}, i, moved, f'[broker.{name}], and the input has broker = "{name}"', warnings)


def _moved(rest: dict[str, Any], i: int, moved: dict[str, Any], where: str, warnings: list[str]) -> dict[str, Any]:
    warnings += [f"input[{i}].{key}: is now {key} of {where}" for key in moved if key != "keepalive"]
    return rest


def _taken(table: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}


def _named(document: dict[str, Any]) -> list[str]:
    """Every setting by its place, as the reader names it."""
    found: list[str] = []
    for table, value in document.items():
        for i, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            here = table if i is None else f"{table}[{i}]"
            for key, below in item.items() if isinstance(item, dict) else ():
                found += [f"{here}.{key}.{name}" for name in below] if isinstance(below, dict) else [f"{here}.{key}"]
    return found
