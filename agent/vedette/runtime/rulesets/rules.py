"""What is in one rule set: rule files of a folder, or the installed bundle (``bundled.py``), and how it is replaced
while the agent runs.

* **Folder** (``[rules] paths``): built in a subprocess (``python -m vedette.rules``) and kept in the
  cache under the digest of its sources, so that an unchanged folder loads at once. A set that cannot be built
  leaves the active one in place and gives the reason (``error``); at start the last one that could be built is taken.
* **Retuning** (of either): when many events are candidates, the prefilter's literals are chosen again by the newest
  traffic, in a subprocess (``retune_due``, ``retune``). What was chosen is kept in the cache: for a folder in the
  place of what was built, for a bundle under its digest, beside it. Its module is imported when that is due.

Each gives a ``Loaded``: an engine ready for use. Nothing here touches the pipeline; ``active.py`` switches it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import structlog

from vedette.config.settings import DEFAULT_SET, Config, RulesetSettings
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.inputs.settings import InputSettings
from vedette.lookup.names import SUFFIX
from vedette.lookup.sets import chosen, copied, delivered, engine_of, links, opened
from vedette.model.counters import Log
from vedette.model.event import LogSource
from vedette.plan.plan import Plan
from vedette.runtime.alerts.alerts import Credit
from vedette.runtime.rulesets.compiled import Sources
from vedette.runtime.rulesets.deadrules import Dead
from vedette.system import child
from vedette.system.durable import stamp

if TYPE_CHECKING:
    from vedette.lookup.table import Lookup

log = structlog.get_logger()

BUILD_SECONDS = 600.0
BUILD_BYTES = 4 << 30
"""Bounds of the rule compiler's process: time, and address space (thousands of rules take about 300 MiB)."""

MIN_SAMPLE = 64 << 10
"""Bytes of traffic from which literals are chosen by it, not guessed."""

AGAIN_SECONDS = 10.0
"""Between two tries for the same rules: a build takes seconds of a core."""
KEEP = 3
"""Built rule sets kept in the cache."""

RETUNE_SECONDS = 3600.0
"""Between two checks whether the prefilter should be retuned."""
RETUNE_EVENTS = 10_000
"""Events evaluated since the last check, for it to mean something."""
RETUNE_SHARE = 0.05
"""Share of candidates among them above which it is retuned."""


class Loaded(NamedTuple):
    engine: Engine
    origin: str
    bundle: str | None
    sha256: str | None = None
    """Of the bundle's file."""
    together: Together | None = None
    """Of what ``engine`` was merged; None: it is of one rule set."""

    @property
    def version(self) -> int | None:
        return None if self.bundle is None else int(self.bundle.rpartition("-")[2])

    @property
    def credit(self) -> Credit:
        return self.bundle if self.together is None else self.together.credits


class Part(NamedTuple):
    """What one set brings to a plan that is merged of several."""

    plan: bytes
    """A tenth of what it takes as objects."""
    lookups: Mapping[str, Any]
    counts: Mapping[str, int]
    """How many rules, correlations and statements it has."""
    dead: Dead
    origin: str
    bundle: str | None
    version: int | None
    sha256: str | None

    def read_plan(self) -> Plan:
        """Return its plan as objects, with the lookups that it was loaded with."""
        return Plan.from_bytes(self.plan).with_lookups(self.lookups)


class Together(NamedTuple):
    """Several rule sets as one: the ``parts`` by set; ``sets``, ``renamed``: see ``plan.merge.Merged``; ``credits``: by
    the id of a rule what its alerts have as their ``bundle``."""

    parts: Mapping[str, Part]
    sets: Mapping[str, tuple[str, ...]]
    renamed: Mapping[str, Mapping[str, str]]
    credits: Mapping[str, str]


def _kinds(inputs: Iterable[InputSettings]) -> tuple[tuple[str, LogSource], ...]:
    """Codec and log source of each: what rules can meet there follows from these."""
    return tuple(dict.fromkeys((item.codec, item.logsource) for item in inputs))


_Signature = tuple[tuple[Path, tuple[int, int, int] | None], ...]


