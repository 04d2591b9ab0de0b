"""What the centre wants of this agent, followed: signed documents come, and after them go bundles, lookups and
configuration.

Loaded only with ``[fleet] root``. The metadata are retained at the broker and come with each connection (``tuf/+``);
what they name is fetched by its SHA-256. ``fleet/trust.py`` decides what is believed, ``fleet/documents.py`` what is
wanted here, the room of bundles and the reader of the configuration what can be used. A part that cannot be had or
used stays as it is; why is logged, recorded (``audit.jsonl``) and reported in every heartbeat.

Each step is whole on disk before the next begins, and ``run`` works out what is wanted after every start: so a kill
anywhere is followed by the same end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from vedette.fleet import actual, documents
from vedette.fleet.documents import Target, Wanted
from vedette.fleet.operators import Operators
from vedette.fleet.signedtime import SignedTime
from vedette.fleet.trust import Missing, Trust, Trusted, TrustRefused
from vedette.model.counters import Log
from vedette.runtime.member.lookups import FleetLookups
from vedette.runtime.member.overlay import Overlays, Reload, Unwell
from vedette.runtime.member.release import FleetRelease
from vedette.runtime.member.reports import Record, Reports
from vedette.runtime.member.targets import Targets
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.rulesets.active import ActiveRules
from vedette.runtime.rulesets.lookups import Lookups
from vedette.system.wallclock import utc_now

if TYPE_CHECKING:
    from vedette.delivery.uplink import MqttUplink

log = structlog.get_logger()

SETTLE_SECONDS = 0.2
"""For further files of one publication to come."""
IDLE_SECONDS = 5.0
"""Between two looks when nothing came."""
BUSY_SECONDS = 1.0
"""While something is on its way."""


class Fleet:
    """The agent's side of its fleet."""

    def __init__(
        self,
        context: RunContext,
        active: ActiveRules,
        path: Path,
        *,
        reload: Reload,
        unwell: Unwell,
        lookups: Callable[[], Lookups],
        waiting: Callable[[], bool],
    ) -> None:
        """``path``: of the local configuration; ``lookups``: those that come by themselves, as they are in force;
        ``waiting``: whether events wait to be evaluated. Blocks on the disk. Raises TrustRefused (ValueError) when the
        root of trust is none, OSError."""
        agent, settings = context.config.agent, context.config.fleet
        assert settings.root is not None
        self._context = context
        self._active = active
        self._own_lookups = lookups
        folder = agent.fleet_dir
        folder.mkdir(parents=True, exist_ok=True)
        self.time = SignedTime(folder / "time", context.clock)
        """By which what the fleet has signed expires."""
        self._trust = Trust(folder, agent.fleet, settings.root.read_bytes(), self.time)
        self._trusted: Trusted = self._trust.current()
        self._recorded = _serials(self._trusted)
        """The documents that the record has last."""
        self._reports = Reports(folder / "audit.jsonl")
        self._targets = Targets(agent.fleet, self._trust, folder)
        self._overlays = Overlays(context, path, reload, unwell, self._targets, self._reports)
        self._lookups = FleetLookups(context, lookups, self._targets, self._reports)
        self._release = FleetRelease(context, unwell, waiting, self._targets, self._reports)
        self._refreshing = asyncio.Lock()
        self._waits: tuple[str, ...] = ()
        """What waits for a window."""
        self._group = ""
        self._failed: dict[str, str] = {}
        """Why a bundle was refused, by SHA-256, in this life."""
        if self._targets.carried.metadata("timestamp.json") is not None:
            with suppress(TrustRefused, OSError):  # what a broker brought since then is newer
                self._trusted = self._trust.refresh(self._targets.carried)

    @property
    def operators(self) -> Operators | None:
        """Who may ask this agent."""
        return self._trusted.operators

    @property
    def trusted_until(self) -> int:
        """When the metadata in force expire; UTC microseconds."""
        return self._trusted.expires

    @property
    def record(self) -> Record:
        return self._reports.written

    def governs(self, ruleset: str) -> bool:
        """Whether a signed document has ever named a bundle for this rule set: no other source counts any more."""
        return ruleset in self._overlays.state.governed

    def attach(self, uplink: MqttUplink) -> None:
        """Follow what comes by ``uplink``, which takes the place of the one before."""
        self._targets.attach(uplink)
        self._release.attach(uplink)

    def actual(self) -> dict[str, Any]:
        """For the heartbeat."""
        config, trusted, loaded = self._context.config, self._trusted, self._active.loaded
        expired = trusted.expires and self.time.now() >= trusted.expires
        more = (
            {"trust": "the metadata have expired and no fresh ones came: nothing new is installed"} if expired else {}
        )
        if config.overlay.problem:
            more["config"] = config.overlay.problem
        if lacking := config.overlay.lacking:
            more["overlay"] = f"not in force here, only the host's own file may say it: {', '.join(lacking)}"
        bundles = {
            name: actual.of_bundle(self._active.bundle(name), self._active.sha256(name), loaded.engine.plan.digest)
            for name in self._active.sets.members
        }
        head = self._reports.head()
        return {
            "desired_serial": trusted.desired.serial if trusted.desired else 0,
            "rollout_serial": trusted.rollout.serial if trusted.rollout else 0,
            "metadata": trusted.versions,
            "trusted_until": trusted.expires,
            "group": self._group,
            "labels": actual.labels(config),
            "bundles": {name: bundle for name, bundle in bundles.items() if bundle is not None},
            "config": actual.of_config(config, self._overlays.state),
            "lookups": self._own_lookups().actual(),
            "release": self._release.actual(),
            "waits": [*self._waits],
            "problems": self._reports.problems(**more),
            "refused": actual.refused({**self._failed, **self._release.refused}),
            "audit": head._asdict(),
        }

    async def carried(self) -> dict[str, Any]:
        """Take what was carried here (``FLEET/carried``), when all of it can be trusted. Raises TrustRefused
        (ValueError) and OSError."""
        async with self._refreshing:
            try:
                trusted = await asyncio.to_thread(self._trust.refresh, self._targets.carried)
            except TrustRefused as error:
                await self._reports.record("metadata_refused", kind=error.kind, reason=str(error), carried=True)
                raise
            await self._took(trusted)
        self._targets.news.set()
        return _serials(self._trusted)

    async def run(self) -> None:
        """Until cancelled. While the folder of trust cannot be written, what is in force stays."""
        async with self._refreshing:
            await self._took(self._trusted)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait()):
                    await self._targets.news.wait()
            try:
                await self._step()
            except OSError as error:
                if self._reports.problem("disk", str(error)):
                    log.error(
                        Log.FLEET_REFUSED, kind="disk", reason=str(error), action="retrying; what is in force stays"
                    )
                self._targets.news.set()
                await asyncio.sleep(IDLE_SECONDS)
                continue
            self._reports.problem("disk", "")

    async def _step(self) -> None:
        """Raises OSError."""
        if self._targets.news.is_set():
            await asyncio.sleep(SETTLE_SECONDS)
            self._targets.news.clear()
            await self._refresh()
        await self._follow()
        await self._overlays.watch()

    def _wait(self) -> float:
        if self._overlays.settled and not self._release.deciding:
            return BUSY_SECONDS if self._lookups.busy or self._release.busy else IDLE_SECONDS
        return min(IDLE_SECONDS, self._context.config.fleet.undo_after / 10)

    # --- trust

    async def _refresh(self) -> None:
        """Take what has come, when all of it can be trusted."""
        if not len(self._targets.mailbox):
            return
        try:
            for _ in range(3):  # the two documents may have to be fetched first
                try:
                    async with self._refreshing:
                        await self._took(await asyncio.to_thread(self._trust.refresh, self._targets.mailbox))
                    break
                except Missing as error:
                    if len(error.name) != 64:
                        self._reports.problem("trust", f"waiting for {error.name}")
                        return
                    self._targets.mailbox.keep(error.name, await self._targets.blob(error.name))
        except TrustRefused as error:
            if self._reports.problem("trust", str(error)):
                log.error(Log.FLEET_REFUSED, kind=error.kind, reason=str(error), action="what is in force stays")
                await self._reports.record("metadata_refused", kind=error.kind, reason=str(error))
            return
        except TimeoutError as error:
            self._reports.problem("trust", str(error))
            self._targets.news.set()
            return
        finally:
            self._targets.mailbox.clear()
        self._reports.problem("trust", "")

    async def _took(self, trusted: Trusted) -> None:
        if self._recorded != _serials(trusted):
            log.info(Log.FLEET_DOCUMENTS, **_serials(trusted))
            await self._reports.record("documents_taken", **_serials(trusted))
            self._recorded = _serials(trusted)
        self._trusted = trusted

    # --- what is wanted

    async def _follow(self) -> None:
        config, trusted = self._context.config, self._trusted
        if trusted.desired is None:
            return
        labels = actual.labels(config)
        wanted = documents.wanted(trusted.desired, trusted.rollout, config.agent.id, labels)
        self._group = "" if wanted is None else wanted.group
        self._reports.problem("group", "no group's expression matches its labels" if wanted is None else "")
        if wanted is None:
            return
        waits = [*await self._follow_parts(wanted)]
        due = self._due(wanted, "release", wanted.release)
        await self._release.follow(wanted.release_change, wanted.release, due=due, settled=self._overlays.settled)
        self._waits = (*waits, *(["release"] if self._release.waiting else []))

    async def _follow_parts(self, wanted: Wanted) -> list[str]:
        """All but the release; returns what waits for a window."""
        lookups = {
            name: target
            for name, target in wanted.lookups.items()
            if self._due(wanted, "lookups", target) or await self._lookups.has(name, target)
        }
        waits = [f"lookup {name}" for name in wanted.lookups if name not in lookups]
        if await self._lookups.follow(lookups):
            self._failed.clear()  # one that was refused for want of a lookup may be good now
        waits += await self._bundles(wanted)
        if self._due(wanted, "lookups", None):
            await self._lookups.clear(wanted.lookups)
        if self._release.deciding:  # one thing at a time: who is unwell is to be blamed for one change
            return waits
        if self._due(wanted, "config", wanted.config) or self._overlays.has(wanted.config):
            await self._overlays.follow(wanted.config)
            return waits
        return [*waits, "config"]

    def _due(self, wanted: Wanted, kind: str, target: Target | None) -> bool:
        """Whether what is of ``kind`` may change now: a window is open, or there is none, or it is a way back."""
        return target in wanted.urgent or documents.may(wanted.windows, kind, utc_now())

    async def _bundles(self, wanted: Wanted) -> list[str]:
        """Returns what waits for a window."""
        self._reports.only("bundle", wanted.bundles)
        waits = []
        for ruleset, target in wanted.bundles.items():
            if target is None:
                self._reports.problem(f"bundle {ruleset}", "")
            elif target.sha256 == self._active.sha256(ruleset) or self._due(wanted, "bundles", target):
                self._reports.problem(f"bundle {ruleset}", await self._bundle(ruleset, target))
            else:
                waits.append(f"bundle {ruleset}")
        return waits

    async def _bundle(self, ruleset: str, target: Target) -> str:
        """Have a rule set run a bundle; returns why it does not."""
        rules = self._active.sets.members.get(ruleset)
        if rules is None:
            return f"no rule set of this name is configured; there are: {', '.join(self._active.sets.members)}"
        if rules.folder:
            return "its rules come from folders (paths)"
        await asyncio.to_thread(self._overlays.govern, ruleset)
        if target.sha256 == self._active.sha256(ruleset):
            return ""
        if reason := self._failed.get(target.sha256):
            return reason
        facts = {"ruleset": ruleset, "target": target.target, "sha256": target.sha256, "version": target.version}
        try:
            await self._active.take(ruleset, await self._targets.target(target))
        except TimeoutError as error:
            return str(error)
        except (ValueError, OSError) as error:
            reason = f"{target.target}: {error}"
            if isinstance(error, ValueError):
                self._failed[target.sha256] = reason
            if self._reports.of(f"bundle {ruleset}") != reason:
                await self._reports.record("bundle_refused", **facts, reason=str(error))
            return reason
        self._failed.pop(target.sha256, None)
        await self._reports.record("bundle_installed", **facts)
        return ""


def _serials(trusted: Trusted) -> dict[str, int]:
    desired, rollout = trusted.desired, trusted.rollout
    return {"desired": desired.serial if desired else 0, "rollout": rollout.serial if rollout else 0}
