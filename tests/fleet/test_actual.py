"""What a heartbeat proves: it follows from what is in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vedette.config.read import parse
from vedette.config.settings import Overlay
from vedette.fleet import actual
from vedette.fleet.overlay import AppliedState

TEXT = '[agent]\nid = "web-1"\nsite = "vienna"\n[fleet]\nlabels = { role = "web", os = "mine" }\n'


def test_labels(tmp_path: Path) -> None:
    """What is known of the host, and over that what its owner says."""
    release = tmp_path / "os-release"
    release.write_text('NAME="Debian"\nID=debian\n')
    found = actual.labels(parse(TEXT), release)
    assert {**found, "arch": ""} == {"id": "web-1", "site": "vienna", "os": "mine", "arch": "", "role": "web"}
    plain = parse('[agent]\nid = "x"\n')
    assert actual.labels(plain, release)["os"] == "debian"
    assert actual.labels(plain, tmp_path / "none")["os"] == "linux"


def test_the_digest_of_a_configuration() -> None:
    """Every setting counts, an overlay's name does not: the same settings have the same digest."""
    one = parse(TEXT)
    assert actual.config_digest(one) == actual.config_digest(replace(one, overlay=Overlay("f" * 64)))
    assert actual.config_digest(one) != actual.config_digest(parse(TEXT + '[log]\nlevel = "debug"\n'))


def test_bounds() -> None:
    """A heartbeat names few problems, and of each not too much."""
    assert actual.problems({"trust": "", "bundle": "x" * 9000}) == ["bundle: " + "x" * (actual.MAX_TEXT - 8)]
    assert len(actual.problems({str(i): "x" for i in range(99)})) == actual.MAX_PROBLEMS
    refused = actual.refused({str(i): "x" * 9000 for i in range(50)})
    assert [*refused] == ["45", "46", "47", "48", "49"]
    assert max(map(len, refused.values())) == actual.MAX_TEXT
    many = AppliedState(undone={str(i): "x" * 9000 for i in range(50)})
    found = actual.of_config(parse(TEXT), many)["undone"]
    assert [*found] == ["45", "46", "47", "48", "49"]
    assert max(map(len, found.values())) == actual.MAX_TEXT


def test_a_bundle() -> None:
    """By name and version, SHA-256 of its file, digest of the plan that was made of it."""
    assert actual.of_bundle("linux-rules-17", "a" * 64, "b" * 64) == {
        "version": 17, "sha256": "a" * 64, "digest": "b" * 64
    }  # fmt: skip
    assert actual.of_bundle(None, None, "b" * 64) is None
