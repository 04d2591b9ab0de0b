"""Desired against actual: agents by group with reasons, and one agent whole; only what the one who asks may see.

Blocking, for a thread: with many agents it takes a while. An agent is compared again when it says something else or
the documents change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from vedette.bundle.manifest import rfc3339
from vedette.fleet.documents import Change, Group, Target
from vedette.region import compare
from vedette.region.compare import AS_WANTED, AWAY, BEHIND, PROBLEM
from vedette.region.steer.ordering import OLD_SECONDS
from vedette.system.foreign import count
from vedette.system.wallclock import utc_now
from vedette_console.fleet.documents import Documents, Known
from vedette_console.fleet.live import Beat, Live, table
from vedette_console.fleet.live import text as text_of
from vedette_console.fleet.models import (
    AgentPage,
    AgentRow,
    Controller,
    FleetPage,
    GroupRow,
    InputRow,
    Operator,
    RulesetRow,
    Sample,
    Wanted,
    Warning,
)
from vedette_console.fleet.sight import Sight
from vedette_console.security.principal import Principal
from vedette_console.web import Problem

SILENT_SECONDS = 300
MAX_REASONS, MAX_REASON, MAX_LABELS, MAX_VALUES = 20, 300, 40, 20
SECOND = 1_000_000
_RANK = {PROBLEM: 0, "lost": 1, AWAY: 1, "silent": 2, BEHIND: 3, "degraded": 4}
"""Trouble first."""
HERE = ("fleet.ask", "evidence", "hunt")


class Overview:
    def __init__(self, live: Live, documents: Documents, operator: str = "") -> None:
        self._live, self._documents, self._operator = live, documents, operator
        self._compared: dict[tuple[str, str], tuple[Any, compare.Row]] = {}

    def page(
        self, who: Principal, q: str = "", group: str | None = None, state: str = "", offset: int = 0, limit: int = 100
    ) -> FleetPage:
        """``group`` None: all, "": the agents in none; ``state``: of ``AgentRow.state`` or ``health``."""
        known, now, sight = self._documents.read(), utc_now(), Sight(self._live, who)
        rows = [self.row(beat, known, now) for beat in sight.beats()]
        order = {one.name: i for i, one in enumerate(known.desired.groups if known.desired else ())}
        rows.sort(key=lambda row: (order.get(row.group, len(order)), rank(row), row.fleet, row.agent))
        chosen = [
            row for row in rows if fits(row, q) and group in (None, row.group) and state in ("", row.state, row.health)
        ]
        part, end = chosen[offset : offset + limit], offset + limit
        return FleetPage(
            fleet=known.fleet, link=sight.link(), controller=controller(self._live, known),
            desired_serial=known.desired.serial if known.desired else 0,
            rollout_serial=known.rollout.serial if known.rollout else 0, groups=groups(known, rows, sight), items=part,
            total=len(chosen), next=str(end) if end < len(chosen) else None,
            counts=dict(Counter(row.state for row in rows)), labels=labels(rows),
            versions=dict(Counter(row.version for row in rows).most_common(MAX_VALUES)), warnings=warnings(known),
            operators=operators(known, self._operator, now),
        )  # fmt: skip

    def row(self, beat: Beat, known: Known, now: int) -> AgentRow:
        """``now``: UTC microseconds."""
        one, figures = self._compare(beat, known), beat.figures
        reasons = [*filter(None, [beat.note]), *one.reasons]
        return AgentRow(
            fleet=beat.fleet, agent=beat.agent, site=beat.site, group=one.group,
            state=one.state,  # type: ignore[arg-type]  # of compare's five, or "unknown"
            reasons=[reason[:MAX_REASON] for reason in reasons[:MAX_REASONS]],
            labels=dict([*beat.labels.items()][:MAX_LABELS]), health=self._health(beat, now),  # type: ignore[arg-type]
            version=figures.version, bundle=figures.bundle, heard=_time(beat.heard), time=_time(beat.time),
            lag_seconds=figures.lag_seconds, lag_events=figures.lag_events, in_outbox=figures.in_outbox,
            alerts_lost=figures.alerts_lost, events_lost=figures.events_lost, quarantined=figures.quarantined,
        )  # fmt: skip

    def _compare(self, beat: Beat, known: Known) -> compare.Row:
        stamp = (known.desired, known.rollout, beat.actual, beat.lost)
        key = beat.fleet, beat.agent
        before = self._compared.get(key)
        if before is not None and all(one is two for one, two in zip(before[0], stamp, strict=True)):
            return before[1]
        if known.desired is None or beat.fleet != known.fleet:
            found = compare.Row(beat.agent, "", AWAY if beat.lost else "unknown", ())
        else:
            (found,) = compare.rows(known.desired, known.rollout, {beat.agent: beat.row()})
        if len(self._compared) > 2 * max(1000, self._live.link().agents):
            self._compared.clear()  # of agents that were taken out
        self._compared[key] = stamp, found
        return found

    def _health(self, beat: Beat, now: int) -> str:
        if beat.lost:
            return "lost"
        link = self._live.link()
        last = max(beat.heard, min(beat.time, now))
        if link.state == "connected" and now - last > SILENT_SECONDS * SECOND:
            return "silent"
        return beat.figures.state if beat.figures.state in ("running", "degraded") else "unknown"

    def agent(self, who: Principal, fleet: str, agent: str) -> AgentPage:
        """Raises Problem 404."""
        beat, known = Sight(self._live, who).beat(fleet, agent), self._documents.read()
        if beat is None:
            raise Problem(404, f"no agent {agent} of fleet {fleet} was heard", where="agent",
                          what_to_do="see /fleet for those that were")  # fmt: skip
        return detail(self.row(beat, known, utc_now()), beat, known, self._live.raw(fleet, agent), who)


def rank(row: AgentRow) -> int:
    return min(_RANK.get(row.state, 9), _RANK.get(row.health, 9))


def fits(row: AgentRow, q: str) -> bool:
    """All words of ``q`` are in what the row says; ``label=value`` is that label."""
    if not q:
        return True
    said = " ".join([row.agent, row.fleet, row.site, row.group, row.state, row.health, row.version, row.bundle,
                     *(f"{key}={value}" for key, value in row.labels.items()), *row.reasons]).lower()  # fmt: skip
    return all(word in said for word in q.lower().split())


def labels(rows: Iterable[AgentRow]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for key, value in row.labels.items():
            if key != "id" and (key in found or len(found) < MAX_LABELS):
                found.setdefault(key, Counter())[value] += 1
    return {key: dict(values.most_common(MAX_VALUES)) for key, values in sorted(found.items())}


def groups(known: Known, rows: list[AgentRow], sight: Sight) -> list[GroupRow]:
    """Those of the document that are seen, in its order, and the agents in none, where there are any."""
    by_group: dict[str, Counter[str]] = {}
    for row in rows:
        by_group.setdefault(row.group, Counter())[row.state] += 1
    found = [
        _group(known, group, by_group.get(group.name, Counter()))
        for group in sight.groups(known.fleet, known.desired.groups if known.desired else (), by_group)
    ]
    return found + ([_group(known, None, by_group[""])] if "" in by_group else [])


def _group(known: Known, group: Group | None, states: Counter[str]) -> GroupRow:
    changes = group.changes() if group else ()
    return GroupRow(
        name=group.name if group else "", match=group.match if group else "", agents=states.total(),
        as_wanted=states[AS_WANTED], behind=states[BEHIND], problem=states[PROBLEM], away=states[AWAY],
        wanted=[wanted(known, f"{kind} {name}".strip(), change) for kind, name, change in changes],
    )  # fmt: skip


def wanted(known: Known, what: str, change: Change) -> Wanted:
    progress = known.rollout.changes.get(change.id) if known.rollout is not None else None
    rings = bool(known.desired and known.desired.rings)
    state = str(progress.state) if progress is not None else "waiting" if rings else "done"
    return Wanted(what=what, change=change.id, target=target(change.to), before=target(change.from_),
                  state="stays" if change.stays else state)  # fmt: skip


def target(one: Target | None) -> str:
    return "none" if one is None else f"{one.target.partition('/')[2]} ({one.sha256[:12]})"


def controller(live: Live, known: Known) -> Controller:
    said = live.progress(known.fleet, known.keys) if known.fleet else None
    if said is None:
        return Controller(state="silent" if live.connected else "unknown")
    time = count(count(said.get("time")) * SECOND)
    old = utc_now() - time > OLD_SECONDS * SECOND
    return Controller(state="old" if old else "reports", holder=text_of(said.get("holder")), time=_time(time))


def warnings(known: Known) -> list[Warning]:
    how = {"root": "rotate", "targets": "plan"}
    found = [
        Warning(role=one.role, expires=f"{one.expires:%Y-%m-%dT%H:%M:%SZ}", expired=one.expired,
                what_to_do=f"vedette fleet {how.get(one.role, 'apply')}")
        for one in known.warnings
    ]  # fmt: skip
    if known.fault:
        found.append(Warning(role="documents", expires="", expired=False, what_to_do=known.fault[:500]))
    return found


def operators(known: Known, mine: str, now: int) -> list[Operator]:
    return [
        Operator(name=one.name, roles=sorted(one.roles), expires=rfc3339(one.expires), expired=one.expires <= now,
                 console=one.name == mine)
        for one in (known.operators.by_name.values() if known.operators else ())
    ]  # fmt: skip


def detail(row: AgentRow, beat: Beat, known: Known, raw: Mapping[str, Any] | None, who: Principal) -> AgentPage:
    said, actual = raw or {}, beat.actual or {}
    config, release, rules = table(actual, "config"), table(actual, "release"), table(said, "rules")
    process, log = table(said, "process"), table(said, "raw_log")
    loaded = table(actual, "bundles")
    group = next((one for one in known.desired.groups if one.name == row.group), None) if known.desired else None
    targets = {name: change.to for name, change in group.bundles.items() if change.to} if group else {}
    return AgentPage(
        row=row, started=_time(beat.figures.started), inputs=inputs(said),
        rulesets=[
            ruleset(name, table(loaded, name), targets.get(name))
            for name in dict.fromkeys([*[*loaded][:MAX_LABELS], *targets])
        ],
        problems=_texts(actual.get("problems")), waits=_texts(actual.get("waits")),
        refused={key[:MAX_REASON]: str(one)[:MAX_REASON] for key, one in _first(actual, "refused")},
        overlay=text_of(config.get("overlay")), overlay_confirmed=config.get("confirmed") is not False,
        release=text_of(release.get("version")), trusted_until=_iso(actual.get("trusted_until")),
        alerting={str(key)[:MAX_REASON]: count(n) for key, n in _first(rules, "alerts")},
        quarantined=_texts(rules.get("quarantined")),
        budgets={key: one for key, one in _first(said, "budgets") if isinstance(one, dict)},
        disk_failing=_texts(table(said, "disk").get("failing")), raw_log_bytes=count(log.get("bytes")),
        raw_log_max_bytes=count(log.get("max_bytes")), crashes=beat.figures.crashes,
        starts=count(process.get("starts")), history=history(beat),
        may=[act for act in HERE if who.may(act, row.fleet, row.site)], raw=dict(raw) if raw is not None else None,
    )  # fmt: skip


def ruleset(name: str, loaded: Mapping[str, Any], target: Target | None) -> RulesetRow:
    """What is loaded, called as its target's file is where it is that one, else by its version."""
    sha256, version = text_of(loaded.get("sha256")), loaded.get("version")
    called = "" if version is None else f"version {version}"
    if target is not None and sha256 == target.sha256:
        called = target.target.rpartition("/")[2].removesuffix(".vbundle")
    return RulesetRow(name=name, bundle=called, sha256=sha256, wanted=target.sha256 if target is not None else "")


