"""What hosts have found so far: the records of a hunt's replies (``fleet/huntjob.py``), added up. Pure.

A record is what an agent says: of a wrong form it counts for nothing, and of each host at most MAX_MATCHES matches and
MAX_RULES rules are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vedette.fleet.hunt import MAX_FIRST
from vedette.system.foreign import count, items, listed, table, text

MAX_MATCHES = 2 * MAX_FIRST
"""So many of single events, and so many of what fires over time."""
MAX_RULES = 5_000
MAX_TEXT = 500
"""Characters of a title or a reason."""
LOST = {
    "gone": "were deleted before they were looked at", "damaged": "cannot be read",
    "unreachable": "are in an archive that did not give them",
    "failed": "made the evaluation fail",
}  # fmt: skip


class Hunted(NamedTuple):
    """A rule that matched."""

    id: str
    title: str
    level: str
    kind: str


class Progress(NamedTuple):
    """How far a host is: times are UTC microseconds, 0: none yet. ``share``: of the time that is looked at, 0 to 1."""

    events: int
    matches: int
    oldest: int
    reached: int
    share: float
    ended: bool


@dataclass(slots=True)
class HostFindings:
    """Of one host, in the order in which its records came."""

    last: Mapping[str, Any] | None = None
    """The newest record of progress, or the end."""
    rules: dict[Hunted, int] = field(default_factory=dict)
    """Those that matched, once it has ended."""
    running: Mapping[str, int] = field(default_factory=dict)
    """Matches by title so far."""
    matches: list[Mapping[str, Any]] = field(default_factory=list)

    def take(self, records: Iterable[Mapping[str, Any]]) -> None:
        for row in records:
            kind = row.get("type")
            if kind == "match" and len(self.matches) < MAX_MATCHES and isinstance(row.get("fields"), dict):
                self.matches.append(row)
            elif kind == "rule" and len(self.rules) < MAX_RULES:
                hunted = Hunted(*(text(row.get(name), MAX_TEXT) for name in Hunted._fields))
                self.rules[hunted] = self.rules.get(hunted, 0) + count(row.get("count"))
            elif kind in ("progress", "end") and self._newer(row):
                self.last = row
                if isinstance(rules := row.get("rules"), dict):
                    self.running = {title[:MAX_TEXT]: count(n) for title, n in [*rules.items()][:MAX_RULES]}

    def _newer(self, row: Mapping[str, Any]) -> bool:
        last = self.last
        if last is None or row.get("type") == "end":
            return True
        return last.get("type") != "end" and count(row.get("events")) >= count(last.get("events"))

    @property
    def progress(self) -> Progress | None:
        """None: it has said nothing yet."""
        if (row := self.last) is None:
            return None
        events, matches, oldest, reached, until = (
            count(row.get(name)) for name in ("events", "matches", "oldest", "reached", "until")
        )
        ended = row.get("type") == "end"
        share = 1.0 if ended else min(1.0, max(0, reached - oldest) / max(1, until - oldest))
        return Progress(events, matches, oldest, reached, share, ended)

    @property
    def notes(self) -> list[str]:
        """What its last report says besides matches."""
        last = self.last or {}
        said = [f"{count(last[name]):,} events {why}" for name, why in LOST.items() if last.get(name)]
        said += [
            f"{text(rule.get('title'))} could not be decided on {count(rule.get('events')):,} events: "
            + text(rule.get("reason"), MAX_TEXT)
            for rule in map(table, items(last.get("undecided")))
            if rule
        ]
        said += [f"not run: {rule}" for rule in listed(last.get("not_run"))]
        return said + [f"not correlated: {rule}" for rule in listed(last.get("not_correlated"))]


def added(hosts: Iterable[HostFindings]) -> tuple[Counter[Hunted], Counter[Hunted]]:
    """Matches by rule over all hosts, and at how many hosts; of those that have not ended by what they have said so
    far, which names a rule by its title alone."""
    counts: Counter[Hunted] = Counter()
    agents: Counter[Hunted] = Counter()
    for host in hosts:
        ended = host.last is not None and host.last.get("type") == "end"
        by_title = {text(row.get("rule_title"), MAX_TEXT): row for row in host.matches}
        rules = host.rules if ended else {_running(title, by_title): n for title, n in host.running.items()}
        counts.update(rules)
        agents.update(rules.keys())
    return counts, agents


def _running(title: str, by_title: Mapping[str, Mapping[str, Any]]) -> Hunted:
    row = by_title.get(title, {})
    id, level, kind = (text(row.get(name), MAX_TEXT) for name in ("rule_id", "level", "kind"))
    return Hunted(id, title, level, kind)
