"""Scenario ``services``: each kind is reproducible and of the shape that it is named for; matches do not differ."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from bench import services, shapes
from tests.engine.by_kernel import needs_kernel
from tests.engine.test_property import rule
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.model.event import Chunk, LogSource
from vedette.plan import plan as plans
from vedette.plan.ir import KEYWORDS, Leaf, Op, Predicate


@pytest.mark.parametrize("kind", services.KINDS)
def test_same_seed_same_events(kind: str) -> None:
    """Events are objects, a function of the seed, and hardly one comes twice."""
    lines = list(services.events(kind, 1, 40))
    assert lines == list(services.events(kind, 1, 40))
    assert lines != list(services.events(kind, 2, 40))
    assert len(set(lines)) == 40
    assert all(line[:1] == b"{" and b"\n" not in line for line in lines)


@needs_kernel
@pytest.mark.parametrize("kind", services.KINDS)
def test_the_kernel_makes_no_difference(kind: str) -> None:
    """Whatever the shape of events, the same ones match with the native kernel and without it."""
    predicates = [
        Predicate(name, Op.CONTAINS, "a") for name in ("message", "msg", "url.path", "level28", "output", "verb")
    ]
    predicates += [Predicate(KEYWORDS, Op.CONTAINS, "198.18.1"), Predicate("account", Op.GTE, 7)]
    predicates += [
        Predicate("items.name", Op.EXACT, "cart"),
        Predicate("user", Op.EXISTS),
        Predicate("columns.pid", Op.CONTAINS, "1"),
    ]
    plan = plans.build([rule(number, Leaf(number)) for number in range(len(predicates))], predicates)
    chunks = [
        Chunk("bench", "json", 0, b"".join(line + b"\n" for line in services.events(kind, seed, 50)))
        for seed in range(3)
    ]
    source = services.SOURCES.get(kind, LogSource())
    on, off = (
        services.found(Engine(plan, route=False, cache=Cache(0), kernel=kernel), chunks, source)
        for kernel in (True, False)
    )
    assert on == off
    assert on


def test_shapes_are_what_they_are_named_for() -> None:
    """Depth, width, length, and names that make nearly every structure a new one."""
    first = {kind: next(services.events(kind, 1, 1)) for kind in shapes.KINDS}
    assert _depth(orjson.loads(first["30 levels"])) == 30
    assert len(orjson.loads(first["40 objects"])["items"]) == 40
    assert len(orjson.loads(first["200 fields"])) == 200
    assert 50_000 < len(first["60 kB"]) < 65_000
    for kind in ("optional fields", "made-up names"):
        assert len({_names(orjson.loads(line)) for line in services.events(kind, 1, 200)}) > 195


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, value.values())) if isinstance(value, dict) else 0


def _names(event: dict[str, Any]) -> tuple[str, ...]:
    return *event, *(name for value in event.values() if isinstance(value, dict) for name in value)
