"""``[[sink]] type = "file"``: its receiver. Alerts as lines of JSON or CEF, rows as lines of JSON, in a file that is
rotated.

Delivery: an alert is taken when its line is synced to disk. A crash between that and the commit of the sink's place
writes it a second time, under the same ``alert_id``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.formats import BEGINS, ROW_BEGINS, formed
from vedette.sinks.settings import FileSink
from vedette.system.ending import to_its_end
from vedette.system.rotated import Rotated

BATCH, ROW_BATCH = 200, 2000


class LineFile:
    """A file of lines that is rotated."""

    batch, row_batch = BATCH, ROW_BATCH

    def __init__(self, settings: FileSink, version: str) -> None:
        assert settings.path is not None  # ``mistakes`` says so
        self._settings = settings
        self._version = version
        begins = BEGINS if settings.takes == "alerts" else ROW_BEGINS
        self._file = Rotated(settings.path, settings.max_bytes, settings.keep, begins)

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        lines = [formed(alert, self._settings.format, self._version) for alert in alerts]
        writing = asyncio.create_task(asyncio.to_thread(self._file.append, b"".join(line + b"\n" for line in lines)))
        try:
            await to_its_end(writing)  # one writer at a time
        except OSError as error:
            return [Answer(Verdict.LATER, str(error))] * len(alerts)
        return [Answer(Verdict.TAKEN, f"written to {self._file.path}")] * len(alerts)

    async def close(self) -> None:
        pass
