"""Findings, entities, rules, agents and *Now*: what they show, and to whom."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, COVERAGE, NOISE, RISK, TRIAGE
from tests.console.made import agent, beat, row, write_agents, write_alerts
from tests.spark_jobs import found
from tests.spark_jobs.found import AT, HOSTILE, anomaly, campaign, covered, write
from tests.spark_jobs.landed import DAY
from vedette_console.data import agents, campaigns, entities, findings, now, rules
from vedette_console.data.findings import Decide
from vedette_console.data.models import Campaign
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Grant, Principal, Role
from vedette_console.web import Problem

ANN = Principal("ann", "user", (Grant(Role.ANALYST),))
BEN = Principal("ben", "user", (Grant(Role.ANALYST, "north", "plant"),))
EVE = Principal("eve", "user", (Grant(Role.ANALYST, "south", "mine"),))
WHEN = AT + timedelta(hours=2)
IP = {"kind": "ip", "value": "203.0.113.9"}


def risk(**changes: Any) -> dict[str, Any]:
    """An address over its threshold."""
    part = {"points": 60.0, "time": AT, "rule_id": "rule-a", "level": "high", "tactic": "execution", "alerts": 2,
            "why": "at two sites"}  # fmt: skip
    return {
        "as_of": DAY, "risk_id": "risk-1", "kind": "ip", "value": "203.0.113.9", "scope": "", "score": 120.0,
        "threshold": 100.0, "over": True, "level": "high", "alerts": 3, "rules": 2, "tactics": 1, "days": 1,
        "first_seen": AT, "last_seen": AT, "contributions": [part], "others": 0, "others_points": 0.0,
        "reason": "2 rules", "updated_at": AT, **changes,
    }  # fmt: skip


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Pool]:
    pool = Pool(str(folder), seconds=600.0)
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture
def tables(written: DeltaTables, tmp_path: Path) -> DeltaTables:
    """A copy of ``written``."""
    shutil.copytree(written.root, tmp_path / "tables")
    return DeltaTables(str(tmp_path / "tables"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> DeltaTables:
    """A little of everything at two sites of the fleet north."""
    tables = DeltaTables(str(tmp_path_factory.mktemp("tables")))
    tags = ["attack.credential_access", "attack.t1110"]
    write_alerts(tables, [
        row(1, level="critical", tags=tags), row(2, tags=tags), row(3, tags=tags, site="office", host="web2"),
        row(4, rule_id="rule-b", rule_title=HOSTILE, site="office", host="web3",
            entities=[{"kind": "user", "value": HOSTILE}]),
    ])  # fmt: skip
    at = {"first": AT, "last": AT}
    story = [{**at, "tactic": "execution", "sites": ["north/office"], "rules": ["rule-b"], "alerts": 1},
             {**at, "tactic": "", "sites": ["north/plant"], "rules": ["rule-a"], "alerts": 2}]  # fmt: skip
    write(tables, CAMPAIGNS, campaign(1, level="critical", story=story, entities=[{**IP, "alerts": 3, "tactics": []}],
                                      against=["the own scanner"], new_steps=1),
          campaign(2, kind="user", value=HOSTILE, reason=HOSTILE, sites=["north/office"]),
          campaign(3, score=0.0))  # fmt: skip
    write(tables, ANOMALIES, anomaly(1), anomaly(2, kind="burst", site="plant", rule_id="rule-a"))
    write(tables, RISK, risk(), risk(risk_id="risk-2", kind="host", value="web2", scope="north/office"),
          risk(risk_id="risk-3", kind="site", value="north/plant"))  # fmt: skip
    write(tables, NOISE, found.noise("rule-a"))
    write(tables, COVERAGE, covered("rule-a", "T1110", alerts=3), covered("rule-z", "T1003", rule_title=HOSTILE))
    payload = json.dumps({"actual": {"labels": {"site": HOSTILE, "ring": 1}, "group": "g", "problems": ["p"]},
                          "inputs": {"syslog": {"received": 9, "stored": 9, "judged": 8,
                                                "dropped": {"framing": 2}, "lost": {}}},
                          "backlog": {"syslog": 1},
                          "notes": ["two machines have its id"]})  # fmt: skip
    write_agents(
        tables,
        [agent("agent-1", WHEN), agent("agent-2", WHEN, site="office", state="lost", dropped=None),
         agent("agent-9", WHEN - timedelta(days=60))],
        [beat("agent-1", WHEN, payload), beat("agent-2", WHEN, "no json", site="office", state="lost")],
    )  # fmt: skip
    return tables


async def test_campaigns(tables: DeltaTables) -> None:
    """By score, without those taken back; in full with titles, story in words, graph, samples and decisions."""
    async with opened(Path(tables.root)) as pool:
        listed = await pool.ask(campaigns.campaigns, ANN, now=WHEN)
        assert [row.campaign_id for row in listed.items] == ["campaign-1", "campaign-2"]
        assert (listed.total, listed.next) == (2, None)
        first = await pool.ask(campaigns.campaigns, ANN, limit=1, now=WHEN)
        second = await pool.ask(campaigns.campaigns, ANN, after=first.next or "", limit=1, now=WHEN)
        assert (first.items + second.items, second.next) == (listed.items, None)
        campaign: Campaign = await pool.ask(campaigns.campaign, ANN, "campaign-1", now=WHEN)
        assert [step.rule_title for step in campaign.steps] == ["Failed logins", HOSTILE]
        assert [part.text for part in campaign.story] == ["Execution at north/office: 1 alert",
                                                     "No known stage at north/plant: 2 alerts"]  # fmt: skip
        assert [(node.kind, node.label, node.alerts) for node in campaign.graph.nodes] == [
            ("ip", "203.0.113.9", 3), ("site", "north/plant", 2), ("site", "north/office", 1)]  # fmt: skip
        assert [(edge.source, edge.target, edge.alerts) for edge in campaign.graph.edges] == [
            ("e0", "s0", 2),
            ("e0", "s1", 1),
        ]
        assert campaign.samples[0].level == "critical"
        assert campaign.against == ["the own scanner"]
        with pytest.raises(Problem, match="no such campaign"):
            await pool.ask(campaigns.campaign, ANN, "x' OR 'a'='a")


async def test_what_happened_elsewhere_is_left_out(tables: DeltaTables) -> None:
    """Who sees one site gets a campaign with its steps there only, and no words or sums that tell of others."""
    async with opened(Path(tables.root)) as pool:
        listed = await pool.ask(campaigns.campaigns, BEN, now=WHEN)
        assert [row.campaign_id for row in listed.items] == ["campaign-1"]
        campaign = await pool.ask(campaigns.campaign, BEN, "campaign-1", now=WHEN)
        assert (campaign.sites, campaign.rules, campaign.reason, campaign.alerts) == (
            ["north/plant"],
            ["rule-a"],
            "",
            0,
        )
        assert [step.site for step in campaign.steps] == ["plant"]
        assert [part.sites for part in campaign.story] == [["north/plant"]]
        assert {node.label for node in campaign.graph.nodes} == {"203.0.113.9", "north/plant"}
        assert {alert.site for alert in campaign.samples} == {"plant"}
        assert "office" not in campaign.model_dump_json()
        assert [a.anomaly_id for a in (await pool.ask(findings.anomalies, BEN, now=WHEN)).items] == ["anomaly-2"]
        risks = (await pool.ask(findings.risks, BEN, now=WHEN)).items
        assert {risk.risk_id: len(risk.contributions) for risk in risks} == {"risk-1": 0, "risk-3": 1}
        listed_rules = (await pool.ask(rules.rules, BEN, now=WHEN)).items
        fired = {rule.rule_id: (rule.alerts, rule.fired) for rule in listed_rules}
        assert fired == {"rule-a": (2, True), "rule-z": (0, False)}
        assert (await pool.ask(rules.noise, BEN)).items[0].top_value == ""
        assert [agent.agent_id for agent in (await pool.ask(agents.agents, BEN, now=WHEN)).items] == ["agent-1"]
        with pytest.raises(Problem, match="no such agent"):
            await pool.ask(agents.agent, BEN, "north", "agent-2", now=WHEN)
        shown = await pool.ask(now.now, BEN, at=WHEN)
        assert "office" not in shown.model_dump_json()
        nothing = await pool.ask(now.now, EVE, at=WHEN)
        assert (nothing.sentence, nothing.campaigns, nothing.first) == ("No alerts.", [], [])


async def test_a_decision_is_kept_and_shown(tables: DeltaTables) -> None:
    """At once; a closed campaign leaves *Now*; the row is as the job ``triage`` writes it."""
    reason = HOSTILE.replace("\0", "")  # which no table holds
    async with opened(Path(tables.root)) as pool:
        before = await pool.ask(now.now, ANN, at=WHEN)
        assert before.first[0].link == "/campaigns/campaign-1"
        decision = await pool.ask(findings.decide, ANN, "campaign-1",
                              Decide(state="true-positive", reason=reason, expires="30d"), now=WHEN)  # fmt: skip
        assert (decision.kind, decision.triage.closed) == ("campaign", True)
        assert (decision.triage.author, decision.triage.reason) == ("ann", reason)
        campaign = await pool.ask(campaigns.campaign, ANN, "campaign-1", now=WHEN)
        assert campaign.triage == decision.triage
        assert [past.state for past in campaign.decisions] == ["true-positive"]
        (written,) = tables.arrow(TRIAGE).to_pylist()
        assert written == {
            "finding_id": "campaign-1", "kind": "campaign", "state": "true-positive", "assignee": "",
            "reason": reason, "author": "ann", "expires_at": WHEN + timedelta(days=30), "updated_at": WHEN,
        }  # fmt: skip
        alert = f"alert:agent-1/{row(1)['alert_id']}"
        for finding, kind in (("anomaly-1", "anomaly"), ("risk-1", "risk"), (alert, "alert")):
            decision = await pool.ask(findings.decide, ANN, finding, Decide(state="assigned", assignee="ben"), now=WHEN)
            assert (decision.kind, decision.triage.words[:15]) == (kind, "assigned to ben")


@pytest.mark.parametrize(
    ("who", "finding", "body", "status", "where"),
    [
        (ANN, "campaign-1", {"state": "true-positive"}, 422, "reason"),
        (ANN, "campaign-1", {"state": "assigned"}, 422, "assignee"),
        (ANN, "campaign-1", {"state": "new", "expires": "soon"}, 422, "expires"),
        (ANN, "campaign-1", {"state": "new", "expires": "2001-01-01"}, 422, "expires"),
        (ANN, "campaign-", {"state": "new"}, 404, ""),
        (ANN, "alert:agent-1/x", {"state": "new"}, 404, ""),
        (ANN, "alert:", {"state": "new"}, 404, ""),
        (BEN, "campaign-1", {"state": "new"}, 403, ""),  # it is at another site, too
        (BEN, "campaign-2", {"state": "new"}, 404, ""),
        (BEN, "anomaly-1", {"state": "new"}, 404, ""),
        (BEN, "risk-1", {"state": "new"}, 403, ""),
    ],
)
async def test_a_wrong_decision_is_refused(
    tables: DeltaTables, who: Principal, finding: str, body: dict[str, str], status: int, where: str
) -> None:
    """By what it lacks, or because the finding is not theirs; nothing is written."""
    async with opened(Path(tables.root)) as pool:
        with pytest.raises(Problem) as raised:
            await pool.ask(findings.decide, who, finding, Decide(**body), now=WHEN)
        assert (raised.value.status, raised.value.body.where) == (status, where)
        assert not tables.exists(TRIAGE)
        await pool.ask(findings.decide, BEN, "anomaly-2", Decide(state="acknowledged"), now=WHEN)


async def test_entities(tables: DeltaTables) -> None:
    """Those over their threshold first; one with its days, places, rules, newest alerts and campaigns."""
    async with opened(Path(tables.root)) as pool:
        listed = await pool.ask(entities.entities, ANN, now=WHEN)
        sums = {(entity.kind, entity.value): (entity.alerts, entity.rules, entity.sites) for entity in listed.items}
        assert sums == {
            ("ip", "203.0.113.9"): (3, 1, 2), ("host", "web1"): (2, 1, 1), ("host", "web2"): (1, 1, 1),
            ("host", "web3"): (1, 1, 1),
            ("user", HOSTILE): (1, 1, 1), ("site", "north/plant"): (0, 0, 0),
        }  # fmt: skip
        assert {entity.value for entity in listed.items[:3]} == {"203.0.113.9", "web2", "north/plant"}
        assert [entity.kind for entity in (await pool.ask(entities.entities, ANN, HOSTILE[:9], now=WHEN)).items] == [
            "user"
        ]
        entity = await pool.ask(entities.entity, ANN, "ip", "203.0.113.9", now=WHEN)
        assert (entity.alerts, entity.risk and entity.risk.score, len(entity.newest)) == (3, 120.0, 3)
        assert [(count.name, count.alerts) for count in entity.sites] == [("north/plant", 2), ("north/office", 1)]
        assert [(count.label, count.alerts) for count in entity.rules] == [("Failed logins", 3)]
        assert [day.alerts for day in entity.by_day][-1] == 3
        assert [campaign.campaign_id for campaign in entity.campaigns] == ["campaign-1", "campaign-2"][
            : len(entity.campaigns)
        ]
        for kind, value, scope in (("user", HOSTILE, ""), ("host", "web1", "north/plant"), ("site", "north/plant", "")):
            assert (await pool.ask(entities.entity, ANN, kind, value, scope, now=WHEN)).alerts >= 1
        with pytest.raises(Problem, match="no such entity"):
            await pool.ask(entities.entity, ANN, "ip", "' OR 1=1", now=WHEN)


async def test_rules(tables: DeltaTables) -> None:
    """Deployed and other ones, what fired and what never did, the matrix, one rule."""
    async with opened(Path(tables.root)) as pool:
        listed = {rule.rule_id: rule for rule in (await pool.ask(rules.rules, ANN, now=WHEN)).items}
        assert {name: (rule.deployed, rule.fired, rule.alerts) for name, rule in listed.items()} == {
            "rule-a": (True, True, 3), "rule-b": (False, True, 1), "rule-z": (True, False, 0)}  # fmt: skip
        assert [rule.rule_id for rule in (await pool.ask(rules.rules, ANN, show="silent", now=WHEN)).items] == [
            "rule-z"
        ]
        matrix = await pool.ask(rules.coverage, ANN, now=WHEN)
        cells = {(tactic.tactic, cell.technique.id): (cell.of_rules, cell.silent, cell.alerts)
                 for tactic in matrix.tactics for cell in tactic.cells}  # fmt: skip
        assert cells == {("credential-access", "T1110"): (1, 0, 3), ("credential-access", "T1003"): (1, 1, 0)}
        rule = await pool.ask(rules.rule, ANN, "rule-a", now=WHEN)
        assert ([count.alerts for count in rule.by_site], len(rule.newest)) == ([2, 1], 3)
        assert rule.noise is not None
        assert rule.noise.proposal.startswith("filter:")
        with pytest.raises(Problem, match="no such rule"):
            await pool.ask(rules.rule, ANN, "'", now=WHEN)


async def test_agents_and_sites(tables: DeltaTables) -> None:
    """Those in trouble first, with labels of the heartbeat; one in full; a heartbeat that is no JSON does no harm."""
    async with opened(Path(tables.root)) as pool:
        listed = await pool.ask(agents.agents, ANN, now=WHEN)
        assert [agent.agent_id for agent in listed.items] == ["agent-2", "agent-1"]
        assert listed.items[0].troubles == ["connection lost"]
        assert listed.items[1].labels == {"site": HOSTILE, "ring": "1"}
        assert (listed.sums.agents, listed.sums.lost) == (2, 1)
        agent = await pool.ask(agents.agent, ANN, "north", "agent-1", now=WHEN)
        assert (agent.group, agent.problems) == ("g", ["p"])
        assert (agent.inputs[0].evaluated, agent.inputs[0].backlog, agent.inputs[0].dropped) == (8, 1, 2)
        assert agent.troubles == ["two machines have its id"]  # a note of the landing
        assert (await pool.ask(agents.agent, ANN, "north", "agent-2", now=WHEN)).heartbeat == {}
        sites = (await pool.ask(agents.sites, ANN, now=WHEN)).items
        assert [(site.site, site.alerts, site.critical, site.troubled) for site in sites] == [
            ("plant", 2, 1, 0),
            ("office", 2, 0, 1),
        ]


async def test_now_of_nothing(tmp_path: Path) -> None:
    """Without any table it says so, and every list is empty."""
    async with opened(tmp_path) as pool:
        shown = await pool.ask(now.now, ANN)
        assert (shown.empty, shown.sentence, shown.campaigns) == (True, "No alerts.", [])
        assert shown.unrun.startswith("ingest")
        for function in (campaigns.campaigns, findings.anomalies, findings.risks, entities.entities, rules.rules,
                         rules.noise, agents.agents, agents.sites):  # fmt: skip
            assert (await pool.ask(function, ANN)).items == []
