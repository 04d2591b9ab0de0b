"""Events that surely match: not evaluated but for a sample, by which a wrong kernel is found out."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from tests.engine import drawn
from tests.engine.by_kernel import needs_kernel
from tests.engine.test_property import chunks, matches_of, rule
from vedette.engine.cache import Cache
from vedette.engine.match import SURE_SAMPLE, Engine
from vedette.model.event import LogSource
from vedette.plan import plan as plans
from vedette.plan.ir import And, Leaf, Not, Op, Predicate

pytestmark = needs_kernel


@pytest.fixture
def matching() -> Engine:
    """An engine whose kernel knows that events match two rules."""
    predicates = [Predicate("a", Op.EXACT, "x"), Predicate("b", Op.CONTAINS, "y")]
    on = Engine(plans.build([rule(0, Leaf(0)), rule(1, Not(Leaf(1)))], predicates), route=False, cache=Cache(0))
    for _ in range(3):
        matches_of(on, chunks([drawn.Drawn("json", b'{"a":"z","b":"y"}', "")], ends_wanted=False))
    return on


MATCHING = [drawn.Drawn("json", b'{"a":"x","b":"z"}', "")] * 1500


def evaluations(engine: Engine, events: list[drawn.Drawn] = MATCHING) -> tuple[set[tuple[int, int]], int]:
    """The matches of events, and how many of them were evaluated."""
    times = []
    among = engine.evaluator.among
    with mock.patch.object(engine.evaluator, "among", lambda *event: (times.append(0), among(*event))[1]):
        return matches_of(engine, chunks(events, ends_wanted=False)), len(times)


def test_what_surely_matches_is_not_evaluated(matching: Engine) -> None:
    """But for a sample, in which the kernel is found right."""
    both = {(n, i) for n in range(1500) for i in range(2)}
    assert evaluations(matching) == (both, 1500 // SURE_SAMPLE)
    assert matching.kernel()["wrong"] == 0
    assert matching.tally.matches == 3000


def test_a_kernel_that_is_wrong_is_found_out(matching: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation counts, and is asked about all events from then on."""
    monkeypatch.setattr(matching.evaluator, "among", lambda *_: [1])
    matches = matches_of(matching, chunks(MATCHING, ends_wanted=False))
    assert {(n, 1) for n in range(1500)} == {match for match in matches if match[1] == 1}
    assert len(matches) == 1500 + SURE_SAMPLE - 1
    assert matching.kernel()["wrong"] == 1
    assert matching.kernel_wrong == "rules 0 came out differently than the kernel said"


def test_a_wrong_log_source_is_found_out(matching: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of objects the kernel knows the log source, too, so that is proved with the rest."""
    matching.route = True
    monkeypatch.setattr(matching, "_fitting", lambda source: frozenset())
    matches_of(matching, chunks(MATCHING, ends_wanted=False))
    assert matching.kernel_wrong == "rules 0, 1 came out differently than the kernel said"


def test_rules_in_quarantine_are_not_matched(matching: Engine) -> None:
    """Whatever the kernel knows, they are asked no more, and counted."""
    matching.quarantine([matching.plan.rules[0].digest])
    assert matches_of(matching, chunks(MATCHING, ends_wanted=False)) == {(n, 1) for n in range(1500)}
    assert matching.tally.skipped[0] == 1500


def test_lines_that_surely_match() -> None:
    """They are not evaluated, and rules of another log source than theirs do not match them."""
    asked = Predicate("message", Op.CONTAINS, "failed"), Predicate("host", Op.EXACT, "web1")
    sshd, cron = LogSource("linux", "", "sshd"), LogSource("linux", "", "cron")
    rules = [
        replace(rule(0, Leaf(0)), logsource=sshd),
        replace(rule(1, Leaf(0)), logsource=cron),
        replace(rule(2, And((Leaf(0), Leaf(1)))), logsource=cron),  # a host is not known to the kernel
    ]
    lines = ["<38>Nov 20 10:00:00 web1 sshd[1]: failed", "<38>Nov 20 10:00:00 web1 cron[1]: failed", "{failed"]
    events = [drawn.Drawn("syslog", line.encode(), "") for line in lines]
    engine = Engine(plans.build(rules[:2], asked[:1]), cache=Cache(0))
    assert evaluations(engine, events) == ({(0, 0), (1, 1)}, 0)
    engine = Engine(plans.build(rules, asked), cache=Cache(0))
    assert evaluations(engine, events) == ({(0, 0), (1, 1), (1, 2)}, 2)
