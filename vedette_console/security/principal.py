"""Who asks, a user or an API token, and where they hold which role; and the one table of what is done in the console,
each act with the least role that may do it.

A grant names a role, a fleet and a site; ``*`` is every one. What someone may is the union of their grants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


ALL = "*"
ANYWHERE = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role at a place. ``fleet`` and ``site``: a name, or ``*``."""

    role: Role
    fleet: str = ALL
    site: str = ALL

    def covers(self, fleet: str, site: str) -> bool:
        """Whether the place is within this grant's; ``*`` asks for all places, "" for any one."""
        return self.fleet in (ALL, fleet or self.fleet) and self.site in (ALL, site or self.site)

    def meet(self, other: Grant) -> Grant | None:
        """The grant that both give; None for none."""
        fleets, sites = {self.fleet, other.fleet} - {ALL}, {self.site, other.site} - {ALL}
        if len(fleets) > 1 or len(sites) > 1:
            return None
        role = min(self.role, other.role, key=lambda role: role.rank)
        return Grant(role, next(iter(fleets), ALL), next(iter(sites), ALL))


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows that someone sees: all, or those of ``places``, pairs of fleet and site of which each may be ``*``."""

    all: bool
    places: tuple[tuple[str, str], ...] = ()

    def sees(self, fleet: str, site: str) -> bool:
        return self.all or any(place[0] in (ALL, fleet) and place[1] in (ALL, site) for place in self.places)


@dataclass(frozen=True, slots=True)
class Principal:
    """``kind``: "user" or "token"; ``acts``: those that a token is limited to, None for all of its role;
    ``label``: a token's name. ``name`` is that of the user, of a token that of its owner."""

    name: str
    kind: str
    grants: tuple[Grant, ...]
    acts: frozenset[str] | None = None
    label: str = ""

    @property
    def who(self) -> str:
        """The name as the audit log has it."""
        return self.name if self.kind == "user" else f"{self.name} (token {self.label})"

    @property
    def role(self) -> Role | None:
        """The highest, anywhere; None without any grant."""
        return max((grant.role for grant in self.grants), key=lambda role: role.rank, default=None)

    def may(self, act: str, fleet: str = ANYWHERE, site: str = ANYWHERE) -> bool:
        """Whether they may do ``act`` (of ``ACTS``; KeyError else) at a place.

        ``""``: at any place at all, so that a page may be opened whose rows are then chosen; ``*``: at all places, as
        what concerns a whole fleet needs. An act on the console itself always needs all.
        """
        least = ACTS[act]
        if self.acts is not None and act not in self.acts:
            return False
        if act in EVERYWHERE:
            fleet = site = ALL
        return any(grant.role.covers(least) and grant.covers(fleet, site) for grant in self.grants)

    def sites(self, act: str = "read") -> Scope:
        """The places at which they may do ``act``."""
        if not self.may(act):
            return Scope(False)
        places = {(grant.fleet, grant.site) for grant in self.grants if grant.role.covers(ACTS[act])}
        return Scope((ALL, ALL) in places, tuple(sorted(places)))


def user_of(who: str) -> str:
    """The name of the user of a ``Principal.who``, also where that is one of their tokens."""
    return who.partition(" (token ")[0]


def limited(wanted: Iterable[Grant], own: Iterable[Grant]) -> tuple[Grant, ...]:
    """The grants of ``wanted`` that someone with the grants ``own`` can give: no role or place more."""
    own = tuple(own)
    met = (grant.meet(other) for grant in wanted for other in own)
    return tuple(dict.fromkeys(grant for grant in met if grant is not None))
