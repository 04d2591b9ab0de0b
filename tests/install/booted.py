"""A whole Debian under systemd in a container with 1 core and 1 GB: what ``make test-install`` installs into.

``root`` makes a minimal root folder by debootstrap, once; ``Host`` boots an overlay of it by systemd-nspawn, without a
network but its own loopback, and runs commands in it with nsenter. Both skip with the reason where this cannot be done.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, Done
from tests.waits import DEADLINE, until

ROOTS = ROOT / "build/roots"
INCLUDE = "systemd,systemd-sysv,dbus,bsdutils"
MEMORY = 1 << 30
CGROUPS = Path("/sys/fs/cgroup")


def mirror() -> str:
    """Where this machine's apt takes Debian from."""
    for path in (*Path("/etc/apt/sources.list.d").glob("*"), Path("/etc/apt/sources.list")):
        if path.is_file() and (mirror := re.search(r"https?://[^\s]*/debian/?(?=\s|$)", path.read_text())):
            return mirror[0]
    pytest.skip("apt has no Debian mirror here")


def root(name: str) -> Path:
    """The folder of a minimal Debian ``name``; for an Ubuntu the mirror is in VEDETTE_TEST_UBUNTU."""
    if os.geteuid() != 0:
        pytest.skip("booting a container needs root")
    for program in ("systemd-nspawn", "debootstrap", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here: sh tools/packages.sh tests")
    folder = ROOTS / name
    if not (folder / "bin/sh").exists():
        source = mirror()
        options: list[str] = []
        if name in ("xenial", "bionic", "focal"):
            source = os.environ.get("VEDETTE_TEST_UBUNTU", "")
            options = ["--no-check-gpg"]  # Debian has no keys of Ubuntu; this root is thrown away, and has no network
            if not source:
                pytest.skip("VEDETTE_TEST_UBUNTU names no mirror of Ubuntu")
        ROOTS.mkdir(parents=True, exist_ok=True)
        temporary = ROOTS / f".{name}.{os.getpid()}"
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={INCLUDE}", *options, name, temporary, source],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            shutil.rmtree(temporary, ignore_errors=True)
            pytest.skip(f"debootstrap {name} failed: {done.stdout.strip().splitlines()[-1]}")
        temporary.rename(folder)
    return folder


def mount(*arguments: str | Path) -> None:
    """Mount, or skip with the reason."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"not to be mounted here: {done.stderr.strip()}")


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextmanager
def limits(name: str) -> Iterator[Callable[[], None]]:
    """A control group of 1 core and 1 GB; gives what moves the calling process into it."""
    if (CGROUPS / "cgroup.controllers").exists() and "memory" in (CGROUPS / "cgroup.controllers").read_text().split():
        parts = {CGROUPS: {"memory.max": str(MEMORY), "cpu.max": "100000 100000"}}
    else:
        parts = {
            CGROUPS / "memory": {"memory.limit_in_bytes": str(MEMORY)},
            CGROUPS / "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"},
        }
    groups = []
    try:
        for top, values in parts.items():
            group = top / name
            group.mkdir()
            groups.append(group)
            for key, value in values.items():
                (group / key).write_text(value)
    except OSError as error:
        for group in groups:
            group.rmdir()
        pytest.skip(f"no control groups for 1 core and 1 GB: {error}")

    def enter() -> None:
        for group in groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    yield enter
    for group in groups:
        for below in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            below.rmdir()
        group.rmdir()


class Host:
    """A booted container. ``run`` is as root inside."""

    def __init__(self, folder: Path, console: Path, enter: Callable[[], None]) -> None:
        """``enter``: what ``limits`` gives."""
        self.folder, self.console, self._enter, self.pid = folder, console, enter, 0

    @classmethod
    @contextmanager
    def boot(cls, name: str, scratch: Path) -> Iterator[Host]:
        lower = root(name)
        disk = scratch / "disk"
        disk.mkdir()
        # A disk of its own: the folder of the tests may itself be an overlay, which cannot be the upper layer of one.
        mount("-t", "tmpfs", "-o", "size=2g", "vedette-test", disk)
        try:
            for part in ("upper", "work", "root"):
                (disk / part).mkdir()
            options = f"lowerdir={lower},upperdir={disk}/upper,workdir={disk}/work"
            mount("-t", "overlay", "-o", options, "overlay", disk / "root")
            try:
                with limits(f"vedette-test-{os.getpid()}") as enter:
                    host = cls(disk / "root", scratch / "console", enter)
                    try:
                        host._boot()
                        yield host
                    finally:
                        host._halt()
            finally:
                subprocess.run(["umount", "-l", disk / "root"], check=False)
        finally:
            subprocess.run(["umount", "-l", disk], check=False)

    def reboot(self) -> None:
        """Down in good order, as ``systemctl reboot`` has it, and up again with the same disk."""
        self.run("systemctl", "poweroff")
        self.nspawn.wait(DEADLINE)
        self.pid = 0
        self._boot()

    def _boot(self) -> None:
        _sweep()
        with self.console.open("wb") as console:
            self.nspawn = subprocess.Popen(
                ["systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "-b", "-D", self.folder,
                 "--console=pipe", "--private-network", "--machine=edge"],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=self._enter,
            )  # fmt: skip
        own = os.readlink("/proc/self/ns/pid")

        def find() -> bool:
            for child in children(self.nspawn.pid):
                for pid in (child, *children(child)):
                    try:
                        if os.readlink(f"/proc/{pid}/ns/pid") != own:
                            self.pid = pid
                            return True
                    except OSError:
                        continue
            return False

        try:
            self.wait(find)
            self.wait(lambda: self.run("systemctl", "is-system-running").text.strip() in ("running", "degraded"))
        except AssertionError:
            said = self.console.read_text(errors="replace").strip().splitlines()
            if self.nspawn.poll() is not None and not self.pid:
                pytest.skip(f"systemd-nspawn does not run here: {said[-1] if said else 'it says nothing'}")
            raise

    def _halt(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)  # the container's process 1: the kernel ends the others
        if self.nspawn.poll() is None and not self.pid:
            self.nspawn.kill()
        self.nspawn.wait(DEADLINE)
        _sweep()

    def run(self, *command: str | Path) -> Done:
        """Run a command inside; output and errors in one. Never on this machine: without a container it fails."""
        assert self.pid > 1, "the container does not run"
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "--",
             "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
             *map(str, command)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout)

    def copy(self, path: Path, name: str) -> str:
        """Put a file into the container's /root."""
        shutil.copyfile(path, self.folder / "root" / name)
        return f"/root/{name}"

    def show(self, name: str, unit: str = "vedette") -> str:
        return self.run("systemctl", "show", "-p", name, unit).text.strip().partition("=")[2]

    def wait(self, condition: Callable[[], bool]) -> None:
        try:
            until("a state of the host", condition)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.console.read_text(errors='replace')[-2000:]}") from None


def _sweep() -> None:
    """nspawn leaves these behind, and the next container does not start then."""
    for hierarchy in ("systemd", "unified", "."):
        for path in (CGROUPS / hierarchy).glob("**/payload"):
            for below in sorted((p for p in path.rglob("*") if p.is_dir()), reverse=True):
                _remove(below)
            _remove(path)
            _remove(path.parent / "supervisor")


def _remove(group: Path) -> None:
    with suppress(OSError):
        group.rmdir()
