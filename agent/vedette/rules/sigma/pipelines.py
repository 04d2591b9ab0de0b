"""Processing pipelines and lookups: what is put between a rule as it is written and a rule as it is compiled.

A **pipeline** is pySigma's YAML: it maps fields and log sources, adds conditions, gives placeholders their values.
Several run in the order of their ``priority``, then as they are given. What works on the text of a query
(``postprocessing``, ``finalizers``) has nothing to work on here and is refused.

A **lookup** gives a placeholder its values: ``Administrators.txt`` is ``%Administrators%``. Text files hold a value a
line; of CSV files the first column counts, and a first row that says ``value`` or the placeholder's name is a heading.
Empty lines and lines that begin with ``#`` are none. A value is a Sigma pattern: ``srv*`` is all that begin so.
Where a pipeline gives the same placeholder, the pipeline's values hold. A long list is made a lookup (``lists.py``). A
built lookup, ``Assets.vlookup``, is asked for each value, whatever its size (``lookup/table.py``).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import RegexEngine
from sigma.processing.pipeline import ProcessingPipeline
from sigma.rule import SigmaRule

from vedette.lookup.names import SUFFIX, by_itself
from vedette.lookup.table import Lookup
from vedette.plan.database import Pattern, Scanner
from vedette.plan.ir import Refusal
from vedette.plan.limits import check_regex
from vedette.plan.patterns import fallback
from vedette.rules.sigma.documents import check_shape, child, expect
from vedette.rules.sigma.lists import SPELLED, Listed, listed
from vedette.system.folders import read_regular

MAX_BYTES = 8 << 20
"""Bytes of a pipeline or lookup file."""


class _Runnable(RegexEngine):
    """pySigma's check of a regular expression: one of the two engines that evaluate must take it."""

    def compile(self, pattern: str, flags: int = 0) -> Any:
        check_regex(pattern)
        try:
            return fallback(pattern, "")
        except ValueError:
            try:
                return Scanner.compile([Pattern(pattern.encode())])
            except ValueError:
                pass
            raise

    @property
    def error(self) -> type[Exception]:
        return ValueError


POLICY = SigmaPolicy(regex_engine=_Runnable())
"""pySigma's settings: regular expressions are PCRE's; pipelines reach neither files nor commands nor the network."""


class Table(NamedTuple):
    """A built lookup that a placeholder names; ``key``: the index that it says, if it does."""

    name: str
    lookup: Lookup
    key: str | None


@dataclass(frozen=True, slots=True)
class Pipelines:
    """``lookups``: placeholder to values; ``faults``: placeholder to why its lookup gives none."""

    pipeline: ProcessingPipeline | None = None
    lookups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    faults: Mapping[str, Refusal] = field(default_factory=dict)
    tables: Mapping[str, Lookup] = field(default_factory=dict)
    """Lookups that are asked for a value, not spelled out."""
    wanted: frozenset[str] = frozenset()
    """The names of lookups that are to be built: what is asked of them is noted."""
    spelled: Mapping[str, int] = field(default_factory=lambda: SPELLED)
    """Numbers of values of a list that are spelled out, by kind of key; longer ones are made lookups (``lists.py``)."""
    lists: dict[tuple[str, str], Listed | None] = field(default_factory=dict)
    """Results of ``listed``, by placeholder and kind of key."""

    def of_wanted(self, name: str) -> tuple[str, str] | None:
        """The one of ``wanted`` that a placeholder names, and the column, empty for none; None: it names another."""
        lookup, dot, column = name.partition(".")
        return (lookup, column) if lookup in self.wanted and bool(dot) == bool(column) else None

    def table(self, name: str) -> Table | None:
        """The lookup that a placeholder names: ``%NAME%``, or ``%NAME.INDEX%``."""
        if name in self.tables:
            return Table(name, self.tables[name], None)
        lookup, dot, index = name.rpartition(".")
        return Table(lookup, self.tables[lookup], index) if dot and lookup in self.tables else None

    def listed(self, name: str, kind: str) -> Listed | None:
        """The lookup made of a placeholder's list, as keys of ``kind``; None: it has none, or is spelled out. Raises
        Unsupported."""
        if (name, kind) not in self.lists:
            values = self.lookups.get(name, ())
            self.lists[name, kind] = listed(name, kind, values, self.spelled[kind])
        return self.lists[name, kind]

    def apply(self, rule: SigmaRule) -> None:
        """Change ``rule`` as the pipelines say; raises SigmaError when one refuses it."""
        if self.pipeline is not None:
            self.pipeline.apply(rule)


