"""Test events beside rules: ``NAME.test.yml`` next to ``NAME.yml``, a list of items

- match: "a raw line"                                  # read as an agent's input with format auto reads it
- no_match: "another"
- match: {event: {field: value}, codec: json}          # a structured event
- match: {raw: "…", codec: mqtt, topic: plant/press/1}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import yaml

from vedette.compiler.ir import Rule
from vedette.engine.selftest import Case
from vedette.inputs.decode import CODECS

_KEYS = {"raw", "event", "codec", "topic"}


def load(rules: Iterable[Rule]) -> tuple[list[Case], list[str]]:
    """The cases beside each rule's file, and what is wrong with such files: file, line and reason."""
    cases: list[Case] = []
    mistakes: list[str] = []
    for rule in rules:
        path = Path(rule.path)
        path = path.with_name(path.stem + ".test.yml")
        if not path.exists():
            continue
        try:
            text = path.read_text("utf-8")
            items, nodes = yaml.safe_load(text), yaml.compose(text)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            mistakes.append(f"{path}: cannot be read: {error}")
            continue
        if not isinstance(items, list) or not isinstance(nodes, yaml.SequenceNode):
            mistakes.append(f"{path}: expects a list of '- match: …' and '- no_match: …'")
            continue
        for item, node in zip(items, nodes.value, strict=True):
            where = f"{path}:{node.start_mark.line + 1}"
            try:
                cases.append(_case(rule.id, item, where))
            except (ValueError, TypeError) as error:
                mistakes.append(f"{where}: {error}")
    return cases, mistakes


def _case(rule_id: str, item: Any, where: str) -> Case:
    if not isinstance(item, Mapping) or len(item) != 1 or not set(item) <= {"match", "no_match"}:
        raise ValueError("expects one of 'match' and 'no_match'")
    ((outcome, event),) = item.items()
    if isinstance(event, str):
        event = {"raw": event}
    if not isinstance(event, Mapping) or not set(event) <= _KEYS or ("raw" in event) == ("event" in event):
        raise ValueError("expects a raw line, or a mapping with raw or event, and perhaps codec and topic")
    raw = str(event["raw"]).encode() if "raw" in event else orjson.dumps(event["event"], default=str)
    topic = str(event.get("topic", ""))
    codec = str(event.get("codec", "mqtt" if topic else "json" if "event" in event else "auto"))
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(CODECS)}")
    return Case(rule_id, outcome == "match", raw, codec, topic, where)
