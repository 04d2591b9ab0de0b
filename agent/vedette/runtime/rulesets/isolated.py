"""The plans of rule sets in strict isolation, as files that their processes load.

A file holds the plan and its databases (``engine/artifact.py``), named by its digest. A rule keeps its id, unless a set
before (those that are merged, then the strict ones by the order of the configuration) has another rule under it: then
it is called ``ID@SET``, as where sets are merged, and the process compiles the databases itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from vedette.config.settings import Config
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.plan.database import LIBRARY
from vedette.plan.merge import apart
from vedette.plan.plan import AnyRule, Plan
from vedette.runtime.strict.supervisor import Isolated
from vedette.system.durable import write_whole


def _meant(rule: AnyRule) -> str:
    """A digest of meaning and texts, the same in every plan: alerts of one id do not differ."""
    texts = (rule.digest, rule.title, rule.level, rule.tags, getattr(rule, "fields", ()), rule.suppress)
    return hashlib.sha256(repr(texts).encode()).hexdigest()


class IsolatedPlans:
    """One caller at a time, in any thread."""

    def __init__(self, config: Config, names: Iterable[str]) -> None:
        strict = {ruleset.name for ruleset in config.rulesets if ruleset.strict}
        ordered = [*names]
        self._config = config
        self._before = {
            name: [other for other in ordered if other != name and (other not in strict or ordered.index(other) < at)]
            for at, name in enumerate(ordered)
            if name in strict
        }
        """By strict set those whose ids come first."""
        self._meant: dict[str, Mapping[str, str]] = {}
        """By set and id what the rule means and says."""
        self._databases: dict[str, Mapping[str, bytes]] = {}
        self._renamed: dict[str, dict[str, str]] = {}

    @staticmethod
    def fits(plan: Plan) -> None:
        """Raises ValueError when a process cannot do all that ``plan`` asks for."""
        for statement in plan.statements:
            if statement.sink:
                where = f"{statement.path}:{statement.line}"
                raise ValueError(f'{where}: rows for the sink {statement.sink} need isolation = "merged"')

    def keep(self, name: str, engine: Engine) -> None:
        """The set ``name`` has these rules now."""
        self._meant[name] = {rule.id: _meant(rule) for rule in engine.plan.written}
        if name in self._before:
            self._write(name, engine.plan, engine.databases())

    def renamed(self, name: str) -> dict[str, str]:
        """Ids of a strict set that are not as written: the written one and that in its plan."""
        return self._renamed.get(name, {})

    def of(self, name: str, plan: Plan, credit: str | None) -> Isolated:
        """What a strict set evaluates with; ``plan`` is its own, with the lookups that it may ask. Raises OSError or
        ValueError."""
        others = [self._meant.get(other, {}) for other in self._before[name]]
        own = self._meant[name]
        renamed = [id for id, digest in own.items() if any(digests.get(id, digest) != digest for digests in others)]
        self._renamed[name] = {id: f"{id}@{name}" for id in renamed}
        path = self._write(name, apart(name, plan, renamed), {}) if renamed else self._path(name, plan)
        if not path.exists():
            self._write(name, plan, {})
        lookups = {name: lookup.path for name, lookup in plan.lookups.items() if lookup.path is not None}
        versions = sorted(f"{name} {lookup.version}" for name, lookup in plan.lookups.items())
        digest = hashlib.sha256("\n".join([path.name, *versions]).encode()).hexdigest()
        return Isolated(path, digest, lookups, credit)

    def _path(self, name: str, plan: Plan) -> Path:
        digest = hashlib.sha256(plan.to_bytes()).hexdigest()[:32]
        return self._config.agent.cache_dir(name) / f"strict-{digest}.vplan"

    def _write(self, name: str, plan: Plan, databases: Mapping[str, bytes]) -> Path:
        path = self._path(name, plan)
        artifact = Artifact.without_databases(plan)._replace(databases=databases, library=LIBRARY)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, artifact.to_bytes())
        for old in path.parent.glob("strict-*.vplan"):
            if old != path:
                with suppress(OSError):
                    old.unlink()
        return path
