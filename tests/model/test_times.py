"""Times and durations in text: each form by examples."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.differences import walk
from vedette.model.times import (
    HOUR,
    MAX_SKEW,
    bsd_time,
    clamp,
    iso_time,
    lasts,
    micros,
    named_time,
    seconds,
    time_of,
    written_time,
)

VIENNA = ZoneInfo("Europe/Vienna")


def us(text: str) -> int:
    return micros(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200ms", 0.2), ("90s", 90), ("1.5h", 5400), ("10 m", 600), ("30d", 30 * 86400), ("2w", 14 * 86400)],
)
def test_durations(text: str, expected: float) -> None:
    """A number and a unit."""
    assert seconds(text) == expected


@walk("text", ["", "10", "m", "-1s", "1y", "10M", "1h30m", "1e3s", "١s"])
def test_no_durations(text: str) -> None:
    """Anything else is refused, and the message says what is expected."""
    with pytest.raises(ValueError, match="expects a duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00"),
        ("2026-11-20 10:00:00,250", "2026-11-20T10:00:00.250000"),
        ("2026-11-20T10:00:00.123456789+0530", "2026-11-20T04:30:00.123456"),
        ("2026-11-20T10:00:00.123456789012Z", "2026-11-20T10:00:00.123456"),
        ("2026-11-20T10:00:00," + "9" * 40, "2026-11-20T10:00:00.999999"),
        ("2026-13-20T10:00:00Z", None),
        ("20 Nov 2026", None),
        ("9999-12-31T23:59:59-23:59", None),
    ],
)
def test_iso_time(text: str, expected: str | None) -> None:
    """RFC 3339 and its usual relatives, to the microsecond; anything else is None."""
    assert iso_time(text) == (us(expected) if expected else None)


def test_bsd_time() -> None:
    """The last such date not more than two days after the receipt; of an hour that occurs twice the later one, as long
    as that is not after the receipt; none without a receipt."""
    new_year = us("2027-01-01T00:30:00") // HOUR
    assert bsd_time(b"Dec 31 23:59:59", 0, new_year, None) == us("2026-12-31T23:59:59")
    assert bsd_time(b"Jan  2 10:00:00", 0, new_year, None) == us("2027-01-02T10:00:00")
    assert bsd_time(b"Feb 29 10:00:00", 0, new_year, None) == us("2024-02-29T10:00:00")
    assert bsd_time(b"Jan  2 10:00:00", 2020, 0, None) == us("2020-01-02T10:00:00")
    assert bsd_time(b"Jan  2 10:00:00", 0, 0, None) is None
    twice = b"Oct 25 02:30:00"
    assert bsd_time(twice, 0, us("2026-10-25T02:00:00") // HOUR, VIENNA) == us("2026-10-25T01:30:00")
    assert bsd_time(twice, 0, us("2026-10-24T23:00:00") // HOUR, VIENNA) == us("2026-10-25T00:30:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20/Nov/2026:10:00:00 +0100", "2026-11-20T09:00:00"),
        ("31/Dec/2016:23:59:60 +0000", "2016-12-31T23:59:59"),
        ("Nov 20 2026 10:00:00.25 UTC", "2026-11-20T10:00:00.250000"),
        ("Nov 5 2026 10:00:00", "2026-11-05T09:00:00"),
        ("20/Nov/2026:10:00:00 +9900", None),
        ("20/Foo/2026:10:00:00 +0000", None),
        ("31/Nov/2026:10:00:00 +0000", None),
        ("Nov 20 10:00:00", None),
    ],
)
def test_named_time(text: str, expected: str | None) -> None:
    """Dates with the month's name and a year; a leap second counts as the one before it."""
    assert named_time(text, VIENNA) == (us(expected) if expected else None)


@walk(
    ("value", "expected"),
    [
        (1_795_168_800, "2026-11-20T10:00:00"),
        (1_795_168_800.5, "2026-11-20T10:00:00.500000"),
        ("1795168800250", "2026-11-20T10:00:00.250000"),
        (1_795_168_800_000_000_000, "2026-11-20T10:00:00"),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00"),
        (True, None),
        (12, None),
        (None, None),
        ("9" * 65, None),
    ],
)
def test_time_of(value: object, expected: str | None) -> None:
    """A number counts from 1970 in the unit by which it is a year from 1990 to 2200."""
    assert time_of(value) == (us(expected) if expected else None)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-11-20", "2026-11-20 00:00", "2026/11/20 00:00:00", "2026-11-20 00:00:00 UTC", "20261120T000000Z"),
        *("Fri, 20 Nov 2026 01:00:00 +0100", "20/Nov/2026:00:00:00 +0000", "Nov 20 2026 00:00:00 GMT"),
    ],
)
def test_written_time(text: str) -> None:
    """What people write for one moment."""
    assert written_time(text) == us("2026-11-20T00:00:00")


def test_no_written_time() -> None:
    """Anything else is None."""
    assert [written_time(text) for text in ("", "yesterday", "20.11.2026", "2026-11-20T" + "0" * 60)] == [None] * 4


def test_an_event_from_the_future() -> None:
    """Its time is believed up to five minutes after its receipt."""
    received, ahead = 1_795_000_000_000_000, 5 * 60 * 1_000_000
    assert clamp(received + ahead, received) == (received + ahead, False)
    assert clamp(received + ahead + 1, received) == (received, True)


@walk(
    ("now", "good"),
    [(1000, True), (1000 - MAX_SKEW, True), (999 - MAX_SKEW, False), (1060, True), (1061, False), (0, True)],
)
def test_what_lasts(now: int, good: bool) -> None:
    """What is for 60 from 1000 on: not over before, nor for so long before as two clocks may be apart."""
    assert lasts(1000, 60, now) is good
