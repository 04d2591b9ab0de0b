"""What plugins are to the agent: a small protocol for each kind. ``vedette.plugins`` is how plugins import them.

A plugin is an entry point of an installed distribution, in the group ``vedette.inputs``, ``vedette.decoders``,
``vedette.sinks``, ``vedette.functions`` or ``vedette.lookups``. These are promises to authors of other packages:
docs/plugins.md says which of them may change, and how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol


class Stopped(Exception):
    """The input is to end: ``Input.run`` lets it through, or returns."""


class Feed(Protocol):
    """Where an input plugin hands over events. For the plugin's own thread, or several of them."""

    def put(self, events: Sequence[bytes], origin: str = "") -> None:
        """Hand over events, each without a line's end. Returns when they are in the raw log, perhaps not yet on disk;
        waits while the agent takes nothing. ``origin``: the peer that they came from.

        Raises ``Stopped``; TypeError for what is no list of bytes."""

    def flush(self) -> None:
        """Returns when all that was put is on disk: what a sender may be answered for. Raises ``Stopped``."""

    def wait(self, seconds: float) -> bool:
        """Waits so long, or until the input is to end; whether it is."""


class Input(Protocol):
    """``vedette.inputs``: the entry point is called with ``options``, the table of that name, and gives one of these.
    What it raises is shown in the status."""

    def run(self, feed: Feed) -> None:
        """Receive until ``feed`` says that the input is to end. In a thread of its own; what it raises, or its end
        before that, is a fault: it is made again and run, later each time."""


class Decoder(Protocol):
    """``vedette.decoders``: the entry point is called without arguments and gives one of these. An input names it by
    ``format``."""

    @property
    def fields(self) -> Mapping[str, Literal["verbatim", "synthetic"]]:
        """All names of fields that it can give. ``verbatim``: the value stands in the message as it is (of a number or
        a bool its text: ``22``, ``1.5``, ``true`` in whatever case), so that rules
        on it may be searched for; ``synthetic``: it need not, and every event is evaluated for rules on it. What it
        gives besides, or verbatim and not in the message, is left out and counted as a fault."""

    def read(self, message: str) -> Mapping[str, str | int | float | bool | None]:
        """The fields of a message (what follows a syslog header, where there is one), the same for the same message.
        It runs in the agent's own threads: one second at most, or it is a fault."""


class Sink(Protocol):
    """``vedette.sinks``: the entry point is called with ``options``, the table of that name, and gives one of these.
    All calls come from one thread of its own."""

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> Sequence[Any] | None:
        """Alerts (docs/alert.md) to the receiver. Returns when it has them: None for all of them, or one ``Answer``
        for each. What it raises is a fault: all of them are tried again, under the same ``alert_id``. With ``takes =
        "rows"`` these are rows of statements: ``row_id`` and the ``row``."""

    def close(self) -> None:
        """Let go of connections and files."""


class Lookup(Protocol):
    """``vedette.lookups``: a function, for ``vedette lookup build SOURCE --plugin``."""

    def __call__(self, source: str) -> Iterator[Mapping[str, str | int | float | bool | None]]:
        """The rows of a table. The first has all columns, and their types; a later one may lack some."""
