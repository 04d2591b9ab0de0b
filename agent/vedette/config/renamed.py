"""Settings of the release before: taken for this one, each with a warning that says what to write instead.

The tables below are all there is of them: with a release that no longer takes a name its row goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

BROKER = ("url", "username", "password_file", "ca_file", "cert_file", "key_file")
"""Once given in ``[uplink]`` and in each MQTT input; now in ``[broker]`` or ``[broker.NAME]``."""
GONE = frozenset({
    "engine.cache_bytes", "engine.verify_sample", "raw_log.segment_bytes", "rules.poll", "rules.quarantine_after",
    "rules.quarantine_bytes", "uplink.max_inflight", "uplink.resend_after", "log.limit", "broker.keepalive",
    "uplink.keepalive", "input.keepalive", "input.poll", "input.client_id", "input.receive_maximum",
    "response.nft", "response.poll",
})  # fmt: skip
"""What the agent chooses itself. In this release a value still counts, but for an input's or uplink's own keepalive."""


def renew(document: dict[str, Any], *, internal: bool = False) -> tuple[dict[str, Any], list[str]]:
    """``document`` of TOML with the names of today, and a warning for each old one. With ``internal`` those of GONE are
    no matter. What is no table is left for the reader to refuse."""
    document, warnings = deepcopy(document), list[str]()
    old = [
        (where, kind, table, key)
        for where, kind, table in _tables(document)
        for key in table
        if f"{kind}.{key}" in GONE
    ]
    for _, kind, table, key in old:
        if key == "keepalive" and kind != "broker":
            del table[key]
    fleet = document.get("fleet")
    if isinstance(fleet, dict) and "redact" in fleet and isinstance(document.get("redact", []), list):
        document["redact"] = [*document.get("redact", []), {"expressions": fleet.pop("redact")}]
        warnings.append("fleet.redact: is now expressions of [[redact]], which is for alerts, too")
    uplink, inputs, brokers = document.get("uplink"), document.get("input"), document.setdefault("broker", {})
    if isinstance(brokers, dict):
        if isinstance(uplink, dict):
            moved = _taken(uplink)
            warnings += [f"uplink.{key}: is now {key} of [broker]" for key in moved]
            document["broker"] = brokers = {**moved, **brokers}
        for i, item in enumerate(inputs if isinstance(inputs, list) else []):
            if (
                isinstance(item, dict)
                and item.get("type") == "mqtt"
                and "broker" not in item
                and (moved := _taken(item))
            ):
                where = _broker(item, moved, brokers)
                warnings += [f"input[{i}].{key}: is now {key} of {where}" for key in moved]
    if not internal:
        warnings += [f"{where}.{key}: the agent chooses this itself now: remove it" for where, _, _, key in old]
    return document, [f"{line}; the next release refuses it" for line in warnings]


def _broker(item: dict[str, Any], moved: dict[str, Any], brokers: dict[str, Any]) -> str:
    """Put what was ``moved`` from an input into ``brokers``; returns where it is."""
    if moved == {key: value for key, value in brokers.items() if not isinstance(value, dict)}:
        return "[broker], once for all"
    name = str(item.get("name", "mqtt"))
    while name in BROKER or name in brokers:
        name += "-broker"
    brokers[name], item["broker"] = moved, name
    return f'[broker.{name}], and the input has broker = "{name}"'


def _taken(table: dict[str, Any]) -> dict[str, Any]:
    return {key: table.pop(key) for key in BROKER if key in table}


def _tables(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every table: its place, as the reader names it, its name, and what is in it."""
    for name, value in document.items():
        for i, table in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(table, dict):
                yield f"{name}[{i}]" if isinstance(value, list) else name, name, table
                if name == "broker":
                    yield from (
                        (f"broker.{key}", name, below) for key, below in table.items() if isinstance(below, dict)
                    )
