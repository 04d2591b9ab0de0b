"""Copies of lookups that lie where people write: only of what is whole; an earlier one stays until it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.lookup.tables import lookup_of
from vedette.lookup.copies import read_header, take
from vedette.lookup.installed import RESERVE, DiskShort
from vedette.lookup.layout import LookupRefused
from vedette.lookup.table import Lookup

ROWS = 3000
"""More than a page of them."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The lookup ``users`` of it0, it1, …"""
    (tmp_path / "own").mkdir()
    path = tmp_path / "own" / "users.vlookup"
    lookup_of(path, "user", "user", [(f"it{number}",) for number in range(ROWS)]).close()
    return path


@pytest.fixture
def new(tmp_path: Path) -> bytes:
    """Another one, of ot0, ot1, …"""
    with lookup_of(tmp_path / "new.vlookup", "user", "user", [(f"ot{number}",) for number in range(ROWS)]) as lookup:
        return lookup.data


def test_what_is_written_over_is_read_on(tmp_path: Path, path: Path, new: bytes) -> None:
    """The copy that is mapped answers, whatever its file becomes, and so does one that is opened; once the file is
    whole again, a copy of it takes the place."""
    folder = tmp_path / "copies"
    assert take([path], folder) == {}
    copy = folder / path.name
    with Lookup.open(copy) as mapped, path.open("r+b") as file:
        assert (mapped.contains("user", "it7"), copy.samefile(path)) == (True, False)
        file.truncate()
        assert take([path], folder) == {path: "it is empty: copy it again"}
        file.write(new[: len(new) // 2])
        file.flush()
        assert "bytes and not the" in take([path], folder)[path]
        assert mapped.contains("user", "it2999")
        with Lookup.open(copy) as again:
            assert again.contains("user", "it2999")
        file.write(new[len(new) // 2 :])
        file.flush()
        assert take([path], folder) == {}
        assert mapped.contains("user", "it1500")
    with Lookup.open(copy) as replaced:
        assert (replaced.contains("user", "it7"), replaced.contains("user", "ot7")) == (False, True)
    assert os.listdir(folder) == [copy.name]


def test_a_copy_is_made_once(tmp_path: Path, path: Path) -> None:
    """A file of the same version is not copied again, one that has lost bytes is."""
    take([path], tmp_path / "copies")
    copy = tmp_path / "copies" / path.name
    made = copy.stat().st_ino
    path.touch()
    take([path], tmp_path / "copies")
    assert copy.stat().st_ino == made
    copy.write_bytes(b"")
    take([path], tmp_path / "copies")
    assert copy.read_bytes() == path.read_bytes()


def test_bytes_of_two_versions(tmp_path: Path, path: Path, new: bytes) -> None:
    """A file that was changed where its header does not tell is not taken, with a copy before it and without, where an
    empty one stands before it."""
    old = path.read_bytes()
    take([path], tmp_path / "copies")
    mixed = bytearray(new)
    mixed[200:1000] = old[200:1000]
    path.write_bytes(mixed)
    assert "is damaged: copy it again" in take([path], tmp_path / "copies")[path]
    assert (tmp_path / "copies" / path.name).read_bytes() == old
    assert take([path], tmp_path / "others").keys() == {path}
    assert (tmp_path / "others" / path.name).read_bytes() == b""


def test_what_is_no_file(tmp_path: Path, path: Path) -> None:
    """A pipe and a file that went are not waited for; the copy stays while the name does."""
    take([path], tmp_path / "copies")
    path.unlink()
    assert "No such file" in take([path], tmp_path / "copies")[path]
    os.mkfifo(path)
    assert take([path], tmp_path / "copies").keys() == {path}
    with pytest.raises(LookupRefused):
        read_header(path)
    assert take([], tmp_path / "copies") == {}
    assert os.listdir(tmp_path / "copies") == []


def test_two_of_a_name(tmp_path: Path, path: Path) -> None:
    """None is taken: which one rules mean nobody knows."""
    (tmp_path / "other").mkdir()
    shutil.copy(path, tmp_path / "other")
    take([path], tmp_path / "copies")
    assert take([path, tmp_path / "other" / path.name], tmp_path / "copies") == {}
    assert os.listdir(tmp_path / "copies") == []


def test_a_disk_without_room(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is needed is said, and nothing is left there but an empty one."""
    monkeypatch.setattr("vedette.lookup.installed.RESERVE", 1 << 60)
    with pytest.raises(DiskShort, match="lookup users needs"):
        take([path], tmp_path / "copies")
    assert [(copy.name, copy.stat().st_size) for copy in (tmp_path / "copies").iterdir()] == [(path.name, 0)]
    monkeypatch.setattr("vedette.lookup.installed.RESERVE", RESERVE)
    assert take([path], tmp_path / "copies") == {}
    assert (tmp_path / "copies" / path.name).read_bytes() == path.read_bytes()
