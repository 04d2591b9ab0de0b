"""What is announced on a bundle channel comes from a broker: bounded before it is parsed."""

from __future__ import annotations

import pytest

from vedette.runtime.arrivals import MAX_ANNOUNCEMENT, announcement

GOOD = b'{"sha256": "%b", "version": 3, "size": 100}' % (b"ab" * 32)


def test_an_announcement_is_bounded() -> None:
    """One that is longer than its bound is refused unparsed; the longest that is not is read."""
    assert announcement(GOOD.ljust(MAX_ANNOUNCEMENT)) == ("ab" * 32, 3)
    with pytest.raises(ValueError, match="65537 bytes, at most 65536"):
        announcement(GOOD.ljust(MAX_ANNOUNCEMENT + 1))
