"""Aggregates of users: accumulators are bytes here, and change in the process that runs functions.

A field is ``[accumulator, …]``: the accumulator (None before the first row) and what it has not taken in yet, tuples of
arguments, or further accumulators to merge. ``fold`` has all of a run taken in together, so that a row costs a share of
one exchange. Rows that an aggregate fails on are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vedette.plan.query import Aggregate
from vedette.stream.userfunctions import Calls, Spec
from vedette.stream.values.types import Failed

TOGETHER = 256
"""Of a field, what is taken in by one call."""
WAITING = 64
"""What a field of a session may have waiting, which is not folded run by run."""

Field = list[Any]


class Users:
    """Those of one set of accumulators, by aggregate the number of their field."""

    def __init__(self) -> None:
        self.fields: dict[Aggregate, int] = {}
        self.calls = Calls()
        self._failed = 0

    def __bool__(self) -> bool:
        return bool(self.fields)

    def failed(self) -> int:
        """Rows that were left out since the last call."""
        count, self._failed = self._failed, 0
        return count

    def fold(self, columns: Sequence[Any], places: Sequence[int]) -> None:
        """Take in what waits of the groups at ``places`` of ``columns``, which begin with the origin."""
        for aggregate, number in self.fields.items():
            column = columns[number + 1]
            self._fold(aggregate, [column[at] for at in places if column[at] is not None])

    def shrink(self, fields: Sequence[Any]) -> None:
        """The same of one group, if much waits."""
        for aggregate, number in self.fields.items():
            if fields[number] is not None and len(fields[number]) > WAITING:
                self._fold(aggregate, [fields[number]])

    def values(self, aggregate: Aggregate, column: Sequence[Any], places: Iterable[int]) -> dict[int, Any]:
        """By place the values of groups, of which nothing waits; a group that fails is left out."""
        asked = [*places]
        rows = [None if column[at] is None else column[at][0] for at in asked]
        answers = self.calls.call(_spec(aggregate, "value"), rows)
        self._failed += len(answers.failed)
        return {at: answers.values[n] for n, at in enumerate(asked) if n not in answers.failed}

    def value(self, aggregate: Aggregate, field: Field | None) -> Any:
        """The value of one group; ``field`` None: FILTER has let no row through. Raises Failed."""
        if field is not None:
            self._fold(aggregate, [field])
        values = self.values(aggregate, [field], [0])
        if not values:
            self._failed -= 1  # who catches counts it
            raise Failed("the aggregate gave no value")
        return values[0]

    def _fold(self, aggregate: Aggregate, fields: Sequence[Field]) -> None:
        spec = _spec(aggregate, "fold")
        while waiting := [field for field in fields if len(field) > 1]:
            rows = []
            for field in waiting:
                if field[0] is None and isinstance(field[1], bytes):  # merged into nothing: it is the accumulator
                    del field[0]
                rows.append(tuple(field[: TOGETHER + 1]))
            answers = self.calls.call(spec, rows)
            for at, (field, row, answer) in enumerate(zip(waiting, rows, answers.values, strict=True)):
                del field[1 : len(row)]
                if at in answers.failed:
                    self._failed += len(row) - 1
                    continue
                field[0], left_out, why, slow = answer
                if left_out:
                    self._failed += left_out
                    self.calls.count(len(row) - 1, dict.fromkeys(range(left_out), why), [why] * slow)


def _spec(aggregate: Aggregate, method: str) -> Spec:
    target, digest = aggregate.options
    return Spec(digest, target, method, tuple(arg.type for arg in aggregate.args), (aggregate.type,))
