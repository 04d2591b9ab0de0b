"""The life of an installation on a booted host: installed, used, killed, upgraded, rolled back, removed.

Debian 12 always, where containers can be booted; the older ones with VEDETTE_BOOT=all (``make test-install``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.install.booted import Host
from tests.install.conftest import RULE_ID, Variant

pytestmark = [pytest.mark.boot, pytest.mark.peer]

OLDER = ["bullseye"]
HOSTS = ["bookworm", *(OLDER if os.environ.get("VEDETTE_BOOT") == "all" else [])]
CURRENT = "/opt/vedette/current/install.sh"

DOES_NOT_COME_UP = b"""#!/bin/sh
[ "$1" != run ] || { echo broken on purpose >&2; exit 1; }
here=$(readlink -f "$0") || exit 1
release=${here%/bin/vedette}
exec "$release/runtime/bin/vedetted" -X utf8 -I -S -B "$release/launch.py" "$@"
"""
DIES_LATER = DOES_NOT_COME_UP.replace(
    b'[ "$1" != run ] || { echo broken on purpose >&2; exit 1; }',
    b'[ "$1" != run ] || (until [ -e /run/vedette-die ]; do sleep 0.5; done; kill -9 $$) &',
)
"""As soon as there is a file /run/vedette-die."""
TAKER = "import socket, time; s = socket.socket(2, 2); s.bind(('127.0.0.1', 515)); time.sleep(600)"


@pytest.fixture(scope="module", params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with Host.boot(request.param, tmp_path_factory.mktemp(request.param)) as host:
        assert host.run("sh", "-c", "command -v python3 unzip || echo neither").text == "neither\n"
        yield host


def status(host: Host) -> dict[str, Any]:
    done = host.run("vedette", "status", "--json")
    assert done.code == 0, done.text
    answer: dict[str, Any] = json.loads(done.text)
    assert answer["disk"]["store_rebuilt"] is None, "no start on this host finds its store damaged"
    return answer


def alerts(host: Host, marker: str) -> int:
    return host.run("vedette", "alerts", "--json").text.count(marker)


def log(host: Host, marker: str, *options: str) -> None:
    done = host.run("logger", "--server", "127.0.0.1", "--port", "514", *options, "--tag", "demo",
                    f"install-test-marker {marker}")  # fmt: skip
    assert done.code == 0, done.text


def release(host: Host) -> str:
    return host.run("readlink", "/opt/vedette/current").text.strip().removeprefix("releases/")


def test_installed_within_seconds(host: Host, zip_file: Path) -> None:
    """One line, and the service runs as its own user, with no capability, within its bounds, with the starter rules."""
    path = host.copy(zip_file, "vedette.zip")
    done = host.run("sh", path)
    assert done.code == 0, done.text
    assert "installed 0." in done.text
    assert host.show("ActiveState") == "active"
    answer = status(host)
    assert answer["bundle"] == "starter-1"
    assert answer["identity_broken"] == []
    pid = host.show("MainPID")
    lines = dict(
        line.split(":\t") for line in host.run("cat", f"/proc/{pid}/status").text.splitlines() if ":\t" in line
    )
    assert lines["Name"] == "vedetted"
    assert int(lines["CapEff"], 16) == 0
    assert int(lines["CapBnd"], 16) == 0
    assert lines["NoNewPrivs"] == "1"
    user = host.run("id", "-u", "vedette").text.strip()
    assert lines["Uid"].split() == [user] * 4
    assert host.run("getent", "passwd", "vedette").text.strip().endswith("/nologin")
    modes = host.run("stat", "-c", "%a %U %G", "/etc/vedette", "/etc/vedette/vedette.toml", "/var/lib/vedette").text
    assert modes.splitlines() == ["750 root vedette", "640 root vedette", "750 vedette vedette"]
    assert "is-enabled" not in host.run("systemctl", "is-enabled", "vedette", "vedette-udp.socket").text


def test_every_line_of_the_units_is_understood(host: Host) -> None:
    """This host's systemd finds nothing to say about the units, and bounds are in force."""
    said = host.run("systemd-analyze", "verify", "/etc/systemd/system/vedette.service").text
    assert "vedette" not in said, said
    journal = host.run("journalctl", "-b", "--no-pager").text
    assert not [line for line in journal.splitlines() if "vedette" in line and "nknown" in line], journal
    limit = host.show("MemoryMax") or host.show("MemoryLimit")
    assert int(limit) == 1 << 30
    assert host.show("CPUQuotaPerSecUSec") == "1s"


@pytest.mark.parametrize("transport", ["--udp", "--tcp"])
def test_syslog_becomes_an_alert(host: Host, transport: str) -> None:
    """The host's own logger in, an alert out, through the sockets that systemd opened."""
    log(host, f"by{transport}", transport)
    host.wait(lambda: alerts(host, f"by{transport}") > 0)
    assert alerts(host, RULE_ID) > 0


