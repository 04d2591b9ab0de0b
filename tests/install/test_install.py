"""install.sh on the real zip, in folders of the test's own."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, Place, Variant, alone, call
from vedette import __version__
from vedette.config import read as config

pytestmark = pytest.mark.install


def test_version(installed: Place) -> None:
    """The installed command works, from a link and by its own path."""
    done = call(installed.vedette, "version")
    assert done.code == 0
    assert __version__ in done.text
    assert call(installed.prefix / "current/bin/vedette", "version") == done


def test_nothing_of_the_host_is_used(installed: Place) -> None:
    """Every library in the running program comes from the release, and its own path is the program's."""
    runtime = installed.prefix / "current" / "runtime"
    script = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import asyncio, ssl, hyperscan, lmdb, orjson, regex, zstandard, msgpack, structlog, vedette\n"
        "print(sys.executable)\n"
        "for line in open('/proc/self/maps'):\n"
        "    if '.so' in line: print(line.split()[5])"
    )
    done = call(runtime / "bin/vedetted", "-I", "-S", "-B", "-c", script, installed.prefix / "current/packages")
    assert done.code == 0, done.text
    executable, *libraries = done.text.split()
    assert Path(executable).resolve() == (runtime / "bin/vedetted").resolve()
    assert len(libraries) > 20
    assert not [path for path in libraries if not Path(path).is_relative_to(installed.prefix)]


def test_a_root_with_nothing_in_it(installed: Place, tmp_path: Path) -> None:
    """The agent starts where there is no Python, no C library and no shell: only the kernel and /proc."""
    root = tmp_path / "root"
    inner = root / str(installed.prefix).lstrip("/")
    inner.mkdir(parents=True)
    (root / "proc").mkdir()
    current = installed.prefix / "current"
    done = call(
        *alone(), "sh", "-c",
        'mount --bind "$1" "$2" && mount --rbind /proc "$3/proc" && exec chroot "$3" "$4" -I -S -B "$5" version', "sh",
        installed.prefix, inner, root, current / "runtime/bin/vedetted", current / "launch.py",
    )  # fmt: skip
    assert done.code == 0, done.text
    assert __version__ in done.text


def test_the_configuration_that_is_written(installed: Place) -> None:
    """It has this installation's paths, trusts the starter rules, and is not for everybody to read."""
    text = installed.config.read_text()
    shipped = config.parse(text)
    assert shipped.agent.data_dir == installed.data_dir
    assert shipped.bundles.file == installed.prefix / "current/starter.vbundle"
    assert len(shipped.bundles.trusted_keys) == 1
    assert "/opt/vedette" not in text
    assert "/var/lib/vedette" not in text
    assert installed.config.stat().st_mode & 0o777 == 0o640
    assert installed.data_dir.stat().st_mode & 0o777 == 0o750


def test_a_second_run_changes_nothing(release: Path, ready: Place) -> None:
    """Running it again, with or without the folders, leaves every file as it is, and says so."""
    before = ready.tree()
    for done in (ready.install(release), ready.sh(release)):
        assert done.code == 0
        assert "nothing changed" in done.text
        after = ready.tree()
        for changing in ("opt", "etc", "opt/bin", "opt/installed", "opt/install.log"):  # rewritten, or added to
            after[changing] = before[changing]
        assert after == before


def test_the_operators_configuration_stays(release: Path, variant: Variant, ready: Place) -> None:
    """A changed vedette.toml is kept through another run and an upgrade; the release's own is put beside it."""
    own = ready.config.read_text().replace('#site = "default"', 'site = "vienna"')
    ready.config.write_text(own)
    done = ready.install(release)
    assert done.code == 0
    assert "vedette.toml.new" in done.text
    assert ready.install(variant("next", version="9.0.0")).code == 0
    assert ready.config.read_text() == own
    assert '#site = "default"' in (ready.config_dir / "vedette.toml.new").read_text()


def test_another_key_for_the_starter_rules_is_said(
    release: Path, files: Mapping[str, tuple[int, bytes]], variant: Variant, ready: Place
) -> None:
    """An upgrade whose starter rules are signed by a key that the kept configuration does not trust says so."""
    text = ready.config.read_text()
    key = config.parse(text).bundles.trusted_keys[0]
    other = "ed25519:" + "A" * 43 + "="
    changed = files["vedette.toml"][1].replace(key.encode(), other.encode())
    done = ready.install(variant("otherkey", {"vedette.toml": changed}))
    assert done.code == 0
    assert "does not trust the key" in done.text


