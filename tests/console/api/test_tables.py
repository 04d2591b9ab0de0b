"""The routes over the tables: every one answers, by role and place, and refuses what is wrong with what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import CAMPAIGNS, TRIAGE
from tests.console.kit import Console, console
from tests.console.made import agent, beat, row, write_agents, write_alerts
from tests.spark_jobs.found import campaign, write
from tests.waits import until

NOW = datetime.now(UTC).replace(microsecond=0)
MICROS = int((NOW - timedelta(minutes=5)).timestamp()) * 1_000_000
DAY = f"{NOW - timedelta(minutes=5):%Y-%m-%d}"
ODD = "a/b' \"c?&=#"

ROUTES = (
    "now", "alerts", "alerts/facets", "alerts/histogram", "alerts/complete?q=lev", "alerts/export",
    f"alerts/{DAY}/agent-1/one", f"alerts/{DAY}/agent-1/one/related", "campaigns", "campaigns/campaign-1", "anomalies",
    "risks", "entities", f"entities/user/{quote(ODD, safe='')}", "rules", "rules/coverage", "rules/noise",
    "rules/rule-a", "agents", "agents/north/agent-1", "sites", "reports",
)  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("console")
    tables = DeltaTables(str(folder / "tables"))
    at = {"event_time": MICROS, "detected_at": MICROS, "received_at": MICROS, "host": ODD}
    user = [{"kind": "user", "value": ODD}]
    write_alerts(tables, [
        row(1, **at, alert_id="one", entities=user), row(2, **at, site="office", alert_id="two"),
        row(3, **at, alert_id="three", level="critical"),
    ])  # fmt: skip
    seen = {"first_seen": NOW - timedelta(hours=2), "last_seen": NOW, "date": DAY}
    write(tables, CAMPAIGNS, campaign(1, **seen))
    write_agents(tables, [agent("agent-1", NOW)], [beat("agent-1", NOW, "{}")])
    with console(folder, reports=folder / "reports") as served:
        yield served


@pytest.mark.parametrize("route", ROUTES)
def test_a_viewer_reads_everything(running: Console, route: str) -> None:
    """JSON that a script can read; nobody reads without a login."""
    path = f"/api/v1/{route}"
    answer = running.as_user("vic", "viewer").get(path)
    assert answer.status_code == 200, answer.text
    if route == "alerts/export":
        assert [json.loads(line)["alert_id"] for line in answer.text.splitlines()] == ["one", "three", "two"]
    else:
        assert isinstance(answer.json(), dict)
    assert running.client().get(path).status_code == 401


@pytest.mark.parametrize("route", ROUTES)
def test_nothing_of_other_sites(running: Console, route: str) -> None:
    """Who sees another fleet gets empty lists, and 404 for what has a name."""
    answer = running.as_user("mia", "viewer", fleet="south").get(f"/api/v1/{route}")
    assert answer.status_code in (200, 404)
    for text in ("rule-a", "campaign-1", "agent-1", "north", json.dumps(ODD)):
        assert text not in answer.text


def test_pages_of_alerts(running: Console) -> None:
    """``next`` leads through all of them."""
    vic = running.as_user("vic", "viewer")
    ids, after = [], ""
    while True:
        page = vic.get("/api/v1/alerts", params={"limit": 1, "after": after}).json()
        ids += [alert["alert_id"] for alert in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert ids == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("path", "status", "where"),
    [
        ("alerts?q=foo:bar", 400, "column 1"),
        ("alerts?q=" + quote("level:high OR"), 400, "column 14"),
        ("alerts?after=x", 400, "after"),
        ("alerts?limit=0", 422, "query.limit"),
        ("alerts?limit=many", 422, "query.limit"),
        ("alerts/facets?q=(", 400, "column 1"),
        ("alerts/histogram?q=level>=x", 400, "column 8"),
        ("alerts/export?q=foo:bar", 400, "column 1"),
        ("alerts/export?format=xml", 422, "query.format"),
        (f"alerts/{DAY}/agent-1/none", 404, ""),
        ("alerts/%2e%2e/%2e%2e/etc", 404, ""),
        ("campaigns/none", 404, ""),
        ("campaigns?after=" + "A" * 5_000, 422, "query.after"),
        ("entities/ip/none", 404, ""),
        ("rules/none", 404, ""),
        ("agents/north/none", 404, ""),
        ("reports/..%2f..%2fetc%2fpasswd", 404, ""),
        ("reports/report-2026-01-01-2026-01-02", 404, ""),
    ],
)
def test_what_is_wrong_is_refused(running: Console, path: str, status: int, where: str) -> None:
    """With the place and what to do."""
    answer = running.as_user("vic", "viewer").get(f"/api/v1/{path}")
    assert (answer.status_code, answer.json()["where"]) == (status, where), answer.text
    assert set(answer.json()) == {"error", "where", "what_to_do"}


def test_triage_by_role(running: Console) -> None:
    """An analyst decides, a viewer does not, nor one of another site; the audit log has it; the row names who."""
    path = "/api/v1/findings/alert:agent-1/one/triage"
    body = {"state": "false-positive", "reason": "a test", "day": DAY}
    assert running.as_user("vic", "viewer").post(path, json=body).status_code == 403
    assert running.as_user("oli", "analyst", site="office").post(path, json=body).status_code == 404
    ann = running.as_user("ann", "analyst")
    created = ann.post(path, json=body)
    assert created.status_code == 200, created.text
    assert (created.json()["triage"]["author"], created.json()["kind"]) == ("ann", "alert")
    assert ann.get(f"/api/v1/alerts/{DAY}/agent-1/one").json()["triage"]["closed"] is True
    refused = ann.post("/api/v1/findings/campaign-1/triage", json={"state": "true-positive"})
    assert (refused.status_code, refused.json()["where"]) == (422, "reason")
    assert ann.post("/api/v1/findings/campaign-1/triage", json={"state": "done"}).status_code == 422
    assert ann.post("/api/v1/findings/none/triage", json={"state": "new"}).status_code == 404
    written = DeltaTables(running.settings.tables).arrow(TRIAGE).to_pylist()
    assert [(row["finding_id"], row["author"]) for row in written] == [("alert:agent-1/one", "ann")]
    noted = running.as_user("adam", "admin").get("/api/v1/audit", params={"limit": 50}).json()["items"]
    assert any(row["act"] == "triage" and "false-positive" in json.dumps(row) for row in noted)


def test_surrogates_and_nul_are_texts(running: Console) -> None:
    """What JSON may hold and a table may not is refused or kept, never a crash."""
    ann = running.as_user("ann", "analyst")
    for reason in ("a\x00b", "\ud800"):
        sent = ann.post(
            "/api/v1/findings/campaign-1/triage", headers={"Content-Type": "application/json"},
            content=json.dumps({"state": "true-positive", "reason": reason}),
        )  # fmt: skip
        assert sent.status_code in (200, 422), sent.text
    for q in ("%00", "host:%00", "%ff%fe", "%ed%a0%80", "ip:" + "x" * 3_000):
        assert ann.get(f"/api/v1/alerts?q={q}").status_code == 200


def test_reports(running: Console) -> None:
    """Asked for, made in the background, listed and read; only by who sees all sites."""
    ann = running.as_user("ann", "analyst")
    asked = ann.post("/api/v1/reports", json={"days": 2})
    assert (asked.status_code, asked.json()["state"]) == (202, "making"), asked.text
    name = asked.json()["name"]

    def ready() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = ann.get("/api/v1/reports").json()["items"]
        return rows if rows[0]["state"] != "making" else []

    assert [(row["name"], row["state"]) for row in until("the report", ready)] == [(name, "made")]
    html = ann.get(f"/api/v1/reports/{name}").text
    assert html.lower().startswith("<!doctype html>")
    assert "alerts up to" in html
    office = running.as_user("oli", "analyst", site="office")
    assert office.get("/api/v1/reports").json()["items"] == []
    assert office.get(f"/api/v1/reports/{name}").status_code == 404
    assert office.post("/api/v1/reports", json={"days": 2}).status_code == 403
    assert ann.post("/api/v1/reports", json={"days": 99}).status_code == 422


def test_a_console_without_tables_answers(tmp_path: Path) -> None:
    """Every list is empty, and *Now* says what to run."""
    with console(tmp_path) as served:
        vic = served.as_user("vic", "viewer")
        for route in ("now", "alerts", "alerts/facets", "alerts/histogram", "campaigns", "anomalies", "risks",
                      "entities", "rules", "rules/coverage", "rules/noise", "agents", "sites", "reports"):  # fmt: skip
            assert vic.get(f"/api/v1/{route}").status_code == 200
        assert vic.get("/api/v1/now").json()["unrun"].startswith("ingest")
