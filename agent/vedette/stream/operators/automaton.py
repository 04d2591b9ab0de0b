"""The automaton of a pattern of MATCH_RECOGNIZE, as Flink 2.3 makes it.

A pattern is a chain of states; a state *takes* a row that meets a variable's condition, and leads
on, or lets the row *pass* to the next state where the variable may take no (further) row. A greedy variable puts "and
not mine" on every edge of the state that follows its own: a row fit for it never goes on, not even where it can take no
more (``X{1,3} Y`` over four rows fit for both finds nothing). ``?`` is never greedy. Where several edges are open, all
are followed. Each row begins a partial match, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from vedette.plan import query
from vedette.plan.pattern import greedy

Counts = tuple[int, ...]
"""Of each variable of the pattern how many rows it has."""


class Edge(NamedTuple):
    """``takes``: the row, else it passes. ``when``: the variable whose condition it must meet, -1 for none; ``unless``:
    the variables whose conditions it must not meet."""

    takes: bool
    target: int
    when: int
    unless: tuple[int, ...] = ()


FINAL = 0


class Automaton:
    """``edges``: of each state, in the order in which they are tried. ``variables``: of each state whose rows it takes.
    ``start``: where a match begins."""

    def __init__(self, pattern: tuple[query.Variable, ...]) -> None:
        self.edges: list[list[Edge]] = [[]]
        self.variables = [-1]
        self._moves: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
        self._none: Counts = (0,) * len(pattern)
        follows = FINAL
        for variable in range(len(pattern) - 1, -1, -1):
            follows = self._variable(variable, pattern[variable], follows)
        self.start = follows

    def _variable(self, number: int, variable: query.Variable, follows: int) -> int:
        """The first state of a variable; ``follows`` is that of the next."""
        _, least, most, _ = variable
        optional = least == 0
        least = max(1, least)
        if greedy(variable) and least != most:
            self.edges[follows] = [edge._replace(unless=(*edge.unless, number)) for edge in self.edges[follows]]
        state = follows
        if most is None:
            state = self._state(number, [Edge(False, follows, -1)])
            self.edges[state].append(Edge(True, state, number))
        for _ in range(0 if most is None else most - least):
            state = self._state(number, [Edge(True, state, number), Edge(False, follows, -1)])
        for _ in range(least - 1):
            state = self._state(number, [Edge(True, state, number)])
        return self._state(number, [Edge(True, state, number), *([Edge(False, follows, -1)] if optional else [])])

    def _state(self, variable: int, edges: list[Edge]) -> int:
        self.edges.append(edges)
        self.variables.append(variable)
        return len(self.edges) - 1

    def moves(self, state: int, met: int) -> tuple[tuple[int, int], ...]:
        """As ``step``, where the bits of ``met`` say which conditions the row meets: target and the variable that takes
        the row."""
        targets = self._moves.get((state, met))
        if targets is None:
            after = self.step(state, self._none, lambda variable: bool(met >> variable & 1))
            targets = self._moves[state, met] = tuple((target, more.index(1)) for target, more in after)
        return targets

    def step(self, state: int, counts: Counts, meets: Callable[[int], bool]) -> Iterator[tuple[int, Counts]]:
        """Where a partial match in ``state`` is after a row; ``meets`` says which conditions the row meets."""

        def is_open(edge: Edge) -> bool:
            return (edge.when < 0 or meets(edge.when)) and not any(map(meets, edge.unless))

        ahead = [state]
        takes = []
        while ahead:
            at = ahead.pop()
            for edge in self.edges[at]:
                if is_open(edge):
                    if edge.takes:
                        takes.append(edge)
                    else:
                        ahead.append(edge.target)
        for edge in takes:
            more = (*counts[: edge.when], counts[edge.when] + 1, *counts[edge.when + 1 :])
            yield edge.target, more
            ahead = [edge.target]
            while ahead:  # whether nothing more is needed
                for edge in self.edges[ahead.pop()]:
                    if not edge.takes and is_open(edge):
                        if edge.target == FINAL:
                            yield FINAL, more
                            ahead.clear()
                            break
                        ahead.append(edge.target)
