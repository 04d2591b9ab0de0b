"""What of the fleet someone may see: the one place that decides it, for pages, the API and news. Of tables it is
``data/scope.py``.

* An agent is seen by its site.
* A group is seen with one of its agents, or whole: when none of its agents can be at a site that is not seen. Only then
  is shown what is of all its agents at once: sums, reasons, gates, the record.
* How many agents there are means those that are seen.
"""

from __future__ import annotations

from collections.abc import Collection

from vedette.fleet.documents import Group
from vedette_console.fleet.live import Beat, Live
from vedette_console.fleet.models import Link
from vedette_console.fleet.places import may_on_group
from vedette_console.security.principal import Principal


class Sight:
    """Of ``who``, at this moment."""

    def __init__(self, live: Live, who: Principal) -> None:
        self._live, self._who, self._scope = live, who, who.sites()

    def beats(self, fleet: str = "") -> list[Beat]:
        """Agents of ``fleet``, of all fleets with ""."""
        return [beat for beat in self._live.beats(fleet) if self._scope.sees(beat.fleet, beat.site)]

    def beat(self, fleet: str, agent: str) -> Beat | None:
        """One agent; None also for one that is not seen, so that nobody learns whether there is one."""
        beat = self._live.beat(fleet, agent)
        return beat if beat is not None and self._scope.sees(fleet, beat.site) else None

    def link(self) -> Link:
        link = self._live.link()
        return link if self._scope.all else link.model_copy(update={"agents": len(self.beats()), "dropped": 0})

    def whole(self, fleet: str, group: Group) -> bool:
        return may_on_group(self._who, "read", fleet, group, {beat.site for beat in self._live.beats(fleet)})

    def groups(self, fleet: str, groups: Collection[Group], of_agents: Collection[str]) -> list[Group]:
        """Those that are seen; ``of_agents``: names of the groups of agents that are seen."""
        return [group for group in groups if group.name in of_agents or self.whole(fleet, group)]
