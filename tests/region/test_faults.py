"""Between agent and landing everything goes wrong: nothing is lost, and the alerts' ids tell doubles."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.broker import Broker, running
from tests.certificates import Authority
from tests.delivery.kit import Box, Up, read
from tests.faults import proxied
from tests.region.test_land import Land
from tests.waits import DEADLINE, eventually
from vedette.delivery import landing as landing_folder
from vedette.mqtt import connection as mqtt
from vedette.mqtt.settings import MqttSettings
from vedette.region.land import Landing, LandingSettings

pytestmark = pytest.mark.peer


async def test_a_broker_that_never_acknowledges(
    broker: Broker, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes messages, answers pings and acknowledges nothing is left and tried anew, and is told; once it
    acknowledges, all alerts are landed and receipted, whatever came doubled has the same id."""
    monkeypatch.setattr(mqtt, "ACK_SECONDS", 0.4)
    folder = tmp_path / "landing"

    with capture_logs() as logs:
        async with proxied(broker.port) as proxy:
            service = await Land(broker, folder).connected()
            up = await Up(proxy.url, box, max_inflight=2).connected()
            proxy.mode = "no puback"
            box.put(3000)
            await eventually("three attempts", lambda: proxy.connections >= 3)
            assert proxy.swallowed
            assert box.outbox.depth
            proxy.mode = "pass"
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            await up.stop()
            await service.stop()
    ids = {row["alert_id"] for row in read(folder, "alerts")}
    assert ids == {f"{seq:032x}" for seq in range(1, 3001)}
    assert box.counters.totals["alerts_receipted"] == 3000
    away = [entry["reason"] for entry in logs if entry["event"] == "broker_away"]
    assert any("acknowledged nothing for 0.4 s" in reason for reason in away)


async def test_a_network_that_goes_silent_or_cuts(
    broker: Broker, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that are taken and lead nowhere, and connections that are cut again and again: the agent goes on
    trying, and all is landed when the way is free."""
    monkeypatch.setattr(mqtt, "ACK_SECONDS", 0.3)
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.5)
    folder = tmp_path / "landing"
    async with proxied(broker.port) as proxy:
        service = await Land(broker, folder).connected()
        up = await Up(proxy.url, box).connected()
        for mode in ("silent", "reset", "silent"):
            before = proxy.connections
            proxy.mode = mode  # type: ignore[assignment]
            if mode == "reset":
                proxy.cut()
            box.put(400)
            await eventually("a further attempt", lambda before=before: proxy.connections > before + 1)  # type: ignore[misc]
        proxy.mode = "pass"
        proxy.cut()
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        await up.stop()
        await service.stop()
    assert {row["seq"] for row in read(folder, "alerts")} == set(range(1, 1201))


async def test_names_that_do_not_resolve(box: Box) -> None:
    """A broker's name that DNS does not know is an outage with that reason; alerts stay in the outbox."""

    with capture_logs() as logs:
        up = Up("mqtt://broker.invalid:1883", box)
        box.put(10)
        await eventually("three attempts", lambda: up.uplink.client.attempts >= 3)
        assert not up.task.done()
        await up.stop()
    (away,) = [entry for entry in logs if entry["event"] == "broker_away"]
    assert "broker.invalid" in away["broker"]
    assert "not known" in away["reason"] or "resolution" in away["reason"]
    assert box.outbox.depth == 10


def test_a_certificate_that_expires_in_between(tmp_path: Path, box: Box) -> None:
    """An agent whose certificate is no longer good keeps its alerts and says which file expired; with a renewed one it
    sends them, without a restart."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("a1")
    asks = ("require_certificate true",)
    tls = (authority.ca, *authority.issue("broker"))
    folder = tmp_path / "landing"
    with running(tmp_path / "broker", tls=tls, extra=asks) as broker:
        own = {"ca_file": authority.ca, "cert_file": cert, "key_file": key}

        async def main() -> None:
            landing = Landing(
                LandingSettings(
                    MqttSettings(broker.url, **own),
                    folder,
                    max_seconds=0.05,
                    backoff=(0.02, 0.1),  # type: ignore[arg-type]
                )
            )
            land = asyncio.create_task(landing.run())
            await asyncio.wait_for(landing.client.connected.wait(), DEADLINE)
            up = await Up(broker.url, box, broker=MqttSettings(url=broker.url, **own)).connected()
            box.put(20)
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            authority.issue("a1", expired=True)
            broker.restart()
            box.put(30)
            await eventually("the uplink's attempts", lambda: up.uplink.client.attempts >= 4)
            await eventually("the landing's attempts", lambda: landing.client.attempts >= 4)
            assert box.outbox.depth == 30
            authority.issue("a1")
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            await up.stop()
            await landing.stop()
            await land

        with capture_logs() as logs:
            asyncio.run(main())
    assert {row["seq"] for row in read(folder, "alerts")} == set(range(1, 51))
    reasons = [entry["reason"] for entry in logs if entry["event"] == "broker_away"]
    assert any(f"our certificate {cert} expired at" in reason for reason in reasons)


ORDER = r"""
import os, sys
from pathlib import Path
from vedette.delivery import landing
from tests.delivery.kit import alert
from vedette.delivery.envelope import decode_row, encode, landed
folder = landing.LandingFolder(Path(sys.argv[1]), "w")
rows = [landed(decode_row(encode(alert(1))), received_at=0, collector_id="c", topic="t")]
steps = []
real = os.fsync
os.fsync = lambda fd: (steps.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1]
rename = Path.rename
Path.rename = lambda self, to: (steps.append("rename"), rename(self, to))[1]
path = folder.write("alerts", rows, 1_795_228_874_000_000)
print("\n".join(steps))
print(path)
"""


def test_durable_before_it_is_told(tmp_path: Path) -> None:
    """A landed file is synced before it gets its name, and its folder after; so are new folders. Only then is anything
    acknowledged (``Landing._write`` goes in that order)."""
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'agent'}:{root}"}
    command = [sys.executable, "-c", ORDER, str(tmp_path / "landing")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    *steps, path = done.stdout.splitlines()
    at = steps.index("rename")
    assert "/.tmp/w-" in steps[at - 1]
    assert steps[at + 1] == os.path.dirname(path)
    assert steps[:at].count(str(tmp_path / "landing" / "alerts")) == 1  # the new dt= folder's name


async def test_no_acknowledgement_before_the_folder_is_synced(
    broker: Broker, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the sync of the folder hangs nothing is acknowledged and no receipt leaves; when it fails, the batch is
    written again and all is landed."""
    folder = tmp_path / "landing"
    real, state = landing_folder.sync_path, {"hang": True, "failed": 0}

    def sync(path: Path) -> None:
        if "hh=" in path.name and state["hang"]:
            state["failed"] += 1
            raise OSError(5, "Input/output error")
        real(path)

    monkeypatch.setattr(landing_folder, "sync_path", sync)

    with capture_logs() as logs:
        service = await Land(broker, folder).connected()
        up = await Up(broker.url, box).connected()
        box.put(300)
        await eventually("three failures", lambda: state["failed"] >= 3)
        assert box.outbox.depth == 300
        assert "Received PUBACK from vedette-landing" not in broker.log()
        state["hang"] = False
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        await up.stop()
        await service.stop()
    assert {row["seq"] for row in read(folder, "alerts")} == set(range(1, 301))
    assert [entry["event"] for entry in logs].count("landing_failed") >= 1
