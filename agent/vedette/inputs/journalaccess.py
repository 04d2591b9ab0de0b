"""This process and systemd's journal: whether it can read it, and as what unit it writes to it itself."""

from __future__ import annotations

import glob
import grp
import os
import shutil
from contextlib import suppress
from pathlib import Path

FOLDERS = ("/var/log/journal", "/run/log/journal")
GROUPS = ("systemd-journal", "adm")
"""Which may read it, the first that the host has."""


def own_unit() -> str:
    """The service of the system that this process belongs to; empty: none."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8", "replace").splitlines():
            number, controllers, path = line.split(":", 2)
            parts = path.split("/")
            if (number == "0" or controllers == "name=systemd") and parts[-1].endswith(".service"):
                return "" if "user.slice" in parts else parts[-1]
    return ""


def own_machine() -> str:
    """Its id; empty: it has none."""
    with suppress(OSError):
        return Path("/etc/machine-id").read_text("utf-8", "replace").strip()
    return ""


def unreadable(directory: str = "") -> str:
    """Say why this process cannot read all of the journal, of this host or of a folder; empty: it can, or there is none
    yet."""
    if shutil.which("journalctl") is None:
        return "there is no journalctl: this host has no systemd; remove the input"
    tops = (directory,) if directory else FOLDERS
    machine = "*" if directory else f"{own_machine()}*"
    closed = _closed(tops)
    for top in tops:
        closed += _closed(glob.glob(f"{glob.escape(top)}/{machine}/"))
        files = glob.glob(f"{glob.escape(top)}/{machine}/system.journal")
        closed += [path for path in files if not os.access(path, os.R_OK)]
    if not closed:
        return ""
    groups = []
    for name in GROUPS:
        with suppress(KeyError):
            groups.append(grp.getgrnam(name).gr_name)
    user = f"uid {os.geteuid()}"
    way = f"make it a member of the group {groups[0]} and restart the agent" if groups else "let it read that"
    return f"{closed[0]} is not readable for {user}: {way}"


def _closed(folders: list[str] | tuple[str, ...]) -> list[str]:
    return [path for path in folders if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK)]
