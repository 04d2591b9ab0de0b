"""Whoever sees one site learns nothing of another: no route answers them otherwise when the other site has data.

One console, walked twice by an operator of one site: before there is anything of the other site, and after. Every route
that reads, with the names of both, and every act upon something of the other site, has the same answer.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from spark_jobs.tables import schema
from spark_jobs.tables.tables import open_tables
from tests.console import made
from tests.console.api.test_routes import CALLS
from tests.console.fleet.kit import ADMIN, VIENNA, beat
from tests.console.kit import Console, console
from tests.fleet.asking import Authority
from tests.fleet.kit import FLEET, Centre, desired, group, rolled, target
from tests.waits import until
from vedette.delivery.topics import agent_topic
from vedette.fleet.certificates import key_pem
from vedette.fleet.documents import Change, Progress, Ring, State
from vedette.fleet.operators import Operator, Operators
from vedette.fleet.requests import Request
from vedette.region.requests import Collection
from vedette.region.sign import load_key
from vedette.region.steer.sealed import seal
from vedette.system.wallclock import utc_now
from vedette_console.fleet.backtest import Run
from vedette_console.fleet.hunts import row
from vedette_console.fleet.models import Proposed
from vedette_console.fleet.notes import Note, Totals
from vedette_console.security.principal import Role

pytestmark = pytest.mark.long

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = f"{NOW:%Y-%m-%d}"
HOUR = 3_600_000_000
DAYS = 24 * HOUR
OWN, OTHER = "vienna", "linz"
GROUPS = ("everyone", OTHER)
ALERT = "a" * 32
REQUESTS = {kind: f"{number:x}" * 32 for number, kind in enumerate(("hunt", "evidence", "ask"), 1)}
RUN = "b" * 16
BOTH = "4" * 32
"""A hunt at both sites."""


class Site(NamedTuple):
    name: str

    @property
    def agent(self) -> str:
        return f"{self.name}-1"


class World:
    """A region's folder, and the console over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables = open_tables(str(folder / "tables"))
        self.centre = Centre(folder / "trust")
        self.operator, self.authority = Ed25519PrivateKey.generate(), Authority()
        (folder / "otto.pem").write_bytes(key_pem(self.operator))
        (folder / "otto.pem").chmod(0o600)
        (folder / "ca.pem").write_bytes(self.authority.pem)
        self._desire()

    def settings(self) -> dict[str, Any]:
        return {
            "trust": self.folder / "trust", "requests": self.folder / "requests", "evidence": self.folder / "evidence",
            "operator": "otto", "operator_key": self.folder / "otto.pem", "authorities": self.folder / "ca.pem",
            "work": self.folder / "work", "reports": self.folder / "reports",
        }  # fmt: skip

    def _desire(self) -> None:
        """A change for all, and one for the other site alone, both under way."""
        blob = b"[settings]\n"
        changes = {name: Change(f"c-{name}", target(f"config/{name}.toml", blob)) for name in GROUPS}
        rings = (Ring("first", 60.0, agents=1), Ring("all", 60.0, percent=100.0))
        document = desired(
            1, group(OTHER, f"site = {OTHER}", config=changes[OTHER]), group("everyone", config=changes["everyone"]),
            rings=rings,
        )  # fmt: skip
        otto = Operator(
            "otto", self.operator.public_key(), frozenset({"viewer", "analyst", "operator"}), utc_now() + DAYS
        )
        repository = self.centre.repository
        repository.stage_desired(
            document, {change.to.target: blob for change in changes.values() if change.to},
            Operators(FLEET, 1, {"otto": otto}),
        )  # fmt: skip
        for key in self.centre.operators[:2]:
            repository.sign(key)
        repository.commit(rolled(1, **{change.id: Progress(State.ROLLING) for change in changes.values()}))

    def report(self, served: Console, *sites: Site) -> None:
        """What the controller says: sums, reasons and gates of all agents, and its record."""
        agents = {"given": 7 * len(sites), "taken": len(sites), "waiting": 3 * len(sites), "refused": len(sites)}
        reasons = [f"{site.agent} refused it" for site in sites]
        gates = {"refused": {"with": len(sites), "without": 0, "reasons": reasons}}
        rows = [
            {"change": f"c-{name}", "group": name, "state": "rolling", "agents": agents, "gates": gates,
             "ring": {"number": 1, "of": 2, "name": "first", "soak": 60.0}, "reasons": reasons}
            for name in GROUPS
        ]  # fmt: skip
        said = {"fleet": FLEET, "holder": "east", "desired_serial": 1, "changes": rows, "requests": {},
                "time": utc_now() // 1_000_000}  # fmt: skip
        key = load_key(self.folder / "trust/online/rollout.pem")
        served.app.state.fleet.live._progress[FLEET] = seal("progress", said, key)
        with (self.folder / "trust/audit.jsonl").open("ab") as record:
            for site in sites:
                row = {"time": DAY, "event": "refused", "change": "c-everyone", "agent": site.agent}
                record.write(orjson.dumps(row) + b"\n")

    def fill(self, served: Console, site: Site) -> None:
        """Everything that there can be of a site, beside its tables."""
        _in_loop(served, lambda: self._hears(served, site))
        for kind, id in REQUESTS.items():
            self.asked(id if site.name == OTHER else id[::-1].replace(id[0], f"{int(id[0]) + 4:x}"), kind, site)
        fleet, mine = served.app.state.fleet, RUN if site.name == OTHER else RUN.replace("b", "c")
        run = Run(mine, "ada", f"rules for {site.name}", "", "archive", 0, utc_now(), utc_now(), True,
                  {site.agent: site.name}, state="failed", why=f"{site.agent} has none")  # fmt: skip
        fleet.backtests._runs[mine] = run
        proposed = Proposed(
            id=mine, state="refused", by="ada", reason=f"for {site.name}", created=f"{DAY}T00:00:00Z",
            group=OTHER if site.name == OTHER else "everyone", ruleset="default",
        )  # fmt: skip
        fleet.proposals._proposals[mine] = proposed

    def land(self, site: Site) -> None:
        micros = round(NOW.timestamp() * 1e6)
        place = {"site": site.name, "fleet": FLEET, "agent_id": site.agent}
        alerts = [
            made.row(
                number, **place, alert_id=ALERT if not number else f"{number:032x}", host=f"web.{site.name}",
                event_time=micros - number * 60_000_000, detected_at=micros - number * 60_000_000, received_date=DAY,
                received_at=micros, rule_id=f"rule-{site.name}" if number % 2 else "rule-a", level="critical",
                fields={"user": f"user-{site.name}"}, raw=f"at {site.name}",
                entities=[{"kind": "ip", "value": value} for value in (f"198.51.100.{len(site.name)}", "192.0.2.1")],
            )
            for number in range(6)
        ]  # fmt: skip
        made.write_alerts(self.tables, alerts)
        account = made.agent(site.agent, NOW, fleet=FLEET, site=site.name, version=f"1.{len(site.name)}", lost=9)
        heartbeat = made.beat(site.agent, NOW, orjson.dumps(beat(site.agent, site.name)).decode(),
                              fleet=FLEET, site=site.name)  # fmt: skip
        made.write_agents(self.tables, [account], [heartbeat])
        anomaly = {
            "date": DAY, "anomaly_id": f"a-{site.name}", "kind": "burst", "fleet": FLEET, "site": site.name,
            "rule_id": "rule-a", "started_at": NOW - timedelta(hours=1), "ended_at": NOW, "observed": 99.0,
            "median": 1.0, "mad": 0.5, "score": 40.0, "level": "high", "reason": f"at {site.name}", "updated_at": NOW,
            "entity_kind": "", "entity_value": "",
        }  # fmt: skip
        self.tables.append(schema.ANOMALIES, made.rows_of(schema.ANOMALIES, [anomaly]))

    def _hears(self, served: Console, site: Site) -> None:
        row = beat(site.agent, site.name, actual={"problems": [f"the disk of {site.agent} is full"]})
        message = SimpleNamespace(
            topic=agent_topic(FLEET, site.agent, "status"), payload=orjson.dumps(row), retain=False
        )
        served.app.state.fleet.live._heartbeat(message)

    def asked(self, id: str, kind: str, *sites: Site) -> None:
        """A request to agents that is over, without replies."""
        now = utc_now()
        whom = {site.agent: site.name for site in sites}
        body = {"hunt": {"since": 0, "until": now, "first": 1, "plan": ""}, "evidence": {"ref": {}, "around": 1},
                "ask": {"question": "disk"}}[kind]  # fmt: skip
        request = Request(FLEET, kind, "otto", now, now + HOUR, body, tuple(whom), None, "case 17", id=id)
        place = self.folder / "requests"
        Collection.begin(place, request, self.operator, [*whom], self.authority.pem)
        more = {"alert": ALERT, "day": DAY, "body": body}
        title = f"{kind} at {sites[0].name}" if len(sites) == 1 else kind
        totals = Totals(len(sites), 0, 99, 9)
        note = Note(id, kind, title, "ada", "otto", "case 17", 1, now + HOUR, FLEET, whom, more, "done", totals)
        note.write(place / id)


def _in_loop(served: Console, work: Any) -> None:
    done = threading.Event()

    def run() -> None:
        try:
            work()
        finally:
            done.set()

    served.app.state.loop.call_soon_threadsafe(run)
    assert done.wait(60)


EXAMPLES = {
    "/alerts/{day}/{agent_id}/{alert_id}": [f"/alerts/{DAY}/{{agent}}/{ALERT}"],
    "/alerts/{day}/{agent_id}/{alert_id}/related": [f"/alerts/{DAY}/{{agent}}/{ALERT}/related"],
    "/campaigns/{campaign_id}": ["/campaigns/c-{site}"],
    "/entities/{kind}/{value:path}": [
        "/entities/site/plants/{site}", "/entities/host/web.{site}", "/entities/ip/198.51.100.4",
        "/entities/ip/192.0.2.1",
    ],
    "/rules/{rule_id:path}": ["/rules/rule-{site}", "/rules/rule-a"],
    "/agents/{fleet}/{agent_id}": [f"/agents/{FLEET}/{{agent}}"],
    "/fleet/{fleet}/{agent}": [f"/fleet/{FLEET}/{{agent}}"],
    "/requests/{id}": [f"/requests/{REQUESTS['ask']}"],
    "/hunts/{id}": [f"/hunts/{REQUESTS['hunt']}", f"/hunts/{BOTH}"],
    "/evidence/{job}": [f"/evidence/{REQUESTS['evidence']}"],
    "/evidence": [f"/evidence?alert={ALERT}"],
    "/backtests/{id}": [f"/backtests/{RUN}"],
    "/rollouts/{change}": ["/rollouts/c-everyone", "/rollouts/c-linz"],
    "/rollouts/proposals/{id}": [f"/rollouts/proposals/{RUN}"],
    "/reports/{name}": [f"/reports/report-{DAY}-{DAY}"],
    "/alerts": ["/alerts", "/alerts?q=site:{site}", "/alerts?q=host:web*"],
    "/alerts/complete": ["/alerts/complete?q=site:", "/alerts/complete?q=host:"],
    "/fleet": ["/fleet", "/fleet?q={site}", "/fleet?group=linz"],
    "/agents": ["/agents", "/agents?q={site}"],
    "/entities": ["/entities", "/entities?q={site}", "/entities?kind=site"],
    "/rules": ["/rules", "/rules?q={site}", "/rules?show=noisy", "/rules?show=attack"],
}  # fmt: skip
"""Of a route what is asked, with the names of each site; of others the route itself."""
ELSEWHERE = re.compile(r"/(static|login|favicon|users|audit|me/sessions|events)|/api/v1/login")
"""What is not of sites: the console's own, or for who sees all."""
ACTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/evidence", {"alert": ALERT, "agent": "linz-1", "day": DAY, "reason": "case 17"}),
    ("/hunts", {"rules": [{"path": "x.yml", "text": "x"}], "agents": ["linz-1"], "reason": "case 17"}),
    ("/hunts", {"rules": [{"path": "x.yml", "text": "x"}], "group": "site = linz", "reason": "case 17"}),
    (f"/fleet/{FLEET}/linz-1/ask", {"question": "disk"}),
    (f"/fleet/{FLEET}/linz-1/do", {"action": "reload", "reason": "case 17"}),
    (f"/requests/{REQUESTS['ask']}/cancel", {}),
    (f"/hunts/{REQUESTS['hunt']}/cancel", {}),
    (f"/evidence/{REQUESTS['evidence']}/cancel", {}),
    (f"/backtests/{RUN}/cancel", {}),
    ("/rollouts/c-linz/pause", {"reason": "case 17"}),
    ("/findings/a-linz/triage", {"state": "closed", "reason": "case 17"}),
    (f"/findings/{quote(f'alert:linz-1/{ALERT}', safe='')}/triage", {"state": "closed", "reason": "case 17"}),
)
VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?|(\d+ (s|min|h) ago)|just now"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Times, and the id of a new rule."""


