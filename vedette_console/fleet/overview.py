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
from vedette.region.reload.health import Trouble
from vedette.region.steer.ordering import OLD_SECONDS
from vedette.system.foreign import count, table, text
from vedette.system.wallclock import utc_now
from vedette_console.fleet.documents import Contents, Documents
from vedette_console.fleet.live import Beat, Live
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
from vedette_console.web import part_of, written

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
        contents, now, sight = self._documents.read(), utc_now(), Sight(self._live, who)
        rows = [self.row(beat, contents, now) for beat in sight.beats()]
        order = {group.name: i for i, group in enumerate(contents.desired.groups if contents.desired else ())}
        rows.sort(key=lambda row: (order.get(row.group, len(order)), rank(row), row.fleet, row.agent))
        chosen = [
            row for row in rows if fits(row, q) and group in (None, row.group) and state in ("", row.state, row.health)
        ]
        part = part_of(chosen, offset, limit, lambda row: row)
        return FleetPage(
            fleet=contents.fleet, link=sight.link(), controller=controller(self._live, contents),
            desired_serial=contents.desired.serial if contents.desired else 0,
            rollout_serial=contents.rollout.serial if contents.rollout else 0, groups=groups(contents, rows, sight),
            items=part.items, total=part.total or 0, next=part.next,
            counts=dict(Counter(row.state for row in rows)), labels=labels(rows),
            versions=dict(Counter(row.version for row in rows).most_common(MAX_VALUES)),
            warnings=warnings(contents, self._live.lookups(contents.fleet)),
            operators=operators(contents, self._operator, now),
        )  # fmt: skip

    def row(self, beat: Beat, contents: Contents, now: int) -> AgentRow:
        """``now``: UTC microseconds."""
        compared, figures = self._compare(beat, contents), beat.figures
        reasons = [*filter(None, [beat.note, beat.site_note]), *compared.reasons]
        return AgentRow(
            fleet=beat.fleet, agent=beat.agent, site=beat.site, group=compared.group,
            state=compared.state,  # type: ignore[arg-type]  # of compare's five, or "unknown"
            reasons=[reason[:MAX_REASON] for reason in reasons[:MAX_REASONS]],
            labels=dict([*beat.labels.items()][:MAX_LABELS]), health=self._health(beat, now),  # type: ignore[arg-type]
            version=figures.version, bundle=figures.bundle, heard=written(beat.heard), time=written(beat.time),
            lag_seconds=figures.lag_seconds, lag_events=figures.lag_events, in_outbox=figures.in_outbox,
            alerts_lost=figures.alerts_lost, events_lost=figures.events_lost, quarantined=figures.quarantined,
        )  # fmt: skip

    def _compare(self, beat: Beat, contents: Contents) -> compare.Row:
        stamp = (contents.desired, contents.rollout, beat.actual, beat.lost)
        key = beat.fleet, beat.agent
        before = self._compared.get(key)
        if before is not None and all(old is new for old, new in zip(before[0], stamp, strict=True)):
            return before[1]
        if contents.desired is None or beat.fleet != contents.fleet:
            row = compare.Row(beat.agent, "", AWAY if beat.lost else "unknown", ())
        else:
            (row,) = compare.rows(contents.desired, contents.rollout, {beat.agent: beat.row()})
        if len(self._compared) > 2 * max(1000, self._live.link().agents):
            self._compared.clear()  # of agents that were taken out
        self._compared[key] = stamp, row
        return row

    def _health(self, beat: Beat, now: int) -> str:
        if beat.lost:
            return "lost"
        link = self._live.link()
        if link.state == "connected" and beat.silent(now) > SILENT_SECONDS:
            return "silent"
        return beat.figures.state if beat.figures.state in ("running", "degraded") else "unknown"

    def agent(self, who: Principal, fleet: str, agent: str) -> AgentPage:
        """Raises Problem 404."""
        beat, contents = Sight(self._live, who).need_beat(fleet, agent), self._documents.read()
        return detail(self.row(beat, contents, utc_now()), beat, contents, self._live.raw(fleet, agent), who)


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
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        for key, value in row.labels.items():
            if key != "id" and (key in counts or len(counts) < MAX_LABELS):
                counts.setdefault(key, Counter())[value] += 1
    return {key: dict(values.most_common(MAX_VALUES)) for key, values in sorted(counts.items())}


def groups(contents: Contents, rows: list[AgentRow], sight: Sight) -> list[GroupRow]:
    """Those of the document that are seen, in its order, and the agents in none, where there are any."""
    by_group: dict[str, Counter[str]] = {}
    for row in rows:
        by_group.setdefault(row.group, Counter())[row.state] += 1
    seen = [
        _group(contents, group, by_group.get(group.name, Counter()))
        for group in sight.groups(contents.fleet, contents.desired.groups if contents.desired else (), by_group)
    ]
    return seen + ([_group(contents, None, by_group[""])] if "" in by_group else [])


def _group(contents: Contents, group: Group | None, states: Counter[str]) -> GroupRow:
    changes = group.changes() if group else ()
    return GroupRow(
        name=group.name if group else "", match=group.match if group else "", agents=states.total(),
        as_wanted=states[AS_WANTED], behind=states[BEHIND], problem=states[PROBLEM], away=states[AWAY],
        wanted=[wanted(contents, f"{kind} {name}".strip(), change) for kind, name, change in changes],
    )  # fmt: skip


def wanted(contents: Contents, what: str, change: Change) -> Wanted:
    progress = contents.rollout.changes.get(change.id) if contents.rollout is not None else None
    rings = bool(contents.desired and contents.desired.rings)
    state = str(progress.state) if progress is not None else "waiting" if rings else "done"
    return Wanted(what=what, change=change.id, target=target(change.to), before=target(change.from_),
                  state="stays" if change.stays else state)  # fmt: skip


