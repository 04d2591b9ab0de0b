"""The configuration of an installation: this release's, with what the run asks for; an operator's is never changed.

A file that is there already stays, and this release's is put beside it as NAME.new where it differs.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from installer.changes import Changes
from installer.host import PID, Failed, need, program, remove, run, same
from installer.installation import Installation

JOURNAL = Path("/run/systemd/journal/socket")
FILE_INPUT = re.compile(r"^#(\[\[input|type|name|paths|logsource|from_start)")


class Configuration:
    def __init__(self, place: Installation, release: Path, changes: Changes) -> None:
        self.place, self.release, self.changes = place, release, changes
        self.changed = False

    def write(self, site: Path | None, site_key: str, region: str, token: str) -> None:
        """``site``: the folder with the site's part of a zip, which ``site_key`` must have signed. Raises Failed,
        OSError."""
        template = self.release / "vedette.toml"
        unpacked = self.place.config_dir / f".site.{PID}"
        if site is not None:
            template = self._site(site, site_key, unpacked)
        text = self.place.render(template.read_text("utf-8"))
        remove(unpacked)
        if region:
            text = with_value(text, "broker", "url", region)
            text = with_value(text, "uplink", "type", "mqtt")
        if token:
            path = self.place.config_dir / f".token.{PID}"
            with open(path, "w", encoding="ascii", opener=_private) as file:
                file.write(f"{token}\n")
            self._put(path, "token", 0o600, "vedette")
            text = with_value(text, "enrolment", "token_file", f"{self.place.config_dir}/token")
        if not (JOURNAL.is_socket() and shutil.which("journalctl")):
            text = files_for_journal(text)
        path = self.place.config_dir / f".toml.{PID}"
        path.write_text(text, "utf-8")
        self._put(path, "vedette.toml", 0o640)
        self._warn_of_keys()

    def _site(self, site: Path, site_key: str, unpacked: Path) -> Path:
        """Put the files of the site; returns its configuration, in ``unpacked``."""
        unpacked.mkdir(0o700)
        verify, tar, signature = self.release / "verify.py", site / "site.tar", site / "site.sig"
        done = program(self.release, verify, site_key, tar, signature, unpacked)
        if done.code:
            raise Failed(21, f"refused: {done.text}; if the region has a new key, give it with --site-key")
        for path in sorted(unpacked.iterdir()):
            if path.name == "vedette.toml":
                continue
            if path.suffix == ".key" or path.name == "token":
                self._put(path, path.name, 0o600, "vedette")
            else:
                self._put(path, path.name, 0o640)
        return unpacked / "vedette.toml"

    def _put(self, source: Path, name: str, mode: int, owner: str = "root") -> None:
        """Move ``source`` into the folder of the configuration. Raises Failed, OSError."""
        if not stat.S_ISREG(source.lstat().st_mode):
            raise Failed(20, f"{source} is no plain file")
        source.chmod(mode)
        if self.place.systemd:
            need("chown", f"{owner}:vedette", source)
        target = self.place.config_dir / name
        beside = self.place.config_dir / f"{name}.new"
        if not target.exists():
            self.changed = True
            self.changes.created(target)
            source.replace(target)
            return
        self.changes.keep(beside)
        if same(source, target):
            source.unlink()
            beside.unlink(missing_ok=True)
        else:
            source.replace(beside)
            self.place.report.say(f"{target} stays as it is; this release's is beside it: {beside.name}")

    def _warn_of_keys(self) -> None:
        """Warn where the starter rules are signed by a key that the operator's file does not trust."""
        beside = self.place.config_dir / "vedette.toml.new"
        if not beside.exists():
            return
        match = re.search(r'(?m)^trusted_keys = \["(.*)"\]$', beside.read_text("utf-8"))
        lines = self.place.config.read_text("utf-8", "replace").splitlines()
        if match and not any(match[1] in line for line in lines if not line.lstrip(" ").startswith("#")):
            self.place.report.warn(
                f"{self.place.config} does not trust the key of this release's starter rules: take trusted_keys over to"
                " use them"
            )

    def check(self) -> None:
        """Ask the release's own command. Raises Failed where it does not take the configuration."""
        done = run(self.release / "bin/vedette", "check", "-c", self.place.config)
        if done.code > 1 or done.code < 0:
            raise Failed(
                31,
                f"release {self.release.name} does not take {self.place.config}; nothing was switched: {done.text}",
            )
        if done.code:
            self.place.report.warn(done.text)
        probed = program(self.release, self.release / "probe.py", self.place.config)
        if probed.code:
            self.place.report.warn(probed.text)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def with_value(text: str, table: str, key: str, value: str) -> str:
    """Return the TOML ``text`` with ``key = "value"`` in ``table``, in the place of its line, commented out or not."""
    lines = text.split("\n")
    inside = False
    for number, line in enumerate(lines):
        if line.startswith(f"[{table}]"):
            inside = True
        elif re.match(r"#*\[", line):
            inside = False
        elif inside and re.match(rf"#*{key} = ", line):
            lines[number] = f'{key} = "{value}"'
    return "\n".join(lines)


def files_for_journal(text: str) -> str:
    """Return the TOML ``text`` with syslog's files in the place of systemd's journal, for a host that has none."""
    text = _in_block(text, "# systemd's journal:", lambda line: re.sub(r"^[^#]", r"#\g<0>", line))
    return _in_block(text, "# Files, read from", lambda line: FILE_INPUT.sub(r"\1", line))


def _in_block(text: str, opening: str, change: Callable[[str], str]) -> str:
    """Apply ``change`` to each line from one that begins with ``opening`` to the next that is empty."""
    lines = text.split("\n")
    inside = False
    for number, line in enumerate(lines):
        inside = (inside and line != "") or line.startswith(opening)
        if inside:
            lines[number] = change(line)
    return "\n".join(lines)
