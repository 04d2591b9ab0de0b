"""OTLP's records by the native kernel (``agent/kernel/src/otlp.rs``), where it is in use. Pure.

It makes the same bytes as the readers in Python, from the body without a dictionary, and gives up at whatever is not as
senders send it. Then those read the body again, and what it has made by then is left out of what they make.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator
from typing import TYPE_CHECKING

import orjson

from vedette.engine import kernel
from vedette.inputs.framing import Run
from vedette.inputs.push.texts import ECS, of_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vedette._kernel import Otlp


def reader(levels: Sequence[str], severities: Mapping[str, int]) -> Otlp | None:
    """The kernel's; None: it is not in use."""
    if kernel.LOADED is None:
        return None
    otlp: Otlp = kernel.LOADED.Otlp(dict(ECS), list(levels), dict(severities), lambda text: orjson.dumps(of_text(text)))
    return otlp


def events(otlp: Otlp, body: bytes, json: bool) -> Generator[Run, None, tuple[int, bool]]:
    """Yield the events of a body, in steps of about a millisecond; return how many, and whether these are all."""
    records = otlp.records(body, json)
    count = 0
    while not records.whole:
        part = records.take()
        if part is None:
            return count, False
        data, ends = part
        count += len(ends) >> 2
        yield Run(data, array("I", ends), ())
    return count, True


def behind(count: int, steps: Generator[list[bytes], None, None]) -> Generator[list[bytes], None, None]:
    """Yield what ``steps`` give, without the first ``count`` events."""
    for some in steps:
        yield some[count:] if count else some
        count = max(0, count - len(some))
