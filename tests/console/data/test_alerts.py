"""Alerts by a search: in order, page by page, whatever lies in which file; and one in full."""

from __future__ import annotations

import csv
import io
import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.tables.delta import DeltaTables
from tests.console.made import row, write_alerts
from tests.spark_jobs.found import HOSTILE
from tests.spark_jobs.landed import HOUR, MINUTE, NOON
from tests.waits import eventually
from vedette_console.data import alerts, complete, counting, export
from vedette_console.data.alerts import highlights
from vedette_console.data.models import Alert
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Grant, Principal, Role
from vedette_console.web import Problem

ALL = Principal("ann", "user", (Grant(Role.ADMIN),))
DAY = 24 * HOUR
AT = datetime(2026, 11, 20, 13, tzinfo=UTC)


async def asked(tables: DeltaTables, function: Any, *args: Any, **more: Any) -> Any:
    """What a data function answers about ``tables``."""
    pool = Pool(tables.root, seconds=600.0)
    try:
        return await pool.ask(function, ALL, *args, **more)
    finally:
        await pool.close()


async def every(tables: DeltaTables, q: str, limit: int) -> list[int]:
    """The numbers (``seq``) of all alerts of a search, page by page."""
    numbers: list[int] = []
    after = ""
    pool = Pool(tables.root, seconds=600.0)
    try:
        while True:
            page = await pool.ask(alerts.search, ALL, q, after, limit, AT + timedelta(days=30))
            assert len(page.items) <= limit
            numbers += [int(alert.raw.rpartition(" ")[2]) for alert in page.items]
            if page.next is None:
                return numbers
            assert len(page.items) == limit
            after = page.next
    finally:
        await pool.close()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> DeltaTables:
    """Alerts of three days in six files: two of one time, a late one, one of an agent whose clock stands at 1970."""
    tables = DeltaTables(str(tmp_path_factory.mktemp("tables")))
    times = [0, 1, 2, 2, DAY, DAY + 1, DAY + 2, 2 * DAY, 2 * DAY + 1, 5]
    rows = [row(n, event_time=NOON + at, detected_at=NOON + at, entities=[{"kind": "ip", "value": f"192.0.2.{n}"}])
            for n, at in enumerate(times)]  # fmt: skip
    rows[9] |= {"received_date": "1970-01-01"}
    late = row(10, event_time=NOON - DAY, detected_at=NOON + 2 * DAY, level="low")
    write_alerts(tables, rows[::2])
    write_alerts(tables, [*rows[1::2], late])
    return tables


ORDER = [8, 7, 6, 5, 4, 9, 2, 3, 1, 0, 10]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_pages_are_in_order(tables: DeltaTables, limit: int) -> None:
    """Newest first whatever the pages' size, each alert once, whichever file holds it."""
    numbers = await every(tables, "", limit)
    assert sorted(numbers) == list(range(11))
    assert [n for n in numbers if n not in (2, 3)] == [n for n in ORDER if n not in (2, 3)]
    assert (
        numbers.index(9)
        < min(numbers.index(2), numbers.index(3))
        <= max(numbers.index(2), numbers.index(3))
        < numbers.index(1)
    )


async def test_a_search_finds_its_alerts(tables: DeltaTables) -> None:
    """By field, by time, by entity, by text; several times by what the log of the table says."""
    assert await every(tables, "level:low", 2) == [10]
    assert await every(tables, "from:2026-11-21 to:2026-11-21", 2) == [6, 5, 4]
    assert await every(tables, "ip:192.0.2.1 OR ip:192.0.2.8", 5) == [8, 1]
    assert await every(tables, "ip:192.0.2.5", 5) == [5]
    assert await every(tables, "ip:192.0.2.9 since:90d", 5) == [9]
    assert await every(tables, '"event 7"', 5) == [7]
    assert await every(tables, "id:' OR 1=1", 5) == []
    assert await every(tables, "to:0001-01-01", 5) == []
    assert await every(tables, "from:9999-12-31", 5) == []


async def test_a_text_needs_a_time_in_many_days(tmp_path: Path) -> None:
    """Without one it is refused with what to add; with one it is looked for."""
    tables = DeltaTables(str(tmp_path))
    write_alerts(tables, [row(1), row(2, event_time=NOON + 20 * DAY, detected_at=NOON + 20 * DAY)])
    with pytest.raises(Problem, match="20 days of alerts") as raised:
        await every(tables, "event", 5)
    assert raised.value.body.what_to_do == "add since:14d, or from: and to:"
    assert await every(tables, "event from:2026-11-01", 5) == [2, 1]
    assert await every(tables, "level:high", 5) == [2, 1]


