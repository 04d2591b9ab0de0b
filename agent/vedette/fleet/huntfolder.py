"""What lies in the folder of a retro-hunt, between who started it (``hunt.py``) and the process that works at it
(``runtime/offline/hunt.py``)::

    FOLDER/order.json    what was asked, the agent's inputs, the bounds; never changed
    FOLDER/plan          the rules, packed
    FOLDER/journal       matches of rules that correlations or statements look at: they are evaluated at the end
    FOLDER/checkpoint    msgpack: how far it is, what it found, how long the journal was then; replaced as a whole

The journal is synced before the checkpoint; what it has beyond the length that the checkpoint names does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import orjson

from vedette.decode.redact import Rule
from vedette.fleet.hunt import Hunt
from vedette.model.event import LogSource
from vedette.system.durable import write_whole


class Input(NamedTuple):
    """What is kept of an input's settings."""

    name: str
    timezone: str
    logsource: LogSource
    local: bool


class Order(NamedTuple):
    """``raw``, ``lookups``: the agent's folders; ``cpu``: share of a core; ``seconds``: of all its lives together;
    ``every``: seconds between two checkpoints."""

    hunt: Hunt
    raw: str
    lookups: str
    cpu: float
    seconds: float
    every: float
    inputs: tuple[Input, ...]
    redact: tuple[Rule, ...] = ()
    """What must not leave the host: it is not in the report either."""
    redact_key: str = ""
    archive: tuple[str, Mapping[str, Any]] | None = None
    """The agent's id, and its settings of ``[archive]``."""
    plugins: tuple[str, ...] = ()
    """``plugins.allow``: their decoders read what is stored under their names."""
    formats: tuple[tuple[str, str], ...] = ()
    """Text and path of the formats that the agent's rules declare."""

    @classmethod
    def load(cls, folder: Path) -> Order:
        """Raises OSError, ValueError."""
        row = orjson.loads((folder / "order.json").read_bytes())
        inputs = (Input(name, zone, LogSource(*source), local) for name, zone, source, local in row["inputs"])
        redact = (Rule(rule[0], *map(tuple, rule[1:])) for rule in row.get("redact", ()))
        more = {name: tuple(row.get(name, ())) for name in ("plugins", "formats")}
        row["archive"] = tuple(row["archive"]) if row.get("archive") else None
        return cls(**{**row, "hunt": Hunt(*row["hunt"]), "inputs": tuple(inputs), "redact": tuple(redact), **more})

    def save(self, folder: Path) -> None:
        """Raises OSError."""
        write_whole(folder / "order.json", orjson.dumps(self._asdict(), default=tuple), 0o600)


def begun(hunt: Hunt) -> dict[str, Any]:
    """The report of a hunt before its first event."""
    return {
        "id": hunt.id, "state": "queued", "reason": "", "since": hunt.since, "until": hunt.until,
        "oldest": 0, "reached": 0, "events": 0, "bytes": 0, "matches": 0, "seconds": 0.0, "cpu": 0.0,
        "rules": [], "hosts": {}, "first": [], "undecided": [], "not_run": [], "not_correlated": [],
        "gone": 0, "damaged": 0, "unreachable": 0, "failed": 0,
    }  # fmt: skip


class Checkpoint(NamedTuple):
    """``report`` so far, and what evaluation goes on from."""

    report: dict[str, Any]
    place: tuple[int, str, int] | None = None
    """None: nothing is read yet."""
    next_event: int = -1
    joiner: list[Any] | None = None
    journal: tuple[int, int, int] = (0, 0, 0)
    """Its length, its matches, and those that had no room."""
    counts: Mapping[str, int] = {}
    """By rule."""
    undecided: Mapping[int, tuple[int, str]] = {}
    """By rule of the plan, on how many events, and why."""
    quarantined: tuple[str, ...] = ()
    read: bool = False
    """All is read; what fires over time remains."""

    @classmethod
    def load(cls, folder: Path) -> Checkpoint | None:
        """None: there is none that can be used. Raises OSError."""
        try:
            return cls(**msgpack.unpackb((folder / "checkpoint").read_bytes(), strict_map_key=False))
        except (FileNotFoundError, ValueError, TypeError, msgpack.UnpackException):
            return None

    def save(self, folder: Path) -> None:
        """Raises OSError."""
        write_whole(folder / "checkpoint", msgpack.packb(self._asdict()))
