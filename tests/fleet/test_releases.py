"""What a fleet names as a release, and which one runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vedette.fleet import releases
from vedette.fleet.releases import PIECE, Archive, Release

DIGEST = "ab" * 32
ARCHIVE = Archive("0.2.0-0123456789ab", DIGEST, PIECE + 1, (DIGEST, DIGEST))


def test_bytes_are_read_back() -> None:
    made = Release("0.2.0", {"x86_64": ARCHIVE})
    assert releases.read(made.to_bytes()) == made
    assert [ARCHIVE.span(n) for n in (0, 1)] == [PIECE, 1]


@pytest.mark.parametrize(
    "bend",
    [
        {"id": "../../etc/cron.d/x-0123456789ab"}, {"id": "0.2.0"}, {"sha256": DIGEST.upper()}, {"pieces": [DIGEST]},
        {"pieces": [DIGEST, "../x"]}, {"size": 0}, {"size": True}, {"size": 1 << 40}, {"pieces": 7},
    ],
)  # fmt: skip
def test_what_is_refused(bend: dict[str, Any]) -> None:
    """A folder that is none, digests that are none, another number of pieces than the size says."""
    document = json.loads(Release("0.2.0", {"x86_64": ARCHIVE}).to_bytes())
    document["archives"]["x86_64"].update(bend)
    with pytest.raises(ValueError, match="not a description of a release"):
        releases.read(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": 2}', b'{"format": 1, "version": "1", "archives": 3}'])
def test_what_is_no_description(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        releases.read(data)


def test_which_release_runs(tmp_path: Path) -> None:
    """It is read off the place of the code, also through a link; a clone is none."""
    package = tmp_path / "releases/0.2.0-0123456789ab/packages/vedette"
    package.mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/0.2.0-0123456789ab")
    found = releases.running(tmp_path / "current/packages/vedette")
    assert found is not None
    assert (found.id, found.prefix) == ("0.2.0-0123456789ab", tmp_path)
    assert releases.running(tmp_path / "site-packages/vedette") is None
    assert releases.running() is None
