"""Brings a host to a release that is known to run there, and what was there before back where that fails.

The order is the guarantee. Add-ons and configuration come first and change nothing that runs; ``previous`` moves before
``current``, so that power lost in between loses no release that was good; a watch begins before the switch; the record
``installed`` and the units follow, and the agent must come up.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from installer.addons import AddOns
from installer.changes import Changes
from installer.configuration import Configuration
from installer.host import (
    PID,
    Failed,
    Report,
    link_target,
    matching,
    need,
    point,
    remove,
    remove_empty,
    run,
    write,
)
from installer.installation import DEFAULTS, Installation
from installer.supervise import launcher
from installer.units import UNITS, Service, last_lines, state
from installer.watch import Watched, guard


class Run:
    """An installation or a rollback: its options, the record of its changes, the way back.

    Options are words of install.sh: prefix, config_dir, data_dir, listen, systemd, start, log, id, command and more.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self.place = Installation(
            Path(options["prefix"]),
            Path(options["config_dir"]),
            Path(options["data_dir"]),
            options["listen"],
            options["systemd"] == "yes",
            options["start"] == "yes",
            Report(Path(options["log"])),
        )
        self.prefix = self.place.prefix
        self.id = options["id"]
        self.release = self.prefix / "releases" / self.id
        self.before = self.place.current
        """The release that was in force, as ``releases/ID``; empty: none."""
        self.changes = Changes()
        self.service = Service(self.place)
        self.switched = False
        self.complete = False
        """True once nothing is undone any more."""

    @property
    def former(self) -> str:
        """The id of the release before."""
        return self.before.removeprefix("releases/")

    def back(self) -> None:
        """Return to the release before. Its units are written for what was installed, not what was asked."""
        if not self.service.written and not self.switched:
            return
        place = self.place
        if (self.prefix / "installed").exists():
            place = Installation.recorded(self.prefix, start=place.start, report=place.report)
        service = Service(place)
        try:
            service.back_to(self.before, steadfast=True)
        except OSError as error:
            place.report.warn(f"{self.prefix}/current cannot be moved back to {self.before}: {error}")
            return
        if place.systemd and place.start:
            service.runs_again(self.before)
        if place.systemd and self.options.get("wanted_listen") and not place.names_address():
            place.report.warn(
                f"{place.config} does not name {place.listen}, where the sockets are again: write it back"
            )

    def clean(self) -> None:
        """Remove temporary files, at the end, whatever that is."""
        self.changes.forget()
        self.remnants(PID)
        if self.service.written:
            self.service.unfinished()

    def remnants(self, process: str) -> None:
        """Removes the temporary files of runs with this number; a pattern."""
        config_dir = self.place.config_dir
        command = Path(self.options["command"])
        for path in (
            *matching(config_dir, f".site.{process}"),
            *matching(config_dir, f".token.{process}"),
            *matching(config_dir, f".toml.{process}"),
            *matching(self.prefix, f"*.tmp.{process}"),
            *matching(self.prefix, f".mark.{process}"),
            *matching(command.parent, f"{command.name}.tmp.{process}"),
        ):
            remove(path)


