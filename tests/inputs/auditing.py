"""The audit of this very kernel, switched on for a test, and a real auditd beside it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waits import DEADLINE, until

AUDITCTL = shutil.which("auditctl", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
_USER = 1005


def control(*arguments: str) -> str:
    assert AUDITCTL is not None
    return subprocess.run([AUDITCTL, *arguments], capture_output=True, text=True, check=True).stdout


def available() -> str:
    """Why the kernel's audit cannot be had here; empty: it can."""
    if AUDITCTL is None:
        return "no auditctl"
    status = subprocess.run([AUDITCTL, "-s"], capture_output=True, text=True, check=False)
    figures = dict(line.split(" ", 1) for line in status.stdout.splitlines() if " " in line)
    if status.returncode or "enabled" not in figures:
        return "no audit in this kernel, or no right to control it"
    return "audit is in use on this host" if figures.get("pid") != "0" or figures["enabled"] == "2" else ""


@contextmanager
def auditing(*rules: str) -> Iterator[None]:
    """Audit switched on with these rules of auditctl; put back as it was afterwards."""
    if reason := available():
        pytest.skip(reason)
    was = re.search(r"enabled (\d)", control("-s"))
    assert was is not None
    added: list[list[str]] = []
    try:
        control("-e", "1")
        for rule in rules:
            control(*rule.split())
            added.append(rule.split())
        yield
    finally:
        for words in added:
            control(*(("-W" if word == "-w" else "-d" if word == "-a" else word) for word in words))
        control("-e", was[1])


@contextmanager
def auditd(folder: Path) -> Iterator[Path]:
    """A real auditd with files of its own; yields its log."""
    path = folder / "audit.log"
    (folder / "plugins.d").mkdir()
    (folder / "auditd.conf").write_text(
        f"log_file = {path}\nplugin_dir = {folder / 'plugins.d'}\nlog_format = RAW\nflush = NONE\n"
        "space_left = 2\nadmin_space_left = 1\ndisk_full_action = ignore\ndisk_error_action = ignore\n"
        "space_left_action = ignore\nadmin_space_left_action = ignore\n"
    )
    command = ["/usr/sbin/auditd", "-n", "-s", "nochange", "-c", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(
            "auditd's first record",
            lambda: process.poll() is not None or (path.exists() and b"DAEMON_START" in path.read_bytes()),
        )
        assert process.poll() is None, "auditd ended"
        yield path
    finally:
        process.terminate()
        process.wait(DEADLINE)


class Speaker:
    """Sends audit messages as programs in user space do (linux/audit.h, AUDIT_USER)."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def say(self, text: str) -> None:
        data = text.encode() + b"\0"
        self._sock.sendto(struct.pack("=IHHII", 16 + len(data), _USER, 1, 0, 0) + data, (0, 0))


@contextmanager
def speaker() -> Iterator[Speaker]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9) as sock:
        sock.bind((0, 0))
        yield Speaker(sock)
