"""The fleet: what its operators do, where the region is installed, and what a host's owner may look at."""

from __future__ import annotations

import re
from pathlib import Path

import click

from vedette.cli.carry import carry_in, carry_out
from vedette.cli.console import Commands, config_option, json_line, safe
from vedette.fleet.audit import Audit, Head, verify

OPERATORS = ("init", "plan", "sign", "apply", "status", "rotate")
HEAD = ("prev", "seq", "time", "event")
"""What every line of a record has."""
ASKING = ("ask", "do", "evidence", "fetch", "cancel")
REGION = {
    **dict.fromkeys(OPERATORS, "fleet_centre"),
    **dict.fromkeys(ASKING, "fleet_ask"),
    "rollout": "fleet_rollout",
    "hunt": "fleet_hunt",
    "export": "fleet_carry:export",  # these two on an edge are those of this file
    "import": "fleet_carry:take",
}


@click.group(cls=Commands, region=REGION)
def fleet() -> None:
    """Say what all agents of a fleet shall run, and see what they run.

    Example: vedette fleet plan fleet.toml
    """


@fleet.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
def fleet_import(file: Path, config: Path) -> None:
    """Take a zip that was carried here by hand: the fleet's signed files, and what its operators ask.

    The agent looks at it at once, with the checks of what a broker brings. Exit code 1 when it refuses a request.

    Example: vedette fleet import linz.zip
    """
    carry_in(config, file)


@fleet.command("export")
@click.option("--answers", is_flag=True, required=True, help="What the agent answers: status, record, replies.")
@click.option("--out", type=click.Path(path_type=Path), help="The file. Default: AGENT-answers.zip.")
@config_option
def fleet_export(answers: bool, out: Path | None, config: Path) -> None:
    """Write a zip for the region, to be carried there by hand.

    Example: vedette fleet export --answers
    """
    carry_out(config, out)


@fleet.command("audit")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--known", "anchor", metavar="SEQ:DIGEST", default="", help="A line that was seen before, as heartbeats report it."
)
@click.option("--show", is_flag=True, help="Print its lines, but for their digests.")
def fleet_audit(path: Path, anchor: str, show: bool) -> None:
    """Check that an audit record was not changed.

    Of the centre (trust/audit.jsonl, requests/audit.jsonl) or of an agent (fleet/audit.jsonl in its data folder): there
    its owner reads who asked what. Exit code 1 when a line was changed or removed.

    Example: vedette fleet audit trust/audit.jsonl
    """
    match = re.fullmatch(r"(\d{1,12}):([0-9a-f]{64})", anchor)
    if anchor and match is None:
        raise ValueError(f"{anchor!r} is not SEQ:DIGEST, such as 17:{'0' * 8}…")
    head, fault = verify(path, Head(int(match[1]), match[2]) if match else None)
    if fault is not None:
        click.echo(safe(f"{path}:{fault.line}: {fault.reason}"), err=True)
        raise SystemExit(1)
    for row in Audit(path).lines() if show else ():
        facts = " ".join(f"{name}={_word(value)}" for name, value in row.items() if name not in HEAD)
        click.echo(safe(f"{row['time']} {row['event']} {facts}"))
    click.echo(f"{path}: good: {head.seq} lines, newest {head.seq}:{head.digest}")


def _word(value: object) -> str:
    """A text as it is, where it is one word; anything else as JSON."""
    return value if isinstance(value, str) and value and value.isprintable() and " " not in value else json_line(value)
