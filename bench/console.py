"""``python -m bench.console --alerts N``: what the console's questions to the tables take.

Makes tables of N alerts (``bench.simulate``: 100 sites, 200 rules, 14 days that end today; kept in ``--folder`` for the
next run) without Spark: a file a day, as after compaction, and their counts. ``--tables DIR`` takes tables that are
there, such as those of ``bench.spark`` with what its jobs have found.

Each question is asked ``--rounds`` times, one after the other, after a first time that is shown apart (``cold``), and
its answer made JSON, as the API does. ``p50`` and ``p95`` are milliseconds; ``cpu`` is the CPU time of a question,
which grows little with what else the host does. ``kept`` questions answer from memory while the tables stay
as they are. At the end: questions a second with 8 askers, and the largest resident memory of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

import duckdb

from bench.host import machine
from bench.simulate import Plan, simulate
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.duck import view
from spark_jobs.tables.schema import AGENTS, ALERTS, HEARTBEATS
from spark_jobs.tables.tables import Where
from tests.console.made import agent, beat, count, write_agents
from vedette_console.data import (
    agents,
    alerts,
    campaigns,
    complete,
    counting,
    entities,
    findings,
    now,
    rules,
)
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Grant, Principal, Role

DAYS = 14
ASKERS = 8
SECONDS = 5.0
"""For which they ask."""
ALL = Principal("bench", "user", (Grant(Role.ADMIN),))


def fill(folder: Path, number: int) -> Path:
    """Tables of so many alerts in ``folder``; those of an earlier run of this day are taken."""
    today = datetime.now(UTC).date()
    out = folder / f"{number}-{today}"
    done = out / "done"
    if done.exists():
        return out / "tables"
    shutil.rmtree(out, ignore_errors=True)
    first = today - timedelta(days=DAYS - 1)
    simulate(Plan(alerts=number, days=DAYS, start=first, seed=9001, sites=100, rules=200, campaigns=24), out)
    tables = DeltaTables(str(out / "tables"))
    with duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(out / "spill")}) as duck:
        duck.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
        landed = f"read_parquet('{out}/landing/alerts/**/*.parquet', hive_partitioning = false)"
        days = duck.sql(f"SELECT DISTINCT received_date FROM {landed} ORDER BY 1").fetchall()
        for (day,) in days:
            tables.append(ALERTS, duck.sql(
                f"""SELECT DISTINCT ON (agent_id, alert_id) *, event_time AS counted_at FROM {landed}
                WHERE received_date = '{day}'"""
            ).to_arrow_table())  # fmt: skip
            with duckdb.connect() as other:
                view(other, "alerts", tables, ALERTS, Where(only=(day,)))
                count(tables, other.sql("SELECT * FROM alerts").to_arrow_table())
            print(f"  {day} made", flush=True)
        seen = duck.sql(f"SELECT DISTINCT fleet, site, agent_id FROM {landed}").fetchall()
    at = datetime.now(UTC)
    write_agents(
        tables,
        [agent(name, at, fleet=fleet, site=site) for fleet, site, name in seen],
        [beat(name, at - timedelta(minutes=n), '{"actual": {"labels": {"site": "x"}}}', fleet=fleet, site=site)
         for fleet, site, name in seen for n in range(30)],
    )  # fmt: skip
    for table in (AGENTS, HEARTBEATS):
        tables.compact(table)
    done.touch()
    return out / "tables"


async def questions(pool: Pool) -> dict[str, Callable[[], Awaitable[Any]]]:
    """By name, each asked of values that are there."""
    page = await pool.ask(alerts.search, ALL)
    some = random.Random(1).choice(page.items)
    rare = (await pool.ask(entities.entities, ALL, "", "ip", 7, "", 500)).items
    address = rare[-1].value if rare else "192.0.2.1"
    listed = await pool.ask(campaigns.campaigns, ALL)
    fleet_agents = (await pool.ask(agents.agents, ALL)).items
    ask = pool.ask

    def of(function: Callable[..., Any], *args: Any, **more: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: ask(function, ALL, *args, **more)

    asked = {
        "now (kept)": of(now.now),
        "alerts, newest 50": of(alerts.search),
        "alerts, second page": of(alerts.search, "", page.next or ""),
        "alerts, critical": of(alerts.search, "level:critical"),
        "alerts, a site and a rule": of(alerts.search, f'site:{some.site} rule:"{some.rule_title}"'),
        "alerts, a rare address, all days": of(alerts.search, f"ip:{address}"),
        "alerts, no such address, all days": of(alerts.search, "ip:198.51.100.254"),
        "alerts, a text in 24 h": of(alerts.search, "nosuchtext since:24h"),
        "alerts, a text in 14 days": of(alerts.search, "nosuchtext since:14d"),
        "facets, 24 h": of(counting.facets, "since:24h"),
        "facets, all days": of(counting.facets, ""),
        "histogram, 24 h": of(counting.histogram, "since:24h"),
        "histogram, all days": of(counting.histogram, ""),
        "completion of a user": of(complete.complete, "user:ad", 7),
        "one alert": of(alerts.alert, some.day, some.agent_id, some.alert_id),
        "related alerts": of(alerts.related, some.day, some.agent_id, some.alert_id),
        "campaigns": of(campaigns.campaigns),
        "anomalies": of(findings.anomalies),
        "risks": of(findings.risks),
        "entities (kept)": of(entities.entities),
        "one entity": of(entities.entity, "ip", address),
        "rules (kept)": of(rules.rules),
        "one rule": of(rules.rule, some.rule_id),
        "coverage": of(rules.coverage),
        "agents": of(agents.agents),
        "sites": of(agents.sites),
    }
    if listed.items:
        asked["one campaign"] = of(campaigns.campaign, listed.items[0].campaign_id)
    if fleet_agents:
        asked["one agent"] = of(agents.agent, fleet_agents[0].fleet, fleet_agents[0].agent_id)
    return asked


async def measure(tables: Path, rounds: int) -> None:
    pool = Pool(str(tables), seconds=300.0)
    first = time.perf_counter()
    await pool.ask(now.now, ALL)
    print(f"first view of Now, cold: {1e3 * (time.perf_counter() - first):.0f} ms")
    print(f"{'question':36} {'cold':>7} {'p50':>7} {'p95':>7} {'cpu':>7} ms   bytes")
    asked = await questions(pool)
    for name, question in asked.items():
        times: list[float] = []
        size, cpu = 0, 0.0
        for number in range(rounds + 1):
            begin, used = time.perf_counter(), time.process_time()
            size = len((await question()).model_dump_json())
            times.append(1e3 * (time.perf_counter() - begin))
            cpu += 1e3 * (time.process_time() - used) if number else 0.0
        cut = quantiles(times[1:], n=20, method="inclusive")
        print(f"{name:36} {times[0]:7.0f} {cut[9]:7.0f} {cut[18]:7.0f} {cpu / rounds:7.0f} {size:10,}", flush=True)
    end, answers = time.perf_counter() + SECONDS, 0

    async def asker(number: int) -> None:
        nonlocal answers
        names = ["now (kept)", "alerts, newest 50", "campaigns", "one alert", "facets, 24 h"]
        while time.perf_counter() < end:
            await asked[names[(number + answers) % len(names)]]()
            answers += 1

    await asyncio.gather(*(asker(number) for number in range(ASKERS)))
    print(f"{answers / SECONDS:.0f} questions a second by {ASKERS} askers")
    await pool.close()
    print(f"largest resident memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--alerts", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/bench-console"))
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    said = parser.parse_args()
    print(machine())
    tables = said.tables or fill(said.folder, said.alerts)
    # In a process of its own, so that memory is that of the questions.
    if said.tables is None:
        words = [sys.executable, "-m", "bench.console", "--tables", str(tables), "--rounds", str(said.rounds)]
        return subprocess.run(words, check=False).returncode
    asyncio.run(measure(tables, said.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
