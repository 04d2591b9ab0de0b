"""Disks that fail: small file systems of one's own, and a library that makes calls of the agent fail (``faults.c``)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def skip(reason: str) -> None:
    """Skip the test, saying why."""
    pytest.skip(f"not here: {reason}")


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[Path]:
    """A file system of ``size`` in memory at ``folder``; skips where it cannot be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if done.returncode:
        skip(f"a tmpfs needs root: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class Ext4:
    """A file system in a file, which can be made to fail for good, as on a disk error, and be repaired; skips where it
    cannot be mounted."""

    def __init__(self, folder: Path, megabytes: int = 48) -> None:
        self.folder, self._image = folder, folder.with_suffix(".img")
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() or not shutil.which("mkfs.ext4"):
            skip("a loop device needs root and mkfs.ext4")
        with self._image.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", self._image], check=True)
        self.mount()

    def mount(self) -> None:
        command = ["mount", "-o", "loop,errors=remount-ro", self._image, self.folder]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            skip(f"a loop device: {done.stderr.decode().strip()}")

    def fail(self) -> None:
        """The kernel finds an error and makes the file system read-only, under open files."""
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        device = next(Path(words[0]).name for words in mounts if words[1] == str(self.folder))
        trigger = Path("/sys/fs/ext4", device, "trigger_fs_error")
        if not trigger.exists():
            skip(f"{trigger} is missing")
        try:
            trigger.write_text("test")
        except OSError as error:
            skip(f"{trigger}: {error.strerror}")

    def repair(self) -> None:
        """Nothing has a file open on it."""
        self.unmount()
        subprocess.run(["e2fsck", "-y", self._image], capture_output=True, check=False)
        self.mount()

    def unmount(self) -> None:
        subprocess.run(["umount", self.folder], check=True)


class Faults:
    """Rules for the agents that this test starts from now on; skips where there is no C compiler."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            skip("no C compiler (cc)")
        library, self._file = folder / "faults.so", folder / "faults"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True)
        self.set()
        monkeypatch.setenv("VEDETTE_FAULTS", str(self._file))
        monkeypatch.setenv("LD_PRELOAD", str(library))

    def set(self, *rules: str) -> None:
        """These rules and no others."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text("".join(f"{rule}\n" for rule in rules))
        temporary.replace(self._file)
