"""Where someone may act: on an agent by its site, on a group only when none of its agents can be elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vedette.fleet import labels
from vedette.fleet.documents import Group
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
