"""Rule files with mistakes of every kind: what is wrong is refused by file and line, and all else of the set runs.

Real files are changed where the nodes of their YAML stand: any key or value gives way to one of another kind, to a
template that nobody rendered, to an alias, to something deep or vast; or bytes are put in that are no YAML.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.deep import examples
from vedette.api import evaluate
from vedette.engine.match import Engine
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.rules.authoring import cases, explain, lint

ROOT = Path(__file__).parents[2]
GOOD = """\
title: A good rule
id: 00000000-0000-4000-8000-000000000001
name: a_good_rule
logsource: {product: linux}
detection:
    selection: {user: root, message|contains: failure}
    condition: selection
---
title: A good correlation
id: 00000000-0000-4000-8000-000000000002
correlation: {type: event_count, rules: [a_good_rule], group-by: [user], timespan: 5m, condition: {gte: 5}}
---
title: A good filter
logsource: {product: linux}
filter:
    rules: [a_good_rule]
    selection: {user: backup}
    condition: not selection
"""
FILTER = """\
title: Backups
logsource: {product: linux, service: sudo}
filter:
    rules:
        - a_good_rule
        - any
    selection:
        user: [backup, 'dump*']
        pwd|startswith: /var/backups
    condition: not selection
"""
COLLECTION = """\
action: global
logsource: {product: linux, service: sudo}
tags: [attack.t1059]
---
title: One
detection:
    selection: {command|contains|all: [iptables, -F]}
    condition: selection
---
action: repeat
title: Other
detection:
    selection: {'command|re': 'ufw\\s+disable'}
"""
CASES = """\
- match: {event: {user: root}}
- no_match: "a line"
- rule: A good correlation
  sequence:
    - {at: 2025-01-01T00:00:00Z, raw: x}
  expect: 0
