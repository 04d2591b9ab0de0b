"""What a new configuration changes while the agent runs, and what has to wait for a restart.

``merge`` takes the running configuration and the new one and gives a third: the new one, but with the running value of
every setting that cannot change under way (``NEEDS_RESTART``). A configuration that is not valid changes nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from vedette.config.settings import Config

NEEDS_RESTART = (
    "agent.id", "agent.site", "agent.fleet", "agent.data_dir",  # they are in every id, topic and path
    "archive",  # what the raw log may delete hangs on it
    "enrolment",  # it brings the agent's key and fleet
    "raw_log", "state", "functions",  # they size what is open
    "plugins",  # decoders are loaded before rules are
    "uplink.max_bytes",  # the size of the store's map
    "fleet.root",  # what is trusted is of it; the first one comes into force at once
)  # fmt: skip
"""Settings, or whole tables, that are read at start only."""


class Merged(NamedTuple):
    """``config`` is what is in force from now on; ``live`` changes with it, ``later`` at the next start.

    Both name settings as ``table.key``, inputs and sinks as ``input NAME``, ``sink NAME``.
    """

    config: Config
    live: tuple[str, ...]
    later: tuple[str, ...]


def merge(running: Config, new: Config) -> Merged:
    live: list[str] = []
    later: list[str] = []
    tables: dict[str, Any] = {}
    for table in dataclasses.fields(Config):
        before, after = getattr(running, table.name), getattr(new, table.name)
        if before == after or not table.compare:
            continue
        if table.name in ("input", "sink"):
            old, fresh = ({item.name: item for item in items} for items in (before, after))
            live += [f"{table.name} {name}" for name in {**old, **fresh} if old.get(name) != fresh.get(name)]
            continue
        if table.name in ("suppress", "enrich", "redact", "ruleset"):
            live.append(table.name)
            continue
        unchanged = {}
        for setting in dataclasses.fields(before):
            value = getattr(before, setting.name)
            if value != getattr(after, setting.name):
                key = f"{table.name}.{setting.name}"
                first = key == "fleet.root" and value is None
                if not first and (key in NEEDS_RESTART or table.name in NEEDS_RESTART):
                    unchanged[setting.name] = value
                    later.append(key)
                else:
                    live.append(key)
        tables[table.name] = dataclasses.replace(after, **unchanged)
    return Merged(dataclasses.replace(new, **tables), tuple(live), tuple(later))


@dataclasses.dataclass(slots=True)
class Reloads:
    """What reloads came to, as the status has it."""

    error: str | None = None
    """Why the configuration was refused that was found at the last SIGHUP; None after a success."""
    needs_restart: list[str] = dataclasses.field(default_factory=list)
    reloads: int = 0
    """That were taken."""
