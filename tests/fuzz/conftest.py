"""What the tests of names from outside begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.outside import Box


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A folder that nothing leaves, below others with canaries."""
    whole = Box(tmp_path)
    yield whole
    whole.close()
