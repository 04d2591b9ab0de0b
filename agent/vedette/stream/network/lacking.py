"""Statements whose rows may lack something, because state of their operators gave way to the budget.

What gave way was of rows up to a time (``Table.torn``); an operator gives nothing more of them once its watermark is
``retains`` beyond that, nor do those above it once theirs is beyond what each retains. Until then a statement's rows
may be of fewer events than there were. Which of its groups or windows these are is not known: knowing it would take the
room that is lacking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vedette.plan.query import Node, Statement, nodes
from vedette.stream.keyed import EVER, Table
from vedette.stream.operators.base import NEVER, Operator


class Lacking:
    """``operators``: by fingerprint of their state; ``runs``: by node, without scans."""

    def __init__(
        self, statements: Sequence[Statement], operators: Mapping[bytes, Operator], runs: Mapping[bytes, Operator]
    ) -> None:
        self._statements, self._operators, self._runs = statements, operators, runs
        self._until: dict[bytes, int] = {}
        """By fingerprint of an operator."""
        self._written: dict[bytes, int] = {}
        self._open: dict[str, list[int]] = {}
        """By statement until when, and the watermark of its rows when none was left to be taken."""

    def lose(self, tables: Iterable[Table[Any]]) -> None:
        """Keys of these gave way."""
        lossy = {*tables}
        for fingerprint, operator in self._operators.items():
            torn = max((table.torn for table in operator.tables if table in lossy), default=NEVER)
            if torn > NEVER and (until := min(EVER, torn + operator.retains)) > self._until.get(fingerprint, NEVER):
                self._until[fingerprint] = until
                self._look(operator)

    def _look(self, operator: Operator | None = None) -> None:
        """Find the statements above."""
        for statement in self._statements:
            running = [self._runs[node.fingerprint] for node in nodes(statement.root) if node.fingerprint in self._runs]
            if (operator is None or operator in running) and (until := self._until_of(statement.root)) > running[
                -1
            ].mark:
                self._open.setdefault(statement.id, [0, running[-1].mark])[0] = until

    def _until_of(self, node: Node) -> int:
        operator = self._runs.get(node.fingerprint)
        if operator is None:
            return NEVER
        below = max(map(self._until_of, node.inputs), default=NEVER)
        own = next((until for name, until in self._until.items() if self._operators.get(name) is operator), NEVER)
        return max(own, min(EVER, below + operator.retains) if below > NEVER else NEVER)

    def of(self, statement: Statement) -> bool:
        """Whether rows of it that have not been taken may lack something."""
        bounds = self._open.get(statement.id)
        return bounds is not None and bounds[0] > bounds[1]

    def taken(self) -> None:
        """No row is left that has not been taken."""
        for statement in self._statements if self._open else ():
            if (bounds := self._open.get(statement.id)) is not None:
                bounds[1] = self._runs[statement.root.fingerprint].mark
                if bounds[1] >= bounds[0]:
                    del self._open[statement.id]
        if not self._open:
            self._until.clear()

    # --- state

    def delta(self) -> dict[bytes, int] | None:
        """All of it, where it has changed since the last call; None for nothing."""
        if self._until == self._written:
            return None
        self._written = dict(self._until)
        return self._written

    def restore(self, data: Any) -> None:
        """Take over one ``delta``; then ``resume``. Raises ValueError or TypeError for anything else."""
        self._until = {name: int(until) for name, until in dict(data).items() if name in self._operators}
        self._written = dict(self._until)

    def resume(self) -> None:
        self._open = {}
        if self._until:
            self._look()

    def touch(self) -> None:
        self._written = {}
