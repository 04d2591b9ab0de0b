"""Who sees an alert or an agent in the tables depends on the region's site, not on the one that the agent states."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from spark_jobs.tables.delta import DeltaTables
from tests.console.made import agent, beat, row, write_agents, write_alerts
from tests.spark_jobs.found import AT
from vedette_console.data import agents
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Grant, Principal, Role

WHEN = AT + timedelta(hours=2)
NOTE = "states another site than it is enrolled at: vienna"


async def test_an_agent_is_seen_at_its_own_site(tmp_path: Path) -> None:
    """Those of linz that state vienna, in a heartbeat or an alert alone, are linz's trouble, and vienna sees none."""
    tables = DeltaTables(str(tmp_path))
    stated = {"site": "linz", "stated_site": "vienna"}
    write_alerts(tables, [row(1, agent_id="by-alert", **stated), row(2, agent_id="own", site="vienna")])
    write_agents(
        tables,
        [agent("by-beat", WHEN, **stated), agent("own", WHEN, site="vienna")],
        [beat("by-beat", WHEN, "{}", site="linz"), beat("own", WHEN, "{}")],
    )
    pool = Pool(str(tmp_path))
    try:
        for site, troubles in (("linz", {"by-beat": [NOTE], "by-alert": [NOTE]}), ("vienna", {"own": []})):
            who = Principal("user", "user", (Grant(Role.VIEWER, "north", site),))
            listed = await pool.ask(agents.agents, who, now=WHEN)
            assert {account.agent_id: account.troubles for account in listed.items} == troubles
            assert listed.sums.troubled == len([*filter(None, troubles.values())])
            sites = (await pool.ask(agents.sites, who, now=WHEN)).items
            assert [(account.site, account.alerts) for account in sites if account.alerts] == [(site, 1)]
    finally:
        await pool.close()
