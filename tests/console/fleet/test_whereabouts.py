"""Who sees an agent in the live view depends on the site that the region knows, not on the one that it states."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.console.fleet.kit import ADMIN, VIENNA, Agents, Region, beat
from tests.fleet.kit import FLEET, desired, group
from tests.region.test_whereabouts import NOTE, enrolled, move
from tests.waits import eventually
from vedette.delivery.topics import agent_topic
from vedette.mqtt.connection import Message
from vedette_console.fleet.live import Live
from vedette_console.fleet.sight import Sight
from vedette_console.security.principal import Grant, Principal, Role

LINZ = Principal("lin", "user", (Grant(Role.OPERATOR, FLEET, "linz"),))


def seen(live: Live, who: Principal) -> set[str]:
    return {beat.agent for beat in Sight(live, who).beats()}


def test_an_agent_is_seen_at_its_own_site(tmp_path: Path) -> None:
    """One of linz states vienna, also as its last will: vienna's user does not see it, that of linz does; without the
    region's word its own counts."""
    members = enrolled(tmp_path, {"linz-1": "linz"}, FLEET)
    lives = [Live(None, FLEET, lambda topic, place: None, members=folder) for folder in (members, None)]
    for live in lives:
        for row in (beat("linz-1", "vienna"), beat("linz-2", "vienna"), {**beat("linz-1", "vienna"), "state": "lost"}):
            topic = agent_topic(FLEET, str(row["agent_id"]), "status")
            live._heartbeat(Message(topic, orjson.dumps(row), 0, False, False, 0))
    assert [(seen(live, VIENNA), seen(live, LINZ)) for live in lives] == [
        ({"linz-2"}, {"linz-1"}), ({"linz-1", "linz-2"}, set()),
    ]  # fmt: skip
    notes = {beat.agent: beat.site_note for beat in lives[0].beats()}
    assert notes == {"linz-1": NOTE.format("vienna"), "linz-2": ""}


@pytest.mark.peer
async def test_over_a_broker(tmp_path: Path) -> None:
    """Its row and page say that it states another site; once it has moved, it is seen there without a heartbeat."""
    region = Region(tmp_path, desired(1, group("all", "all")))
    members = enrolled(tmp_path / "region", {"linz-1": "linz"}, FLEET)
    region.broker.start()
    try:
        async with (
            Agents(region.settings, region.authority, {"linz-1": "vienna"}).running() as agents,
            region.console(members=members) as fleet,
        ):
            await agents.heartbeat("linz-1")
            await eventually("its heartbeat", lambda: fleet.live.beat(FLEET, "linz-1"))
            (row,) = fleet.overview.page(LINZ).items
            assert (row.site, row.reasons[0]) == ("linz", NOTE.format("vienna"))
            assert fleet.overview.page(VIENNA).items == []
            move(members, "linz-1", "vienna")
            await eventually("the move", lambda: fleet.overview.page(VIENNA).items)
            assert fleet.overview.page(LINZ).items == []
            assert NOTE.format("vienna") not in fleet.overview.agent(ADMIN, FLEET, "linz-1").row.reasons
    finally:
        region.broker.kill()
