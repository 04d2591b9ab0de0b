"""Test events beside rules: ``NAME.test.yml`` next to ``NAME.yml``, a list of items

- match: "a raw line"                                  # read as an agent's input with format auto reads it
- no_match: "another"
- match: {event: {field: value}, codec: json}          # a structured event
- match: {raw: "…", codec: mqtt, topic: plant/press/1}
- sequence:                                            # of a correlation or statement: events, in any order, and when
    - {raw: "a raw line", at: "2026-11-21T10:00:00Z"}
    - {event: {field: value}, at: "2026-11-21T10:00:05Z"}
  expect: 1                                            # how often it fires, or how many rows it gives

In a file with several rules ``match`` and ``no_match`` are about each detection, and each statement, for which an event
matches when it gives a row for that alone; ``sequence`` is about the one correlation that makes alerts, or the one
statement, unless the item has a ``rule:`` beside: an id or a title.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import yaml

from vedette.decode.codecs import CODECS, DECLARED
from vedette.model.times import micros, time_of
from vedette.plan.ir import Rule
from vedette.plan.limits import MAX_FILE
from vedette.plan.plan import Plan
from vedette.plan.query import Statement
from vedette.plan.relation import Correlation
from vedette.rules.selftest import Case, Sequence, Timed
from vedette.rules.sigma.documents import check_shape
from vedette.rules.sigma.faults import not_yaml
from vedette.system.folders import read_regular

_KEYS = {"raw", "event", "codec", "topic"}
_OUTCOMES = {"match", "no_match", "sequence"}


_ENDINGS = (".test.yml", ".test.yaml")


def is_test(path: Path) -> bool:
    """Whether ``path`` is named as a file of test events."""
    return path.name.endswith(_ENDINGS) and not path.is_dir()


def load(plan: Plan) -> tuple[list[Case], list[str]]:
    """The cases beside the file of each detection and statement, and what is wrong with such files: file, line,
    reason."""
    cases: list[Case] = []
    mistakes: list[str] = []
    rules: list[Rule | Statement] = [*plan.detections, *plan.statements]
    for rule in rules:
        for item, where in _items(rule.path, mistakes):
            try:
                meant = not isinstance(item, Mapping) or item.get("rule", rule.id) in (rule.id, rule.title)
                if meant and "sequence" not in item:
                    cases.append(_case(rule.id, item, where))
            except Exception as error:  # YAML may hold anything
                mistakes.append(f"{where}: {error}")
    return cases, list(dict.fromkeys(mistakes))


def sequences(plan: Plan) -> tuple[list[Sequence], list[str]]:
    """The timed cases of correlations beside their files, and what is wrong with them; also what ``load`` cannot see:
    items about a rule that is not in the file, and files beside correlations alone."""
    timed: list[Sequence] = []
    mistakes: list[str] = []
    paths = [*(rule.path for rule in plan.detections), *(statement.path for statement in plan.statements)]
    ruled = dict.fromkeys(paths)  # in their order, which the bytes of a bundle keep
    for path in dict.fromkeys([*ruled, *(correlation.path for correlation in plan.correlations)]):
        every: list[Correlation | Statement] = [*plan.correlations, *plan.statements]
        here = [rule for rule in every if rule.path == path]
        names = {name for rule in plan.detections if rule.path == path for name in (rule.id, rule.title)}
        names |= {name for c in here for name in (c.id, c.title)}
        names |= {name for refusal in plan.refused if refusal.path == path for name in (refusal.rule_id, refusal.title)}
        for item, where in _items(path, [] if path in ruled else mistakes):
            try:
                if isinstance(item, Mapping) and "rule" in item and item["rule"] not in names:
                    raise ValueError(f"rule: nothing in the file has the id or title {item['rule']!r:.80}")
                if isinstance(item, Mapping) and "sequence" in item:
                    timed.append(_sequence(_meant(plan, here, item), item, where))
                elif path not in ruled:
                    raise ValueError("expects 'sequence': there are only correlations in the file")
            except Exception as error:  # YAML may hold anything
                mistakes.append(f"{where}: {error}")
    return timed, mistakes


def _meant(plan: Plan, here: Iterable[Correlation | Statement], item: Mapping[str, Any]) -> str:
    """The id of the correlation or statement that a sequence is about; raises ValueError."""
    if "rule" in item:
        meant = [c for c in here if item["rule"] in (c.id, c.title)]
    else:
        meant = [c for c in here if c.id not in plan.silent]
    if len(meant) != 1:
        raise ValueError("which correlation or statement? Name it with 'rule': its id or title")
    return meant[0].id


def tested(plan: Plan, cases: Iterable[Case], timed: Iterable[Sequence]) -> set[str]:
    """The ids of rules and correlations that have a test: those below a tested correlation, too."""
    ids = {case.rule_id for case in cases} | {case.rule_id for case in timed}
    below = {c.id: [slot.rule_id for slot in c.slots] for c in plan.correlations}
    waiting = list(ids)
    while waiting:
        for rule_id in below.get(waiting.pop(), ()):
            if rule_id not in ids:
                ids.add(rule_id)
                waiting.append(rule_id)
    return ids


def _items(rule_path: str, mistakes: list[str]) -> Iterator[tuple[Any, str]]:
    """The items of the test file beside a rule's file, each with its place."""
    for path in (Path(rule_path).with_name(Path(rule_path).stem + ending) for ending in _ENDINGS):
        if not path.exists():
            continue
        try:
            content = read_regular(path, MAX_FILE + 1)
        except OSError as error:
            mistakes.append(f"{path}:1: cannot be read: {error.strerror}")
            return
        try:
            check_shape(content)
            items = yaml.load(content, yaml.CSafeLoader)  # safe, and ten times as quick
            nodes = yaml.compose(content, yaml.CSafeLoader)
        except Exception as error:  # whatever YAML's parser raises
            wrong = not_yaml(str(path), 1, error, content)
            mistakes.append(f"{path}:{wrong.line}: {wrong.reason}")
            return
        if not isinstance(items, list) or not isinstance(nodes, yaml.SequenceNode):
            mistakes.append(f"{path}:1: expects a list of '- match: …', '- no_match: …' and '- sequence: …'")
            return
        for item, node in zip(items, nodes.value, strict=True):
            yield item, f"{path}:{node.start_mark.line + 1}"


