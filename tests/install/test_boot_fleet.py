"""Releases that the fleet names, on a booted host: systemd's own units take the request, install, and go back.

The documents are carried, as the container has no network; from the agent's request on nothing differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import vedette
from tests.e2e.test_fleet import FLEET, Centre
from tests.install.booted import Host
from tests.install.conftest import Variant
from tests.install.test_fleet_upgrade import launcher, name_release, wanted_id

pytestmark = [pytest.mark.boot, pytest.mark.peer, pytest.mark.long]
CONFIG = f"""
[agent]
id = "vienna-1"
site = "vienna"
fleet = "{FLEET}"
data_dir = "/var/lib/vedette"

[[input]]
type = "syslog"
name = "syslog"
udp = "127.0.0.1:514"
tcp = "127.0.0.1:514"

[uplink]
type = "directory"

[fleet]
root = "/etc/vedette/fleet-root.json"
undo_after = "5s"
"""


class Carried:
    """A host whose fleet's documents are carried there."""

    def __init__(self, host: Host, centre: Centre) -> None:
        self.host, self.centre = host, centre

    def give(self, zip_file: Path) -> str:
        """The documents name this release for it; the release's id."""
        name_release(self.centre, zip_file)
        self.centre.put_in_force(carried=True)
        out = self.centre.folder / "vienna.zip"
        out.unlink(missing_ok=True)
        vedette("fleet", "export", "--site", "vienna", "--trust", self.centre.trust, "--out", out)
        done = self.host.run("vedette", "fleet", "import", self.host.copy(out, "vienna.zip"))
        assert done.code == 0, done.text
        return wanted_id(self.centre)

    def actual(self) -> dict[str, Any]:
        done = self.host.run("vedette", "status", "--json")
        actual: dict[str, Any] = json.loads(done.text)["actual"] if done.text.startswith("{") else {}
        return actual

    def installed(self) -> str:
        return self.host.run("readlink", "/opt/vedette/current").text.strip().removeprefix("releases/")

    def runs(self, id: str) -> bool:
        """This release runs, confirmed, as the documents want it."""
        release = self.actual().get("release", {})
        return bool(release.get("id") == id and release["sha256"] and not release["state"])

    def wait(self, what: str, check: Any) -> None:
        try:
            self.host.wait(check)
        except AssertionError as error:
            said = self.host.run("journalctl", "-u", "vedette*", "-n", "60", "--no-pager").text
            shown = json.dumps(self.actual(), indent=1)
            raise AssertionError(f"in vain: {what}\n{shown}\n{said}\n{error}") from None


@pytest.fixture
def carried(tmp_path: Path, zip_file: Path) -> Iterator[Carried]:
    """An installed agent that follows its fleet."""
    centre = Centre(tmp_path / "centre")
    with Host.boot("bookworm", tmp_path) as host:
        done = host.run("sh", host.copy(zip_file, "vedette.zip"))
        assert done.code == 0, done.text
        root = (centre.trust / "tuf" / "1.root.json").read_bytes()
        for name, data in (("fleet-root.json", root), ("vedette.toml", CONFIG.encode())):
            path = host.folder / "etc/vedette" / name
            path.write_bytes(data)
            host.run("chown", "root:vedette", f"/etc/vedette/{name}")
            host.run("chmod", "640", f"/etc/vedette/{name}")
        assert host.run("systemctl", "restart", "vedette").code == 0
        carried = Carried(host, centre)
        carried.wait("its first start", lambda: carried.actual().get("release", {}).get("id") == carried.installed())
        yield carried


def test_installed_and_gone_back_from(carried: Carried, variant: Variant) -> None:
    """``vedette-upgrade.path`` sees each request: a good release runs and confirms itself; one that fails its
    self-test, and one that dies, leave the good one running, and the agent says why."""
    host, first = carried.host, carried.installed()
    assert host.run("systemctl", "is-active", "vedette-upgrade.path").text.strip() == "active"
    good = carried.give(variant("good", {"note": b"good"}, version="0.2.0"))
    carried.wait("the good release", lambda: carried.runs(good))
    assert carried.installed() == good
    assert host.run("readlink", "/opt/vedette/previous").text.strip() == f"releases/{first}"
    carried.wait("the end of its watch", lambda: host.show("ActiveState", "vedette-watch") == "inactive")

    failing = carried.give(variant("failing", launcher("exit 3", "version"), version="0.3.0"))
    carried.wait("the refusal", lambda: "does not run on" in " ".join(carried.actual().get("problems", ())))
    assert carried.installed() == good
    assert failing not in host.run("ls", "/opt/vedette/releases").text

    carried.give(variant("dying", launcher("kill -9 $$"), version="0.4.0"))
    carried.wait("the way back", lambda: "is not installed" in " ".join(carried.actual().get("problems", ()))
                 and "0.4.0" in " ".join(carried.actual().get("problems", ())))  # fmt: skip
    assert carried.installed() == good
    assert "0.4.0" not in host.run("ls", "/opt/vedette/releases").text
    assert host.show("ActiveState") == "active"
    log = host.run("journalctl", "-u", "vedette-upgrade", "--no-pager").text
    assert log.count("Finished") + log.count("Main process exited") >= 3, log
