"""Changes and how far they have come, as the controller last said, and orders to it: pause, resume, abort.

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
from vedette.system.foreign import count, items, table, text
from vedette.system.wallclock import utc_now
from vedette_console.fleet.documents import Contents, Documents
from vedette_console.fleet.live import Live, seconds
from vedette_console.fleet.means import need_broker, need_trust, reasoned, signer
from vedette_console.fleet.models import (
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
from vedette_console.settings import Settings
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
    def __init__(self, settings: Settings, live: Live, documents: Documents, overview: Overview) -> None:
        self._settings, self._live, self._documents, self._overview = settings, live, documents, overview

    def page(self, who: Principal) -> RolloutsPage:
        contents, sight = self._documents.read(), Sight(self._live, who)
        items = [row for _, row in self._rows(who, contents)]
        at = controller(self._live, contents)
        seen = None if who.sites().all else {group.name for group in self._groups(contents, sight)}
        return RolloutsPage(
            fleet=contents.fleet, link=sight.link(), controller=at, items=items, total=len(items),
            staged=staged(contents, seen), old=at.state != "reports" or not self._live.connected,
        )  # fmt: skip

    def rollout(self, who: Principal, change: str) -> RolloutPage:
        """Raises Problem 404."""
        contents = self._documents.read()
        group, row = self._find(who, contents, change)
        now, sight = utc_now(), Sight(self._live, who)
        agents = [self._overview.row(beat, contents, now) for beat in sight.beats(contents.fleet)]
        mine = sorted(
            (row for row in agents if row.group == group.name), key=lambda row: (row.state != AS_WANTED, row.agent)
        )
        signed = contents.desired.gates if contents.desired is not None else {}
        limits = {name: signed.get(name, limit) for name, limit in LIMITS.items()}
        return RolloutPage(
            row=row, controller=controller(self._live, contents), link=sight.link(), rings=rings(contents, row),
            gates={name: limit for name, limit in limits.items() if name in BY_NAME},
            limits={name: limit for name, limit in limits.items() if name not in BY_NAME},
            events=events(need_trust(self._settings), row.change) if row.whole else [],
            agents=mine[:MAX_AGENTS], agents_count=len(mine),
        )  # fmt: skip

    async def order(self, who: Principal, change: str, command: str, reason: str) -> Order:
        """``command``: "pause", "resume" or "abort". Raises Problem 403, 404, 409 and 503."""
        broker = need_broker(self._settings)
        contents = await asyncio.to_thread(self._documents.read)
        group, row = self._find(who, contents, change)
        need_group(who, f"rollout.{command}", contents.fleet, group, self._sites(contents.fleet))
        name, key = await asyncio.to_thread(signer, self._settings, contents, "operator")
        request = make_order(contents.fleet, name, command, row.change, utc_now(), reasoned(reason, who.who))
        try:
            await ordering.give(broker, contents.fleet, request.id, request.signed(key))
        except OSError as error:
            raise Problem(503, f"the order was not given: {error}",
                          what_to_do="try again when the broker is back") from error  # fmt: skip
        outcome = await self._outcome(contents, request.id)
        return Order(id=request.id, command=command, change=row.change, outcome=outcome)

    async def _outcome(self, contents: Contents, id: str) -> str:
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            said = self._live.progress(contents.fleet, contents.keys)
            if said is not None and id in table(said.get("requests")):
                return text(said["requests"][id])
            await asyncio.sleep(0.1)
        return "waits"

    def _sites(self, fleet: str) -> set[str]:
        return {beat.site for beat in self._live.beats(fleet)}

    def _find(self, who: Principal, contents: Contents, change: str) -> tuple[Group, RolloutRow]:
        matching = [(group, row) for group, row in self._rows(who, contents) if row.change.startswith(change)]
        if len(matching) != 1 or not change:
            raise Problem(404, f"{len(matching) or 'no'} changes have an id that begins with {change[:64]!r}",
                          where="change", what_to_do="see /rollouts")  # fmt: skip
        return matching[0]

    def _rows(self, who: Principal, contents: Contents) -> list[tuple[Group, RolloutRow]]:
        """Changes of the documents in force, with what the controller says of each; of groups with agents that ``who``
        sees."""
        if contents.desired is None:
            return []
        said = self._live.progress(contents.fleet, contents.keys) or {}
        rows = items(said.get("changes")) if said.get("desired_serial") == contents.desired.serial else []
        reported = {str(row.get("change")): row for row in rows if isinstance(row, dict)}
        sight, sites = Sight(self._live, who), self._sites(contents.fleet)
        shown = []
        for group in self._groups(contents, sight):
            allowed = [order for order in ("pause", "resume", "abort")
                       if may_on_group(who, f"rollout.{order}", contents.fleet, group, sites)]  # fmt: skip
            for kind, name, change in group.changes():
                if change.stays:
                    continue
                progress = contents.rollout.changes.get(change.id) if contents.rollout is not None else None
                default = str(progress.state) if progress else "waiting" if contents.desired.rings else "done"
                row = _row(
                    Step(group.name, kind, name, change), contents.fleet, reported.get(change.id, {}), default, allowed
                )
                shown.append((group, row if sight.whole(contents.fleet, group) else in_part(row)))
        return shown

    def _groups(self, contents: Contents, sight: Sight) -> list[Group]:
        now = utc_now()
        of_agents = {self._overview.row(beat, contents, now).group for beat in sight.beats(contents.fleet)}
        return sight.groups(contents.fleet, contents.desired.groups if contents.desired is not None else (), of_agents)


def in_part(row: RolloutRow) -> RolloutRow:
    """The row for who does not see all of its group: how it stands, without what is of all its agents at once."""
    return row.model_copy(update={**dict.fromkeys(FIGURES), "gates": [], "reasons": [], "whole": False})


def _row(step: Step, fleet: str, said: Mapping[str, Any], state: str, allowed: list[str]) -> RolloutRow:
    agents, ring, gates = table(said.get("agents")), table(said.get("ring")), table(said.get("gates"))
    state = text(said.get("state")) or state
    figures: dict[str, Any] = {name: count(agents.get(name)) for name in FIGURES}
    return RolloutRow(
        change=step.change.id, fleet=fleet, group=step.group, what=step.what, before=target(step.change.from_),
        after=target(step.change.to), state=state, **figures,
        ring=RingState(number=count(ring.get("number")), of=count(ring.get("of")), name=text(ring.get("name")),
                       soak=seconds(ring.get("soak")), left=seconds(ring["left"]) if "left" in ring else None)
        if ring else None,
        gates=[GateState(name=name, with_change=count(table(gates.get(name)).get("with")),
                         without=count(table(gates.get(name)).get("without")),
                         reasons=_texts(table(gates.get(name)).get("reasons"))) for name in [*gates][:MAX_TEXTS]],
        reasons=_texts(said.get("reasons")), may=[order for order in SENSE.get(state, ()) if order in allowed],
    )  # fmt: skip


def rings(contents: Contents, row: RolloutRow) -> list[Ring]:
    """Rings as the document has them, and which of them the change has passed."""
    desired, rollout = contents.desired, contents.rollout
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


def staged(contents: Contents, groups: Collection[str] | None) -> Staged | None:
    """Documents that wait for signatures, None for none; ``groups``: only what changes one of these, None for all."""
    changes = [change for change in contents.staged if groups is None or change.group in groups]
    if not contents.signatures or (groups is not None and not changes):
        return None
    missing = any(role.missing for role in contents.signatures)
    return Staged(
        signatures=[Signature(role=role.role, version=role.version, signed=[*role.signed], missing=role.missing)
                    for role in contents.signatures],
        changes=[Moved(group=change.group, what=change.what, before=target(change.before), after=target(change.after))
                 for change in changes],
        commands=["vedette fleet sign --key YOUR.pem", "vedette fleet apply --broker URL"][0 if missing else 1 :],
    )  # fmt: skip


def events(trust: Path, change: str) -> list[Event]:
    """Events of a change in the fleet's record, newest first; of its last RECORD_BYTES."""
    newest: list[Event] = []
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
                newest.append(Event(time=text(row.get("time")), event=text(row.get("event")), facts=facts))
                if len(newest) == MAX_EVENTS:
                    break
    return newest


def _texts(value: object) -> list[str]:
    return [str(entry)[:1000] for entry in items(value)[:MAX_TEXTS]]
