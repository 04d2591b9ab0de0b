"""What the console hears over a real mosquitto: heartbeats, last wills, progress; outages, forgeries and floods."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.console.fleet.kit import ADMIN, NOBODY, VIENNA, Agents, Region, beat
from tests.fleet.kit import FLEET, desired, group
from tests.region.anything import spoiled
from tests.waits import eventually
from vedette.bundle.manifest import rfc3339
from vedette.cli.main import main
from vedette.delivery.topics import steer_topic
from vedette.mqtt.connection import Message
from vedette.region.reload.health import Entry, packed
from vedette.region.sign import load_key
from vedette.region.steer.sealed import seal
from vedette.system.wallclock import utc_now
from vedette_console.fleet import live, overview
from vedette_console.fleet.live import Live
from vedette_console.fleet.overview import SILENT_SECONDS
from vedette_console.fleet.service import Fleet
from vedette_console.web import Problem

pytestmark = pytest.mark.peer
YEAR = 365 * 86_400_000_000
SITES = {"vienna-1": "vienna", "vienna-2": "vienna", "linz-1": "linz"}


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region(tmp_path, desired(1, group("vienna", "site = vienna"), group("rest")))


async def test_desired_against_actual(region: Region) -> None:
    """Agents by group with reasons, those in trouble first; a last will is seen; each sees their own sites alone."""
    region.broker.start()
    try:
        async with Agents(region.settings, region.authority, SITES).running() as agents:
            await agents.heartbeat("vienna-1")
            await agents.heartbeat("vienna-2", actual={"problems": ["bundle: too new"], "labels": {"site": "vienna"}})
            await agents.heartbeat("linz-1", actual={"desired_serial": 0})
            async with region.console(heard=3) as fleet:
                await eventually("the connection", lambda: fleet.overview.page(ADMIN).link.state == "connected")
                page = fleet.overview.page(ADMIN)
                assert [(row.agent, row.group, row.state) for row in page.items] == [
                    ("vienna-2", "vienna", "problem"), ("vienna-1", "vienna", "as wanted"),
                    ("linz-1", "rest", "behind"),
                ]  # fmt: skip
                assert page.items[0].reasons == ["bundle: too new"]
                assert page.items[2].reasons == ["follows desired serial 0, not 1"]
                assert [(group.name, group.agents, group.as_wanted) for group in page.groups] == [
                    ("vienna", 2, 1),
                    ("rest", 1, 0),
                ]
                assert page.controller.state == "silent"
                assert page.items[1].events_lost == 2
                assert page.labels == {"site": {"vienna": 2, "linz": 1}}
                assert [operator.name for operator in page.operators if operator.console] == ["otto"]

                await agents.lost("linz-1")
                await eventually("the last will", lambda: fleet.live.beat(FLEET, "linz-1").lost)  # type: ignore[union-attr]
                (row,) = (fleet.overview.page(ADMIN, state="away")).items
                assert (row.agent, row.health, row.site) == ("linz-1", "lost", "linz")

                assert {row.agent for row in (fleet.overview.page(VIENNA)).items} == {"vienna-1", "vienna-2"}
                assert (fleet.overview.page(NOBODY)).items == []
                assert [row.agent for row in (fleet.overview.page(ADMIN, q="site=vienna too")).items] == ["vienna-2"]
                first = fleet.overview.page(ADMIN, limit=2)
                assert (fleet.overview.page(ADMIN, offset=int(first.next or 0), limit=2)).total == 3
                detail = fleet.overview.agent(ADMIN, FLEET, "vienna-1")
                assert detail.inputs[0].evaluated == 9
                assert detail.alerting == {"r1": 4}
                assert detail.may == ["fleet.ask", "evidence", "hunt"]
                with pytest.raises(Problem) as refused:
                    fleet.overview.agent(VIENNA, FLEET, "linz-1")
                assert refused.value.status == 404
    finally:
        region.broker.kill()


async def test_one_id_of_two_machines(region: Region) -> None:
    """An agent of which two machines send heartbeats says so in its row and on its page, also after a last will."""
    region.broker.start()
    try:
        async with Agents(region.settings, region.authority, SITES).running() as agents, region.console() as fleet:
            now = utc_now()
            await agents.heartbeat("linz-1")
            await eventually("the other agent", lambda: fleet.live.beat(FLEET, "linz-1"))
            for turn in range(3):
                life = {
                    "raw_log": {"log_id": "ab"[turn % 2] * 32},
                    "started_at": now + turn % 2,
                    "time": now + 10 + turn,
                }
                await agents.heartbeat("vienna-1", **life)
                await agents.lost("vienna-1")
            await eventually("its note", lambda: (beat := fleet.live.beat(FLEET, "vienna-1")) and beat.note)
            rows = {row.agent: row.reasons for row in (fleet.overview.page(ADMIN)).items}
            assert rows["vienna-1"][0].startswith("two machines or processes have this agent's id: raw log aaaaaaaa,")
            assert not [reason for reason in rows["linz-1"] if "two machines" in reason]
            page = fleet.overview.agent(ADMIN, FLEET, "vienna-1")
            assert page.row.reasons == rows["vienna-1"]
    finally:
        region.broker.kill()


async def test_a_broker_that_is_away(region: Region) -> None:
    """Is shown as such, with what was heard before; when it is back the console hears again by itself."""
    async with region.console() as fleet:
        await eventually("the outage", lambda: fleet.live.link().state == "away")
        page = fleet.overview.page(ADMIN)
        assert page.link.reason
        assert page.items == []
        assert page.controller.state == "unknown"
        region.broker.start()
        try:
            async with Agents(region.settings, region.authority, SITES).running() as agents:
                await agents.heartbeat("linz-1")
                await eventually("the heartbeat", lambda: fleet.live.beat(FLEET, "linz-1"))
                assert fleet.live.link().state == "connected"
            region.broker.kill()
            await eventually("the outage", lambda: fleet.live.link().state == "away")
            assert [row.agent for row in (fleet.overview.page(ADMIN)).items] == ["linz-1"]
        finally:
            region.broker.kill()


async def test_what_is_no_heartbeat(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bytes, shapes and sizes are passed over or shown as nothing; agents and bytes are bounded."""
    monkeypatch.setattr(live, "MAX_AGENTS", 4)
    monkeypatch.setattr(live, "RAW_BYTES", 20_000)
    region.broker.start()
    try:
        names = {f"a-{i}": "vienna" for i in range(8)}
        async with region.console() as fleet, Agents(region.settings, region.authority, names).running() as agents:
            await eventually("a connection", lambda: fleet.live.link().state == "connected")
            odd = b'{"state": 7, "actual": [1], "inputs": {"a": 3}, "time": -1}'
            odder = b'{"actual": {"labels": [1], "problems": {"a": 1}, "bundles": 3}, "alerts": "x", "rules": []}'
            for data in (b"", b"\xff\xfe", b"[1,2]", b"7", odd, odder):
                await agents.say("a-0", "status", data)
            for name in names:
                await agents.heartbeat(name, padding="x" * 15_000)
            await eventually("all of them", lambda: fleet.live.link().dropped == 4)
            page = fleet.overview.page(ADMIN)
            assert page.total == 4
            assert page.link.dropped == 4
            whole = [(fleet.overview.agent(ADMIN, FLEET, row.agent)).raw is not None for row in page.items]
            assert whole.count(True) == 1
    finally:
        region.broker.kill()