NONE = Pipelines()


def load(pipelines: Iterable[Path] = (), lookups: Iterable[Path] = ()) -> Pipelines:
    """Read pipeline files and lookup files (folders: the ``*.yml``, or the ``*.txt``, ``*.csv`` and ``*.vlookup`` in
    them, but for a ``*.vlookup`` of whose name one is given by itself).

    A lookup that cannot be used is one of ``faults``: it stops the rules that ask for it and no others. A pipeline is
    for all rules: raises ValueError with file and reason for one that cannot be used, and OSError for what of
    ``pipelines`` and ``lookups`` itself cannot be read.
    """
    read = [_pipeline(path, named) for path, named in _files(pipelines, (".yml", ".yaml"))]
    read.sort(key=lambda pipeline: pipeline.priority)
    values: dict[str, tuple[str, ...]] = {}
    faults: dict[str, Refusal] = {}
    tables: dict[str, Lookup] = {}
    lookups = [*lookups]
    separate = by_itself(lookups)
    for path, named in _files(lookups, (".txt", ".csv", SUFFIX)):
        if path.name in separate and not named:
            continue
        try:
            if path.stem in values or path.stem in tables:
                raise ValueError(f"another lookup defines %{path.stem}% already")
            if path.suffix == SUFFIX:
                tables[path.stem] = Lookup.open(path)
            else:
                values[path.stem] = _lookup(path)
        except (OSError, ValueError) as error:
            if named and isinstance(error, OSError):
                raise
            values.pop(path.stem, None)
            tables.pop(path.stem, None)
            name = str(path).encode("utf-8", "replace").decode()
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            faults[path.stem] = Refusal(name, 1, "", f"%{path.stem}%", reason)
    return Pipelines(reduce(lambda a, b: a + b, read) if read else None, values, faults, tables)


def _files(paths: Iterable[Path], suffixes: tuple[str, ...]) -> Iterator[tuple[Path, bool]]:
    """Each file, and whether it is one of ``paths``; of folders what lies in them but is not hidden."""
    for path in paths:
        if path.is_dir():
            files = (file for file in path.iterdir() if file.suffix in suffixes and not file.name.startswith("."))
            yield from ((file, False) for file in sorted(files) if not file.is_dir())
        else:
            yield path, True


def _read(path: Path) -> bytes:
    """Raises ValueError for a file beyond ``MAX_BYTES``, and OSError."""
    content = read_regular(path, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB: split it, or build a list with `vedette lookup build`")
    return content


def _pipeline(path: Path, named: bool) -> ProcessingPipeline:
    try:
        content = _read(path)
    except OSError as error:
        if named:
            raise
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    try:
        check_shape(content)
        document = expect(yaml.safe_load(content), dict, "expects a mapping with name, priority and transformations")
        for key in ("postprocessing", "finalizers"):
            if document.get(key):
                raise ValueError(f"'{key}' works on the text of a query, and Vedette makes none: remove it")
        return ProcessingPipeline.from_dict(document, policy=POLICY)
    except Exception as error:  # whatever pySigma and YAML's parser raise
        line = _line_at_fault(content)
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else f"{path}:{line}"
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ValueError(f"{where}: not a processing pipeline: {reason}") from error


def _line_at_fault(content: bytes) -> int:
    """The line of the first transformation that is wrong by itself; else 1."""
    with suppress(Exception):
        check_shape(content)
        steps = child(yaml.compose(content), "transformations")
        for step, node in zip(yaml.safe_load(content)["transformations"], steps.value, strict=True):
            try:
                ProcessingPipeline.from_dict({"transformations": [step]}, policy=POLICY)
            except Exception:  # the step that fails is the one that is looked for
                return int(node.start_mark.line) + 1
    return 1


def _lookup(path: Path) -> tuple[str, ...]:
    try:
        lines = _read(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"a lookup is UTF-8 text: {error.reason} at byte {error.start}") from error
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    if path.suffix == ".csv":
        try:
            rows = [row[0] for row in csv.reader(lines) if row]
        except csv.Error as error:
            raise ValueError(f"not CSV: {error}") from error
        values = rows[1:] if rows and rows[0].strip().lower() in ("value", path.stem.lower()) else rows
    else:
        values = lines
    values = list(dict.fromkeys(value.strip() for value in values))
    if not values:
        raise ValueError("the lookup is empty")
    return tuple(values)
