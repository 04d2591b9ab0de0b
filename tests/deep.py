"""How many examples a property test draws: as many as take a second or two, or with ``VEDETTE_DEEP=N`` N of each.
``VEDETTE_DEEP=1`` draws 20,000."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_ASKED = int(os.environ.get("VEDETTE_DEEP", "0"))
DEEP = 20_000 if _ASKED == 1 else _ASKED
"""0: as many as each test has by default."""


def examples(default: int) -> settings:
    """The profile of a property test: ``default`` examples, or those of a deep run."""
    return settings(max_examples=DEEP or default, suppress_health_check=list(HealthCheck))