@pytest.mark.parametrize("retained", [False, True])
async def test_heard_while_a_clock_was_ahead(region: Region, monkeypatch: pytest.MonkeyPatch, retained: bool) -> None:
    """An agent that was heard while the console's clock was ahead, or whose own is, is silent when nothing comes."""
    now = utc_now()
    region.broker.start()
    try:
        async with Agents(region.settings, region.authority, SITES).running() as agents:
            if retained:
                await agents.heartbeat("linz-1", time=now + YEAR)
            monkeypatch.setattr(Live.__init__, "__defaults__", (lambda: now + (0 if retained else YEAR), None))
            async with region.console(heard=retained) as fleet:
                await eventually("the connection", lambda: fleet.live.connected)
                if not retained:
                    await agents.heartbeat("linz-1", time=now)
                await eventually("the heartbeat", lambda: fleet.live.beat(FLEET, "linz-1"))
                health = []
                for seconds in (0, SILENT_SECONDS + 1):
                    monkeypatch.setattr(overview, "utc_now", lambda at=now + seconds * 1_000_000: at)
                    health += [row.health for row in fleet.overview.page(ADMIN).items]
                assert health == ["running", "silent"]
    finally:
        region.broker.kill()


async def test_progress_that_the_controller_did_not_sign(region: Region) -> None:
    """Counts for nothing; what it did sign is shown, and called old when it is, or comes from the future."""
    region.broker.start()
    try:
        async with region.console() as fleet, Agents(region.settings, region.authority, SITES).running() as agents:
            topic, now = steer_topic(FLEET, "progress"), utc_now() // 1_000_000
            row = {"fleet": FLEET, "holder": "east", "desired_serial": 1, "changes": [], "requests": {}, "time": now}
            await agents.client.publish(topic, seal("progress", row, Ed25519PrivateKey.generate()), retain=True)
            await agents.heartbeat("linz-1")
            await eventually("what was sent after it", lambda: fleet.live.beat(FLEET, "linz-1"))
            await eventually("the link", lambda: fleet.live.connected)  # messages may come before it is all there
            assert (fleet.rollouts.page(ADMIN)).controller.state == "silent"
            key = load_key(region.folder / "trust/online/rollout.pem")
            for age, state in ((0, "reports"), (600, "old"), (-600, "old")):
                await agents.client.publish(topic, seal("progress", {**row, "time": now - age}, key), retain=True)
                await agents.heartbeat("linz-1", version=state)
                await eventually("what was sent after it", partial(runs, fleet, state))
                page = fleet.rollouts.page(ADMIN)
                assert (page.controller.state, page.controller.holder, page.old) == (state, "east", state == "old")
    finally:
        region.broker.kill()


