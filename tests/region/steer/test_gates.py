"""Each gate finds what it is for at one agent, and a ring fails by shares, beyond what happens to everybody."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.region.steer.kit import SECOND, START, beat
from vedette.region.steer import vitals
from vedette.region.steer.gates import GATES, LIMITS, Case, Finding, limits, read_limits, verdict

DEFAULT = limits({})
HOUR = 3600 * SECOND
USUAL: dict[str, Any] = {"events": 100_000, "cpu": 100.0, "memory": 200 << 20, "undecided": 5, "lost": 100,
                         "alerts": {"ssh": 120}}  # fmt: skip


def read(time: int, **figures: Any) -> vitals.Vitals:
    found = vitals.read(beat("a", time, **figures))
    assert found is not None
    return found


def case(**figures: Any) -> Case:
    """An agent an hour after a ring began, with ``figures`` in place of what would be usual; the hour before it
    evaluated 100,000 events in 100 s of CPU time, lost 100, and rule ssh made 120 alerts."""
    first, mark = read(START), read(START + HOUR, **USUAL)
    later = {"events": 200_000, "cpu": 200.0, "memory": 210 << 20, "undecided": 10, "lost": 200, "alerts": {"ssh": 240}}
    now = read(START + 2 * HOUR, **{**later, **figures})
    lag = figures.get("lag", 0.0)
    return Case(now, mark, vitals.rates(first, mark), vitals.rates(mark, now), lag)


def gates_of(one: Case) -> set[str]:
    return {finding.gate for finding in DEFAULT.findings(one)}


def test_an_agent_as_usual() -> None:
    """Nothing is found, also where nothing is known."""
    assert gates_of(case()) == gates_of(Case(None)) == gates_of(Case(read(START))) == set()


@pytest.mark.parametrize(
    ("gate", "figures", "fine"),
    [
        ("crashes", {"crashes": 1}, {"crashes": 0}),
        ("restarts", {"starts": 5}, {"starts": 4}),
        ("quarantined", {"quarantined": 1}, {"quarantined": 0}),
        ("undecided", {"undecided": 16}, {"undecided": 15}),
        ("poisoned", {"poisoned": 1}, {"poisoned": 0}),
        ("loss", {"lost": 301}, {"lost": 300}),
        ("cpu", {"cpu": 301.0}, {"cpu": 299.0}),
        ("memory", {"memory": 301 << 20}, {"memory": 299 << 20}),
        ("alerts", {"alerts": {"ssh": 120 + 601}}, {"alerts": {"ssh": 120 + 600}}),
        ("alerts", {"alerts": {"ssh": 240, "new": 601}}, {"alerts": {"ssh": 240, "new": 600}}),
        ("lag", {"lag": 61.0}, {"lag": 60.0}),
    ],
)
def test_each_gate(gate: str, figures: dict[str, Any], fine: dict[str, Any]) -> None:
    """Just above its limit, and not at it."""
    assert gates_of(case(**figures)) == {gate}
    assert gates_of(case(**fine)) == set()
    off = limits({gate: False})
    assert off.findings(case(**figures)) == ()


def test_a_refusal_and_silence() -> None:
    """What the fleet sees, and no heartbeat's figures."""
    assert gates_of(Case(None, refusal="the dry run failed")) == {"refused"}
    assert (gates_of(Case(None, silent=301.0)), gates_of(Case(None, silent=300.0))) == ({"silence"}, set())


def test_restarts_are_those_that_were_no_crash() -> None:
    """Ten lives that were killed are crashes, and no restarts; a controller that did not ask before finds nothing."""
    assert gates_of(case(starts=11, crashes=10)) == {"crashes"}
    assert gates_of(case(starts=15, crashes=10)) == {"crashes", "restarts"}
    one = case(starts=500)
    assert one.mark is not None
    assert gates_of(one._replace(mark=vitals.Vitals(*one.mark[:-1]))) == set()
    row = beat("a", START)
    del row["process"]["starts"]
    old = vitals.read(row)
    assert old is not None
    for other in (one._replace(now=old), one._replace(mark=old)):
        assert "restarts" not in gates_of(other)


def test_whatever_is_in_quarantine_counts() -> None:
    """Rules, those of strict sets, formats and plugins; a merged set's are among the agent's own."""
    row = beat("a", START, quarantined=1)
    row["rules"]["formats"] = [{"name": "gate", "quarantined": True}, {"name": "door", "quarantined": False}]
    row["plugins"] = [{"name": "p", "quarantined": True}]
    row["rulesets"] = [
        {"name": "default", "isolation": "merged", "quarantined": 1},
        {"name": "own", "isolation": "strict", "quarantined": 2},
    ]
    read_ = vitals.read(row)
    assert read_ is not None
    assert read_.quarantined == 5


