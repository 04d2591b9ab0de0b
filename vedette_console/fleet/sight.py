"""The part of the fleet that someone may see and act on: the one place that decides it, for pages, the API and news.
Of tables it is ``data/scope.py``.

* An agent is seen, and acted on, by its site.
* A group is acted on only when none of its agents can be elsewhere. It is seen with one of its agents, or whole: when
  none of its agents can be at a site that is not seen. Only then is shown what is of all its agents at once: sums,
  reasons, gates, the record.
* How many agents there are means those that are seen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from vedette.fleet import labels
from vedette.fleet.documents import Group
from vedette_console.fleet.live import Beat, Live
from vedette_console.fleet.models import Link
from vedette_console.security.principal import ALL, Principal
from vedette_console.web import Problem, require

_ELSEWHERE = "?"
"""A site that no label can name: it stands for all that nobody has heard of."""
_WORD = re.compile(r"[A-Za-z0-9._-]+")


def may_on_group(who: Principal, act: str, fleet: str, group: Group, sites: Iterable[str]) -> bool:
    """Whether ``who`` may do ``act`` on every agent that the group can have. ``sites``: those that were heard of."""
    if who.may(act, fleet, ALL):
        return True
    candidates = {*sites, *_WORD.findall(group.match), _ELSEWHERE} - {""}
    outside = [site for site in candidates if not who.may(act, fleet, site)]
    return who.may(act, fleet) and not any(labels.possible(group.expression, {"site": site})[0] for site in outside)


def need_group(who: Principal, act: str, fleet: str, group: Group, sites: Iterable[str]) -> None:
    """Raises Problem 403."""
    if not may_on_group(who, act, fleet, group, sites):
        require(who, act)
        raise Problem(403, f"{who.name} may not do this to all of group {group.name}: {act}", where="group",
                      what_to_do="it can have agents at other sites: ask who may act on all of them")  # fmt: skip


class Sight:
    """The sight of ``who``, at this moment."""

    def __init__(self, live: Live, who: Principal) -> None:
        self._live, self._who, self._scope = live, who, who.sites()

    def beats(self, fleet: str = "") -> list[Beat]:
        """Agents of ``fleet``, of all fleets with ""."""
        return [beat for beat in self._live.beats(fleet) if self._scope.sees(beat.fleet, beat.site)]

    def beat(self, fleet: str, agent: str) -> Beat | None:
        """One agent; None also for one that is not seen, so that nobody learns whether there is one."""
        beat = self._live.beat(fleet, agent)
        return beat if beat is not None and self._scope.sees(fleet, beat.site) else None

    def need_beat(self, fleet: str, agent: str) -> Beat:
        """The same. Raises Problem 404."""
        if (beat := self.beat(fleet, agent)) is None:
            raise Problem(404, f"no agent {agent} of fleet {fleet} was heard", where="agent",
                          what_to_do="see /fleet for those that were: is it away, or of another fleet?")  # fmt: skip
        return beat

    def link(self) -> Link:
        link = self._live.link()
        return link if self._scope.all else link.model_copy(update={"agents": len(self.beats()), "dropped": 0})

    def whole(self, fleet: str, group: Group) -> bool:
        return may_on_group(self._who, "read", fleet, group, {beat.site for beat in self._live.beats(fleet)})

    def groups(self, fleet: str, groups: Collection[Group], of_agents: Collection[str]) -> list[Group]:
        """Those that are seen; ``of_agents``: names of the groups of agents that are seen."""
        return [group for group in groups if group.name in of_agents or self.whole(fleet, group)]
