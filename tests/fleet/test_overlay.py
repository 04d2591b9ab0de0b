"""Overlays: what they change, what they cannot, and how an agent undoes one by itself, killed wherever."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from vedette.config.read import ConfigError
from vedette.fleet import overlay
from vedette.fleet.overlay import MAX_STARTS, Applied, Watch, merged, under

LOCAL = """
[agent]
id = "web-1"
data_dir = "{data}"
[fleet]
root = "/root.json"
locked = ["uplink", "raw_log.max_age", "input syslog"]
[bundles]
file = "/starter.vbundle"
[[input]]
type = "syslog"
name = "syslog"
udp = "127.0.0.1:5514"
[[input]]
type = "file"
name = "files"
paths = ["/var/log/syslog"]
"""
ONE, TWO = b'[log]\nlevel = "debug"\n', b'[log]\nlevel = "error"\n'


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "vedette.toml"
    made.write_text(LOCAL.format(data=tmp_path / "data"))
    return made


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied.open(tmp_path / "data" / "fleet")


def again(applied: Applied) -> Applied:
    """As the next process finds it."""
    return Applied.open(applied.folder)


@pytest.mark.parametrize(
    ("above", "made", "ignored"),
    [
        ({"log": {"level": "debug"}}, {"log": {"level": "debug", "format": "json"}}, ()),
        ({"log": {"format": "console"}}, {"log": {"format": "json"}}, ("log.format",)),
        ({"uplink": {"type": "directory"}}, {}, ("uplink",)),
        ({"agent": {"id": "x", "site": "s"}}, {"agent": {"site": "s"}}, ("agent.id",)),
        ({"bundles": {"trusted_keys": ["k"]}}, {"bundles": {}}, ("bundles.trusted_keys",)),
        ({"fleet": {"locked": []}}, {}, ("fleet",)),
        ({"rules": {"paths": ["/a"]}}, {"rules": {"paths": ["/a"]}}, ()),
        ({"input": [{"name": "a", "format": "json"}]},
         {"input": [{"name": "a", "type": "file", "format": "json"}]}, ()),
        ({"input": [{"name": "b", "type": "mqtt"}]},
         {"input": [{"name": "a", "type": "file"}, {"name": "b", "type": "mqtt"}]}, ()),
        ({"input": [{"name": "c", "type": "mqtt"}]}, {}, ("input c",)),
        ({"suppress": [{"for": "10m"}]}, {"suppress": [{"for": "10m"}]}, ()),
    ],
)  # fmt: skip
def test_merging(above: dict[str, Any], made: dict[str, Any], ignored: tuple[str, ...]) -> None:
    """Tables key by key, inputs by name, other lists as a whole; what is locked or never changed stays."""
    local = {"log": {"format": "json"}, "input": [{"name": "a", "type": "file"}]}
    found = merged(local, above, ("log.format", "uplink", "input c"))
    assert found == ({**local, **made}, ignored)
    assert local == {"log": {"format": "json"}, "input": [{"name": "a", "type": "file"}]}


def test_an_overlay_over_a_file(path: Path) -> None:
    """The result is what the reader of the file makes of both, and says which overlay it has and what it left out."""
    above = b'[log]\nlevel = "debug"\n[raw_log]\nmax_age = "1d"\n[[input]]\nname = "files"\nfrom_start = true\n'
    made = under(path.read_text(), path, "f" * 64, above)
    assert (made.log.level, made.raw_log.max_age) == ("debug", 30 * 86400)
    assert made.overlay.sha256 == "f" * 64
    assert made.overlay.ignored == ("raw_log.max_age",)
    assert made.input[1].from_start  # type: ignore[attr-defined]  # an input of files


@pytest.mark.parametrize("above", [b"[log]\nlevel = 'x'\n", b"\xff", b"[", b"[nothing]\na = 1\n", b"log = 3\n"])
def test_an_overlay_that_does_not_validate(path: Path, above: bytes) -> None:
    """It is refused by the reader of the file."""
    with pytest.raises(ConfigError):
        under(path.read_text(), path, "f" * 64, above)


def test_in_force_until_undone(path: Path, applied: Applied) -> None:
    """What was begun is loaded; undone, the one before is, and the undone one is remembered."""
    assert overlay.load(path).log.level == "info"
    applied.begin(sha256(ONE), ONE)
    assert overlay.load(path).log.level == "debug"
    applied.confirm()
    applied.begin(sha256(TWO), TWO)
    assert overlay.load(path).overlay.sha256 == sha256(TWO)
    again(applied).undo("it cut the uplink")
    assert overlay.load(path).log.level == "debug"
    state = again(applied).state
    assert (state.active, state.confirmed, state.undone) == (sha256(ONE), True, {sha256(TWO): "it cut the uplink"})


def test_an_unconfirmed_one_is_never_gone_back_to(applied: Applied, path: Path) -> None:
    """Two overlays in a row, the first never confirmed: undone, neither is in force."""
    applied.begin(sha256(ONE), ONE)
    applied.begin(sha256(TWO), TWO)
    applied.undo("unhealthy")
    assert (applied.state.active, overlay.load(path).log.level) == ("", "info")


def test_taking_an_overlay_away_is_watched_too(applied: Applied, path: Path) -> None:
    """No overlay is a state like any other: where the local file alone has no uplink, the overlay comes back."""
    applied.begin(sha256(ONE), ONE)
    applied.confirm()
    applied.begin("")
    assert overlay.load(path).log.level == "info"
    applied.undo("not connected")
    assert overlay.load(path).log.level == "debug"
    assert again(applied).state.undone == {"": "not connected"}


def test_an_agent_that_dies_of_it(path: Path, applied: Applied) -> None:
    """After some starts without ever being healthy the overlay is undone before the agent reads it."""
    applied.begin(sha256(ONE), ONE)
    for _ in range(MAX_STARTS):
        assert overlay.load(path, starting=True).log.level == "debug"
    assert overlay.load(path, starting=True).log.level == "info"
    assert "ended 5 times" in again(applied).state.undone[sha256(ONE)]
    assert overlay.load(path).log.level == "info"


def test_an_agent_that_is_killed_while_healthy(path: Path, applied: Applied) -> None:
    """Kills of an agent that was healthy under the overlay say nothing against it."""
    applied.begin(sha256(ONE), ONE)
    for _ in range(3 * MAX_STARTS):
        assert overlay.load(path, starting=True).log.level == "debug"
        again(applied).healthy()


def test_a_local_file_that_no_longer_fits(path: Path, applied: Applied) -> None:
    """The local file is in force alone, with the reason; mended, both are again."""
    above = b'[[input]]\nname = "files"\nfrom_start = true\n'
    applied.begin(sha256(above), above)
    applied.confirm()
    text = path.read_text()
    path.write_text(text.replace('name = "files"', 'name = "other"'))
    found = overlay.load(path)
    assert "input[2].type" in found.overlay.problem
    path.write_text(text)
    assert overlay.load(path).overlay.problem == ""


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"active": 3, "x": 1}'])
def test_a_damaged_state(path: Path, applied: Applied, data: bytes) -> None:
    """The local file is in force, and the status says why."""
    applied.begin(sha256(ONE), ONE)
    (applied.folder / "overlay.json").write_bytes(data)
    found = overlay.load(path, starting=True)
    assert found.log.level == "info"
    assert "remove it" in found.overlay.problem


def test_killed_between_any_two_writes(path: Path, applied: Applied, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever file was the last that a process wrote, the next one has the old overlay or the new one."""
    applied.begin(sha256(ONE), ONE)
    applied.confirm()
    real, left = overlay.write_whole, 0

    def dying(*arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        real(*arguments)

    monkeypatch.setattr(overlay, "write_whole", dying)
    for steps, level in ((0, "debug"), (1, "debug"), (2, "error")):
        left = steps
        one = again(applied)
        if steps < 2:
            with pytest.raises(KeyboardInterrupt):
                one.begin(sha256(TWO), TWO)
        else:
            one.begin(sha256(TWO), TWO)
        assert overlay.load(path).log.level == level


def test_the_host_s_own_bundle_no_longer_counts(path: Path, applied: Applied) -> None:
    """Once a signed document has named a bundle, that of the local file is none of the agent's."""
    assert overlay.load(path).bundles.file is not None
    applied.govern("default")
    assert overlay.load(path).bundles.file is None


def test_without_a_fleet_nothing_is_looked_at(tmp_path: Path) -> None:
    """A configuration without [fleet] root is read as it always was."""
    path = tmp_path / "vedette.toml"
    path.write_text(f'[agent]\ndata_dir = "{tmp_path}/data"\n')
    assert overlay.load(path, starting=True).overlay == overlay.Overlay()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ([(0, ""), (9, "")], None),
        ([(0, ""), (10, "")], ""),
        ([(0, "away"), (9, "away")], None),
        ([(0, "away"), (10, "away")], "away, for 10 s after the overlay came"),
        ([(0, "away"), (9, ""), (18, ""), (19, "")], ""),
        ([(0, ""), (9, "away"), (18, "away"), (19, "away")], "away, for 10 s after the overlay came"),
        (
            [(0, ""), (9, "away"), (12, ""), (21, "away"), (29, ""), (30, "away")],
            "away, for 0 s after the overlay came",
        ),
    ],
)
def test_watching(seen: list[tuple[float, str]], verdict: str | None) -> None:
    """Well for a while: confirmed; unwell for as long, or neither for three times as long: undone."""
    watch = Watch(10.0, 0.0)
    found = [watch.see(now, wrong) for now, wrong in seen]
    assert found[:-1] == [None] * (len(seen) - 1)
    assert found[-1] == verdict
