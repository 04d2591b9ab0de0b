"""How long events wait to be evaluated is told by a clock that nobody sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.life import NOW, Life, engine, lines
from tests.rawlog.samples import open_log
from tests.runtime.strict.test_account import append, evaluated
from vedette.runtime.agent.health import BEHIND_SECONDS
from vedette.runtime.pipeline.progress import SHARE, STEP, Lag
from vedette.runtime.strict.account import Accounts

HOUR, YEAR = 3_600_000_000, 365 * 86_400_000_000


class Monotonic:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("wrong", [0, -YEAR, YEAR])
def test_a_clock_that_was_wrong(wrong: int, begin: Callable[..., Life]) -> None:
    """Events that came while the host's clock was ahead, or behind, and was set right then, wait as long as others."""
    life, clock = begin(engine("evil")), Monotonic()
    life.context.progress.waiting = Lag(clock)
    life.clock.later = wrong
    life.give(replace(lines(b"<13>Nov 21 03:40:00 web1 app: one"), received_at=NOW + wrong))
    life.clock.later = HOUR
    clock.seconds += 2 * BEHIND_SECONDS
    life.give(replace(lines(b"<13>Nov 21 03:40:00 web1 app: two"), received_at=NOW + HOUR))
    assert life.context.progress.lag == 2 * BEHIND_SECONDS
    life.live()
    assert life.context.progress.lag == 0


def test_idle_is_no_lag(begin: Callable[..., Life]) -> None:
    """An event that comes after a long silence has not been waiting since the one before it, and waits from then on."""
    life, clock = begin(engine("evil")), Monotonic()
    life.context.progress.waiting = Lag(clock)
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: before"))
    life.live()
    clock.seconds += 3600
    assert life.context.progress.lag == 0
    life.give(lines(b"<13>Nov 21 03:40:00 web1 app: after"))
    assert life.context.progress.lag == 0
    clock.seconds += 3600
    life.give(lines(b"<13>Nov 21 04:40:00 web1 app: behind it"))
    assert life.context.progress.lag == 3600


def test_a_strict_set(tmp_path: Path) -> None:
    """Of a set in strict isolation it counts as long as its process has not sent the events, alive or not."""
    log, clock = open_log(tmp_path), Monotonic()
    accounts = Accounts(log, {})
    account = accounts.begin("set", 0, 1 << 30)
    account.progress.waiting = Lag(clock)
    for number in range(3):
        append(log, accounts, number)
        clock.seconds += 100
    assert account.progress.lag == 300
    account.take(evaluated(log, account, [header.end for header in log.headers(0)][1]))
    assert account.progress.lag == 100
    account.take(evaluated(log, account, log.end))
    assert account.progress.lag == 0
    log.close()


@pytest.mark.parametrize(
    ("ages", "least"),
    [
        ((HOUR,), 3600),
        ((HOUR, 0), 3600),
        ((-YEAR, HOUR, 0), 3600),  # nor was the first one later than the second
        ((-YEAR,), 0),
    ],
)
def test_over_a_restart(ages: tuple[int, ...], least: float, begin: Callable[..., Life]) -> None:
    """What waits at the start is as old as the host's clock says, and not before its time; from then on it ages."""
    life = begin(engine("evil"))
    life.give(*(replace(lines(b"<13>Nov 21 02:40:00 web1 app: one"), received_at=NOW - age) for age in ages))
    life = begin(engine("evil"))
    first = life.context.progress.lag
    assert least <= first < least + 3600
    assert life.context.progress.lag > first
    life.live()
    assert life.context.progress.lag == 0


def test_busy_and_keeping_up() -> None:
    """A backlog that is never empty, and moves on, is no lag."""
    clock = Monotonic()
    lag = Lag(clock)
    for offset in range(200_000):
        lag.stored(offset, max(0, offset - 2))
        clock.seconds += 0.01
        assert lag.seconds(max(0, offset - 2)) <= 0.03 + STEP + 0.001


def test_ever_further_behind() -> None:
    """Evaluated at half its pace for two days, the lag is right to a hundredth, and so are few marks kept."""
    clock = Monotonic()
    lag = Lag(clock)
    for second in range(2 * 86_400):
        lag.stored(second, second // 2)
        if not second % 997:
            true = second - second // 2
            assert true <= lag.seconds(second // 2) <= true * (1 + SHARE) + 1
            assert len(lag._marks) <= 1000
        clock.seconds += 1
