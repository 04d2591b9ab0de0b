"""Desired against actual: what a plan would change where, and what each agent's heartbeat says of what it should run.

Pure: documents and heartbeats in, rows out. A heartbeat is what an agent reports of itself; nothing is decided by it
here but what people are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vedette.fleet.documents import Change, Desired, Group, Rollout, Target, Wanted, wanted
from vedette.fleet.labels import labels_of
from vedette.system.foreign import listed, table, text

AWAY, UNKNOWN, PROBLEM, BEHIND, AS_WANTED = "away", "no fleet", "problem", "behind", "as wanted"
"""States of an agent: its last will; it has no ``[fleet]``; it says why not; it does not run it yet; it does."""


class Row(NamedTuple):
    """One agent."""

    agent_id: str
    group: str
    """Empty: none."""
    state: str
    reasons: tuple[str, ...]


class Difference(NamedTuple):
    """What a group shall run that it did not: "bundles main", from and to, and whether the change is new."""

    group: str
    what: str
    before: Target | None
    after: Target | None


def rows(desired: Desired, rollout: Rollout | None, heartbeats: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Every agent that has ever reported, by group (in the document's order) and id."""
    rows = [_row(desired, rollout, agent_id, beat) for agent_id, beat in heartbeats.items()]
    order = {group.name: i for i, group in enumerate(desired.groups)}
    return sorted(rows, key=lambda row: (order.get(row.group, len(order)), row.agent_id))


def _row(desired: Desired, rollout: Rollout | None, agent_id: str, beat: Mapping[str, Any]) -> Row:
    actual = beat.get("actual")
    if beat.get("state") == "lost":
        return Row(agent_id, "", AWAY, ("its connection was lost",))
    if not isinstance(actual, dict):
        return Row(agent_id, "", UNKNOWN, ("its configuration has no [fleet] root",))
    group = wanted(desired, rollout, agent_id, labels_of(beat))
    if group is None:
        return Row(agent_id, "", AS_WANTED, ("in no group: it stays as it is",))
    reasons = listed(actual.get("problems"))
    behind = [*_behind(desired, rollout, group, actual)]
    state = PROBLEM if reasons else BEHIND if behind else AS_WANTED
    return Row(agent_id, group.group, state, (*reasons, *behind))


def _behind(desired: Desired, rollout: Rollout | None, group: Wanted, actual: Mapping[str, Any]) -> Iterator[str]:
    """In what the agent differs from what is wanted."""
    if actual.get("desired_serial") != desired.serial:
        yield f"follows desired serial {text(actual.get('desired_serial')) or 'none'}, not {desired.serial}"
    elif rollout is not None and actual.get("rollout_serial") != rollout.serial:
        yield f"follows roll-out serial {text(actual.get('rollout_serial')) or 'none'}, not {rollout.serial}"
    loaded = table(actual.get("bundles"))
    for name, target in group.bundles.items():
        runs = table(loaded.get(name))
        if target is not None and runs.get("sha256") != target.sha256:
            yield f"bundle {name}: runs {_short(runs.get('sha256'))}, wanted {_short(target.sha256)}"
    has = table(actual.get("lookups"))
    for name in has:
        if group.lookups.get(name) is None:
            yield f"lookup {name}: is not taken away yet"
    for name, target in group.lookups.items():
        sha256 = table(has.get(name)).get("sha256")
        if target is not None and sha256 != target.sha256:
            yield f"lookup {name}: has {_short(sha256)}, wanted {_short(target.sha256)}"
    release = table(actual.get("release"))
    if group.release is not None and release.get("sha256") != group.release.sha256:
        runs_release = text(release.get("id")) or text(release.get("version")) or "none"
        yield f"release: runs {runs_release}, wanted {_short(group.release.sha256)}"
    for kind in listed(actual.get("waits")):
        yield f"{kind}: waits for a window"
    config = table(actual.get("config"))
    overlay = "" if group.config is None else group.config.sha256
    if config.get("overlay", "") != overlay:
        yield f"overlay: {_short(config.get('overlay'))}, wanted {_short(overlay)}"
    elif not config.get("confirmed", True):
        yield "overlay: not confirmed yet"


def differences(before: Desired | None, after: Desired) -> list[Difference]:
    """What ``after`` changes, group by group; a group that is gone leaves its agents as they are."""
    former = {group.name: _changes(group) for group in before.groups} if before else {}
    differing = []
    for group in after.groups:
        olds = former.get(group.name, {})
        for what, change in _changes(group).items():
            old = olds.get(what)
            if old is None or old.id != change.id:
                differing.append(Difference(group.name, what, change.from_, change.to))
    return differing


def members(desired: Desired, heartbeats: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Agents by group, of those whose heartbeat states labels."""
    by_group: dict[str, list[str]] = {group.name: [] for group in desired.groups}
    for agent_id, beat in sorted(heartbeats.items()):
        if isinstance(beat.get("actual"), dict) and (group := desired.group(labels_of(beat))) is not None:
            by_group[group.name].append(agent_id)
    return by_group


def _changes(group: Group) -> dict[str, Change]:
    return {f"{kind} {name}".strip(): change for kind, name, change in group.changes()}


def _short(sha256: object) -> str:
    return text(sha256)[:12] or "none"
