"""User functions, as operators see them: rows go to ``Functions`` in batches, and values or failures come back.

A row on which a function fails is dropped and counted, as of any expression. An operator whose function does harm on
``HARMFUL`` rows (it takes too long, its process does not survive it), or fails on ``FAILING`` rows in succession,
raises ``Broken``: then its statement is in quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from vedette.plan.query import Modules, Type

HARMFUL = 3
FAILING = 1000


class Broken(Exception):
    """A function that cannot be used any more; the text says why."""


class Spec(NamedTuple):
    """A function to call: ``module.attr`` of the modules of that digest. ``method``: ``eval``, ``fold`` or ``value``
    (``udf/worker.py`` says what their rows are)."""

    modules: str
    target: str
    method: str
    args: tuple[Type, ...]
    result: tuple[Type, ...]


class Answers(NamedTuple):
    """A value for each row (None where it failed), why rows failed by their place, and of those that did harm why."""

    values: Sequence[Any]
    failed: Mapping[int, str]
    harmful: Sequence[str]


class Functions(Protocol):
    """The process that runs functions."""

    def know(self, modules: Iterable[Modules]) -> None:
        """Modules whose functions may be called from now on."""

    def keep(self, modules: Iterable[Modules]) -> None:
        """No others are called any more."""

    def call(self, spec: Spec, rows: Sequence[Any]) -> Answers:
        """Raises ``Broken``."""

    def status(self) -> Mapping[str, Any]:
        """JSON-able figures."""


class Calls:
    """The functions of one operator."""

    def __init__(self) -> None:
        self.functions: Functions | None = None
        self.failed = 0
        """Rows on which a function failed, since somebody has asked."""
        self._harmful = self._in_succession = 0

    def call(self, spec: Spec, rows: Sequence[Any]) -> Answers:
        """Raises ``Broken``."""
        if self.functions is None:
            raise Broken("functions are not allowed here")
        answers = self.functions.call(spec, rows)
        self.count(len(rows), answers.failed, answers.harmful)
        return answers

    def count(self, rows: int, failed: Mapping[int, str], harmful: Sequence[str]) -> None:
        self._harmful += len(harmful)
        self._in_succession = self._in_succession + rows if len(failed) == rows else 0
        if failed and (self._harmful >= HARMFUL or self._in_succession >= FAILING):
            why = [*(harmful or failed.values())][-1]
            self._harmful = self._in_succession = 0
            raise Broken(why)
