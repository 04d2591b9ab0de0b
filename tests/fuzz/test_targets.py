"""Every reader of foreign bytes on changed good inputs: no exception escapes, memory is bounded, time is linear."""

from __future__ import annotations

import time
import tracemalloc
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.deep import examples
from tests.fuzz.targets import TARGETS, Target

MARKS = (b'"', b"\\", b"[", b"{", b"]", b"}", b"=", b"|", b"<", b">", b"&#x0;", b"\0", b"\n", b" ", b"\xff", b"\\u0000")
SMALL, LARGE = 64 << 10, 256 << 10
MEMORY = 200
"""Bytes of memory for each byte of input, at most: a Python object for each two bytes."""
FLOOR = 40 << 20
"""And what a reader may take whatever the input is: zstd's window, a frame's bound."""
LINEAR = 2.5
"""Times that the larger input may take more, beyond its size; with quadratic time it takes 4."""


@st.composite
def changed(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A seed with bytes put in, taken out, doubled or replaced; or any bytes."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.binary(max_size=200))
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 12)))
        new = draw(st.one_of(st.binary(max_size=8), st.sampled_from(MARKS), st.just(data[at:end] * 3)))
        data = data[:at] + new + data[end:]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_no_exception_escapes(name: str) -> None:
    """Changed good inputs and any bytes: nothing but what the reader promises, and what it gives is consistent."""
    target = TARGETS[name]

    @examples(50)
    @example(b"")
    @given(changed(target.seeds))
    def check(data: bytes) -> None:
        target.run(data)

    check()


def grown(target: Target, size: int, rng: Random) -> list[bytes]:
    """Inputs of about ``size`` bytes: each seed with a part of it repeated; the same parts for every ``size``."""
    found = []
    for seed in target.seeds:
        start = rng.randrange(len(seed))
        part = seed[start : start + rng.choice((1, 2, 8, 40))]
        found.append(seed[:start] + part * (size // len(part)) + seed[start:])
    return [*found, *(mark * (size // len(mark)) for mark in MARKS)]


def _time(target: Target, data: bytes) -> float:
    began = time.process_time()
    target.run(data)
    return time.process_time() - began


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_time_is_linear(name: str) -> None:
    """Four times the bytes, in any part of the input, take about four times as long."""
    target = TARGETS[name]
    for small, large in zip(*(grown(target, size, Random(name)) for size in (SMALL, LARGE)), strict=True):
        slow = _time(target, large)
        if slow < 0.1:
            continue
        slow, quick = (min(_time(target, data) for _ in range(3)) for data in (large, small))
        assert slow < max(0.1, quick * LARGE / SMALL * LINEAR), (slow, quick, large[:100])


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_bounded(name: str) -> None:
    """However a large input looks, what is taken for it stays below a multiple of its size."""
    target = TARGETS[name]
    tracemalloc.start()
    try:
        for data in grown(target, SMALL, Random(name)):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            target.run(data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < FLOOR + MEMORY * len(data), data[:100]
    finally:
        tracemalloc.stop()


def test_a_target_can_fail() -> None:
    """The checks see an exception that escapes and time that is quadratic."""

    def quadratic(data: bytes) -> None:
        for at in range(0, len(data), 24):
            sum(range(0, at, 48))

    TARGETS["defect"] = Target(quadratic, (b"abc",))
    TARGETS["broken"] = Target(lambda data: data[3], (b"abcd",))
    try:
        with pytest.raises(AssertionError):
            test_time_is_linear("defect")
        with pytest.raises(IndexError):
            test_no_exception_escapes("broken")
    finally:
        del TARGETS["defect"], TARGETS["broken"]
