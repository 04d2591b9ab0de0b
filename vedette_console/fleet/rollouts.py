"""How far changes have come, as the controller last said, and orders to it: pause, resume, abort.

An order is signed with the console's operator key and left at the broker; the controller decides, now or when it is
back. So nothing is claimed to be done before the controller says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from vedette.fleet.documents import Group
from vedette.region.compare import AS_WANTED
from vedette.region.steer import ordering
from vedette.region.steer.gates import BY_NAME, LIMITS
from vedette.region.steer.orders import order as make_order
from vedette.region.steer.rings import Step
from vedette.system.foreign import count
from vedette.system.wallclock import utc_now
from vedette_console.fleet.documents import Documents, Known
from vedette_console.fleet.live import Live, table
from vedette_console.fleet.live import text as text_of
from vedette_console.fleet.means import Means, reasoned, signer
from vedette_console.fleet.models import (
    AgentRow,
    Event,
    GateState,
    Moved,
    Order,
    Ring,
    RingState,
    RolloutPage,
    RolloutRow,
    RolloutsPage,
    Signature,
    Staged,
)
from vedette_console.fleet.overview import Overview, controller, target
from vedette_console.fleet.sight import Sight, may_on_group, need_group
from vedette_console.security.principal import Principal
from vedette_console.web import Problem

WAIT_SECONDS = 8.0
"""For the controller to take an order."""
RECORD_BYTES = 2 << 20
"""Of the fleet's record, that are looked through for the events of a change."""
FIGURES = ("given", "taken", "waiting", "refused", "away", "gone", "back", "outside")
MAX_EVENTS, MAX_AGENTS, MAX_TEXTS = 100, 200, 20
SENSE = {"waiting": ("pause", "abort"), "rolling": ("pause", "abort"), "paused": ("resume", "abort")}
"""Orders that change something, by the state of a change."""


class Rollouts:
    def __init__(self, means: Means, live: Live, documents: Documents, overview: Overview) -> None:
        self._means, self._live, self._documents, self._overview = means, live, documents, overview

    def page(self, who: Principal) -> RolloutsPage:
        known, sight = self._documents.read(), Sight(self._live, who)
        items = [row for _, row in self._rows(who, known)]
        at = controller(self._live, known)
        seen = None if who.sites().all else {group.name for group in self._groups(known, sight)}
        return RolloutsPage(
            fleet=known.fleet, link=sight.link(), controller=at, items=items, total=len(items),
            staged=staged(known, seen), old=at.state != "reports" or not self._live.connected,
        )  # fmt: skip

    def rollout(self, who: Principal, change: str) -> RolloutPage:
        """Raises Problem 404."""
        known = self._documents.read()
        group, row = self._find(who, known, change)
        now, sight = utc_now(), Sight(self._live, who)
        agents = [self._overview.row(beat, known, now) for beat in sight.beats(known.fleet)]
        mine = sorted((one for one in agents if one.group == group.name), key=_having)
        signed = known.desired.gates if known.desired is not None else {}
        limits = {name: signed.get(name, limit) for name, limit in LIMITS.items()}
        return RolloutPage(
            row=row, controller=controller(self._live, known), link=sight.link(), rings=rings(known, row),
            gates={name: limit for name, limit in limits.items() if name in BY_NAME},
            limits={name: limit for name, limit in limits.items() if name not in BY_NAME},
            events=events(self._means.need_trust(), row.change) if row.whole else [],
            agents=mine[:MAX_AGENTS], agents_count=len(mine),
        )  # fmt: skip

    async def order(self, who: Principal, change: str, command: str, reason: str) -> Order:
        """``command``: "pause", "resume" or "abort". Raises Problem 403, 404, 409 and 503."""
        broker = self._means.need_broker()
        known = await asyncio.to_thread(self._documents.read)
        group, row = self._find(who, known, change)
        need_group(who, f"rollout.{command}", known.fleet, group, self._sites(known.fleet))
        name, key = await asyncio.to_thread(signer, self._means, known, "operator")
        request = make_order(known.fleet, name, command, row.change, utc_now(), reasoned(reason, who.who))
        try:
            await ordering.give(broker, known.fleet, request.id, request.signed(key))
        except OSError as error:
            raise Problem(503, f"the order was not given: {error}",
                          what_to_do="try again when the broker is back") from error  # fmt: skip
        outcome = await self._outcome(known, request.id)
        return Order(id=request.id, command=command, change=row.change, outcome=outcome)

    async def _outcome(self, known: Known, id: str) -> str:
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            said = self._live.progress(known.fleet, known.keys)
            if said is not None and id in table(said, "requests"):
                return text_of(said["requests"][id])
            await asyncio.sleep(0.1)
        return "waits"

    def _sites(self, fleet: str) -> set[str]:
        return {beat.site for beat in self._live.beats(fleet)}

    def _find(self, who: Principal, known: Known, change: str) -> tuple[Group, RolloutRow]:
        found = [(group, row) for group, row in self._rows(who, known) if row.change.startswith(change)]
        if len(found) != 1 or not change:
            raise Problem(404, f"{len(found) or 'no'} changes have an id that begins with {change[:64]!r}",
                          where="change", what_to_do="see /rollouts")  # fmt: skip
        return found[0]

    def _rows(self, who: Principal, known: Known) -> list[tuple[Group, RolloutRow]]:
        """Of the documents in force, with what the controller says of each; of groups with agents that ``who`` sees."""
        if known.desired is None:
            return []
        said = self._live.progress(known.fleet, known.keys) or {}
        rows = said.get("changes") if said.get("desired_serial") == known.desired.serial else None
        reported = (
            {str(row.get("change")): row for row in rows if isinstance(row, dict)} if isinstance(rows, list) else {}
        )
        sight, sites = Sight(self._live, who), self._sites(known.fleet)
        found = []
        for group in self._groups(known, sight):
            allowed = [one for one in ("pause", "resume", "abort")
                       if may_on_group(who, f"rollout.{one}", known.fleet, group, sites)]  # fmt: skip
            for kind, name, change in group.changes():
                if change.stays:
                    continue
                progress = known.rollout.changes.get(change.id) if known.rollout is not None else None
                default = str(progress.state) if progress else "waiting" if known.desired.rings else "done"
                row = _row(
                    Step(group.name, kind, name, change), known.fleet, reported.get(change.id, {}), default, allowed
                )
                found.append((group, row if sight.whole(known.fleet, group) else in_part(row)))
        return found

    def _groups(self, known: Known, sight: Sight) -> list[Group]:
        now = utc_now()
        of_agents = {self._overview.row(beat, known, now).group for beat in sight.beats(known.fleet)}
        return sight.groups(known.fleet, known.desired.groups if known.desired is not None else (), of_agents)


