"""A release that has no room on the host is not fetched: the report says where and how much, and what runs stays."""

from __future__ import annotations

import asyncio
import hashlib
import platform
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fleet.kit import target
from tests.waits import pauses
from vedette.fleet.documents import Target
from vedette.fleet.releases import PIECE, Archive, File, Release, read
from vedette.runtime.member import release as fleet_release
from vedette.runtime.member.release import RESERVE, FleetRelease, _room
from vedette.runtime.member.reports import Reports
from vedette.system.installation import Installed

ID = "0.9.0-0123456789ab"


def archive(size: int) -> Archive:
    pieces = tuple(hashlib.sha256(b"%d" % number).hexdigest() for number in range(-(-size // PIECE)))
    return Archive("a" * 64, size, pieces, ID)


def test_a_full_data_folder_is_named(tmp_path: Path) -> None:
    """The folder, what the zip and its pieces take beside the reserve, and what is free."""
    free = shutil.disk_usage(tmp_path).free
    one = archive(free)
    with pytest.raises(OSError, match="MiB are free: free some") as caught:
        _room(tmp_path / "pieces", {tmp_path / "x.zip": one})
    assert str(caught.value).startswith(f"{tmp_path / 'pieces'} needs {(2 * free + RESERVE) >> 20} MiB and ")


def test_room_is_made_of_other_releases_alone(tmp_path: Path) -> None:
    """Pieces and zips of another release go; what has come of this one and its add-ons stays, and counts."""
    folder, one = tmp_path / "pieces", archive(3 * PIECE)
    addon = File("b" * 64, 1, ("c" * 64,))
    folder.mkdir()
    (folder / one.pieces[0]).write_bytes(b"come")
    (folder / addon.pieces[0]).write_bytes(b"come, too")
    (folder / ("f" * 64)).write_bytes(b"of another")
    (tmp_path / "0.8.0-ffffffffffff.zip").write_bytes(b"another")
    _room(folder, {tmp_path / "x.zip": one, tmp_path / "x-archive.zip": addon})
    assert {path.name for path in folder.iterdir()} == {one.pieces[0], *addon.pieces}
    assert [path.name for path in tmp_path.iterdir()] == ["pieces"]


class Documents:
    """What the signed documents name: one description; no piece of it ever comes."""

    carried = SimpleNamespace(blob=lambda digest: None)

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def target(self, wanted: Target) -> bytes:
        return self._data


async def test_it_says_so_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is full the problem is in the heartbeat, nothing is asked for, and nothing is refused for good;
    with room again it goes on by itself."""
    data = Release("0.9.0", {platform.machine(): archive(200 << 20)}).to_bytes()
    assert read(data).version == "0.9.0"
    agent = SimpleNamespace(fleet="plants", data_dir=tmp_path)
    settings = SimpleNamespace(agent=agent, lookups=SimpleNamespace(max_rate=0), fleet=SimpleNamespace(undo_after=5.0))
    context = cast(Any, SimpleNamespace(config=settings))
    reports = Reports(tmp_path / "audit.jsonl")
    monkeypatch.setenv("VEDETTE_UPGRADES", str(tmp_path))
    release = FleetRelease(context, str, bool, cast(Any, Documents(data)), reports)
    release.running = Installed("0.8.0-ffffffffffff", tmp_path / "opt")
    wanted = target("releases/0.9.0", data)

    async def follow() -> str:
        await release.follow("c1", wanted, due=True, settled=True)
        return reports.of("release")

    free = 100 << 20
    monkeypatch.setattr(fleet_release.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert await follow() == ""
    assert release.actual()["state"] == "fetching"
    said = ""
    for pause in pauses():
        if said := await follow():
            break
        await asyncio.sleep(pause)
    folder = tmp_path / "upgrade" / "pieces"
    assert said == f"{ID} cannot be fetched: {folder} needs 464 MiB and 100 MiB are free: free some"
    assert await follow() == said
    assert release.refused == {}
    assert not (tmp_path / "upgrade" / "request").exists()
    free = 1 << 30
    release._again = 0.0
    assert await follow() == ""
    assert release.actual()["state"] == "fetching"
    assert release._fetching is not None
    release._fetching.cancel()


async def test_a_release_without_this_hosts_add_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not fetched, and the heartbeat says what is missing; described with it, it is."""
    agent = SimpleNamespace(fleet="plants", data_dir=tmp_path)
    settings = SimpleNamespace(agent=agent, lookups=SimpleNamespace(max_rate=0), fleet=SimpleNamespace(undo_after=5.0))
    reports = Reports(tmp_path / "audit.jsonl")
    monkeypatch.setenv("VEDETTE_UPGRADES", str(tmp_path))
    for addons, state in (({}, ""), ({"archive": File("b" * 64, 1, ("c" * 64,))}, "fetching")):
        one = archive(PIECE)
        full = Archive(one.sha256, one.size, one.pieces, one.id, addons)
        data = Release("0.9.0", {platform.machine(): full}).to_bytes()
        context = cast(Any, SimpleNamespace(config=settings))
        release = FleetRelease(context, str, bool, cast(Any, Documents(data)), reports)
        release.running = Installed("0.8.0-ffffffffffff", tmp_path / "opt", ("archive",))
        await release.follow("c1", target("releases/0.9.0", data), due=True, settled=True)
        said = "" if addons else f"{ID} comes without the add-on archive of this host: name its file in `release`, too"
        assert (release.actual()["state"], reports.of("release")) == (state, said)
        if release._fetching is not None:
            release._fetching.cancel()
