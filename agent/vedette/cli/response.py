"""What this host blocks: response list, block, undo, flush, test. Each asks the running agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli.console import config_option, data_folder, data_option, json_line, safe
from vedette.model.times import seconds as parse_seconds

SECONDS = 60.0
"""For an answer: each transaction of nft may take 10 s."""


@click.group()
def response() -> None:
    """Addresses that this host blocks, by alerts or by hand.

    Example: vedette response list
    """


def _ask(config: Path, data_dir: Path | None, action: str, **words: Any) -> Any:
    """The answer; what is refused ends with exit code 1."""
    from vedette.runtime.agent.control import ask

    folder = data_folder(config, data_dir)
    try:
        return ask(folder / "control.sock", "response", seconds=SECONDS, action=action, **words)
    except ValueError as error:
        click.echo(safe(f"vedette: {error}"), err=True)
        raise SystemExit(1) from None


@response.command("list")
@config_option
@data_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with all that is allowed.")
def response_list(config: Path, data_dir: Path | None, as_json: bool) -> None:
    """Show what is blocked, until when and why, and what never is.

    Exit code 1 when local response is off.

    Example: vedette response list
    """
    report = _ask(config, data_dir, "list")
    if as_json:
        click.echo(json_line(report, indent=True))
        return
    for row in report["addresses"]:
        why = f"{row['by']} {row['rule_id']}".strip()
        click.echo(safe(f"{row['address']:<39} until {rfc3339(row['until'])} ({row['seconds']} s)  {why}"))
    dry = " (dry run: none is)" if report["dry_run"] else ""
    click.echo(f"{report['blocked']} of at most {report['max_blocked']} addresses blocked{dry}")
    for row in report["allowed"]:
        click.echo(safe(f"never {row['network']} ({row['reason']})"))
    if report["problem"]:
        click.echo(safe(f"FAILING: {report['problem']}"), err=True)


def _duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float:
    if value is None:
        return 0.0
    try:
        duration = parse_seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not 1 <= duration <= 30 * 86400:
        raise click.BadParameter("expects 1s to 30d")
    return duration


@response.command("block")
@config_option
@data_option
@click.option("--for", "ttl", metavar="DURATION", callback=_duration, help="As 90s, 15m, 2h. Default: response.ttl.")
@click.option("--reason", default="", metavar="TEXT", help="Why; in the audit record and in the list.")
@click.argument("address")
def response_block(config: Path, data_dir: Path | None, ttl: float, reason: str, address: str) -> None:
    """Block an address by hand.

    What is allowed is not blocked by hand either. Exit code 1 when it is refused.

    Example: vedette response block 203.0.113.9 --for 2h --reason "port scan"
    """
    click.echo(_ask(config, data_dir, "block", address=address, ttl=ttl, reason=reason[:200])["text"])


@response.command("undo")
@config_option
@data_option
@click.argument("address")
def response_undo(config: Path, data_dir: Path | None, address: str) -> None:
    """Stop blocking an address.

    Alerts that were detected before do not block it again, also after a restart; a new one does. To prevent that, put
    the address into response.allow. Exit code 1 when it is not blocked.

    Example: vedette response undo 203.0.113.9
    """
    click.echo(_ask(config, data_dir, "undo", address=address)["text"])


@response.command("flush")
@config_option
@data_option
def response_flush(config: Path, data_dir: Path | None) -> None:
    """Stop blocking all addresses.

    As undo does for each.

    Example: vedette response flush
    """
    click.echo(f"{_ask(config, data_dir, 'flush')['undone']} addresses are not blocked any more")


@response.command("test")
@config_option
@data_option
@click.argument("address", required=False, default="")
def response_test(config: Path, data_dir: Path | None, address: str) -> None:
    """Try whether the agent could block, and ADDRESS of all; nothing is changed.

    Has nft check the whole table, with the agent's own rights. Exit code 1 when it could not block.

    Example: vedette response test 203.0.113.9
    """
    click.echo(_ask(config, data_dir, "test", address=address)["text"])
