"""The native kernel asked until it has learned: what its tests share.

A structure is learned from one of its events and applied to the others, so each test asks about many events of a
structure, several times.
"""

from __future__ import annotations

import pytest

from tests import reference
from tests.engine import drawn
from tests.engine.test_property import chunks, matches_of, rule
from vedette.decode.decoder import record
from vedette.engine import kernel
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.plan import plan as plans
from vedette.plan.ir import Expr, Predicate

needs_kernel = pytest.mark.skipif(kernel.LOADED is None, reason=f"the native kernel is {kernel.why_not}")
ROUNDS = 6
"""Times that events are asked about: structures are learned, and forgotten when one of their names decides."""
HEAD = "<38>Nov 20 10:00:00 web1 app: "


def counts(engine: Engine) -> tuple[int, ...]:
    """``Engine.kernel``, in its order, of a kernel that was not wrong."""
    *figures, wrong = engine.kernel().values()
    assert not wrong
    return tuple(figures)


def agree(
    events: list[str], expr: Expr, *predicates: Predicate, codec: str = "json", origins: tuple[str, ...] = ("",)
) -> None:
    """One rule over events of one structure, of which the first is the one that is learned from."""
    plan = plans.build([rule(0, expr)], list(predicates))
    asked = [drawn.Drawn(codec, written.encode(), origins[0]) for written in events[:1]] * 2
    asked += [drawn.Drawn(codec, written.encode(), origin) for written in events for origin in origins]
    expected = {
        n
        for n, event in enumerate(asked)
        if reference.matches(plan, record(event.raw, event.codec, origin=event.origin))
    }
    assert expected  # else nothing is to be left out wrongly
    on = Engine(plan, route=False, cache=Cache(0))
    for _ in range(ROUNDS):
        for lesson in asked[:2], asked:
            matches = {n for n, _ in matches_of(on, chunks(lesson, ends_wanted=False))}
            assert matches == {n for n in expected if n < len(lesson)}
