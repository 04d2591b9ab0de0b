"""How far changes have come, and an operator's word to the controller: fleet rollout show, pause, resume, abort."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click

from vedette.cli.console import json_line, safe
from vedette.cli.fleet_centre import trust_option
from vedette.cli.options import Number, broker_options, broker_settings
from vedette.region.repository import Repository
from vedette.region.sign import load_key, public_text
from vedette.region.steer import ordering
from vedette.region.steer.ordering import OLD_SECONDS
from vedette.region.steer.orders import COMMANDS, order
from vedette.runtime.agent.logs import log_to_stderr
from vedette.system.wallclock import utc_now


@click.group()
def rollout() -> None:
    """See how far changes have come, and stop them or let them go on.

    Example: vedette fleet rollout show --broker mqtts://region.example:8883
    """


@rollout.command("show")
@click.argument("change", default="")
@trust_option
@broker_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object per change.")
def rollout_show(change: str, folder: Path, as_json: bool, **broker: object) -> None:
    """Show each change: its ring, how its agents stand, what the gates found.

    CHANGE is an id or its beginning. As the controller last reported it, signed by its key. Exit code 1 when a change
    was aborted, or the controller does not report.

    Example: vedette fleet rollout show --broker mqtts://region.example:8883
    """
    log_to_stderr()
    repository = Repository(folder)
    report = asyncio.run(ordering.report(broker_settings(broker), repository))
    if report is None:
        click.echo("no controller has reported: vedette region steer", err=True)
        raise SystemExit(1)
    shown = [row for row in report["changes"] if row["change"].startswith(change)]
    for row in shown:
        for line in [json_line(row)] if as_json else _lines(row):
            click.echo(line if as_json else safe(line))
    age = abs(time.time() - report["time"])
    if age > OLD_SECONDS:
        click.echo(f"this is {age / 60:.0f} minutes off: is `vedette region steer` running, its clock right?", err=True)
    raise SystemExit(1 if age > OLD_SECONDS or any(row["state"] == "aborted" for row in shown) else 0)


def _lines(change: dict[str, Any]) -> list[str]:
    agents, ring = change["agents"], change.get("ring")
    way = f"{change['from'] or 'none'} -> {change['to'] or 'none'}"
    lines = [f"{change['change']}  {change['group']}  {change['what']}: {way}"]
    head = change["state"]
    if ring is not None:
        soak = f"{ring['left']:.0f} s of soak left" if "left" in ring else "the soak has not begun"
        head += f"  ring {ring['number']} of {ring['of']} ({ring['name']}), {soak}"
    lines.append(f"  {head}")
    if change["state"] == "aborted":
        lines.append(f"  {agents['back']} of {agents['given']} agents are back")
    elif agents["given"]:
        states = ", ".join(f"{agents[name]} {name}" for name in ("taken", "waiting", "refused", "away"))
        lines.append(f"  {agents['given']} agents have it: {states}; {agents['outside']} do not")
    lines += [f"  gate {name}: at {gate['with']} agents with the change, {gate['without']} without: "
              f"{'; '.join(gate['reasons'])}" for name, gate in change.get("gates", {}).items()]  # fmt: skip
    lines += [f"  {reason}" for reason in change["reasons"]]
    return lines


def _command(name: str, what: str) -> click.Command:
    @click.argument("change", default="")
    @trust_option
    @broker_options
    @click.option("--key", type=click.Path(path_type=Path), required=True,
                  help="Your private key as an operator (PEM, mode 0600).")  # fmt: skip
    @click.option("--as", "operator", default="", metavar="NAME", help="Your name as an operator; default: by key.")
    @click.option("--reason", default="", metavar="TEXT", help="Goes into the record.")
    @click.option("--wait", type=Number(0), default=30.0, show_default=True, help="Seconds to wait for the controller.")
    def run(
        change: str, folder: Path, key: Path, operator: str, reason: str, wait: float, **broker: object
    ) -> None:  # fmt: skip
        log_to_stderr()
        repository = Repository(folder)
        signer, settings = load_key(key), broker_settings(broker)
        text = public_text(signer)
        name_ = operator or ordering.operator_of(repository, text)
        if not name_:
            raise ValueError(f"{key}: no operator has this key: add an [[operator]] with {text} to fleet.toml")
        request = order(repository.fleet, name_, name, change, utc_now(), reason)

        async def send() -> str | None:
            await ordering.give(settings, repository.fleet, request.id, request.signed(signer))
            return await ordering.outcome(settings, repository, request.id, wait)

        outcome = asyncio.run(send())
        if outcome is None:
            click.echo("no controller has taken it yet; it holds for a day", err=True)
            raise SystemExit(1)
        click.echo(safe(outcome))
        raise SystemExit(0 if outcome.startswith("done") else 1)

    run.__doc__ = f"""{what}

    CHANGE is an id or its beginning; without one, all that are under way. For operators with the role operator
    ([[operator]] in fleet.toml). Exit code 1 when the controller refuses it, or has not taken it yet.

    Example: vedette fleet rollout {name} --key carol.pem --broker mqtts://region.example:8883
    """
    return click.command(name)(run)


_WHAT = {
    "pause": "Keep changes where they are; their gates still stop them.",
    "resume": "Let paused changes go on.",
    "abort": "Put changes back: everybody returns to what ran before.",
}
for _name in COMMANDS:
    rollout.add_command(_command(_name, _WHAT[_name]))
