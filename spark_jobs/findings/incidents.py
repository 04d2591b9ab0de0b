"""Which risks are one incident: who is over the threshold, and the hosts and sites at which it is.

What surprises (``findings.surprise``) at a site on a day is taken for one thing, by whatever entity it is met. Whoever
acts (a user, an address, a device) leads, then hosts, then sites, each by its score. One of which ``SHARED`` of the
points are of rules, days and sites of a leader's incident belongs to it, and what else it has met does from then on; a
host also where these are ``SHARED`` of the leader's points: whoever struck it need not be named by all that followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

SHARED = 0.5

_TURN = {"host": 1, "site": 2}
"""Who acts comes before where it is."""


def leaders(risks: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The ``risk_id`` of each of ``risks`` that are over, and that of whoever leads its incident, may be itself.

    ``contributions`` have ``sites`` (``FLEET/SITE``), and are those listed.
    """
    over = [row for row in risks if row["over"]]
    over.sort(key=lambda row: (_TURN.get(row["kind"], 0), -row["score"] / row["threshold"], row["risk_id"]))
    incidents: dict[tuple[str, Any, str], set[str]] = defaultdict(set)
    own: dict[str, float] = {}
    led = {}
    for row in over:
        cells = [
            ({(part["rule_id"], part["time"].date(), site) for site in part["sites"]}, part["points"])
            for part in row["contributions"]
        ]
        whole = sum(points for _, points in cells)
        shared: dict[str, float] = defaultdict(float)
        for those, points in cells:
            for leader in set().union(*(incidents.get(cell, ()) for cell in those)):
                shared[leader] += points
        leader = max(shared, key=lambda name: (shared[name], name), default="")
        most = shared.get(leader, 0.0)
        of = min(whole, own[leader]) if leader and row["kind"] == "host" else whole
        if not most or most < SHARED * of:
            leader, own[row["risk_id"]] = row["risk_id"], whole
        led[row["risk_id"]] = leader
        for cell in set().union(*(those for those, _ in cells)):
            incidents[cell].add(leader)
    return led
