"""At which site a member is: the one place that decides it, for the landing and the console.

The site is the label ``site`` that the region has of the member, from its token or by ``vedette member move``. What
the agent itself states counts only where the region has none: for who is not enrolled in ``members.json``, and for who
was enrolled without that label. A member that states another site than the region's is noted. ``default`` is what an
agent states whose own file sets no site: it contradicts nothing.

A member that was revoked keeps its site: what it had sent before may still come. ``members.json`` is read again when it
has changed; one that cannot be read leaves what was read before in force, and is logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from vedette.config.settings import AgentSettings
from vedette.model.counters import Log
from vedette.region.members import SITE, load
from vedette.system.durable import stamp

log = structlog.get_logger()

FILE = "members.json"
UNSET = ("", AgentSettings().site)
"""What an agent states that has no site of its own."""


class Place(NamedTuple):
    """Where an agent is. ``stated``: the other site that it states; None: it states none, or the region has none."""

    site: str | None
    stated: str | None = None

    @property
    def note(self) -> str:
        """That the agent states another site, for who looks after it; empty: it does not."""
        return "" if self.stated is None else f"states another site than it is enrolled at: {self.stated}"


class Whereabouts:
    """The sites of members, by the region's folder or a copy of its ``members.json``."""

    def __init__(self, folder: Path | None) -> None:
        """``folder`` None: the region has a site of nobody. Raises OSError and ValueError."""
        self._path = None if folder is None else folder / FILE
        self._sites: Mapping[tuple[str, str], str] = {}
        self._seen: tuple[int, int, int] | None = None
        self._fault = ""
        if self._path is not None:
            self._read(self._path)

    def look(self) -> bool:
        """Whether the file has changed, and was read again: which may take a second for 100,000 members."""
        if self._path is None:
            return False
        try:
            changed = self._read(self._path)
            self._fault = ""
            return changed
        except (OSError, ValueError) as error:
            if self._fault != str(error):
                self._fault = str(error)
                action = "sites stay as they were read before; restore the file, or copy it again"
                log.error(Log.MEMBERS_UNREADABLE, file=str(self._path), reason=self._fault, action=action)
            return False

    def place(self, fleet: str, agent: str, stated: str | None) -> Place:
        """Where the member ``agent`` of ``fleet`` is, which itself states the site ``stated``."""
        site = self._sites.get((fleet, agent))
        if site is None:
            return Place(stated)
        return Place(site, None if stated is None or stated in (site, *UNSET) else stated)

    def _read(self, path: Path) -> bool:
        with path.open("rb") as file:
            seen = stamp(file.fileno())
        if seen == self._seen:
            return False
        _, _, members = load(path)
        self._sites = {
            (member.fleet, name): member.labels[SITE] for name, member in members.items() if SITE in member.labels
        }
        self._seen = seen
        return True
