"""What the centre wants of this agent, followed: signed documents come, bundle and configuration go after them.

Loaded only with ``[fleet] root``. The metadata are retained at the broker and come with each connection (``tuf/+``);
what they name is fetched by its SHA-256. ``fleet/trust.py`` decides what is believed, ``fleet/documents.py`` what is
wanted here, the room of bundles and the reader of the configuration what can be used. A part that cannot be had or
used stays as it is; why is logged, recorded (``audit.jsonl``) and reported in every heartbeat.

Each step is whole on disk before the next begins, and ``run`` works out what is wanted after every start: so a kill
anywhere is followed by the same end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from vedette.config.read import ConfigError, read_text
from vedette.delivery.topics import blob_topic, tuf_topic
from vedette.delivery.uplink import MqttUplink
from vedette.fleet import actual, documents
from vedette.fleet.audit import FIRST, Audit, Head
from vedette.fleet.documents import Target, Wanted
from vedette.fleet.mailbox import Mailbox
from vedette.fleet.operators import Operators
from vedette.fleet.overlay import Applied, Watch, under
from vedette.fleet.trust import Missing, Trust, Trusted, TrustRefused
from vedette.model.counters import Log
from vedette.mqtt.connection import Message
from vedette.runtime.active import ActiveRules
from vedette.runtime.context import RunContext

log = structlog.get_logger()

BLOBS = "fleet"
"""The channel under which targets lie."""
SETTLE_SECONDS = 0.2
"""For further files of one publication to come."""
IDLE_SECONDS = 5.0
"""Between two looks when nothing came."""
FETCH_SECONDS = 60.0
"""For a target to come."""


class Fleet:
    """The agent's side of its fleet. ``reload`` reads the configuration again and returns why it was refused, or None;
    ``unwell`` says why the agent is not healthy and connected, or nothing."""

    def __init__(
        self,
        context: RunContext,
        path: Path,
        active: ActiveRules,
        reload: Callable[[], Awaitable[str | None]],
        unwell: Callable[[], str],
    ) -> None:
        """``path``: the local configuration. Blocks on the disk. Raises TrustRefused (ValueError) when the root of
        trust is none, OSError."""
        agent, settings = context.config.agent, context.config.fleet
        assert settings.root is not None
        self._context, self._path, self._active = context, path, active
        self._reload, self._unwell = reload, unwell
        folder = agent.fleet_dir
        folder.mkdir(parents=True, exist_ok=True)
        self._trust = Trust(folder, agent.fleet, settings.root.read_bytes())
        self._trusted: Trusted = self._trust.current()
        self._applied = _applied(folder)
        self._audit = Audit(folder / "audit.jsonl")
        self._mailbox = Mailbox()
        self._uplink: MqttUplink | None = None
        self._fetching: dict[str, asyncio.Future[bytes]] = {}
        self._news = asyncio.Event()
        self._watch: Watch | None = None
        self._suspect: tuple[str, float] | None = None
        """The overlay undone last, and when: whether it was its fault that the region was away is seen when it is
        back."""
        self._group = ""
        self._failed: dict[str, str] = {}
        """Why a bundle was refused, by SHA-256, in this life."""
        self._problems: dict[str, str] = {}

    @property
    def operators(self) -> Operators | None:
        """Who may ask this agent."""
        return self._trusted.operators

    @property
    def trusted_until(self) -> int:
        """When the metadata in force expire; UTC microseconds."""
        return self._trusted.expires

    @property
    def audit(self) -> Audit:
        return self._audit

    def governs(self, ruleset: str) -> bool:
        """Whether a signed document has ever named a bundle for this rule set: no other source counts any more."""
        return ruleset in self._applied.state.governed

    def attach(self, uplink: MqttUplink) -> None:
        """Follow what comes by ``uplink``, which takes the place of the one before."""
        self._uplink = uplink
        uplink.subscribe(tuf_topic(self._context.config.agent.fleet, "+"), self._metadata)
        self._news.set()

    def actual(self) -> dict[str, Any]:
        """For the heartbeat."""
        config, trusted, loaded = self._context.config, self._trusted, self._active.loaded
        found = dict(self._problems)
        if trusted.expires and self._context.clock() > trusted.expires:
            found["trust"] = "the metadata have expired and no fresh ones came: nothing new is installed"
        if config.overlay.problem:
            found["config"] = config.overlay.problem
        try:
            head = self._audit.head()
        except (OSError, ValueError) as error:
            head, found["audit"] = Head(0, FIRST), str(error)
        bundles = {
            name: actual.of_bundle(self._active.bundle(name), self._active.sha256(name), loaded.engine.plan.digest)
            for name in self._active.sets.members
        }
        return {
            "desired_serial": trusted.desired.serial if trusted.desired else 0,
            "rollout_serial": trusted.rollout.serial if trusted.rollout else 0,
            "metadata": trusted.versions,
            "trusted_until": trusted.expires,
            "group": self._group,
            "labels": actual.labels(config),
            "bundles": {name: one for name, one in bundles.items() if one is not None},
            "config": actual.of_config(config, self._applied.state),
            "lookups": {},
            "release": actual.RELEASE,
            "problems": actual.problems(found),
            "refused": actual.refused(self._failed),
            "audit": head._asdict(),
        }

    async def run(self) -> None:
        """Until cancelled. While the folder of trust cannot be written, what is in force stays."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait()):
                    await self._news.wait()
            try:
                await self._step()
            except OSError as error:
                if self._problem("disk", str(error)):
                    log.error(
                        Log.FLEET_REFUSED, kind="disk", reason=str(error), action="retrying; what is in force stays"
                    )
                self._news.set()
                await asyncio.sleep(IDLE_SECONDS)
                continue
            self._problem("disk", "")

    async def _step(self) -> None:
        """Raises OSError."""
        if self._news.is_set():
            await asyncio.sleep(SETTLE_SECONDS)
            self._news.clear()
            await self._refresh()
        await self._follow()
        await self._watch_overlay()

    def _wait(self) -> float:
        if self._applied.state.confirmed and self._suspect is None:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, self._context.config.fleet.undo_after / 10)

    # --- trust

    def _metadata(self, message: Message) -> None:
        if self._mailbox.put(message.topic.rpartition("/")[2], message.payload):
            self._news.set()

    async def _refresh(self) -> None:
        """Take what has come, when all of it can be trusted."""
        if not len(self._mailbox):
            return
        before = self._trusted
        try:
            for _ in range(3):  # the two documents may have to be fetched first
                try:
                    self._trusted = await asyncio.to_thread(self._trust.refresh, self._mailbox)
                    break
                except Missing as error:
                    if len(error.name) != 64:
                        self._problem("trust", f"waiting for {error.name}")
                        return
                    self._mailbox.keep(error.name, await self._blob(error.name))
        except TrustRefused as error:
            if self._problem("trust", str(error)):
                log.error(Log.FLEET_REFUSED, kind=error.kind, reason=str(error), action="what is in force stays")
                self._record("metadata_refused", kind=error.kind, reason=str(error))
            return
        except TimeoutError as error:
            self._problem("trust", str(error))
            self._news.set()
            return
        finally:
            self._mailbox.clear()
        self._problem("trust", "")
        if (before.desired, before.rollout) != (self._trusted.desired, self._trusted.rollout):
            serials = {
                "desired": self._trusted.desired.serial if self._trusted.desired else 0,
                "rollout": self._trusted.rollout.serial if self._trusted.rollout else 0,
            }
            log.info(Log.FLEET_DOCUMENTS, **serials)
            self._record("documents_taken", **serials)

    async def _blob(self, sha256: str) -> bytes:
        """What the broker retains under ``sha256``, believed by nobody. Raises TimeoutError."""
        if self._uplink is None:
            raise TimeoutError("no uplink to the region")
        topic = blob_topic(self._context.config.agent.fleet, BLOBS, sha256)
        uplink, answer = self._uplink, asyncio.get_running_loop().create_future()
        self._fetching[topic] = answer
        uplink.subscribe(topic, self._came)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                data: bytes = await answer
                return data
        except TimeoutError:
            raise TimeoutError(f"{topic} does not come") from None
        finally:
            uplink.unsubscribe(topic)
            self._fetching.pop(topic, None)

    def _came(self, message: Message) -> None:
        answer = self._fetching.get(message.topic)
        if message.payload and answer is not None and not answer.done():
            answer.set_result(message.payload)

    async def _target(self, target: Target) -> bytes:
        """A target's verified bytes. Raises TrustRefused, TimeoutError and OSError."""
        await asyncio.to_thread(self._trust.length, target)  # before anything is fetched: is it among the targets?
        try:
            self._mailbox.keep(target.sha256, await self._blob(target.sha256))
            return await asyncio.to_thread(self._trust.fetch, target, self._mailbox)
        finally:
            self._mailbox.clear()

    # --- what is wanted

    async def _follow(self) -> None:
        config, trusted = self._context.config, self._trusted
        if trusted.desired is None:
            return
        labels = actual.labels(config)
        wanted = documents.wanted(trusted.desired, trusted.rollout, config.agent.id, labels)
        self._group = "" if wanted is None else wanted.group
        self._problem("group", "no group's expression matches its labels" if wanted is None else "")
        if wanted is None:
            return
        await self._bundles(wanted)
        await self._config(wanted.config)
        unknown = ", ".join(name for name, target in wanted.lookups.items() if target is not None)
        self._problem(
            "lookups",
            f"{unknown}: lookups come by their own channel or in bundles, not by the desired document yet"
            if unknown
            else "",
        )

    async def _bundles(self, wanted: Wanted) -> None:
        for about in [*self._problems]:
            if about.startswith("bundle ") and about.removeprefix("bundle ") not in wanted.bundles:
                del self._problems[about]
        for ruleset, target in wanted.bundles.items():
            self._problem(f"bundle {ruleset}", "" if target is None else await self._bundle(ruleset, target))

    async def _bundle(self, ruleset: str, target: Target) -> str:
        """Have a rule set run a bundle; returns why it does not."""
        rules = self._active.sets.members.get(ruleset)
        if rules is None:
            return f"no rule set of this name is configured; there are: {', '.join(self._active.sets.members)}"
        if rules.directory:
            return "its rules come from folders (paths)"
        await asyncio.to_thread(self._applied.govern, ruleset)
        if target.sha256 == self._active.sha256(ruleset):
            return ""
        if reason := self._failed.get(target.sha256):
            return reason
        facts = {"ruleset": ruleset, "target": target.target, "sha256": target.sha256, "version": target.version}
        try:
            await self._active.take(ruleset, await self._target(target))
        except TimeoutError as error:
            return str(error)
        except (ValueError, OSError) as error:
            reason = f"{target.target}: {error}"
            if isinstance(error, ValueError):
                self._failed[target.sha256] = reason
            if self._problems.get(f"bundle {ruleset}") != reason:
                self._record("bundle_refused", **facts, reason=str(error))
            return reason
        self._failed.pop(target.sha256, None)
        self._record("bundle_installed", **facts)
        return ""

    # --- the overlay

    async def _config(self, target: Target | None) -> None:
        sha256, state = target.sha256 if target else "", self._applied.state
        if sha256 == state.active:
            self._problem("config", "")
            return
        if (reason := state.undone.get(sha256)) is not None:
            self._problem("config", f"overlay {_short(sha256)} is not taken: {reason}")
            return
        try:
            data = await self._target(target) if target else b""
            if target is not None:
                await self._validate(sha256, data)
        except TimeoutError as error:
            self._problem("config", str(error))
            return
        except ConfigError as error:
            await asyncio.to_thread(self._applied.refuse, sha256, str(error))
            self._undone(sha256, str(error), "overlay_refused")
            return
        except (ValueError, OSError) as error:
            self._problem("config", str(error))
            return
        await asyncio.to_thread(self._applied.begin, sha256, data)
        self._watch, self._suspect = None, None
        self._record("overlay_applied", sha256=sha256)
        log.info(Log.OVERLAY_APPLIED, overlay=_short(sha256))
        if (refused := await self._reload()) is not None:
            await self._undo(refused)

    async def _validate(self, sha256: str, data: bytes) -> None:
        """Raises ConfigError."""
        path = self._path
        await asyncio.to_thread(lambda: under(read_text(path), path, sha256, data))

    async def _watch_overlay(self) -> None:
        now, after = time.monotonic(), self._context.config.fleet.undo_after
        wrong = self._unwell()
        if self._suspect is not None and not wrong:
            (sha256, at), self._suspect = self._suspect, None
            if now - at > after:  # the region was away for everybody
                await asyncio.to_thread(self._applied.forgive, sha256)
        if self._applied.state.confirmed:
            self._watch = None
            return
        if not wrong:
            await asyncio.to_thread(self._applied.healthy)
        self._watch = self._watch or Watch(after, now)
        verdict = self._watch.see(now, wrong)
        if verdict == "":
            await asyncio.to_thread(self._applied.confirm)
            self._record("overlay_confirmed", sha256=self._applied.state.active)
            log.info(Log.OVERLAY_CONFIRMED, overlay=_short(self._applied.state.active))
        elif verdict is not None:
            await self._undo(verdict)

    async def _undo(self, reason: str) -> None:
        sha256 = self._applied.state.active
        await asyncio.to_thread(self._applied.undo, reason)
        self._watch, self._suspect = None, (sha256, time.monotonic())
        self._undone(sha256, reason, "overlay_undone")
        await self._reload()

    def _undone(self, sha256: str, reason: str, event: str) -> None:
        self._problem("config", f"overlay {_short(sha256)} is not taken: {reason}")
        log.error(Log.OVERLAY_UNDONE, overlay=_short(sha256), reason=reason, action="the one before is in force")
        self._record(event, sha256=sha256, reason=reason)

    # --- accounts

    def _problem(self, about: str, reason: str) -> bool:
        """Report ``reason``, or that there is none; True when it is news."""
        new = self._problems.get(about, "") != reason
        self._problems[about] = reason
        return new and bool(reason)

    def _record(self, event: str, **facts: Any) -> None:
        try:
            self._audit.append(event, **facts)
        except (OSError, ValueError) as error:
            if self._problem("audit", str(error)):
                log.error(Log.AUDIT_FAILED, path=str(self._audit.path), reason=str(error))


def _applied(folder: Path) -> Applied:
    """Which overlay is in force; a damaged file is put aside, and the documents say again what is wanted."""
    try:
        return Applied.open(folder)
    except ValueError as error:
        path = folder / "overlay.json"
        path.rename(path.with_suffix(".damaged"))
        log.error(Log.OVERLAY_UNDONE, reason=str(error), action=f"kept as {path.with_suffix('.damaged')}")
        return Applied.open(folder)


def _short(sha256: str) -> str:
    return sha256[:12] or "none"
