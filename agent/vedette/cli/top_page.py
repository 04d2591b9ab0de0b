"""The page of ``vedette top``: two looks at the running agent, and what happened between them.

A ``Look`` is what the agent answered at one moment. ``page`` gives lines of text, the first of each section its
heading; rates are per second between the two looks. Over a restart of the agent there are none. All text is safe for a
terminal; a line may be longer than the terminal is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vedette.bundle.manifest import rfc3339
from vedette.cli.status_page import amount
from vedette.system.terminal import safe

SECTION_MOST = 10
"""Lines of a section below its heading."""
SECTION_LEAST = 2
"""The same, on a terminal that has too few for all."""
INPUT, TITLE = 20, 44
"""Characters of an input's name and of a rule's title."""


class Look(NamedTuple):
    """``status`` and ``busiest``: as the control socket gives them; ``alerts``: lines, the newest last."""

    status: Mapping[str, Any]
    busiest: Mapping[str, Sequence[Mapping[str, Any]]]
    alerts: Sequence[str]

    @property
    def life(self) -> tuple[str, int]:
        return self.status["agent_id"], self.status["started_at"]

    @property
    def made(self) -> dict[tuple[str, str], int]:
        """Alerts by rule and rule sets, of those that alert most."""
        return {_key(row): row["alerts"] for row in self.busiest["alerts"]}


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["rule_id"], row["ruleset"]


class Section(NamedTuple):
    heading: str
    lines: Sequence[str]


Rate = Callable[[Callable[[Look], float]], float | None]
"""Of a count how much it grew a second; None where that is not known."""


def page(before: Look, now: Look, rows: int | None = None) -> list[str]:
    """At most ``rows`` lines; None: as many as there are."""
    status = now.status
    seconds = (status["time"] - before.status["time"]) / 1e6
    comparable = before.life == now.life and seconds > 0

    def rate(count: Callable[[Look], float]) -> float | None:
        """Per second."""
        return max(0.0, count(now) - count(before)) / seconds if comparable else None

    head = [*_head(now, rate), *_problems(status)]
    sections = [
        _inputs(now, rate),
        _by_cost(now),
        _by_alerts(before, now, rate),
        _state(status),
        Section("newest alerts", now.alerts[::-1]),
    ]
    return [
        *head,
        *_fitted([section for section in sections if section.lines], None if rows is None else rows - len(head)),
    ]


def _fitted(sections: Sequence[Section], rows: int | None) -> Iterator[str]:
    """The sections with a line between them: what the first do not take the later ones have."""
    left = rows
    for place, (heading, lines) in enumerate(sections):
        most = SECTION_MOST
        if left is not None:
            behind = sum(2 + min(SECTION_LEAST, len(section.lines)) for section in sections[place + 1 :])
            most = min(most, max(min(SECTION_LEAST, len(lines)), left - 2 - behind))
            if left < 3:
                return
            most = min(most, left - 2)
        shown = lines[:most]
        yield from ("", heading, *shown)
        if left is not None:
            left -= 2 + len(shown)


def _head(now: Look, rate: Rate) -> Iterator[str]:
    status = now.status
    alerts, totals, memory = status["alerts"], status["totals"], status["budgets"]["memory"]
    evaluated = rate(lambda look: sum(source["judged"] for source in look.status["inputs"].values()))
    candidates = rate(lambda look: look.status["totals"].get("candidates", 0))
    cpu = rate(lambda look: look.status["process"]["cpu_seconds"])
    share = f"{candidates / evaluated:.2%}" if evaluated and candidates is not None else "-"
    where = " ".join(f"{name} {safe(status[name])}" for name in ("site", "fleet") if status[name])
    yield (
        f"vedette {status['version']}  agent {safe(status['agent_id'])}  {where}  {status['state']}"
        f" {_span((status['time'] - status['started_at']) / 1e6)}  {rfc3339(status['time'])}"
    )
    yield (
        f"events   {_per_second(evaluated)} evaluated, lag {status['lag_events']:,} events,"
        f" {status['lag_seconds']:.1f} s; candidates {share}; CPU {'-' if cpu is None else f'{cpu:.0%}'},"
        f" memory {amount(memory['used'], 'bytes')} of {amount(memory['max'], 'bytes')}"
    )
    yield (
        f"alerts   {_per_second(rate(lambda look: look.status['alerts']['made']))} made, {alerts['made']:,} in all;"
        f" outbox {alerts['in_outbox']:,}, {amount(alerts['outbox_bytes'], 'bytes')} of"
        f" {amount(alerts['outbox_max_bytes'], 'bytes')}; lost {alerts['lost']:,}"
    )
    sent = rate(lambda look: look.status["totals"].get("bytes_sent", 0))
    uplink = ", ".join(f"{key} {safe(str(value))}" for key, value in status["uplink"].items())
    yield f"uplink   {uplink}; sent {amount(totals.get('bytes_sent', 0), 'bytes')}, {_bytes(sent)}"


def _problems(status: Mapping[str, Any]) -> Iterator[str]:
    """What somebody should look at."""
    for problem in status["problems"]:
        yield safe(f"NOT OK   {problem}")
    for name, row in status["budgets"].items():
        if row["reached"]:
            yield f"BUDGET   {name.replace('_', ' ')} is reached: {row['action']}"


def _inputs(now: Look, rate: Rate) -> Section:
    def counted(name: str, key: str) -> Callable[[Look], float]:
        return lambda look: look.status["inputs"].get(name, {}).get(key, 0)

    lines = []
    for name, counts in now.status["inputs"].items():
        gone = sum(counts["dropped"].values()) + sum(counts["lost"].values())
        lines.append(
            f"{_cut(name, INPUT):<{INPUT}}{_per_second(rate(counted(name, 'received'))):>12}"
            f"{_per_second(rate(counted(name, 'judged'))):>12}{_bytes(rate(counted(name, 'bytes_in'))):>14}"
            f"{now.status['backlog'].get(name, 0):>12,}{gone:>14,}"
        )
    heading = f"{'input':<{INPUT}}{'received':>12}{'evaluated':>12}{'bytes':>14}{'backlog':>12}{'dropped, lost':>14}"
    return Section(heading, lines)


def _by_cost(now: Look) -> Section:
    rows = now.busiest["cost"]
    return Section(
        f"{'rules by cost':<{TITLE}}{'share':>8}{'us an event':>13}{'alerts':>12}{_set(rows, 'rule set')}",
        [
            f"{_cut(row['title'], TITLE - 1):<{TITLE}}"
            f"{row['share']:>8.1%}{row['us_per_event']:>13.3f}{row['alerts']:>12,}{_set(rows, row['ruleset'])}"
            for row in rows
        ],
    )


def _by_alerts(before: Look, now: Look, rate: Rate) -> Section:
    def made(key: tuple[str, str]) -> Callable[[Look], float]:
        return lambda look: look.made.get(key, 0)

    rows = now.busiest["alerts"]
    lines = [
        f"{_cut(row['title'], TITLE - 1):<{TITLE}}{row['alerts']:>8,}"
        f"{_per_second(rate(made(_key(row))) if _key(row) in before.made else None):>13}{_set(rows, row['ruleset'])}"
        for row in rows
    ]
    return Section(f"{'rules by alerts':<{TITLE}}{'alerts':>8}{'made':>13}{_set(rows, 'rule set')}", lines)


def _set(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """A last column of the names of rule sets, where there are several."""
    return f"  {_cut(name, TITLE)}" if len({row["ruleset"] for row in rows}) > 1 else ""


def _state(status: Mapping[str, Any]) -> Section:
    state, sql = status["correlation_state"], status["statement_state"]
    most = sorted(state["correlations"], key=lambda relation: (-relation["groups"], relation["title"]))
    lines = [
        f"{_cut(relation['title'], TITLE - 1):<{TITLE}}{relation['groups']:>8,}{relation['fired']:>13,}"
        for relation in most
    ]
    if status["rules"]["statements"]:
        lines.insert(
            0, f"{status['rules']['statements']} statements: {amount(sql['bytes'], 'bytes')} of"
            f" {amount(sql['max_bytes'], 'bytes')}, {sql['evicted']:,} keys evicted",
        )  # fmt: skip
    of = f"correlations: {amount(state['bytes'], 'bytes')} of {amount(state['max_bytes'], 'bytes')}"
    return Section(f"{of:<{TITLE}}{'groups':>8}{'fired':>13}", lines)


def _per_second(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"


def _bytes(rate: float | None) -> str:
    return "-" if rate is None else f"{amount(round(rate), 'bytes')}/s"


def _cut(text: str, most: int) -> str:
    text = safe(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _span(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    return f"{days} d {rest // 3600} h" if days else f"{rest // 3600} h {rest % 3600 // 60} min"
