"""Lookups that come by themselves: announced by the region, or put into a folder of this host.

An announcement (``lookup/offer.py``) of a version that is not current is fetched block by block, beside everything
else: blocks that the installed version has are copied from there, others come as a delta against it or whole, at most
``AHEAD`` at a time and no faster than ``[lookups] max_rate``. What has arrived stays over a cut link, a kill and a
restart. Each block is believed by the digest that the region signed. When all are there the rules are asked whether
they find in it what they look for; then it is installed (``lookup/installed.py``) and the ruleset switched to it
between two frames. Whatever fails before that leaves the version that was in use; it is logged (``lookup_refused``,
``lookup_delayed``) and shown in the status.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from vedette.config.settings import Config
from vedette.delivery.topics import blob_topic, lookup_topic
from vedette.delivery.uplink import MqttUplink
from vedette.lookup import delta
from vedette.lookup.installed import Earlier, Installed, Part, files
from vedette.lookup.layout import LookupRefused
from vedette.lookup.offer import MAX_OFFER, Announcement, Offer
from vedette.lookup.sign import Signed, opened
from vedette.lookup.table import Lookup
from vedette.model.counters import Counters, Log
from vedette.mqtt.connection import Message
from vedette.runtime.active import ActiveRules

log = structlog.get_logger()

AHEAD = 4
"""Blobs asked for at once."""
BLOB_SECONDS = 30.0
"""For one to come while the broker is connected."""
RETRY_SECONDS = 10.0
"""Until what failed for the moment (no disk, no blob) is tried again."""
MAX_WAITING = 1000
"""Lookups announced on a channel that are remembered."""


class _Gone(ConnectionError):
    """A blob did not come: it was withdrawn, or the broker has lost it."""


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
        self._settings, self._trusted, self._poll = config.lookups, config.bundles.trusted_keys, config.rules.poll
        self._fleet, self._channel = config.agent.fleet, config.bundles.channel
        self.installed = Installed(
            config.agent.lookup_dir, self._trusted, fleet=config.agent.fleet, channel=config.bundles.channel
        )
        self._uplink: MqttUplink | None = None
        self._announced: dict[str, Announcement] = {}
        self._due: dict[str, float] = {}
        """By name when (monotonic seconds) an announced lookup is to be fetched."""
        self._wake = asyncio.Event()
        self._incoming: dict[str, _Incoming] = {}
        self._errors: dict[str, str] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        """Files of the folder on which there is a verdict."""
        self._paid = 0.0
        """Until when (monotonic seconds) the link is paid for what has come."""
        self._changing = asyncio.Lock()

    # --- announcements

    def attach(self, uplink: MqttUplink) -> None:
        """Follow what is announced by ``uplink``, and no other."""
        self._uplink = uplink
        if self._trusted:
            uplink.subscribe(lookup_topic(self._fleet, self._channel, "+"), self._message)

    def detach(self) -> None:
        self._uplink = None

    def _message(self, message: Message) -> None:
        if not message.payload:
            return
        name = message.topic.rpartition("/")[2]
        try:
            said = Announcement.from_bytes(message.payload)
            if said.name != name:
                raise LookupRefused(f"it is an announcement of {said.name}")
        except LookupRefused as error:
            self._refuse(name, str(error))
            return
        if name not in self._announced and len(self._announced) >= MAX_WAITING:
            return
        self._announced[name] = said
        self._due[name] = 0.0
        self._wake.set()

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
            ready = [name for name, due in self._due.items() if due <= now and self._uplink is not None]
            for name in ready:
                await self._try(name)
            if not ready:
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._poll):
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
            if isinstance(error, _Gone) and self._uplink is not None:  # it may be announced otherwise by now
                self._uplink.subscribe(lookup_topic(self._fleet, self._channel, "+"), self._message)

    async def _fetch(self, said: Announcement) -> None:
        """Raises LookupRefused and OSError, with what has come kept."""
        name = said.name
        self._incoming[name] = _Incoming(said.version, said.created, 0, 0, 0, 0, 0, None)
        offer = Offer.from_bytes(await self._blob(name, said.offer, MAX_OFFER))
        signed = await asyncio.to_thread(opened, offer.head, self._trusted)
        if (signed.name, signed.version) != (name, said.version) or len(offer.whole) != 32 * len(signed):
            raise LookupRefused("its offer is of another lookup than the announcement says")
        self.installed.admit(signed)
        with await asyncio.to_thread(self.installed.part, signed) as part:
            current = self.installed.current(name)
            earlier = await asyncio.to_thread(_earlier, current)
            self._note(name, blocks=len(signed), resumed=part.had, have=part.had)
            if earlier is not None:
                copied = await asyncio.to_thread(_copy, part, earlier)
                self._note(name, have=len(signed) - len(part.missing), copied=copied)
            await self._fetch_blocks(part, offer, earlier)
            await self._install(part)

    async def _fetch_blocks(self, part: Part, offer: Offer, earlier: Earlier | None) -> None:
        base = earlier if earlier is not None and earlier.version == offer.base else None
        tasks = set[asyncio.Task[None]]()
        try:
            for block in list(part.missing):
                if self._announced[part.signed.name].version != part.signed.version:
                    raise LookupRefused("a newer version was announced meanwhile")
                tasks.add(asyncio.create_task(self._block(part, offer, base, block)))
                while len(tasks) >= AHEAD:
                    tasks = await _first(tasks)
            while tasks:
                tasks = await _first(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _block(self, part: Part, offer: Offer, base: Earlier | None, block: int) -> None:
        signed, made = part.signed, None
        if base is not None and (known := offer.deltas.get(block)) is not None:
            blob = await self._blob(signed.name, known.digest.hex(), delta.MAX_BLOB)
            made = await asyncio.to_thread(_by_delta, signed, block, blob, base, known.start, known.length)
        if made is None:  # no delta, or one against other bytes than this host has
            blob = await self._blob(signed.name, offer.whole[32 * block : 32 * block + 32].hex(), delta.MAX_BLOB)
            made = await asyncio.to_thread(delta.unpacked, blob, signed.span(block)[1])
            if not signed.fits(block, made):
                raise LookupRefused(f"block {block} is not the one that was signed: publish it again")
        await asyncio.to_thread(part.write, block, made)
        self._counters.totals["lookup_blocks"] += 1
        self._note(signed.name, have=len(signed) - len(part.missing))

    async def _blob(self, name: str, digest: str, most: int) -> bytes:
        """Raises LookupRefused for bytes that do not have the digest, OSError when none come."""
        uplink = self._uplink
        if uplink is None:
            raise ConnectionError("the uplink has gone: the rest comes by the next one")
        await asyncio.sleep(self._paid - time.monotonic())
        topic, came = blob_topic(self._fleet, self._channel, digest), asyncio.Queue[bytes]()
        uplink.subscribe(topic, lambda message: came.put_nowait(message.payload))
        try:
            while True:
                try:
                    async with asyncio.timeout(BLOB_SECONDS):
                        data = await came.get()
                    break
                except TimeoutError:
                    if self._uplink is not uplink or uplink.client.connected.is_set():
                        raise _Gone(f"blob {digest[:12]} did not come: publish the lookup again") from None
        finally:
            uplink.unsubscribe(topic)
        if not data:
            raise _Gone(f"blob {digest[:12]} was withdrawn: a newer version is announced, or publish it again")
        self._counters.totals["lookup_bytes"] += len(data)
        if self._settings.max_rate:
            self._paid = max(self._paid, time.monotonic()) + len(data) / self._settings.max_rate
        if name in self._incoming:
            self._note(name, fetched=self._incoming[name].fetched + len(data))
        if len(data) > most or await asyncio.to_thread(_sha256, data) != digest:
            raise LookupRefused(f"blob {digest[:12]} is not what its digest says: publish the lookup again")
        return data

    async def _install(self, part: Part) -> None:
        """Raises LookupRefused and OSError, with the old version in use."""
        signed = part.signed
        await asyncio.to_thread(self._check, part)
        await asyncio.to_thread(self.installed.install, part)
        self._incoming.pop(signed.name, None)
        self._errors.pop(signed.name, None)
        self._counters.totals["lookups_installed"] += 1
        log.info(Log.LOOKUP_INSTALLED, lookup=signed.name, version=signed.version[:12], rows=signed.rows,
                 bytes=signed.size)  # fmt: skip
        await self._switched()

    def _check(self, part: Part) -> None:
        """Whether the rules find in it what they ask. Raises LookupRefused."""
        name, plan = part.signed.name, self._active.loaded.engine.plan
        with Lookup.open(part.path, native=False) as found:
            if lack := plan.lacks({name: found}, (name,)):
                raise LookupRefused(f"{lack}: build it with these keys and columns, or publish other rules first")

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
            found = await asyncio.to_thread(_signatures, folder)
        except OSError as error:
            self._refuse(str(folder), f"cannot be read: {error.strerror}", host=True)
            return
        self._errors.pop(str(folder), None)
        for path, signature in found.items():
            if self._seen.get(path) == signature:
                continue
            self._seen[path] = signature
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
            return {"lookup": name, "current": path.name}

    def status(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "incoming": [{"name": name, **one._asdict()} for name, one in self._incoming.items()],
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


async def _first(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """What is still under way once one has ended. Raises what it raised."""
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in done if task.exception() is not None]
    if failed:
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        failed[0].result()
    return rest


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _earlier(path: Path | None) -> Earlier | None:
    try:
        return None if path is None else Earlier(path)
    except (LookupRefused, OSError):
        return None


def _copy(part: Part, earlier: Earlier) -> int:
    """The blocks that the earlier version has; how many these were. Raises OSError."""
    copied = 0
    for block in list(part.missing):
        data = earlier.block(part.signed.digest(block))
        if data is not None and part.signed.fits(block, data):
            part.write(block, data)
            copied += 1
    return copied


def _by_delta(signed: Signed, block: int, blob: bytes, base: Earlier, start: int, length: int) -> bytes | None:
    """The block, or None when the earlier version here does not give it."""
    try:
        made = delta.unpacked(blob, signed.span(block)[1], base.read(start, length))
    except LookupRefused:
        return None
    return made if signed.fits(block, made) else None


def _signatures(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (stat.st_mtime_ns, stat.st_size) for path in files(folder) for stat in [path.stat()]}
