"""A plan without correlations and statements says what one says whose last has gone, and takes over what was left."""

from __future__ import annotations

from tests.state.test_state import PLAN, put
from vedette.plan.plan import Plan
from vedette.state.correlate import Correlator
from vedette.state.state import NoCorrelations, State
from vedette.stream.opening import NoStatements

NOTHING = Plan((), (), ())


def loaded() -> State:
    """The state of a plan that has nothing now, and had something."""
    state = State(PLAN)
    state.switch(NOTHING)
    assert isinstance(state.correlator, Correlator)
    return state


def test_it_says_what_an_empty_one_says() -> None:
    """Status, quarantine, deltas and what fires are those of a correlator and statements that hold nothing."""
    without, empty = State(NOTHING), loaded()
    assert isinstance(without.correlator, NoCorrelations)
    assert isinstance(without.statements, NoStatements)
    empty.statements = empty._loaded_statements()
    for _ in range(2):
        assert without.status() == empty.status()
        assert without.statements.status() == empty.statements.status()
        assert (without.muted(), without.advance(5_000_000)) == (empty.muted(), empty.advance(5_000_000))
        assert without.correlator.delta()[1:] == empty.correlator.delta()[1:]
        assert without.statements.delta() == empty.statements.delta()
        for state in (without, empty):
            state.rewrite()
            state.delta()
            assert state.rewritten


def test_what_another_plan_has_left_is_read() -> None:
    """State of correlations is restored by a plan without any, which then goes on; a later plan has its own again."""
    before = State(PLAN)
    put(before, 1, "g", 1)
    after = State(NOTHING)
    after.restore([before.delta()])
    assert isinstance(after.correlator, Correlator)
    assert after.status()["groups"] == 0
    after.switch(PLAN)
    assert [title for second in (20, 21, 22) for title, _ in put(after, second, "g", second)].count("many") == 1
