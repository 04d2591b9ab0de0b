"""Services that run with the console, in the order in which they start; they end in the other: the pool of readers,
reports, news of tables that moved, and the fleet. Each is put into ``app.state`` for routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI

from spark_jobs.tables.schema import AGENTS, ALERTS, ANOMALIES, CAMPAIGNS, HEARTBEATS, RISK, TRIAGE, Table
from vedette_console.data import now
from vedette_console.data.reader import Pool
from vedette_console.data.reports import CONSOLE, Reports
from vedette_console.fleet.documents import Documents
from vedette_console.fleet.service import Fleet
from vedette_console.hub import Hub
from vedette_console.settings import Settings
from vedette_console.steady import Steady
from vedette_console.web import Problem

LOOK = 3.0
"""Seconds between two looks at the tables."""
NEWS: dict[str, tuple[Table, ...]] = {
    "alerts": (ALERTS,),
    "now": (ALERTS, CAMPAIGNS, ANOMALIES, RISK, TRIAGE),
    "fleet": (AGENTS, HEARTBEATS),
}
"""Topics, and the tables of which they tell that they have moved."""

log = structlog.get_logger(__name__)


@asynccontextmanager
async def _tables(app: FastAPI) -> AsyncIterator[None]:
    """``app.state.pool`` and ``app.state.reports``. Raises ValueError for tables that cannot be read at all."""
    settings: Settings = app.state.settings
    pool = Pool(settings.tables)
    reports = Reports(settings.reports, pool, settings.report_hour)
    app.state.pool, app.state.reports = pool, reports
    news = asyncio.create_task(_tell(pool, app.state.hub))
    try:
        await reports.start()
        yield
    finally:
        news.cancel()
        await asyncio.gather(news, return_exceptions=True)
        await reports.stop()
        await pool.close()


async def _warm(pool: Pool) -> None:
    """Make the new *Now* of who sees all sites before anybody asks, so that nobody waits for it."""
    try:
        await pool.work(now.now, CONSOLE)
    except Exception as error:
        log.warning("now_unmade", reason=str(error)[:500], exc_info=not isinstance(error, Problem))


async def _tell(pool: Pool, hub: Hub) -> None:
    """Publish each topic whose tables have moved; pages load themselves again. *Now* once more ``now.LEAST`` seconds
    later: after two changes in a row pages have that of the first."""
    seen: dict[str, tuple[int, ...]] = {}
    again = 0.0
    steady = {topic: Steady(f"news of {topic}") for topic in NEWS}
    while True:
        for topic, tables in NEWS.items():
            with steady[topic]:
                versions = await asyncio.to_thread(pool.catalog.versions, tables)
                former, seen[topic] = seen.get(topic), versions
                late = topic == "now" and 0 < again <= time.monotonic()
                if former == versions and not late:
                    continue
                if topic == "now":
                    again = 0.0 if former == versions else time.monotonic() + now.LEAST
                    if former is None or len(hub):
                        await _warm(pool)
                if former is not None:
                    hub.publish(topic, {"moved": True})
        await asyncio.sleep(LOOK)


@asynccontextmanager
async def _fleet(app: FastAPI) -> AsyncIterator[None]:
    """``app.state.fleet``."""
    settings: Settings = app.state.settings
    name = settings.fleet or (await asyncio.to_thread(Documents(settings.trust).read)).fleet
    fleet = app.state.fleet = Fleet(settings, name, app.state.hub.publish)
    await fleet.start()
    try:
        yield
    finally:
        await fleet.stop()


SERVICES = (_tables, _fleet)
