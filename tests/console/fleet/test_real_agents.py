"""Real agents over TLS and the access list: a hunt that outlives a killed console, evidence, questions."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.fleet.alone import settings_of
from tests.console.fleet.kit import ADMIN
from tests.e2e.agent import up
from tests.e2e.test_asking import EVENTS, Asked, Operators
from tests.e2e.test_fleet import FLEET
from tests.waits import eventually
from vedette.rawlog.read import search
from vedette.region.evidence import Found
from vedette_console.fleet.models_asked import EvidenceOrder, Question
from vedette_console.fleet.service import Fleet

pytestmark = [pytest.mark.peer, pytest.mark.long, pytest.mark.usefixtures("awake")]
RULE = """title: Event of Seventeen
id: 5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a17
logsource: {product: linux}
detection: {k: ['event 000017'], condition: k}
level: high
"""


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Operators]:
    centre = Operators(tmp_path / "centre")
    yield centre
    centre.broker.kill()


def options(centre: Operators) -> dict[str, Any]:
    member, folder = centre.analyst, centre.folder
    return {
        "broker": {"url": centre.broker.url, "ca_file": f"{member}/region-ca.pem", "cert_file": f"{member}/agent.pem",
                   "key_file": f"{member}/agent.key"},
        "work": f"{folder}/work", "trust": f"{centre.trust}", "requests": f"{folder}/asked", "operator": "ann",
        "evidence": f"{folder}/kept", "operator_key": f"{folder}/ann.pem", "authorities": f"{member}/region-ca.pem",
    }  # fmt: skip


async def test_killed_in_the_middle(centre: Operators, tmp_path: Path) -> None:
    """A hunt waits for an agent that is down; its console is killed; the next one goes on, also with what the first
    had, and then asks for evidence and a question."""
    vienna = Asked(tmp_path / "vienna", centre, "vienna-1", "vienna")
    linz = Asked(tmp_path / "linz", centre, "linz-1", "linz")
    centre.broker.start()
    with up(vienna, linz):
        centre.introduce(vienna, linz)
        for host in (vienna, linz):
            await asyncio.to_thread(host.fed)
        linz.stop()
        said = tmp_path / "id"
        words = [sys.executable, "-m", "tests.console.fleet.alone", json.dumps(options(centre)), RULE, "2", str(said)]
        with subprocess.Popen(words) as console:
            await eventually("the hunt", lambda: said.exists() and len(said.read_text()) == 32)
            console.kill()
        id = said.read_text()
        linz.start()
        fleet = Fleet(settings_of(options(centre)), FLEET, lambda topic, data: None)
        await fleet.start()
        try:
            await eventually("the end of the hunt", lambda: fleet.desk.at_work(id) is None)
            page = fleet.hunts.hunt(ADMIN, id)
            assert page.hunt.state == "done", page
            assert {(row.agent, row.state, row.matches) for row in page.agents} == {
                ("vienna-1", "done", 1), ("linz-1", "done", 1),
            }, page  # fmt: skip
            assert [rule.title for rule in page.rules] == ["Event of Seventeen"]
            assert page.hunt.events == 2 * EVENTS
            assert all("s3cret" not in str(match.fields) for match in page.matches)

            hit = next(search(vienna.data / "raw", pattern=re.compile(rb"event 000150 ")))
            ref = {"log_id": hit.log_id, "offset": hit.offset, "length": hit.length}
            fleet.evidence._locate = lambda day, agent, alert: Found(alert, agent, ref)
            order = EvidenceOrder(alert="a-17", agent="vienna-1", day="2026-11-22", around=2, reason="case 17")
            job = (await fleet.evidence.pull(ADMIN, order)).job.id
            await eventually("the evidence", lambda: fleet.desk.at_work(job) is None)
            reply = fleet.evidence.reply(ADMIN, job)
            assert [line.text.split("event ")[1][:6] for line in reply.lines] == [f"{n:06}" for n in range(148, 153)]
            assert ["000150" in line.text for line in reply.lines if line.alert] == [True]
            assert all("[redacted]" in line.text for line in reply.lines)
            answer = await fleet.questions.ask(ADMIN, FLEET, "vienna-1", Question(question="versions"))
            assert answer.records["vienna-1"][0]["vedette"]
        finally:
            await fleet.stop()