def target(target: Target | None) -> str:
    return "none" if target is None else f"{target.target.partition('/')[2]} ({target.sha256[:12]})"


def controller(live: Live, contents: Contents) -> Controller:
    said = live.progress(contents.fleet, contents.keys) if contents.fleet else None
    if said is None:
        return Controller(state="silent" if live.connected else "unknown")
    time = count(count(said.get("time")) * SECOND)
    old = abs(utc_now() - time) > OLD_SECONDS * SECOND
    return Controller(state="old" if old else "reports", holder=text(said.get("holder")), time=written(time))


def warnings(contents: Contents, lookups: Iterable[Trouble]) -> list[Warning]:
    how = {"root": "rotate", "targets": "plan"}
    shown = [
        Warning(role=role.role, expires=f"{role.expires:%Y-%m-%dT%H:%M:%SZ}", expired=role.expired,
                what_to_do=f"vedette fleet {how.get(role.role, 'apply')}")
        for role in contents.warnings
    ]  # fmt: skip
    shown += [
        Warning(role=f"lookup {trouble.name}", expires=rfc3339(trouble.since), expired=True,
                what_to_do=f"vedette lookup refresh --only {trouble.name}", reason=trouble.text)
        for trouble in lookups
    ]  # fmt: skip
    if contents.fault:
        shown.append(Warning(role="documents", expires="", expired=False, what_to_do=contents.fault[:500]))
    return shown


def operators(contents: Contents, mine: str, now: int) -> list[Operator]:
    return [
        Operator(name=operator.name, roles=sorted(operator.roles), expires=rfc3339(operator.expires),
                 expired=operator.expires <= now, console=operator.name == mine)
        for operator in (contents.operators.by_name.values() if contents.operators else ())
    ]  # fmt: skip


def detail(row: AgentRow, beat: Beat, contents: Contents, raw: Mapping[str, Any] | None, who: Principal) -> AgentPage:
    said, actual = raw or {}, beat.actual or {}
    config, release, rules = table(actual.get("config")), table(actual.get("release")), table(said.get("rules"))
    process, log = table(said.get("process")), table(said.get("raw_log"))
    loaded = table(actual.get("bundles"))
    group = contents.group(row.group)
    targets = {name: change.to for name, change in group.bundles.items() if change.to} if group else {}
    return AgentPage(
        row=row, started=written(beat.figures.started), inputs=inputs(said),
        rulesets=[
            ruleset(name, table(loaded.get(name)), targets.get(name))
            for name in dict.fromkeys([*[*loaded][:MAX_LABELS], *targets])
        ],
        problems=_texts(actual.get("problems")), waits=_texts(actual.get("waits")),
        refused={key[:MAX_REASON]: str(reason)[:MAX_REASON] for key, reason in _first(actual, "refused")},
        overlay=text(config.get("overlay")), overlay_confirmed=config.get("confirmed") is not False,
        release=text(release.get("version")), trusted_until=_iso(actual.get("trusted_until")),
        alerting={str(key)[:MAX_REASON]: count(n) for key, n in _first(rules, "alerts")},
        quarantined=_texts(rules.get("quarantined")),
        budgets={key: budget for key, budget in _first(said, "budgets") if isinstance(budget, dict)},
        disk_failing=_texts(table(said.get("disk")).get("failing")), raw_log_bytes=count(log.get("bytes")),
        raw_log_max_bytes=count(log.get("max_bytes")), crashes=beat.figures.crashes,
        starts=count(process.get("starts")), history=history(beat),
        may=[act for act in HERE if who.may(act, row.fleet, row.site)], raw=dict(raw) if raw is not None else None,
    )  # fmt: skip


def ruleset(name: str, loaded: Mapping[str, Any], target: Target | None) -> RulesetRow:
    """A rule set that is loaded, called as its target's file is where it is that target, else by its version."""
    sha256, version = text(loaded.get("sha256")), loaded.get("version")
    called = "" if version is None else f"version {version}"
    if target is not None and sha256 == target.sha256:
        called = target.target.rpartition("/")[2].removesuffix(".vbundle")
    return RulesetRow(name=name, bundle=called, sha256=sha256, wanted=target.sha256 if target is not None else "")


def inputs(said: Mapping[str, Any]) -> list[InputRow]:
    backlog = table(said.get("backlog"))
    return [
        InputRow(
            name=name, received=count(counts.get("received")), stored=count(counts.get("stored")),
            evaluated=count(counts.get("judged")), backlog=count(backlog.get(name)),
            dropped=sum(map(count, table(counts.get("dropped")).values())),
            lost=sum(map(count, table(counts.get("lost")).values())),
        )
        for name, counts in _first(said, "inputs") if isinstance(counts, dict)
    ]  # fmt: skip


def history(beat: Beat) -> list[Sample]:
    samples = []
    for before, now in pairwise(beat.past):
        seconds = (now.time - before.time) / SECOND
        events = round(max(0, now.events - before.events) / seconds) if seconds > 0 else 0
        samples.append(Sample(time=rfc3339(now.time), events=events, lag_seconds=now.lag, in_outbox=now.outbox))
    return samples


def _iso(value: object) -> str | None:
    return value[:40] if isinstance(value, str) else written(count(value))


def _first(row: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    return [*table(row.get(name)).items()][:MAX_LABELS]


def _texts(value: object) -> list[str]:
    rows = value if isinstance(value, list) else [*value] if isinstance(value, dict) else []
    return [
        (str(row.get("title") or row) if isinstance(row, dict) else str(row))[:MAX_REASON] for row in rows[:MAX_LABELS]
    ]