def test_upgrade(release: Path, variant: Variant, ready: Place) -> None:
    """A new release becomes current, the old one previous, and older ones go."""
    first = ready.current()
    for number in (7, 8):
        before = ready.current()
        assert ready.install(variant(str(number), version=f"{number}.0.0")).code == 0
        assert ready.current().startswith(f"{number}.0.0-")
        assert (ready.prefix / "previous").readlink().name == before
    assert {path.name for path in (ready.prefix / "releases").iterdir()} == {ready.current(), before}
    assert first not in (ready.current(), before)


def test_a_release_that_does_not_run(release: Path, variant: Variant, ready: Place) -> None:
    """A release whose command fails is not switched to and leaves nothing behind."""
    before = ready.current()
    done = ready.install(variant("broken", {"bin/vedette": b"#!/bin/sh\necho broken on purpose; exit 1\n"}))
    assert done.code == 30
    assert "broken on purpose" in done.text
    assert ready.current() == before
    assert [path.name for path in (ready.prefix / "releases").iterdir()] == [before]


def test_a_configuration_that_the_release_does_not_take(release: Path, variant: Variant, ready: Place) -> None:
    """When the operator's configuration has a mistake, the running release stays and the mistake is shown."""
    before = ready.current()
    ready.config.write_text("[agent]\nunknown_key = 1\n")
    done = ready.install(variant("next", version="9.0.0"))
    assert done.code == 31
    assert "unknown_key" in done.text
    assert ready.current() == before


def test_a_damaged_installation_is_repaired(release: Path, ready: Place) -> None:
    """Installing the same release again puts back a file that was changed."""
    launcher = ready.prefix / "current" / "launch.py"
    launcher.write_text("raise SystemExit(3)\n")
    assert call(ready.vedette, "version").code == 3
    assert ready.install(release).code == 0
    assert call(ready.vedette, "version").code == 0
    assert len(list((ready.prefix / "releases").iterdir())) == 1


def test_dry_run(release: Path, place: Place) -> None:
    """--dry-run says what would be done and does none of it."""
    done = place.install(release, "--dry-run")
    assert done.code == 0
    assert str(place.config) in done.text
    assert list(place.folder.iterdir()) == []
    place.install(release)
    before = place.tree()
    assert place.sh(release, "--uninstall", "--purge", "--dry-run").code == 0
    assert place.tree() == before


HASWELL = "fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt fma abm avx avx2 bmi1 bmi2 movbe f16c"


