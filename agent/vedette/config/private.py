"""Tell which open files are the agent's own: those of its data folder, its configuration, the keys, passwords, tokens
and certificates that this names, also as an option of a plugin, and its alerts: the folder of a directory uplink, and
the files of sinks. One that read its alerts would make alerts of them without end.

No input reads them, through no link of the host's either: the centre may choose the files that an agent reads, and
evidence shows what it read. A file of several names is compared with every file of the data folder; one of a single
name is not, since that takes a look at each of them. Only the host's owner can mount one of them elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path

from vedette.config.settings import Config
from vedette.sinks.settings import FileSink
from vedette.system.within import resolved

_KEYS = ("key", "cert", "redact_key")
_ROTATED = r"([.\-_]\d[\d.\-_T]*(\.\w+)?)?"
"""What rotation puts behind the name of a file: a number or a date, and perhaps a packer's ending."""


def is_private(config: Config, file: Path | None, descriptor: int) -> bool:
    """Whether the open file lies in the data folder or holds alerts, is ``file``, where ``config`` comes from, or one
    that ``config`` names. Raises OSError."""
    lies, folder = os.path.realpath(f"/proc/self/fd/{descriptor}"), os.path.realpath(config.agent.data_dir)
    if any(os.path.commonpath((lies, own)) == own for own in (folder, *map(os.path.realpath, folders(config)))):
        return True
    written = [sink.path for sink in config.sink if isinstance(sink, FileSink) and sink.path]
    if any(re.fullmatch(re.escape(resolved(path)) + _ROTATED, lies) for path in written):
        return True
    status = os.fstat(descriptor)
    own = (config.agent.redact_key_file, *config.agent.identity_dir.glob("*"), *written)
    for path in (*own, *([file] if file else []), *_named(config)):
        with suppress(OSError, ValueError):  # it is not there, so the open file is another
            if os.path.samestat(status, path.stat()):
                return True
    return status.st_nlink > 1 and any(os.path.samestat(status, own) for own in _files(folder))


def folders(config: Config) -> Iterator[Path]:
    """Yield those in which the agent writes beside its data folder."""
    if config.uplink.type == "directory" and config.uplink.path:
        yield config.uplink.path
    if config.archive.url.startswith("/"):
        yield Path(config.archive.url, config.agent.id)


def _files(folder: str) -> Iterator[os.stat_result]:
    """The files below ``folder``, but for those that go meanwhile."""
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(root, name))


def _named(settings: object) -> Iterator[Path]:
    """Paths of settings whose name says that they hold a secret, at any depth; options of plugins have them as text."""
    rows: list[tuple[str, object]] = []
    if is_dataclass(settings):
        rows += [(field.name, getattr(settings, field.name)) for field in fields(settings)]
    elif isinstance(settings, Mapping):
        rows += settings.items()
    elif isinstance(settings, (list, tuple)):
        rows += [("", part) for part in settings]
    for name, value in rows:
        if isinstance(value, (Path, str)):
            if name.endswith("_file") or name in _KEYS:
                yield Path(value)
        else:
            yield from _named(value)