async def test_lookups_that_were_not_reloaded(region: Region) -> None:
    """Are named with the reason by the console and by `fleet status`, whose exit code is 1, once their time is over;
    what is no such report counts for nothing."""
    region.broker.start()
    try:
        async with region.console() as fleet, Agents(region.settings, region.authority, SITES).running() as agents:
            topic, now = steer_topic(FLEET, "lookups"), utc_now()
            old = Entry("staff", now - 7_200_000_000, 3_600_000_000, 5, "HTTP 500")
            says = packed([old, Entry("assets", now, 3_600_000_000, 5, "HTTP 500")])
            for version, data in enumerate((b"\xff", b"[]", b'{"format": 1, "lookups": [{"name": 7}]}', says)):
                await agents.client.publish(topic, data, retain=True)
                await agents.heartbeat("linz-1", version=f"{version}")
                await eventually("what was sent after it", partial(runs, fleet, f"{version}"))
                warnings = [row for row in fleet.overview.page(ADMIN).warnings if row.reason]
                assert len(warnings) == (data is says)
            text = f"not reloaded since {rfc3339(old.since)}: HTTP 500"
            assert (warnings[0].role, warnings[0].reason) == ("lookup staff", text)
            command = ["fleet", "status", "--trust", str(region.folder / "trust"), "--broker", region.settings.url]
            shown = await asyncio.to_thread(CliRunner().invoke, main, command)
            assert (f"NOT OK: lookup staff: {text}\n" in shown.stderr, shown.exit_code) == (True, 1)
            assert "assets" not in shown.output
    finally:
        region.broker.kill()


async def test_any_heartbeat(region: Region) -> None:
    """Whatever 500 heartbeats of an agent say, nested and out of all bounds too: the link stays, and both it and the
    others are shown, in lists and on their pages."""
    region.broker.start()
    try:
        async with Agents(region.settings, region.authority, SITES).running() as agents, region.console() as fleet:
            await eventually("a connection", lambda: fleet.live.link().state == "connected")
            rng = random.Random(9)
            good = beat("vienna-1", "vienna", raw_log={"log_id": "a" * 32}, backlog={"in": 1}, trusted_until=utc_now())
            for turn in range(500):
                await agents.say("vienna-1", "status", spoiled(rng, good))
                if turn % 25 == 0:
                    await agents.heartbeat("linz-1", version=f"turn {turn}")
                    await eventually("the other agent", lambda: runs(fleet, f"turn {turn}"))  # noqa: B023
                    assert {row.agent for row in fleet.overview.page(ADMIN).items} >= {"linz-1"}
                    if fleet.live.beat(FLEET, "vienna-1"):
                        assert fleet.overview.agent(ADMIN, FLEET, "vienna-1").model_dump_json()
            assert fleet.live.link().state == "connected"
    finally:
        region.broker.kill()


async def test_a_link_that_ended_is_begun_again(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error beside all messages is shown as the reason, and the console connects again."""
    region.broker.start()
    try:
        async with Agents(region.settings, region.authority, SITES).running() as agents, region.console() as fleet:
            await eventually("a connection", lambda: fleet.live.link().state == "connected")
            client, acknowledge, failed = fleet.live._client, None, []
            assert client is not None
            acknowledge = client.ack

            def ack(message: Message) -> None:
                if not failed:
                    failed.append(message)
                    raise TypeError("nobody foresaw this")
                acknowledge(message)

            monkeypatch.setattr(client, "ack", ack)
            await agents.heartbeat("linz-1")
            await eventually("the error", lambda: "nobody foresaw this" in fleet.live.link().reason)
            await eventually("the link", lambda: fleet.live.link().state == "connected")
            await agents.heartbeat("vienna-1")
            await eventually("a heartbeat", lambda: fleet.live.beat(FLEET, "vienna-1"))
    finally:
        region.broker.kill()


def runs(fleet: Fleet, version: str) -> bool:
    return (fleet.live.raw(FLEET, "linz-1") or {}).get("version") == version


async def test_without_anything(tmp_path: Path) -> None:
    """A console that was given neither broker nor documents says so, and how to give them."""
    region = Region(tmp_path)
    async with region.console(broker=None, trust=None, requests=None, operator_key=None) as fleet:
        page = fleet.overview.page(ADMIN)
        assert (page.link.state, page.groups, (fleet.rollouts.page(ADMIN)).items) == ("none", [], [])
        with pytest.raises(Problem, match="no broker") as refused:
            await fleet.rollouts.order(ADMIN, "x", "pause", "because")
        assert refused.value.status == 503
        assert "--broker" in refused.value.body.what_to_do
