"""Records of several partitions in the order of their times."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from vedette.inputs.aligned import HELD_BYTES, PATIENCE, SLICE, Aligned

TIMES = st.lists(st.integers(-1, 20_000), max_size=30)


@examples(300)
@given(st.lists(TIMES, min_size=1, max_size=5), st.booleans(), st.randoms(use_true_random=False))
def test_in_order(partitions: list[list[int]], ascending: bool, random: Random) -> None:
    """However records come: each leaves once, those of a partition in their order; where times ascend in each, none
    leaves after one that is more than SLICE later."""
    sent = {number: sorted(times) if ascending else times for number, times in enumerate(partitions)}
    coming = {number: deque(times) for number, times in sent.items()}
    records, left = Aligned[int, int](), list[tuple[int, int]]()
    for partition in coming:
        records.begin(partition)
    while coming:
        partition = random.choice([*coming])
        if times := coming[partition]:
            records.add(partition, times[0], 1, times.popleft())
        else:
            records.reached_end(partition)
            del coming[partition]
        left += ((of, time) for of, taken in records.take(0.0).items() for time in taken)
    while rest := records.take(0.0):
        left += ((of, time) for of, taken in rest.items() for time in taken)
    assert {of: [time for number, time in left if number == of] for of in sent} == sent
    times_left = [time for _, time in left]
    assert not ascending or all(
        time >= newest - SLICE for time, newest in zip(times_left, accumulate(times_left, max), strict=True)
    )


def test_what_is_not_waited_for() -> None:
    """A partition from which nothing comes holds the others up for PATIENCE, once; one that is another's does not."""
    records = Aligned[str, int]()
    for partition in "abc":
        records.begin(partition)
    records.add("a", 5, 1, 5)
    assert not records.take(10.0)
    records.drop("b")
    assert not records.take(10.0 + PATIENCE - 0.1)
    assert records.take(10.0 + PATIENCE) == {"a": [5]}
    records.add("a", 6, 1, 6)
    assert records.take(100.0) == {"a": [6]}
    records.add("a", 7, 1, 7)
    records.drop("a")
    assert not records.take(101.0)


def test_bounded() -> None:
    """What waits takes HELD_BYTES at most; the oldest goes first."""
    records = Aligned[str, int]()
    for partition in "abc":
        records.begin(partition)
    size = HELD_BYTES // 4
    for time in range(3):
        records.add("ab"[time % 2], time * (SLICE + 1), size, time)
        assert not records.take(0.0)
    records.add("a", 3 * (SLICE + 1), size, 3)
    assert records.take(0.0) == {"a": [0]}
    assert records.take(0.0) == {}
    records.reached_end("b")
    records.reached_end("c")
    assert [records.take(0.0) for _ in range(3)] == [{"b": [1]}, {"a": [2, 3]}, {}]
