"""The centre: region publish, land, status."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import click

from vedette.cli.console import fail, json_line, safe
from vedette.cli.console_server import console
from vedette.cli.enroller import enroller, token
from vedette.cli.options import Number, broker_options, broker_settings
from vedette.cli.steer import steer
from vedette.region.sign import load_key
from vedette.system.within import is_name


@click.group()
def region() -> None:
    """Publish bundles, land alerts, find missing ones.

    Example: vedette region land --broker mqtt://region:1883 --landing /srv/landing
    """


@region.command()
@click.argument("paths", type=click.Path(path_type=Path), metavar="PATH", nargs=-1, required=True)
@broker_options
@click.option("--fleet", metavar="NAME", help="Not published unless it is signed for this fleet.")
@click.option("--channel", metavar="NAME", help="Not published unless it is signed for this channel.")
@click.option("--landing", type=click.Path(path_type=Path), help="Also keep a bundle's rule list in this landing.")
@click.option("--previous", type=click.Path(path_type=Path),
              help="Of a lookup, the file of the version before: agents that have it fetch what differs.")  # fmt: skip
def publish(
    paths: tuple[Path, ...], fleet: str | None, channel: str | None, landing: Path | None, previous: Path | None,
    **broker: object,
) -> None:  # fmt: skip
    """Publish bundles and lookups to the fleet and channel that they are signed for.

    Each PATH is a bundle or a lookup (.vlookup). All agents of the fleet that follow the channel fetch it. A lookup
    travels in blocks, which agents fetch as far as they lack them.

    Example: vedette region publish plants-1.vbundle --broker mqtt://region:1883
    """
    from vedette.bundle.install import read_bundle
    from vedette.config.settings import LogSettings
    from vedette.region.lookups import publish_lookup
    from vedette.region.publish import publish as publish_bundle
    from vedette.runtime.agent.logs import configure_logging

    configure_logging(LogSettings(level="warning"))
    _check_names(fleet, channel)
    tables = [path for path in paths if path.suffix == ".vlookup"]
    if previous is not None and len(tables) != 1:
        fail("--previous goes with one lookup")
    settings = broker_settings(broker)
    for path in paths:
        try:
            if path in tables:
                table = asyncio.run(publish_lookup(settings, path, previous=previous, fleet=fleet, channel=channel))
                click.echo(
                    f"{path}: published {table.name} version {table.version[:12]} to fleet {table.fleet}, channel"
                    f" {table.channel}: {table.blocks} blocks; {table.lacking:,} bytes for an agent without it"
                    + (f", {table.changed:,} for one that has the version before" if previous else "")
                )
                continue
            announced = asyncio.run(
                publish_bundle(settings, read_bundle(path), fleet=fleet, channel=channel, landing=landing)
            )
        except (OSError, ValueError, TimeoutError) as error:
            fail(f"not published: {path}: {error}")
        click.echo(
            f"{path}: published version {announced.version} to fleet {announced.fleet}, channel {announced.channel}"
        )


def _check_names(fleet: str | None, channel: str | None) -> None:
    """End with exit code 2 for what is no name: in a topic it may be a wildcard, or lead to another channel."""
    for option, name in (("--fleet", fleet), ("--channel", channel)):
        if name is not None and not is_name(name):
            fail(f"{option} {safe(name)}: expects letters, digits, '_', '-' or '.' (at most 128, no '.' first)")


@region.command()
@broker_options
@click.option("--key", type=click.Path(path_type=Path), help="Private key from `bundle keygen`; of rules required.")
@click.option("--fleet", metavar="NAME", required=True, help="The agents' agent.fleet.")
@click.option("--channel", metavar="NAME", required=True, help="The rule set's channel.")
@click.option("--lookup", metavar="NAME", help="Take this lookup off the channel; its rules stay.")
def withdraw(key: Path | None, fleet: str, channel: str, lookup: str | None, **broker: object) -> None:
    """Withdraw the rules of a channel, or a lookup.

    Publishes a bundle without rules under the next version: all agents of the fleet that follow the channel run none of
    its rules any more. Their other rule sets go on.

    With --lookup the broker no longer holds the lookup, and no agent fetches it. Agents that have it keep it, as their
    rules may ask it: `vedette lookup remove` removes it on a host.

    Example: vedette region withdraw --broker mqtt://region:1883 --key region.pem --fleet plants --channel site
    """
    from vedette.config.settings import LogSettings
    from vedette.region.lookups import withdraw_lookup
    from vedette.region.withdraw import withdraw as withdraw_rules
    from vedette.runtime.agent.logs import configure_logging

    configure_logging(LogSettings(level="warning"))
    _check_names(fleet, channel)
    try:
        settings = broker_settings(broker)
        if lookup is not None:
            blobs = asyncio.run(withdraw_lookup(settings, fleet, channel, lookup))
            click.echo(f"withdrawn: {lookup}, {blobs} blocks, of fleet {fleet}, channel {channel}")
            return
        if key is None:
            fail("--key: rules are withdrawn by a signed bundle")
        announced = asyncio.run(withdraw_rules(settings, load_key(key), fleet=fleet, channel=channel))
    except (OSError, ValueError, TimeoutError) as error:
        fail(f"not withdrawn: {error}")
    click.echo(f"withdrawn: version {announced.version} of fleet {fleet}, channel {channel}, has no rules")


@region.command()
@broker_options
@click.option("--landing", type=click.Path(path_type=Path), required=True, help="The landing folder.")
@click.option("--client-id", metavar="NAME", default="vedette-landing", show_default=True,
              help="Its session at the broker: keep it over restarts.")  # fmt: skip
@click.option("--group", metavar="NAME", default="landing", show_default=True,
              help="All landings of one group share the alerts.")  # fmt: skip
@click.option(
    "--seconds",
    type=Number(0),
    default=5.0,
    show_default=True,
    help="Write a file after this many seconds at the latest.",
)
@click.option("--rows", type=click.IntRange(1), default=10_000, show_default=True,
              help="Write a file after this many rows at the latest.")  # fmt: skip
@click.option("--resend-after", type=Number(0, 3600), default=0.0,
              help="Seconds that agents are asked to wait for a receipt, where more than their own uplink.resend_after."
                   "  [default: twice --seconds, where that is over a minute]")  # fmt: skip
@click.option("--kafka", metavar="HOST:PORT,…", default="", help="Also write every row to Kafka.")
@click.option("--kafka-topics", metavar="NAME", default="vedette", show_default=True,
              help="Topics are NAME.alerts, NAME.status, NAME.bad and NAME.seqs.")  # fmt: skip
@click.option("--receipt-key", type=click.Path(path_type=Path),
              help="Sign receipts with this private key; agents know it by uplink.receipt_keys.")  # fmt: skip
@click.option("--members", type=click.Path(path_type=Path), metavar="FOLDER",
              help="The region's folder, or a copy of its members.json: agents are at the sites it says.")  # fmt: skip
def land(
    landing: Path,
    client_id: str,
    group: str,
    seconds: float,
    rows: int,
    resend_after: float,
    kafka: str,
    kafka_topics: str,
    receipt_key: Path | None,
    members: Path | None,
    **broker: object,
) -> None:
    """Write alerts as Parquet and send receipts.

    Heartbeats, too. Runs until SIGTERM or SIGINT.

    Example: vedette region land --broker mqtt://region:1883 --landing /srv/landing
    """
    from vedette.config.settings import LogSettings
    from vedette.region.land import LandingSettings
    from vedette.region.land import land as run_landing
    from vedette.runtime.agent.logs import configure_logging

    configure_logging(LogSettings())

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        settings = broker_settings(broker)
        key = None if receipt_key is None else load_key(receipt_key)
        wanted = LandingSettings(
            settings, landing, client_id, group, max_rows=rows, max_seconds=seconds, kafka=kafka,
            kafka_topics=kafka_topics, receipt_key=key, members=members, resend_after=resend_after,
        )  # fmt: skip
        await run_landing(wanted, stop)

    asyncio.run(main())


@region.command()
@click.option("--landing", type=click.Path(path_type=Path), required=True, help="The landing folder.")
@click.option("--days", default=7, show_default=True, type=click.IntRange(1), help="How far back to look.")
@click.option("--settle", type=Number(0), default=900.0, show_default=True,
              help="Seconds for which an alert may be on its way.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object per agent and numbering.")
def status(landing: Path, days: int, settle: float, as_json: bool) -> None:
    """Show which alerts are missing in the landing.

    Exit code 1 when alerts are missing.

    Example: vedette region status --landing /srv/landing
    """
    from vedette.region.gaps import find

    agents = find(landing, time.time_ns() // 1000, days=days, settle=settle)
    if not as_json:
        click.echo(f"{'fleet':<12}{'agent':<20}{'state':<12}{'seqs':<18}{'landed':>9}{'on its way':>12}{'missing':>9}")
    for agent in agents:
        if as_json:
            click.echo(json_line(agent._asdict()))
            continue
        seqs = f"{agent.first}-{agent.last}"
        row = f"{agent.fleet:<12}{agent.agent_id:<20}{agent.state:<12}{seqs:<18}"
        click.echo(safe(f"{row}{agent.landed:>9}{agent.on_the_way:>12}{agent.missing:>9}"))
        for first, last in agent.gaps:
            click.echo(f"    gap {first}-{last}")
        if agent.unlanded:
            click.echo(f"    {agent.unlanded} after {agent.last} left the agent's outbox and did not land")
    if not agents:
        click.echo(f"no alerts in the last {days} days", err=True)
    raise SystemExit(1 if any(agent.missing for agent in agents) else 0)


region.add_command(console)
region.add_command(token)
region.add_command(enroller)
region.add_command(steer)