"""


def _texts(folder: str, ending: str) -> list[str]:
    paths = (path for path in sorted((ROOT / folder).rglob("*.yml")) if path.name.endswith(".test.yml") == bool(ending))
    return [path.read_text() for path in paths]


TEXTS = {
    "rules": _texts("rules/sigma", ""),
    "filter": [FILTER],
    "collection": [COLLECTION],
    "documents": [GOOD.replace("good", "fair").replace("-8000-", "-9000-")],
    "tests": [CASES, *_texts("rules/sigma", ".test.yml")],
    "pipelines": _texts("rules/pipelines", ""),
}

BOMB = "&a [x, x, x, x, x, x, x, x, x]"
for _name, _before in zip("bcdefghi", "abcdefgh", strict=True):
    BOMB = f"[{BOMB}, &{_name} [{', '.join([f'*{_before}'] * 9)}]]"
KINDS = (
    *("null", "", "true", "no", "0", "-1", "5", "07", "1.5", "1e999", ".nan", "9" * 30, "9" * 5000),
    *(
        "2025-01-01",
        "2025-13-45",
        "10:30",
        "''",
        "' '",
        "text",
        "'5'",
        "'%x%'",
        "'*'",
        "'?*'",
        "'\\'",
        '"\\0"',
        '"\\uD800"',
    ),
    *(
        '"\\0"',
        '"\\uD800"',
        "[]",
        "{}",
        "[x]",
        "[[x], {a: b}]",
        "[null]",
        "[1, x, true]",
        "{a: b}",
        "{a: {b: c}}",
        "{1: 2}",
        "{null: 1}",
    ),
    *("{{ admin_user }}", "{% if x %}", "{{ x }}: 1", "[{{ x }}]", "{[a]: b}", "{a: 1, a: 2}", "? [x]\n: y"),
    *("&a [*a]", "&a {b: *a}", "*nothing", BOMB, "[" * 40 + "]" * 40, "[" * 9000 + "]" * 9000, "{a: " * 9000),
    *(
        "!!binary aGk=",
        "!!set {a}",
        "!!omap [a: 1]",
        "!!timestamp 2025-01-01",
        "!!python/name:os.system",
        "!x y",
        "!!int x",
    ),
    *(
        "!!float z",
        "!!null 5",
        "!!bool 7",
        "!!str",
        "x" * 70_000,
        "(" * 3000,
        "'not ' * 500",
        "a\n---\nb",
        "%YAML 9",
        "'[(a'",
    ),
    *(
        "a\n---\nb",
        "%YAML 9",
        "'[(a'",
        "\t",
        "@x",
        "`x`",
        ": :",
        "- -",
        "'",
        '"',
        "\ufeff",
        "\x01",
        "\x85",
        "\u2028",
        "1 of",
        "$x",
        "9s",
        "selection |",
    ),
)
PLACES: dict[str, list[tuple[int, int]]] = {}


def places(text: str) -> list[tuple[int, int]]:
    """Start and end of every key and value in ``text``."""
    if text not in PLACES:
        found, stack = [], list(yaml.compose_all(text))
        while stack:
            node = stack.pop()
            found.append((node.start_mark.index, node.end_mark.index))
            for child in node.value if not isinstance(node, yaml.ScalarNode) else ():
                stack.extend(child if isinstance(child, tuple) else (child,))
        PLACES[text] = found
    return PLACES[text]


@st.composite
def mistaken(draw: st.DrawFn, kind: str) -> bytes:
    """One of ``TEXTS[kind]`` with one to three keys or values of another kind, or with bytes that are no text."""
    texts = TEXTS[kind]
    text = texts[draw(st.integers(0, len(texts) - 1))]
    found = places(text)
    numbers = draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=3, unique=True))
    chosen = [found[number] for number in numbers]
    changed = len(text)
    for start, end in sorted(chosen, reverse=True):
        if end > changed:  # it holds one that is changed already
            continue
        changed = start
        new = KINDS[draw(st.integers(0, len(KINDS) - 1))]
        if start < end and text[end - 1] == "\n":
            new += "\n"
        text = text[:start] + new + text[end:]
    data = text.encode("utf-8", "replace")
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(data)))
        data = (
            data[:at] + draw(st.sampled_from((b"\xff", b"\xc3", b"\0", b"\t", b"\r", b"---\n", b"\x1b[2J"))) + data[at:]
        )
    if draw(st.integers(0, 29)) == 0:
        data = data.decode("utf-8", "replace").encode("utf-16")
    return data


EVENTS = (
    '{"user": "root", "message": "failure", "EventID": 1, "CommandLine": "x"}',
    "<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2",
)


def loads(folder: Path) -> Plan:
    """All that reads rule files, on a folder in which ``good.yml`` is good and ``bad.yml`` may be anything."""
    rules = build.load([folder])
    plan = Plan.from_bytes(build.from_rules(rules).to_bytes())
    bad = folder / "bad.yml"
    lines = bad.read_bytes().count(b"\n") + 2 if bad.exists() else 0
    ours = {rule.title for rule in (*plan.rules, *plan.correlations) if rule.path == str(folder / "good.yml")}
    assert ours == {"A good rule", "A good correlation"}, plan.refused
    for refusal in plan.refused:
        assert refusal.path == str(bad), refusal
        assert 1 <= refusal.line <= lines * 2, refusal
        assert refusal.reason
    _, mistakes = cases.load(plan)
    _, more = cases.sequences(plan)
    assert all(re.match(rf"{re.escape(str(folder))}/[a-z.]+:\d+: .", mistake) for mistake in (*mistakes, *more))
    findings = lint.lint([folder], rules, plan)
    assert len([one for one in findings if one.check == "refused"]) == len(set(plan.refused))
    engine = Engine(plan, route=False)
    list(evaluate(engine, EVENTS))
    for number in range(len(plan.rules)):
        list(explain.rule(engine.plan, engine.evaluator, number))
    return plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rules"
    made.mkdir()
    (made / "good.yml").write_text(GOOD)
    return made


@pytest.mark.parametrize("kind", ["rules", "filter", "collection", "documents"])
def test_rules(folder: Path, kind: str) -> None:
    """Rules, correlations, filters and collections with mistakes: never an exception, the good file runs."""

    @examples(50)
    @example(b"user: {{ admin_user }}\n")
    @example(b"")
    @given(mistaken(kind))
    def check(data: bytes) -> None:
        (folder / "bad.yml").write_bytes(data)
        loads(folder)

    check()


def test_test_events(folder: Path) -> None:
    """Files of test events with mistakes: what is wrong is told by file and line, and no rule is touched."""
    bad = folder / "good.test.yml"

    @examples(50)
    @given(mistaken("tests"))
    def check(data: bytes) -> None:
        bad.write_bytes(data)
        assert not loads(folder).refused

    check()


def test_pipelines(folder: Path, tmp_path: Path) -> None:
    """A pipeline is refused by its file, or it is applied; then what it makes of a rule concerns that rule alone."""
    path = tmp_path / "p.yml"

    @examples(50)
    @given(mistaken("pipelines"))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            rules = build.load([folder], [path])
        except ValueError as error:
            if not re.match(rf"{re.escape(str(path))}:\d+:", str(error)):
                raise
            return
        build.from_rules(rules)

    check()
