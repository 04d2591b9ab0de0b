"""An installation's life by the zip: installed, upgraded, rolled back, tampered with and removed, with a light release,
see ``light``. The release that `make dist` builds has the same in ``test_install.py``, ``test_boot.py`` and others."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, Place, call, emptied
from tests.install.light import Light
from vedette import __version__
from vedette.config import read as config
from vedette.region.polyglot import PAYLOAD, STUB_BYTES, read
from vedette.region.sign import keygen

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Light:
    return Light.make(tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def zip_file(light: Light) -> Path:
    """The light release."""
    return light.zip()


@pytest.fixture(scope="module")
def saved(zip_file: Path, ground: Path) -> Path:
    """A copy of ``ground`` with the release installed."""
    done = emptied(ground).install(zip_file)
    assert done.code == 0, done.text
    return ground.rename(ground.with_name("saved-light"))


@pytest.fixture
def ready(saved: Path, ground: Path) -> Place:
    """The release is installed, and everything may be done to it."""
    shutil.rmtree(ground, ignore_errors=True)
    shutil.copytree(saved, ground, symlinks=True)
    return Place(ground)


def releases(place: Place) -> set[str]:
    return {path.name for path in (place.prefix / "releases").iterdir()}


def test_installed(light: Light, zip_file: Path, ready: Place) -> None:
    """The command works, and the configuration has this installation's paths, trusts the starter rules and is not for
    everybody to read. A second run changes nothing, and says so."""
    assert __version__ in call(ready.vedette, "version").text
    settings = config.load(ready.config)
    assert (settings.agent.data_dir, settings.bundles.trusted_keys) == (ready.data_dir, (light.starter_key,))
    assert settings.bundles.file == ready.prefix / "current/starter.vbundle"
    assert {ready.config.stat().st_mode & 0o777, ready.data_dir.stat().st_mode & 0o777} == {0o640, 0o750}
    before = ready.tree()
    done = ready.sh(zip_file)
    assert "nothing changed" in done.text
    assert {name: row for name, row in ready.tree().items() if name.startswith(("etc/", "data", "opt/releases"))} == {
        name: row for name, row in before.items() if name.startswith(("etc/", "data", "opt/releases"))
    }


def test_upgraded_and_rolled_back(light: Light, ready: Place) -> None:
    """A newer release becomes current, the one before stays and older ones go; an operator's configuration is kept.
    --rollback goes back, and back again; an older release is no upgrade."""
    own = ready.config.read_text().replace('#site = "default"', 'site = "vienna"')
    ready.config.write_text(own)
    first = ready.current()
    for version in ("8.0.0", "9.0.0"):
        before = ready.current()
        done = ready.install(light.zip(version), "--upgrade")
        assert done.code == 0, done.text
        assert "vedette.toml.new" in done.text
        assert f"signed by {light.public}" in done.text
    assert releases(ready) == {ready.current(), before}
    assert first not in releases(ready)
    newest = ready.current()
    for current in (before, newest):
        done = call("sh", ready.prefix / "current/install.sh", "--rollback")
        assert done.code == 0, done.text
        assert ready.current() == current
    assert ready.install(light.zip("8.5.0"), "--upgrade").code == 43
    assert ready.config.read_text() == own
    assert call(ready.vedette, "version").code == 0


def test_not_switched_to(light: Light, ready: Place) -> None:
    """A release that does not run, and a configuration that it does not take: the running release stays."""
    before = ready.current()
    done = ready.install(light.zip("9.1.0", {"bin/vedette": b"#!/bin/sh\necho broken on purpose; exit 1\n"}))
    assert (done.code, "broken on purpose" in done.text) == (30, True), done.text
    ready.config.write_text("[agent]\nunknown_key = 1\n")
    done = ready.install(light.zip("9.2.0"))
    assert (done.code, "unknown_key" in done.text) == (31, True), done.text
    assert releases(ready) == {ready.current()} == {before}


def test_repaired(zip_file: Path, ready: Place) -> None:
    """A file of the installed release that was changed is put back by another run."""
    (ready.prefix / "current/launch.py").write_text("raise SystemExit(3)\n")
    assert call(ready.vedette, "version").code == 3
    assert ready.install(zip_file).code == 0
    assert call(ready.vedette, "version").code == 0
    assert len(releases(ready)) == 1


def test_a_repair_that_does_not_run(light: Light, ready: Place, tmp_path: Path) -> None:
    """Where the archive's release no longer runs on this host, the one that it was to repair stays as it was."""
    command = (ROOT / "packaging/vedette.sh").read_bytes()
    stops = f"#!/bin/sh\n[ ! -e {tmp_path}/stop ] || exit 1\n".encode()
    release = light.zip("9.4.0", {"bin/vedette": stops + command})
    assert ready.install(release).code == 0
    current = ready.current()
    (ready.prefix / "current/launch.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "stop").touch()
    assert ready.install(release).code == 30
    (tmp_path / "stop").unlink()
    assert ready.current() == current
    assert call(ready.vedette, "version").code == 3


def test_unpacked_otherwise(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """A file that the disk gives back otherwise than it was packed: nothing is installed."""
    tar = tmp_path / "tar"
    tar.write_text(f"""#!/bin/sh
{shutil.which("tar")} "$@" || exit
for folder; do :; done
echo >>"$folder/launch.py"
""")
    tar.chmod(0o755)
    done = call(
        "env", f"PATH={tmp_path}:{os.environ['PATH']}", "sh", zip_file, "--no-systemd", "--prefix", place.prefix,
        "--config-dir", place.config_dir, "--data-dir", place.data_dir,
    )  # fmt: skip
    assert (done.code, "is the disk in order?" in done.text) == (20, True), done.text
    assert [path.name for path in place.folder.rglob("*")] == ["opt", "install.log"]


@pytest.mark.parametrize("part", [PAYLOAD, "install.sh", "RELEASE", ""])
def test_tampered_with(zip_file: Path, place: Place, tmp_path: Path, part: str) -> None:
    """One other byte in any part, or an end that is missing, is refused before anything is written, and named."""
    data = bytearray(zip_file.read_bytes())
    if part:
        member = read(zip_file)[part]
        data[data.index(member[:4096], STUB_BYTES) + len(member) - 2] ^= 1
    else:
        del data[-1000:]
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(data)
    done = place.install(damaged)
    assert done.code == 20, done.text
    assert (part or str(len(data))) in done.text
    assert list(place.folder.iterdir()) == []


def test_signed_by_others(light: Light, ready: Place, place: Place, zip_file: Path, tmp_path: Path) -> None:
    """An upgrade that others have signed is refused by the installed release, and a first installation by the host's
    OpenSSL where a key is given; with the key of the others it is theirs from then on."""
    other = keygen(tmp_path / "other.pem")
    foreign = light.zip("6.6.6", key=tmp_path / "other.pem")
    assert place.install(zip_file).code == 0
    done = place.install(foreign)
    assert (done.code, light.public in done.text) == (21, True), done.text
    assert place.install(foreign, "--release-key", other).code == 0
    assert place.install(zip_file).code == 21
    if "3." in call("openssl", "version").text:
        first = Place(place.folder / "first")
        assert first.install(zip_file, "--release-key", other).code == 21
        assert not first.folder.exists()


def test_removed(zip_file: Path, ready: Place) -> None:
    """--uninstall takes the program and no more; --purge leaves nothing but what an operator had put there before; a
    second time is no mistake."""
    (ready.data_dir / "raw").mkdir()
    done = call("sh", ready.prefix / "current/install.sh", "--uninstall")
    assert done.code == 0, done.text
    assert not ready.prefix.exists()
    assert ready.config.exists()
    assert (ready.data_dir / "raw").exists()
    assert "nothing is installed" in ready.sh(zip_file, "--uninstall").text
    photos = ready.folder / "photos"
    photos.mkdir()
    (photos / "1.jpg").touch()
    assert ready.sh(zip_file, "--config-dir", ready.config_dir, "--data-dir", photos).code == 0
    assert call("sh", ready.prefix / "current/install.sh", "--uninstall", "--purge").code == 0
    assert [path.name for path in sorted(ready.folder.iterdir())] == ["data", "photos"]
    assert (photos / "1.jpg").exists()


def test_dry_run(zip_file: Path, ready: Place, light: Light) -> None:
    """--dry-run says what would be done and does none of it."""
    before = ready.tree()
    for options in ((), ("--uninstall", "--purge")):
        done = ready.sh(light.zip("9.3.0"), "--dry-run", *options)
        assert done.code == 0, done.text
        assert str(ready.config_dir) in done.text
    assert ready.tree() == before


def test_where_sigpipe_is_ignored(zip_file: Path, place: Place) -> None:
    """As in a service: what a pipe's reader leaves is no failure."""
    done = call(
        "sh", "-c", "trap '' PIPE; exec sh \"$@\"", "sh", zip_file, "--no-systemd", "--prefix", place.prefix,
        "--config-dir", place.config_dir, "--data-dir", place.data_dir,
    )  # fmt: skip
    assert done.code == 0, done.text
    assert call(place.vedette, "version").code == 0


def test_two_at_a_time(zip_file: Path, ready: Place) -> None:
    """While one run is at work another one gives way."""
    with subprocess.Popen(
        ["flock", ready.prefix / ".lock", "sh", "-c", "echo locked; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        done = ready.sh(zip_file)
        holder.communicate()
    assert (done.code, "another run" in done.text) == (40, True), done.text
