"""install.sh killed by SIGKILL at a point that is drawn: a first installation, an upgrade, a rollback, a removal.

All of the run dies at once, as when power is lost: just before, during or just after one of the programs that change
files, or before a call of the installer's Python that does (``runner.py``), which is drawn from those of an undisturbed
run. Afterwards the old installation or the new one works wholly. A
second run brings every file to where an undisturbed one has it (after a rollback, which --rollback would turn round, a
run of the newer release's zip to where it was before); and neither configuration, raw logs nor another installation
have changed. VEDETTE_CRASH_KILLS kills of each, VEDETTE_CRASH_SEED as in all crash tests.

Once with light releases (``light.py``), whose program and checks of the configuration are the real ones, and once under
a systemd of stand-ins (``stubbed.py``), with its units and sockets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.agent import KILLS, chance
from tests.install.conftest import Done, Place, alone, call, emptied
from tests.install.light import Light
from tests.install.stubbed import IN, Stubbed

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]

PROGRAMS = ("cp", "dd", "mkdir", "mv", "rm", "rmdir", "tar")
"""That change files; beside them the shell only writes files under temporary names."""
COUNTING = """#!/bin/sh
# Stands before {program}: counts its calls, and at the one that was drawn kills the whole group.
PATH=/usr/bin:/bin
number=$(($(cat {folder}/count) + 1))
echo $number >{folder}/count
[ "$number" = "$(cat {folder}/at)" ] || exec {program} "$@"
exec 3<&0
when=$(cat {folder}/when)
case ${{0##*/}} in systemctl) [ $when != during ] || when=after ;; esac # what it asks for goes on without it
case $when in
    during) {program} "$@" <&3 & /bin/sleep 0.00$(cat {folder}/while) ;;
    after) {program} "$@" <&3 || : ;;
