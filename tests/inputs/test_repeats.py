"""Which messages come again, by their bytes alone."""

from __future__ import annotations

from hashlib import md5

import pytest

from vedette.inputs import repeats
from vedette.inputs.repeats import Repeat, Repeats

EXACT = b"<13>2026-11-23T06:16:34.312513+00:00 host app: one"
COARSE = b"<13>Nov 23 06:16:34 host app: one"


def test_told_apart() -> None:
    """A stored message with a time to the microsecond is a repeat, once a connection; of the same sender only."""
    stored = Repeats()
    stored.add("10.0.0.1", EXACT)
    connection: set[int] = set()
    assert stored.check("10.0.0.1", EXACT + b"!", connection) is Repeat.NO
    assert stored.check("10.0.0.2", EXACT, connection) is Repeat.NO
    assert stored.check("10.0.0.1", EXACT, connection) is Repeat.YES
    assert stored.check("10.0.0.1", EXACT, connection) is Repeat.PERHAPS
    assert stored.check("10.0.0.1", EXACT, set()) is Repeat.YES


@pytest.mark.parametrize("message", [COARSE, b"no time at all", EXACT.replace(b".312513", b".312")])
def test_without_an_exact_time(message: bytes) -> None:
    """Programs say the same thing twice within a second: such a message only may be a repeat."""
    stored = Repeats()
    stored.add("h", message)
    assert stored.check("h", message, set()) is Repeat.PERHAPS


def test_stored_twice() -> None:
    """Of two stored messages of the same bytes nobody knows which comes again, or whether it is a third."""
    stored = Repeats()
    stored.add("h", EXACT)
    stored.add("h", EXACT)
    assert stored.check("h", EXACT, set()) is Repeat.PERHAPS


def test_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """KEPT messages are remembered, those of the raw log among them; older ones are not known."""
    monkeypatch.setattr(repeats, "KEPT", 3)
    digest = md5(EXACT).digest()
    stored = Repeats([("h", digest), ("h", digest)])
    stored.add("h", COARSE)
    assert stored.check("h", EXACT, set()) is Repeat.PERHAPS
    stored.add("h", b"a")
    assert stored.check("h", EXACT, set()) is Repeat.YES
    stored.add("h", b"b")
    assert stored.check("h", EXACT, set()) is Repeat.NO
