"""Asking hosts: fleet ask, do, evidence, fetch, cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli import asking, fleet_hunt
from vedette.cli.asking import Asking, as_json, asking_options, end, read_options, state, table
from vedette.cli.console import safe
from vedette.cli.options import FIRST, LAST
from vedette.fleet.ask import ACTIONS, QUESTIONS
from vedette.fleet.replies import MAX_RECORD
from vedette.model.times import written_time
from vedette.region import evidence as kept
from vedette.region.requests import Collection
from vedette.system.foreign import count, text

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
            sighting = kept.find(alert, place_of_alerts)
        except LookupError as error:
            raise ValueError(str(error)) from error
        options["agents"], options["group"] = (sighting.agent,), ""
        body: dict[str, Any] = {"ref": sighting.ref, "around": around}
    else:
        if not (since and until):
            raise ValueError("give an ALERT, or --agent with --from and --to")
        body = {"since": _time(since, "--from"), "until": _time(until, "--to"), "limit": limit}
        body |= {key: value for key, value in (("pattern", pattern), ("input", source)) if value}
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
    settings = read_options(**options)
    collection = asking.fetch(settings, id, fleet_hunt.News().came)
    if collection.request.kind == "hunt":
        raise SystemExit(fleet_hunt.shown(settings, collection))
    if collection.request.kind == "evidence":
        raise SystemExit(_stored(collection, place, True, as_lines=not settings.as_json))
    if settings.as_json:
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
    settings = read_options(**options)
    collection = asking.stop(settings, id)
    if collection.request.kind == "hunt":
        fleet_hunt.shown(settings, collection)
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
        click.echo(safe(f"({text(row['note'])})"))
        return
    mark, when = ">" if row.get("alert") else " ", rfc3339(count(row.get("received_at")))
    raw = row.get("raw", f"base64:{row.get('raw_base64', '')}")
    click.echo(safe(f"{mark} {when} {text(row.get('input'))}  {raw}"))


def _time(said: str, option: str) -> int:
    time = written_time(said)
    if time is None or not FIRST <= time <= LAST:
        raise ValueError(f"{option}: {said!r} is no time; such as 2026-11-22T20:00:00Z")
    return time


# --- tables


def _rows(collection: Collection, names: str, cells: Callable[[Mapping[str, Any]], Sequence[object]]) -> None:
    """A row of ``cells`` for each record; one of a wrong form says so, and hides no other agent's."""
    columns = names.split()
    rows = [("agent", *(name.replace("_", " ") for name in columns))]
    for agent in collection.answers:
        for record in collection.records(agent):
            try:
                texts = [text(cell) for cell in cells(record)]
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                texts = ["of a wrong form", *[""] * (len(columns) - 1)]
            rows.append((agent, *texts))
    table(rows)


def _status(collection: Collection) -> None:
    def cells(record: Mapping[str, Any]) -> Sequence[object]:
        rules, alerts = record["rules"], record["alerts"]
        running = rules["running"] + rules["correlations"] + rules["statements"]
        return (
            record["state"], record["version"], record["bundle"] or "none", record["lag_events"], alerts["in_outbox"],
            running, rules["quarantined_count"], rules["dead_count"],
        )  # fmt: skip

    _rows(collection, "state version bundle lag outbox rules quarantined dead", cells)


def _rules(collection: Collection) -> None:
    names = ("state", "level", "kind", "rule_id", "title")
    _rows(collection, "state level kind rule title", lambda record: [record[name] for name in names])


def _texts(collection: Collection) -> None:
    for agent in collection.answers:
        lines = [text(record.get("text"), MAX_RECORD) for record in collection.records(agent)]
        if lines:
            click.echo(safe(f"{agent}:"))
        for line in lines:
            click.echo(safe(f"  {line}"))


def _disk(collection: Collection) -> None:
    def cells(record: Mapping[str, Any]) -> Sequence[object]:
        free, size, log, most, outbox = (
            f"{record[key] // MIB} MiB" for key in ("disk_free_bytes", "disk_bytes", "raw_log_bytes",
                                                    "raw_log_max_bytes", "outbox_bytes")
        )  # fmt: skip
        failing = ", ".join(map(text, record["failing"])) or "no"
        return free, size, log, most, rfc3339(record["raw_log_oldest"]), outbox, failing

    _rows(collection, "free of raw_log of since outbox failing", cells)


def _versions(collection: Collection) -> None:
    def cells(record: Mapping[str, Any]) -> Sequence[object]:
        bundles = ", ".join(f"{name}: {bundle or 'none'}" for name, bundle in record["bundles"].items())
        kernel = "native" if record["kernel"] else "python"
        return record["vedette"], record["python"], kernel, bundles, record["system"]

    _rows(collection, "vedette python kernel bundles system", cells)


def _pairs(collection: Collection) -> None:
    for agent in collection.answers:
        for record in collection.records(agent):
            click.echo(safe(f"{agent}: {', '.join(f'{key} {value}' for key, value in record.items())}"))


TABLES: Mapping[str, Callable[[Collection], None]] = {
    "status": _status, "rules": _rules, "explain": _texts, "disk": _disk, "versions": _versions,
}  # fmt: skip
