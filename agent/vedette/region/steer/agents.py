"""What the controller knows of each agent, from its heartbeats: each is read once, and compared when it comes. No I/O.

``old`` and ``mid`` are earlier figures of an agent: every ``baseline`` seconds ``mid`` becomes ``old`` and the newest
``mid``, so that ``old`` lies one to two such spans back. When a ring begins, ``watch`` fixes how an agent without the
change was (``before``) and where its counters stand (``mark``).

What must outlive the controller is in ``rows``, from which ``restore`` makes the same. Times are UTC microseconds of
the controller, but within ``Vitals``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from vedette.fleet.documents import Change, Desired, Target
from vedette.region.steer.gates import Case, Finding, Limits
from vedette.region.steer.vitals import Rates, Vitals, rates, read
from vedette.system.foreign import count, listed, table, text, texts

SECOND = 1_000_000
MAX_AGENTS = 200_000
MAX_NAMED = 200
"""Agents beyond are not looked at, nor bundles and lookups that one of them names beyond."""


class Agent:
    """One agent. ``heard``: its last heartbeat, 0: nobody knows when; ``fresh``: the last one that is surely new."""

    __slots__ = (
        "before", "born", "desired", "findings", "fresh", "group", "heard", "id", "labels", "lag", "loaded", "lost",
        "mark", "mid", "now", "old", "problems", "refused", "since",
    )  # fmt: skip

    def __init__(self, id: str) -> None:
        self.id = id
        self.group = ""
        self.labels: Mapping[str, str] = {}
        self.heard = self.fresh = self.since = 0
        """``since``: it is heard again since then."""
        self.lost = True
        self.desired = 0
        self.loaded: Mapping[tuple[str, str], str] = {}
        """SHA-256 by kind and name of what it proves to run."""
        self.refused: Mapping[str, str] = {}
        self.problems: tuple[str, ...] = ()
        self.now: Vitals | None = None
        self.old: Vitals | None = None
        self.mid: Vitals | None = None
        self.mark: Vitals | None = None
        self.born: Vitals | None = None
        """The first figures of its present life, where the controller has seen it begin."""
        self.before: Rates | None = None
        self.lag = 0.0
        self.findings: tuple[Finding, ...] = ()

    def runs(self, kind: str, name: str, change: Change) -> bool:
        """Whether it proves to run ``to`` of the change."""
        return self._runs(kind, name, change.to)

    def returned(self, kind: str, name: str, change: Change) -> bool:
        """Whether it proves to run ``from``, or at least not ``to``, where nothing was before."""
        return self._runs(kind, name, change.from_) if change.from_ else not self._runs(kind, name, change.to)

    def _runs(self, kind: str, name: str, target: Target | None) -> bool:
        if target is None:  # a bundle or a release is then left as it is
            return kind in ("bundles", "release") or not self.loaded.get((kind, name))
        return self.loaded.get((kind, name)) == target.sha256

    def observed(self) -> float:
        """Seconds for which it has been watched."""
        return (self.now.time - self.old.time) / 1e6 if self.now and self.old else 0.0

    def compared(self) -> float:
        """Seconds of its present life that ``case`` compares."""
        now, mark = self.now, self.mark
        if now is None or mark is None:
            return 0.0
        begun = mark.time
        if mark.started != now.started:
            first = self.born.time if self.born is not None else now.started
            begun = max(begun, first) if first <= now.time else begun  # else its clock was put back
        return (now.time - begun) / 1e6

    def watch(self) -> None:
        """It is compared with how it was up to now."""
        self.mark, self.findings = self.now, ()
        self.before = rates(self.old, self.now) if self.old and self.now else None

    def case(self, refusal: str = "", silent: float = 0.0) -> Case:
        now, mark = self.now, self.mark
        after = None
        if now is not None and mark is not None:
            newer = (vitals for vitals in (self.old, self.born) if vitals is not None and vitals.time > mark.time)
            after = rates(max(newer, key=lambda vitals: vitals.time, default=mark), now)
        lag = min(self.lag, now.lag) if now is not None else 0.0
        return Case(now, mark, self.before, after, lag, refusal, silent)


class Agents:
    """All agents of a fleet, by id and by group."""

    def __init__(self) -> None:
        self.by_id: dict[str, Agent] = {}
        self.groups: dict[str, dict[str, Agent]] = {}
        self.desired: Desired | None = None
        self.limits: Limits | None = None
        self.followed = 0
        """Since when the controller goes by these documents."""
        self.connected = 0
        """Since when the controller hears: nobody is silent for longer."""

    def follow(self, desired: Desired, limits: Limits, now: int) -> None:
        """Another document is in force: its groups, its gates."""
        self.desired, self.limits, self.followed = desired, limits, now
        self.groups = {group.name: {} for group in desired.groups}
        for agent in self.by_id.values():
            self._place(agent)
            agent.findings = limits.findings(agent.case())  # heartbeats may have come before

    def _place(self, agent: Agent) -> None:
        self.groups.get(agent.group, {}).pop(agent.id, None)
        group = self.desired.group(agent.labels) if self.desired is not None and agent.labels else None
        agent.group = group.name if group else ""
        if group:
            self.groups[group.name][agent.id] = agent

    def take(self, id: str, beat: Mapping[str, Any], at: int, *, retained: bool = False) -> None:
        """A heartbeat or a last will of ``id``, as it came; ``retained``: the broker had it, it may be old."""
        agent = self.by_id.get(id)
        if agent is None:
            if len(self.by_id) >= MAX_AGENTS:
                return
            agent = self.by_id[id] = Agent(id)
        if beat.get("state") == "lost":
            agent.lost = True
            return
        away = agent.lost or at - agent.heard > self._span("away")
        agent.since = at if away else min(agent.since, at)
        agent.lost = False
        if retained:  # sent when its own clock says, at the latest: an agent that was stopped leaves it for good
            agent.heard = max(agent.heard, min(at, count(beat.get("time"))))
        else:
            agent.heard = agent.fresh = at
        self._actual(agent, beat.get("actual"))
        self._vitals(agent, beat)

    def _actual(self, agent: Agent, actual: object) -> None:
        if not isinstance(actual, dict):
            agent.loaded, agent.desired = {}, 0
            return
        labels = texts(actual.get("labels"))
        if labels != agent.labels:
            agent.labels = labels
            self._place(agent)
        agent.desired = count(actual.get("desired_serial"))
        loaded = dict(_loaded(actual))
        if loaded != agent.loaded:
            agent.loaded = loaded
        refused = {**texts(actual.get("refused")), **texts(table(actual.get("config")).get("undone"))}
        agent.refused = refused or _NONE
        agent.problems = tuple(listed(actual.get("problems"))[:20])

    def _vitals(self, agent: Agent, beat: Mapping[str, Any]) -> None:
        now = read(beat, agent.now)
        if now is None:
            return
        agent.lag = agent.now.lag if agent.now is not None else now.lag
        if agent.now is not None and now.started != agent.now.started:
            agent.born = now
        gap = agent.now is not None and now.time - agent.now.time > self._span("away")
        agent.now = now
        if agent.mid is None or agent.old is None or now.time < agent.mid.time:  # its clock was put back
            agent.old = agent.mid = now
        elif now.time - agent.mid.time >= self._span("baseline"):
            agent.old, agent.mid = agent.mid, now
        if agent.mark is None or gap or now.time < agent.mark.time:
            agent.mark = now
        agent.findings = self.limits.findings(agent.case()) if self.limits is not None else ()

    def _span(self, name: str) -> float:
        """A limit in seconds, as microseconds."""
        return self.limits.values[name] * SECOND if self.limits is not None else 900.0 * SECOND

    def followed_for(self, now: int) -> float:
        """Seconds for which the controller goes by these documents."""
        self.followed = min(self.followed, now)
        return (now - self.followed) / SECOND

    def silent(self, agent: Agent, now: int) -> float:
        """Seconds for which nothing was heard. What came after ``now`` came under a clock that was ahead."""
        agent.heard, self.connected = min(agent.heard, now), min(self.connected, now)
        return (now - max(agent.heard, self.connected)) / SECOND

    def gone(self, agent: Agent, now: int) -> bool:
        """It is away for so long that nobody waits for it."""
        return agent.heard == 0 or self.silent(agent, now) * SECOND > self._span("away")

    def away(self, agent: Agent, now: int) -> bool:
        return agent.lost or self.silent(agent, now) * SECOND > self._span("silence")

    # --- over a restart

    def rows(self) -> Iterator[tuple[Any, ...]]:
        for agent in self.by_id.values():
            if agent.now is not None:
                yield (
                    agent.id, agent.heard, dict(agent.labels), agent.old, agent.mark, agent.now, agent.before,
                )  # fmt: skip

    def restore(self, rows: list[Any]) -> None:
        """Raises ValueError for rows that are none."""
        try:
            for id, heard, labels, old, mark, now, before in rows:
                agent = self.by_id[str(id)] = Agent(str(id))
                agent.heard = int(heard)
                agent.labels = texts(labels)
                agent.old, agent.mark, agent.now = (None if row is None else Vitals(*row) for row in (old, mark, now))
                agent.mid = agent.now
                agent.before = None if before is None else Rates(*before)
                self._place(agent)
        except (TypeError, ValueError) as error:
            raise ValueError(f"not rows of agents: {error}") from error


_NONE: Mapping[str, str] = {}


def _loaded(actual: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """What an agent proves to run: kind, name and SHA-256. Overlay and release count once they are confirmed."""
    for kind in ("bundles", "lookups"):
        for name, part in islice(table(actual.get(kind)).items(), MAX_NAMED):
            if isinstance(sha256 := table(part).get("sha256"), str):
                yield (kind, name), sha256
    config = table(actual.get("config"))
    yield ("config", ""), text(config.get("overlay")) if config.get("confirmed", True) else "not confirmed"
    release = table(actual.get("release"))
    if isinstance(release.get("sha256"), str) and release.get("state") != "unconfirmed":
        yield ("release", ""), release["sha256"]
