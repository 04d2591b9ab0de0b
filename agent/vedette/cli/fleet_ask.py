"""Asking hosts: fleet ask, do, evidence, fetch, cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli import asking, fleet_hunt
from vedette.cli.asking import Asking, as_json, asking_options, end, read_options, state, table
from vedette.cli.console import safe
from vedette.fleet.ask import ACTIONS, QUESTIONS
from vedette.model.times import written_time
from vedette.region import evidence as kept
from vedette.region.requests import Collection

MIB = 1 << 20
evidence_option = click.option(
    "--evidence", "place", type=click.Path(path_type=Path), default=Path("evidence"), show_default=True,
    help="Where evidence is kept, a folder an alert.",
)  # fmt: skip


@click.command()
@click.argument("question", type=click.Choice([*QUESTIONS]))
@click.argument("rule", required=False)
@asking_options
def ask(question: str, rule: str | None, **options: Any) -> None:
    """Ask hosts for their status, rules, disk or versions.

    `explain` takes the id of a RULE. An agent answers what its owner allows ([fleet] allow), to an operator whose role
    is viewer. Agents that do not answer are listed; exit code 1 when there are any.

    Example: vedette fleet ask disk --group 'site = vienna' --key ann.pem --broker mqtts://region.example:8883 …
    """
    if (question == "explain") != (rule is not None):
        raise ValueError("explain takes a rule's id, and no other question does")
    body = {"question": question, **({"rule": rule} if rule else {})}
    raise SystemExit(_shown(read_options(**options), "ask", body, TABLES[question]))


@click.command()
@click.argument("action", type=click.Choice([*ACTIONS]))
@click.option("--ruleset", default="", metavar="NAME", help="Of rollback: the rule set; default: the one of [bundles].")
@click.option("--version", type=click.IntRange(1), help="Of rollback: only where this version runs.")
@asking_options
def do(action: str, ruleset: str, version: int | None, **options: Any) -> None:
    """Have hosts reload, release their quarantine or roll a bundle back.

    For operators whose role is operator, on hosts whose owner allows "do". A rolled back bundle is not taken again from
    the fleet's documents until another is named.

    Example: vedette fleet do release-quarantine --agent web-1 --key otto.pem --broker mqtts://region.example:8883 …
    """
    more = {**({"ruleset": ruleset} if ruleset else {}), **({"version": version} if version else {})}
    raise SystemExit(_shown(read_options(**options), "do", {"action": action, **more}, _pairs))


@click.command()
@click.argument("alert", required=False)
@click.option("--around", type=click.IntRange(0, 10_000), default=200, show_default=True,
              help="Events of the same input before the alert's, and after it.")  # fmt: skip
@click.option("--alerts", "place_of_alerts", type=click.Path(path_type=Path), default=Path("landing"),
              show_default=True, help="A landing, a Delta table, or a file with the alert as JSON.")  # fmt: skip
@click.option("--from", "since", default="", metavar="TIME", help="Without ALERT: from when on, with --to and --agent.")
@click.option("--to", "until", default="", metavar="TIME", help="Until when.")
@click.option("--pattern", default="", metavar="REGEX", help="Only events in which it is found.")
@click.option("--input", "source", default="", metavar="NAME", help="Only events of this input.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Events at most.")
@click.option("--quiet", is_flag=True, help="Only store them.")
@evidence_option
@lambda command: asking_options(command, reason=True)
def evidence(
    alert: str | None, around: int, place_of_alerts: Path, since: str, until: str, pattern: str, source: str,
    limit: int, quiet: bool, place: Path, **options: Any,
) -> None:  # fmt: skip
    """Fetch the raw events around an alert, or of a time, from their host.

    Stored beside the alert with a manifest: digest, who asked, why. What the host's owner redacts ([[redact]]) does
    not leave it. For operators whose role is analyst. Exit code 1 when it is not whole; `vedette fleet fetch` goes on.

    Example: vedette fleet evidence ALERT_ID --around 200 --reason 'case 17' --key ann.pem --broker mqtts://…
    """
    if alert:
        try:
            found = kept.find(alert, place_of_alerts)
        except LookupError as error:
            raise ValueError(str(error)) from error
        options["agents"], options["group"] = (found.agent,), ""
        body: dict[str, Any] = {"ref": found.ref, "around": around}
    else:
        if not (since and until):
            raise ValueError("give an ALERT, or --agent with --from and --to")
        body = {"since": _time(since, "--from"), "until": _time(until, "--to"), "limit": limit}
        body |= {key: text for key, text in (("pattern", pattern), ("input", source)) if text}
    collection = asking.ask(read_options(**options), "evidence", body, alert=alert or "")
    raise SystemExit(_stored(collection, place, quiet, as_lines=not options["as_json"]))


@click.command()
@click.argument("id")
@evidence_option
@lambda command: asking_options(command, whom=False)
def fetch(id: str, place: Path, **options: Any) -> None:
    """Go on with the request ID: take what has not come yet, and show what has.

    Its first digits are enough. With --offline it shows what `vedette fleet import --answers` has brought.

    Example: vedette fleet fetch 1f0c29aa --key ann.pem --broker mqtts://region.example:8883 …
    """
    given = read_options(**options)
    collection = asking.fetch(given, id, fleet_hunt.News().came)
    if collection.request.kind == "hunt":
        raise SystemExit(fleet_hunt.shown(given, collection))
    if collection.request.kind == "evidence":
        raise SystemExit(_stored(collection, place, True, as_lines=not given.as_json))
    if given.as_json:
        as_json(collection)
    else:
        table([("agent", "state"), *((agent, state(collection, agent)) for agent in collection.answers)])
        show = TABLES.get(collection.request.body.get("question", ""), _pairs)
        if any(answer.have for answer in collection.answers.values()):
            show(collection)
    raise SystemExit(end(collection))


@click.command()
@click.argument("id")
@lambda command: asking_options(command, whom=False)
def cancel(id: str, **options: Any) -> None:
    """Stop the request ID on every agent that still works on it.

    By whoever may make requests of its kind. With --offline what stops it goes with `vedette fleet export --site`, in
    place of the request.

    Example: vedette fleet cancel 1f0c29aa --key ann.pem --broker mqtts://region.example:8883 …
    """
    given = read_options(**options)
    collection = asking.stop(given, id)
    if collection.request.kind == "hunt":
        fleet_hunt.shown(given, collection)
        return
    table([("agent", "state"), *((agent, state(collection, agent)) for agent in collection.answers)])


def _shown(options: Asking, kind: str, body: Mapping[str, Any], show: Callable[[Collection], None]) -> int:
    collection = asking.ask(options, kind, body)
    if options.as_json:
        as_json(collection)
    else:
        show(collection)
    return end(collection)


def _stored(collection: Collection, place: Path, quiet: bool, *, as_lines: bool) -> int:
    for agent, answer in collection.answers.items():
        if not answer.have:
            continue
        if not quiet and as_lines:
            for row in collection.records(agent):
                _line(row)
        path = kept.store(place, collection.alert or f"{agent}-{collection.request.id[:8]}", collection, agent)
        click.echo(safe(f"{agent}: {state(collection, agent)}: {path}"), err=True)
    if not as_lines:
        as_json(collection)
    return end(collection)


def _line(row: Mapping[str, Any]) -> None:
    if "note" in row:
        click.echo(safe(f"({row['note']})"))
        return
    mark = ">" if row.get("alert") else " "
    text = row.get("raw", f"base64:{row.get('raw_base64', '')}")
    click.echo(safe(f"{mark} {rfc3339(int(row['received_at']))} {row['input']}  {text}"))


def _time(text: str, option: str) -> int:
    time = written_time(text)
    if time is None:
        raise ValueError(f"{option}: {text!r} is no time; such as 2026-11-22T20:00:00Z")
    return time


# --- tables


def _status(collection: Collection) -> None:
    rows = [("agent", "state", "version", "bundle", "lag", "outbox", "rules", "quarantined", "dead")]
    for agent in collection.answers:
        for one in collection.records(agent):
            rules, alerts = one["rules"], one["alerts"]
            rows.append((
                agent, one["state"], one["version"], one["bundle"] or "none", f"{one['lag_events']}",
                f"{alerts['in_outbox']}", f"{rules['running'] + rules['correlations'] + rules['statements']}",
                f"{rules['quarantined_count']}", f"{rules['dead_count']}",
            ))  # fmt: skip
    table(rows)


def _rules(collection: Collection) -> None:
    rows = [("agent", "state", "level", "kind", "rule", "title")]
    for agent in collection.answers:
        rows += [
            (agent, one["state"], one["level"], one["kind"], one["rule_id"], one["title"])
            for one in collection.records(agent)
        ]
    table(rows)


def _texts(collection: Collection) -> None:
    for agent in collection.answers:
        lines = [str(one.get("text", "")) for one in collection.records(agent)]
        if lines:
            click.echo(safe(f"{agent}:"))
        for line in lines:
            click.echo(safe(f"  {line}"))


def _disk(collection: Collection) -> None:
    rows: list[tuple[str, ...]] = [("agent", "free", "of", "raw log", "of", "since", "outbox", "failing")]
    for agent in collection.answers:
        for one in collection.records(agent):
            sizes = [f"{one[key] // MIB} MiB" for key in ("disk_free_bytes", "disk_bytes", "raw_log_bytes",
                                                          "raw_log_max_bytes")]  # fmt: skip
            failing = ", ".join(map(str, one["failing"])) or "no"
            rows.append((agent, *sizes, rfc3339(one["raw_log_oldest"]), f"{one['outbox_bytes'] // MIB} MiB", failing))
    table(rows)


def _versions(collection: Collection) -> None:
    rows = [("agent", "vedette", "python", "kernel", "bundles", "system")]
    for agent in collection.answers:
        for one in collection.records(agent):
            bundles = ", ".join(f"{name}: {bundle or 'none'}" for name, bundle in one["bundles"].items())
            kernel = "native" if one["kernel"] else "python"
            rows.append((agent, one["vedette"], one["python"], kernel, bundles, one["system"]))
    table(rows)


def _pairs(collection: Collection) -> None:
    for agent in collection.answers:
        for one in collection.records(agent):
            click.echo(safe(f"{agent}: {', '.join(f'{key} {value}' for key, value in one.items())}"))


TABLES: Mapping[str, Callable[[Collection], None]] = {
    "status": _status, "rules": _rules, "explain": _texts, "disk": _disk, "versions": _versions,
}  # fmt: skip