@pytest.mark.parametrize("lacking", ["popcnt", "bmi1", "bmi2", "abm", "avx2", "avx avx2 bmi1 bmi2 abm fma"])
def test_an_old_processor(release: Path, place: Place, tmp_path: Path, lacking: str) -> None:
    """A host on which the pattern matcher would die is refused by install.sh; an agent that is there all the same, from
    a registry or on a host that was moved, says what is wrong in one line."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags : {' '.join(flag for flag in HASWELL.split() if flag not in lacking.split())}\n")
    on_it = (*alone(), "sh", "-c", 'mount --bind "$1" /proc/cpuinfo && shift && exec "$@"', "sh", cpuinfo)
    done = call(*on_it, "sh", release / "install.sh", "--no-systemd", "--prefix", place.prefix)
    assert done.code == 12
    assert list(place.folder.iterdir()) == []
    from_registry = call(*on_it, sys.executable, "-m", "vedette", "version")
    assert from_registry.code == 2
    assert from_registry.text.count("\n") == 1
    for flag in set(lacking.split()) - {"avx", "fma"}:
        assert f" {flag}" in done.text
        assert f" {flag}" in from_registry.text


QEMU = """#!/bin/sh
exec qemu-x86_64-static -cpu {cpu} "${{0%/bin/vedetted}}/lib/ld-linux-x86-64.so.2" "${{0%/bin/vedetted}}/bin/real" "$@"
"""


def emulated(files: Mapping[str, tuple[int, bytes]], cpu: str) -> dict[str, bytes]:
    """Files of a release whose program runs on another processor, whatever /proc/cpuinfo says."""
    if shutil.which("qemu-x86_64-static") is None:
        pytest.skip("no qemu-x86_64-static here: sh tools/packages.sh tests")
    script = QEMU.format(cpu=cpu).encode()
    return {
        "runtime/bin/real": files["runtime/bin/vedetted"][1],
        "runtime/bin/vedetted": script + b"#" * 1024,
        "runtime/interpreter": b"%d 1024 ld-linux-x86-64.so.2\n" % len(script),
    }


@pytest.mark.parametrize("cpu", ["IvyBridge", pytest.param("Haswell", marks=pytest.mark.long)])
def test_the_trial_on_an_old_processor(
    files: Mapping[str, tuple[int, bytes]], variant: Variant, ready: Place, cpu: str
) -> None:
    """What dies of an illegal instruction is found before anything is switched, whatever /proc/cpuinfo says: an upgrade
    leaves the release that was there, a first installation nothing. From Haswell on it runs."""
    newer = variant(f"on-{cpu}", emulated(files, cpu), version="9.9.9")
    before = ready.current()
    done = ready.install(newer)
    if cpu == "Haswell":
        assert done.code == 0, done.text
        assert ready.current() != before
        assert call(ready.vedette, "version").code == 0
        return
    assert done.code == 30, done.text
    assert "lacks an instruction" in done.text
    assert ready.current() == before
    assert call(ready.vedette, "version").code == 0
    first = Place(ready.folder / "first")
    assert first.install(newer).code == 30
    assert [path.name for path in first.folder.rglob("*")] == ["opt", "install.log"]


def test_region(release: Path, place: Place) -> None:
    """--region makes the new configuration send its alerts there."""
    assert place.install(release, "--region", "mqtts://region.example:8883").code == 0
    uplink = config.load(place.config).uplink
    assert (uplink.type, uplink.broker.url) == ("mqtt", "mqtts://region.example:8883")


@pytest.mark.parametrize(
    "options",
    [
        ["--region", "http://x"],
        ["--region", 'mqtt://x"; rm -rf /'],
        ["--region", "mqtt://x:1\nmqtt://y"],
        ["--region", "mqtt://"],
        ["--data-dir", "relative"],
        ["--data-dir", "/var/lib"],
        ["--data-dir", "/srv/a b"],
        ["--data-dir", "/srv/../etc"],
        ["--config-dir", "/etc/"],
        ["--data-dir", "/srv/x\n/etc"],
        ["--data-dir"],
        ["--purge"],
        ["--rollback", "--upgrade"],
        ["--listen", "514"],
        ["--listen", "host"],
        ["--listen", "host:port"],
        ["--listen", "127.0.0.1:0514"],
        ["--listen", "127.0.0.1:0"],
        ["--listen", "127.0.0.1:65536"],
        ["--listen", "[::1]:5x"],
        ["--listen", ":514"],
        ["--grace", "long"],
        ["--release-key", "ed25519:short"],
        ["--log", "relative.log"],
        ["--unknown"],
        ["now"],
    ],
)
def test_wrong_use(release: Path, place: Place, options: list[str]) -> None:
    """Wrong or dangerous arguments end with exit code 2 and change nothing."""
    done = place.install(release, *options)
    assert done.code == 2, done.text
    assert done.text.startswith("vedette: ")
    assert list(place.folder.iterdir()) == []


def test_from_the_source_tree(place: Place) -> None:
    """install.sh of the repository says how to get a release."""
    done = place.sh(ROOT)
    assert done.code == 2
    assert "make dist" in done.text


def test_two_at_a_time(release: Path, ready: Place) -> None:
    """While one run is at work another one gives way."""
    lock = os.open(ready.prefix / ".lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = ready.install(release)
    os.close(lock)
    assert done.code == 40
    assert "another run" in done.text


def test_uninstall_keeps_configuration_and_data(release: Path, ready: Place) -> None:
    """--uninstall removes the program only; the installed script does it, too; a second time is no mistake."""
    (ready.data_dir / "raw").mkdir()
    done = ready.sh(ready.prefix / "current", "--uninstall")
    assert done.code == 0
    assert not ready.prefix.exists()
    assert ready.config.exists()
    assert (ready.data_dir / "raw").exists()
    again = ready.sh(release, "--uninstall")
    assert again.code == 0
    assert "nothing is installed" in again.text


def test_purge(release: Path, ready: Place) -> None:
    """--uninstall --purge leaves nothing; the folders are those of the installation."""
    (ready.data_dir / "raw").mkdir()
    assert ready.sh(release, "--uninstall", "--purge").code == 0
    assert list(ready.folder.iterdir()) == []


def test_purge_spares_what_was_there_before(release: Path, place: Place) -> None:
    """A folder that held other things before the installation is not removed."""
    place.data_dir.mkdir()
    (place.data_dir / "photos").mkdir()
    place.install(release)
    done = place.sh(release, "--uninstall", "--purge")
    assert done.code == 0
    assert "stays" in done.text
    assert (place.data_dir / "photos").exists()
    assert not place.config_dir.exists()


def test_unpacked_by_unzip(zip_file: Path, tmp_path: Path) -> None:
    """Unpacked with the usual tool, the programs can be run as they are."""
    if shutil.which("unzip") is None:
        pytest.skip("no unzip here")
    assert call("unzip", "-q", zip_file, "-d", tmp_path).code == 0
    assert os.access(tmp_path / "vedette/install.sh", os.X_OK)