def urls() -> Iterator[tuple[str, str]]:
    """Routes and what is asked of them."""
    for call in CALLS:
        if call.method != "GET" or ELSEWHERE.search(call.path):
            continue
        prefix = "/api/v1" if call.path.startswith("/api/") else ""
        path = call.path.removeprefix(prefix) if prefix else call.path
        for example in EXAMPLES.get(path, [path]):
            for site in dict.fromkeys((OWN, OTHER) if "{" in example else (OTHER,)):
                yield call.path, prefix + example.replace("{site}", site).replace("{agent}", f"{site}-1")


def walk(client: httpx2.Client, acts: bool = True) -> dict[str, tuple[int, str]]:
    """What each is answered, without what hangs on the clock."""
    answers = {}
    for _, url in urls():
        answer = client.get(url)
        answers[url] = answer.status_code, VOLATILE.sub("TIME", answer.text)
    for path, body in ACTS if acts else ():
        answer = client.post(f"/api/v1{path}", json=body)
        answers[f"POST {path} {body}"] = answer.status_code, VOLATILE.sub("TIME", answer.text)
    return answers


def difference(before: tuple[int, str], after: tuple[int, str]) -> str:
    """Where two answers part, for a test that fails."""
    if before[0] != after[0]:
        return f"{before[0]} {before[1][:200]} → {after[0]} {after[1][:200]}"
    at = next((i for i, (old, new) in enumerate(zip(before[1], after[1], strict=False)) if old != new), 0)
    return f"{before[1][max(0, at - 60) : at + 60]!r} → {after[1][max(0, at - 60) : at + 60]!r}"


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Answers for one site's operator and for an admin, before and after; what the former's page was sent meanwhile."""
    world = World(tmp_path_factory.mktemp("world"))
    own, other = Site(OWN), Site(OTHER)
    world.asked(BOTH, "hunt", own, other)
    world.land(own)
    with console(world.folder, **world.settings()) as served:
        world.fill(served, own)
        world.report(served, own)
        vic, root = served.as_user("vic", str(Role.OPERATOR), FLEET, OWN), served.session("root")
        pages = {"before": walk(vic), "root before": walk(root, acts=False)}
        heard: list[str] = []
        here, over = threading.Event(), threading.Event()

        def listen() -> None:
            with vic.stream("GET", "/api/v1/events?topics=fleet,jobs") as answer:
                for line in answer.iter_lines():
                    here.set()
                    heard.append(line)
                    if line == 'data: "end"':
                        return
            over.set()

        page = threading.Thread(target=listen)
        page.start()
        assert here.wait(60)
        world.land(other)
        world.fill(served, other)
        world.report(served, own, other)
        fleet = served.app.state.fleet
        for id in (RUN, REQUESTS["hunt"]):
            sees = getattr(fleet, "backtests" if id == RUN else "desk")
            _in_loop(served, lambda sees=sees, id=id: sees._news(id))
        until("the tables", lambda: root.get(f"/api/v1/agents/{FLEET}/linz-1").status_code == 200)
        served.publish("jobs", "end")
        page.join(60)
        yield {**pages, "after": walk(vic), "root after": walk(root, acts=False), "heard": heard}


def test_every_route_is_walked() -> None:
    """Each that reads, but those of the console itself."""
    assert {route for route, _ in urls()} == {
        call.path for call in CALLS if call.method == "GET" and not ELSEWHERE.search(call.path)
    }
    assert all("{" not in url for _, url in urls())


def test_nothing_of_another_site(walked: dict[str, Any]) -> None:
    """All answers are the same with the other site's data and without."""
    different = {url: difference(walked["before"][url], answer) for url, answer in walked["after"].items()
                 if answer != walked["before"][url]}  # fmt: skip
    assert not different, "\n".join(f"{url}: {difference}" for url, difference in different.items())


