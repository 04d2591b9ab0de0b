"""Add-ons of a release: looked at, unpacked into it as addons/NAME, tried; taken out.

A copy of each part of the file is checked and used, never the file twice: it names the release that it is for, the
release's key signed that, and it names the digest of its payload. What ``without`` takes out waits as addons/.gone.NAME
until the run has come to its end.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from installer.changes import Changes
from installer.host import PID, Failed, digest, facts, pairs, program, remove, run
from installer.installation import Installation

HEAD_BYTES = 4096
"""Length of the script at its start, in which stand the places of its parts."""
PARTS = ("ADDON", "ADDON.sig", "payload.tar.gz")
KEYS = ("addon", "release", "arch", "unpacked_kib", "sha256")
_VALUE = re.compile(r"[0-9A-Za-z.+_~-]+")


class AddOns:
    """Add-ons of a release. ``key`` must have signed them."""

    def __init__(self, place: Installation, release: Path, key: str, changes: Changes) -> None:
        self.place, self.release, self.key, self.changes = place, release, key, changes
        self.folder = release / "addons"
        self.changed = False

    def whole(self, name: str) -> bool:
        """Say whether the release has this add-on, with its files as they came."""
        folder = self.folder / name
        return (folder / "ADDON").is_file() and _as_listed(folder)

    def put_back(self) -> None:
        """Bring back what a run has taken out that did not come to its end."""
        for gone in self.folder.glob(".gone.*"):
            folder = self.folder / gone.name.removeprefix(".gone.")
            if not folder.exists():
                gone.rename(folder)

    def add(self, files: Mapping[str, str]) -> None:
        """Bring those of ``files``, by name, that are not whole; a path may be empty for one that is. Raises Failed,
        OSError."""
        self.put_back()
        for name, file in files.items():
            if self.whole(name):
                continue
            if not file:
                raise Failed(18, f"the add-on {name} of {self.release} is damaged: give its file with --with FILE")
            self.place.report.step = f"unpacking the add-on {name}"
            self.changed = True
            self._unpack(name, Path(file))

    def take_out(self, names: Iterable[str]) -> None:
        for name in names:
            if (self.folder / name).is_dir():
                self.changed = True
                remove(self.folder / f".gone.{name}")
                (self.folder / name).rename(self.folder / f".gone.{name}")

    def _unpack(self, name: str, file: Path) -> None:
        half = self.folder / f".new.{PID}"
        remove(half)
        half.mkdir(parents=True)
        parts = read(file)
        self._fits(name, file, parts)
        for part in ("ADDON", "ADDON.sig"):
            (half / part).write_bytes(parts[part])
        verified = program(self.release, self.release / "verify.py", self.key, half / "ADDON", half / "ADDON.sig")
        if verified.code:
            raise Failed(
                21,
                f"refused: {file} is not signed by {self.key}, as its release is; nothing was changed: take the file"
                " from where the release came from",
            )
        (half / "ADDON.sig").unlink()
        room = shutil.disk_usage(half).free >> 10
        needed = int(facts(half / "ADDON")["unpacked_kib"]) * 2
        if room < needed:
            raise Failed(13, f"{half}: {needed} KiB are needed for the add-on {name} and {room} KiB free")
        payload = half / "payload.tar.gz"
        payload.write_bytes(parts[payload.name])
        done = run("tar", "-xzof", payload, "-C", half)
        if done.code or done.text:
            raise Failed(13, f"unpacking the add-on {name} failed, nothing was changed: {done.text}")
        payload.unlink()
        if not _as_listed(half):
            raise Failed(
                20, f"what was unpacked of the add-on {name} is not what FILES.sha256 says: is the disk in order?"
            )
        os.sync()
        target = self.folder / name
        remove(target)
        self.changes.created(target)
        half.rename(target)
        self._try(name)

    def _fits(self, name: str, file: Path, parts: Mapping[str, bytes]) -> None:
        """Check that the parts are of the add-on ``name`` of this release, and whole. Raises Failed."""
        rows = pairs(parts["ADDON"].decode("ascii", "replace"))
        if not all(_VALUE.fullmatch(rows.get(key, "")) for key in KEYS) or not rows["unpacked_kib"].isdecimal():
            raise Failed(20, f"{file} is no add-on of Vedette, or damaged: copy it again, in binary mode")
        arch = facts(self.release / "RELEASE")["arch"]
        version = facts(self.release / "RELEASE")["version"]
        wanted = f"vedette-{version}-linux-{arch}-{name}.zip"
        if rows["addon"] != name:
            raise Failed(18, f"{file} is the add-on {rows['addon']} and not {name}: is it the right file?")
        if rows["arch"] != arch:
            raise Failed(11, f"{file} is for {rows['arch']}, and this release for {arch}: take {wanted}")
        if rows["release"] != self.release.name:
            raise Failed(
                18,
                f"{file} is for release {rows['release']}, and this is {self.release.name}: take {wanted} that was"
                " built with it",
            )
        if hashlib.sha256(parts["payload.tar.gz"]).hexdigest() != rows["sha256"]:
            raise Failed(
                20, f"{file} is damaged: its payload.tar.gz is not what it says itself: copy it again, in binary mode"
            )

    def _try(self, name: str) -> None:
        modules = facts(self.folder / name / "ADDON").get("modules", "")
        code = f"import runpy, sys; runpy.run_path(sys.argv[1]); import {modules}"
        done = program(self.release, "-c", code, self.release / "launch.py")
        if done.code:
            raise Failed(30, f"the add-on {name} does not run on this host; nothing was switched: {done.text}")

    def undo(self) -> None:
        remove(self.folder / f".new.{PID}")
        self.put_back()


def _as_listed(folder: Path) -> bool:
    """Say whether the files are what FILES.sha256 lists."""
    try:
        rows = [line.split("  ", 1) for line in (folder / "FILES.sha256").read_text("utf-8").splitlines()]
        return bool(rows) and all(digest(folder / path) == expected for expected, path in rows)
    except (OSError, ValueError):
        return False


def read(file: Path) -> dict[str, bytes]:
    """Return the parts of an add-on's file; those that it does not place are empty. Raises OSError."""
    data = file.read_bytes()
    parts = {}
    for part in PARTS:
        match = re.search(rb"(?m)^# part %s (\d{1,9}) (\d{1,9})$" % re.escape(part.encode()), data[:HEAD_BYTES])
        start, length = (int(match[1]) - 1, int(match[2])) if match else (0, 0)
        parts[part] = data[start : start + length]
    return parts
