"""News of agents and the controller, as they come over the broker; bounded, and read from here at any time.

* Heartbeats are retained: after a connection all agents are known within a moment. Of each the figures and the proof of
  what it runs are kept (``Beat``); the newest whole heartbeats up to RAW_BYTES in all, those heard last. A heartbeat
  may say anything: what is no figure counts as none.
* An agent is at the site that the region knows (``region/whereabouts.py``), else at the one that it states.
* More than MAX_AGENTS agents are counted, not kept. A heartbeat that is none is passed over.
* What one message says ends nothing; a link that ended all the same is logged, and begun again.
* A broker that is away changes nothing of what was heard: ``link`` says so, and since when. The client connects again.
* The controller's progress is kept as it came, and opened with the keys that the fleet's documents name for it; so is
  what `vedette lookup refresh` says.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vedette.bundle.manifest import rfc3339
from vedette.delivery.envelope import MAX_MESSAGE
from vedette.delivery.topics import ROOT, parse, steer_topic
from vedette.fleet.labels import labels_of
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.region.guard import Guard
from vedette.region.reload.health import Trouble, troubles
from vedette.region.sightings import Sightings
from vedette.region.steer.sealed import MAX_BYTES, opened
from vedette.region.whereabouts import Whereabouts
from vedette.system import foreign
from vedette.system.foreign import count, table, text
from vedette.system.trouble import Backoff
from vedette.system.wallclock import utc_now
from vedette.system.within import is_name
from vedette_console.fleet.models import Link
from vedette_console.steady import Steady

log = structlog.get_logger()


class Figures(NamedTuple):
    """``started``: UTC microseconds; ``lag_seconds``: by which evaluation is behind; ``events``: evaluated in all."""

    state: str = ""
    version: str = ""
    bundle: str = ""
    started: int = 0
    events: int = 0
    lag_seconds: float = 0.0
    lag_events: int = 0
    in_outbox: int = 0
    alerts_lost: int = 0
    events_lost: int = 0
    quarantined: int = 0
    crashes: int = 0


def figures(row: Mapping[str, Any]) -> Figures:
    alerts = table(row.get("alerts"))
    inputs = [*map(table, table(row.get("inputs")).values())]
    lost = sum(count(n) for counts in inputs for kind in ("dropped", "lost") for n in table(counts.get(kind)).values())
    return Figures(
        text(row.get("state")), text(row.get("version")), text(row.get("bundle")), count(row.get("started_at")),
        sum(count(counts.get("judged")) for counts in inputs), seconds(row.get("lag_seconds")),
        count(row.get("lag_events")), count(alerts.get("in_outbox")), count(alerts.get("lost")), lost,
        count(table(row.get("rules")).get("quarantined_count")), count(table(row.get("process")).get("crashes")),
    )  # fmt: skip


def seconds(value: object) -> float:
    """A duration that somebody states; 0 for what is none."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0.0


MAX_AGENTS = 50_000
MAX_SITE = 128
RAW_BYTES = 64 << 20
ACTUAL_BYTES = 128 << 10
"""Of the proof of what an agent runs; of a longer one nothing is kept, as of an agent that proves nothing."""
SAMPLES, SAMPLE_SECONDS = 120, 60
LOOK_SECONDS = 1.0

NO_FIGURES = Figures()
Place = tuple[str, str]
News = Callable[[str, Place | None], None]
"""Is given "fleet" or "rollouts" when something of it is new, and the fleet and site that it is about; None: all."""


class Past(NamedTuple):
    """Figures of an agent at a time, UTC microseconds."""

    time: int
    events: int
    lag: float
    outbox: int


@dataclass(slots=True)
class Beat:
    """One agent. Times are UTC microseconds; ``heard`` 0: only what the broker retained has come."""

    fleet: str
    agent: str
    site: str = ""
    lost: bool = False
    heard: int = 0
    last: int = 0
    """The same; of what was retained, when its own clock says, at the latest when it came."""
    time: int = 0
    note: str = ""
    """That two machines have its id."""
    stated: str = ""
    """The site that it states; ``site_note`` says that it is at another."""
    site_note: str = ""
    actual: Mapping[str, Any] | None = None
    figures: Figures = NO_FIGURES
    past: deque[Past] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def silent(self, now: int) -> float:
        """Return for how many seconds nothing was heard; a ``last`` after ``now`` is of a clock that was ahead."""
        self.last = min(self.last, now)
        return (now - self.last) / 1e6

    @property
    def labels(self) -> dict[str, str]:
        return labels_of({"actual": self.actual})

    def row(self) -> dict[str, Any]:
        """The heartbeat as ``region.compare`` reads it."""
        return {"state": "lost"} if self.lost else {"state": "running", "actual": self.actual}


