"""An upgrade from a release of an older commit, which VEDETTE_BEFORE names, and back.

Its zip is built by its own recipe, with the keys of the tests, and installed with its own configuration; its agent
takes logs in. The release of these sources then goes on with all of that, and after a rollback the older one does.
Once with the zip's own configuration and rules, and once as a member of a fleet, with lines that are written all the
time.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.broker import own_port
from tests.e2e.agent import Stored, by_line, deduped, landed, scan
from tests.e2e.agent import vedette as centre_command
from tests.e2e.test_fleet import FLEET, Centre
from tests.install.conftest import ROOT, RULE_ID, Inputs, Place, call, dist, one_at_a_time
from tests.install.test_agent import running
from tests.install.test_fleet_upgrade import Host
from tests.waits import until
from vedette.rawlog import read
from vedette.rawlog.segment import segments
from vedette.runtime.agent.control import ask

BEFORE = os.environ.get("VEDETTE_BEFORE", "")
pytestmark = [
    pytest.mark.install,
    pytest.mark.peer,
    pytest.mark.skipif(not BEFORE, reason="VEDETTE_BEFORE names no commit"),
]


@pytest.fixture
def older(inputs: Inputs, tmp_path: Path) -> Path:
    """The zip of the older commit."""
    folder = inputs.folder / f"before-{BEFORE}"
    with one_at_a_time():
        if not folder.exists():
            subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
            subprocess.run(["git", "checkout", "--quiet", BEFORE], cwd=tmp_path / "clone", check=True)
            dist(folder, inputs, "--arch", "x86_64", root=tmp_path / "clone")
    (path,) = folder.glob("vedette-*-linux-x86_64.zip")
    return path


def send(place: Place, port: int, message: str) -> None:
    """A line by syslog, which is then in the raw log."""
    done = call("logger", "--server", "127.0.0.1", "--port", str(port), "--tcp", "--tag", "demo", message)
    assert done.code == 0, done.text
    until(f"{message} in the raw log", lambda: message in stored(place))


def stored(place: Place) -> str:
    """The lines in the raw log that the tests have sent."""
    return call(place.vedette, "logs", "search", "-c", place.config, "landed-test").text


def alerts(place: Place) -> int:
    return call(place.vedette, "alerts", "-c", place.config, "--json").text.count(RULE_ID)


def test_there_and_back(older: Path, zip_file: Path, place: Place) -> None:
    """Configuration, raw logs, alerts and what an operator wrote stay over the upgrade and over the rollback, and each
    release works on what the other has left."""
    done = place.install(older)
    assert done.code == 0, done.text
    first, port = place.current(), own_port()
    text = place.config.read_text().replace("127.0.0.1:514", f"127.0.0.1:{port}")
    own = re.sub(r'"/var/log/', f'"{place.folder}/', text).replace('#site = "default"', 'site = "vienna"')
    place.config.write_text(own)
    with running(place):
        send(place, port, "landed-test one install-test-marker")
        until("its alert", lambda: alerts(place) == 1)

    done = place.install(zip_file, "--upgrade", "--allow-downgrade")
    assert done.code == 0, done.text
    assert place.current() != first
    assert place.config.read_text() == own
    with running(place):
        assert "landed-test one" in stored(place)
        send(place, port, "landed-test two install-test-marker")
        until("both alerts", lambda: alerts(place) == 2)

    done = call("sh", place.prefix / "current/install.sh", "--rollback")
    assert done.code == 0, done.text
    assert place.current() == first
    assert place.config.read_text() == own
    with running(place):
        send(place, port, "landed-test three install-test-marker")
        until("all alerts", lambda: alerts(place) == 3)
        assert stored(place).count("install-test-marker") == 3


TURNS = 4
RULES = f"""
title: Marker
name: marker
id: {RULE_ID}
logsource: {{product: linux}}
detection: {{marker: {{message|contains: install-test-marker}}, condition: marker}}
level: high
---
title: As Many Markers of One Host as There Are Turns
id: 0d8f1c52-6d33-4a0f-9a53-6b6c7d0c1a07
correlation:
  type: event_count
  rules: [marker]
  group-by: [hostname]
  timespan: 1d
  condition: {{gte: {TURNS}}}
  generate: true
level: high
"""
SETTINGS = """
[agent]
id = "vienna-1"
site = "vienna"
fleet = "{fleet}"
data_dir = "{data}"
[broker]
url = "mqtts://127.0.0.1:1"
ca_file = "{member}/region-ca.pem"
cert_file = "{member}/agent.pem"
key_file = "{member}/agent.key"
[uplink]
type = "directory"
[fleet]
root = "{trust}/tuf/1.root.json"
undo_after = "4s"
[bundles]
file = "{folder}/rules.vbundle"
trusted_keys = ["{author}"]
[[input]]
name = "in"
type = "file"
paths = ["{folder}/lines"]
format = "syslog"
logsource = {{ product = "linux" }}
[log]
format = "json"
"""


class Writer(threading.Thread):
    """Writes lines into a file, whatever the agent does."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.lines: list[bytes] = []
        self.over = threading.Event()
        self._path, self._lock = path, threading.Lock()

    def write(self, host: str, message: str) -> None:
        with self._lock, self._path.open("ab") as file:
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            self.lines.append(f"<38>1 {now} {host} demo - - - {message} {len(self.lines)}".encode())
            file.write(self.lines[-1] + b"\n")

    def run(self) -> None:
        number = 0
        while not self.over.wait(0.005):
            number += 1
            self.write(f"host-{number % 7}", "install-test-marker" if number % 40 == 0 else "nothing to see")


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    writer = Writer(path)
    writer.start()
    try:
        yield writer
    finally:
        writer.over.set()
        writer.join()


