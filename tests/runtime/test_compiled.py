"""The user's cache of compiled rules: what is read is the user's own, what is kept is bounded, what fails is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lookup.tables import lookup_of
from vedette.engine.artifact import Artifact
from vedette.runtime.rulesets import usercache
from vedette.runtime.rulesets.compiled import Sources, compiler
from vedette.runtime.rulesets.usercache import KEEP, UserCache, user_folder

BUILT = Artifact(b"plan", {"prefilter": b"x" * 100}, "library")
DIGEST = "0" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "vedette"


def test_what_was_kept_is_there_again(folder: Path) -> None:
    """Under its digest, in a folder that only its user can look into."""
    cache = UserCache(folder)
    assert cache.load(DIGEST) is None
    cache.keep(DIGEST, BUILT)
    assert cache.load(DIGEST) == BUILT
    assert cache.load("1" * 32) is None
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())] == ["0o700", "0o600"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_write_to_is_not_used(folder: Path, mode: int) -> None:
    """Neither read nor written."""
    cache = UserCache(folder)
    cache.keep(DIGEST, BUILT)
    folder.chmod(mode)
    assert cache.load(DIGEST) is None
    cache.keep("1" * 32, BUILT)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_a_file_that_others_write_to_is_not_read(folder: Path, mode: int) -> None:
    """It is compiled anew, and replaced by one of the user's own."""
    cache = UserCache(folder)
    cache.keep(DIGEST, BUILT)
    (file,) = folder.iterdir()
    file.chmod(mode)
    assert cache.load(DIGEST) is None
    cache.keep(DIGEST, BUILT)
    assert cache.load(DIGEST) == BUILT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("whose", ["file", "folder"])
def test_what_is_another_users_is_not_read(folder: Path, whose: str) -> None:
    """Whatever its mode."""
    cache = UserCache(folder)
    cache.keep(DIGEST, BUILT)
    (file,) = folder.iterdir()
    os.chown(file if whose == "file" else folder, 65534, 65534)
    assert cache.load(DIGEST) is None


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_links_are_not_followed(folder: Path, tmp_path: Path, linked: str) -> None:
    """What a link leads to is not read."""
    cache = UserCache(folder)
    cache.keep(DIGEST, BUILT)
    (file,) = folder.iterdir()
    path = file if linked == "file" else folder
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.load(DIGEST) is None


def test_a_pipe_or_a_damaged_file_is_not_waited_for(folder: Path) -> None:
    """They are no artifact."""
    cache = UserCache(folder)
    cache.keep(DIGEST, BUILT)
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert cache.load(DIGEST) is None
    file.unlink()
    os.mkfifo(file, 0o600)
    assert cache.load(DIGEST) is None


def test_only_so_many_are_kept(folder: Path) -> None:
    """The one that was not used for longest goes; what a kill left half-written goes as well."""
    cache = UserCache(folder)
    for number in range(KEEP):
        cache.keep(f"{number:032}", BUILT)
        os.utime(folder / f"rules-{number:032}.vplan", (number, number))
    (folder / ".rules-1.vplan.7").touch()
    assert cache.load(f"{0:032}") == BUILT  # used now
    cache.keep("f" * 32, BUILT)
    assert len(list(folder.iterdir())) == KEEP
    assert cache.load(f"{1:032}") is None
    assert cache.load(f"{0:032}") == cache.load("f" * 32) == BUILT


def test_only_so_many_bytes_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large by itself is not kept at all."""
    monkeypatch.setattr(usercache, "MAX_BYTES", int(2.5 * len(BUILT.to_bytes())))
    cache = UserCache(folder)
    for number in range(4):
        cache.keep(f"{number:032}", BUILT)
        os.utime(folder / f"rules-{number:032}.vplan", (number, number))
    assert len(list(folder.iterdir())) == 2
    cache.keep(DIGEST, BUILT._replace(plan=b"x" * 1000))
    assert cache.load(DIGEST) is None


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    """A file in the place of its folder is left as it is."""
    (tmp_path / "cache").write_text("mine")
    cache = UserCache(tmp_path / "cache" / "vedette")
    cache.keep(DIGEST, BUILT)
    assert cache.load(DIGEST) is None
    assert (tmp_path / "cache").read_text() == "mine"


def test_where_the_users_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the XDG Base Directory Specification says: a relative path is ignored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_folder() == tmp_path / "vedette"
    monkeypatch.setenv("HOME", "/home/a")
    for other in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", other)
        assert user_folder() == Path("/home/a/.cache/vedette")


def test_a_digest_is_of_every_file_and_its_part(tmp_path: Path) -> None:
    """Content, name and role; files that no build reads do not count."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "a.yml").write_text("a")
    sources = Sources((rules,))
    found = {sources.digest(), sources.digest("x"), Sources((), (rules,)).digest(), Sources((), (), (rules,)).digest()}
    (rules / "README").write_text("a")
    assert sources.digest() in found
    (rules / "a.yml").write_text("b")
    found.add(sources.digest())
    (rules / "a.yml").rename(rules / "b.yml")
    found.add(sources.digest())
    for content in "ab":
        (rules / "a.sql").write_text(content)
        found.add(sources.digest())
    assert len(found) == 8
    assert compiler() == compiler()


def test_a_digest_is_of_a_lookups_shape(tmp_path: Path) -> None:
    """Other rows are no reason to compile rules again; other columns or keys, damage and absence are."""
    folder = tmp_path / "lookups"
    folder.mkdir()
    sources = Sources((), (), (folder,))
    found = {sources.digest()}
    path = folder / "assets.vlookup"
    lookup_of(path, "ip", "ip", [("10.0.0.1",)]).close()
    found.add(first := sources.digest())
    lookup_of(path, "ip", "ip", [("10.0.0.2",)]).close()
    assert sources.digest() == first
    lookup_of(path, "ip n:int", "ip", [("10.0.0.2", 1)]).close()
    found.add(sources.digest())
    path.write_bytes(path.read_bytes()[:-1])
    found.add(sources.digest())
    assert len(found) == 4
    assert list(sources.files()) == [path]
