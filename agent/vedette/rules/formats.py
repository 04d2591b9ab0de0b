"""Formats that a rule set declares: ``formats/NAME.toml`` below a folder of rules, a format a file (docs/formats.md).

A file that cannot be used is refused by itself, with every mistake; so is the second of a name. ``examples`` are held
against what the format gives by ``failures``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from vedette.decode.declared import Declared, declared
from vedette.decode.decoder import ABSENT, Record
from vedette.model.event import LogSource
from vedette.model.times import time_of
from vedette.plan.ir import Expr, Refusal, Rule, as_shown
from vedette.plan.limits import MAX_FILE
from vedette.rules.ruleset import RuleSet
from vedette.system.folders import listed, read_regular

FOLDER = "formats"
MAX_FORMATS = 1000


def is_format(path: Path) -> bool | None:
    """Whether a file below a folder of rules is one: of TOML only what lies in ``formats/``. None: it is no TOML."""
    return path.parent.name == FOLDER if path.suffix == ".toml" else None


def declared_at(paths: Iterable[Path]) -> tuple[Declared, ...]:
    """The formats of rule files and folders, without their rules; what cannot be used is left out. Raises OSError."""
    rules = RuleSet()
    front_end = Formats(rules)
    for path in paths:
        files = [file for file in listed(path, (".toml",)) if is_format(file)] if path.is_dir() else [path]
        for file in files:
            if file.suffix == ".toml":
                front_end.add(read_regular(file, MAX_FILE + 1), str(file))
    return tuple(rules.formats.values())


class Formats:
    """The front end of ``.toml``."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules

    def add(self, content: bytes | str, path: str) -> None:
        try:
            text = content.decode("utf-8") if isinstance(content, bytes) else content
            if len(text) > MAX_FILE:
                raise ValueError(f"more than {MAX_FILE} characters")
            declaration = declared(tomllib.loads(text), path)
            other = self._rules.formats.get(declaration.name)
            if other is not None:
                raise ValueError(f"name: {other.path} has a format {declaration.name}, too")
            if len(self._rules.formats) >= MAX_FORMATS:
                raise ValueError(f"more than {MAX_FORMATS} formats in a rule set")
        except RecursionError:
            self._refuse(path, "nested too deeply")
        except ValueError as error:  # of TOML and UTF-8, too
            for line in str(error).splitlines():
                self._refuse(path, line)
        else:
            self._rules.formats[declaration.name] = declaration

    def _refuse(self, path: str, reason: str) -> None:
        self._rules.refused.append(Refusal(path, 1, "", Path(path).stem, f"format: {reason}"))

    def finish(self) -> None:
        """Formats refer to nothing."""

    def names(self, rule: Rule) -> dict[Expr, str]:
        return {}


def failures(declaration: Declared) -> Iterator[str]:
    """The examples that do not come out: what was expected, and what there is."""
    for i, example in enumerate(declaration.examples):
        record = Record(example.message.encode("utf-8", "replace"), declaration.codec, "", 0, None, LogSource(), None)
        where = f"{declaration.path}:1: examples[{i}]"
        for name, expected in example.fields.items():
            value = record.get(name)
            shown = None if value is ABSENT else as_shown(value)
            if shown != as_shown(expected):
                yield f"{where}: {name} is {shown!r:.200}, expected {as_shown(expected)!r:.200}"
        row = declaration.codec.row
        declared_fields = {field.name for field in row.gives.fields} if row is not None else set()
        for name in sorted(declared_fields - set(example.fields)):
            if (value := record.get(name)) is not ABSENT:
                yield f"{where}: {name} is {as_shown(value)!r:.200}, expected none"
        if example.time and record.event_time != (expected_time := time_of(example.time)):
            yield f"{where}: its time is {record.event_time}, expected {expected_time} ({example.time})"
