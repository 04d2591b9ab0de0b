"""What a fleet names as a release."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from vedette.fleet import releases
from vedette.fleet.releases import PIECE, Archive, File, Release

DIGEST = "ab" * 32
ADDON = File(DIGEST, 7, (DIGEST,))
ARCHIVE = Archive(DIGEST, PIECE + 1, (DIGEST, DIGEST), "0.2.0-0123456789ab", {"archive": ADDON})


def test_bytes_are_read_back() -> None:
    release = Release("0.2.0", {"x86_64": ARCHIVE})
    assert releases.read(release.to_bytes()) == release
    assert [ARCHIVE.span(n) for n in (0, 1)] == [PIECE, 1]
    assert [*ARCHIVE.files()] == [ARCHIVE, ADDON]


@pytest.mark.parametrize(
    "bend",
    [
        {"id": "../../etc/cron.d/x-0123456789ab"}, {"id": "0.2.0"}, {"sha256": DIGEST.upper()}, {"pieces": [DIGEST]},
        {"pieces": [DIGEST, "../x"]}, {"size": 0}, {"size": True}, {"size": 1 << 40}, {"pieces": 7},
        {"addons": []}, {"addons": {"../x": to_builtins(ADDON)}},
        {"addons": {"archive": to_builtins(ADDON) | {"pieces": ["x"]}}},
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
