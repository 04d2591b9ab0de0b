"""The protocols that the HTTP input takes: whose a path is. A new one is a file and a line here.

``tests/inputs/push/test_table.py`` walks it: each needs tests, a line in docs/guide.md, and says no in its own words.
"""

from __future__ import annotations

from vedette.inputs.push.base import Protocol
from vedette.inputs.push.bulk import BULK
from vedette.inputs.push.hec import HEC
from vedette.inputs.push.lines import LINES
from vedette.inputs.push.loki import LOKI
from vedette.inputs.push.otlp import OTLP

PROTOCOLS = (OTLP, HEC, BULK, LOKI, LINES)


def protocol_of(method: str, path: str) -> Protocol | None:
    """Whose a request is; None: nobody's."""
    return next((row for row in PROTOCOLS if row.paths.fullmatch(f"{method} {path}")), None)