def test_every_gate_is_tested() -> None:
    (marks,) = test_each_gate.pytestmark  # type: ignore[attr-defined]  # pytest's
    assert {gate.name for gate in GATES} == {one[0] for one in marks.args[1]} | {"refused", "silence"}
    assert {gate.name for gate in GATES} <= {*LIMITS}


def test_figures_of_a_new_life() -> None:
    """After a restart alerts and CPU time count from nothing; a clock that stands still gives no rates."""
    before = read(START, **USUAL)
    again = read(START + HOUR, **{**USUAL, "started": START + HOUR // 2, "cpu": 30.0, "alerts": {"ssh": 60}})
    rates = vitals.rates(before, again)
    assert rates is not None
    assert (rates.alerts, round(rates.cpu, 5)) == ({"ssh": 1.0}, round(30 / 3600, 5))
    assert vitals.rates(before, before) is None


def test_a_rule_that_was_not_among_those_named() -> None:
    """It made at most as many alerts as the last that was named."""
    many = {f"r{i}": 1000 for i in range(20)}
    before, mark = read(START), read(START + HOUR, alerts=many)
    now = read(START + 2 * HOUR, alerts={**{f"r{i}": 2000 for i in range(19)}, "other": 4000})
    one = Case(now, mark, vitals.rates(before, mark), vitals.rates(mark, now))
    assert one.before is not None
    assert round(one.before.rest, 2) == 16.67
    assert gates_of(one) == set()  # 3,000 more in an hour: not more than three times 1,000


@pytest.mark.parametrize("junk", [{}, {"inputs": 3}, {**beat("a", 1), "totals": None}, {**beat("a", 1), "time": "x"},
                                  {**beat("a", 1), "process": {}}])  # fmt: skip
def test_junk(junk: dict[str, Any]) -> None:
    """Whatever an agent sends: no figures."""
    assert vitals.read(junk) is None


def ring(bad: int, reached: int, others: int, of: int, gate: str = "crashes", times: float = 1.0) -> bool:
    """Whether a ring fails with so many bad agents of the given, and so many of those without the change."""
    inside: Mapping[str, Sequence[Finding]] = {f"a{i}": (Finding(gate, "bad", times),) for i in range(bad)}
    outside: Mapping[str, Sequence[Finding]] = {f"b{i}": (Finding(gate, "bad", times),) for i in range(others)}
    return bool(verdict(DEFAULT, inside, reached, outside, of))


def test_shares() -> None:
    """One crash of five agents stops a ring, one of 1,000 does not; one busy host of five does not, two do; ten times
    the limit at one does; and nothing that the others have as often."""
    assert [ring(1, 5, 0, 95), ring(1, 1000, 0, 0), ring(11, 1000, 0, 0)] == [True, False, True]
    assert [ring(1, 5, 0, 95, "alerts"), ring(2, 5, 0, 95, "alerts")] == [False, True]
    assert [ring(1, 5, 0, 95, "alerts", 9.9), ring(1, 5, 0, 95, "alerts", 10.0)] == [False, True]
    assert [ring(5, 5, 95, 95, "alerts", 50.0), ring(5, 5, 30, 95), ring(2, 5, 30, 95)] == [False, True, False]


def test_the_table_of_limits() -> None:
    """Durations as texts, gates off; every mistake at once."""
    assert read_limits({"silence": "10m", "cpu": False, "share": 0.5, "refused": True, "crashes": 2}) == {
        "silence": 600.0, "cpu": False, "share": 0.5, "refused": True, "crashes": 2.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match="crash: unknown; known: crashes, ") as refused:
        read_limits({"crash": 1, "share": 2, "taken": False, "cpu": "2", "silence": "soon", "memory": -1, "refused": 3})
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == [
        "crash", "share", "taken", "cpu", "silence", "memory", "refused",
    ]  # fmt: skip


def test_the_page_lists_them() -> None:
    """docs/fleet.md has a row for each gate, which has a limit of its name."""
    page = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text().partition("| `[gates]` |")[2]
    rows = re.findall(r"(?m)^\| ([^|]*) \|", page.partition("\n\n")[0])
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == {gate.name for gate in GATES}
    assert listed <= LIMITS.keys()
