"""``[[sink]] type = "file"``: its receiver. Alerts as lines of JSON or CEF, in a file that is rotated.

Delivery: an alert is taken when its line is synced to disk. A crash between that and the commit of the sink's place
writes it a second time, under the same ``alert_id``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.formats import BEGINS, cef, json_line
from vedette.sinks.settings import FileSink
from vedette.system.ending import to_its_end
from vedette.system.rotated import Rotated

BATCH = 200


class LineFile:
    """A file of lines that is rotated."""

    batch = BATCH

    def __init__(self, settings: FileSink, version: str) -> None:
        assert settings.path is not None  # ``mistakes`` says so
        self._settings = settings
        self._version = version
        self._file = Rotated(settings.path, settings.max_bytes, settings.keep, BEGINS)

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        form = self._settings.format
        lines = [cef(alert.row, self._version) if form == "cef" else json_line(alert.row) for alert in alerts]
        writing = asyncio.create_task(asyncio.to_thread(self._file.append, b"".join(line + b"\n" for line in lines)))
        try:
            await to_its_end(writing)  # one writer at a time
        except OSError as error:
            return [Answer(Verdict.LATER, str(error))] * len(alerts)
        return [Answer(Verdict.TAKEN, f"written to {self._file.path}")] * len(alerts)

    async def close(self) -> None:
        pass
