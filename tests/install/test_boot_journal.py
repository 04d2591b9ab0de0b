"""A host as it is installed, without a line of configuration: its journal makes alerts, at once, and over a kill and a
reboot every entry is stored once.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.install.booted import Host
from tests.install.conftest import ROOT, Inputs, Variant
from vedette.decode.decoder import record

pytestmark = [pytest.mark.boot, pytest.mark.peer]

RULE = "account_with_uid_zero.yml"
SECONDS = 2.0
"""From the entry to its alert in the folder of the uplink."""
LATE = """[Unit]
Before=vedette.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/usr/bin/logger -t counted entry while it went down
[Install]
WantedBy=multi-user.target
"""
"""Stops after the agent."""


@pytest.fixture(scope="module")
def host(inputs: Inputs, variant: Variant, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("journal")
    bundle = folder / "starter.vbundle"
    for arguments in (
        ("build", ROOT / "rules/sigma/linux", "-o", bundle, "--name", "starter", "--version", "1"),
        ("sign", bundle, "--key", inputs.folder / "starter.pem"),
    ):
        subprocess.run([sys.executable, "-m", "vedette", "bundle", *map(str, arguments)], check=True)
    release = variant("starter", {"starter.vbundle": bundle.read_bytes()})
    with Host.boot("bookworm", folder) as host:
        done = host.run("sh", host.copy(release, "vedette.zip"))
        assert done.code == 0, done.text
        yield host


def landed(host: Host) -> list[dict[str, object]]:
    files = sorted((host.folder / "var/lib/vedette/alerts-landing").glob("alerts/dt=*/hh=*/*.parquet"))
    return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


def test_a_second_root(host: Host) -> None:
    """An account with the user id 0 makes the starter rule's alert, in the folder and in `vedette alerts`, within two
    seconds."""
    title = re.search(r"(?m)^title: (.+)$", (ROOT / "rules/sigma/linux" / RULE).read_text())
    assert title
    assert host.run("useradd", "-o", "-u", "0", "x").code == 0
    host.wait(lambda: bool(landed(host)))
    alert = next(row for row in landed(host) if row["rule_title"] == title[1])
    took = (alert["received_at"] - alert["event_time"]).total_seconds()  # type: ignore[operator]
    assert alert["source"] == "journal"
    assert "name=x, UID=0" in str(alert["raw"])
    assert took < SECONDS
    assert title[1] in host.run("vedette", "alerts", "--json").text


def stored(host: Host) -> list[str]:
    done = host.run("vedette", "logs", "search", "--input", "journal", "--json", "-n", "100000", " counted .* entry ")
    raws = (json.loads(line)["raw"] for line in done.text.splitlines() if line.startswith("{"))
    return [re.sub(r".* entry ", "", text) for text in raws]


def written(host: Host) -> list[str]:
    text = host.run("journalctl", "-t", "counted", "-o", "cat", "--no-pager").text
    return [line.removeprefix("entry ") for line in text.splitlines() if line.startswith("entry ")]


def log(host: Host, first: int, last: int) -> None:
    assert host.run("sh", "-c", f"seq -f 'entry %g' {first} {last} | logger -t counted").code == 0


def test_killed_and_booted(host: Host) -> None:
    """Entries from before a kill -9, while the agent was away, while the host went down and after it came up: each is
    stored once, in order, and no alert came twice."""
    (host.folder / "etc/systemd/system/late.service").write_text(LATE)
    host.run("systemctl", "daemon-reload")
    assert host.run("systemctl", "enable", "--now", "late").code == 0
    before = host.show("MainPID")
    log(host, 1, 500)
    assert host.run("sh", "-c", f"kill -9 {before}").code == 0
    log(host, 501, 1000)
    host.wait(lambda: host.show("MainPID") not in ("0", before) and host.show("ActiveState") == "active")
    host.wait(lambda: len(stored(host)) >= 1000)
    log(host, 1001, 1500)
    host.reboot()
    log(host, 1501, 2000)
    host.wait(lambda: "2000" in stored(host))
    expected = [*map(str, range(1, 1501)), "while it went down", *map(str, range(1501, 2001))]
    assert written(host) == expected
    assert stored(host) == expected
    ids = [row["alert_id"] for row in landed(host)]
    assert len(ids) == len({*ids})
    status = json.loads(host.run("vedette", "status", "--json").text)
    assert status["identity_broken"] == []
    assert status["totals"].get("journal_gaps", 0) == 0


def test_by_unit(host: Host) -> None:
    """`units` takes what a unit says and what systemd says about it, `exclude_units` all but that; what another process
    claims to be of the unit counts for neither."""
    config = host.folder / "etc/vedette/vedette.toml"
    before = config.read_text()
    more = '[[input]]\ntype = "journal"\nname = "{}"\nfrom_start = false\n{} = ["shop", "pay.service"]\n'
    config.write_text(before + more.format("only", "units") + more.format("rest", "exclude_units"))
    assert host.run("systemctl", "restart", "vedette").code == 0
    host.wait(lambda: host.run("vedette", "status").code == 0)

    def of(name: str) -> list[tuple[str, str]]:
        """Program and message of what an input has stored of these units."""
        done = host.run("vedette", "logs", "search", "--input", name, "--json", "-n", "100000", "by-unit|shop.service")
        raws = [json.loads(line)["raw"] for line in done.text.splitlines() if line.startswith("{")]
        records = [record(raw.encode(), "syslog") for raw in raws]
        return [(str(event.get("program")), str(event.get("message"))) for event in records]

    def said(name: str) -> list[str]:
        return [text for _, text in of(name) if text.startswith("by-unit of ")]

    for unit in ("shop", "pay", "other"):
        script = f"echo by-unit of {unit}; sleep 2"
        assert host.run("systemd-run", "--wait", "--unit", unit, "sh", "-c", script).code == 0
    liar = "MESSAGE=by-unit of a liar\\nUNIT=shop.service\\n_SYSTEMD_UNIT=shop.service\\n"
    assert host.run("sh", "-c", f"printf '{liar}' | logger --journald").code == 0
    host.wait(lambda: "by-unit of a liar" in said("rest"))
    host.wait(lambda: "by-unit of pay" in said("only"))
    config.write_text(before)
    assert host.run("systemctl", "restart", "vedette").code == 0
    assert said("only") == ["by-unit of shop", "by-unit of pay"]
    assert said("rest") == ["by-unit of other", "by-unit of a liar"]
    assert "systemd" in {program for program, _ in of("only")}, "what systemd says about the unit"
    assert not [text for program, text in of("rest") if program == "systemd" and "shop.service" in text]


def test_local_response_in_the_unit(host: Host) -> None:
    """Switched on, the service says what it lacks; with the lines of docs/install.md, and no other right, it blocks."""
    nft = Path("/usr/sbin/nft")
    if not nft.exists():
        pytest.skip("no nft here: sh tools/packages.sh tests")
    needed = re.findall(r"=> (/\S+)", subprocess.run(["ldd", nft], capture_output=True, text=True, check=True).stdout)
    for path in (nft, *map(Path, needed)):
        inside = host.folder / path.resolve().relative_to("/")
        if not inside.exists():
            shutil.copy(path.resolve(), inside)
        if not (name := host.folder / "usr" / path.relative_to("/").as_posix().removeprefix("usr/")).exists():
            name.symlink_to(path.resolve())
    config = host.folder / "etc/vedette/vedette.toml"
    config.write_text(config.read_text().replace("[response]\n#enabled = false", "[response]\nenabled = true"))
    assert host.run("systemctl", "reload", "vedette").code == 0
    host.wait(lambda: "local response is off" not in host.run("vedette", "response", "test").text)
    done = host.run("vedette", "response", "test")
    assert done.code == 1
    assert "the unit needs AF_NETLINK and CAP_NET_ADMIN (docs/install.md)" in done.text
    (lines,) = re.findall(r"```ini\n(\[Service\]\n.*CAP_NET_ADMIN[^`]+)```", (ROOT / "docs/install.md").read_text())
    (host.folder / "etc/systemd/system/vedette.service.d/response.conf").write_text(lines)
    host.run("systemctl", "daemon-reload")
    assert host.run("systemctl", "restart", "vedette").code == 0
    done = host.run("vedette", "response", "test", "203.0.113.9")
    assert done.text == "203.0.113.9 would be blocked for 3600 s\n"
    assert "blocked 203.0.113.9 until" in host.run("vedette", "response", "block", "203.0.113.9").text
    assert "203.0.113.9 timeout 1h" in host.run("nft", "list", "set", "inet", "vedette", "blocked4").text
    capabilities = host.run("sh", "-c", "grep CapEff /proc/$(systemctl show -p MainPID --value vedette)/status").text
    assert int(capabilities.split()[1], 16) == 1 << 12
