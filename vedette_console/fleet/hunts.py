"""Hunts: rules over what hosts have stored, started here, followed until all have answered, shown as they come on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from vedette.fleet import labels
from vedette.fleet.requests import MAX_AGENTS, MAX_LIFE, MAX_SKEW, Request
from vedette.model.times import seconds, written_time
from vedette.region import requests
from vedette.region.hunts import added
from vedette.system import foreign
from vedette.system.wallclock import utc_now
from vedette_console.fleet.authoring import Authoring, rules_in, said
from vedette_console.fleet.desk import RULES, Asked, Desk, answer_row, job, totals_of
from vedette_console.fleet.documents import Contents, Documents
from vedette_console.fleet.live import Beat, Live
from vedette_console.fleet.means import need_requests, reasoned, signer
from vedette_console.fleet.models_asked import HostCount, HuntOrder, HuntPage, HuntRow, Match, RuleCount
from vedette_console.fleet.notes import Note
from vedette_console.fleet.sight import Sight
from vedette_console.security.principal import ALL, Principal
from vedette_console.settings import Settings
from vedette_console.web import Listing, Problem, part_of, written

SHOWN_AGENTS, SHOWN_MATCHES, SHOWN_RULES, SHOWN_NOTES = 500, 200, 500, 100
MAX_FIELDS, MAX_VALUE = 60, 1000


class Hunts:
    def __init__(self, settings: Settings, live: Live, documents: Documents, desk: Desk, authoring: Authoring) -> None:
        self._settings, self._live, self._documents, self._desk = settings, live, documents, desk
        self._authoring = authoring

    async def start(self, who: Principal, order: HuntOrder) -> HuntPage:
        """Raises Problem."""
        contents = await asyncio.to_thread(self._documents.read)
        need_requests(self._settings)
        name, key = await asyncio.to_thread(signer, self._settings, contents, "analyst")
        now = requests.moment()
        since, until = (
            moment(order.since, now, "since"),
            moment(order.until, now, "until") if order.until else now + MAX_SKEW,
        )
        if since >= until:
            raise Problem(422, "until must be after since", where="until")
        expires = now + lasting(order.expires)
        whom = chosen(Sight(self._live, who).beats(contents.fleet), contents, who, "hunt", order.group, order.agents)
        whole = bool(order.group) and who.may("hunt", contents.fleet, ALL)
        if not whole and len(whom) > MAX_AGENTS:
            raise Problem(422, f"{len(whom)} agents: at most {MAX_AGENTS} by name", where="group",
                          what_to_do="hunt at fewer sites")  # fmt: skip
        plan, titles, findings = await self._authoring.plan(who, order.rules)
        request = Request(
            contents.fleet, "hunt", name, now, expires,
            {"since": since, "until": until, "first": order.first, "plan": plan},
            None if whole else tuple(sorted(whom)), order.group if whole else None, reasoned(order.reason, who.who),
        )  # fmt: skip
        more = {
            "since": since, "until": until, "group": order.group,
            "not_run": [said(finding) for finding in findings][:SHOWN_NOTES],
        }  # fmt: skip
        title = ", ".join(titles)[:200] or "rules that others look at"
        texts = {file.path: file.text or "" for file in order.rules}
        asked = await self._desk.ask(request, key, whom, title=title, by=who.who, more=more, rules=texts)
        return await asyncio.to_thread(page, asked, who)

    def listed(self, who: Principal, offset: int = 0, limit: int = 50) -> Listing[HuntRow]:
        part = part_of(self._desk.notes.listed(who, "hunt"), offset, limit, lambda brief: self._row(brief.id, who))
        return Listing(items=[row for row in part.items if row is not None], total=part.total, next=part.next)

    def _row(self, id: str, who: Principal) -> HuntRow | None:
        note = self._desk.note(id)
        return None if note is None else row(note, who, self._at_hand(note, who))

    def _at_hand(self, note: Note, who: Principal) -> Asked | None:
        """The hunt with its replies, where the note's totals are not all, or not for ``who``; None: it is damaged, or
        gone meanwhile."""
        if note.state and len(note.seen(who)) == len(note.sites):
            return None
        return self._desk.at_hand(note.id)

    def hunt(self, who: Principal, id: str) -> HuntPage:
        """Raises Problem 404."""
        return page(self._desk.of(who, id, "hunt"), who)


def chosen(
    beats: Iterable[Beat], contents: Contents, who: Principal, act: str, group: str, agents: Iterable[str]
) -> dict[str, str]:
    """The agents to ask of ``beats``, those that ``who`` sees, with the site of each: those of ``agents``, or whose
    labels match, where ``who`` may. Those that are away answer when they are back. Raises Problem."""
    named = dict.fromkeys(agents)
    if bool(named) == bool(group):
        raise Problem(422, "whom? give a group (a label expression, or all) or agents", where="group")
    heard = {beat.agent: beat for beat in beats}
    if named:
        if lacking := [agent for agent in named if agent not in heard]:
            raise Problem(404, f"no agent {lacking[0]} of fleet {contents.fleet} was heard", where="agents")
        chosen_beats = [heard[agent] for agent in named]
        if forbidden := [beat for beat in chosen_beats if not who.may(act, beat.fleet, beat.site)]:
            raise Problem(403, f"{who.name} may not do this at the site of {forbidden[0].agent}: {act}", where="agents")
    else:
        try:
            expression = labels.parse(group)
        except ValueError as error:
            raise Problem(
                422, f"group: {error}", where="group", what_to_do="such as: site = vienna, or: all"
            ) from error
        matching = [beat for beat in heard.values() if (own := beat.labels) and expression.matches(own)]
        chosen_beats = [beat for beat in matching if who.may(act, beat.fleet, beat.site)]
        if not chosen_beats and matching:
            raise Problem(403, f"{who.name} may do this at none of the sites of {group!r}: {act}", where="group")
    if not chosen_beats:
        raise Problem(422, f"no agent that was heard has labels for {group!r}", where="group",
                      what_to_do="see /fleet for the labels there are")  # fmt: skip
    return {beat.agent: beat.site for beat in sorted(chosen_beats, key=lambda beat: beat.agent)}


def moment(text: str, now: int, where: str) -> int:
    """UTC microseconds of a time, or of how long before ``now``. Raises Problem 422."""
    if (time := written_time(text)) is not None:
        return max(0, time)
    try:
        return max(0, now - round(seconds(text)) * 1_000_000)
    except ValueError as error:
        raise Problem(422, f"{where}: {text!r} is neither a time nor how long ago", where=where,
                      what_to_do="write 2026-11-22T20:00:00Z, or 30d") from error  # fmt: skip


def lasting(text: str) -> int:
    """Microseconds for which a request holds. Raises Problem 422."""
    try:
        span = round(seconds(text) * 1e6)
    except ValueError as error:
        raise Problem(422, f"expires: {error}", where="expires", what_to_do="write 24h") from error
    if not 60_000_000 <= span <= MAX_LIFE:
        raise Problem(422, "expires: from 1m to 7d", where="expires")
    return span


def row(note: Note, who: Principal, asked: Asked | None) -> HuntRow:
    totals, seen = totals_of(note, who, asked), note.seen(who)
    share = 1.0 if note.state else None
    if asked is not None and seen:
        share = sum(_share(asked, agent) for agent in asked.collection.answers if agent in seen) / len(seen)
    more = note.more
    return HuntRow(
        **{**job(note, who, asked, utc_now()).model_dump(), "kind": "hunt"}, since=written(more.get("since")),
        until=written(more.get("until")), events=totals.events, matches=totals.matches, share=share,
        group=foreign.text(more.get("group")) or ", ".join(agent for agent in note.sites if agent in seen)[:500],
    )  # fmt: skip


def _share(asked: Asked, agent: str) -> float:
    host = asked.hosts.get(agent)
    last = host.progress if host is not None else None
    return 1.0 if asked.collection.answers[agent].over else last.share if last is not None else 0.0


def page(asked: Asked, who: Principal) -> HuntPage:
    """A hunt, of the agents that ``who`` may see. Blocking; raises Problem 503."""
    try:
        texts = rules_in(asked.collection.folder / RULES)
    except OSError as error:
        raise Problem(503, f"its rules cannot be read: {error}") from error
    note, seen = asked.note, asked.note.seen(who)
    hosts = {agent: host for agent, host in [*asked.hosts.items()] if agent in seen}
    agents = [agent for agent in asked.collection.answers if agent in seen]
    counts, where = added(hosts.values())
    rules = [
        RuleCount(rule_id=rule.id, title=rule.title, level=rule.level, kind=rule.kind, matches=count,
                  agents=where[rule])
        for rule, count in counts.most_common(SHOWN_RULES)
    ]  # fmt: skip
    by_host = [HostCount(agent=agent, site=note.sites.get(agent, ""), matches=last.matches)
               for agent, host in hosts.items() if (last := host.progress) is not None and last.matches]  # fmt: skip
    matches = [match(agent, note.sites.get(agent, ""), row) for agent, host in hosts.items() for row in host.matches]
    more = note.more
    notes = [f"{agent}: {note}" for agent, host in hosts.items() for note in host.notes]
    return HuntPage(
        hunt=row(note, who, asked), agents=[answer_row(asked, agent) for agent in agents[:SHOWN_AGENTS]],
        agents_count=len(agents), rules=rules,
        hosts=sorted(by_host, key=lambda host: (-host.matches, host.agent))[:SHOWN_AGENTS],
        matches=matches[:SHOWN_MATCHES], matches_count=len(matches), not_run=[*map(str, more.get("not_run", []))],
        notes=notes[:SHOWN_NOTES], texts=texts,
    )  # fmt: skip


def match(agent: str, site: str, row: Mapping[str, Any]) -> Match:
    """A row as ``vedette scan`` has it, with "input" for "file" and "offset" for "line"."""
    fields = row["fields"]
    time = row.get("event_time", row.get("received_at"))
    return Match(
        agent=agent, site=site, rule_id=foreign.text(row.get("rule_id")), title=foreign.text(row.get("rule_title")),
        level=foreign.text(row.get("level")), kind=foreign.text(row.get("kind")), input=foreign.text(row.get("input")),
        offset=foreign.count(row.get("offset")), time=time if isinstance(time, str) else written(time),
        fields={str(key)[:200]: str(value)[:MAX_VALUE] for key, value in [*fields.items()][:MAX_FIELDS]},
    )  # fmt: skip
