"""Lookups that come by themselves: announced by the region, named by the fleet's documents, or put into a folder here.

An announcement (``lookup/offer.py``) of a version that is not current is fetched block by block, beside everything
else: blocks that the installed version has are copied from there, others come as a delta against it or whole, at most
``AHEAD`` at a time and no faster than ``[lookups] max_rate``. What has arrived stays over a cut link, a kill and a
restart. Each block is believed by the digest that the region signed. When all are there the rules are asked whether
they find in it what they look for; then it is installed (``lookup/installed.py``) and the ruleset switched to it
between two frames. Whatever fails before that leaves the version that was in use; it is logged (``lookup_refused``,
``lookup_delayed``) and shown in the status.

A lookup that the fleet's documents name (``want``) comes the same way, announced on a channel of its version; for its
name nothing else counts from then on, and it may be older than what is installed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from vedette.config.settings import Config
from vedette.delivery.topics import fleet_channel, lookup_topic
from vedette.lookup.installed import Installed, Part, files
from vedette.lookup.layout import LookupRefused
from vedette.lookup.offer import MAX_OFFER, Announcement, Offer
from vedette.lookup.sign import Signed, head_of, opened
from vedette.lookup.table import Lookup
from vedette.model.counters import Counters, Log
from vedette.runtime.rulesets.active import POLL_SECONDS, ActiveRules
from vedette.runtime.rulesets.blobs import Blobs, Gone
from vedette.runtime.rulesets.lookup_blocks import Blocks, copy, earlier
from vedette.system.durable import stamp

if TYPE_CHECKING:
    from vedette.delivery.uplink import MqttUplink
    from vedette.mqtt.connection import Message

log = structlog.get_logger()

RETRY_SECONDS = 10.0
"""Until what failed for the moment (no disk, no blob) is tried again."""
MAX_WAITING = 1000
"""Lookups announced on a channel that are remembered."""


class _Incoming(NamedTuple):
    """A lookup that is on its way; for the status."""

    version: str
    created: int
    blocks: int
    """That it has in all; 0 until its list has come."""
    have: int
    resumed: int
    """Of ``have``: those that an earlier attempt left."""
    copied: int
    """Of ``have``: those that the installed version had."""
    fetched: int
    """Bytes that came for it in this attempt."""
    error: str | None


class Lookups:
    """See the module's text. One for the agent; ``attach`` it to each uplink over MQTT."""

    def __init__(self, config: Config, active: ActiveRules, counters: Counters, replaced: Callable[[], None]) -> None:
        """``replaced`` is called when the lookups that rules ask have changed."""
        self._active, self._counters, self._replaced = active, counters, replaced
        self._settings, self._trusted = config.lookups, config.bundles.trusted_keys
        self._fleet, self._channel = config.agent.fleet, config.bundles.channel
        self.installed = Installed(
            config.agent.lookup_dir, self._trusted, fleet=config.agent.fleet, channel=config.bundles.channel
        )
        self._blobs = Blobs(config.agent.fleet, config.lookups.max_rate or 0)
        self._wanted: dict[str, Signed] = {}
        """What the fleet's documents name, by name."""
        self._heads: dict[str, tuple[str, str]] = {}
        """Version and SHA-256 of what is before the file, of lookups that came by the fleet's documents, by name."""
        self._announced: dict[str, Announcement] = {}
        self._due: dict[str, float] = {}
        """By name when (monotonic seconds) an announced lookup is to be fetched."""
        self._wake = asyncio.Event()
        self._incoming: dict[str, _Incoming] = {}
        self._errors: dict[str, str] = {}
        self._seen: dict[Path, tuple[int, int, int] | None] = {}
        """Files of the folder on which there is a verdict."""
        self._changing = asyncio.Lock()

    # --- announcements

    def attach(self, uplink: MqttUplink) -> None:
        """Follow what is announced by ``uplink``, and no other."""
        self._blobs.uplink = uplink
        if self._trusted:
            self._subscribe("+")
        for name in self._wanted:
            self._subscribe(name)

    def detach(self) -> None:
        self._blobs.uplink = None

    def _subscribe(self, name: str) -> None:
        """``+``: to all of the agent's channel."""
        if (uplink := self._blobs.uplink) is not None:
            uplink.subscribe(lookup_topic(self._fleet, self._channel_of(name), name), self._message)

    def _channel_of(self, name: str) -> str:
        wanted = self._wanted.get(name)
        return self._channel if wanted is None else fleet_channel(wanted.version)

    def _message(self, message: Message) -> None:
        if not message.payload:
            return
        *_, channel, _, name = message.topic.split("/")
        wanted = self._wanted.get(name)
        if channel != self._channel_of(name) or (wanted is None and self.installed.governed(name)):
            return
        try:
            said = Announcement.from_bytes(message.payload)
            if said.name != name:
                raise LookupRefused(f"it is an announcement of {said.name}")
            if wanted is not None and said.version != wanted.version:
                raise LookupRefused("it is announced in another version than the fleet's documents name")
        except LookupRefused as error:
            self._refuse(name, str(error))
            return
        if name not in self._announced and len(self._announced) >= MAX_WAITING:
            return
        self._announced[name] = said
        self._due[name] = 0.0
        self._wake.set()

    # --- what the fleet's documents name

    def want(self, signed: Signed) -> None:
        """Fetch and install this one, which the fleet's documents name."""
        name = signed.name
        if self._wanted.get(name) == signed:
            return
        self.let_go(name)
        self._wanted[name] = signed
        self._errors.pop(name, None)
        self._subscribe(name)

    async def take_file(self, path: Path, wanted: Signed) -> None:
        """Install the file ``path``, which was carried here, when it is the lookup that the documents name. Raises
        LookupRefused and OSError."""

        def part() -> Part | None:
            with path.open("rb") as source:
                if head_of(source) != wanted.head:
                    raise LookupRefused(f"{path}: another file than the fleet's documents name")
            return self.installed.take(path, by_fleet=True)

        if (taken := await asyncio.to_thread(part)) is not None:
            await self._install(taken, by_fleet=True)

    def let_go(self, name: str) -> None:
        """The documents name none of this name any more, or another."""
        if name in self._wanted:
            if self._blobs.uplink is not None:
                self._blobs.uplink.unsubscribe(lookup_topic(self._fleet, self._channel_of(name), name))
            del self._wanted[name]
        self._announced.pop(name, None)
        self._due.pop(name, None)
        self._incoming.pop(name, None)

    def only(self, names: Collection[str]) -> None:
        """Let go what the documents named that is not in ``names``."""
        for name in [wanted for wanted in self._wanted if wanted not in names]:
            self.let_go(name)

    async def by_fleet(self) -> list[str]:
        """The installed lookups that came by the documents."""
        installed = self.installed

        def found() -> list[str]:
            return [name for name in installed.names() if installed.governed(name) and installed.current(name)]

        return await asyncio.to_thread(found)

    def trouble(self, name: str) -> str:
        """Why a lookup that is wanted is not installed yet; empty: nothing is wrong."""
        return self._errors.get(name, "")

    async def installed_as(self, name: str) -> str:
        """SHA-256 of what is before the current file of ``name``; empty: none is installed."""
        version, sha256 = await asyncio.to_thread(self.installed.head, name)
        if not version:
            return ""
        self._heads[name] = (version, sha256)
        return sha256

    async def remove(self, name: str) -> None:
        """Take away a lookup. Raises LookupRefused while rules ask it, OSError."""
        async with self._changing:
            if lack := await asyncio.to_thread(self._lack, name, {}):
                raise LookupRefused(f"{lack}: other rules first")
            self.let_go(name)
            await asyncio.to_thread(self.installed.remove, name)
            self._heads.pop(name, None)
            self._errors.pop(name, None)
            log.info(Log.LOOKUP_REMOVED, lookup=name)
            await self._switched()

    def actual(self) -> dict[str, dict[str, Any]]:
        """For the heartbeat: of the lookups that came by the documents, what rules may ask. Computed from what is
        loaded."""
        loaded, rows = self._active.loaded.engine.plan.lookups, dict[str, dict[str, Any]]()
        for name, (version, sha256) in self._heads.items():
            if (lookup := loaded.get(name)) is not None:
                proof = sha256 if lookup.version == version else None
                rows[name] = {"version": lookup.header.created, "sha256": proof, "digest": lookup.version}
        return rows

    # --- the work

    async def run(self) -> None:
        """Verify what is installed, then fetch what is announced and take what the folder has, until cancelled."""
        for name in await asyncio.to_thread(self.installed.names):
            try:
                await asyncio.to_thread(self.installed.verified, name)
            except LookupRefused as error:
                self._refuse(name, str(error))
                await self._switched()
        while True:
            await self._look_into_folder()
            now = time.monotonic()
            ready = [name for name, due in self._due.items() if due <= now and self._blobs.uplink is not None]
            for name in ready:
                await self._try(name)
            if not ready:
                self._wake.clear()
                try:
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _try(self, name: str) -> None:
        """Fetch the announced version of ``name``; when that fails for the moment, again later."""
        said = self._announced[name]
        del self._due[name]
        try:
            if await asyncio.to_thread(self.installed.has, name, said.version):
                self._incoming.pop(name, None)
                self._errors.pop(name, None)
                return
            await self._fetch(said)
        except LookupRefused as error:
            self._refuse(name, str(error))
        except OSError as error:
            self._note(name, error=str(error))
            if self._errors.get(name) != str(error):
                log.warning(
                    Log.LOOKUP_DELAYED, lookup=name, reason=str(error), action="retrying; the old version stays"
                )
            self._errors[name] = str(error)
            self._due.setdefault(name, time.monotonic() + RETRY_SECONDS)
            if isinstance(error, Gone):  # it may be announced otherwise by now
                self._subscribe(name if name in self._wanted else "+")

    async def _fetch(self, said: Announcement) -> None:
        """Raises LookupRefused and OSError, with what has come kept."""
        name, wanted = said.name, self._wanted.get(said.name)
        self._incoming[name] = _Incoming(said.version, said.created, 0, 0, 0, 0, 0, None)
        offer = Offer.from_bytes(await self._blob(name, said.offer, MAX_OFFER))
        signed = await asyncio.to_thread(opened, offer.head, self._trusted)
        if (signed.name, signed.version) != (name, said.version) or len(offer.whole) != 32 * len(signed):
            raise LookupRefused("its offer is of another lookup than the announcement says")
        if wanted is not None and offer.head != wanted.head:
            raise LookupRefused("its offer is of another file than the fleet's documents name")
        self.installed.admit(signed, by_fleet=wanted is not None)
        with await asyncio.to_thread(self.installed.part, signed) as part:
            former = await asyncio.to_thread(earlier, self.installed.current(name))
            self._note(name, blocks=len(signed), resumed=part.had, have=part.had)
            if former is not None:
                copied = await asyncio.to_thread(copy, part, former)
                self._note(name, have=len(signed) - len(part.missing), copied=copied)

            def still() -> None:
                newest = self._announced.get(name)
                if newest is None or newest.version != signed.version:
                    raise LookupRefused("a newer version was announced meanwhile")

            def arrived() -> None:
                self._counters.totals["lookup_blocks"] += 1
                self._note(name, have=len(signed) - len(part.missing))

            await Blocks(part, offer, former, partial(self._blob, name)).fetch(still, arrived)
            still()
            await self._install(part, by_fleet=wanted is not None)

    async def _blob(self, name: str, digest: str, most: int) -> bytes:
        """Raises LookupRefused for bytes that do not have the digest, OSError when none come."""
        try:
            data = await self._blobs.get(self._channel_of(name), digest, most)
        except ValueError as error:
            raise LookupRefused(str(error)) from error
        self._counters.totals["lookup_bytes"] += len(data)
        if name in self._incoming:
            self._note(name, fetched=self._incoming[name].fetched + len(data))
        return data

    async def _install(self, part: Part, *, by_fleet: bool = False) -> None:
        """Raises LookupRefused and OSError, with the old version in use."""
        signed = part.signed
        async with self._changing:
            await asyncio.to_thread(self._check, part)
            await asyncio.to_thread(partial(self.installed.install, part, by_fleet=by_fleet))
            self._incoming.pop(signed.name, None)
            self._errors.pop(signed.name, None)
            self._counters.totals["lookups_installed"] += 1
            log.info(Log.LOOKUP_INSTALLED, lookup=signed.name, version=signed.version[:12], rows=signed.rows,
                     bytes=signed.size)  # fmt: skip
            await self._switched()

    def _check(self, part: Part) -> None:
        """Whether the rules find in it what they ask. Raises LookupRefused."""
        name = part.signed.name
        with Lookup.open(part.path, native=False) as lookup:
            if lack := self._lack(name, {name: lookup}):
                raise LookupRefused(f"{lack}: build it with these keys and columns, or publish other rules first")

    def _lack(self, name: str, lookups: Mapping[str, Lookup]) -> str:
        """What rules ask of the lookup ``name`` and do not find in ``lookups``; else empty."""
        return self._active.loaded.engine.plan.lacks(lookups, (name,)) or self._active.sets.lack_apart(name, lookups)

    async def _switched(self) -> None:
        await self._active.relook()
        self._replaced()

    # --- the folder

    async def _look_into_folder(self) -> None:
        """Take what is new in the folder of this host."""
        folder = self._settings.folder
        if folder is None:
            return
        try:
            stamps = await asyncio.to_thread(_stamps, folder)
        except OSError as error:
            self._refuse(str(folder), f"cannot be read: {error.strerror}", host=True)
            return
        self._errors.pop(str(folder), None)
        for path, seen in stamps.items():
            if self._seen.get(path) == seen:
                continue
            self._seen[path] = seen
            try:
                part = await asyncio.to_thread(self.installed.take, path)
                if part is not None:
                    await self._install(part)
                self._errors.pop(str(path), None)
            except LookupRefused as error:
                self._refuse(str(path), str(error), host=True)
            except OSError as error:
                del self._seen[path]  # no verdict: it is tried again
                self._refuse(str(path), str(error), host=True)

    # --- the operator

    async def rollback(self, name: str) -> dict[str, Any]:
        """Go back to the version of ``name`` before the current one. Raises LookupRefused and OSError."""
        async with self._changing:
            path = await asyncio.to_thread(self.installed.rollback, name)
            log.warning(Log.LOOKUP_ROLLED_BACK, lookup=name, current=path.name,
                        action="versions up to the one rolled back from are refused; build a new one")  # fmt: skip
            await self._switched()
            if name in self._wanted and name in self._announced:  # it has just come: say why it is not taken again
                self._due[name] = time.monotonic()
                self._wake.set()
            return {"lookup": name, "current": path.name}

    async def removed(self, name: str) -> dict[str, Any]:
        """Remove a lookup that no documents want here. Raises LookupRefused and OSError."""
        if name not in await asyncio.to_thread(self.installed.names):
            raise LookupRefused(f"no lookup {name} is installed here")
        if name in self._wanted or await asyncio.to_thread(self.installed.governed, name):
            raise LookupRefused("the fleet's documents say which version this agent has")
        await self.remove(name)
        return {"lookup": name}

    def status(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "incoming": [{"name": name, **incoming._asdict()} for name, incoming in self._incoming.items()],
            "refused": [{"name": name, "reason": reason} for name, reason in self._errors.items()],
        }

    def _note(self, name: str, **more: Any) -> None:
        if name in self._incoming:
            self._incoming[name] = self._incoming[name]._replace(**more)

    def _refuse(self, name: str, reason: str, *, host: bool = False) -> None:
        if self._errors.get(name) != reason:
            self._counters.totals["lookups_refused"] += 1
            what = {"path": name} if host else {"lookup": name}
            log.error(Log.LOOKUP_REFUSED, **what, reason=reason, action="the version in use stays")
        self._errors[name] = reason
        self._note(name, error=reason)


def _stamps(folder: Path) -> dict[Path, tuple[int, int, int] | None]:
    return {path: stamp(path) for path in files(folder)}
