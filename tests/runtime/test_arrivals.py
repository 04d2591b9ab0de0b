"""What is announced on a bundle channel comes from a broker: bounded before it is parsed."""

from __future__ import annotations

import pytest

from vedette.runtime.active import Newest
from vedette.runtime.arrivals import MAX_ANNOUNCEMENT, announcement

GOOD = b'{"sha256": "%b", "version": 3, "size": 100}' % (b"ab" * 32)


def test_an_announcement_is_bounded() -> None:
    """One that is longer than its bound is refused unparsed; the longest that is not is read."""
    assert announcement(GOOD.ljust(MAX_ANNOUNCEMENT)) == ("ab" * 32, 3)
    with pytest.raises(ValueError, match="65537 bytes, at most 65536"):
        announcement(GOOD.ljust(MAX_ANNOUNCEMENT + 1))


def test_of_bundles_that_wait_the_last_counts() -> None:
    """While a change is under way one bundle a rule set is kept, however many arrive; each set has its own turn."""
    waiting = Newest()
    assert [waiting.put("region", b"%d" % version) for version in range(3)] == [True, False, False]
    assert waiting.put("site", b"s")
    assert (waiting.take("region"), waiting.take("region"), waiting.take("site")) == (b"2", None, b"s")
    assert waiting.put("region", b"3")
