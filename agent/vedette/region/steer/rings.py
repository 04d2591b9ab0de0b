"""How one change goes through the rings: how its agents stand, and what follows from that. Pure.

* A ring **begins** when it has an agent to go to and its agents were watched for ``baseline`` seconds. A ring of
  ``agents`` names those of the group that are heard and follow the documents, with the lowest ``place``; while they are
  too few and more are heard it waits, for ``silence`` seconds, in which each is to be heard again. One of ``percent``
  that holds nobody who is heard names one.
* Its **soak** begins when the share ``taken`` of its agents prove to run the change; who is away for ``away`` seconds
  is not waited for.
* It **ends** when the soak is over, no gate has failed, and as many of them as had to take it were heard after that,
  with figures of one life over the soak, or over ``baseline`` seconds of it: who was restarted has shown nothing yet.
  A ring that adds no agent is passed over. After the last one the change is done. Who was away takes what its ring has
  when it comes back.
* A gate that fails **aborts** the change, paused ones too: everybody goes back to ``from``. It is not begun again but
  by a new change (``vedette fleet plan --retry``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from vedette.fleet.documents import MAX_EXTRA, Change, Progress, Ring, State, place
from vedette.model.times import MAX_SKEW
from vedette.region.steer.agents import SECOND, Agent, Agents
from vedette.region.steer.gates import Finding, verdict

UNDER_WAY = (State.ROLLING, State.PAUSED)
_PROBLEMS = {"bundles": "bundle", "config": "config", "lookups": "lookup", "release": "release"}
"""How the problems of an agent begin that are about a kind of change. That it waits for a window is none."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change of a group, and what is known of it: ``kind`` and ``name`` as ``Group.changes`` gives them."""

    group: str
    kind: str
    name: str
    change: Change
    places: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def what(self) -> str:
        return f"{self.kind} {self.name}".strip()

    def place(self, agent_id: str) -> float:
        at = self.places.get(agent_id)
        if at is None:
            at = self.places[agent_id] = place(self.change.id, agent_id)
        return at


class Note(Struct, frozen=True, forbid_unknown_fields=True):
    """What no document says: when ``ring`` began and when its soak did (0: not yet), UTC microseconds; why a change was
    aborted or paused; ``held``: paused before it began."""

    ring: int = -1
    since: int = 0
    soak: int = 0
    held: bool = False
    reasons: tuple[str, ...] = ()


class Standing(NamedTuple):
    """How the agents of a change's group stand. ``given``: those in its rings, without those that are gone; of them
    ``taken``, ``waiting``, ``away`` and ``refused``; ``gone``; ``outside``: those not in its rings that are heard."""

    given: int = 0
    taken: int = 0
    waiting: int = 0
    away: int = 0
    refused: int = 0
    gone: int = 0
    outside: int = 0
    left: int = 0
    """Of those away, that are not waited for any more."""
    fresh: int = 0
    """Of the taken, heard since the soak is over, with figures of long enough."""
    back: int = 0
    """Of an aborted change: those that run ``from`` again."""
    findings: Mapping[str, tuple[Finding, ...]] = {}
    others: Mapping[str, tuple[Finding, ...]] = {}


class Move(NamedTuple):
    """What is to be done: the change's next progress (None: it stays) and note; ``event`` for the record."""

    progress: Progress | None
    note: Note
    event: str = ""


def holds(step: Step, rings: Sequence[Ring], progress: Progress, agents: Iterable[str]) -> set[str]:
    """Those of ``agents`` that the change's rings hold, as ``documents.included`` has it."""
    reached = max((ring.percent for ring in rings[: progress.ring + 1] if ring.percent is not None), default=0.0) / 100
    named = {*progress.extra}
    return {id for id in agents if id in named or step.place(id) < reached}


