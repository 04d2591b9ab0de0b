"""No number and no time that an agent says ends a question of the console."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.tables.delta import DeltaTables
from tests.console.made import agent, beat, write_agents
from tests.spark_jobs.extremes import EVERY, LONGS, fill, payload
from tests.spark_jobs.found import AT, write_all
from vedette_console.data import agents, alerts, campaigns, counting, export, findings, now, rules
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Grant, Principal, Role

WHEN = AT + timedelta(hours=2)
ALL = Principal("ann", "user", (Grant(Role.ANALYST),))
SITE = Principal("ben", "user", (Grant(Role.ANALYST, "north", "plant"),))


@pytest.mark.parametrize("who", [pytest.param(ALL, marks=pytest.mark.long), SITE], ids=["all", "site"])
async def test_questions_of_extremes(tmp_path: Path, who: Principal) -> None:
    """Pages and the export answer from tables that hold every number and time at its extremes."""
    tables = DeltaTables(str(tmp_path))
    count = EVERY if who is ALL else 12
    fill(tables, runs=True, alerts=count)
    write_all(tables)
    pool = Pool(tables.root, seconds=600.0)

    async def ask(question: Any, *args: Any, **more: Any) -> Any:
        answer = await pool.ask(question, who, *args, **more)
        assert answer.model_dump_json()
        return answer

    try:
        await ask(now.now, at=WHEN)
        listed = await ask(agents.agents, now=WHEN)
        assert listed.total == len(LONGS)
        for row in listed.items:
            await ask(agents.agent, row.fleet, row.agent_id, now=WHEN)
        for question in (agents.sites, campaigns.campaigns, findings.anomalies, findings.risks, counting.histogram,
                         counting.facets, rules.rules, rules.coverage):  # fmt: skip
            await ask(question, now=WHEN)
        await ask(rules.rule, "rule-a", now=WHEN)
        page = await ask(alerts.search, "kind:*", "", 100, WHEN)
        assert len(page.items) == count
        for row in page.items:
            await ask(alerts.alert, row.day, row.agent_id, row.alert_id)
            await ask(alerts.related, row.day, row.agent_id, row.alert_id)
        for form in export.FORMATS:
            assert [piece async for piece in await pool.stream(export.lines, who, "kind:*", form, WHEN)]
    finally:
        await pool.close()


async def test_a_lag_that_is_no_number(tmp_path: Path) -> None:
    """An agent's heartbeats are shown without it."""
    tables = DeltaTables(str(tmp_path))
    beats = [
        beat("a", AT + timedelta(minutes=15 * place), payload(said))
        for place, said in enumerate(("NaN", "Infinity", "-Infinity", 1.5))
    ]
    write_agents(tables, [agent("a", AT)], beats)
    pool = Pool(tables.root, seconds=600.0)
    try:
        account = await pool.ask(agents.agent, ALL, "north", "a", now=WHEN)
    finally:
        await pool.close()
    assert [sample.lag_seconds for sample in account.beats] == [None, None, None, 1.5]
