"""What is kept to spare work stays within its bound, whatever comes in, and is given back when asked."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from vedette.engine import match, prefilter
from vedette.engine.bounded import Bounded
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.plan import plan as plans
from vedette.rules import build

WORDS = [f"word{number:02}" for number in range(40)]
RULES = "---\n".join(
    f"title: {word}\nid: {uuid.UUID(int=number)}\nlogsource: {{product: any}}\n"
    f"detection: {{a: {{message|contains: {word}}}, b: {{host|contains: {word}}}, condition: a or b}}\n"
    for number, word in enumerate(WORDS)
)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=60))
def test_it_holds_what_was_kept_last_and_never_weighs_too_much(entries: list[tuple[int, int]]) -> None:
    memo: Bounded[int, int] = Bounded(50)
    for key, weight in entries:
        assert memo.keep(key, -key, weight) == -key
        assert memo[key] == -key
        assert memo.weight <= max(50, weight)
    memo.clear()
    assert (len(memo), memo.weight) == (0, 0)


def _held(engine: Engine) -> list[Bounded[Any, Any]]:
    scans = [engine.prefilter, *engine._narrow.values()]
    return [*(scan.sets for scan in scans), engine._prepared, *(scopes for _, scopes in engine._views.values())]


def test_events_of_every_kind_take_no_more_than_the_bounds() -> None:
    """Events that each hold other literals: the memos fill, are forgotten and fill again, and the matches are right."""
    written, chance = build.empty(), random.Random(7)
    build.add(written, RULES)
    plan = plans.build(written.rules, written.predicates, written.refused)
    events = [chance.sample(WORDS, chance.randint(1, 12)) for _ in range(3000)]
    with (
        mock.patch.multiple(prefilter, SETS_BYTES=40_000),
        mock.patch.multiple(match, SCOPES_BYTES=40_000, PREPARED_BYTES=200_000),
    ):
        engine = Engine(plan, route=False, cache=Cache(1 << 20), kernel=False)
        for first in range(0, 3000, 100):
            part = events[first : first + 100]
            data = b"".join(" ".join(words).encode() + b"\n" for words in part)
            found = list(engine.evaluate(Chunk("in", "text", 0, data)))
            assert sorted(Counter(one.start for one in found).values()) == sorted(map(len, part))
            assert all(memo.weight <= memo.limit for memo in _held(engine))
        assert all(memo.weight > 0 for memo in _held(engine))
        assert len(_held(engine)) >= 3
        engine.remember(Cache(0))
        assert not any(_held(engine))
