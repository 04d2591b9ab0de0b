"""A real systemd-journald of a test's own: its sockets and files lie in a folder, beside those of the host.

It runs in a mount namespace whose /run is that folder, keeps small files that rotate often, and takes entries by its
native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL). Skips with the reason where this cannot be done.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waits import until

PROGRAM = Path("/lib/systemd/systemd-journald")
CONFIGURED = "[Journal]\nStorage=volatile\nReadKMsg={}\nAudit=no\nRateLimitIntervalSec=0\nRuntimeMaxFileSize={}\n"


SCRIPT = """
mount --bind "$1" /run || exit
if [ -d /var/log/journal ]; then mount -t tmpfs none /var/log/journal || exit; fi
if [ -f /run/boot_id ]; then mount --bind /run/boot_id /proc/sys/kernel/random/boot_id || exit; fi
exec "$2"
"""


class Journald:
    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "log" / "journal"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, boot: str = "") -> None:
        """``boot``: the host has booted since, under this id (a UUID)."""
        if boot:
            (self.run / "boot_id").write_text(f"{boot}\n")
        place = self.run / "systemd" / "journal" / "socket"
        place.unlink(missing_ok=True)
        command = ["unshare", "-m", "--propagation", "private", "sh", "-c", SCRIPT, "sh", str(self.run), str(PROGRAM)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        process = self._process
        until("journald's socket", lambda: process.poll() is not None or (place.exists() and self.files()))
        if process.poll() is not None:
            assert process.stderr is not None
            said = process.stderr.read().decode(errors="replace").strip().splitlines()
            pytest.skip(f"systemd-journald does not run here: {said[-1] if said else 'it says nothing'}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def send(self, **fields: str | bytes) -> None:
        """An entry; every field in the binary form, so that it may hold anything."""
        data = b""
        for name, value in fields.items():
            value = value.encode() if isinstance(value, str) else value
            data += b"%b\n%b%b\n" % (name.encode(), len(value).to_bytes(8, "little"), value)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"{self.run}/systemd/journal/socket")
            sender.sendall(data)

    def log(self, *messages: str, identifier: str = "test", **fields: str) -> None:
        for message in messages:
            self.send(MESSAGE=message, SYSLOG_IDENTIFIER=identifier, **fields)

    def files(self) -> list[Path]:
        """All that it has, the oldest first; the last is the one that it writes."""
        return sorted(self.folder.glob("*/*.journal"), key=lambda path: (path.name == "system.journal", path.name))

    def rotated(self, write: Callable[[], None]) -> None:
        """Do ``write`` until it has begun three more files."""
        files = len(self.files())
        while len(self.files()) < files + 3:
            write()

    def messages(self) -> list[str]:
        """What a test has logged and is still there, in order."""
        command = ["journalctl", "-q", "-m", "-o", "json", "--no-pager", f"--directory={self.folder}"]
        done = subprocess.run([*command, "SYSLOG_IDENTIFIER=test"], capture_output=True, text=True, check=True)
        return [json.loads(line)["MESSAGE"] for line in done.stdout.splitlines()]


@contextmanager
def journald(file_size: str = "512K", kernel: str = "no") -> Iterator[Journald]:
    """Started; stopped and its files deleted afterwards. ``file_size``: at which it begins another one; ``kernel``:
    "yes" with what this host's kernel says."""
    if os.geteuid() != 0:
        pytest.skip("systemd-journald needs root")
    for program in (str(PROGRAM), "unshare", "journalctl"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")
    if not Path("/etc/machine-id").exists() or not Path("/etc/machine-id").read_text().strip():
        pytest.skip("this host has no machine id")
    run = Path(tempfile.mkdtemp(prefix="vedette-run-"))  # short: a socket's path has 108 bytes
    settings = run / "systemd" / "journald.conf.d" / "test.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(CONFIGURED.format(kernel, file_size))
    daemon = Journald(run)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()
        shutil.rmtree(run, ignore_errors=True)
