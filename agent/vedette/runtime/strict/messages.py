"""What agent and the process of a strict rule set say to each other: frames over its standard input and output.

A frame is 4 bytes of length, little-endian, and a msgpack list; the very first, to the process, is a pickled ``Begin``.
It goes one way only: the agent unpickles nothing.

To the process:

    ["state", part]                  of the set's state, in order; an empty one ends them
    ["log", start, end, events, waiting]   what the raw log holds; bytes in the outbox
    ["commit"]                       send a batch soon: the agent is about to stop
    ["done", long, waiting]          the batch is committed; whether its state is to be written again

From it:

    ["alive", {…}]                   figures for the status, every ALIVE_SECONDS
    ["batch", offset, counters, alerts, made, state, begins, whole, quarantined, rows_wait]
                                     to be committed; the next one follows after ``done``. ``made``: of the alerts, by
                                     the id of their rule its title, and how many
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from vedette.config.settings import Config, RulesetSettings
from vedette.runtime.strict.watched import Blamed

LENGTH = struct.Struct("<I")
MAX_FRAME = 512 << 20
ALIVE_SECONDS = 0.5
OUT_OF_MEMORY = 71
"""Exit code of a process that ran out of memory."""


class Begin(NamedTuple):
    """What a process of a strict rule set begins with."""

    config: Config
    ruleset: RulesetSettings
    plan: Path
    lookups: dict[str, Path]
    credit: str | None
    log_id: str
    log: tuple[int, int, int, int]
    """As in the message."""
    newest: int
    """No frame was received after this."""
    offset: int
    counters: dict[str, Any]
    quarantined: Any
    blamed: Blamed
    forbidden: Mapping[str, str]
    """Decoder plugins that are not loaded, and why."""
    blackbox: int
    """A descriptor."""


def frame(message: list[Any]) -> bytes:
    data: bytes = msgpack.packb(message)
    return LENGTH.pack(len(data)) + data
