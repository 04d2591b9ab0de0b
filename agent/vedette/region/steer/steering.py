"""All changes of a fleet's documents, at once: which moves are due, and what an operator's word makes. No I/O.

``watch`` is to be called before the documents that begin a ring go out: from then on the agents of the group, with the
change and without it, are compared with how they were up to now. What a ring has passed counts as usual in the next.
Agents that have another change under way stay compared with the time before that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from vedette.fleet.documents import Desired, Progress, Rollout, State
from vedette.model.times import MAX_SKEW
from vedette.region.steer.agents import SECOND, Agents
from vedette.region.steer.gates import limits, tally
from vedette.region.steer.rings import UNDER_WAY, Move, Note, Step, asked, decide, holds, standing

SHOWN = 20
"""Agents that are named."""


class Steering:
    def __init__(self, agents: Agents, notes: Mapping[str, Note]) -> None:
        self.agents, self.notes = agents, dict(notes)
        self.desired: Desired | None = None
        self.steps: tuple[Step, ...] = ()
        self.progress: dict[str, Progress] = {}
        self._clock_led = math.inf
        """By how many microseconds the clock led the monotonic one at the last look."""

    def follow(self, desired: Desired, rollout: Rollout | None, now: int) -> None:
        """These documents are in force."""
        if desired != self.desired:
            self.desired = desired
            self.agents.follow(desired, limits(desired.gates), now)
            before = {step.change.id: step for step in self.steps}
            self.steps = tuple(
                before.get(change.id) or Step(group.name, kind, name, change)
                for group in desired.groups
                for kind, name, change in group.changes()
                if not change.stays
            )
        ids = {step.change.id for step in self.steps}
        self.progress = {id: progress for id, progress in (rollout.changes if rollout else {}).items() if id in ids}
        self.notes = {id: note for id, note in self.notes.items() if id in ids}

    def note(self, id: str) -> Note:
        return self.notes.get(id, Note())

    def moves(self, now: int, at: float) -> Iterator[tuple[Step, Move]]:
        """What is due. ``at``: the monotonic clock's seconds; where ``now`` is set forward against them rings begin
        again, and nobody was silent."""
        led, self._clock_led = self._clock_led, now - at * SECOND
        leapt = self._clock_led - led > MAX_SKEW
        if leapt:
            self.agents.connected = now
        if self.desired is None:
            return
        for step in self.steps:
            progress, note = self.progress.get(step.change.id), self.note(step.change.id)
            note = replace(note, ring=-1) if leapt else note
            if self.desired.rings:
                move = decide(step, self.desired.rings, progress, note, self.agents, now)
            elif progress is not None and progress.state in UNDER_WAY:  # there are no rings any more
                move = Move(replace(progress, state=State.DONE), note, "rollout_done")
            else:
                move = None
            if move is not None:
                yield step, move

    def asked(self, command: str, change: str, why: str) -> list[tuple[Step, Move]]:
        """What ``pause``, ``resume`` or ``abort`` does to a change (its id or the beginning of it), or to all."""
        moves = []
        for step in self.steps if self.desired is not None and self.desired.rings else ():
            if step.change.id.startswith(change):
                move = asked(command, self.progress.get(step.change.id), self.note(step.change.id), why)
                if move is not None:
                    moves.append((step, move))
        return moves

    def watch(self, moves: list[tuple[Step, Move]]) -> bool:
        """Rings of these moves begin; returns whether any does."""
        begun = [step for step, move in moves if move.event == "rollout_ring"]
        for step in begun:
            others = self._having(step)
            for id, agent in self.agents.groups.get(step.group, {}).items():
                if id not in others:
                    agent.watch()
        return bool(begun)

    def _having(self, but: Step) -> set[str]:
        """Agents of a step's group that have another change under way."""
        agents = set[str]()
        members = self.agents.groups.get(but.group, {})
        for step in self.steps:
            progress = self.progress.get(step.change.id)
            if step.group == but.group and step != but and progress is not None and progress.state in UNDER_WAY:
                assert self.desired is not None
                agents |= holds(step, self.desired.rings, progress, members)
        return agents

    def take(self, moves: list[tuple[Step, Move]]) -> bool:
        """These moves are made; returns whether the roll-out document changes."""
        changed = False
        for step, move in moves:
            self.notes[step.change.id] = move.note
            if move.progress is not None:
                self.progress[step.change.id] = move.progress
                changed = True
        return changed

    # --- for people

    def facts(self, step: Step, move: Move) -> dict[str, Any]:
        """Of a move, for the record."""
        rings = self.desired.rings if self.desired else ()
        progress = move.progress or self.progress.get(step.change.id)
        facts: dict[str, Any] = {"change": step.change.id, "group": step.group, "what": step.what}
        if progress is not None and progress.ring < len(rings):
            facts["ring"] = rings[progress.ring].name
        if move.event == "rollout_ring" and progress is not None:
            named = sorted(holds(step, rings, progress, self.agents.groups.get(step.group, {})))
            facts.update(agents=len(named), named=named[:SHOWN])
        if move.note.reasons:
            facts["reasons"] = [*move.note.reasons]
        return facts

    def shown(self, now: int) -> list[dict[str, Any]]:
        """How every change stands, JSON-able."""
        return [self._shown(step, now) for step in self.steps]

    def _shown(self, step: Step, now: int) -> dict[str, Any]:
        assert self.desired is not None
        rings, note = self.desired.rings, self.note(step.change.id)
        progress = self.progress.get(step.change.id)
        stands = standing(step, rings, progress, note, self.agents, now)
        state = str(progress.state) if progress else "paused" if note.held else "waiting" if rings else "done"
        row: dict[str, Any] = {
            "change": step.change.id, "group": step.group, "what": step.what, "state": state,
            "from": step.change.from_ and step.change.from_.target.partition("/")[2],
            "to": step.change.to and step.change.to.target.partition("/")[2],
            "agents": {name: getattr(stands, name) for name in (
                "given", "taken", "waiting", "away", "refused", "gone", "outside", "back")},
            "reasons": [*note.reasons],
        }  # fmt: skip
        if progress is not None and progress.state in UNDER_WAY and progress.ring < len(rings):
            ring = rings[progress.ring]
            row["ring"] = {"number": progress.ring + 1, "of": len(rings), "name": ring.name, "soak": ring.soak}
            if note.soak:
                row["ring"]["left"] = max(0.0, ring.soak - (now - note.soak) / SECOND)
            row["gates"] = self._gates(stands.findings, stands.others)
        return row

    def _gates(self, inside: Mapping[str, Any], outside: Mapping[str, Any]) -> dict[str, Any]:
        """Gates that have found something: at how many agents with and without the change, and what."""
        assert self.agents.limits is not None
        gates = {}
        for gate in self.agents.limits.gates:
            counted = tally(inside, outside, gate, extreme=False)
            if counted.inside or counted.outside:
                gates[gate.name] = {"with": counted.inside, "without": counted.outside, "reasons": [*counted.reasons]}
        return gates