def member(place: Place, centre: Centre) -> Host:
    """An installed agent of a fleet, at a site without a connection, to which an overlay has been carried."""
    host, bundle = Host(place, centre), place.folder / "rules.vbundle"
    centre_command("bundle", "build", place.folder / "rules", "-o", bundle, "--version", 1)
    centre_command("bundle", "sign", bundle, "--key", centre.folder / "author.pem")
    place.config.write_text(
        SETTINGS.format(
            fleet=FLEET, data=place.data_dir, member=centre.members / "members" / host.name, trust=centre.trust,
            folder=place.folder, author=centre.author,
        )
    )  # fmt: skip
    centre.write(config=centre.overlay("debug", '[log]\nlevel = "debug"\n'))
    centre.put_in_force(carried=True)
    carried = centre.folder / "vienna.zip"
    centre_command("fleet", "export", "--site", "vienna", "--trust", centre.trust, "--out", carried)
    done = call(place.vedette, "fleet", "import", carried, "-c", place.config)
    assert done.code == 0, done.text
    return host


def status(host: Host) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask(host.place.data_dir / "control.sock", "status")
    except (OSError, ValueError):
        return {}
    return answer


def taken_in(host: Host) -> int:
    return int(status(host).get("inputs", {}).get("in", {"stored": 0})["stored"])


def turn(host: Host, writer: Writer) -> str:
    """One turn of a release: it runs, with the overlay and the store of the one before, and takes in what comes.
    Returns the overlay's digest."""
    current = host.place.current()
    actual = host.wait(
        f"{current} and its overlay",
        lambda actual: (
            actual["release"].get("id") == current and actual["config"]["overlay"] and actual["config"]["confirmed"]
        ),
    )
    assert status(host)["disk"]["store_rebuilt"] is None
    writer.write("steady", "install-test-marker")
    lines = len(writer.lines) + 300
    until("lines of this turn", lambda: taken_in(host) >= lines)
    return str(actual["config"]["overlay"])


def settled(host: Host, lines: int) -> bool:
    """Whether all is stored, evaluated and receipted, in an account that adds up."""
    now = status(host)
    assert not now or now["identity_broken"] == []
    return bool(now) and taken_in(host) >= lines and not now["backlog"] and not now["alerts"]["in_outbox"]


@pytest.mark.long
def test_with_events_under_way(older: Path, zip_file: Path, place: Place, tmp_path: Path) -> None:
    """Upgraded, rolled back and upgraded again while lines come: each is stored once, alerts are those of `scan`, a
    correlation counts over all turns, and the fleet's overlay stays in force. The agent of the turn before is ended by
    SIGTERM, SIGKILL and SIGTERM."""
    assert place.install(older).code == 0
    (place.folder / "rules").mkdir()
    (place.folder / "rules/marker.yml").write_text(RULES)
    host = member(place, Centre(tmp_path / "centre"))
    releases, overlays = [place.current()], set()
    with writing(place.folder / "lines") as writer:
        host.start()
        try:
            overlays.add(turn(host, writer))
            for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
                if place.current() == releases[0]:
                    done = place.install(zip_file, "--upgrade", "--allow-downgrade")
                else:
                    done = call("sh", place.prefix / "current/install.sh", "--rollback")
                assert done.code == 0, done.text
                releases.append(place.current())
                os.kill(host.agent(), end)
                overlays.add(turn(host, writer))
            writer.over.set()
            writer.join()
            until("all lines to be evaluated", lambda: settled(host, len(writer.lines)))
        finally:
            host.kill()
    assert releases == [*releases[:2]] * 2
    assert releases[0] != releases[1]
    assert len(overlays) == 1
    raw = place.data_dir / "raw"
    assert len({segment.log_id for segment in segments(raw)}) == 1
    stored = [
        Stored(frame.offset + start, frame.chunk.data[start:end])
        for frame in read.frames(raw)
        for start, end in frame.chunk.spans()
    ]
    assert Counter(event.raw for event in stored) == Counter(writer.lines)
    (place.folder / "stored").write_bytes(b"".join(event.raw + b"\n" for event in stored))
    alerts = deduped(landed(place.data_dir / "alerts-landing"))
    assert by_line(alerts, stored) == scan(place.folder / "stored", rules=place.folder / "rules")
    steady = [alert for alert in alerts if alert["rule_id"] != RULE_ID and " steady " in alert["raw"]]
    assert len(steady) == 1
