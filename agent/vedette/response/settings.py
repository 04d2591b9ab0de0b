"""``[response]``: whether this host blocks addresses, which, and which never."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Literal

from vedette.model.settings import Name, Seconds

TABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
"""A name of nft that needs no quotes."""


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """A table ``[[response.block]]``: alerts that have an address blocked, and where in them it stands."""

    rules: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    level: Literal["informational", "low", "medium", "high", "critical"] = "informational"
    field: str = ""


@dataclass(frozen=True, slots=True)
class ResponseSettings:
    """Local response; no overlay of the fleet changes any of it."""

    enabled: bool = False
    dry_run: bool = False
    ttl: Seconds = 3600.0
    max_blocked: int = 1000
    allow: tuple[str, ...] = ()
    allow_sessions: bool = True
    table: Name = "vedette"
    block: tuple[BlockSettings, ...] = ()

    @property
    def live(self) -> bool:
        """Whether the firewall is touched."""
        return self.enabled and not self.dry_run

    def mistakes(self) -> Iterator[str]:
        """What is wrong, each with the key it is about."""
        if not TABLE.fullmatch(self.table):
            yield f".table: expects up to 32 letters, digits and '_', a letter first, not {self.table!r}"
        for i, text in enumerate(self.allow):
            try:
                ip_network(text, strict=False)
            except ValueError:
                yield f".allow[{i}]: expects an address or a network such as 192.0.2.0/24, not {text!r}"
        for i, one in enumerate(self.block):
            if not (one.rules or one.tags):
                yield f'.block[{i}]: needs rules or tags; rules = ["*"] means every rule'
