"""Hunting on hosts: fleet hunt, and how its replies are shown."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli import asking
from vedette.cli.asking import Asking, as_json, asking_options, end, read_options, state, table
from vedette.cli.console import fail, safe
from vedette.cli.options import instant, rule_plan
from vedette.engine.artifact import Artifact
from vedette.fleet.hunt import MAX_FIRST, packed
from vedette.fleet.replies import Part, records
from vedette.fleet.requests import MAX_SKEW
from vedette.region import requests
from vedette.region.hunts import HostFindings, added
from vedette.region.requests import Collection
from vedette.system.foreign import count, text

SECOND = 1_000_000
NEWS_SECONDS = 2.0
"""Between two lines about the progress of one agent."""


@click.command()
@click.argument("rules", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--since", default="30d", show_default=True, metavar="TIME", help="A time, or how long ago.")
@click.option("--until", default="", metavar="TIME", help="Until when; default: all.")
@click.option(
    "--first", type=click.IntRange(0, MAX_FIRST), default=20, show_default=True,
    help="Matches that each host sends: so many of single events, and so many of what fires over time.",
)  # fmt: skip
@click.option(
    "--pipeline", "pipelines", type=click.Path(path_type=Path), multiple=True, help="A pySigma pipeline for the rules."
)
@click.option("--lookup", "lookups", type=click.Path(path_type=Path), multiple=True,
              help="A lookup that they ask; it travels with them.")  # fmt: skip
@lambda command: asking_options(command, expires="24h")
def hunt(
    rules: tuple[Path, ...], since: str, until: str, first: int, pipelines: tuple[Path, ...],
    lookups: tuple[Path, ...], **options: Any,
) -> None:  # fmt: skip
    """Evaluate rules over the raw logs that hosts have stored.

    RULES are files, folders or one bundle (*.vbundle). Hosts evaluate them as `vedette scan` would, correlations and
    statements in SQL included, at idle priority and with half a core at most. A hunt goes on after --wait, and when a
    host is started again: `vedette fleet fetch` shows what it has found since, `vedette fleet cancel` stops it. For
    operators whose role is analyst, on hosts whose owner allows "hunt".

    Example: vedette fleet hunt rule.yml --agent web-1 --since 7d --key ann.pem --broker mqtts://region.example:8883 …
    """
    now = requests.moment()
    body = {
        "since": _time(since, now, "--since"),
        "until": _time(until, now, "--until") if until else now + MAX_SKEW,
        "first": first,
        "plan": base64.b64encode(packed(_plan(rules, pipelines, lookups))).decode(),
    }  # fmt: skip
    settings = read_options(**options)
    raise SystemExit(shown(settings, asking.ask(settings, "hunt", body, News().came)))


def _time(text: str, now: int, option: str) -> int:
    """A time, or how long before ``now``."""
    try:
        return max(0, instant(text, now))
    except ValueError as error:
        raise ValueError(f"{option}: {text!r} {error}") from error


def _plan(rules: tuple[Path, ...], pipelines: tuple[Path, ...], lookups: tuple[Path, ...]) -> bytes:
    """Without databases, which hosts compile themselves; with its lookups. Raises ValueError and OSError."""
    if any(path.suffix == ".vbundle" for path in rules):
        from vedette.bundle.install import read_bundle
        from vedette.bundle.trust import inspect
        from vedette.lookup.sets import bundled

        if len(rules) > 1 or pipelines or lookups:
            fail("one bundle, or rule files and folders; a bundle is built already")
        return bundled(inspect(read_bundle(rules[0])))._replace(databases={}).to_bytes()
    plan = rule_plan(rules, pipelines, lookups)
    for refusal in plan.refused:
        click.echo(safe(f"not run: {refusal}"), err=True)
    if not plan.rules:
        fail("no rule runs")
    asked = {name: plan.lookups[name].data for name, _ in plan.asked}
    return Artifact.without_databases(plan)._replace(lookups=asked).to_bytes()


class News:
    """Says on standard error how far each host is."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def came(self, agent: str, part: Part) -> None:
        host = HostFindings()
        host.take(row for row in records(part) if row.get("type") == "progress")
        last = host.progress
        if last is not None and time.monotonic() - self._said.get(agent, -NEWS_SECONDS) >= NEWS_SECONDS:
            self._said[agent] = time.monotonic()
            said = f"{agent}: {last.events:,} events, up to {rfc3339(last.reached)} ({100 * last.share:.0f} %)"
            click.echo(safe(f"{said}, {last.matches:,} matches"), err=True)


def shown(options: Asking, collection: Collection) -> int:
    """Print what hosts have found so far; the exit code."""
    if options.as_json:
        as_json(collection)
        return end(collection)
    agents = [("agent", "state", "events", "from", "up to", "matches")]
    hosts: dict[str, HostFindings] = {}
    for agent in collection.answers:
        findings = hosts[agent] = HostFindings()
        findings.take(collection.records(agent))
        figures = ("", "", "", "")
        if (last := findings.progress) is not None:
            begin, reached = (rfc3339(time) if time else "" for time in (last.oldest, last.reached))
            figures = f"{last.events:,}", begin, reached, f"{last.matches:,}"
        agents.append((agent, state(collection, agent).partition(":")[0], *figures))
    table(agents)
    for agent, findings in hosts.items():
        for match in findings.matches:
            fields = " ".join(f"{name}={value}" for name, value in match["fields"].items())
            place = f"{text(match.get('input'))}:{count(match.get('offset'))}"
            rule = f"{text(match.get('level'))} {text(match.get('rule_title'))}"
            click.echo(safe(f"{agent} {rule}: {place} {fields}"))
    counts, where = added(findings for findings in hosts.values() if findings.rules)
    if counts:
        table([
            ("rule", "level", "kind", "matches", "agents"),
            *((rule.title, rule.level, rule.kind, f"{n:,}", f"{where[rule]}") for rule, n in counts.most_common()),
        ])  # fmt: skip
    for agent, findings in hosts.items():
        for note in findings.notes:
            click.echo(safe(f"{agent}: {note}"), err=True)
    return end(collection)
