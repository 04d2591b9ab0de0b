"""How hosts become members by themselves: region token, region enroller."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from pathlib import Path

import click

from vedette.cli.console import json_line, safe
from vedette.cli.member import existing, folder_option, zip_options
from vedette.cli.options import broker_options, broker_settings


@click.group("token")
def token() -> None:
    """Tokens by which hosts become members themselves.

    Example: vedette region token create --fleet plants --uses 50 --folder region-ca
    """


@token.command("create")
@click.option(
    "--fleet", metavar="NAME", default="default", show_default=True, help="The fleet that it lets hosts join."
)
@click.option(
    "--label",
    "--labels",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    help="A label of all who enrol by it; may be repeated, or a list with commas.",
)
@click.option("--uses", default=1, show_default=True, type=click.IntRange(1, 100_000), help="Agents that may enrol.")
@click.option("--expires", default="24h", show_default=True, metavar="DURATION", help="For how long it holds.")
@folder_option
def token_create(fleet: str, labels: tuple[str, ...], uses: int, expires: str, folder: Path) -> None:
    """Make a token, and print it.

    Give it to the installer (--region URL --token TOKEN). The agent makes its key on its own host and asks the
    region's enroller for a certificate.

    Example: vedette region token create --fleet plants --labels site=vienna --uses 50 --folder region-ca
    """
    from vedette.model.times import seconds
    from vedette.region.tokens import Tokens

    pairs = [pair.partition("=") for text in labels for pair in text.split(",")]
    if bad := next((name for name, equals, value in pairs if not (name and equals and value)), None):
        raise ValueError(f"--labels {safe(bad)}: expects NAME=VALUE")
    with existing(folder) as region:
        region.check_name(fleet=fleet)
        grant = Tokens(folder).create(
            fleet,
            uses=uses,
            seconds=seconds(expires),
            labels={name: value for name, _, value in pairs},
            now=time.time(),
        )
        region.audit("token_made", token=grant.id, fleet=fleet, uses=uses, expires=grant.expires, labels=grant.labels)
    click.echo(grant.token().text())
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(grant.expires))
    click.echo(f"token {grant.id}: fleet {fleet}, {uses} agents, until {ends}", err=True)


@token.command("zip")
@click.argument("id")
@folder_option
@click.option("--broker", metavar="URL", required=True, help="The region's broker, mqtts://HOST:PORT.")
@zip_options
def token_zip(id: str, folder: Path, broker: str, release: Path, bundle: Path | None, key: str) -> None:
    """Write an installation zip for hosts that enrol by the token ID.

    It holds the release, the token and the configuration, for as many hosts as the token lets in: each makes its own
    key, which stays there. Keep it secret until the token has expired.

    Example: vedette region token zip 4f2a9c0d11e2b377 --folder region-ca --broker mqtts://region.example:8883
    --release vedette-0.1.0-linux-x86_64.zip
    """
    from vedette.region.sign import load_key, public_text
    from vedette.region.sitezip import Rules, of_token, site_key, site_zip
    from vedette.region.tokens import Tokens

    with existing(folder) as region:
        grant, signing = Tokens(folder).find(id), site_key(folder)
        if (state := grant.state(time.time())) != "usable":
            raise ValueError(f"token {id} is {state}: make another with 'vedette region token create'")
        path = site_zip(release, of_token(grant.token(), broker), Rules(bundle, key), folder, signing)
        region.audit("token_zipped", token=grant.id, file=path.name)
        click.echo(f"to install {grant.uses - len(grant.used)} hosts: {path}: secret, it holds the token")
        click.echo(f"for whoever installs it: --site-key {public_text(load_key(signing))}")


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per token.")
@folder_option
def token_list(folder: Path, as_json: bool) -> None:
    """List the tokens, without their secrets.

    Example: vedette region token list --folder region-ca
    """
    from vedette.region.tokens import Tokens

    now = time.time()
    with existing(folder):
        grants = Tokens(folder).grants
    if not as_json:
        click.echo(f"{'token':<18}{'fleet':<16}{'state':<10}{'used':>6}{'uses':>7}  expires")
    for grant in grants.values():
        if as_json:
            row = {
                "token": grant.id,
                "fleet": grant.fleet,
                "state": grant.state(now),
                "used": grant.used,
                "uses": grant.uses,
                "expires": grant.expires,
                "labels": grant.labels,
            }
            click.echo(json_line(row))
            continue
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(grant.expires))
        state = grant.state(now)
        click.echo(safe(f"{grant.id:<18}{grant.fleet:<16}{state:<10}{len(grant.used):>6}{grant.uses:>7}  {ends}"))


@token.command("revoke")
@click.argument("id")
@folder_option
def token_revoke(id: str, folder: Path) -> None:
    """Let nobody enrol by a token any more.

    Agents that enrolled by it stay members: 'vedette member revoke'.

    Example: vedette region token revoke 4f2a9c0d11e2b377 --folder region-ca
    """
    from vedette.region.tokens import Tokens

    with existing(folder) as region:
        grant = Tokens(folder).revoke(id, time.time())
        region.audit("token_revoked", token=grant.id)
    click.echo(
        f"token {grant.id} is revoked; {len(grant.used)} agents enrolled by it: {', '.join(grant.used) or 'none'}"
    )


@click.command("enroller")
@broker_options
@folder_option
@click.option(
    "--client-id",
    metavar="NAME",
    default="vedette-enroller",
    show_default=True,
    help="Its session at the broker: keep it over restarts.",
)
@click.option(
    "--days",
    default=90,
    show_default=True,
    type=click.IntRange(1, 3650),
    help="Days until a certificate expires; agents renew after two thirds.",
)
@click.option(
    "--reload",
    metavar="COMMAND",
    default="",
    help="Run this at the start and when the access list has changed, such as 'systemctl reload mosquitto'; no shell.",
)
@click.option(
    "--receipt-key",
    "receipt_keys",
    metavar="KEY",
    multiple=True,
    help="Public key (ed25519:…) of the landings' receipts, for the agents.",
)
@click.option(
    "--trusted-key",
    "trusted_keys",
    metavar="KEY",
    multiple=True,
    help="Public key (ed25519:…) of the region's bundles, for the agents.",
)
@click.option("--root", type=click.Path(path_type=Path), help="The fleet's root of trust (root.json), for the agents.")
def enroller(
    folder: Path, client_id: str, days: int, reload: str, receipt_keys: tuple[str, ...],
    trusted_keys: tuple[str, ...], root: Path | None, **broker: object,
) -> None:  # fmt: skip
    """Enrol hosts that hold a token, and renew certificates.

    Runs until SIGTERM or SIGINT, beside the region's folder, whose authority signs.

    Example: vedette region enroller --broker mqtts://region.example:8883 --ca-file region-ca.pem
    --cert-file agent.pem --key-file agent.key --folder region-ca --reload 'systemctl reload mosquitto'
    """
    from vedette.config.settings import LogSettings
    from vedette.region.enroller import Enroller, EnrollerSettings
    from vedette.runtime.agent.logs import configure_logging

    configure_logging(LogSettings())

    settings = EnrollerSettings(
        broker_settings(broker),
        folder, client_id, days=days, reload=reload,
        say={"receipt_keys": list(receipt_keys), "trusted_keys": list(trusted_keys)},
        files={} if root is None else {"root.json": root.read_text("utf-8")},
    )  # fmt: skip

    async def main() -> None:
        task = asyncio.create_task(Enroller(settings).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
