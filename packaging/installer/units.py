"""systemd's units of an installation: written, started, gone back with, removed.

A unit file is written for the installation's paths, and only where it differs; drop-ins of systemd/since-VERSION.conf
are put for the systemd that is there.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from installer.host import Failed, need, point, remove, remove_empty, run
from installer.installation import Installation

UNITS = Path("/etc/systemd/system")
FILES = (
    "vedette.service",
    "vedette-udp.socket",
    "vedette-tcp.socket",
    "vedette-watch.service",
    "vedette-upgrade.service",
    "vedette-upgrade.path",
)
SOCKETS = ("vedette-udp.socket", "vedette-tcp.socket")
TRIES = 60
"""A second each, in which an agent must come up."""
CRASHES = 3
"""Number of them that is enough to know that it does not."""
PATIENCE = 5
"""Answers that are not OK, two seconds apart, before the agent is taken as it is."""


class Service:
    """The agent under systemd."""

    def __init__(self, place: Installation) -> None:
        self.place = place
        self.changed = False
        """A unit is another than before."""
        self.sockets_changed = False
        self.written = False
        """Units were begun to be written."""
        self._stopping = 0
        """The process that a restart ends: it may take a while, and answers until then."""

    def write(self, release: Path) -> None:
        """The unit files of ``release``. Raises OSError, Failed."""
        self.written = True
        groups = [group for group in ("adm", "systemd-journal") if run("getent", "group", group).code]
        for name in FILES:
            self._put(release / name, UNITS / name, groups)
        folder = UNITS / "vedette.service.d"
        folder.mkdir(exist_ok=True)
        version = _version()
        wanted = {f"50-{path.name}": path for path in release.glob("systemd/since-*.conf") if _since(path) <= version}
        for path in folder.glob("50-since-*.conf"):
            if path.name not in wanted:
                path.unlink()
        for name, path in wanted.items():
            self._put(path, folder / name, groups)
        need("systemctl", "daemon-reload")

    def _put(self, source: Path, target: Path, lacking: list[str]) -> None:
        """``lacking``: groups that this host has not."""
        text = self.place.render(source.read_text("utf-8"))
        for group in lacking:
            text = text.replace(f"SupplementaryGroups={group}\n", "")
        if target.exists() and target.read_text("utf-8", "replace") == text:
            return
        temporary = Path(f"{target}.new")
        temporary.write_text(text, "utf-8")
        temporary.chmod(0o644)
        temporary.replace(target)
        self.changed = True
        if target.suffix == ".socket":
            self.sockets_changed = True

    def open_sockets(self) -> bool:
        """Those that have another address now are closed before, with the agent that holds them: systemd opens no
        socket of a service that runs."""
        if self.sockets_changed:
            run("systemctl", "stop", *SOCKETS, "vedette")
        return run("systemctl", "start", *SOCKETS).code == 0

    def restart(self) -> None:
        self._stopping = main_pid()
        run("systemctl", "--no-block", "restart", "vedette")

    def healthy(self) -> bool:
        """Say whether the agent answers for itself within a minute, and is the same process a second later. What is not
        OK, an input that does not work, say, has ten seconds to come right, and is then warned of."""
        before = restarts()
        patience = PATIENCE
        for _ in range(TRIES):
            code, text = run(self.place.prefix / "current/bin/vedette", "status", "-c", self.place.config)
            condition = text.partition("\n")[0]
            answers = code == 0 or (code == 1 and not condition.startswith("NOT OK: no agent runs"))
            if answers:
                patience = patience - 1 if code else 0
                process = main_pid()
                time.sleep(1)
                same = process not in (0, self._stopping) and main_pid() == process
                if same and patience <= 0:
                    if code:
                        self.place.report.warn(f"the agent runs, and is {condition}")
                    return True
            now = restarts()
            before = min(before, now)  # an operator's start sets it to 0
            if now - before >= CRASHES:
                return False
            time.sleep(1)
        return False

    def back_to(self, target: str, *, steadfast: bool) -> None:
        """``current`` on ``target``, a releases/ID, with its units, and the agent restarted. ``steadfast``: it is, be
        the disk full. Raises OSError, Failed."""
        point(self.place.prefix / "current", target)
        if not self.place.systemd:
            return
        try:
            self.write(self.place.prefix / target)
        except (OSError, Failed) as error:
            if not steadfast:
                raise
            self.place.report.warn(f"the units are not those of {target}: {error}")
            run("systemctl", "daemon-reload")
        if not self.place.start:
            return
        if self.sockets_changed and not self.open_sockets():
            warning = f"the sockets for {self.place.listen} cannot be opened: systemctl status vedette-udp.socket"
            self.place.report.warn(warning)
        self.restart()

    def runs_again(self, release: str) -> None:
        """Say whether ``release``, which was gone back to, comes up."""
        if self.healthy():
            self.place.report.say(f"release {release.removeprefix('releases/')} runs again")
        else:
            id = release.removeprefix("releases/")
            self.place.report.warn(f"release {id} does not come up either: journalctl -u vedette")

    def remove(self) -> None:
        """As ``remove_units`` of install.sh. vedette.service goes last: it names whose the units are, for a second
        run."""
        for name in FILES:
            run("systemctl", "disable", name)
        run("systemctl", "stop", "vedette-upgrade.path", "vedette-watch", *SOCKETS, "vedette")
        self.unfinished()
        for path in UNITS.glob("vedette.service.d/50-since-*.conf"):
            remove(path)
        remove_empty(UNITS / "vedette.service.d")
        for name in reversed(FILES):
            remove(UNITS / name)
        run("systemctl", "daemon-reload")
        run("systemctl", "reset-failed", "vedette", *SOCKETS)

    def unfinished(self) -> None:
        """Removes what ``_put`` leaves when it is interrupted."""
        for path in (*UNITS.glob("vedette*.new"), *UNITS.glob("vedette.service.d/50-*.new")):
            remove(path)


def _since(path: Path) -> int:
    return int(path.stem.removeprefix("since-"))


def _version() -> int:
    """Of systemd; install.sh has seen that there is one."""
    match = re.search(r"(?m)^systemd (\d+)", run("systemctl", "--version").text)
    return int(match[1]) if match else 0


def _shown(key: str) -> int:
    match = re.search(rf"(?m)^{key}=(\d+)$", run("systemctl", "show", "-p", key, "vedette").text)
    return int(match[1]) if match else 0


def main_pid() -> int:
    """The agent's process; 0: there is none."""
    return _shown("MainPID")


def restarts() -> int:
    """Return how often systemd started the agent again by itself."""
    return _shown("NRestarts")


def state(verb: str) -> str:
    """Return the word of systemctl about the agent, for "is-enabled" or "is-active"."""
    return run("systemctl", verb, "vedette").text.rpartition("\n")[2]


def last_lines() -> str:
    """Return the agent's last lines in the journal."""
    if shutil.which("journalctl") is None:
        return ""
    return run("journalctl", "-u", "vedette", "-n", "20", "--no-pager").text
