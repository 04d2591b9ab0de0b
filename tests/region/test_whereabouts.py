"""At which site members are: by the region's word where there is one, in what lands over a real mosquitto, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from tests.broker import Broker, running
from tests.delivery.kit import alert, read
from tests.mqtt.kit import connected
from tests.waits import DEADLINE, eventually
from vedette.cli.main import main as cli
from vedette.delivery.envelope import decode_row, encode, landed, pack_batch, status_row
from vedette.delivery.topics import agent_topic
from vedette.fleet.audit import Audit
from vedette.mqtt.settings import MqttSettings
from vedette.region.enroll import Region
from vedette.region.land import Landing, LandingSettings
from vedette.region.whereabouts import Place, Whereabouts

FLEET = "f1"
NOTE = "states another site than it is enrolled at: {}"


def enrolled(folder: Path, sites: Mapping[str, str], fleet: str = FLEET) -> Path:
    """The folder of a region whose members are at these sites; "": their token had no label of it."""
    with Region.open(folder) as region:
        region.broker = "mqtts://region.example:8883"
        for name, site in sites.items():
            public = ec.generate_private_key(ec.SECP256R1()).public_key()
            region.admit(name, public, fleet=fleet, labels={"site": site, "os": "debian"} if site else {})
    return folder


def move(folder: Path, name: str, site: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["member", "move", name, "--site", site, "--folder", str(folder)])
    assert done.exit_code == code, done.output
    return done.output


def test_the_region_decides(tmp_path: Path) -> None:
    """Its label wins over what the agent states; without one, or without enrolment, the agent's word counts."""
    sites = Whereabouts(enrolled(tmp_path, {"web-1": "vienna", "web-2": ""}))
    for stated, differing in (("vienna", None), ("default", None), ("", None), (None, None), ("linz", "linz")):
        assert sites.place(FLEET, "web-1", stated) == Place("vienna", differing)
    for fleet, name in ((FLEET, "web-2"), (FLEET, "unknown"), ("f2", "web-1")):
        assert sites.place(fleet, name, "linz") == Place("linz")
    assert Whereabouts(None).place(FLEET, "web-1", "linz") == Place("linz")
    assert sites.place(FLEET, "web-1", "linz").note == NOTE.format("linz")


def test_a_member_moves(tmp_path: Path) -> None:
    """A change is taken up, for a member without a label as well, and is in the audit record; a revoked one stays where
    it was."""
    folder = enrolled(tmp_path, {"web-1": "vienna", "web-2": ""})
    sites = Whereabouts(folder)
    assert not sites.look()
    move(folder, "web-1", "linz")
    move(folder, "web-2", "graz")
    assert sites.look()
    assert [sites.place(FLEET, name, "x").site for name in ("web-1", "web-2")] == ["linz", "graz"]
    moved = [line for line in Audit(folder / "audit.jsonl").lines() if line["event"] == "moved"]
    assert [(line["name"], line["site"], line["former"]) for line in moved] == [
        ("web-1", "linz", "vienna"), ("web-2", "graz", ""),
    ]  # fmt: skip
    with Region.open(folder) as region:
        region.revoke("web-1")
        region.enroll("land-1", role="landing")
    assert sites.look()
    assert sites.place(FLEET, "web-1", "x").site == "linz"
    for name, site, reason in (
        ("web-1", "linz", "is not enrolled"), ("land-1", "linz", "only agents are at a site"),
        ("web-2", "New York", "site New York: expects"), ("web-2", ".", "site .: expects"),
    ):  # fmt: skip
        assert reason in move(folder, name, site, code=2)


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    """At the start it is refused; later what was read before stays in force until it is whole, which is logged once."""
    with pytest.raises(FileNotFoundError):
        Whereabouts(tmp_path)
    folder = enrolled(tmp_path, {"web-1": "vienna"})
    sites, members = Whereabouts(folder), folder / "members.json"
    whole = members.read_bytes()
    members.write_bytes(whole[:100])
    with pytest.raises(ValueError, match=r"members\.json cannot be read"):
        Whereabouts(folder)
    with capture_logs() as logs:
        assert not sites.look()
        assert not sites.look()
        members.unlink()
        assert not sites.look()
    assert [entry["event"] for entry in logs] == ["members_unreadable"] * 2
    assert sites.place(FLEET, "web-1", "linz").site == "vienna"
    members.write_bytes(whole.replace(b"vienna", b"linz"))
    assert sites.look()
    assert sites.place(FLEET, "web-1", "x").site == "linz"


