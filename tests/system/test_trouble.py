"""A fault that comes again and again is logged when it is new, and no more than a bound of them is remembered."""

from __future__ import annotations

from vedette.system.trouble import Firsts, Trouble


def test_a_reason() -> None:
    """It is new at first, when it changes, and when it comes again after an end."""
    trouble = Trouble()
    assert [trouble.begins(reason) for reason in ("away", "away", "refused", "away")] == [True, False, True, True]
    assert trouble.reason == "away"
    trouble.ends()
    assert trouble.begins("away")


def test_firsts() -> None:
    """Each key is new once, until it is forgotten; beyond the bound none is."""
    firsts = Firsts(2)
    assert not firsts
    assert [firsts.add(key) for key in ("a", "a", "b", "c")] == [True, False, True, False]
    firsts.forget("a", "c")
    assert [firsts.add(key) for key in ("c", "a")] == [True, False]
    firsts.clear()
    assert not firsts
