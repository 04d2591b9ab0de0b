"""``vedette region steer``: the controller at its work, over the region's broker.

It hears every heartbeat, decides with ``Steering``, signs the roll-out document (``Repository.advance``) and announces
it; in between it renews what expires. Promises:

* What it decides is on disk before it is announced, and is announced again after every start: killed anywhere, it goes
  on from the documents, notes and baselines there, and ends the same.
* It acts only while it holds the lease (``lease.py``), is connected, and has heard what the broker retains; a lock
  keeps a second one out of its folder (``kept.py``).
* A folder that is behind what is published, since another controller went on with a copy, is brought up to that first
  (``adopt.py``).
* What one message says ends nothing (``system/foreign.py``, ``region/guard.py``).
* Nothing is believed that is not signed: orders by operators (``orders.py``), leases by the controller's own key. A
  heartbeat is what an agent reports of itself: it may hold its own ring up, or have it stopped, no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import Any

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vedette.delivery.envelope import MAX_MESSAGE
from vedette.delivery.topics import ROOT, steer_topic, tuf_topic
from vedette.fleet.documents import Rollout
from vedette.fleet.requests import Refused, Request
from vedette.model.counters import Log
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import REGION_PACKET, Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.region.announce import announce
from vedette.region.guard import Guard
from vedette.region.repository import Repository
from vedette.region.sign import load_key
from vedette.region.steer.adopt import adopt, version
from vedette.region.steer.agents import SECOND, Agents
from vedette.region.steer.kept import Kept
from vedette.region.steer.lease import Lease
from vedette.region.steer.orders import keep_until, taken
from vedette.region.steer.rings import Move, Step
from vedette.region.steer.sealed import opened, seal
from vedette.region.steer.steering import Steering
from vedette.system import foreign
from vedette.system.wallclock import utc_now

log = structlog.get_logger()

LOOK_SECONDS = 1.0
"""Between two looks, or 20 times as long as it takes to work out what is due."""
RENEW_SECONDS = 60.0
KEEP_SECONDS = 600.0
"""Between two copies of how agents are."""
SHOW_SECONDS = 5.0
"""Shortest time between two reports of progress."""
SETTLE_SECONDS = 3.0
"""After a connection, for what the broker retains to come."""
MAX_ORDERS = 100
"""That wait at once."""


class Controller:
    def __init__(
        self, broker: MqttSettings, repository: Repository, *, clock: Callable[[], int] = utc_now
    ) -> None:  # fmt: skip
        """Raises BlockingIOError while another one works in the folder, ValueError and OSError for a folder that is
        none."""
        self._broker, self._repository, self._clock = broker, repository, clock
        self._fleet = repository.fleet
        self._memory = Kept(repository.folder / "steer", clock)
        self._guard = Guard()
        self._agents = Agents()
        self._memory.read_agents(self._agents)
        self._steering = Steering(self._agents, self._memory.notes)
        self._key = load_key(repository.folder / "online" / "rollout.pem")
        self._lease = Lease(self._memory.holder, time.monotonic())
        self._versions: tuple[int, int] | None = None
        self._orders: dict[str, bytes] = {}
        self._outcomes: dict[str, str] = {}
        """What became of the last orders, by their ids."""
        self._timestamp = b""
        """As the broker has it."""
        self._published = 0
        """Its version."""
        self._dirty = True
        self._connected = self._renewed = self._copied = self._reported = 0.0
        self._shown, self._cost = b"", 0.0
        self._said = ""
        self.client = MqttClient(
            broker,
            f"vedette-steer-{self._memory.holder}",
            subscriptions=[
                f"{ROOT}/{self._fleet}/+/status", steer_topic(self._fleet, "lease"),
                steer_topic(self._fleet, "requests/+"), tuf_topic(self._fleet, "timestamp.json"),
            ],
            on_message=self._receive,
            on_session=self._session,
            session=Session(clean_start=True, max_packet=REGION_PACKET),
        )  # fmt: skip

    async def run(self) -> None:
        """Until cancelled; then the lease is given back."""
        try:
            await self.client.run_with(self._steer())
        finally:
            self._memory.close()

    async def stop(self) -> None:
        """Give the lease back and disconnect: another controller may go on at once."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._memory.write_agents, self._agents)
            if self._lease.mine:
                async with asyncio.timeout(5):
                    await self.client.publish(steer_topic(self._fleet, "lease"), b"", retain=True)
        await self.client.close()

    # --- what comes

    def _session(self, present: bool) -> None:
        self._connected = time.monotonic()
        self._agents.connected = self._clock()
        self._lease.listen(self._connected)
        self._timestamp, self._published = b"", 0  # the broker may have lost what it had

    def _receive(self, message: Message) -> None:
        with self._guard.over(message.topic):
            self._came(message)
        self.client.ack(message)

    def _came(self, message: Message) -> None:
        parts = message.topic.split("/")
        if parts[-1] == "status" and parts[-3] == self._fleet:
            self._heartbeat(parts[-2], message)
        elif parts[-2:] == ["steer", "lease"]:
            self._lease_came(message.payload)
        elif parts[-2] == "requests" and message.payload and len(self._orders) < MAX_ORDERS:
            self._orders[parts[-1]] = message.payload
        elif parts[-1] == "timestamp.json":
            self._timestamp, self._published = message.payload, -1

    def _heartbeat(self, agent: str, message: Message) -> None:
        if not 0 < len(message.payload) <= MAX_MESSAGE:
            return
        try:
            row = foreign.read(message.payload)
        except ValueError:
            return
        if isinstance(row, dict):
            self._agents.take(agent, row, self._clock(), retained=message.retain)

    def _lease_came(self, payload: bytes) -> None:
        row = opened("lease", payload, self._keys()) if payload else {"holder": ""}
        if row is not None and isinstance(row.get("holder"), str):
            self._lease.came(row["holder"], time.monotonic())

    def _keys(self) -> list[Ed25519PublicKey]:
        return [self._key.public_key()]

    # --- what follows

    async def _steer(self) -> None:
        while True:
            self._cost = 0.0
            try:
                await self._look()
            except (OSError, ValueError) as error:
                self._say(Log.STEERING_FAILED, str(error), action="retrying; what is published stays in force")
                self._versions = None  # what is on disk counts
                self._steering.notes = dict(self._memory.notes)
            await asyncio.sleep(max(LOOK_SECONDS, 20 * self._cost))

    async def _look(self) -> None:
        """Raises OSError and ValueError."""
        now = time.monotonic()
        if not self.client.connected.is_set():
            return
        if self._lease.wants(now):
            self._lease.published(now)
            lease = seal("lease", {"holder": self._lease.me, "time": self._clock()}, self._key)
            await self.client.publish(steer_topic(self._fleet, "lease"), lease, retain=True)
        if not self._lease.held(now) or now - self._connected < SETTLE_SECONDS:
            if self._lease.holder not in ("", self._lease.me):
                self._say(Log.STEERING_WAITS, f"{self._lease.holder} steers", action="taking its place when it ends")
            return
        await self._catch_up()
        self._say(Log.STEERING, "", fleet=self._fleet, agents=len(self._agents.by_id))
        await self._follow()
        await self._carry_out()
        began = time.perf_counter()
        moves = [*self._steering.moves(self._clock(), time.monotonic())]
        self._cost += time.perf_counter() - began
        await self._make(moves)
        await self._renew(now)
        if self._dirty:
            await announce(self._broker, self._repository)
            self._dirty = False
        await self._report(now)

    async def _catch_up(self) -> None:
        """What is published is this folder's, or older: what is newer is taken over first."""
        if self._published < 0:
            self._published = await asyncio.to_thread(version, self._repository, self._timestamp)
        have = self._repository.version("timestamp")
        if self._published > have:
            await adopt(self._broker, self._repository)
            about = {"had": have, "took": self._published}
            await self._record("published_taken", **about)
            log.warning(Log.STEERING, reason="another controller has published since: its state is taken over", **about)
            self._versions = None
        self._dirty |= self._published < self._repository.version("timestamp")

    async def _follow(self) -> None:
        """What is in force in the folder: `vedette fleet apply` may have put it there."""
        repository = self._repository
        versions = repository.version("targets"), repository.version("rollout")
        if versions == self._versions:
            return
        desired, rollout = await asyncio.to_thread(lambda: (repository.desired(), repository.rollout()))
        self._key = load_key(repository.folder / "online" / "rollout.pem")
        if desired is not None:
            self._steering.follow(desired, rollout, self._clock())
        self._versions = versions

    async def _make(self, moves: list[tuple[Step, Move]]) -> None:
        """What was decided, durably: how agents were, notes, record, document; in this order."""
        if not moves:
            return
        steering, repository = self._steering, self._repository
        if steering.watch(moves):
            await asyncio.to_thread(self._memory.write_agents, self._agents)
        facts = [(move, steering.facts(step, move)) for step, move in moves if move.event]
        changed = steering.take(moves)
        await asyncio.to_thread(self._memory.write, steering.notes)
        for move, about in facts:
            await self._record(move.event, **about)
            level = log.error if move.event == Log.ROLLOUT_ABORTED else log.info
            level(Log.ROLLOUT_ABORTED if move.event == Log.ROLLOUT_ABORTED else Log.ROLLOUT_MOVED,
                  step=move.event, **about)  # fmt: skip
        if changed:
            before = await asyncio.to_thread(repository.rollout)
            serial = before.serial + 1 if before is not None else 1
            rollout = Rollout(self._fleet, serial, dict(steering.progress))
            await asyncio.to_thread(repository.advance, rollout)
            self._versions = repository.version("targets"), repository.version("rollout")
            self._dirty = True
        self._reported = 0.0

    async def _record(self, event: str, **facts: object) -> None:
        """A line of the folder's record, on disk; beside the loop, which takes heartbeats meanwhile."""
        await asyncio.to_thread(partial(self._repository.audit.append, event, **facts))

    async def _renew(self, now: float) -> None:
        if now - self._renewed >= RENEW_SECONDS:
            self._renewed = now
            self._dirty |= await asyncio.to_thread(self._repository.advance)
        if now - self._copied >= KEEP_SECONDS:
            self._copied = now
            await asyncio.to_thread(self._memory.write_agents, self._agents)

    # --- orders

    async def _carry_out(self) -> None:
        orders, self._orders = self._orders, {}
        for id, data in orders.items():
            self._outcomes[id] = await self._order(data)
            await self.client.publish(steer_topic(self._fleet, f"requests/{id}"), b"", retain=True)
            self._reported = 0.0
        while len(self._outcomes) > MAX_ORDERS:
            del self._outcomes[next(iter(self._outcomes))]

    async def _order(self, data: bytes) -> str:
        """What became of it."""
        repository, now = self._repository, self._memory.time.now()
        targets: Any = await asyncio.to_thread(repository.newest, "targets")
        until = round(targets.signed.expires.replace(tzinfo=UTC).timestamp() * 1e6) if targets is not None else 0
        operators = await asyncio.to_thread(repository.operators)
        try:
            request = taken(data, self._fleet, operators, until, self._memory.seen, now)
        except Refused as error:
            log.warning(Log.ROLLOUT_REQUEST_REFUSED, kind=error.kind, reason=str(error))
            by = error.request.operator if error.request is not None else ""
            await self._record("rollout_request_refused", kind=error.kind, reason=str(error), operator=by)
            return f"refused: {error}"
        return await self._ordered(request)

    async def _ordered(self, request: Request) -> str:
        command, change = str(request.body["command"]), str(request.body["change"])
        why = f"{command} by {request.operator}" + (f": {request.reason}" if request.reason else "")
        moves = self._steering.asked(command, change, why)
        self._memory.seen[request.nonce] = keep_until(request)
        await asyncio.to_thread(self._memory.time.rise, request.created)
        about = {"operator": request.operator, "command": command, "change": change, "reason": request.reason}
        await self._record("rollout_request", **about, changes=[step.change.id for step, _ in moves])
        log.info(Log.ROLLOUT_REQUEST, **about)
        if not moves:
            await asyncio.to_thread(self._memory.write, self._steering.notes)
            return "nothing to do: no such change is under way"
        await self._make(moves)
        return "done: " + ", ".join(step.change.id for step, _ in moves)

    # --- for people

    async def _report(self, now: float) -> None:
        if now - self._reported < SHOW_SECONDS:
            return
        self._reported = now
        at = self._clock()
        shown = {
            "fleet": self._fleet, "holder": self._lease.me, "agents": len(self._agents.by_id),
            "desired_serial": self._steering.desired.serial if self._steering.desired else 0,
            "changes": self._steering.shown(at) if self._steering.desired else [], "requests": self._outcomes,
            "time": at // (60 * SECOND) * 60,
        }  # fmt: skip
        data = seal("progress", shown, self._key)
        if data != self._shown:
            await self.client.publish(steer_topic(self._fleet, "progress"), data, retain=True)
            self._shown = data

    def _say(self, event: Log, reason: str, **about: Any) -> None:
        """Log it, once until it is something else."""
        if (said := f"{event} {reason}") != self._said:
            self._said = said
            level = log.error if event == Log.STEERING_FAILED else log.info
            level(event, **({"reason": reason} if reason else {}), **about)
