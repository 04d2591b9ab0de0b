"""Sigma's time modifiers: parts of times as they are written, on every path as the reference says."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.differences import walk
from tests.reference import matches
from vedette.api import compile_rules
from vedette.decode.decoder import from_mapping
from vedette.engine.match import Engine
from vedette.plan.timepart import UNITS, part

NONE = None


@walk(
    ("text", "parts"),
    [
        ("2025-11-28T08:30:20.966901Z", (30, 8, 28, 48, 11, 2025)),
        ("2025-11-28 08:30:20,5", (30, 8, 28, 48, 11, 2025)),
        ("2025/11/28 08:30", (30, 8, 28, 48, 11, 2025)),
        ("2025-03-30T23:59:00-08:00", (59, 23, 30, 13, 3, 2025)),
        ("2025-03-30t00:00:00+14:00", (0, 0, 30, 13, 3, 2025)),
        ("2025-11-28 08:30:20 UTC", (30, 8, 28, 48, 11, 2025)),
        *((f"2025-11-28T08:30:20{tail}", (NONE,) * 6) for tail in ("x", "Zabc", ":10", "1", "+1", "Z[")),
        ("2025-11-28", (NONE, NONE, 28, 48, 11, 2025)),
        ("Nov 20 10:05:00", (5, 10, 20, NONE, 11, NONE)),
        ("Nov  2 10:05:00 2025", (5, 10, 2, 44, 11, 2025)),
        ("Thu, 20 Nov 2025 10:05:00 +0000", (5, 10, 20, 47, 11, 2025)),
        ("20/Nov/2025:10:05:00 +0100", (5, 10, 20, 47, 11, 2025)),
        ("Feb 29 10:05:00", (5, 10, 29, NONE, 2, NONE)),
        ("2024-12-30", (NONE, NONE, 30, 1, 12, 2024)),
        ("2021-01-01", (NONE, NONE, 1, 53, 1, 2021)),
        ("1732000000", (6, 7, 19, 47, 11, 2024)),
        ("1732000000123", (6, 7, 19, 47, 11, 2024)),
        ("1732000000.25", (6, 7, 19, 47, 11, 2024)),
        *((text, (NONE,) * 6) for text in ("", "x", "5", "2025-13-01", "2025-02-30", "2025-11-28T25:00", "٢٠٢٥-11-28")),
        ("2025-11-28T08:30" + " " * 60, (NONE,) * 6),
    ],
)
def test_parts(text: str, parts: tuple[int | None, ...]) -> None:
    """What is written has its part, whatever the zone; what is not written has none."""
    assert tuple(part(text, unit) for unit in UNITS) == parts


def rule(*items: str) -> str:
    head = "title: t{}\nlogsource: {{product: x}}\ndetection: {{s: {{{}}}, condition: s}}\n"
    return "---\n".join(head.format(i, item) for i, item in enumerate(items))


def test_rules_ask_for_parts() -> None:
    """Lists are one of, ``neq`` is not, numbers in JSON are times, too."""
    plan = compile_rules(text=rule("t|hour: [7, 8]", "t|week|neq: 48", "t|year: 2025", "t|minute: 30"))
    engine = Engine(plan, route=False)
    assert engine.true(from_mapping({"t": "2025-11-28T08:30:00Z"})) == [0, 2, 3]
    assert engine.true(from_mapping({"t": 1732000000})) == [0, 1]
    assert engine.true(from_mapping({"t": ["never", "2025-11-28T09:30:00Z"]})) == [2, 3]
    assert engine.true(from_mapping({})) == [1]
    assert plan.literals == (None,) * 4


DIGITS = st.text("0123456789:/-+TZ .,", max_size=30)
TIMES = st.one_of(
    st.datetimes().map(lambda t: t.isoformat()),
    st.datetimes().map(lambda t: t.strftime("%Y/%m/%d %H:%M:%S+02:00") if t.year > 999 else "x"),
    st.datetimes().map(lambda t: t.strftime("%b %d %H:%M:%S")),
    st.datetimes().map(lambda t: t.strftime("%d/%b/%Y:%H:%M:%S +0100") if t.year > 999 else "x"),
    st.integers(0, 10**19).map(str),
    st.dates().map(str),
)


@settings(max_examples=300)
@given(st.one_of(TIMES, TIMES, DIGITS), st.integers(0, 60), st.sampled_from(sorted(UNITS)))
def test_as_the_reference_says(text: str, number: int, unit: str) -> None:
    """On drawn times the engine and the naive evaluator give one answer, and nothing raises."""
    wanted = [number, *([found] if (found := part(text, unit)) is not None else [])]
    plan = compile_rules(text=rule(f"t|{unit}: {wanted}"))
    event = from_mapping({"t": text})
    assert Engine(plan, route=False).true(event) == matches(plan, event)