def standing(
    step: Step, rings: Sequence[Ring], progress: Progress | None, note: Note, agents: Agents, now: int
) -> Standing:
    members = agents.groups.get(step.group, {})
    if progress is None or progress.state is State.DONE:
        return _settled(step, members, agents, now, done=progress is not None)
    within = holds(step, rings, progress, members)
    soak = rings[min(progress.ring, len(rings) - 1)].soak if rings else 0.0
    over = note.soak + round(soak * SECOND) if note.soak and rings else 0
    assert agents.limits is not None
    enough = min(soak, agents.limits.values["baseline"])
    silence, within_time = agents.limits.values["silence"], agents.limits.values["take_within"] * SECOND
    counts = dict.fromkeys(Standing._fields[:10], 0)
    findings: tuple[dict[str, tuple[Finding, ...]], dict[str, tuple[Finding, ...]]] = {}, {}
    for id, agent in members.items():
        inside = id in within
        there = agent.heard >= note.since - silence * SECOND  # when the ring began, or since
        if agent.heard == 0 or (not there and agents.away(agent, now)):
            counts["gone"] += inside
            continue
        refusal = _refusal(step, agent, note, now, within_time) if inside else ""
        silent = agents.silent(agent, now) if there else 0.0
        wrong = agent.findings
        if (refusal or silent > silence) and agents.limits is not None:
            wrong = agents.limits.findings(agent.case(refusal, silent))
        if wrong:
            findings[0 if inside else 1][id] = wrong
        if not inside:
            counts["outside"] += 1
        elif progress.state is State.ABORTED:
            counts["given"] += 1
            counts["back"] += agent.returned(step.kind, step.name, step.change)
        else:
            counts["given"] += 1
            counts[_where(step, agent, refusal, agents, now)] += 1
            counts["left"] += agents.gone(agent, now)
            shown = over and agent.fresh >= over and agent.compared() >= enough
            counts["fresh"] += bool(shown and agent.runs(step.kind, step.name, step.change))
    return Standing(**counts, findings=findings[0], others=findings[1])


def _settled(step: Step, members: Mapping[str, Agent], agents: Agents, now: int, *, done: bool) -> Standing:
    heard = [agent for agent in members.values() if not agents.away(agent, now)]
    if not done:
        return Standing(outside=len(heard), gone=len(members) - len(heard))
    taken = sum(agent.runs(step.kind, step.name, step.change) for agent in heard)
    return Standing(given=len(heard), taken=taken, waiting=len(heard) - taken, gone=len(members) - len(heard))


def _where(step: Step, agent: Agent, refusal: str, agents: Agents, now: int) -> str:
    if agents.away(agent, now):
        return "away"
    if refusal:
        return "refused"
    return "taken" if agent.runs(step.kind, step.name, step.change) else "waiting"


def _refusal(step: Step, agent: Agent, note: Note, now: int, within: float) -> str:
    """Why an agent does not take the change that it was given; empty while it may still come."""
    to = step.change.to
    if to is not None and to.sha256 in agent.refused:
        return agent.refused[to.sha256]
    if agent.runs(step.kind, step.name, step.change) or now - max(note.since, agent.since) <= within:
        return ""
    about = _PROBLEMS.get(step.kind, "\0")
    return next((problem for problem in agent.problems if problem.startswith(about)), "")


def decide(
    step: Step, rings: Sequence[Ring], progress: Progress | None, note: Note, agents: Agents, now: int
) -> Move | None:
    """What follows now; None: nothing. ``standing`` is computed for changes under way only."""
    limits = agents.limits
    assert limits is not None
    if progress is None:
        return None if note.held else _begin(step, rings, 0, (), agents, now)
    if progress.state not in UNDER_WAY:
        return None
    # The controller was killed in between, or its clock, which was ahead or behind, is set right: the ring begins now.
    if note.ring != progress.ring or max(note.since, note.soak) > now + MAX_SKEW:
        return Move(None, replace(note, ring=progress.ring, since=now, soak=0))
    stands = standing(step, rings, progress, note, agents, now)
    if failed := verdict(limits, stands.findings, stands.given, stands.others, stands.outside):
        reasons = tuple(failed)
        return Move(replace(progress, state=State.ABORTED), replace(note, reasons=reasons), "rollout_aborted")
    if progress.state is State.PAUSED:
        return None
    ring = rings[min(progress.ring, len(rings) - 1)]
    need = max(1, math.ceil(limits.values["taken"] * (stands.given - stands.left)))
    if stands.taken < need:
        return None
    if not note.soak:
        return Move(None, replace(note, soak=now), "rollout_soaks")
    if now < note.soak + ring.soak * SECOND or stands.fresh < need:
        return None
    return _next(step, rings, progress, agents, now)


