"""Find files that two would write: two file sinks, or a file sink and the agent itself. Both would rotate, and one's
lines would take the place of the other's; or the agent would find in its data folder what it has not put there.

Paths are held against each other where their links lead, and with the names that a rotation gives (``NAME.1``). Hard
links and a folder that is mounted twice are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vedette.config.private import folders
from vedette.config.settings import Config
from vedette.sinks.settings import FileSink
from vedette.system.within import resolved

OWN = frozenset((
    "alerts-landing", "archive", "bundles", "cache", "control.sock", "fleet", "identity", "lives", "lookups",
    "quarantine", "raw", "redact.key", "response", "rulesets", "shown", "sinks", "store", "under-way", "upgrade",
))  # fmt: skip
"""Names that the agent gives in its data folder, beside hidden ones and stores that were damaged."""
_DAMAGED = "store.damaged-"
_NUMBER = re.compile(r"\.\d+$")


def mistakes(config: Config) -> Iterator[str]:
    """Yield a line for each file sink of which another writes the file, or a name of its rotation."""
    names: dict[str, str] = {}
    for i, sink in enumerate(config.sink):
        if isinstance(sink, FileSink):
            path = resolved(sink.to)
            for other, name in names.items():
                if path in (other, _NUMBER.sub("", other)) or _NUMBER.sub("", path) == other:
                    yield f"sink[{i}].path: {sink.to!r} is written by another sink already ({name})"
            names[path] = sink.name
            if _is_own(config, Path(path)):
                yield f"sink[{i}].path: {sink.to!r} lies where the agent keeps its own files: name another"


def _is_own(config: Config, path: Path) -> bool:
    data = Path(resolved(config.agent.data_dir))
    if path.is_relative_to(data):
        name = path.relative_to(data).parts[:1]
        return not name or name[0] in OWN or name[0].startswith((".", _DAMAGED))
    return any(path.is_relative_to(resolved(folder)) for folder in folders(config))