class Install(Run):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.changed = options["unpacked"] == "yes"
        self.guarded = False
        self.user_created = False
        self.owned: list[Path] = []
        """Folders of configuration and data that are ours."""
        self.command = Path(options["command"])
        self.addons = AddOns(self.place, self.release, options["release_key"], self.changes)
        self.configuration = Configuration(self.place, self.release, self.changes)

    def do(self) -> None:
        """Raises Failed, OSError."""
        place, options = self.place, self.options
        self.addons.add({name: options[f"addon_{name}"] for name in options["addons"].split()})
        self.addons.take_out(options["without"].split())
        if place.systemd:
            self._user()
        self._folders()
        place.report.step = f"writing {place.config}"
        site = Path(options["site"]) if options["site"] else None
        self.configuration.write(site, options["site_key"], options["region"], os.environ.get("VEDETTE_TOKEN", ""))
        self.configuration.check()
        self._switch()
        if place.systemd:
            self._service()
        else:
            self._label()
        self._close()

    def _user(self) -> None:
        self.place.report.step = "making the user vedette"
        shell = "/usr/sbin/nologin" if os.access("/usr/sbin/nologin", os.X_OK) else "/sbin/nologin"
        if run("getent", "group", "vedette").code:
            need("groupadd", "--system", "vedette")
        if run("getent", "passwd", "vedette").code:
            home = ("--home-dir", self.place.data_dir, "--no-create-home")
            need("useradd", "--system", "--gid", "vedette", *home, "--shell", shell, "vedette")
            self.user_created = True

    def _folders(self) -> None:
        place = self.place
        place.report.step = "making folders"
        self.owned = [folder for folder in (place.config_dir, place.data_dir) if self._own(folder)]
        for folder in self.owned:
            folder.chmod(0o750)
        if not place.systemd:
            return
        if place.config_dir in self.owned:
            need("chown", ":vedette", place.config_dir)
        if need("stat", "-c", "%U", place.data_dir) == "vedette":
            return
        if (place.data_dir / ".vedette").exists():
            need("chown", "-hR", "vedette:vedette", place.data_dir)
        else:
            need("chown", "vedette:vedette", place.data_dir)

    def _own(self, folder: Path) -> bool:
        """Make ``folder`` if need be. Returns whether it is ours: empty, marked or the default; another program's keeps
        owner and mode. A folder that is empty is marked as this installation's: --purge removes no other's. The mark
        comes by a rename: in a folder of the user vedette no link is followed."""
        if folder.is_dir():
            self.changes.keep_access(folder)
        else:
            folder.mkdir(parents=True)
            self.changes.created(folder)
        mark, names = folder / ".vedette", os.listdir(folder)
        if (mark.exists() or not names) and _first_line(mark) != str(self.prefix):
            temporary = self.prefix / f".mark.{PID}"
            temporary.write_text(f"{self.prefix}\n", "utf-8")
            if not names:
                self.changes.created(mark)
            if run("mv", "-fT", temporary, mark).code:  # maybe to another file system
                self.place.report.warn(f"{folder} is not marked as of {self.prefix}: --purge will leave it")
        if mark.exists() or names in ([], ["lost+found"]) or folder in DEFAULTS:
            return True
        if not self.before:
            self.place.report.warn(
                f"{folder} holds other files: it keeps its owner and mode, by which the agent must be able to read it;"
                f" a file {folder}/.vedette says that all in it is Vedette's"
            )
        return False

    def _switch(self) -> None:
        place, prefix = self.place, self.prefix
        place.report.step = f"switching to release {self.id}"
        target = f"releases/{self.id}"
        if self.before != target:
            self.changed = self.switched = True
            if self.before:
                self.changes.keep(prefix / "previous")
                point(prefix / "previous", self.before)
                if self.options["within"]:
                    self._guard(int(self.options["within"]), confirm=True)
            point(prefix / "current", target)
        wanted = f"{prefix}/current/bin/vedette"
        self.command.parent.mkdir(parents=True, exist_ok=True)
        if self.command.exists() and not self.command.is_symlink():
            place.report.warn(f"{self.command} is there and not ours; call {wanted}")
        elif link_target(self.command) != wanted:
            self.changes.keep(self.command)
            point(self.command, wanted)
        self.changes.keep(prefix / "installed")
        rows = {
            "prefix": prefix,
            "config_dir": place.config_dir,
            "data_dir": place.data_dir,
            "listen": place.listen,
            "systemd": "yes" if place.systemd else "no",
            "release_key": self.options["release_key"],
            "site_key": self.options["site_key"],
        }
        write(prefix / "installed", "".join(f"{key}={value}\n" for key, value in rows.items()))

    def _guard(self, seconds: int, *, confirm: bool) -> None:
        self.guarded = True
        guard(self.place, Watched(self.id, self.before, seconds, confirm))

    def _service(self) -> None:
        """Write and start the units. What the operator stopped and disabled stays so."""
        place, service = self.place, self.service
        place.report.step = "starting the agent"
        unfinished = self.prefix / ".first"
        first = not (UNITS / "vedette.service").exists() or unfinished.exists()
        upgrades = first or not (UNITS / "vedette-upgrade.path").exists()
        if first:  # until all is enabled and started, whoever kills this run
            unfinished.touch()
            self.changes.created(unfinished)
        stopped = not first and (state("is-enabled"), state("is-active")) == ("disabled", "inactive")
        service.write(self.release)
        self._label(*UNITS.glob("vedette*"))
        if first:
            need("systemctl", "enable", "vedette", "vedette-udp.socket", "vedette-tcp.socket")
        if upgrades:
            need("systemctl", "enable", "vedette-upgrade.path")
        if not place.start:
            return
        force = self.options["force"] == "yes"
        if stopped and not force:
            place.report.say("the agent was stopped and disabled, and stays so")
            self.place = replace(place, start=False)
            return
        if not service.open_sockets():
            status = run("systemctl", "status", "--no-pager", "-n", "3", "vedette-udp.socket").text
            lines = "\n".join(status.splitlines()[-2:])
            raise Failed(
                32,
                f"the sockets for {place.listen} cannot be opened: {lines}; choose another with --listen HOST:PORT, and"
                f" in {place.config}",
            )
        if upgrades and run("systemctl", "start", "vedette-upgrade.path").code:
            place.report.warn("vedette-upgrade.path does not start: no upgrades by the fleet")
        if self._is_changed() or force:
            service.restart()
        else:
            run("systemctl", "--no-block", "start", "vedette")
        if service.healthy():
            return
        place.report.lines(last_lines())
        if self.before and self.switched:
            raise Failed(32, f"release {self.id} did not come up; going back to {self.former}")
        raise Failed(32, f"the agent did not come up: see the lines above and {place.report.log}")

    def _label(self, *units: Path) -> None:
        """Restore the types of SELinux's policy."""
        if not shutil.which("restorecon") or not shutil.which("selinuxenabled") or run("selinuxenabled").code:
            return
        self.place.report.step = "labelling files for SELinux"
        paths = [self.prefix, *self.owned, *units]
        if run("restorecon", "-R", *paths).code:
            names = " ".join(str(path) for path in paths)
            self.place.report.warn(f"restorecon failed; where SELinux is enforcing: restorecon -R {names}")

    def _is_changed(self) -> bool:
        return self.changed or self.addons.changed or self.configuration.changed or self.service.changed

    def _close(self) -> None:
        """Prune, watch and report: the installation stands."""
        self.complete = True
        place, options = self.place, self.options
        self._prune()
        if self.switched and not options["within"]:
            remove(self.prefix / "watch")  # that of the release before
            grace = int(options["grace"])
            if place.systemd and place.start and self.before and grace > 0:
                self._guard(grace, confirm=False)
        if not place.systemd and not (self.prefix / "watch").exists():
            launcher(place)
        place.report.say(f"installed {self.id}" if self._is_changed() else "all is in place, nothing changed")
        if not place.systemd:
            place.report.say(
                f"start it: {self.command} run -c {place.config}; with upgrades by its fleet: sh"
                f" {self.prefix}/supervise.sh --supervise"
            )
        elif not place.start:
            place.report.say("start it: systemctl start vedette")
        else:
            place.report.say(f"see it: {self.command} status")

    def _prune(self) -> None:
        """Delete all releases but this one and the one before, add-ons taken out, and what killed runs have left."""
        self.changes.forget()
        self.remnants("[0-9]*")
        folder = self.prefix / "releases"
        keep = {link_target(self.prefix / link) for link in ("current", "previous")}
        for path in (
            self.prefix / ".first",
            *self.prefix.glob("*.was.[0-9]*"),
            *self.place.config_dir.glob("*.new.was.[0-9]*"),
            *self.command.parent.glob(f"{self.command.name}.was.[0-9]*"),
            *folder.glob("*/addons/.new.*"),
            *folder.glob("*/addons/.gone.*"),
            *(path for path in folder.iterdir() if f"releases/{path.name}" not in keep),
        ):
            remove(path)
        remove_empty(*folder.glob("*/addons"))

    def undo(self) -> None:
        """Undo what this run has done, which did not come to its end."""
        self.changes.put_back()
        self.addons.undo()
        if self.guarded:
            remove(self.prefix / "watch")
        if self.before:
            self.back()
            if self.options["unpacked"] == "yes" and self.place.current != f"releases/{self.id}":
                remove(self.release)
        else:
            if self.service.written:
                self.service.remove()
            for name in ("releases", "current", "installed"):
                remove(self.prefix / name)
        self.changes.take_away()
        remove_empty(self.release / "addons")
        if self.user_created:
            run("userdel", "vedette")
        if not self.before:
            self.remnants(PID)
            remove(self.prefix / ".lock")
            remove_empty(self.prefix / "bin", self.prefix)
            self.place.report.say("nothing was installed")


class Rollback(Run):
    """A rollback to the release before, which install.sh has tried with the configuration."""

    def do(self) -> None:
        """Raises Failed, OSError."""
        place = self.place
        place.report.step = "rolling back"
        if place.systemd:
            run("systemctl", "stop", "vedette-watch")
        remove(self.prefix / "watch")
        self.switched = True
        self.changes.keep(self.prefix / "previous")
        self.service.back_to(f"releases/{self.id}", steadfast=False)
        point(self.prefix / "previous", self.before)
        if place.systemd and place.start and not self.service.healthy():
            raise Failed(32, f"release {self.id} did not come up; going back to {self.former}: journalctl -u vedette")
        self.complete = True
        place.report.say(f"rolled back from {self.former} to {self.id}")

    def undo(self) -> None:
        self.changes.put_back()
        self.back()


def _first_line(path: Path) -> str:
    """Return the first line of a file; empty: there is no plain file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(4096).partition(b"\n")[0].decode("utf-8", "replace")