class Rules(ABC):
    """One rule set of the agent; one caller at a time."""

    folder: ClassVar[bool]
    """Whether rules come from files here, so that bundles are not used."""

    def __init__(
        self, config: Config, sample: Callable[[], bytes], settings: RulesetSettings,
        fits: Callable[[Plan], None] = lambda plan: None,
    ) -> None:  # fmt: skip
        """``sample`` gives recent traffic (lines) for choosing literals. ``settings``: of ``config.rulesets``. ``fits``
        raises ValueError for a plan that does not go with the other rule sets."""
        self.name = settings.name
        self._lookups = config.agent.lookup_dir
        self._cache = config.agent.cache_dir(settings.name)
        self._sample, self._fits = sample, fits
        self.error: str | None = None
        """Why the last change was not taken; None after a success."""
        self._tried: tuple[_Signature | None, float] = None, 0.0
        """What ``changed`` said last, and when."""
        self.inputs = _kinds(config.input)
        """What scans are prepared for."""
        self._watched: tuple[Engine, float, int, int] | None = None
        """The engine last looked at, when, and its events and candidates then."""

    @property
    def refusal(self) -> str | None:
        """Why what came last is not what runs."""
        return self.error

    # --- what it has

    async def start(self) -> Loaded:
        """The rules to begin with. Raises ValueError or OSError when there are none that work."""
        return await self._ready(await self._start())

    @abstractmethod
    async def _start(self) -> Loaded: ...

    @abstractmethod
    async def relooked(self, loaded: Loaded) -> Loaded | None:
        """The rules of ``loaded`` with the lookups that are installed now. Raises ValueError or OSError, with ``error``
        set."""

    @abstractmethod
    def changed(self) -> bool:
        """True when ``reload`` is worth a try. What failed for another reason than the rules (a full disk, a killed
        child) is tried again, the same not more often than every AGAIN_SECONDS."""

    @abstractmethod
    async def reload(self) -> Loaded | None:
        """What has changed, as it is now; None when nothing is to be replaced. Raises ValueError or OSError, with
        ``error`` set."""

    @abstractmethod
    async def again(self) -> Loaded | None:
        """At the operator's word: what there is, once more; None when that is nothing newer. Raises as ``reload``."""

    @abstractmethod
    async def install(self, data: bytes, *, by_fleet: bool = False) -> Loaded:
        """Take a bundle that arrived, or that the fleet's documents name; raises ValueError or OSError, with the
        current one untouched."""

    @abstractmethod
    async def rollback(self, version: int | None = None) -> Loaded | None:
        """The bundle before the current one, which is current from now on; raises ValueError or OSError, with the
        current one untouched. ``version``: the one to go back from; None when it was gone back from before."""

    @abstractmethod
    def withdrawn(self) -> int:
        """The highest version that was rolled back from; 0: none was."""

    async def _ready(self, loaded: Loaded) -> Loaded:
        """``loaded`` with scans for the agent's inputs."""
        await asyncio.to_thread(loaded.engine.prepare, self.inputs)
        return loaded

    async def adopt(self, inputs: Iterable[InputSettings], running: Engine) -> None:
        """Scans for these inputs from now on, also of the engine that runs."""
        self.inputs = _kinds(inputs)
        await asyncio.to_thread(running.prepare, self.inputs)

    def look_again(self) -> None:
        """Have the next ``changed`` look anew, whatever the last look said."""
        self._tried = None, 0.0

    def _due(self, signature: _Signature | None) -> bool:
        """Whether ``signature``, on which there is no verdict, was not tried just now."""
        if signature == self._tried[0] and time.monotonic() < self._tried[1] + AGAIN_SECONDS:
            return False
        self._tried = signature, time.monotonic()
        return True

    # --- its literals

    def retune_due(self, engine: Engine, now: float) -> bool:
        """Whether so many events were candidates of late that ``retune`` is worth a try; ``now``: monotonic seconds."""
        events, candidates = engine.tally.events, engine.tally.candidates
        watched, self._watched = self._watched, (engine, now, events, candidates)
        if watched is None or watched[0] is not engine:
            return False
        _, since, before, candidates_before = watched
        if now - since < RETUNE_SECONDS or events - before < RETUNE_EVENTS:
            self._watched = watched
            return False
        return candidates - candidates_before > RETUNE_SHARE * (events - before)

    async def retune(self, loaded: Loaded, out: Path | None = None) -> Loaded | None:
        """``loaded`` with literals chosen by the newest traffic; None when that would not save half of the work.
        ``out``: where that is kept, if it is not this set's alone.

        Failures are logged; the active ruleset stays in place.
        """
        plan = loaded.engine.plan
        try:
            from vedette.rules.retune import NO_GAIN, same_meaning

            sample = self._sample()
        except OSError as error:
            log.warning(Log.LITERALS_KEPT, reason=str(error), action="the literals stay as they are")
            return None
        if out is None:
            out = self._place(loaded)
        if len(sample) < MIN_SAMPLE or out is None or not plan.rules:
            return None
        source = self._cache / "running.plan"
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
            running = Artifact.without_databases(plan)
            if loaded.sha256 is not None:  # the bundle has the lookups
                running = running._replace(lookups={})
            await asyncio.to_thread(source.write_bytes, running.to_bytes())
            ended = await compiler("vedette.rules.retune", str(source), str(out), sample=sample)
            if ended.code == NO_GAIN:
                return None
            if ended.code != 0:
                raise OSError(ended.complaint)
            engine = await asyncio.to_thread(_load, out, loaded.engine.plan.lookups)
            if not same_meaning(engine.plan, plan):
                raise ValueError(f"{out} is not the plan that runs")
            for old in self._cache.glob("chosen-*.vplan"):
                if old != out:
                    old.unlink()
        except (ValueError, OSError) as error:
            log.warning(Log.LITERALS_KEPT, reason=str(error), action="the literals stay as they are")
            return None
        return await self._ready(loaded._replace(engine=engine))

    @abstractmethod
    def _place(self, loaded: Loaded) -> Path | None:
        """Where literals that are chosen for ``loaded`` are kept."""

    def _refuse(self, reason: str) -> None:
        if reason != self.error:
            log.error(Log.RULES_REFUSED, ruleset=self.name, reason=reason, action="the active rules stay in place")
        self.error = reason


