"""The agent's rule sets: each comes and goes by itself (``rules.py``), those that are not strict are merged into one.

One set alone is evaluated as it is. Of several the plans are merged (``plan/merge.py``) whenever one of them changes,
and the databases of the result are compiled in a subprocess and kept in the cache, under the digest of what was merged.
Of each set its plan is kept as bytes, a tenth of what it takes as objects, and its last good version stays where its
own next one does not fit: a set that cannot be merged with the others is refused as a whole, with the reason.

Those in strict isolation are merged with none (``isolated``): each has a process of its own (``strict/``).

Nothing here touches the pipeline; ``active.py`` switches it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from vedette.config.settings import DEFAULT_SET, Config
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.inputs.settings import InputSettings
from vedette.lookup.installed import delivered
from vedette.lookup.sets import chosen
from vedette.model.counters import Log
from vedette.plan.merge import Merged, merge
from vedette.plan.plan import Plan
from vedette.runtime.deadrules import Dead, dead_of
from vedette.runtime.isolated import IsolatedPlans
from vedette.runtime.rules import KEEP, Loaded, Part, Rules, Together, compiler, nothing
from vedette.runtime.strict.supervisor import Isolated

log = structlog.get_logger()


class RuleSets:
    """One caller at a time."""

    def __init__(self, config: Config, sample: Callable[[], bytes]) -> None:
        """``sample``: recent traffic. Raises ValueError for a bad trusted key."""
        self._config = config
        self._cache = config.agent.cache_dir(DEFAULT_SET)
        self.strict = {settings.name: settings for settings in config.rulesets if settings.strict}
        """Settings of those in strict isolation."""
        self.members = {
            settings.name: Rules(config, sample, settings)
            if settings.strict
            else Rules(config, sample, settings, partial(self._fits, settings.name))
            for settings in config.rulesets
        }
        """By name, in the order of the configuration."""
        self.merging = [name for name in self.members if name not in self.strict]
        self.plans = IsolatedPlans(config, self.members)
        self.parts: dict[str, Part] = {}
        """Of the members that have loaded; what runs may still be what was before."""
        self.unmerged = False
        """Whether what is loaded could not be compiled, so that what ran before still runs."""
        self._out: Path | None = None
        self._not_isolated: dict[str, str] = {}
        """Why what a strict set has loaded does not run in its process, by name."""

    @property
    def first(self) -> Rules:
        """That of ``[rules]`` and ``[bundles]``."""
        return self.members[DEFAULT_SET]

    @property
    def error(self) -> str | None:
        """Why the last change of some set was not taken."""
        errors = {name: self._error(name) for name in self.members}
        if len(errors) == 1:
            return errors[DEFAULT_SET]
        return "; ".join(f"{name}: {error}" for name, error in errors.items() if error) or None

    def _error(self, name: str) -> str | None:
        rules = self.members[name]
        return rules.error or rules.bundles.refused or self._not_isolated.get(name)

    async def start(self) -> Loaded:
        """The rules to begin with. Raises ValueError or OSError when the first set has none that work, since events
        would be evaluated by none; another one is left out."""
        loaded = {}
        for name, rules in self.members.items():
            try:
                loaded[name] = await rules.start()
            except (ValueError, OSError) as error:
                if name == DEFAULT_SET:
                    raise
                rules.error = str(error)
                loaded[name] = nothing("no rules that work")
            if len(self.members) > 1:
                await asyncio.to_thread(self._keep, name, loaded[name])
            if name in self.strict:
                del loaded[name]
        return loaded[DEFAULT_SET] if len(loaded) == 1 else await self._merged(patient=False)

    async def take(self, name: str, loaded: Loaded) -> Loaded | None:
        """What is to be evaluated now that the set ``name`` has ``loaded``; None: what was before, the set is strict.
        Raises ValueError or OSError when it could not be compiled."""
        if len(self.members) > 1:
            await asyncio.to_thread(self._keep, name, loaded)
        if name in self.strict:
            return None
        return loaded if len(self.merging) == 1 else await self.again()

    async def isolated(self) -> dict[str, Isolated]:
        """What each strict set evaluates with, by name. One for which that cannot be made is left out, with the
        reason as its error: its process goes on as it is."""

        def each() -> dict[str, Isolated]:
            processes, failed = dict[str, Isolated](), dict[str, str]()
            for name in self.strict:
                try:
                    plan = self._relooked({name: self._plan(self.parts[name])})[name]
                    processes[name] = self.plans.of(name, plan, credit(name, self.parts[name].bundle))
                except (ValueError, OSError) as error:
                    failed[name] = str(error)
                    if self._not_isolated.get(name) != failed[name]:
                        log.error(
                            Log.RULES_REFUSED, ruleset=name, reason=failed[name],
                            action="its process goes on as it is; it is tried again when rules or lookups change",
                        )  # fmt: skip
            self._not_isolated = failed
            return processes

        return await asyncio.to_thread(each)

    def lack_apart(self, name: str, lookups: Mapping[str, Any]) -> str:
        """What rules of strict sets, which no merged plan has, ask of the lookup ``name`` and do not find in
        ``lookups``; else empty."""
        plans = ((member, Plan.from_bytes(part.plan)) for member, part in self.parts.items() if member in self.strict)
        lacks = ((member, plan.lacks(lookups, (name,))) for member, plan in plans)
        return next((f"rule set {member}: {lack}" for member, lack in lacks if lack), "")

    async def again(self) -> Loaded:
        """The sets merged, once more. Raises as ``take`` does."""
        self.unmerged = True
        try:
            merged = await self._merged()
        except (ValueError, OSError) as error:
            log.error(Log.RULES_REFUSED, reason=str(error), action="the active rules stay in place; it is tried again")
            raise
        self.unmerged = False
        return merged

    async def relooked(self, loaded: Loaded) -> Loaded | None:
        """``loaded`` with the lookups that are installed now. Raises as ``take`` does."""
        for name in self.strict:
            self.members[name].look_again()
        if len(self.merging) == 1:
            return await self.first.relooked(loaded)
        for name in self.merging:
            self.members[name].look_again()
        return await self.again()

    async def adopt(self, inputs: Iterable[InputSettings], running: Engine) -> None:
        """Scans for these inputs from now on, also of the engine that runs."""
        inputs = tuple(inputs)
        for rules in self.members.values():
            await rules.adopt(inputs, running)
        for name, part in self.parts.items():
            dead = partial(dead_of, inputs, self._plan(part), functions=self._config.functions.allow)
            self.parts[name] = part._replace(dead=await asyncio.to_thread(dead))

    async def retune(self, loaded: Loaded) -> Loaded | None:
        """See ``Rules.retune``."""
        return await self.first.retune(loaded, self._out if loaded.together else None)

    # --- merging

    def _keep(self, name: str, loaded: Loaded) -> None:
        plan = loaded.engine.plan
        counts = {"running": len(plan.detections), "correlations": len(plan.correlations),
                  "statements": len(plan.statements), "always_candidates": len(plan.always)}  # fmt: skip
        dead = dead_of(self._config.input, plan, functions=self._config.functions.allow)
        self.parts[name] = Part(
            plan.to_bytes(), plan.lookups, counts, dead, loaded.origin, loaded.bundle, loaded.version, loaded.sha256
        )
        if self.strict:
            self.plans.keep(name, loaded.engine)

    @staticmethod
    def _plan(part: Part) -> Plan:
        return Plan.from_bytes(part.plan).with_lookups(part.lookups)

    def _relooked(self, plans: Mapping[str, Plan]) -> dict[str, Plan]:
        """``plans`` with the lookups that are installed now, the same for all: a version may have come since some of
        them were loaded."""
        folder = self._config.agent.lookup_dir
        installed = delivered(folder)

        def own(plan: Plan) -> dict[str, Any]:
            paths = ((name, lookup, lookup.path) for name, lookup in plan.lookups.items())
            return {name: lookup for name, lookup, path in paths if path is None or not path.is_relative_to(folder)}

        return {name: plan.with_lookups(chosen(plan, own(plan), *installed)) for name, plan in plans.items()}

    def _fits(self, name: str, plan: Plan) -> None:
        """Raises ValueError when ``plan`` cannot be merged as the set ``name`` with those of the others."""
        parts = self.parts.items()
        others = {member: self._plan(part) for member, part in parts if member != name and member not in self.strict}
        if others:
            proposed = {**others, name: plan}
            merge(self._relooked({member: proposed[member] for member in self.members if member in proposed}))

    async def _merged(self, *, patient: bool = True) -> Loaded:
        """``patient``: False to compile here when no subprocess can."""
        merged = await asyncio.to_thread(self._merge)
        parts = {name: self.parts[name] for name in self.merging if name in self.parts}
        data = merged.plan.to_bytes()
        out = self._cache / f"merged-{hashlib.sha256(data).hexdigest()[:32]}.vplan"
        try:
            engine = await self._compiled(data, out, merged.plan.lookups)
        except OSError:
            if patient:
                raise
            engine = await asyncio.to_thread(lambda: Artifact.of(merged.plan).engine(merged.plan.lookups))
        await asyncio.to_thread(engine.prepare, self.first.inputs)
        self._out = out
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

    def _merge(self) -> Merged:
        """Raises ValueError. The sets go on with the lookups that they are merged with."""
        plans = self._relooked(
            {member: self._plan(self.parts[member]) for member in self.merging if member in self.parts}
        )
        merged = merge(plans)
        for name, plan in plans.items():
            self.parts[name] = self.parts[name]._replace(lookups=plan.lookups)
        return merged

    async def _compiled(self, data: bytes, out: Path, lookups: Mapping[str, Any]) -> Engine:
        """The plan in ``data`` with the databases in ``out``, which is made when it is not there. Raises OSError or
        ValueError."""

        def load() -> Engine:
            return Artifact.from_bytes(out.read_bytes()).engine(lookups)

        def known() -> Engine | None:
            try:
                engine = load()
                out.touch()
                return engine
            except (FileNotFoundError, ValueError):  # it is made again
                self._cache.mkdir(parents=True, exist_ok=True)
                source.write_bytes(data)
                return None

        source = self._cache / "merging.plan"
        if (engine := await asyncio.to_thread(known)) is not None:
            return engine
        ended = await compiler("vedette.rules.compile", str(source), str(out), sample=b"")
        if ended.code:
            raise OSError(f"the rule compiler ended with code {ended.code}: {ended.complaint or 'no reason'}")
        engine = await asyncio.to_thread(load)
        for old in sorted(self._cache.glob("merged-*.vplan"), key=lambda path: path.stat().st_mtime_ns)[:-KEEP]:
            old.unlink()
        return engine

    # --- what there is

    def status(self, loaded: Loaded, costs: Mapping[str, Mapping[str, Any]], dead: Dead) -> list[dict[str, Any]]:
        """JSON-able, a row a set; ``loaded``: what runs; ``costs``: of ``costs.py``; ``dead``: of a set by itself."""
        together, plan, rows = loaded.together, loaded.engine.plan, list[dict[str, Any]]()
        for name in self.members:
            part = self.parts[name] if name in self.strict else together.parts.get(name) if together else None
            own = self.parts[name].dead if name in self.parts else dead
            idle = own.reasons
            renamed = together.renamed.get(name, {}) if together else {}
            if name in self.strict:
                renamed = self.plans.renamed(name)
            rows.append(
                {
                    "name": name,
                    "isolation": "strict" if name in self.strict else "merged",
                    "origin": part.origin if part else loaded.origin,
                    "bundle": part.bundle if part else loaded.bundle,
                    "version": part.version if part else loaded.version,
                    "rules": part.counts["running"] if part else len(plan.detections),
                    "correlations": part.counts["correlations"] if part else len(plan.correlations),
                    "statements": part.counts["statements"] if part else len(plan.statements),
                    "error": self._error(name),
                    "dead": [*idle[:LISTED]],
                    "dead_count": len(idle),
                    "refused": own.refused,
                    "renamed": dict([*renamed.items()][:LISTED]),
                    "renamed_count": len(renamed),
                    **costs.get(name, {}),
                }
            )
        return rows


LISTED = 50
"""Names in a list of a status."""


def credit(ruleset: str, bundle: str | None) -> str | None:
    """What alerts of a set have as their ``bundle``."""
    return bundle if ruleset == DEFAULT_SET else f"{ruleset}/{bundle}" if bundle else ruleset
