"""The overlay that the fleet wants: taken when it validates, and undone by the agent alone when it harms.

What an overlay is and which one is in force: ``fleet/overlay.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from vedette.config.read import ConfigError, read_text
from vedette.fleet.documents import Target
from vedette.fleet.overlay import Applied, AppliedState, Watch, under
from vedette.model.counters import Log
from vedette.runtime.member.reports import Reports
from vedette.runtime.member.targets import Targets
from vedette.runtime.pipeline.context import RunContext

log = structlog.get_logger()

Reload = Callable[[], Awaitable[str | None]]
"""Reads the configuration again; returns why it was refused, or None."""
Unwell = Callable[[], str]
"""Returns why the agent is not healthy and connected; empty: it is."""


class Overlays:
    """One agent's."""

    def __init__(
        self, context: RunContext, path: Path, reload: Reload, unwell: Unwell, targets: Targets, reports: Reports
    ) -> None:
        """``path``: of the local configuration. Blocks on the disk. Raises OSError."""
        self._context = context
        self._path = path
        self._reload = reload
        self._unwell = unwell
        self._targets = targets
        self._reports = reports
        self._applied = _applied(context.config.agent.fleet_dir)
        self._watch: Watch | None = None
        self._suspect: tuple[str, float] | None = None
        """The overlay undone last, and when: whether it was its fault that the region was away is seen when it is
        back."""

    @property
    def state(self) -> AppliedState:
        return self._applied.state

    @property
    def settled(self) -> bool:
        """Nothing is watched."""
        return self.state.confirmed and self._suspect is None

    def has(self, target: Target | None) -> bool:
        """Whether this overlay is in force."""
        return (target.sha256 if target else "") == self.state.active

    def govern(self, ruleset: str) -> None:
        """Blocks on the disk. Raises OSError."""
        self._applied.govern(ruleset)

    async def follow(self, target: Target | None) -> None:
        """Have the overlay ``target`` in force. Raises OSError."""
        sha256, state = target.sha256 if target else "", self.state
        if sha256 == state.active:
            self._reports.problem("config", "")
            return
        if (reason := state.undone.get(sha256)) is not None:
            self._reports.problem("config", f"overlay {_short(sha256)} is not taken: {reason}")
            return
        try:
            data = await self._targets.target(target) if target else b""
            if target is not None:
                await self._validate(sha256, data)
        except TimeoutError as error:
            self._reports.problem("config", str(error))
            return
        except ConfigError as error:
            await asyncio.to_thread(self._applied.refuse, sha256, str(error))
            await self._undone(sha256, str(error), "overlay_refused")
            return
        except (ValueError, OSError) as error:
            self._reports.problem("config", str(error))
            return
        await asyncio.to_thread(self._applied.begin, sha256, data)
        self._watch, self._suspect = None, None
        await self._reports.record("overlay_applied", sha256=sha256)
        log.info(Log.OVERLAY_APPLIED, overlay=_short(sha256))
        if (refused := await self._reload()) is not None:
            await self._undo(refused)

    async def _validate(self, sha256: str, data: bytes) -> None:
        """Raises ConfigError."""
        await asyncio.to_thread(lambda: under(read_text(self._path), self._path, sha256, data))

    async def watch(self) -> None:
        """Confirm or undo what is in force and is neither yet. Raises OSError."""
        now, after = time.monotonic(), self._context.config.fleet.undo_after
        wrong = self._unwell()
        if self._suspect is not None and not wrong:
            (sha256, at), self._suspect = self._suspect, None
            if now - at > after:  # the region was away for everybody
                await asyncio.to_thread(self._applied.forgive, sha256)
        if self.state.confirmed:
            self._watch = None
            return
        if not wrong:
            await asyncio.to_thread(self._applied.healthy)
        self._watch = self._watch or Watch(after, now)
        verdict = self._watch.see(now, wrong)
        if verdict == "":
            await asyncio.to_thread(self._applied.confirm)
            await self._reports.record("overlay_confirmed", sha256=self.state.active)
            log.info(Log.OVERLAY_CONFIRMED, overlay=_short(self.state.active))
        elif verdict is not None:
            await self._undo(verdict)

    async def _undo(self, reason: str) -> None:
        sha256 = self.state.active
        await asyncio.to_thread(self._applied.undo, reason)
        self._watch, self._suspect = None, (sha256, time.monotonic())
        await self._undone(sha256, reason, "overlay_undone")
        await self._reload()

    async def _undone(self, sha256: str, reason: str, event: str) -> None:
        self._reports.problem("config", f"overlay {_short(sha256)} is not taken: {reason}")
        log.error(Log.OVERLAY_UNDONE, overlay=_short(sha256), reason=reason, action="the one before is in force")
        await self._reports.record(event, sha256=sha256, reason=reason)


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