def _case(rule_id: str, item: Any, where: str) -> Case:
    outcomes = _OUTCOMES & set(item) if isinstance(item, Mapping) else set()
    if len(outcomes) != 1 or not set(item) <= {*outcomes, "rule"}:
        raise ValueError("expects one of 'match', 'no_match' and 'sequence', and perhaps 'rule'")
    (outcome,) = outcomes
    raw, codec, topic = _event(item[outcome])
    return Case(rule_id, outcome == "match", raw, codec, topic, where)


def _sequence(rule_id: str, item: Mapping[str, Any], where: str) -> Sequence:
    firings = item.get("expect", 1)
    events = item["sequence"]
    if not set(item) <= {"sequence", "expect", "rule"}:
        raise ValueError("expects 'sequence', and perhaps 'expect' and 'rule'")
    if type(firings) is not int or firings < 0:
        raise ValueError(f"expect: how often the correlation fires, not {firings!r}")
    if not isinstance(events, list) or not events:
        raise ValueError("sequence: expects a list of events, each with 'at'")
    timed = []
    for event in events:
        if not isinstance(event, Mapping) or "at" not in event:
            raise ValueError('an event of a sequence says when it happens: {raw: …, at: "2026-11-21T10:00:00Z"}')
        rest = {key: value for key, value in event.items() if key != "at"}
        timed.append(Timed(*_event(rest), _time(event["at"])))
    return Sequence(rule_id, firings, tuple(timed), where)


def _time(value: Any) -> int:
    """UTC microseconds of what YAML gives for a time."""
    if isinstance(value, datetime):
        return micros(value if value.tzinfo else value.replace(tzinfo=UTC))
    time = time_of(value, UTC)
    if time is None:
        raise ValueError(f'at: expects a time such as "2026-11-21T10:00:00Z", not {value!r:.60}')
    return time


def _event(event: Any) -> tuple[bytes, str, str]:
    """The bytes, codec and topic of an event as it is written in a test."""
    if isinstance(event, str):
        event = {"raw": event}
    if not isinstance(event, Mapping) or not set(event) <= _KEYS or ("raw" in event) == ("event" in event):
        raise ValueError("expects a raw line, or a mapping with raw or event, and perhaps codec and topic")
    raw = str(event["raw"]).encode() if "raw" in event else orjson.dumps(event["event"], default=str)
    topic = str(event.get("topic", ""))
    codec = str(event.get("codec", "mqtt" if topic else "json" if "event" in event else "auto"))
    if codec not in CODECS and not codec.startswith(DECLARED):
        raise ValueError(f"codec {codec!r} is not one of {', '.join(CODECS)}, nor {DECLARED}NAME")
    return raw, codec, topic
