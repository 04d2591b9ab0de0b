"""Dead letters: events on which a rule came to no answer, or that could not be evaluated at all, kept on disk.

``DATA_DIR/quarantine/events.ndjson``: one JSON object a line with ``rule_id rule_title rule_digest reason input codec
origin received_at`` (UTC microseconds), ``log_id offset length`` (where the raw log has the event) and the event itself
as ``raw``, or ``raw_base64`` when it is not UTF-8. The three keys of the rule are null when no rule failed. The file
is appended to; at half of ``max_bytes`` it becomes ``events.1.ndjson`` in place of the one before, so that the
folder never holds more than ``max_bytes`` and always the newest. Not synced: the raw log has the events as well. After
a crash a few may stand there twice.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import structlog

from vedette.model.counters import Log
from vedette.model.event import Frame
from vedette.plan.ir import Rule

log = structlog.get_logger()


class DeadLetters:
    """One writer; called in the event loop, for few events: a rule that goes on failing is quarantined."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.events = 0
        """Kept since the start."""
        self.lost = 0
        """That could not be written, or were larger than the bound."""

    @property
    def file(self) -> Path:
        return self.folder / "events.ndjson"

    def bytes(self) -> int:
        """On disk."""
        total = 0
        for path in (self.file, self.folder / "events.1.ndjson"):  # looking through the folder takes a descriptor
            with suppress(OSError):
                total += path.stat().st_size
        return total

    def put(self, rule: Rule | None, reason: str, frame: Frame, log_id: str, start: int, end: int) -> None:
        """Keep the event ``frame.chunk.data[start:end]``; a failure to write is logged and counted."""
        self.events += 1
        chunk, raw = frame.chunk, frame.chunk.data[start:end]
        row: dict[str, Any] = {
            "rule_id": rule and rule.id,
            "rule_title": rule and rule.title,
            "rule_digest": rule and rule.digest,
            "reason": reason,
            "input": chunk.input,
            "codec": chunk.codec,
            "origin": chunk.origin(start),
            "received_at": chunk.received_at,
            "log_id": log_id,
            "offset": frame.offset + start,
            "length": end - start,
        }
        try:
            row["raw"] = raw.decode("utf-8")
        except UnicodeDecodeError:
            row["raw_base64"] = base64.b64encode(raw).decode()
        line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        half = self.max_bytes // 2
        if len(line) > half:
            self.lost += 1
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.file.exists() and self.file.stat().st_size + len(line) > half:
                self.file.replace(self.folder / "events.1.ndjson")
            with self.file.open("ab") as file:
                file.write(line)
        except OSError as error:
            self.lost += 1
            log.error(
                Log.DEAD_LETTER_LOST, rule=row["rule_id"], file=str(self.file), reason=f"cannot be written: {error}"
            )
