"""Forms that several routes take or give: parameters, grants, and times as the API writes them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator, ConfigDict, Field

from vedette_console.data.query import MAX_SEARCH
from vedette_console.data.rows import MAX_DAYS
from vedette_console.security.principal import ALL, Grant, Role
from vedette_console.web import MAX_LIMIT, Model, Problem, Sent

Place = Annotated[str, Field(max_length=64, pattern=r"^(\*|[A-Za-z0-9_]([A-Za-z0-9_.\-]{0,62}[A-Za-z0-9_])?)$")]
"""The name of a fleet or a site, or ``*``."""
UserName = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.@\-]{0,62}[A-Za-z0-9_])?$")]
Label = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name that a user gives to something."""

Q = Annotated[str, Query(max_length=MAX_SEARCH, description="a search, as docs/console.md has its language")]
Part = Annotated[str, Query(max_length=1_000, description="what a name or value is to hold")]
Kind = Annotated[str, Query(max_length=100)]
Days = Annotated[int, Query(ge=1, le=MAX_DAYS)]
After = Annotated[str, Query(max_length=4_000, description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
RequestId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


def start_of(after: Annotated[str, Query(max_length=9)] = "") -> int:
    """Rows before a page of a list of the fleet's. Raises Problem 422."""
    if after and not (after.isascii() and after.isdigit()):
        raise Problem(422, f"{after!r} is no cursor", where="after", what_to_do="send `next` of the page before")
    return int(after or 0)


START = Depends(start_of)


class GrantForm(Sent):
    """A role at a fleet and a site; ``*`` is every one."""

    role: Role
    fleet: Place = ALL
    site: Place = ALL

    def grant(self) -> Grant:
        return Grant(self.role, self.fleet, self.site)


def forms(grants: Iterable[Grant]) -> list[GrantForm]:
    return [GrantForm(role=grant.role, fleet=grant.fleet, site=grant.site) for grant in grants]


def iso(moment: int) -> str:
    """UTC microseconds as ISO 8601, to the millisecond."""
    return datetime.fromtimestamp(moment / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[str, BeforeValidator(iso)]
"""UTC microseconds, answered as ``iso`` has them."""


class Stored(Model):
    """An answer of what a row of the store has under the same names."""

    model_config = ConfigDict(frozen=True, from_attributes=True)