def inputs(said: Mapping[str, Any]) -> list[InputRow]:
    backlog = table(said, "backlog")
    return [
        InputRow(
            name=name, received=count(one.get("received")), stored=count(one.get("stored")),
            evaluated=count(one.get("judged")), backlog=count(backlog.get(name)),
            dropped=sum(map(count, table(one, "dropped").values())),
            lost=sum(map(count, table(one, "lost").values())),
        )
        for name, one in _first(said, "inputs") if isinstance(one, dict)
    ]  # fmt: skip


def history(beat: Beat) -> list[Sample]:
    found = []
    for before, now in pairwise(beat.past):
        seconds = (now.time - before.time) / SECOND
        events = round(max(0, now.events - before.events) / seconds) if seconds > 0 else 0
        found.append(Sample(time=rfc3339(now.time), events=events, lag_seconds=now.lag, in_outbox=now.outbox))
    return found


def _time(micros: int) -> str | None:
    return rfc3339(micros) if micros > 0 else None


def _iso(value: object) -> str | None:
    return value[:40] if isinstance(value, str) else _time(count(value))


def _first(row: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    return [*table(row, name).items()][:MAX_LABELS]


def _texts(value: object) -> list[str]:
    rows = value if isinstance(value, list) else [*value] if isinstance(value, dict) else []
    return [
        (str(one.get("title") or one) if isinstance(one, dict) else str(one))[:MAX_REASON] for one in rows[:MAX_LABELS]
    ]
