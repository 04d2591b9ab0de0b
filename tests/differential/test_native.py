"""The native kernel on real events and real rules, on both changed at random, and on other engines' cases.

``VEDETTE_PAIRS=10000000`` asks about so many pairs of random rule and changed event, instead of 40,000, and about
every real event instead of one in four.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

import orjson
import pytest

from tests import reference
from tests.differential.material import SHARED, cases
from tests.engine.by_kernel import ROUNDS, counts, needs_kernel
from tests.engine.structures import POOLS, Draw
from tests.engine.test_property import readable, rule
from tests.lookup.tables import reference_lookups
from vedette.api import compile_rules
from vedette.decode.aliases import ALIASES
from vedette.decode.decoder import record
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.plan import plan as plans
from vedette.plan.ir import Op
from vedette.plan.plan import Plan

pytestmark = needs_kernel

PAIRS = int(os.environ.get("VEDETTE_PAIRS", "40000"))
STEP = 1 if "VEDETTE_PAIRS" in os.environ else 4
RULES = 100
"""Random rules in one plan."""
EVENTS = 1000
"""Events in one chunk."""


@lru_cache
def real_events() -> list[bytes]:
    """Windows events of the OTRF collection, each a JSON object of some 2 KB."""
    path = SHARED / "data/windows/otrf-10k.ndjson.zst"
    zstandard = pytest.importorskip("zstandard")
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        return io.BytesIO(stream.read()).read().splitlines()


@lru_cache
def all_rules() -> Plan:
    """SigmaHQ's."""
    folder = SHARED / "data/sigma-all/rules"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    return compile_rules(folder)


def rules_by_event(engine: Engine, events: list[bytes]) -> list[list[int]]:
    """By event the rules that match."""
    matched: list[list[int]] = [[] for _ in events]
    for first in range(0, len(events), EVENTS):
        part = events[first : first + EVENTS]
        chunk = Chunk("test", "json", 0, b"".join(line + b"\n" for line in part))
        numbers = {start: first + i for i, (start, _) in enumerate(chunk.spans())}
        for match in engine.evaluate(chunk):
            matched[numbers[match.start]].append(match.rule)
    return matched


def differing(one: list[list[int]], other: list[list[int]], events: list[bytes]) -> list[tuple[set[int], bytes]]:
    """Of events with other matches the rules and the event."""
    return [(set(a) ^ set(b), event) for a, b, event in zip(one, other, events, strict=True) if a != b]


@pytest.mark.long
@pytest.mark.parametrize("route", [True, False])
def test_all_rules_on_real_events(route: bool) -> None:
    """Every rule of SigmaHQ: routed and not, the kernel leaves out no match of a real event, nor of a changed one."""
    plan, events = all_rules(), real_events()[::STEP]
    on = Engine(plan, route=route, cache=Cache(0))
    off = Engine(plan, on.databases(), route=route, kernel=False, cache=Cache(0))
    expected = rules_by_event(off, events)
    assert sum(map(len, expected)) > (20 if route else 10_000) / STEP
    for _ in range(2):
        assert not differing(rules_by_event(on, events), expected, events)
    read, rest, _, _, panics = counts(on)
    assert rest < read / 2
    assert panics == 0
    changed = list(changed_events(Random(1), 1000 if STEP > 1 else 2000))
    assert not differing(rules_by_event(on, changed), rules_by_event(off, changed), changed)


@pytest.mark.long
def test_all_rules_on_real_events_by_the_reference() -> None:
    """A sample of these: as the naive evaluator says."""
    plan, events = all_rules(), Random(7).sample(real_events(), 12)
    on = Engine(plan, route=False, cache=Cache(0))
    rules_by_event(on, real_events()[:2000])
    for event, matched in zip(events, rules_by_event(on, events), strict=True):
        assert matched == reference.matches(plan, record(event, "json"))


def test_random_rules_on_changed_real_events() -> None:
    """Rules of every operator over the names and values of real events, which are changed value by value: with the
    kernel, without it and by the naive evaluator the same."""
    done = seed = 0
    while done < PAIRS:
        done += agree(seed)
        seed += 1


def agree(seed: int) -> int:
    """One plan of random rules on changed events; how many pairs were asked about."""
    draw = Draw(seed)
    events = list(changed_events(draw.random, min(2 * EVENTS, PAIRS // RULES)))
    plan = random_rules(draw, events)
    on = Engine(plan, route=False, cache=Cache(0))
    off = Engine(plan, on.databases(), route=False, kernel=False, cache=Cache(0))
    expected = [reference.matches(plan, record(event, "json")) for event in events]
    for engine in (off, on, on):
        wrong = differing(rules_by_event(engine, events), expected, events)
        assert not wrong, (seed, [[plan.predicates, plan.rules[i].expr] for i in wrong[0][0]], wrong[0][1])
    assert not on.kernel_wrong
    return len(events) * len(plan.rules)


def random_rules(draw: Draw, events: list[bytes]) -> Plan:
    """Rules over what is in ``events``."""
    random = draw.random
    values = [(n, v) for event in random.sample(events, 20) for n, v in orjson.loads(event).items()]
    texts = [value for _, value in values if isinstance(value, str) and 0 < len(value) < 200]
    draw.fragments = [*random.sample(texts, 40), *(str(v) for _, v in values if isinstance(v, int))][:60]
    names = [name for name, _ in values]
    names += [other for name in names for other in ALIASES.get(name, ())]
    made = list(dict.fromkeys(draw.predicate(names) for _ in range(RULES)))
    made = [p for p in made if p.op is not Op.REGEX or readable(p)]
    plan = plans.build([rule(i, draw.expr(len(made))) for i in range(RULES)], made)
    return plan.with_lookups(reference_lookups())


def changed_events(random: Random, count: int) -> Iterator[bytes]:
    """Real events with some values of others, or of what decoders decide by: their structures stay."""
    events = real_events()
    for _ in range(count):
        event, other = (orjson.loads(random.choice(events)) for _ in range(2))
        for name in random.sample(list(event), random.randint(0, 6)):
            event[name] = _changed(random, event[name], other.get(name))
        yield orjson.dumps(event)


def _changed(random: Random, value: Any, other: Any) -> Any:
    if isinstance(value, str):
        texts = [random.choice(random.choice([*filter(None, POOLS.values())]))]
        texts += [
            value.swapcase(),
            value[: len(value) // 2],
            value + "\n",
            *([other] if isinstance(other, str) else []),
        ]
        return random.choice(texts) or "x"
    if isinstance(value, int) and not isinstance(value, bool):
        return random.choice((1, 4688, 4104, -value, value + 1, *([other] if isinstance(other, int) else [])))
    return value


def test_cases_of_other_engines() -> None:
    """The regression and triple cases: what an engine says of an event by itself, it says of it among others that the
    kernel has learned from."""
    asked = 0
    known: list[tuple[str, list[Any]]] = [(c["rule_yaml"], c["events"]) for c in cases("sigma_regression.json")]
    known += [(c["rules_yaml"], [step["event"] for step in c["steps"]]) for c in cases("sigma_triples.json")]
    for text, given in known:
        try:
            plan = compile_rules(text=text)
        except ValueError:
            continue
        events = [orjson.dumps(event) if isinstance(event, dict) else event.encode() for event in given]
        events = [event for event in events if event and b"\n" not in event]
        on, off = Engine(plan, route=False, cache=Cache(0)), Engine(plan, route=False, kernel=False, cache=Cache(0))
        expected = rules_by_event(off, events)
        for _ in range(ROUNDS):
            assert rules_by_event(on, events) == expected, text
        asked += sum(map(bool, expected))
    assert asked > 80
