"""The lookups that the fleet wants: fetched as all lookups are (``rulesets/lookups.py``), older ones too, or taken
away.

The target of a lookup is what is signed before its file: name, version and the digests of its blocks. The blocks
themselves come on the channel of that version, as far as they lack, beside everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from vedette.fleet.documents import Target
from vedette.lookup.layout import LookupRefused
from vedette.lookup.sign import Signed, opened
from vedette.runtime.member.reports import Reports
from vedette.runtime.member.targets import Targets
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.rulesets.lookups import Lookups


class FleetLookups:
    def __init__(self, context: RunContext, lookups: Callable[[], Lookups], targets: Targets, reports: Reports) -> None:
        """``lookups``: those that come by themselves, as they are in force."""
        self._context = context
        self._lookups = lookups
        self._targets = targets
        self._reports = reports
        self._heads: dict[str, Signed] = {}
        """By SHA-256, those that are on their way."""

    @property
    def busy(self) -> bool:
        """One is on its way."""
        return bool(self._heads)

    async def has(self, name: str, target: Target | None) -> bool:
        """Whether this one is installed."""
        sha256 = await self._lookups().installed_as(name)
        return sha256 == (target.sha256 if target is not None else "")

    async def follow(self, wanted: Mapping[str, Target | None]) -> bool:
        """Have the lookups that are wanted; True when one has come since the last time. Raises OSError."""
        lookups = self._lookups()
        self._reports.only("lookup", [*wanted, *await lookups.by_fleet()])
        self._heads = {sha256: head for sha256, head in self._heads.items() if wanted.get(head.name) is not None}
        lookups.only({name for name, target in wanted.items() if target is not None})
        came = False
        for name, target in wanted.items():
            if target is None:
                continue
            try:
                reason, new = await self._have(name, target)
            except TimeoutError as error:
                reason, new = str(error), False
            except ValueError as error:
                reason, new = f"{target.target}: {error}", False
            if new:
                await self._reports.record("lookup_installed", lookup=name, target=target.target, sha256=target.sha256)
            if reason and self._reports.of(f"lookup {name}") != reason:
                await self._reports.record("lookup_not_installed", lookup=name, target=target.target, reason=reason)
            self._reports.problem(f"lookup {name}", reason)
            came = came or new
        return came

    async def _have(self, name: str, target: Target) -> tuple[str, bool]:
        """Why a lookup is not there yet, and whether it has just come. Raises TrustRefused, LookupRefused,
        TimeoutError and OSError."""
        lookups = self._lookups()
        if await lookups.installed_as(name) == target.sha256:
            lookups.let_go(name)
            return "", self._heads.pop(target.sha256, None) is not None
        if (signed := self._heads.get(target.sha256)) is None:
            head = await self._targets.target(target)
            signed = await asyncio.to_thread(opened, head, self._context.config.bundles.trusted_keys)
            if signed.name != name:
                raise LookupRefused(f"it is signed as lookup {signed.name}: name it so in the group")
            self._heads = {sha256: wanted for sha256, wanted in self._heads.items() if wanted.name != name}
            self._heads[target.sha256] = signed
            await self._reports.record("lookup_wanted", lookup=name, target=target.target, sha256=target.sha256)
        if (carried := self._targets.carried_lookup(target.sha256)) is not None:
            await lookups.take_file(carried, signed)
            return "", False
        lookups.want(signed)
        return lookups.trouble(name), False

    async def clear(self, wanted: Mapping[str, Target | None]) -> None:
        """Take away what came by the documents and is wanted no more. Raises OSError."""
        lookups = self._lookups()
        for name in [name for name in await lookups.by_fleet() if wanted.get(name) is None]:
            try:
                await lookups.remove(name)
                await self._reports.record("lookup_removed", lookup=name)
                self._reports.problem(f"lookup {name}", "")
            except LookupRefused as error:
                self._reports.problem(f"lookup {name}", f"cannot be taken away: {error}")