class Live:
    """Hears the agents of ``fleet`` ("" for all) and the controller, from ``start`` to ``stop``."""

    def __init__(
        self, broker: MqttSettings | None, fleet: str, news: News, clock: Callable[[], int] = utc_now,
        members: Path | None = None,
    ) -> None:  # fmt: skip
        """``members``: the region's folder; None: agents are where they state. Raises OSError and ValueError."""
        if fleet and not is_name(fleet):
            raise ValueError(f"{fleet!r} is no name of a fleet")
        self._fleet, self._news, self._clock = fleet, news, clock
        self._beats: dict[tuple[str, str], Beat] = {}
        self._raw: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._raw_bytes = 0
        self._dropped: set[tuple[str, str]] = set()
        self._sightings, self._guard = Sightings(), Guard()
        self._whereabouts = Whereabouts(members)
        self._fault = ""
        """Why the client ended; it is begun again."""
        self._progress: dict[str, bytes] = {}
        self._lookups: dict[str, bytes] = {}
        self._opened: tuple[bytes, dict[str, Any] | None] = (b"", None)
        self._since = self._clock()
        self._was = "none" if broker is None else "connecting"
        self._broker = broker
        self._client: MqttClient | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        if self._broker is None:
            return
        fleet = self._fleet or "+"
        topics = [f"{ROOT}/{fleet}/+/status", *(steer_topic(fleet, leaf) for leaf in ("progress", "lookups"))]
        self._client = MqttClient(
            self._broker, f"vedette-console-{secrets.token_hex(4)}", subscriptions=topics, on_message=self._came,
            session=Session(clean_start=True, max_packet=max(MAX_BYTES, MAX_MESSAGE) + 1024),
        )  # fmt: skip
        self._tasks = [asyncio.create_task(self._hear(self._client)), asyncio.create_task(self._watch())]

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hear(self, client: MqttClient) -> None:
        """Until ``stop``, whatever ends the client."""
        backoff = Backoff()
        while True:
            try:
                await client.run()
                return
            except Exception as error:  # whatever it is: the link begins again
                self._fault = f"{type(error).__name__}: {error}"
                log.exception("console_link_failed", reason=self._fault, action="connecting again")
            await asyncio.sleep(backoff.failed())

    # --- what comes

    def _came(self, message: Message) -> None:
        assert self._client is not None
        with self._guard.over(message.topic):
            if message.topic.endswith("/steer/progress"):
                if len(message.payload) <= MAX_BYTES:
                    self._progress[message.topic.split("/")[-3]] = message.payload
                    self._news("rollouts", None)
            elif message.topic.endswith("/steer/lookups"):
                if len(message.payload) <= MAX_BYTES:
                    self._lookups[message.topic.split("/")[-3]] = message.payload
                    self._news("fleet", None)
            else:
                self._heartbeat(message)
        self._client.ack(message)

    def _heartbeat(self, message: Message) -> None:
        try:
            fleet, agent, leaf = parse(message.topic)
        except ValueError:
            return
        key = fleet, agent
        if leaf != "status":
            return
        if not message.payload:  # the agent was taken out
            self._forget(key)
            return
        row: object = None
        with suppress(ValueError):
            row = foreign.read(message.payload) if len(message.payload) <= MAX_MESSAGE else None
        if not isinstance(row, dict):
            return
        beat = self._beats.get(key)
        if beat is None:
            if len(self._beats) >= MAX_AGENTS:
                if len(self._dropped) < MAX_AGENTS:
                    self._dropped.add(key)
                return
            beat = self._beats[key] = Beat(fleet, agent)
        self._take(beat, row, message)
        self._news("fleet", (fleet, beat.site))

    def _take(self, beat: Beat, row: Mapping[str, Any], message: Message) -> None:
        now = self._clock()
        beat.stated = text(row.get("site"), MAX_SITE) or beat.stated
        self._locate(beat)
        beat.lost = row.get("state") == "lost"
        if beat.lost:
            return  # how it was before stays on record
        beat.time = count(row.get("time"))
        if message.retain:
            beat.last = min(max(beat.last, beat.time), now)
        else:
            beat.heard = beat.last = now
        beat.note = self._sightings.heard((beat.fleet, beat.agent), row, now).note
        actual = row.get("actual")
        fits = isinstance(actual, dict) and len(orjson.dumps(actual)) <= ACTUAL_BYTES
        beat.actual = actual if fits else None
        beat.figures = figures(row)
        if (
            not beat.past
            or beat.time - beat.past[-1].time >= SAMPLE_SECONDS * 1_000_000
            or beat.time < beat.past[-1].time
        ):
            beat.past.append(Past(beat.time, beat.figures.events, beat.figures.lag_seconds, beat.figures.in_outbox))
        self._keep((beat.fleet, beat.agent), message.payload)

    def _locate(self, beat: Beat) -> None:
        place = self._whereabouts.place(beat.fleet, beat.agent, beat.stated)
        beat.site, beat.site_note = place.site or "", place.note

    def _keep(self, key: tuple[str, str], payload: bytes) -> None:
        self._raw_bytes += len(payload) - len(self._raw.pop(key, b""))
        self._raw[key] = payload
        while self._raw_bytes > RAW_BYTES:
            _, old = self._raw.popitem(last=False)
            self._raw_bytes -= len(old)

    def _forget(self, key: tuple[str, str]) -> None:
        self._dropped.discard(key)
        if (beat := self._beats.pop(key, None)) is not None:
            self._raw_bytes -= len(self._raw.pop(key, b""))
            self._news("fleet", (beat.fleet, beat.site))

    async def _watch(self) -> None:
        """Notice when the connection comes or goes, and when members change."""
        steady = Steady("the fleet's link and members")
        while True:
            with steady:
                if await asyncio.to_thread(self._whereabouts.look):
                    for beat in self._beats.values():
                        self._locate(beat)
                    self._news("fleet", None)
                if (state := self._state()) != self._was:
                    self._was, self._since = state, self._clock()
                    self._news("fleet", None)
                    self._news("rollouts", None)
            await asyncio.sleep(LOOK_SECONDS)

    # --- what is asked

    def _state(self) -> str:
        if self._client is None:
            return "none"
        if self._client.connected.is_set():
            return "connected"
        lost = self._client.outage or self._fault or self._was in ("connected", "away")
        return "away" if lost else "connecting"

    def link(self) -> Link:
        state = self._state()
        if state == "connected":
            self._fault = ""
        if state != self._was:
            self._was, self._since = state, self._clock()
        reason = self._client.outage or self._fault if self._client is not None and state == "away" else ""
        url = self._broker.url if self._broker is not None else ""
        return Link(
            state=state,  # type: ignore[arg-type]  # one of ``_state``
            broker=url, reason=reason, since=rfc3339(self._since), agents=len(self._beats), dropped=len(self._dropped),
        )  # fmt: skip

    @property
    def connected(self) -> bool:
        return self._state() == "connected"

    def beats(self, fleet: str = "") -> Iterable[Beat]:
        return [beat for beat in self._beats.values() if not fleet or beat.fleet == fleet]

    def beat(self, fleet: str, agent: str) -> Beat | None:
        return self._beats.get((fleet, agent))

    def raw(self, fleet: str, agent: str) -> dict[str, Any] | None:
        """The newest heartbeat itself; None: it is not kept."""
        data = self._raw.get((fleet, agent))
        return foreign.read(data) if data is not None else None

    def lookups(self, fleet: str) -> list[Trouble]:
        """The lookups that were not reloaded in time."""
        return troubles(self._lookups.get(fleet, b""), self._clock())

    def progress(self, fleet: str, keys: Iterable[Ed25519PublicKey]) -> dict[str, Any] | None:
        """The controller's last report; None: nothing that one of ``keys`` has signed."""
        data = self._progress.get(fleet, b"")
        if data is not self._opened[0]:
            self._opened = data, opened("progress", data, keys) if data else None
        progress = self._opened[1]
        return progress if progress is not None and progress.get("fleet") == fleet else None
