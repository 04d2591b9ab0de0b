"""Upgrades by the fleet: an installed agent and its supervisor, a real broker, releases that are good and bad.

Each host is an installation without systemd in a folder of its own, run by ``supervise.sh``; the releases are whole,
made of the zip that ``make dist`` makes, fetched in pieces from mosquitto over TLS.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import KILLS, chance
from tests.e2e.agent import vedette as centre_command
from tests.e2e.faults import tmpfs
from tests.e2e.test_fleet import FLEET, Centre
from tests.install.conftest import Place, Variant, add_on, call
from tests.waits import until
from vedette.fleet.audit import Audit, verify
from vedette.region.sign import keygen
from vedette.runtime.agent.control import ask

pytestmark = [pytest.mark.install, pytest.mark.peer]

UNDO = 4
NAME = "vienna-1"


class Host:
    """An installation, and the supervisor that runs its agent."""

    def __init__(self, place: Place, centre: Centre, name: str = NAME) -> None:
        self.place, self.centre, self.name = place, centre, name
        self.log = place.folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None
        member = centre.enroll(name, "--fleet", FLEET, "--broker", centre.broker.url)
        place.config.write_text(
            f'[agent]\nid = "{name}"\nsite = "vienna"\nfleet = "{FLEET}"\ndata_dir = "{place.data_dir}"\n'
            f'[broker]\nurl = "{centre.broker.url}"\nca_file = "{member}/region-ca.pem"\n'
            f'cert_file = "{member}/agent.pem"\nkey_file = "{member}/agent.key"\n'
            f'[uplink]\ntype = "mqtt"\nheartbeat = "1s"\n[fleet]\nroot = "{centre.trust}/tuf/1.root.json"\n'
            f'undo_after = "{UNDO}s"\n[log]\nformat = "json"\n'
        )

    def start(self) -> None:
        script = self.place.prefix / "supervise.sh"
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                ["sh", script, "--supervise"], stdout=file, stderr=file, start_new_session=True
            )

    def agent(self) -> int:
        """The agent's process; 0: there is none."""
        assert self.process is not None
        processes = call("pgrep", "-P", str(self.process.pid), "-f", "launch.py run").text.split()
        return int(processes[0]) if processes else 0

    def kill(self) -> None:
        """All of it, at once."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def actual(self) -> dict[str, Any]:
        try:
            actual: dict[str, Any] = ask(self.place.data_dir / "control.sock", "status")["actual"]
        except (OSError, ValueError, KeyError):
            return {"release": {}, "problems": [], "desired_serial": 0}
        return actual

    def wait(self, what: str, check: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        last: dict[str, Any] = {}

        def now() -> bool:
            nonlocal last
            last = self.actual()
            return bool(check(last))

        try:
            until(what, now)
        except AssertionError as error:
            said = self.log.read_text("utf-8", "replace")[-5000:]
            raise AssertionError(f"{error}\n{json.dumps(last, indent=1)}\n{said}") from None
        return last

    def runs(self, id: str) -> Callable[[dict[str, Any]], bool]:
        """A check: this release runs, confirmed, as the documents want it."""

        def check(actual: dict[str, Any]) -> bool:
            release = actual["release"]
            return bool(release.get("id") == id and release["sha256"] and not release["state"])

        return check

    def record(self) -> list[dict[str, Any]]:
        """Its audit record, whose chain holds."""
        path = self.place.data_dir / "fleet" / "audit.jsonl"
        assert verify(path)[1] is None
        return [*Audit(path).lines()]

    def recorded(self) -> list[str]:
        return [row["event"] for row in self.record()]

    def about(self, event: str) -> set[str]:
        """The releases of which it has recorded this."""
        return {row["id"] for row in self.record() if row["event"] == event}


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    region = Centre(tmp_path / "centre")
    yield region
    region.broker.kill()


@pytest.fixture
def host(ready: Place, centre: Centre) -> Iterator[Host]:
    started = Host(ready, centre)
    centre.broker.start()
    started.start()
    started.wait("its first start", lambda actual: actual["release"].get("id") == ready.current())
    yield started
    started.kill()


def want(centre: Centre, *zips: Path, more: str = "") -> None:
    """Publish the documents in which the group has this release."""
    name_release(centre, *zips, more=more)
    centre.put_in_force()


def name_release(centre: Centre, *zips: Path, more: str = "") -> None:
    """``fleet.toml``: one group, with this release."""
    folder = centre.folder / "releases"
    folder.mkdir(exist_ok=True)
    for path in zips:
        (folder / path.name).write_bytes(path.read_bytes())
    listed = ", ".join(f'"releases/{path.name}"' for path in zips)
    centre.toml.write_text(f'[[group]]\nname = "all"\nmatch = "all"\nrelease = [{listed}]\n{more}\n')


def wanted_id(centre: Centre) -> str:
    """Of the release that was published last, for this architecture."""
    from vedette.fleet import releases
    from vedette.region.repository import Repository

    repository = Repository(centre.trust)
    desired = repository.desired()
    assert desired is not None
    assert desired.groups[0].release is not None
    assert desired.groups[0].release.to is not None
    return releases.read(repository.blob(desired.groups[0].release.to.sha256)).archives["x86_64"].id


def launcher(does: str, command: str = "run") -> Mapping[str, bytes]:
    """A release whose command ``does`` this, and which is sound otherwise."""
    script = f"""#!/bin/sh
