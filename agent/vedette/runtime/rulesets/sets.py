"""The agent's rule sets: each comes and goes by itself (``rules.py``), those that are not strict are merged into one.

One set alone is evaluated as it is; several are merged whenever one of them changes (``merged.py``). Of each its last
good version stays where its own next one does not fit: a set that cannot be merged with the others is refused as a
whole, with the reason.

Those in strict isolation are merged with none (``isolated``): each has a process of its own (``strict/``).

Nothing here touches the pipeline; ``active.py`` switches it. What reads bundles, merges plans and isolates sets is
imported when the configuration has a set that comes by bundles, several sets, a strict one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from vedette.config.settings import DEFAULT_SET, Config, RulesetSettings
from vedette.engine.match import Engine
from vedette.inputs.settings import InputSettings
from vedette.model.counters import Log
from vedette.plan.plan import Plan
from vedette.runtime.rulesets.deadrules import Dead, dead_of
from vedette.runtime.rulesets.rules import FolderRules, Loaded, Part, Rules, credit, nothing

if TYPE_CHECKING:
    from vedette.runtime.rulesets.isolated import IsolatedPlans
    from vedette.runtime.rulesets.merged import MergedPlans
    from vedette.runtime.strict.supervisor import Isolated

log = structlog.get_logger()


class RuleSets:
    """One caller at a time."""

    def __init__(self, config: Config, sample: Callable[[], bytes]) -> None:
        """``sample``: recent traffic. Raises ValueError for a bad trusted key."""
        self._config = config
        self.strict = {settings.name: settings for settings in config.rulesets if settings.strict}
        """Settings of those in strict isolation."""
        self.members = {
            settings.name: rules_of(config, sample, settings, partial(self._fits, settings.name))
            for settings in config.rulesets
        }
        """By name, in the order of the configuration."""
        self.merging = [name for name in self.members if name not in self.strict]
        self.parts: dict[str, Part] = {}
        """Of the members that have loaded, where there are several; what runs may still be what was before."""
        self._isolated = self._isolating() if self.strict else None
        self._several = self._merger() if len(self.members) > 1 else None
        self.unmerged = False
        """Whether what is loaded could not be compiled, so that what ran before still runs."""
        self._not_isolated: dict[str, str] = {}
        """Why what a strict set has loaded does not run in its process, by name."""

    def _isolating(self) -> IsolatedPlans:
        from vedette.runtime.rulesets.isolated import IsolatedPlans

        return IsolatedPlans(self._config, self.members)

    def _merger(self) -> MergedPlans:
        from vedette.runtime.rulesets.merged import MergedPlans

        return MergedPlans(self._config, self.parts, self.merging)

    @property
    def _merged_plans(self) -> MergedPlans:
        assert self._several is not None  # there are several sets
        return self._several

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
        return rules.refusal or self._not_isolated.get(name)

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
            if self._several is not None:
                await asyncio.to_thread(self._keep, name, loaded[name])
            if name in self.strict:
                del loaded[name]
        if len(loaded) == 1:
            return loaded[DEFAULT_SET]
        return await self._merged_plans.merged(self.first.inputs, patient=False)

    async def take(self, name: str, loaded: Loaded) -> Loaded | None:
        """What is to be evaluated now that the set ``name`` has ``loaded``; None: what was before, the set is strict.
        Raises ValueError or OSError when it could not be compiled."""
        if self._several is not None:
            await asyncio.to_thread(self._keep, name, loaded)
        if name in self.strict:
            return None
        return loaded if len(self.merging) == 1 else await self.again()

    async def isolated(self) -> dict[str, Isolated]:
        """What each strict set evaluates with, by name. One for which that cannot be made is left out, with the
        reason as its error: its process goes on as it is."""

        if (plans := self._isolated) is None:
            return {}

        def each() -> dict[str, Isolated]:
            processes: dict[str, Isolated] = {}
            failed: dict[str, str] = {}
            for name in self.strict:
                try:
                    plan = self._merged_plans.relooked({name: self.parts[name].read_plan()})[name]
                    processes[name] = plans.of(name, plan, credit(name, self.parts[name].bundle))
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
            merged = await self._merged_plans.merged(self.first.inputs)
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
            dead = partial(dead_of, inputs, part.read_plan(), functions=self._config.functions.allow)
            self.parts[name] = part._replace(dead=await asyncio.to_thread(dead))

    async def retune(self, loaded: Loaded) -> Loaded | None:
        """See ``Rules.retune``."""
        return await self.first.retune(loaded, self._merged_plans.out if loaded.together else None)

    def _keep(self, name: str, loaded: Loaded) -> None:
        plan = loaded.engine.plan
        counts = {"running": len(plan.detections), "correlations": len(plan.correlations),
                  "statements": len(plan.statements), "always_candidates": len(plan.always)}  # fmt: skip
        dead = dead_of(self._config.input, plan, functions=self._config.functions.allow)
        self.parts[name] = Part(
            plan.to_bytes(), plan.lookups, counts, dead, loaded.origin, loaded.bundle, loaded.version, loaded.sha256
        )
        if self._isolated is not None:
            self._isolated.keep(name, loaded.engine)

    def _fits(self, name: str, plan: Plan) -> None:
        """Raises ValueError when ``plan`` cannot be merged as the set ``name`` with the others, or isolated."""
        if name in self.strict and self._isolated is not None:
            self._isolated.fits(plan)
        elif self._several is not None:
            self._several.fits(name, plan)

    # --- what there is

    def renamed(self, name: str) -> Mapping[str, str]:
        """By id in the plan of a strict set the id as written, of rules that are called otherwise there."""
        return {} if self._isolated is None else self._isolated.renamed(name)

    def status(self, loaded: Loaded, costs: Mapping[str, Mapping[str, Any]], dead: Dead) -> list[dict[str, Any]]:
        """JSON-able, a row a set; ``loaded``: what runs; ``costs``: of ``agent/status.py``; ``dead``: of a set by
        itself."""
        together, plan, rows = loaded.together, loaded.engine.plan, list[dict[str, Any]]()
        for name in self.members:
            part = self.parts[name] if name in self.strict else together.parts.get(name) if together else None
            own = self.parts[name].dead if name in self.parts else dead
            idle = own.reasons
            renamed = together.renamed.get(name, {}) if together else {}
            if name in self.strict:
                renamed = self.renamed(name)
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


def rules_of(
    config: Config, sample: Callable[[], bytes], settings: RulesetSettings,
    fits: Callable[[Plan], None] = lambda plan: None,
) -> Rules:  # fmt: skip
    """Open the rule set of ``settings``; arguments are those of ``Rules``. Raises ValueError for a bad trusted key."""
    if settings.paths:
        return FolderRules(config, sample, settings, fits)
    from vedette.runtime.rulesets.bundled import BundledRules

    return BundledRules(config, sample, settings, fits)


LISTED = 50
"""Names in a list of a status."""
