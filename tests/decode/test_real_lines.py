"""Lines as programs write them (``tools/real_lines.sh`` makes many of them): what each says, checked by hand once.

``real_lines.jsonl`` has a line an entry: the program whose syslog message it is (empty: the entry is the whole line),
the text, and fields; null for one that the event must not have. ``@host``, ``@time`` (UTC), ``@source`` (all that the
log source must hold) are the event's own.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from vedette.decode.decoder import ABSENT, Record, record

NOW = 1_795_993_310_000_000
ENTRIES = [json.loads(line) for line in Path(__file__).with_name("real_lines.jsonl").read_text("utf-8").splitlines()]
_AS_THEY_STAND = ("message", "request", "cs-request")


def told(event: Record, name: str, wanted: object) -> object:
    """What the event has under a name of the table."""
    match name:
        case "@host":
            return event.host
        case "@time":
            return datetime.fromtimestamp((event.event_time or 0) / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        case "@source":
            return wanted if set(str(wanted).split()) <= set().union(*event.source) else event.source
    value = event.get(name)
    return None if value is ABSENT else value


@pytest.mark.parametrize(("program", "text", "fields"), ENTRIES, ids=range(len(ENTRIES)))
def test_real_lines(program: str, text: str, fields: dict[str, Any]) -> None:
    """Each line has its fields; no value that is cut out of one ends in a blank."""
    line = f"<86>Nov 29 23:01:50 h {program}[7]: {text}" if program else text
    event = record(line.encode(), "auto", received_at=NOW)
    assert {name: told(event, name, wanted) for name, wanted in fields.items()} == fields
    cut = {name: str(value) for name, value in event.fields().items() if name not in _AS_THEY_STAND}
    assert cut == {name: value.strip(" ") for name, value in cut.items()}