def in_part(row: RolloutRow) -> RolloutRow:
    """For who does not see all of its group: how it stands, without what is of all its agents at once."""
    return row.model_copy(update={**dict.fromkeys(FIGURES), "gates": [], "reasons": [], "whole": False})


def _row(step: Step, fleet: str, said: Mapping[str, Any], state: str, allowed: list[str]) -> RolloutRow:
    agents, ring, gates = table(said, "agents"), table(said, "ring"), table(said, "gates")
    state = text_of(said.get("state")) or state
    given, taken, waiting, refused, away, gone, back, outside = (count(agents.get(name)) for name in FIGURES)
    return RolloutRow(
        change=step.change.id, fleet=fleet, group=step.group, what=step.what, before=target(step.change.from_),
        after=target(step.change.to), state=state, given=given, taken=taken, waiting=waiting, refused=refused,
        away=away, gone=gone, back=back, outside=outside,
        ring=RingState(number=count(ring.get("number")), of=count(ring.get("of")), name=text_of(ring.get("name")),
                       soak=_seconds(ring.get("soak")), left=_seconds(ring["left"]) if "left" in ring else None)
        if ring else None,
        gates=[GateState(name=name, with_change=count(table(gates, name).get("with")),
                         without=count(table(gates, name).get("without")),
                         reasons=_texts(table(gates, name).get("reasons"))) for name in [*gates][:MAX_TEXTS]],
        reasons=_texts(said.get("reasons")), may=[one for one in SENSE.get(state, ()) if one in allowed],
    )  # fmt: skip


def rings(known: Known, row: RolloutRow) -> list[Ring]:
    """As the document has them, and which of them the change has passed."""
    desired, rollout = known.desired, known.rollout
    if desired is None:
        return []
    progress = rollout.changes.get(row.change) if rollout is not None else None
    at = len(desired.rings) if row.state == "done" else progress.ring if progress is not None else -1
    if row.ring is not None and row.state != "done":
        at = row.ring.number - 1
    return [
        Ring(name=ring.name, agents=ring.agents, percent=ring.percent, soak=ring.soak,
             state="done" if i < at else "now" if i == at else "later")
        for i, ring in enumerate(desired.rings)
    ]  # fmt: skip


def staged(known: Known, groups: Collection[str] | None) -> Staged | None:
    """What waits for signatures, None when nothing does; ``groups``: only what changes one of these, None for all."""
    changes = [one for one in known.staged if groups is None or one.group in groups]
    if not known.signatures or (groups is not None and not changes):
        return None
    missing = any(one.missing for one in known.signatures)
    return Staged(
        signatures=[Signature(role=one.role, version=one.version, signed=[*one.signed], missing=one.missing)
                    for one in known.signatures],
        changes=[Moved(group=one.group, what=one.what, before=target(one.before), after=target(one.after))
                 for one in changes],
        commands=["vedette fleet sign --key YOUR.pem", "vedette fleet apply --broker URL"][0 if missing else 1 :],
    )  # fmt: skip


def events(trust: Path, change: str) -> list[Event]:
    """What the fleet's record says of a change, newest first; of its last RECORD_BYTES."""
    found: list[Event] = []
    with suppress(OSError), (trust / "audit.jsonl").open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - RECORD_BYTES))
        for line in reversed(file.read(RECORD_BYTES).splitlines()):
            if change.encode() not in line:
                continue
            try:
                row = orjson.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and (row.get("change") == change or change in _texts(row.get("changes"))):
                facts = {key: value for key, value in row.items() if key not in ("prev", "seq", "time", "event")}
                found.append(Event(time=text_of(row.get("time")), event=text_of(row.get("event")), facts=facts))
                if len(found) == MAX_EVENTS:
                    break
    return found


def _having(row: AgentRow) -> tuple[bool, str]:
    return row.state != AS_WANTED, row.agent


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0.0


def _texts(value: object) -> list[str]:
    return [str(one)[:1000] for one in value[:MAX_TEXTS]] if isinstance(value, list) else []
