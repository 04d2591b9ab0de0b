"""Parts of the agent that its configuration asks for. Each is imported by the function that opens it, so that an agent
without it neither loads nor runs any of it; None says that the configuration does not ask for the part.

Opened elsewhere, each in one place, too: inputs (``inputs/opening.py``), sinks (``options/sinks.py``), uplinks
(``delivery/uplinks.py``), statements (``stream/opening.py``), functions (``pipeline/pipeline.py``), lookups that rules
ask (``lookup/sets.py``), rule sets (``rulesets/sets.py``, ``strict/sets.py``), what an alert goes through
(``alerts/alerts.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vedette.config.read import load
from vedette.config.settings import Config
from vedette.rawlog.machine import copied
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.lives import UnderWay
from vedette.runtime.rulesets.active import ActiveRules

if TYPE_CHECKING:
    from vedette.archive.index import Index
    from vedette.delivery.uplink import MqttUplink
    from vedette.runtime.agent.exporter import Exporter
    from vedette.runtime.member.membership import Membership
    from vedette.runtime.options.archiving import Archiving
    from vedette.runtime.options.response import Response
    from vedette.runtime.pipeline.checkpointer import Checkpointer
    from vedette.runtime.rulesets.arrivals import Arrivals
    from vedette.runtime.rulesets.lookups import Lookups
    from vedette.sinks.base import SinkSettings


def configuration(path: Path, *, starting: bool = False) -> Config:
    """Return the configuration in the file ``path``; with ``[fleet] root`` under the overlay of its fleet.

    ``starting``: see ``fleet.overlay.load``. Raises ConfigError for the local file alone."""
    local = load(path)
    if local.fleet.root is None:
        return local
    from vedette.fleet import overlay

    return overlay.load(path, starting=starting)


async def settled(config: Config, stop: asyncio.Event) -> bool:
    """Whether the data folder is this machine's: a copy of another's is brought to its end before (``copied.py``); not,
    when ``stop`` was set before. Raises OSError."""
    if not (reason := copied(config.agent.raw_dir)):
        return True
    from vedette.runtime.agent.copied import settle

    return await settle(config, reason, stop)


def plugin_status(config: Config) -> list[dict[str, Any]]:
    """Return the account of each plugin in use, with ``[plugins] allow``."""
    if not config.plugins.allow:
        return []
    from vedette.system import plugins

    return plugins.status()


def adopt_decoders(config: Config, under_way: UnderWay) -> None:
    """Plug in the decoders of ``[plugins]``; before rules are loaded."""
    if config.plugins.allow:
        from vedette.runtime.options import decoders

        decoders.adopt(config, decoders.Calls(under_way.box, under_way.forbidden, careful=under_way.careful))


def archived(config: Config) -> Index | None:
    """Return what is archived, with ``[archive] url``. Raises OSError."""
    if not config.archive.url:
        return None
    from vedette.archive.index import own

    return own(config.agent.archive_dir, config.archive, config.agent.id)


def archiving(context: RunContext, index: Index | None) -> Archiving | None:
    """Return what archives, started."""
    if index is None:
        return None
    from vedette.runtime.options.archiving import Archiving

    part = Archiving(context.config, context.raw_log, index, context.clock.trusted)
    part.start()
    return part


def lookups(
    context: RunContext, active: ActiveRules, replaced: Callable[[], None], uplink: MqttUplink | None
) -> Lookups | None:
    """Return what follows lookups that come by themselves: where a folder is named, a key is trusted, the fleet may
    name some, or some are installed. ``replaced``: see ``Lookups``."""
    config = context.config
    asked = config.lookups.folder or config.bundles.trusted_keys or config.fleet.root
    if not (asked or config.agent.lookup_dir.is_dir()):
        return None
    from vedette.runtime.rulesets.lookups import Lookups

    part = Lookups(config, active, context.counters, replaced)
    if uplink is not None:
        part.attach(uplink)
    return part


def arrivals(
    config: Config, active: ActiveRules, uplink: MqttUplink | None, governed: Callable[[str], bool]
) -> list[Arrivals]:
    """Return the subscriptions to bundles, of the rule sets that come by bundles, where a key is trusted. ``governed``:
    whether the fleet's documents say which bundle a rule set runs."""
    named = [ruleset for ruleset in config.rulesets if not ruleset.paths]
    if uplink is None or not config.bundles.trusted_keys or not named:
        return []
    from vedette.runtime.rulesets.arrivals import Arrivals

    parts = [Arrivals(config, ruleset, active, uplink, partial(governed, ruleset.name)) for ruleset in named]
    for part in parts:
        part.subscribe()
    return parts


def membership(config: Config, uplink: MqttUplink | None, hangup: Callable[[], None]) -> Membership | None:
    """Return what enrols this host and renews its certificate, with ``[enrolment] token_file``; without an ``uplink``
    to the region nobody enrols, and a member renews its certificate by files."""
    if config.enrolment.token_file is None:
        return None
    if uplink is None and not (config.agent.identity_dir / "agent.pem").exists():
        return None
    from vedette.runtime.member.membership import Membership  # cryptography's certificates: 1.5 MiB

    return Membership(config, hangup)


def response(
    context: RunContext, checkpointer: Checkpointer, opened: Callable[[Response], None]
) -> tuple[SinkSettings, ...]:
    """Return the sink that takes alerts to the firewall, with ``[response] enabled``; ``opened`` is given its part."""
    if not context.config.response.enabled:
        return ()
    from vedette.runtime.options.response import Response, ResponseSink, sink_of

    def started(sink: ResponseSink) -> Response:
        part = Response(sink, context, checkpointer)
        opened(part)
        return part

    return (sink_of(context.config, started),)


async def exporter(config: Config, status: Callable[[], Awaitable[Mapping[str, Any]]]) -> Exporter | None:
    """Return what serves /metrics, with ``[metrics] listen``. Raises OSError when the address is unavailable."""
    if not config.metrics.listen:
        return None
    from vedette.runtime.agent.exporter import Exporter

    part = Exporter(config.metrics.listen, status)
    await part.start()
    return part
