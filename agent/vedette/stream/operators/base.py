"""The contract of every operator over time: rows in, rows out, moved by watermarks, with state that survives a crash.

``Network`` (``network/network.py``) calls, in the order of the log: ``push`` with a run of rows of one input,
``advance`` when an input's watermark has moved. Between two calls of ``advance`` the watermark is the same for all
rows of a run; an operator for which the exact watermark at each row matters says so by ``boundary``. What an operator
gives goes to ``emit`` at once, its own watermark to ``forward`` after the rows that it made possible.

State lives in ``Table``s (``keyed.py``), which account for it, bound it and write what has changed: an operator keeps
nothing else from one call to the next but its marks, and what follows from both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from vedette.plan.query import Node, Row
from vedette.stream.keyed import Budget, Table
from vedette.stream.userfunctions import Functions

NEVER = -(1 << 62)
"""A watermark before all time."""
FOREVER = 1 << 62
"""The watermark at the end of the input: nothing comes any more."""

AtWork = Callable[[str], None]
"""Takes the id of the statement, or correlation, that runs now; empty: none does."""


RUN = 1024
"""Rows that go on together at most."""


def runs(rows: Sequence[Row]) -> Iterable[Sequence[Row]]:
    """``rows`` in their order, not too many at a time."""
    return [rows[at : at + RUN] for at in range(0, len(rows), RUN)] if len(rows) > RUN else [rows] if rows else ()


class Operator(ABC):
    """One running ``node``. ``marks``: the watermark of each input; ``mark``: the least of them, which it forwarded."""

    exact: ClassVar[bool] = False
    """Whether it asks of each row if it came behind the watermark. Then a row that its table's watermark has passed
    finds the operator at that watermark, whatever ``boundary`` says; ``boundary`` need only think of rows in time."""

    renews: ClassVar[bool] = False
    """Whether what it keeps besides its tables (timers) still names keys that gave way, until ``resume`` finds it
    again."""

    def __init__(self, node: Node, budget: Budget) -> None:
        self.node, self.budget = node, budget
        self.tables: list[Table[Any]] = []
        """All of its state; subclasses append what they make, always in the same order."""
        self.marks = [NEVER] * max(1, len(node.inputs))
        self.mark = NEVER
        self.outputs: list[tuple[Operator, int]] = []
        """Who takes its rows, and at which port."""
        self.retains = 0
        """How long after the newest of its rows (``Table.torn``) what it gives may still be of them, microseconds."""
        self.late = 0
        """Rows dropped because they came behind the watermark."""
        self.failed = 0
        """Rows dropped because an expression failed on them (an overflow of a cast, a division by zero)."""
        self._written: list[int] = []
        """Marks and counts as the last delta has them."""

    @classmethod
    def kind_for(cls, node: Any) -> type[Operator]:
        """The class that runs ``node``, where several of them run one class of nodes."""
        return cls

    @classmethod
    def shared_by(cls, node: Any) -> bytes:
        """Nodes for which this is equal run as one operator, which ``serve``s each; its state has this fingerprint."""
        fingerprint: bytes = node.fingerprint
        return fingerprint

    def serve(self, node: Node, outputs: list[tuple[Operator, int]]) -> None:
        """Give the rows of ``node`` to ``outputs``, which the network has not filled yet."""
        self.outputs = outputs

    def ready(self) -> None:  # noqa: B027
        """All of its nodes are known; before the first row."""

    def takers(self) -> list[tuple[Operator, int]]:
        """The outputs of all nodes that it runs."""
        return self.outputs

    def late_of(self, node: Node) -> int:
        """Rows dropped because they came behind the watermark, of one node."""
        return self.late

    def use(self, lookups: Mapping[str, Any]) -> None:  # noqa: B027
        """The lookups by name, before the first row and whenever one is replaced. Raises KeyError when one lacks what
        the node asks for."""

    def call_by(self, functions: Functions | None) -> None:  # noqa: B027  # most operators call none
        """Set what runs user functions, before the first row; None: they are not allowed."""

    @abstractmethod
    def push(self, port: int, rows: Sequence[Row]) -> None:
        """Rows of an input, in the order of the log, none of them empty runs."""

    def advance(self, port: int, mark: int) -> None:
        """The watermark of an input has come to ``mark`` (never back): give what is due, then forward."""
        self.marks[port] = mark
        least = min(self.marks)
        if least > self.mark:
            self.mark = least
            self.due(least)
            self.forward(least)

    def due(self, mark: int) -> None:  # noqa: B027
        """Give what the operator's watermark, now ``mark``, completes."""

    def boundary(self, mark: int) -> int:
        """The least watermark beyond ``mark`` that could change what this operator does with rows or gives.

        The default is right for what no watermark moves."""
        return FOREVER

    def emit(self, rows: list[Row], outputs: Sequence[tuple[Operator, int]] | None = None) -> None:
        """To ``outputs``, by default all: not too many at a time."""
        for run in runs(rows):
            for operator, port in self.outputs if outputs is None else outputs:
                operator.push(port, run)
            self.budget.give_way()

    def so_far(self, rows: list[Row]) -> list[Row]:
        """Within what may take long: give ``rows`` if they are many; those that are left."""
        self.budget.give_way()
        if len(rows) < RUN:
            return rows
        self.emit(rows)
        return []

    def passed(self, mark: int) -> int:
        """The watermark that it gives when its own is ``mark``: less where its rows may be older than that."""
        return mark

    def forward(self, mark: int) -> None:
        passed = self.passed(mark)
        for operator, port in self.outputs:
            operator.advance(port, passed)

    # --- state

    def delta(self) -> list[Any] | None:
        """Return what changed since the last call, for msgpack; None for nothing."""
        parts = [table.delta() for table in self.tables]
        counted = [*self.marks, self.late, self.failed]
        if counted == self._written and not any(parts):
            return None
        self._written = counted
        return [self.marks, self.late, self.failed, parts]

    def restore(self, data: Any) -> None:
        """Take over one ``delta``; in the order in which they were made, then ``resume``. Raises ValueError or
        TypeError for anything else."""
        marks, self.late, self.failed, parts = data
        self.marks, self.mark = list(marks), min(marks)
        self._written = [*marks, self.late, self.failed]
        for table, part in zip(self.tables, parts, strict=True):
            if part is not None:
                table.restore(part)

    def resume(self) -> None:  # noqa: B027
        """After the last ``restore``: find again what follows from the tables (timers)."""

    def touch(self) -> None:
        """The next ``delta`` holds everything."""
        self._written = []
        for table in self.tables:
            table.touch()
