"""How fast a stored raw log is judged: ``python -m bench.stored FOLDER BUNDLE PUBLIC_KEY`` prints JSON.

It is the live path's engine over ``vedette.read_log``, without sockets, state and outbox.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC
from pathlib import Path

from vedette.api import load_rules, read_log
from vedette.engine.match import Context


def main(folder: str, bundle: str, key: str) -> None:
    engine, context = load_rules(Path(bundle), [key]), Context(zone=UTC)
    began = time.process_time()
    events = matches = 0
    for frame in read_log(folder):
        events += len(frame.chunk)
        matches += sum(1 for _ in engine.evaluate(frame.chunk, context))
    seconds = time.process_time() - began
    rate = round(events / seconds)
    print(json.dumps({"events": events, "matches": matches, "events_per_cpu_second": rate}))


if __name__ == "__main__":
    main(*sys.argv[1:])
