"""Tell which open files are the agent's own: those of its data folder, and the keys, passwords, tokens and certificates
that its configuration names.

No input reads them, under whatever name: the centre may choose the files that an agent reads, and evidence shows what
it read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path

from vedette.config.settings import Config

_KEYS = ("key", "cert", "redact_key")


def is_private(config: Config, descriptor: int) -> bool:
    """Whether the open file lies in the data folder or is one that ``config`` names. Raises OSError."""
    lies, folder = os.path.realpath(f"/proc/self/fd/{descriptor}"), os.path.realpath(config.agent.data_dir)
    if os.path.commonpath((lies, folder)) == folder:
        return True
    status = os.fstat(descriptor)
    for path in (config.agent.redact_key_file, *config.agent.identity_dir.glob("*"), *_named(config)):
        with suppress(OSError):  # it is not there, so the open file is another
            if os.path.samestat(status, path.stat()):
                return True
    return False


def _named(settings: object) -> Iterator[Path]:
    """Paths of settings whose name says that they hold a secret, at any depth."""
    if is_dataclass(settings):
        for field in fields(settings):
            value = getattr(settings, field.name)
            if isinstance(value, Path):
                if field.name.endswith("_file") or field.name in _KEYS:
                    yield value
            else:
                yield from _named(value)
    elif isinstance(settings, (list, tuple)):
        for part in settings:
            yield from _named(part)
    elif isinstance(settings, dict):
        yield from _named([*settings.values()])