esac
kill -KILL 0
"""
WHEN = ("before", "during", "after")
LOGS = {"raw/00000000.log": b"what was received\n" * 1000, "store/data.mdb": b"\0" * 4096}
CHANGING = ("install.log", "vedette-install.log", "calls")
"""Names of files that say what was done."""
ACTIONS = ("install", "upgrade", "rollback", "uninstall", "purge")
OPTIONS = {
    "install": (), "upgrade": ("--upgrade",), "rollback": ("--rollback",), "uninstall": ("--uninstall",),
    "purge": ("--uninstall", "--purge"),
}  # fmt: skip
ONE = ("1.0.0",)
BEFORE = {"install": (), "upgrade": ONE, "rollback": ("1.0.0", "9.0.0"), "uninstall": ONE, "purge": ONE}
"""The releases that are installed, one over the other."""


SECOND = ("--no-systemd", "--prefix", "/opt/second", "--config-dir", "/etc/second", "--data-dir", "/var/second")


class Killer:
    """Programs that stand before the real ones."""

    def __init__(self, folder: Path, programs: Mapping[str, str]) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name, program in programs.items():
            path = folder / "bin" / name
            path.write_text(COUNTING.format(program=program, folder=folder))
            path.chmod(0o755)

    def run(self, command: list[str | Path], at: int = 0, when: str = "after", milliseconds: int = 0) -> Done:
        """Run it, killed at call number ``at``; 0: never."""
        for name, value in (("count", 0), ("at", at), ("when", when), ("while", milliseconds)):
            (self.folder / name).write_text(str(value))
        process = subprocess.Popen(
            [*map(str, command)],
            env={
                **os.environ,
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "VEDETTE_TEST_KILLER": str(self.folder),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        output, _ = process.communicate()
        return Done(process.returncode, output)

    def calls(self) -> int:
        """Of the last run."""
        return int((self.folder / "count").read_text())


def options(action: str, again: bool) -> tuple[str, ...]:
    return () if again and action == "rollback" else OPTIONS[action]


class Ground(Protocol):
    """Where installations are: one that is acted on, and another."""

    killer: Killer

    def reset(self, action: str) -> None:
        """As it is before the action."""

    def command(self, action: str, *, again: bool) -> list[str | Path]: ...

    def works(self) -> str:
        """The version that works wholly; empty: none is installed. Raises AssertionError for one that does not work."""

    def files(self) -> dict[str, bytes | str]:
        """All files, and where links lead."""


def tree(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or path.is_file()) and path.name not in CHANGING
    }


def whole(release: Path) -> None:
    """Its files are as they came."""
    listed = [line.split("  ", 1) for line in (release / "FILES.sha256").read_text().splitlines()]
    sums = "".join(f"{digest}  {name}\n" for digest, name in listed if name != "runtime/bin/vedetted")
    done = subprocess.run(["sha256sum", "--quiet", "-c"], cwd=release, input=sums, text=True, check=False)
    assert done.returncode == 0, release


class Folders:
    """Without systemd, with the real program of a light release."""

    def __init__(self, folder: Path, ground: Path) -> None:
        self.folder, self.saved = ground, folder / "saved"
        self.killer = Killer(folder / "killer", {name: shutil.which(name) or "" for name in PROGRAMS})
        (folder / "light").mkdir()
        light = Light.make(folder / "light")
        self.zips = {version: light.zip(version) for version in ("1.0.0", "9.0.0")}
        for action in ACTIONS:
            self.place = emptied(ground)
            self.install(Place(ground / "second"), "1.0.0")
            for version in BEFORE[action]:
                self.install(self.place, version)
            shutil.copytree(ground, self.saved / action, symlinks=True)

    def install(self, place: Place, version: str) -> None:
        done = place.install(self.zips[version])
        assert done.code == 0, done.text
        for name, data in LOGS.items():
            (place.data_dir / name).parent.mkdir(exist_ok=True)
            (place.data_dir / name).write_bytes(data)
        place.config.write_text(place.config.read_text().replace('#site = "default"', 'site = "vienna"'))

    def reset(self, action: str) -> None:
        emptied(self.folder)
        shutil.copytree(self.saved / action, self.folder, symlinks=True, dirs_exist_ok=True)

    def command(self, action: str, *, again: bool) -> list[str | Path]:
        own = self.place.prefix / "current/install.sh"
        zip_file = self.zips["9.0.0" if action in ("upgrade", "rollback") else "1.0.0"]
        script = own if action in ("rollback", "uninstall", "purge") and not again else zip_file
        folders = () if script == own else ("--config-dir", self.place.config_dir, "--data-dir", self.place.data_dir)
        return ["sh", script, "--no-systemd", "--prefix", self.place.prefix, *folders, *options(action, again)]

    def works(self) -> str:
        if not (self.place.prefix / "current").is_symlink():
            return ""
        whole(self.place.prefix / "current")
        assert call(self.place.vedette, "version").code == 0
        done = call(self.place.vedette, "check", "-c", self.place.config)
        assert done.code <= 1, done.text
        return self.place.current().partition("-")[0]

    def files(self) -> dict[str, bytes | str]:
        return tree(self.folder)


class Host:
    """Under a systemd of stand-ins."""

    def __init__(self, folder: Path, _ground: Path) -> None:
        self.folder, self.saved = folder / "host", folder / "saved"
        real = {name: shutil.which(name) or "" for name in PROGRAMS} | {"systemctl": "/srv/systemctl"}
        self.killer = Killer(folder / "killer", real)
        for action in ACTIONS:
            host = Stubbed(self.saved / action)
            (host.folder / "srv/bin/systemctl").rename(host.folder / "srv/systemctl")
            for path in (self.killer.folder / "bin").iterdir():
                shutil.copy(path, host.folder / "srv/bin")
            for version in ("1.0.0", "9.0.0"):
                host.release(version)
            self.run(host, "/srv/1.0.0/install.sh", *SECOND)
            for version in BEFORE[action]:
                self.run(host, f"/srv/{version}/install.sh", "--grace", "0")
            for data in ("var/lib/vedette", "var/second"):
                for name, content in LOGS.items() if (host.folder / data).exists() else ():
                    (host.folder / data / name).parent.mkdir(exist_ok=True)
                    (host.folder / data / name).write_bytes(content)

    def run(self, host: Stubbed, script: str, *options: str) -> None:
        done = self.killer.run([*alone(), "--net", "sh", "-c", IN, "sh", host.folder, ":", script, *options])
        assert done.code == 0, done.text

    def reset(self, action: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.saved / action, self.folder, symlinks=True)

    def command(self, action: str, *, again: bool) -> list[str | Path]:
        version = "9.0.0" if action in ("upgrade", "rollback") else "1.0.0"
        own = action in ("rollback", "uninstall", "purge") and not again
        script = "/opt/vedette/current/install.sh" if own else f"/srv/{version}/install.sh"
        return [
            *alone(),
            "--net",
            "sh",
            "-c",
            IN,
            "sh",
            self.folder,
            ":",
            script,
            "--grace",
            "0",
            *options(action, again),
        ]

    def works(self) -> str:
        current = self.folder / "opt/vedette/current"
        if not current.is_symlink():
            return ""
        release = self.folder / "opt/vedette" / os.readlink(current)
        whole(release)
        assert (self.folder / "run/state/vedette.service").exists(), "the agent is down"
        assert (self.folder / "run/state/vedette-udp.socket").exists(), "syslog is closed"
        return release.name.partition("-")[0]

    def files(self) -> dict[str, bytes | str]:
        return {name: data for name, data in tree(self.folder).items() if not name.startswith(("srv/", "run/"))}


@pytest.fixture(scope="module", params=[Folders, Host], ids=["folders", "systemd"])
def scene(request: pytest.FixtureRequest, ground: Path, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    ground_of: Callable[[Path, Path], Ground] = request.param
    return ground_of(tmp_path_factory.mktemp("killed"), ground)


def apart(files: Mapping[str, bytes | str]) -> dict[str, bytes | str]:
    """What no run may change: raw logs, configuration and all of the other installation."""
    return {
        name: data
        for name, data in files.items()
        if "second" in name.split("/") or name.endswith((*LOGS, "vedette.toml"))
    }  # fmt: skip


def test_killed_before_anything_is_started(tmp_path: Path) -> None:
    """A first installation that dies with its units written and not enabled: the next run enables and starts them, as
    it would have, and removes what lay about, a token among it."""
    host = Stubbed(tmp_path)
    (host.folder / "run/kill/enable").write_text("KILL")
    assert host.run(host.release("1")).code != 0
    assert host.current().startswith("releases/1-")
    (host.folder / "run/kill/enable").unlink()
    left = [host.config.with_name(".token.4711"), host.prefix / "current.tmp.4711", host.prefix / "previous.was.4711"]
    for path in left:
        path.touch()
    done = host.run("/srv/1")
    assert done.code == 0, done.text
    for unit in ("vedette.service", "vedette-udp.socket", "vedette-upgrade.path"):
        assert (host.folder / "run/state" / f"enabled.{unit}").exists(), unit
    assert host.state("vedette.service")
    assert not [path for path in (*left, host.prefix / ".first") if path.exists()]


@pytest.mark.long
@pytest.mark.parametrize("action", ACTIONS)
def test_killed(scene: Ground, action: str) -> None:
    """Whatever was done when it died, the old installation or the new one works, and a second run mends it."""
    draw = chance()
    scene.reset(action)
    before, old = scene.files(), scene.works()
    done = scene.killer.run(scene.command(action, again=False))
    assert done.code == 0, done.text
    lasting, new, calls = apart(before).items() & apart(scene.files()).items(), scene.works(), scene.killer.calls()
    wanted = before if action == "rollback" else scene.files()
    assert calls > 3
    for _ in range(KILLS):
        at, when, milliseconds = draw.randint(1, calls), draw.choice(WHEN), draw.randrange(10)
        where = f"{action}, killed {when} program {at} of {calls}, {milliseconds} ms"
        sys.stdout.write(f"{where}\n")
        scene.reset(action)
        killed = scene.killer.run(scene.command(action, again=False), at, when, milliseconds)
        assert killed.code == -9 or scene.killer.calls() < at, f"{where}: {killed}"  # it asks systemctl again at times
        files = scene.files()
        assert lasting <= apart(files).items(), f"{where}: {lasting - apart(files).items()}"
        if action in ("upgrade", "rollback"):
            assert scene.works() in (old, new), where
        again = scene.killer.run(scene.command(action, again=True))
        assert again.code == 0, f"{where}: {again}"
        after = scene.files()
        differ = sorted(name for name in {*after, *wanted} if after.get(name) != wanted.get(name))
        assert not differ, f"{where}: {differ}\n{again.text}"
        assert scene.works() == (old if action == "rollback" else new), where
