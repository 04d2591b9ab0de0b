"""Opening a plan's statements. The operators, expressions and functions of this room are 50 modules: they are imported
by the first plan that has statements, or where functions are allowed, so that an agent whose rules are detections and
correlations goes without: such a plan has ``NoStatements``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from vedette.plan.plan import Plan

if TYPE_CHECKING:
    from vedette.stream.operators.base import AtWork
    from vedette.stream.statements import Statements
    from vedette.stream.userfunctions import Functions


class NoStatements:
    """What evaluation asks of a plan's statements, answered for none; ``max_bytes``: what tables could take."""

    refused: tuple[NoReturn, ...] = ()
    slow = False
    waiting = taken = dropped = 0

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes

    def __bool__(self) -> bool:
        return False

    def wants(self, rule_id: str) -> bool:
        return False

    def read(self, rule_id: str, event: object) -> list[NoReturn]:
        return []

    def add(self, rule_id: str, event: object) -> None:
        pass

    def feed(self, rows: Iterable[object]) -> None:
        pass

    def advance(self, running: int) -> None:
        pass

    def take(self) -> Iterator[NoReturn]:
        return iter(())

    def finish(self) -> Iterator[NoReturn]:
        return iter(())

    def failures(self) -> list[NoReturn]:
        return []

    def muted(self) -> set[str]:
        return set()

    def mute(self, ids: Collection[str]) -> None:
        pass

    def status(self) -> dict[str, Any]:
        """Return the keys of ``Statements.status``."""
        return {
            "bytes": 0,
            "max_bytes": self._max_bytes,
            "evicted": 0,
            "waiting": 0,
            "waiting_bytes": 0,
            "dropped": 0,
            "timeless": 0,
            "unfit": 0,
            "statements": [],
            "without_functions": [],
            "for_sinks": [],
            "functions": {},
        }

    def delta(self) -> bytes:
        return b""

    def resume(self) -> None:
        pass

    def touch(self) -> None:
        pass


def opened(
    plan: Plan, *, max_bytes: int = 64 << 20, functions: Functions | None = None, at_work: AtWork | None = None
) -> Statements | NoStatements:
    """Return the statements of ``plan``, with its lookups and modules; arguments are those of ``Statements``."""
    if not (plan.statements or functions):
        return NoStatements(max_bytes)
    return loaded(plan, max_bytes=max_bytes, functions=functions, at_work=at_work)


def loaded(
    plan: Plan, *, max_bytes: int = 64 << 20, functions: Functions | None = None, at_work: AtWork | None = None
) -> Statements:
    """As ``opened``, also of a plan that has none, to take over what another one's have left."""
    from vedette.stream.statements import Statements

    return Statements(
        plan.statements, plan.lookups, max_bytes=max_bytes, functions=functions, modules=plan.modules, at_work=at_work
    )
