"""A sink plugin: each alert is a JSON file of its own in a folder, as some ticket systems take them.

```toml
[plugins]
allow = ["vedette-example-sink"]

[[sink]]
type = "spool"
name = "tickets"
level = "high"
[sink.options]
folder = "/var/spool/tickets"
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vedette.plugins import Answer, Verdict

MAX_BYTES = 1 << 20


class Spool:
    """An alert that comes again replaces its own file: the name is its id."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._folder = Path(options["folder"])

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> Sequence[Answer]:
        return [self._write(alert) for alert in alerts]

    def _write(self, alert: Mapping[str, Any]) -> Answer:
        text = json.dumps(alert, default=str)
        if len(text) > MAX_BYTES:
            return Answer(Verdict.REFUSED, f"longer than {MAX_BYTES} bytes")
        file = self._folder / f"{alert['alert_id']}.json"
        temporary = file.with_suffix(".part")
        with temporary.open("w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        temporary.rename(file)
        return Answer(Verdict.TAKEN, str(file))

    def close(self) -> None:
        pass
