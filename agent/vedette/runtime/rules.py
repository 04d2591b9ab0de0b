"""What is in one rule set: a directory of rule files, or the installed bundle; how it is replaced while the agent runs.

* **Directory** (``[rules] paths``): built in a subprocess (``python -m vedette.rules``) and kept in the
  cache under the digest of its sources, so that an unchanged directory loads at once. A set that cannot be built
  leaves the active one in place and gives the reason (``error``); at start the last one that could be built is taken.
* **Bundle** (otherwise): the current one of ``bundles/``, the one in ``[bundles] file``, and what the region publishes.
  ``bundle/trust.py`` decides, ``validate.py`` compiles and self-tests before the switch, first in an isolated
  subprocess.

* **Retuning** (either way): when many events are candidates, the prefilter's literals are chosen again by the newest
  traffic, in a subprocess (``retune_due``, ``retune``). What was chosen is kept in the cache: for a directory in the
  place of what was built, for a bundle under its digest, beside it.

Both give a ``Loaded``: an engine ready for use. Nothing here touches the pipeline; ``active.py`` switches it.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from vedette.bundle.install import BundleDir, read_bundle
from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import Bundle, Installed
from vedette.config.settings import Config, RulesetSettings
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.inputs.settings import InputSettings
from vedette.lookup.installed import delivered, links
from vedette.lookup.sets import chosen, engine_of, opened
from vedette.lookup.table import Lookup
from vedette.model.counters import Log
from vedette.model.event import LogSource
from vedette.plan.database import LIBRARY
from vedette.plan.plan import Plan
from vedette.rules.retune import NO_GAIN, same_meaning
from vedette.runtime.alerts import Credit
from vedette.runtime.compiled import Sources
from vedette.runtime.deadrules import Dead
from vedette.runtime.validate import dry_run, validate
from vedette.runtime.validate import loaded as of_bundle
from vedette.system import child

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
    lookups: Mapping[str, Any]
    counts: Mapping[str, int]
    """How many rules, correlations and statements it has."""
    dead: Dead
    origin: str
    bundle: str | None
    version: int | None
    sha256: str | None


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


_Signature = tuple[tuple[str, int, int], ...]


class Rules:
    """One rule set of the agent; one caller at a time."""

    def __init__(
        self, config: Config, sample: Callable[[], bytes], settings: RulesetSettings | None = None,
        fits: Callable[[Plan], None] = lambda plan: None,
    ) -> None:  # fmt: skip
        """``sample`` gives recent traffic (lines) for choosing literals. ``settings``: of ``config.rulesets``, None:
        the first. ``fits`` raises ValueError for a plan that does not go with the other rule sets. Raises ValueError
        for a bad trusted key."""
        settings = settings or config.rulesets[0]
        self.name = settings.name
        self._given = Sources(tuple(settings.paths), tuple(settings.pipelines), tuple(settings.lookups))
        self._lookups = config.agent.lookup_dir
        self._cache = config.agent.cache_dir(settings.name)
        self._functions = config.functions
        self._file = settings.file
        self._sample, self._fits = sample, fits
        self.bundles = BundleDir(
            config.agent.bundle_dir(settings.name),
            config.bundles.trusted_keys,
            fleet=config.agent.fleet,
            channel=settings.channel,
            careful=partial(dry_run, folder=self._lookups),
        )
        self.error: str | None = None
        """Why the last change was not taken; None after a success."""
        self._seen: _Signature | None = None
        """Of the files on which there is a verdict."""
        self._tried: tuple[_Signature | None, float] = None, 0.0
        """What ``changed`` said last, and when."""
        self._unfinished: Callable[[], tuple[Bundle, Engine] | None] | None = None
        """Takes a bundle that the disk did not; None: there is none."""
        self.inputs = _kinds(config.input)
        """What scans are prepared for."""
        self._out: Path | None = None
        """Where what runs was built, of a directory."""
        self._watched: tuple[Engine, float, int, int] | None = None
        """The engine last looked at, when, and its events and candidates then."""

    @property
    def directory(self) -> bool:
        """True when rules come from files here, so bundles are not used."""
        return bool(self._given.paths)

    @property
    def _sources(self) -> Sources:
        """With the lookups that are installed now, which come before others of the same name."""
        return self._given._replace(lookups=(*self._given.lookups, *links(self._lookups)))

    async def start(self) -> Loaded:
        """The rules to begin with. Raises ValueError or OSError when there are none that work."""
        return await self._ready(await self._start())

    async def _start(self) -> Loaded:
        if self.directory:
            try:
                return await self._build()
            except (ValueError, OSError) as error:
                self._refuse(str(error))
                last = await asyncio.to_thread(self._last)
                if last is None:
                    raise
                return Loaded(last, "the last rules that could be built", None)
        loaded = await asyncio.to_thread(self.bundles.load, self._validate)
        current = Installed(loaded[0].version, loaded[0].digest) if loaded else None
        loaded = await asyncio.to_thread(self._offer, current, loaded[0].sha256 if loaded else "") or loaded
        if loaded is None:
            return await asyncio.to_thread(self._none_yet)
        bundle, engine = loaded
        return _of_bundle(bundle, await asyncio.to_thread(self._as_chosen, bundle, engine))

    def _last(self) -> Engine | None:
        """The newest of what was built that loads and fits."""
        for path in sorted(self._built(), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            with suppress(ValueError):
                engine = self._load(path)
                self._fits(engine.plan)
                return engine
        return None

    def _none_yet(self) -> Loaded:
        return nothing(lookups=chosen(Plan((), (), ()), *delivered(self._lookups)))

    async def relooked(self, loaded: Loaded) -> Loaded | None:
        """The rules of ``loaded`` with the lookups that are installed now. Raises ValueError or OSError, with ``error``
        set."""
        if self.directory:
            return await self.reload()
        try:
            if loaded.sha256 is None:
                return await self._ready(await asyncio.to_thread(self._none_yet))
            bundle, engine = await asyncio.to_thread(self._relooked, loaded.sha256)
        except (ValueError, OSError) as error:
            self._refuse(str(error))
            raise
        return await self._ready(_of_bundle(bundle, engine))

    def _relooked(self, sha256: str) -> tuple[Bundle, Engine]:
        """The installed bundle of this digest, without its self-tests: nothing of it has changed."""
        for path in filter(None, (self.bundles.current(), self.bundles.previous())):
            data = read_bundle(path)
            if hashlib.sha256(data).hexdigest() == sha256:
                bundle = self.bundles.verified(data, sha256)
                return bundle, self._as_chosen(bundle, of_bundle(bundle, self._lookups)[0])
        raise OSError(f"{self.bundles.folder}: the bundle that runs is not there any more")

    async def _ready(self, loaded: Loaded) -> Loaded:
        """``loaded`` with scans for the agent's inputs."""
        await asyncio.to_thread(loaded.engine.prepare, self.inputs)
        return loaded

    async def adopt(self, inputs: Iterable[InputSettings], running: Engine) -> None:
        """Scans for these inputs from now on, also of the engine that runs."""
        self.inputs = _kinds(inputs)
        await asyncio.to_thread(running.prepare, self.inputs)

    def _offer(self, current: Installed | None, sha256: str = "") -> tuple[Bundle, Engine] | None:
        """Install ``[bundles] file``, unless it is the ``current`` bundle, an older one (an agent that a newer one was
        pushed to keeps that) or one that was rolled back. ``sha256``: of the bundle's file that is loaded, if one
        is."""
        if self._file is None:
            return None
        try:
            data = read_bundle(self._file)
            if sha256 and hashlib.sha256(data).hexdigest() == sha256:
                return None  # verifying the same bytes again would take 0.1 s for 3,000 rules
            bundle = self.bundles.verified(data)
            if bundle.version <= self.bundles.withdrawn() or (
                current is not None and (bundle.version < current.version or bundle.digest.startswith(current.digest))
            ):
                return None
            loaded = self._install(data, of_host=True)
        except (OSError, BundleRefused) as error:
            self._refuse(f"{self._file}: {error}")
            self._unfinished = partial(self._offer, current) if isinstance(error, OSError) else None
            return None
        self.error = self._unfinished = None
        return loaded

    def _install(self, data: bytes, *, of_host: bool = False, by_fleet: bool = False) -> tuple[Bundle, Engine]:
        return self.bundles.install(
            data, lambda bundle: (bundle, self._validate(bundle)), of_host=of_host, by_fleet=by_fleet
        )

    def _validate(self, bundle: Bundle) -> Engine:
        """Raises ValueError."""
        engine = validate(bundle, self._lookups)
        self._fits(engine.plan)
        return engine

    async def install(self, data: bytes, *, by_fleet: bool = False) -> Loaded:
        """Take a bundle that arrived, or that the fleet's documents name; raises BundleRefused or OSError, with the
        current one untouched."""
        try:
            loaded = await asyncio.to_thread(self._install, data, by_fleet=by_fleet)
        except (BundleRefused, OSError) as error:
            self._refuse(str(error))
            again = isinstance(error, OSError) and not by_fleet  # the fleet's side asks again by itself
            self._unfinished = partial(self._install, data) if again else None
            raise
        self.error = self._unfinished = None
        return await self._ready(_of_bundle(*loaded))

    async def rollback(self, version: int | None = None) -> Loaded | None:
        """The bundle before the current one, which is current from now on; raises ValueError or OSError, with the
        current one untouched. ``version``: the one to go back from; None when it was gone back from before."""
        if self.directory:
            raise ValueError("the rules come from folders ([rules] paths), not from bundles: change them there")
        if version is not None and await asyncio.to_thread(self.bundles.gone_back, version):
            return None
        bundle, engine = await asyncio.to_thread(self.bundles.rollback, self._validate)
        self.error = None
        return await self._ready(_of_bundle(bundle, await asyncio.to_thread(self._as_chosen, bundle, engine)))

    async def again(self) -> Loaded | None:
        """At the operator's word: the rule directory, built again, or a newer ``[bundles] file``; None when there is
        none.

        Raises ValueError or OSError as ``reload`` does.
        """
        if self.directory:
            return await self.reload(again=True)
        offered = await asyncio.to_thread(self._offer, self.bundles.installed())
        return None if offered is None else await self._ready(_of_bundle(*offered))

    def look_again(self) -> None:
        """Whatever the verdict on the rule directory was: the next ``changed`` says so."""
        self._seen, self._tried = None, (None, 0.0)

    def changed(self) -> bool:
        """True when ``reload`` is worth a try: a file of the rule directory came, went or changed since the last
        verdict on it, or a bundle could not be written.

        So what failed for another reason than the rules (a full disk, a killed child) is tried again, the same not more
        often than every AGAIN_SECONDS.
        """
        try:
            signature = self._signature() if self.directory else None
        except OSError:  # a folder went while it was listed: the next look tells
            return False
        if (signature == self._seen) if self.directory else (self._unfinished is None):
            return False
        if signature == self._tried[0] and time.monotonic() < self._tried[1] + AGAIN_SECONDS:
            return False
        self._tried = signature, time.monotonic()
        return True

    async def reload(self, *, again: bool = False) -> Loaded | None:
        """Build the rule directory as it is now; ``again``: even when the cache has it, with the newest sample. Of
        bundles the one that could not be written; None when it is not needed any more.

        Raises ValueError or OSError, with ``error`` set, when it cannot be built.
        """
        try:
            if self.directory:
                return await self._ready(await self._build(again=again))
            took = await asyncio.to_thread(self._finish)
            return None if took is None else await self._ready(_of_bundle(*took))
        except (ValueError, OSError) as error:
            if isinstance(error, OSError):
                self._seen = None  # no verdict on the rules: it is tried again
            self._refuse(str(error))
            raise

    def _finish(self) -> tuple[Bundle, Engine] | None:
        take, self._unfinished = self._unfinished, None
        try:
            took = None if take is None else take()
        except OSError:
            self._unfinished = take
            raise
        if took is not None:
            self.error = None
        return took

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
            sample = self._sample()
        except OSError as error:
            log.warning(Log.LITERALS_KEPT, reason=str(error), action="the literals stay as they are")
            return None
        if out is None:
            out = self._out if loaded.sha256 is None else self._chosen(loaded.sha256)
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

    def _chosen(self, sha256: str) -> Path:
        return self._cache / f"chosen-{sha256[:32]}.vplan"

    def _as_chosen(self, bundle: Bundle, engine: Engine) -> Engine:
        """The bundle's engine with the literals last chosen on this agent, if any; ``engine`` when there are none."""
        try:
            artifact = Artifact.from_bytes(self._chosen(bundle.sha256).read_bytes())
            chosen = artifact.engine(engine.plan.lookups) if artifact.library == LIBRARY else engine
        except (ValueError, OSError):
            return engine
        return chosen if same_meaning(chosen.plan, engine.plan) else engine

    def _refuse(self, reason: str) -> None:
        if reason != self.error:
            log.error(Log.RULES_REFUSED, ruleset=self.name, reason=reason, action="the active rules stay in place")
        self.error = reason

    def _signature(self) -> _Signature:
        files = []
        for path in self._sources.files():
            try:
                stat = path.stat()
                files.append((str(path), stat.st_mtime_ns, stat.st_size))
            except OSError:
                files.append((str(path), -1, -1))
        return tuple(files)

    def _built(self) -> list[Path]:
        return list(self._cache.glob("rules-*.vplan"))

    async def _build(self, *, again: bool = False) -> Loaded:
        seen = await asyncio.to_thread(self._signature)
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
        self.error = None
        for refusal in engine.plan.refused:
            log.warning(Log.RULE_UNSUPPORTED, file=f"{refusal.path}:{refusal.line}", reason=refusal.reason)
        return Loaded(engine, ", ".join(map(str, self._sources.paths)), None)

    def _load(self, path: Path) -> Engine:
        """Raises ValueError as the function does."""
        artifact, others = Artifact.from_bytes(path.read_bytes()), delivered(self._lookups)
        lookups = opened(self._given.lookups)
        if any(others):
            lookups = chosen(artifact.read_plan(), lookups, *others)
        return engine_of(artifact, lookups)

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


async def compiler(module: str, *arguments: str, sample: bytes) -> child.Ended:
    """Run a module of the rule compiler in a subprocess. Raises OSError when it takes too long."""
    ended = await child.run_async(module, *arguments, data=sample, seconds=BUILD_SECONDS, memory=BUILD_BYTES)
    if ended.code is None:
        raise OSError(f"the rule compiler took longer than {BUILD_SECONDS:.0f} s and was stopped")
    return ended


def _load(path: Path, lookups: Mapping[str, Any]) -> Engine:
    """Raises ValueError when the file is damaged or from another version, or asks a lookup that is not there."""
    return engine_of(Artifact.from_bytes(path.read_bytes()), lookups)


def nothing(origin: str = "no rules yet: waiting for a bundle", lookups: Mapping[str, Lookup] | None = None) -> Loaded:
    """No rules; ``lookups``: what alerts could be enriched by."""
    return Loaded(Engine(Plan((), (), ()).with_lookups(lookups or {})), origin, None)


def _of_bundle(bundle: Bundle, engine: Engine) -> Loaded:
    name = f"{bundle.manifest.name}-{bundle.version}"
    return Loaded(engine, f"bundle {name}", name, bundle.sha256)