here=$(readlink -f "$0") || exit 1
release=${{here%/bin/vedette}}
if [ "$1" = {command} ]; then {does}; fi
exec "$release/runtime/bin/vedetted" -X utf8 -I -S -B "$release/launch.py" "$@"
"""
    return {"bin/vedette": script.encode()}


def test_there_and_back(host: Host, centre: Centre, variant: Variant, zip_file: Path) -> None:
    """A good release is fetched, waits for its window, is installed and confirms itself; the older one comes back by
    the same way, over the newer one's data; the centre sees both."""
    first = host.place.current()
    closed = time.strftime("%a", time.gmtime(time.time() + 3 * 86400)).lower()
    windows = f'windows = [{{ days = ["{closed}"], start = "00:00", end = "23:59" }}]'
    good = variant("good", {"note": b"good"}, version="0.2.0")
    want(centre, good, more=windows)
    host.wait("the window", lambda actual: actual["release"].get("state") == "waits for a window")
    assert host.actual()["waits"] == ["release"]
    assert host.place.current() == first
    shown = centre_command("fleet", "status", "--trust", centre.trust, *centre.at_broker, code=None).stdout
    assert "release: waits for a window" in shown

    want(centre, good)
    host.wait("the good release", host.runs(wanted_id(centre)))
    assert host.place.current() == wanted_id(centre)
    assert (host.place.prefix / "previous").readlink().name == first
    until("the watch to end", lambda: not (host.place.prefix / "watch").exists())
    assert [event for event in host.recorded() if event.startswith("release_")] == [
        "release_asked", "release_started", "release_confirmed",
    ]  # fmt: skip
    assert not [*(host.place.data_dir / "upgrade").glob("*.zip")]

    want(centre, zip_file)
    host.wait("the first release again", host.runs(first))
    assert not host.actual()["problems"]
    until("status", lambda: "all: 1 of 1 as wanted" in centre_command(
        "fleet", "status", "--trust", centre.trust, *centre.at_broker, code=None).stdout)  # fmt: skip