def test_killed_and_started_again(host: Host) -> None:
    """kill -9: systemd starts the agent again, and a datagram that came meanwhile is not lost."""
    before = host.show("MainPID")
    assert host.run("sh", "-c", f"kill -9 {before}").code == 0
    log(host, "while-it-was-away", "--udp")
    host.wait(lambda: host.show("MainPID") not in ("0", before) and host.show("ActiveState") == "active")
    host.wait(lambda: alerts(host, "while-it-was-away") > 0)
    assert status(host)["identity_broken"] == []


def test_reloaded(host: Host) -> None:
    """`systemctl reload` reaches the agent, also on a host without a program `kill`."""
    before = host.show("MainPID")
    done = host.run("systemctl", "reload", "vedette")
    assert done.code == 0, done.text
    host.wait(lambda: "reload" in host.run("journalctl", "-u", "vedette", "-n", "30", "--no-pager").text.lower())
    assert (host.show("MainPID"), host.show("ActiveState")) == (before, "active")


def test_a_second_run_restarts_nothing(host: Host) -> None:
    """Run again, nothing changes: the same process runs on."""
    before = host.show("MainPID")
    done = host.run("sh", "/root/vedette.zip")
    assert done.code == 0, done.text
    assert "nothing changed" in done.text
    assert host.show("MainPID") == before


def test_upgraded(host: Host, variant: Variant) -> None:
    """A next release takes over; what the old one stored and alerted is still there, and it is watched."""
    before = release(host)
    done = host.run("sh", host.copy(variant("next", version="8.0.0"), "next.zip"), "--upgrade", "--grace", "600")
    assert done.code == 0, done.text
    assert release(host).startswith("8.0.0-")
    assert host.run("readlink", "/opt/vedette/previous").text.strip() == f"releases/{before}"
    assert alerts(host, "while-it-was-away") > 0
    assert host.show("ActiveState", "vedette-watch") == "active"
    host.run("systemctl", "stop", "vedette-watch")
    assert host.run("systemctl", "start", "multi-user.target").code == 0  # as a reboot does
    assert host.show("ActiveState", "vedette-watch") == "active"
    log(host, "after-the-upgrade", "--udp")
    host.wait(lambda: alerts(host, "after-the-upgrade") > 0)
    assert status(host)["identity_broken"] == []


def test_a_release_that_does_not_come_up(host: Host, variant: Variant) -> None:
    """It is tried, fails, and the release before runs again by itself: exit code 32, with its last words."""
    before = release(host)
    broken = variant("broken", {"bin/vedette": DOES_NOT_COME_UP}, version="9.0.0")
    done = host.run("sh", host.copy(broken, "broken.zip"))
    assert done.code == 32, done.text
    assert "broken on purpose" in done.text
    assert f"release {before} runs again" in done.text
    assert release(host) == before
    assert host.show("ActiveState") == "active"
    assert status(host)["identity_broken"] == []
    assert "9.0.0" not in host.run("ls", "/opt/vedette/releases").text


def test_a_release_that_dies_later(host: Host, variant: Variant) -> None:
    """It comes up, and dies again and again: the watch goes back to the release before."""
    before = release(host)
    dying = variant("dying", {"bin/vedette": DIES_LATER}, version="9.1.0")
    done = host.run("sh", host.copy(dying, "dying.zip"), "--grace", "300")
    assert done.code == 0, done.text
    assert release(host).startswith("9.1.0-")
    host.run("touch", "/run/vedette-die")
    host.wait(lambda: release(host) == before)
    host.wait(lambda: host.run("vedette", "status").code == 0)
    host.wait(lambda: host.show("ActiveState", "vedette-watch") == "inactive")
    assert "going back to" in host.run("cat", "/var/log/vedette-install.log").text
    assert alerts(host, "after-the-upgrade") > 0


def test_rolled_back_by_hand(host: Host, variant: Variant) -> None:
    """--rollback goes to the release before, which reads what the newer one wrote."""
    before = release(host)
    assert host.run("sh", host.copy(variant("third", version="10.0.0"), "third.zip"), "--grace", "0").code == 0
    log(host, "by-the-third", "--udp")
    host.wait(lambda: alerts(host, "by-the-third") > 0)
    done = host.run("sh", CURRENT, "--rollback")
    assert done.code == 0, done.text
    assert release(host) == before
    assert alerts(host, "by-the-third") > 0
    assert "by-the-third" in host.run("vedette", "logs", "search", "by-the-third").text
    log(host, "after-the-rollback", "--udp")
    host.wait(lambda: alerts(host, "after-the-rollback") > 0)
    assert status(host)["identity_broken"] == []


