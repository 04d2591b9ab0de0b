"""No line holds the agent by what it does to an owner's pattern, and none is lost by it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import structlog.testing

from tests.inputs.intake import Bin
from tests.inputs.test_multiline import Reader
from tests.inputs.test_tail import append
from tests.inputs.test_tail_events import following
from tests.waits import eventually
from vedette.decode import bounded
from vedette.decode.bounded import Guard
from vedette.inputs.settings import Multiline
from vedette.model.counters import Log

HOSTILE = [
    (r"^(\w+\s?)*:", b"a" * 60 + b"!"),
    (r"^(\w+\s?)*:", b"a" * 60 + b"!:"),
    (r"^(a|aa|b)*(?<!x)c(?!d)", b"a" * 60 + b"cd"),
    (r"(?:a|b|ab)*(.)\1c", b"ab" * 40 + b"c"),
    (r"^(.*?,){14}P", b"1," * 30 + b"xP"),
]
"""Patterns that an owner might write, each with a line for which a backtracking engine takes hours."""


@pytest.mark.parametrize(("pattern", "line"), HOSTILE)
@pytest.mark.parametrize("key", ["start", "continue_"])
def test_one_line_does_not_hold_the_agent(pattern: str, line: bytes, key: str) -> None:
    """Every byte is in an event, and the CPU that a hundred such lines take is bounded."""
    settings = Multiline(**{key: pattern})
    data = b"first\n" + (line + b"\n") * 100 + b"last\n"
    used = time.process_time()
    reader = Reader(settings.asked(Guard()))
    reader.feed(data)
    reader.end()
    assert time.process_time() - used < 2 * bounded.QUARANTINE_AFTER * bounded.SECONDS + bounded.DEBT
    assert b"\n".join(reader.handed_on) + b"\n" == data
    assert reader.events.consumed == len(data)


def test_an_undecided_line_begins_an_event() -> None:
    """So do all, once the pattern is in quarantine; the guard says how many there were."""
    guard = Guard()
    begins = Multiline(continue_=r"^(a|aa|b)*(?<!x)c(?!d)").asked(guard)
    slow = b"a" * 60 + b"cd"
    reader = Reader(begins)
    reader.feed(b"one\naac\n" + slow + b"\naac\n")
    assert reader.handed_on == [b"one\naac"]
    assert guard.overruns == 1
    reader.feed((slow + b"\n") * bounded.QUARANTINE_AFTER + b"aac\nend\n")
    reader.end()
    assert guard.quarantined
    assert guard.overruns == bounded.QUARANTINE_AFTER
    assert reader.handed_on == [b"one\naac", slow + b"\naac", *[slow] * bounded.QUARANTINE_AFTER, b"aac", b"end"]


def test_an_ordinary_pattern_is_not_timed() -> None:
    """One that is linear by its syntax asks no clock, whatever the line."""
    guard = Guard()
    for pattern in (r"^\d{4}-\d\d-\d\d", r"^\S+ \d+ ", r"^(?:Jan|Feb|Mar) +\d+ "):
        begins = Multiline(start=pattern).asked(guard)
        assert not begins(b"1" * (1 << 20))
    assert (guard.overruns, guard.debt) == (0, 0.0)


async def test_a_file_of_such_lines(tmp_path: Path) -> None:
    """Each line is stored once, also by the next life, and the quarantine is logged once a life."""
    path, bin = tmp_path / "a.log", Bin()
    lines = ["a" * 60 + f"cd{i}" for i in range(60)]
    many = Multiline(start="^(a|aa|b)*(?<!x)c(?!d)", timeout=0.1)
    for life in range(2):
        append(path, "".join(f"{line}\n" for line in lines[30 * life : 30 * (life + 1)]))
        with structlog.testing.capture_logs() as logs:
            async with following(bin, path, multiline=many):
                wanted = [line.encode() for line in lines[: 30 * (life + 1)]]
                await eventually("the lines", lambda wanted=wanted: bin.events == wanted)
        assert [one["input"] for one in logs if one["event"] == Log.FORMAT_QUARANTINED] == ["f"]