async def test_a_wrong_cursor_is_refused(tables: DeltaTables) -> None:
    """Whatever somebody makes of it."""
    for after in ("x", "e30", "WzEsMiwzXQ", "WzFlMzAwLCJhIiwiYiJd", "////", "WyJhIiwiYiIsImMiXQ",
                  "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5OTksImEiLCJiIl0"):  # fmt: skip
        with pytest.raises(Problem, match="this page of the list is unknown"):
            await asked(tables, alerts.search, "", after)


async def test_an_alert_in_full(tmp_path: Path) -> None:
    """Hostile texts come through unchanged; what the row lacks is empty; values are found in the text."""
    tables = DeltaTables(str(tmp_path))
    ref = {"log_id": "0" * 32, "offset": 5, "length": 7}
    planted = row(
        1, raw=f"user root from 203.0.113.9 {HOSTILE}", tags=["attack.t1110", "attack.credential_access"],
        fields={"user": "root", "src_ip": "203.0.113.9", HOSTILE: HOSTILE}, host=HOSTILE,
        contributing=[{"rule_id": "rule-a", "event_time": NOON, "raw_ref": ref}],
        asset={"owner": "ann", "role": None, "environment": None, "criticality": 3}, flags=["cut"],
    )  # fmt: skip
    write_alerts(
        tables, [planted, row(2, tags=None, fields=None, entities=None, raw=None, raw_ref=None, group_by=None)]
    )
    shown: Alert = await asked(tables, alerts.alert, "2026-11-20", "agent-1", planted["alert_id"])
    assert (shown.raw, shown.host, shown.fields[HOSTILE]) == (planted["raw"], HOSTILE, HOSTILE)
    assert [(t.id, t.name) for t in shown.techniques] == [("T1110", "Brute Force")]
    assert shown.tactics == ["credential-access"]
    assert shown.contributing[0].rule_title == "Failed logins"
    assert (shown.asset and shown.asset.criticality, shown.place, shown.triage.state) == (3, None, "new")
    marked = {span.field: shown.raw[span.start : span.end] for span in shown.highlights}
    assert marked == {"user": "root", "src_ip": "203.0.113.9", HOSTILE: HOSTILE}
    empty = await asked(tables, alerts.alert, "2026-11-20", "agent-1", row(2)["alert_id"])
    assert (empty.raw, empty.fields, empty.entities, empty.raw_ref) == ("", {}, [], None)
    assert json.loads(shown.model_dump_json())["time"] == "2026-11-20T12:00:01Z"
    for day, agent, alert in (("2026-11-21", "agent-1", planted["alert_id"]), ("2026-11-20", "x", planted["alert_id"]),
                              ("' OR 1", "\x00", "\ud800")):  # fmt: skip
        with pytest.raises(Problem, match="no such alert"):
            await asked(tables, alerts.alert, day, agent, alert)


def test_highlights_do_not_overlap() -> None:
    """The longest value wins; a value that stands nowhere is none."""
    spans = highlights("10.0.0.10 10.0.0.1", {"a": "10.0.0.1", "b": "10.0.0.10", "c": "x", "d": "zz"})
    assert [(span.field, span.start, span.end) for span in spans] == [("b", 0, 9), ("a", 10, 18)]


async def test_related_alerts(tmp_path: Path) -> None:
    """By entity, host and rule within the minutes, and folds; never the alert itself."""
    tables = DeltaTables(str(tmp_path))
    own = {"host": "h", "rule_id": "r", "entities": [{"kind": "user", "value": "o'hara"}]}
    other = {"host": "i", "rule_id": "s", "rule_title": "S", "entities": []}
    soon = {"event_time": NOON + 10 * MINUTE, "detected_at": NOON}
    first = row(1, **own, event_time=NOON)
    write_alerts(tables, [
        first, row(2, **{**other, "host": "h"}, **soon), row(3, **{**other, "rule_id": "r"}, **soon),
        row(4, **{**other, "entities": own["entities"]}, **soon), row(5, **other, **soon),
        row(6, **{**own, "event_time": NOON + 2 * HOUR, "detected_at": NOON}),
        row(7, **other, kind="fold", parent_id=first["alert_id"], **soon),
    ])  # fmt: skip
    related = await asked(tables, alerts.related, "2026-11-20", "agent-1", first["alert_id"])
    assert {group.by: [item.raw for item in group.items] for group in related.groups} == {
        "fold": ["<38>event 7"], "entity": ["<38>event 4"], "host": ["<38>event 2"], "rule": ["<38>event 3"],
    }  # fmt: skip
    by_entity = next(group for group in related.groups if group.by == "entity")
    assert by_entity.query.startswith('user:"o\'hara" from:2026-11-20T11:00:00')
    page = await asked(tables, alerts.search, by_entity.query)
    assert {alert.raw for alert in page.items} == {"<38>event 1", "<38>event 4"}


