"""Evidence: the raw lines around an alert, asked of its host with one click and a reason, and kept beside the alert.

Where the event lies is looked up by day, agent and id in the tables, else in the landing. Kept as ``vedette fleet
evidence`` keeps it (``region/evidence.py``): EVIDENCE/ALERT/REQUEST.jsonl.zst and a manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vedette.fleet.requests import Request
from vedette.region import evidence as stored
from vedette.region import requests
from vedette.region.evidence import COLUMNS, Found, find
from vedette.system import foreign
from vedette.system.wallclock import utc_now
from vedette_console.fleet.desk import Asked, Desk, answer_state, job
from vedette_console.fleet.documents import Documents
from vedette_console.fleet.live import Live
from vedette_console.fleet.means import need_requests, reasoned, signer
from vedette_console.fleet.models_asked import EvidenceOrder, EvidencePage, Line
from vedette_console.fleet.sight import Sight
from vedette_console.security.principal import Principal
from vedette_console.settings import Settings
from vedette_console.web import Problem, require, written

REF = ("log_id", "offset", "length")


def locate(settings: Settings, day: str, agent: str, alert: str) -> Found | None:
    """None: there is no such alert. Blocking; raises OSError, LookupError, ValueError."""
    row = _in_tables(f"{settings.tables.rstrip('/')}/alerts", day, agent, alert) if settings.tables else None
    if row is not None:
        ref = row.get("raw_ref")
        if not isinstance(ref, dict) or not all(ref.get(name) is not None for name in REF):
            raise LookupError(f"alert {alert} refers to no event of a raw log")
        return Found(alert, str(row["agent_id"]), {name: ref[name] for name in REF})
    if settings.landing is None or not Path(settings.landing).is_dir():
        return None
    try:  # it has landed, and is not ingested yet
        return find(alert, settings.landing)
    except LookupError:
        return None


def _in_tables(table: str, day: str, agent: str, alert: str) -> dict[str, Any] | None:
    import pyarrow.compute as pc
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        delta = DeltaTable(table)
    except TableNotFoundError:
        return None
    dataset = delta.to_pyarrow_dataset(partitions=[("received_date", "=", day)])
    columns = [name for name in COLUMNS if name in dataset.schema.names]
    chosen = (pc.field("alert_id") == alert) & (pc.field("agent_id") == agent)
    rows: list[dict[str, Any]] = dataset.head(1, columns=columns, filter=chosen).to_pylist()
    return rows[0] if rows else None


HOLDS = 24 * 3_600_000_000
"""For how long a host may answer, in microseconds."""
MAX_TEXT = 32 << 10

Locate = Callable[[str, str, str], stored.Found | None]
"""Day, agent and alert to where its event lies; None: there is no such alert. Blocking; raises OSError, LookupError,
ValueError."""


class Evidence:
    def __init__(self, settings: Settings, live: Live, documents: Documents, desk: Desk, locate: Locate) -> None:
        self._settings, self._live, self._documents, self._desk = settings, live, documents, desk
        self._locate = locate

    async def pull(self, who: Principal, order: EvidenceOrder) -> EvidencePage:
        """Raises Problem."""
        contents = await asyncio.to_thread(self._documents.read)
        beat = Sight(self._live, who).need_beat(contents.fleet, order.agent)
        require(who, "evidence", beat.fleet, beat.site)
        need_requests(self._settings)
        try:
            event = await asyncio.to_thread(self._locate, order.day, order.agent, order.alert)
        except (OSError, LookupError, ValueError) as error:
            raise Problem(503, f"the alert cannot be looked up: {error}", where="alert",
                          what_to_do="look at the tables, or at the landing") from error  # fmt: skip
        if event is None or event.agent != order.agent:
            raise Problem(404, f"no alert {order.alert} of {order.agent} at {order.day}", where="alert")
        name, key = await asyncio.to_thread(signer, self._settings, contents, "analyst")
        now = requests.moment()
        request = Request(
            contents.fleet, "evidence", name, now, now + HOLDS, {"ref": event.ref, "around": order.around},
            (order.agent,), None, reasoned(order.reason, who.who),
        )  # fmt: skip
        asked = await self._desk.ask(
            request, key, {order.agent: beat.site}, title=f"{order.around} lines around alert {order.alert}",
            by=who.who, alert=order.alert, more={"alert": order.alert, "day": order.day, "around": order.around},
        )  # fmt: skip
        return await asyncio.to_thread(page, asked, who, self._settings, 0, 1000)

    def reply(self, who: Principal, id: str, offset: int = 0, limit: int = 1000) -> EvidencePage:
        """Raises Problem 404."""
        return page(self._desk.of(who, id, "evidence"), who, self._settings, offset, limit)

    def of(self, who: Principal, alert: str, limit: int = 1000) -> list[EvidencePage]:
        """Requests for one alert, the newest first, without lines but those of the newest."""
        pages = list[EvidencePage]()
        for brief in self._desk.notes.listed(who, "evidence", alert)[:20]:
            if (asked := self._desk.at_hand(brief.id)) is not None:
                pages.append(page(asked, who, self._settings, 0, 0 if pages else limit))
        return pages


def store(settings: Settings, asked: Asked) -> None:
    """Keep what came, once the request is over. Blocking; raises OSError."""
    if asked.note.kind != "evidence" or settings.evidence is None:
        return
    for agent, answer in asked.collection.answers.items():
        if answer.have:
            stored.store(settings.evidence, str(asked.note.more["alert"]), asked.collection, agent)


def page(asked: Asked, who: Principal, settings: Settings, offset: int, limit: int) -> EvidencePage:
    """Blocking. Raises Problem 503."""
    note, (agent, site) = asked.note, next(iter(asked.note.sites.items()))
    answer = asked.collection.answers[agent]
    state, why = answer_state(answer)
    alert, lines = str(note.more.get("alert", "")), list[Line]()
    total = 0
    try:
        for total, row in enumerate(asked.collection.records(agent), 1):
            if offset < total <= offset + limit:
                lines.append(line(row))
        manifest = stored.manifest_of(settings.evidence, alert, note.id) if settings.evidence is not None else None
    except (OSError, ValueError) as error:
        raise Problem(503, f"the reply cannot be read: {error}") from error
    here = manifest is not None and manifest.exists()
    return EvidencePage(
        job=job(note, who, asked, utc_now()), alert=alert, agent=agent, site=site, state=state, why=why, lines=lines,
        total=total, next=str(offset + limit) if limit and offset + limit < total else None,
        sha256=_digest(manifest) if here else "", manifest=f"{alert}/{note.id}.manifest.json" if here else "",
    )  # fmt: skip


def _digest(manifest: Any) -> str:
    try:
        return foreign.text(foreign.table(foreign.read(manifest.read_bytes())).get("sha256"))
    except (OSError, ValueError):
        return ""


def line(row: Mapping[str, Any]) -> Line:
    if "note" in row:
        return Line(note=str(row["note"])[:MAX_TEXT])
    binary = "raw" not in row
    return Line(
        received=written(row.get("received_at")), input=foreign.text(row.get("input")),
        text=str(row.get("raw_base64" if binary else "raw", ""))[:MAX_TEXT], binary=binary,
        alert=row.get("alert") is True, cut=row.get("cut") is True, redacted=foreign.count(row.get("redacted")),
        offset=foreign.count(row.get("offset")),
    )  # fmt: skip
