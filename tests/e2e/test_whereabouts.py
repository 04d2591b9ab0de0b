"""The real path: hosts that enrol by tokens of two sites, a real broker with its access list, the real landing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent, Process, landed
from tests.e2e.test_enrolment import Centre, joined
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]

LINE = b"<86>Nov 21 02:41:14 web9 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2\n"


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    region = Centre(tmp_path)
    yield region
    region.stop()


def host(centre: Centre, name: str, label: str, setting: str = "") -> Agent:
    """An agent that enrols by a token of the site ``label``; its own file says ``setting``."""
    agent = centre.agent(name, centre.token("--labels", f"site={label}"))
    own = f'id = "{name}"\n' + (f'site = "{setting}"\n' if setting else "")
    text = agent.config.read_text().replace(f'id = "{name}"\n', own)
    agent.config.write_text(f'{text}[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    agent.start()
    return agent


def test_an_agent_that_states_another_site(centre: Centre) -> None:
    """It enrolled at linz and its file says vienna: its alert and its heartbeats land at linz, with what it states
    beside them; one whose file says nothing, and that enrolled while the landing ran, lands at its own."""
    home, folder = centre.region / "members/land-1", centre.folder / "landing"
    landing = Process(
        centre.folder / "landing.log", "region", "land", "--broker", centre.broker.url, "--landing", folder,
        "--seconds", "0.2", "--client-id", "vedette-land-1", "--ca-file", home / "region-ca.pem", "--cert-file",
        home / "agent.pem", "--key-file", home / "agent.key", "--members", centre.region,
    )  # fmt: skip
    landing.start()
    try:
        until("the landing", lambda: "broker_connected" in landing.text())
        agents = [host(centre, "web-1", "linz", "vienna"), host(centre, "web-2", "vienna")]
        for agent in agents:
            until("the agent to join", lambda agent=agent: joined(agent))
            tcp(("127.0.0.1", agent.port), LINE)
        for table in ("alerts", "status"):
            until(f"{table} of both", lambda table=table: len({row["agent_id"] for row in landed(folder, table)}) == 2)
            places = {(row["agent_id"], row["site"], row["stated_site"]) for row in landed(folder, table)}
            assert places == {("web-1", "linz", "vienna"), ("web-2", "vienna", None)}
        assert landing.text().count("site_differs") == 1
    finally:
        landing.kill()
