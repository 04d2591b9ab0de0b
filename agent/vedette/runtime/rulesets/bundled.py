"""A rule set that comes by bundles: the current one of ``bundles/``, the one in ``[bundles] file``, and what the region
publishes.

``bundle/trust.py`` decides, ``validate.py`` compiles and self-tests before the switch, first in an isolated subprocess.
A bundle that the disk did not take is tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vedette.bundle.install import BundleDir, read_bundle
from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import Bundle, Installed
from vedette.config.settings import Config, RulesetSettings
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.lookup.sets import chosen, delivered
from vedette.plan.database import LIBRARY
from vedette.plan.plan import Plan
from vedette.rules.retune import same_meaning
from vedette.runtime.rulesets.rules import Loaded, Rules, imported, nothing
from vedette.runtime.rulesets.validate import dry_run, validate
from vedette.runtime.rulesets.validate import loaded as of_bundle


class BundledRules(Rules):
    """See the module's text."""

    folder = False

    def __init__(
        self, config: Config, sample: Callable[[], bytes], settings: RulesetSettings,
        fits: Callable[[Plan], None] = lambda plan: None,
    ) -> None:  # fmt: skip
        """Raises ValueError for a bad trusted key."""
        super().__init__(config, sample, settings, fits)
        self._file = settings.file
        self.bundles = BundleDir(
            config.agent.bundle_dir(settings.name),
            config.bundles.trusted_keys,
            fleet=config.agent.fleet,
            channel=settings.channel,
            careful=partial(dry_run, folder=self._lookups),
        )
        self._unfinished: Callable[[], tuple[Bundle, Engine] | None] | None = None
        """Takes a bundle that the disk did not; None: there is none."""

    @property
    def refusal(self) -> str | None:
        return self.error or self.bundles.refused

    async def _start(self) -> Loaded:
        loaded = await asyncio.to_thread(self.bundles.load, self._validate)
        current = Installed(loaded[0].version, loaded[0].digest) if loaded else None
        loaded = await asyncio.to_thread(self._offer, current, loaded[0].sha256 if loaded else "") or loaded
        if loaded is None:
            return await asyncio.to_thread(self._none_yet)
        bundle, engine = loaded
        return _of_bundle(bundle, await asyncio.to_thread(self._as_chosen, bundle, engine))

    def _none_yet(self) -> Loaded:
        return nothing(lookups=chosen(Plan((), (), ()), *delivered(self._lookups)))

    async def relooked(self, loaded: Loaded) -> Loaded | None:
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
        imported(engine.plan)
        return engine

    async def install(self, data: bytes, *, by_fleet: bool = False) -> Loaded:
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
        if version is not None and await asyncio.to_thread(self.bundles.gone_back, version):
            return None
        bundle, engine = await asyncio.to_thread(self.bundles.rollback, self._validate)
        self.error = None
        return await self._ready(_of_bundle(bundle, await asyncio.to_thread(self._as_chosen, bundle, engine)))

    def withdrawn(self) -> int:
        return self.bundles.withdrawn()

    async def again(self) -> Loaded | None:
        """A newer ``[bundles] file``."""
        offered = await asyncio.to_thread(self._offer, self.bundles.installed())
        return None if offered is None else await self._ready(_of_bundle(*offered))

    def changed(self) -> bool:
        """Also when a bundle could not be written."""
        return self._unfinished is not None and self._due(None)

    async def reload(self) -> Loaded | None:
        """The bundle that could not be written; None when it is not needed any more."""
        try:
            took = await asyncio.to_thread(self._finish)
            return None if took is None else await self._ready(_of_bundle(*took))
        except (ValueError, OSError) as error:
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

    def _place(self, loaded: Loaded) -> Path | None:
        return None if loaded.sha256 is None else self._chosen(loaded.sha256)

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


def _of_bundle(bundle: Bundle, engine: Engine) -> Loaded:
    name = f"{bundle.manifest.name}-{bundle.version}"
    return Loaded(engine, f"bundle {name}", name, bundle.sha256)