@pytest.mark.long
def test_an_add_on_goes_along(
    ready: Place, centre: Centre, variant: Variant, zip_file: Path, addon_file: Path, release_key: Path
) -> None:
    """A host with an add-on takes no release that comes without it, and says so; named with it, both are fetched and
    installed, and both come back."""
    assert ready.sh(zip_file, "--with", "archive").code == 0
    first, host = ready.current(), Host(ready, centre)
    centre.broker.start()
    host.start()
    try:
        host.wait("its first start", lambda actual: actual["release"].get("id") == first)
        newer = variant("extended", {"note": b"extended"}, version="0.2.0")
        want(centre, newer)
        host.wait("what is missing", lambda actual: "without the add-on archive" in " ".join(actual["problems"]))
        assert ready.current() == first
        want(centre, newer, add_on(addon_file, newer, release_key))
        host.wait("both", host.runs(wanted_id(centre)))
        assert ready.current() == wanted_id(centre)
        assert call(ready.vedette, "version").text.endswith(" with archive\n")
        want(centre, zip_file, addon_file)
        host.wait("the first release again", host.runs(first))
        assert call(ready.vedette, "version").text.endswith(" with archive\n")
        assert not host.actual()["problems"]
    finally:
        host.kill()


@pytest.mark.long
def test_a_failed_self_test(host: Host, centre: Centre, variant: Variant) -> None:
    """A release whose program does not start: the one before is never left, its process goes on, and the heartbeat says
    why. One that does not take the configuration: ``test_fleet_rings.py``."""
    first, process = host.place.current(), host.agent()
    want(centre, variant("bad", launcher("exit 3", "version"), version="0.2.0"))
    actual = host.wait("the refusal", lambda actual: "does not run on" in " ".join(actual["problems"]))
    assert f"{wanted_id(centre)} is not installed" in " ".join(actual["problems"])
    assert (host.place.current(), host.agent()) == (first, process)
    assert host.recorded()[-1] == "release_refused"
    assert len([*(host.place.prefix / "releases").iterdir()]) == 1


def test_signed_by_others(host: Host, centre: Centre, variant: Variant, tmp_path: Path) -> None:
    """What operators name and another release key has signed is not installed: the installation knows its own."""
    keygen(tmp_path / "other.pem")
    first = host.place.current()
    foreign = variant("foreign", {"note": b"x"}, version="0.2.0", key=tmp_path / "other.pem")
    folder = centre.folder / "releases"
    folder.mkdir()
    (folder / foreign.name).write_bytes(foreign.read_bytes())
    centre.toml.write_text(f'[[group]]\nname = "all"\nrelease = "releases/{foreign.name}"\n')
    refused = centre_command("fleet", "plan", centre.toml, "--trust", centre.trust, code=2)
    assert "not signed by its own release key" in refused.stderr

    upgrade = host.place.data_dir / "upgrade"
    sums = foreign.read_bytes()
    (upgrade / "0.2.0-0123456789ab.zip").write_bytes(sums)
    digest = subprocess.run(["sha256sum", foreign], capture_output=True, text=True, check=True).stdout.split()[0]
    (upgrade / "request").write_text(
        f"id=0.2.0-0123456789ab\nnonce=0123456789abcdef\nzip=0.2.0-0123456789ab.zip\nsha256={digest}\nwithin=60\n"
    )
    until("the answer", lambda: (upgrade / "answer").exists() and "code=21" in (upgrade / "answer").read_text())
    assert "not signed by ed25519:" in (upgrade / "answer").read_text()
    assert host.place.current() == first