def test_there_was_something_to_see(walked: dict[str, Any]) -> None:
    """Who sees all sites gets other answers, at most routes; and who sees one gets that one."""
    same = {url for url, answer in walked["root after"].items() if answer == walked["root before"][url]}
    changed = {route for route, url in urls() if url not in same}
    both = ("/alerts", "/entities", "/rules", "/fleet", "/rollouts", "/hunts", "/fleet/{fleet}/{agent}",
            "/alerts/{day}/{agent_id}/{alert_id}", "/rollouts/{change}", "/hunts/{id}", "/backtests/{id}")  # fmt: skip
    api = ("/now", "/agents", "/sites", "/anomalies", "/alerts/export", "/alerts/facets", "/alerts/histogram",
           "/backtests", "/evidence/{job}", "/requests/{id}")  # fmt: skip
    assert changed >= {*both, *(f"/api/v1{path}" for path in both + api)}
    assert "vienna-1" in walked["before"]["/api/v1/fleet"][1]
    assert walked["before"][f"/api/v1/fleet/{FLEET}/vienna-1"][0] == 200
    status, text = walked["before"]["/rollouts/c-everyone"]
    assert (status, "sites that you do not see" in text, "vienna-1" in text) == (200, True, True)
    assert walked["before"]["/rollouts/c-linz"][0] == 404


def test_no_news_of_another_site(walked: dict[str, Any]) -> None:
    """An open page is sent nothing about it."""
    assert [line for line in walked["heard"] if line.startswith("data: ")] == ['data: "end"']


def test_a_hunt_by_name() -> None:
    """Names to who sees one of its agents that one alone."""
    whom = {f"{site}-1": site for site in (OTHER, OWN)}
    note = Note(BOTH, "hunt", "x", "ada", "otto", "case 17", 1, 1, FLEET, whom, {"group": ""}, "done")
    assert row(note, VIENNA, None).group == "vienna-1"
    assert row(note, ADMIN, None).group == "linz-1, vienna-1"