async def test_facets_and_histogram_count_alike(tables: DeltaTables) -> None:
    """Each alert once; a facet's term finds as many as it says."""
    facets = await asked(tables, counting.facets, "", AT)
    assert (facets.total, facets.complete) == (11, True)
    levels = next(facet for facet in facets.facets if facet.field == "level")
    assert [(value.value, value.alerts, value.term) for value in levels.values] == [("high", 10, "level:high"),
                                                                           ("low", 1, "level:low")]  # fmt: skip
    for facet in facets.facets:
        for value in facet.values:
            assert len(await every(tables, value.term, 100)) == value.alerts
    shown = await asked(tables, counting.histogram, "", 60, AT)
    assert (shown.total, sum(bucket.alerts for bucket in shown.buckets)) == (11, 11)
    assert shown.buckets[0].levels == {"low": 1}
    starts = [bucket.start for bucket in shown.buckets]
    assert {b - a for a, b in itertools.pairwise(starts)} == {timedelta(seconds=shown.step)}
    nothing = await asked(tables, counting.histogram, "host:nobody", 60, AT)
    assert (nothing.total, nothing.buckets) == (0, [])


async def test_completion(tables: DeltaTables) -> None:
    """Names of fields, fixed values, values that there are; what it gives is a search."""
    now = AT + timedelta(days=2)
    fields = await asked(tables, complete.complete, "level:high -si", 14, now)
    assert [(completion.text, completion.start, completion.end) for completion in fields.items] == [
        ("-site:", 11, 14),
        ("-since:", 11, 14),
    ]
    levels = await asked(tables, complete.complete, "level:h", 7, now)
    assert [completion.text for completion in levels.items] == ["level:high "]
    rules = await asked(tables, complete.complete, 'rule:"fail', 10, now)
    assert [completion.text for completion in rules.items] == ['rule:"Failed logins" ']
    addresses = await asked(tables, complete.complete, "ip:192.0", 8, now)
    assert len(addresses.items) == 10
    assert (await asked(tables, complete.complete, "nofield:x", 9, now)).items == []


@pytest.mark.parametrize("format", ["ndjson", "csv"])
async def test_export(tmp_path: Path, format: str) -> None:
    """All of them, newest first; cells that a spreadsheet would run are texts; hostile texts stay in their cell."""
    tables = DeltaTables(str(tmp_path))
    write_alerts(tables, [row(1, host="=cmd()"), row(2, raw=HOSTILE), row(3, level="low")])
    pool = Pool(tables.root, seconds=600.0)
    try:
        pieces = [piece async for piece in await pool.stream(export.lines, ALL, "level:high", format)]
        # The reader is free again, also after a reader that stops in the middle.
        for _ in range(5):
            half = await pool.stream(export.lines, ALL, "", format)
            assert await anext(half)
            await half.aclose()
            await eventually("its reader", lambda: not pool._exports.has_all(ALL.name))
        with pytest.raises(Problem, match="there is no field"):
            await pool.stream(export.lines, ALL, "foo:bar", format)
        assert [piece async for piece in await pool.stream(export.lines, ALL, "host:nobody", "ndjson")] in ([], [b""])
    finally:
        await pool.close()
    text = b"".join(pieces).decode()
    if format == "ndjson":
        rows = [json.loads(line) for line in text.splitlines()]
        assert [row["raw"] for row in rows] == [HOSTILE, "<38>event 1"]
        assert rows[1]["fields"] == {"user": "root"}
        assert rows[1]["counted_at"].endswith("Z")
    else:
        cells = list(csv.DictReader(io.StringIO(text, newline="")))
        assert [cell["raw"] for cell in cells] == [HOSTILE, "<38>event 1"]
        assert cells[1]["host"] == "'=cmd()"


async def test_pages_of_hostile_names(tmp_path: Path) -> None:
    """An agent's and an alert's id are texts in the cursor and in the question."""
    tables = DeltaTables(str(tmp_path))
    write_alerts(
        tables, [row(n, agent_id=f"a'{HOSTILE}{n}", alert_id="' OR '1'='1", event_time=NOON) for n in range(4)]
    )
    assert sorted(await every(tables, "", 1)) == [0, 1, 2, 3]