def _next(step: Step, rings: Sequence[Ring], progress: Progress, agents: Agents, now: int) -> Move | None:
    """The next ring that adds an agent, or the end."""
    members = agents.groups.get(step.group, {})
    there = [id for id, agent in members.items() if not agents.gone(agent, now)]
    before = holds(step, rings, progress, there)
    for index in range(progress.ring + 1, len(rings)):
        if holds(step, rings, _reached(step, rings, index, progress.extra, agents, now), there) - before:
            return _begin(step, rings, index, progress.extra, agents, now)
    done = replace(progress, state=State.DONE)
    return Move(done, Note(progress.ring, now, now), "rollout_done")


def _reached(
    step: Step, rings: Sequence[Ring], index: int, extra: tuple[str, ...], agents: Agents, now: int
) -> Progress:
    """The progress with which ring ``index`` begins."""
    members = agents.groups.get(step.group, {})
    ready = sorted(
        (id for id, agent in members.items() if not agents.away(agent, now) and _follows(agent, agents)),
        key=step.place,
    )
    ring, progress = rings[index], Progress(State.ROLLING, index, extra)
    within = holds(step, rings, progress, members)
    least = min(ring.agents, MAX_EXTRA) if ring.agents is not None else 0 if within & {*ready} else 1
    named = {*extra}
    chosen = [id for id in ready if id not in named][: max(0, least - len(named))]
    return replace(progress, extra=(*extra, *chosen)[:MAX_EXTRA])


def _follows(agent: Agent, agents: Agents) -> bool:
    return agents.desired is not None and agent.desired == agents.desired.serial


def _begin(
    step: Step, rings: Sequence[Ring], index: int, extra: tuple[str, ...], agents: Agents, now: int
) -> Move | None:
    """Ring ``index`` begins, if it has its number of agents and they were watched long enough."""
    assert agents.limits is not None
    members = agents.groups.get(step.group, {})
    progress = _reached(step, rings, index, extra, agents, now)
    there = {id: agent for id, agent in members.items() if not agents.away(agent, now)}
    heard = [there[id] for id in holds(step, rings, progress, there)]
    number = min(rings[index].agents or 0, MAX_EXTRA, len(there))
    if len(heard) < number and agents.followed_for(now) < agents.limits.values["silence"]:
        return None
    watched = sum(agent.observed() >= agents.limits.values["baseline"] for agent in heard)
    if not heard or watched < agents.limits.values["taken"] * len(heard):
        return None
    return Move(progress, Note(index, now), "rollout_ring")


def asked(command: str, progress: Progress | None, note: Note, why: str) -> Move | None:
    """What an operator's ``pause``, ``resume`` or ``abort`` makes of a change; None: nothing to do."""
    state = State.PAUSED if progress is None and note.held else progress.state if progress else None
    noted = replace(note, reasons=(why,))
    match command, state:
        case "pause", None:
            return Move(None, replace(noted, held=True), "rollout_paused")
        case "pause", State.ROLLING if progress:
            return Move(replace(progress, state=State.PAUSED), noted, "rollout_paused")
        case "resume", State.PAUSED:
            resumed = replace(progress, state=State.ROLLING) if progress else None
            return Move(resumed, replace(noted, held=False), "rollout_resumed")
        case "abort", None | State.ROLLING | State.PAUSED:
            stopped = replace(progress, state=State.ABORTED) if progress else Progress(State.ABORTED)
            return Move(stopped, replace(noted, held=False), "rollout_aborted")
    return None
