"""What the region unpacks of a release: no more than what it looks for may have."""

from __future__ import annotations

import io
import tarfile

import pytest

from vedette.region.sitezip import _template

TEMPLATE = b"[agent]\n"


def payload(name: str, size: int = 0) -> bytes:
    """A compressed tar with vedette.toml behind a member ``name``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        for member, data in ((name, bytes(size)), ("vedette.toml", TEMPLATE)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_a_payload() -> None:
    """Members before the template are passed over, whatever their size; a name of megabytes is refused, and so is what
    is damaged."""
    assert _template(payload("long/" * 100 + "name")) == TEMPLATE.decode()
    assert _template(payload("large", 8 << 20)) == TEMPLATE.decode()
    with pytest.raises(ValueError, match="a header of"):
        _template(payload("n" * (8 << 20)))
    whole = payload("name")
    for damaged in (whole[:40], whole[:12] + b"\xff" * 9 + whole[21:], b""):
        with pytest.raises(ValueError, match=r"no vedette\.toml that can be read"):
            _template(damaged)
