"""Waits between attempts."""

from __future__ import annotations

from vedette.system.trouble import Backoff


def test_it_doubles_up_to_a_bound() -> None:
    """Each wait is twice the one before, less up to 30 %, and never above the longest; a success begins anew."""
    backoff = Backoff((1.0, 5.0))
    for least, most in ((0.7, 1), (1.4, 2), (2.8, 4), (3.5, 5), (3.5, 5)):
        assert least <= backoff.failed() <= most
    assert backoff.failing
    backoff.reset()
    assert not backoff.failing
    assert backoff.failed() <= 1


def test_it_waits_for_ever() -> None:
    """Any number of failures is counted."""
    backoff = Backoff((1.0, 30.0))
    assert max(backoff.failed() for _ in range(5000)) <= 30
