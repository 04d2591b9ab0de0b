"""Roles, and the one table of what is done in the console: each act with the least role that may do it."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Each may what those before it may."""

    VIEWER = "viewer"
    ANALYST = "analyst"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _ORDER.index(self)

    def covers(self, other: Role) -> bool:
        return self.rank >= other.rank


_ORDER = tuple(Role)

ACTS: dict[str, Role] = {
    "read": Role.VIEWER,
    "export": Role.VIEWER,
    "search.save": Role.VIEWER,
    "tokens.own": Role.VIEWER,
    "triage": Role.ANALYST,
    "evidence": Role.ANALYST,
    "hunt": Role.ANALYST,
    "rules.try": Role.ANALYST,
    "report": Role.ANALYST,
    "rollout.pause": Role.OPERATOR,
    "rollout.resume": Role.OPERATOR,
    "rollout.abort": Role.OPERATOR,
    "rollout.propose": Role.OPERATOR,
    "fleet.ask": Role.OPERATOR,
    "users": Role.ADMIN,
    "tokens": Role.ADMIN,
    "audit.read": Role.ADMIN,
    "settings": Role.ADMIN,
}
"""``rules.try``: lint, explain, test, backtest. ``fleet.ask``: anything else that agents are asked for."""

EVERYWHERE = frozenset({"users", "tokens", "audit.read", "settings"})
"""Acts on the console itself: they need a grant on all fleets and sites."""
