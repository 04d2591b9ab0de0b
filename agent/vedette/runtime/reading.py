"""How stored events are read outside of the agent: by the formats of its decoder plugins and of its rules, too.

Formats of rules are those in the folders that the configuration names, or else of the bundle in the data folder. An
event whose format is not there any more is read as ``auto`` reads it, as the agent would.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vedette.config.settings import Config
from vedette.decode.codecs import Codecs, with_declared
from vedette.decode.declared import Declared


def codecs_of(config: Config) -> Codecs:
    """Loads plugins; what cannot be loaded is logged. Raises OSError for rules or a bundle that cannot be read, and
    ValueError."""
    if config.plugins.allow:
        from vedette.runtime import decoders

        decoders.plug(config.plugins.allow)
    return with_declared(one.codec for one in {one.name: one for one in _declared(config)}.values())


def _declared(config: Config) -> Iterator[Declared]:
    for one in config.rulesets:
        if one.paths:
            from vedette.rules.formats import declared_at

            yield from declared_at(one.paths)
        else:
            yield from _of_bundle(config.agent.bundle_dir(one.name) / "current")


def _of_bundle(path: Path) -> Iterator[Declared]:
    """It was verified when it was installed."""
    from vedette.bundle.install import read_bundle
    from vedette.bundle.trust import inspect
    from vedette.lookup.sets import bundled

    if path.exists():
        yield from bundled(inspect(read_bundle(path))).read_plan().formats