def test_an_operators_mistake(host: Host, variant: Variant) -> None:
    """With a broken configuration an upgrade is refused, and the running agent is not touched."""
    before, process = release(host), host.show("MainPID")
    text = host.run("cat", "/etc/vedette/vedette.toml").text
    config = host.folder / "etc/vedette/vedette.toml"
    config.write_text(text + "\n[agnet]\n")
    done = host.run("sh", host.copy(variant("fourth", version="11.0.0"), "fourth.zip"))
    config.write_text(text)
    assert done.code == 31, done.text
    assert "agnet" in done.text
    assert (release(host), host.show("MainPID")) == (before, process)


def test_another_port_that_is_taken(host: Host) -> None:
    """Moved to a port that another program holds: said beforehand, and the agent listens where it did."""
    process = host.show("MainPID")
    host.run("systemd-run", "--unit=taker", "/opt/vedette/current/runtime/bin/vedetted", "-I", "-S", "-c", TAKER)
    host.wait(lambda: ":0203 " in host.run("cat", "/proc/net/udp").text)
    done = host.run("sh", CURRENT, "--listen", "127.0.0.1:515")
    host.run("systemctl", "stop", "taker")
    assert done.code == 15, done.text
    assert host.show("MainPID") == process
    log(host, "still-at-514", "--udp")
    host.wait(lambda: alerts(host, "still-at-514") > 0)


def test_a_second_installation(host: Host) -> None:
    """Under systemd it is refused, and the first one's agent and ports stay; without it lives beside the first, and its
    own script purges it alone."""
    process, second = host.show("MainPID"), ("--prefix", "/opt/second")
    done = host.run("sh", "/root/vedette.zip", *second, "--config-dir", "/etc/second", "--data-dir", "/var/lib/second")
    assert done.code == 19, done.text
    assert "systemd runs the installation in /opt/vedette" in done.text
    done = host.run("sh", "/root/vedette.zip", "--no-systemd", *second)
    assert done.code == 2, done.text
    assert "/etc/vedette is of the installation in /opt/vedette" in done.text
    done = host.run("sh", "/root/vedette.zip", "--no-systemd", *second, "--config-dir", "/etc/second",
                    "--data-dir", "/var/lib/second")  # fmt: skip
    assert done.code == 0, done.text
    done = host.run("sh", "/opt/second/current/install.sh", "--uninstall", "--purge")
    assert done.code == 0, done.text
    assert host.run("sh", "-c", "ls -d /opt/second /etc/second /var/lib/second 2>/dev/null").text == ""
    assert (host.show("MainPID"), host.show("ActiveState")) == (process, "active")
    log(host, "beside-the-second", "--udp")
    host.wait(lambda: alerts(host, "beside-the-second") > 0)


def test_what_the_operator_stopped_stays_so(host: Host, variant: Variant) -> None:
    """An upgrade of a stopped and disabled agent starts nothing."""
    host.run("systemctl", "disable", "vedette")
    host.run("systemctl", "stop", "vedette-udp.socket", "vedette-tcp.socket", "vedette")
    done = host.run("sh", host.copy(variant("fifth", version="12.0.0"), "fifth.zip"))
    assert done.code == 0, done.text
    assert "stays so" in done.text
    assert host.show("ActiveState") == "inactive"
    done = host.run("sh", CURRENT, "--force-restart")
    assert done.code == 0, done.text
    assert host.show("ActiveState") == "active"


def test_uninstalled(host: Host) -> None:
    """The program goes; configuration and data stay; the port is free again."""
    done = host.run("sh", CURRENT, "--uninstall")
    assert done.code == 0, done.text
    assert (
        host.run("sh", "-c", "ls /opt/vedette /etc/systemd/system/vedette* /usr/local/bin/vedette 2>/dev/null").text
        == ""
    )
    assert host.run("systemctl", "is-active", "vedette", "vedette-udp.socket").text.split() == ["inactive"] * 2
    assert host.run("test", "-f", "/etc/vedette/vedette.toml").code == 0
    assert host.run("test", "-d", "/var/lib/vedette/raw").code == 0
    assert host.run("sh", "-c", "grep -c :0202 /proc/net/udp").text.strip() == "0"


def test_purged(host: Host) -> None:
    """Installed again it goes on with the old data; purged, nothing of it is left on the host."""
    done = host.run("sh", "/root/vedette.zip")
    assert done.code == 0, done.text
    assert alerts(host, "after-the-rollback") > 0
    done = host.run("sh", CURRENT, "--uninstall", "--purge")
    assert done.code == 0, done.text
    left = host.run("sh", "-c", "find / -xdev -iname '*vedette*' -not -path '/root/*' -not -path '/proc/*'"
                    " -not -path '/sys/*'; getent passwd vedette; getent group vedette")  # fmt: skip
    assert left.text == ""
    assert host.run("systemctl", "list-units", "--all", "--no-legend", "vedette*").text.strip() == ""
