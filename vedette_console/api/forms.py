"""Shapes that several routes take or give: grants, and times as the API writes them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vedette_console.security.principal import ALL, Grant
from vedette_console.security.roles import Role

Place = Annotated[str, Field(max_length=64, pattern=r"^(\*|[A-Za-z0-9_]([A-Za-z0-9_.\-]{0,62}[A-Za-z0-9_])?)$")]
"""The name of a fleet or a site, or ``*``."""
Name = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.@\-]{0,62}[A-Za-z0-9_])?$")]
"""The name of a user."""
Label = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name that a user gives to something."""


class GrantForm(BaseModel):
    """A role at a fleet and a site; ``*`` is every one."""

    model_config = ConfigDict(extra="forbid")

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
