"""Files of ``[[NAME]]`` tables of one kind, by the reader of the configuration: every mistake at once, with its key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from vedette.config.read import ConfigError, Reader, read_text
from vedette.system.foreign import read_toml

T = TypeVar("T")


def tables(path: Path, name: str, kind: type[T], beside: Collection[str] = ()) -> list[T]:
    """The ``[[name]]`` tables of a file of nothing else but the keys ``beside``, each as a dataclass ``kind``. Raises
    ConfigError."""
    try:
        document = read_toml(read_text(path))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(path, [str(error)]) from error
    rows, mistakes = tables_in(document, name, kind)
    others = [key for key in document if key != name and key not in beside]
    mistakes = [*(f"{key}: unknown key; expects [[{name}]] tables" for key in others), *mistakes]
    if not mistakes and not rows:
        mistakes = [f"{name}: expects [[{name}]] tables"]
    if mistakes:
        raise ConfigError(path, mistakes)
    return rows


def tables_in(document: Mapping[str, Any], name: str, kind: type[T]) -> tuple[list[T], list[str]]:
    """The ``[[name]]`` tables of a document that was read already, none where it has none, and the mistakes."""
    reader = Reader()
    items = document.get(name, [])
    if not isinstance(items, list):
        return [], [f"{name}: expects [[{name}]] tables"]
    rows = [reader.value(kind, item, f"{name}[{i}]") for i, item in enumerate(items)]
    return [row for row in rows if row is not None], reader.mistakes