WORSE = {
    "it dies at its start": (launcher("exit 1"), "ended 3 times before it confirmed itself"),
    "it is killed at its start": (launcher("kill -9 $$"), "ended 3 times before it confirmed itself"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", WORSE)
def test_a_release_that_does_not_stay_up(host: Host, centre: Centre, variant: Variant, what: str) -> None:
    """The supervisor, which is of the release before, puts that back; it is not tried again, whatever else changes."""
    changed, said = WORSE[what]
    first = host.place.current()
    dies = variant("dies", changed, version="0.2.0")
    want(centre, dies)
    actual = host.wait("the way back", lambda actual: said in " ".join(actual["problems"]))
    assert host.place.current() == first
    assert len([*(host.place.prefix / "releases").iterdir()]) == 1
    for name in ("one", "two"):  # once it has the second of these documents, it has followed the first
        serial = actual["desired_serial"]
        want(centre, dies, more=f'[[group]]\nname = "{name}"\nmatch = "site = {name}"\n')
        actual = host.wait("the documents", lambda actual, serial=serial: actual["desired_serial"] > serial)
    assert host.recorded().count("release_asked") == 1
    assert host.recorded()[-1] == "release_refused"


@pytest.mark.long
def test_a_release_that_is_not_well(
    host: Host, centre: Centre, variant: Variant, files: Mapping[str, tuple[int, bytes]]
) -> None:
    """One that starts, and says of itself that it does not work, is gone back from."""
    path = "packages/vedette/runtime/agent/app.py"
    text = files[path][1].decode()
    mark = '        """Why the agent is not healthy and connected to its region; empty: it is."""\n'
    assert mark in text
    changed = {path: text.replace(mark, f'{mark}        return "a planted defect"\n').encode()}
    changed |= {name: b"" for name in files if name.startswith("packages/vedette/runtime/__pycache__/app.")}
    first = host.place.current()
    want(centre, variant("unwell", changed, version="0.2.0"))
    host.wait("the way back", lambda actual: "a planted defect" in " ".join(actual["problems"])
              and actual["release"].get("id") == first)  # fmt: skip
    assert host.place.current() == first
    assert [event for event in host.recorded() if event.startswith("release_")] == [
        "release_asked", "release_started", "release_undone",
    ]  # fmt: skip


@pytest.mark.long
def test_no_room_and_no_right(host: Host, centre: Centre, variant: Variant, ground: Path) -> None:
    """A program folder that is full, or that cannot be written to: the heartbeat says so, the agent stays, and the
    installation is as it was."""
    first, process = host.place.current(), host.agent()
    host.kill()
    prefix = host.place.prefix
    with tmpfs(ground.with_name("small"), "400m") as small:
        assert call("cp", "-a", f"{prefix}/.", small).code == 0
        subprocess.run(["mount", "--bind", small, prefix], check=True)
        try:
            (small / "ballast").write_bytes(bytes(max(0, _free(small) - (64 << 20))))
            host.start()
            want(centre, variant("roomy", {"note": b"x"}, version="0.2.0"))
            host.wait("no room", lambda actual: "is not installed yet" in " ".join(actual["problems"]))
            assert any(text in " ".join(host.actual()["problems"]) for text in ("KiB are needed", "No space left"))
            assert host.place.current() == first
            assert len([*(prefix / "releases").iterdir()]) == 1
            host.kill()
            (small / "ballast").unlink()
            subprocess.run(["mount", "-o", "remount,ro,bind", prefix], check=True)
            host.start()
            host.wait("no right", lambda actual: "cannot be written to" in " ".join(actual["problems"]))
            assert host.place.current() == first
            host.kill()
            subprocess.run(["mount", "-o", "remount,rw,bind", prefix], check=True)
            host.start()
            host.wait("the release", host.runs(wanted_id(centre)))
        finally:
            host.kill()
            subprocess.run(["umount", "-l", prefix], check=True)
    assert process


def _free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


@pytest.mark.long
def test_killed_at_random(host: Host, centre: Centre, variant: Variant, zip_file: Path) -> None:
    """Wherever agent, supervisor and installation are killed while releases come and go, the end is the one wanted."""
    rng, first = chance(), host.place.current()
    good = variant("good", {"note": b"good"}, version="0.2.0")
    for step in range(KILLS):
        want(centre, good if (KILLS - step) % 2 else zip_file)  # in the end another than in the beginning
        for _ in range(2):
            time.sleep(rng.uniform(0, 6))
            host.kill()
            host.start()
    end = wanted_id(centre)
    host.wait("the release that is wanted", host.runs(end))
    assert host.place.current() == end
    assert end != first
    assert not host.actual()["problems"]