class FolderRules(Rules):
    """Those of ``[rules] paths``."""

    folder = True

    def __init__(
        self, config: Config, sample: Callable[[], bytes], settings: RulesetSettings,
        fits: Callable[[Plan], None] = lambda plan: None,
    ) -> None:  # fmt: skip
        super().__init__(config, sample, settings, fits)
        self._own = Sources(tuple(settings.paths), tuple(settings.pipelines), tuple(settings.lookups))
        self._copies = self._cache / "lookups"
        """Where the lookups of ``_own`` are mapped: their owner may write over them at any time."""
        self._functions = config.functions
        self._seen: _Signature | None = None
        """Of the files on which there is a verdict."""
        self._out: Path | None = None
        """Where what runs was built."""

    @property
    def _sources(self) -> Sources:
        """What is built: with copies of the own lookups, and with those that are installed now before both."""
        lookups = {path.name: path for path in (*sorted(self._copies.glob(f"*{SUFFIX}")), *links(self._lookups))}
        own = (path for path in self._own.lookups if path.name not in lookups)
        return self._own._replace(lookups=(*lookups.values(), *own))

    async def _start(self) -> Loaded:
        try:
            return await self._build(first=True)
        except (ValueError, OSError) as error:
            self._refuse(str(error))
            last = await asyncio.to_thread(self._last)
            if last is None:
                raise
            return Loaded(last, "the last rules that could be built", None)

    def _last(self) -> Engine | None:
        """The newest of what was built that loads and fits."""
        for path in sorted(self._built(), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            with suppress(ValueError):
                engine = self._load(path)
                self._fits(engine.plan)
                return engine
        return None

    async def relooked(self, loaded: Loaded) -> Loaded | None:
        return await self.reload()

    def look_again(self) -> None:
        super().look_again()
        self._seen = None

    def changed(self) -> bool:
        """Also when a file of the folder came, went or changed since the last verdict on it."""
        try:
            signature = self._signature()
        except OSError:  # a folder went while it was listed: the next look tells
            return False
        return signature != self._seen and self._due(signature)

    async def reload(self, *, again: bool = False) -> Loaded | None:
        """Build the folder as it is now; ``again``: even when the cache has it, with the newest sample."""
        try:
            return await self._ready(await self._build(again=again))
        except (ValueError, OSError) as error:
            if isinstance(error, OSError):
                self._seen = None  # no verdict on the rules: it is tried again
            self._refuse(str(error))
            raise

    async def again(self) -> Loaded | None:
        return await self.reload(again=True)

    async def install(self, data: bytes, *, by_fleet: bool = False) -> Loaded:
        raise ValueError(_NO_BUNDLES)

    async def rollback(self, version: int | None = None) -> Loaded | None:
        raise ValueError(_NO_BUNDLES)

    def withdrawn(self) -> int:
        return 0

    def _place(self, loaded: Loaded) -> Path | None:
        return self._out

    def _signature(self) -> _Signature:
        return tuple((path, stamp(path)) for path in (*self._own.files(), *links(self._lookups)))

    def _built(self) -> list[Path]:
        return list(self._cache.glob("rules-*.vplan"))

    async def _build(self, *, again: bool = False, first: bool = False) -> Loaded:
        """``first``: nothing runs yet: a lookup for whose copy there is no room keeps no other rules from running."""
        seen: _Signature | None = await asyncio.to_thread(self._signature)
        try:
            refused = await asyncio.to_thread(copied, self._own.lookups, self._copies)
        except OSError as error:
            if not first:
                raise
            seen, refused = None, {self._copies: str(error)}
        try:
            digest = await asyncio.to_thread(self._sources.digest, *(["functions"] if self._functions.allow else []))
        except OSError as error:
            raise OSError(f"a rule file cannot be read: {error}") from error
        self._cache.mkdir(parents=True, exist_ok=True)
        # A set whose literals were chosen without a sample gives way as soon as there is one.
        sample = self._sample()
        out = self._cache / f"rules-{digest}-{'sampled' if len(sample) >= MIN_SAMPLE else 'guessed'}.vplan"
        engine: Engine | None = None
        if out.exists() and not again:
            try:
                engine = await asyncio.to_thread(self._load, out)
                out.touch()
            except ValueError:
                out.unlink()
        if engine is None:
            try:
                await self._compile(out, sample)
            except ValueError:
                self._seen = seen
                raise
            engine = await asyncio.to_thread(self._load, out)
        try:
            await asyncio.to_thread(self._fits, engine.plan)
        except ValueError:
            self._seen = seen
            raise
        self._seen, self._out = seen, out.with_name(f"rules-{digest}-sampled.vplan")
        for old in sorted(self._built(), key=lambda path: path.stat().st_mtime_ns)[:-KEEP]:
            old.unlink()
        for file, reason in refused.items():
            if reason not in (self.error or ""):
                log.error(Log.LOOKUP_REFUSED, path=str(file), reason=reason, action="a version before stays in use")
        self.error = "; ".join(f"{file}: {reason}; a version before stays" for file, reason in refused.items()) or None
        for refusal in engine.plan.refused:
            log.warning(Log.RULE_UNSUPPORTED, file=f"{refusal.path}:{refusal.line}", reason=refusal.reason)
        return Loaded(engine, ", ".join(map(str, self._sources.paths)), None)

    def _load(self, path: Path) -> Engine:
        """Raises ValueError as the function does."""
        artifact, others = Artifact.from_bytes(path.read_bytes()), delivered(self._lookups)
        lookups = opened([self._copies])
        if any(others):
            lookups = chosen(artifact.read_plan(), lookups, *others)
        engine = engine_of(artifact, lookups)
        imported(engine.plan)
        return engine

    async def _compile(self, out: Path, sample: bytes) -> None:
        """Build in a child process; raises ValueError with its verdict on the rules, OSError when it came to none."""
        if importlib.util.find_spec("sigma") is None:
            raise ValueError("rules.paths needs the rule compiler, pip install 'vedette[rules]'; or run a bundle")
        ended = await compiler(
            "vedette.rules",
            str(out),
            *map(str, self._sources.paths),
            *(f"--pipeline={path}" for path in self._sources.pipelines),
            *(f"--lookup={path}" for path in self._sources.lookups),
            *([f"--functions={self._functions.max_memory}"] if self._functions.allow else []),
            sample=sample,
        )
        if ended.code == 2:
            raise ValueError(ended.complaint or "the rule compiler refused the rules and gave no reason")
        if ended.code == -signal.SIGKILL:
            raise OSError("the rule compiler was killed by signal 9: for want of memory?")
        if ended.code != 0:
            raise OSError(f"the rule compiler ended with code {ended.code}: {ended.complaint or 'no reason'}")


_NO_BUNDLES = "the rules come from folders ([rules] paths), not from bundles: change them there"


async def compiler(module: str, *arguments: str, sample: bytes) -> child.Ended:
    """Run a module of the rule compiler in a subprocess. Raises OSError when it takes too long."""
    ended = await child.run_async(module, *arguments, data=sample, seconds=BUILD_SECONDS, memory=BUILD_BYTES)
    if ended.code is None:
        raise OSError(f"the rule compiler took longer than {BUILD_SECONDS:.0f} s and was stopped")
    return ended


def imported(plan: Plan) -> None:
    """Import what evaluates ``plan``, in the thread that loads it: a switch of plans then neither waits for it nor
    fails."""
    if plan.correlations:
        import vedette.state.correlate
    if plan.statements:
        import vedette.runtime.alerts.rows
        import vedette.stream.statements  # noqa: F401  # to have them loaded


def _load(path: Path, lookups: Mapping[str, Any]) -> Engine:
    """Raises ValueError when the file is damaged or from another version, or asks a lookup that is not there."""
    return engine_of(Artifact.from_bytes(path.read_bytes()), lookups)


def credit(ruleset: str, bundle: str | None) -> str | None:
    """What alerts of a set have as their ``bundle``."""
    return bundle if ruleset == DEFAULT_SET else f"{ruleset}/{bundle}" if bundle else ruleset


def nothing(origin: str = "no rules yet: waiting for a bundle", lookups: Mapping[str, Lookup] | None = None) -> Loaded:
    """No rules; ``lookups``: what alerts could be enriched by."""
    return Loaded(Engine(Plan((), (), ()).with_lookups(lookups or {})), origin, None)
