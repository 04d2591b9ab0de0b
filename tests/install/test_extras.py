"""``make dist EXTRAS=…``: a zip that brings along what object stores and Kafka need."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.install.conftest import Inputs, dist

pytestmark = [pytest.mark.install, pytest.mark.release]


def test_a_zip_with_extras(inputs: Inputs, zip_file: Path, tmp_path: Path) -> None:
    """The recipe imports them with the release's own Python and libraries; the zip grows by what they take, and its
    list of parts names them."""
    extras = [word for name in ("archive", "kafka") for word in ("--extra", name)]
    (made,) = dist(tmp_path / "dist", inputs, "--arch", "x86_64", *extras).glob("*.zip")
    assert 8e6 < made.stat().st_size - zip_file.stat().st_size < 16e6
    listed = made.with_suffix(".cdx.json").read_text()
    assert all(f'"name": "{one}"' in listed or f'"name":"{one}"' in listed for one in ("obstore", "pyrage"))
    assert zipfile.is_zipfile(made)