def test_rows_are_stamped(tmp_path: Path) -> None:
    """An alert and a heartbeat land at the region's site, with the other one that the agent states beside it; the
    payload of a heartbeat stays as it came; the log names the agent once."""
    settings = LandingSettings(MqttSettings(url="mqtt://127.0.0.1:1"), tmp_path / "landing",
                               members=enrolled(tmp_path, {"a1": "vienna"}))  # fmt: skip
    service = Landing(settings)
    about: dict[str, Any] = {"received_at": 0, "collector_id": "c", "topic": "t"}
    payload = json.dumps({"agent_id": "a1", "fleet": FLEET, "site": "linz"}).encode()
    with capture_logs() as logs:
        for row in (
            landed(decode_row(encode(alert(1, site="linz"))), **about),
            status_row(payload, agent_id="a1", fleet=FLEET, **about),
        ):
            placed = service._placed(row)
            assert (placed["site"], placed["stated_site"]) == ("vienna", "linz")
        assert placed["payload"].encode() == payload
        own = service._placed(landed(decode_row(encode(alert(2, site="vienna"))), **about))
        stranger = service._placed(landed(decode_row(encode(alert(3, agent_id="a2", site="linz"))), **about))
    assert [(row["site"], row["stated_site"]) for row in (own, stranger)] == [("vienna", None), ("linz", None)]
    assert [(entry["event"], entry["agent"], entry["site"], entry["stated"]) for entry in logs] == [
        ("site_differs", "a1", "vienna", "linz")
    ]


@asynccontextmanager
async def landing(broker: Broker, folder: Path, members: Path) -> AsyncIterator[Landing]:
    """A landing that knows the members; what it has taken is on disk at the end."""
    service = Landing(LandingSettings(MqttSettings(url=broker.url), folder, max_seconds=0.05, members=members))
    task = asyncio.create_task(service.run())
    await asyncio.wait_for(service.client.connected.wait(), DEADLINE)
    try:
        yield service
        await asyncio.wait_for(service.stop(), DEADLINE)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.peer
async def test_one_states_the_others_site(tmp_path: Path) -> None:
    """Of two members one states the other's site in alert, heartbeat and last will: each lands where the region has it,
    and once the member has moved, where it is then."""
    members, folder = enrolled(tmp_path / "region", {"a1": "vienna", "a2": "linz"}), tmp_path / "landing"
    with running(tmp_path / "broker") as broker:
        async with landing(broker, folder, members) as service, connected(broker.url, "any") as client:

            async def say(agent: str, site: str, seq: int) -> None:
                data = encode(alert(seq, agent_id=agent, site=site))
                await client.publish(agent_topic(FLEET, agent, "alerts"), pack_batch("log", [data]))
                for state in ("running", "lost"):
                    beat = {"agent_id": agent, "fleet": FLEET, "site": site, "state": state}
                    await client.publish(agent_topic(FLEET, agent, "status"), json.dumps(beat).encode())

            await say("a1", "vienna", 1)
            await say("a2", "vienna", 2)
            await eventually("both", lambda: (service.landed["alerts"], service.landed["status"]) == (2, 4))
            move(members, "a2", "vienna")
            await say("a2", "vienna", 3)
            await eventually("the last", lambda: (service.landed["alerts"], service.landed["status"]) == (3, 6))
    alerts = {row["seq"]: (row["agent_id"], row["site"], row["stated_site"]) for row in read(folder, "alerts")}
    assert alerts == {1: ("a1", "vienna", None), 2: ("a2", "linz", "vienna"), 3: ("a2", "vienna", None)}
    beats = sorted((row["agent_id"], row["site"], row["stated_site"] or "") for row in read(folder, "status"))
    assert beats == [("a1", "vienna", "")] * 2 + [("a2", "linz", "vienna")] * 2 + [("a2", "vienna", "")] * 2
    assert not (folder / "bad").exists()
