"""Several rule sets as one: their plans merged (``plan/merge.py``), whenever one of them changes.

The databases of the result are compiled in a subprocess and kept in the cache, under the digest of what was merged.
Imported when the configuration has several sets.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vedette.config.settings import DEFAULT_SET, Config
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.lookup.sets import chosen, delivered
from vedette.model.event import LogSource
from vedette.plan.merge import Merged, merge
from vedette.plan.plan import Plan
from vedette.runtime.rulesets.rules import KEEP, Loaded, Part, Together, compiler, credit


class MergedPlans:
    """One caller at a time."""

    def __init__(self, config: Config, parts: dict[str, Part], names: Sequence[str]) -> None:
        """``parts``: of the sets that have loaded; ``names``: of those that are merged, in their order."""
        self._lookups = config.agent.lookup_dir
        self._cache = config.agent.cache_dir(DEFAULT_SET)
        self._parts, self._names = parts, names
        self.out: Path | None = None
        """Where what was merged last is kept."""

    def fits(self, name: str, plan: Plan) -> None:
        """Raises ValueError when ``plan`` cannot be merged as the set ``name`` with those of the others."""
        plans = {member: part.read_plan() for member, part in self._merging().items() if member != name}
        if plans:
            plans[name] = plan
            merge(self.relooked({member: plans[member] for member in self._names if member in plans}))

    def relooked(self, plans: Mapping[str, Plan]) -> dict[str, Plan]:
        """``plans`` with the lookups that are installed now, the same for all: a version may have come since some of
        them were loaded."""
        folder = self._lookups
        installed = delivered(folder)

        def own(plan: Plan) -> dict[str, Any]:
            paths = ((name, lookup, lookup.path) for name, lookup in plan.lookups.items())
            return {name: lookup for name, lookup, path in paths if path is None or not path.is_relative_to(folder)}

        return {name: plan.with_lookups(chosen(plan, own(plan), *installed)) for name, plan in plans.items()}

    async def merged(self, inputs: tuple[tuple[str, LogSource], ...], *, patient: bool = True) -> Loaded:
        """All sets, with scans for ``inputs``. ``patient``: False to compile here when no subprocess can. Raises
        OSError or ValueError."""
        merged = await asyncio.to_thread(self._merge)
        parts = self._merging()
        data = merged.plan.to_bytes()
        out = self._cache / f"merged-{hashlib.sha256(data).hexdigest()[:32]}.vplan"
        try:
            engine = await self._compiled(data, out, merged.plan.lookups)
        except OSError:
            if patient:
                raise
            engine = await asyncio.to_thread(lambda: Artifact.of(merged.plan).engine(merged.plan.lookups))
        await asyncio.to_thread(engine.prepare, inputs)
        self.out = out
        bundles = {name: credit(name, part.bundle) for name, part in parts.items()}
        credits = {rule_id: ", ".join(filter(None, map(bundles.get, names))) for rule_id, names in merged.sets.items()}
        together = Together(
            parts, merged.sets, merged.renamed, {rule_id: text for rule_id, text in credits.items() if text}
        )
        return Loaded(
            engine,
            "; ".join(f"{name}: {part.origin}" for name, part in parts.items()),
            ", ".join(bundles[name] or "" for name, part in parts.items() if part.bundle) or None,
            together=together,
        )

    def _merging(self) -> dict[str, Part]:
        """Return those that have loaded, in their order."""
        return {name: self._parts[name] for name in self._names if name in self._parts}

    def _merge(self) -> Merged:
        """Raises ValueError. The sets go on with the lookups that they are merged with."""
        plans = self.relooked({name: part.read_plan() for name, part in self._merging().items()})
        merged = merge(plans)
        for name, plan in plans.items():
            self._parts[name] = self._parts[name]._replace(lookups=plan.lookups)
        return merged

    async def _compiled(self, data: bytes, out: Path, lookups: Mapping[str, Any]) -> Engine:
        """The plan in ``data`` with the databases in ``out``, which is made when it is not there. Raises OSError or
        ValueError."""

        def load() -> Engine:
            return Artifact.from_bytes(out.read_bytes()).engine(lookups)

        def cached() -> Engine | None:
            try:
                engine = load()
                out.touch()
                return engine
            except (FileNotFoundError, ValueError):  # it is made again
                self._cache.mkdir(parents=True, exist_ok=True)
                source.write_bytes(data)
                return None

        source = self._cache / "merging.plan"
        if (engine := await asyncio.to_thread(cached)) is not None:
            return engine
        ended = await compiler("vedette.rules.compile", str(source), str(out), sample=b"")
        if ended.code:
            raise OSError(f"the rule compiler ended with code {ended.code}: {ended.complaint or 'no reason'}")
        engine = await asyncio.to_thread(load)
        for old in sorted(self._cache.glob("merged-*.vplan"), key=lambda path: path.stat().st_mtime_ns)[:-KEEP]:
            old.unlink()
        return engine
