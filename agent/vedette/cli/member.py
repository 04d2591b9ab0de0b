"""Members of the region: member enroll, renew, revoke, allow, move, zip, list."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import click

from vedette.cli.console import json_line, safe
from vedette.region.enroll import DAYS, RECEIPT_KEY, Enrolled, Region
from vedette.region.members import ROLES
from vedette.region.sign import load_key, public_text
from vedette.region.sitezip import Rules, of_member, site_key, site_zip

F = TypeVar("F", bound=Callable[..., object])


def zip_options(command: F) -> F:
    """``--release --bundle --trusted-key``."""
    for option in (
        click.option("--trusted-key", "key", default="", metavar="KEY",
                     help="Public key (ed25519:…) of the region's bundles."),
        click.option("--bundle", type=click.Path(path_type=Path), metavar="PATH",
                     help="Rules to begin with: a signed bundle."),
        click.option("--release", type=click.Path(path_type=Path), metavar="PATH", required=True,
                     help="The installation zip of the release to install."),
    ):  # fmt: skip
        command = option(command)
    return command


folder_option = click.option(
    "--folder", type=click.Path(path_type=Path), required=True, help="The region's authority, members and access list."
)
days_option = click.option(
    "--days", default=DAYS, show_default=True, type=click.IntRange(1, 3650), help="Days until the certificate expires."
)


def enroll_options(command: Callable[..., None]) -> Callable[..., None]:
    """All of ``member enroll``."""
    for option in (
        days_option,
        click.option("--host", "hosts", metavar="NAME", multiple=True,
                     help="For the role broker: its name or address; may be repeated."),
        click.option("--broker", metavar="URL",
                     help="The region's broker, for the configuration of agents: needed once, then kept."),
        click.option("--role", type=click.Choice(ROLES), default="agent", show_default=True,
                     help="What NAME is: an agent, a landing, an operator who publishes bundles, the broker."),
        click.option("--fleet", metavar="NAME", default="default", show_default=True, help="The agent's agent.fleet."),
        folder_option,
        click.argument("name"),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group()
def member() -> None:
    """Enroll, renew and revoke members of the region.

    Agents, landings, operators and the broker: each has a certificate and its own rights at the broker.

    Example: vedette member list --folder region-ca
    """


@member.command("enroll")
@enroll_options
def member_enroll(
    name: str, folder: Path, fleet: str, role: str, broker: str | None, hosts: tuple[str, ...], days: int,
    renew: bool = False,
) -> None:  # fmt: skip
    """Make NAME a member of the region.

    Writes its certificate, key, access to its own topics and, for an agent, its configuration. Run again it changes
    nothing, except that a certificate with less than 30 days left is renewed. FOLDER is made when it does not exist.

    Example: vedette member enroll web-1 --folder region-ca --broker mqtts://region.example:8883
    """
    if broker is not None and not re.fullmatch(r"mqtts?://[A-Za-z0-9.:\[\]_-]+", broker):
        raise ValueError(f"--broker {broker}: expects mqtts://host:port")
    with Region.open(folder) as region:
        region.broker = broker or region.broker
        _show(region, region.enroll(name, role=role, fleet=fleet, hosts=hosts, days=days, renew=renew))


@member.command("renew")
@click.argument("name")
@folder_option
@days_option
def member_renew(name: str, folder: Path, days: int) -> None:
    """Give NAME a new key and certificate.

    The old certificate stays valid until it expires.

    Example: vedette member renew web-1 --folder region-ca
    """
    with existing(folder) as region:
        member = region.member(name)
        done = region.enroll(name, role=member.role, fleet=member.fleet, hosts=member.hosts, days=days, renew=True)
        _show(region, done)


@member.command("revoke")
@click.argument("name")
@folder_option
def member_revoke(name: str, folder: Path) -> None:
    """Revoke all rights and certificates of NAME.

    Example: vedette member revoke web-1 --folder region-ca
    """
    with existing(folder) as region:
        number = len(region.revoke(name).revoked)
    what = f"{number} certificates" if number > 1 else "1 certificate"
    click.echo(
        f"{name} is revoked, {what}. Give {folder / 'mosquitto.acl'} and {folder / 'crl.pem'} to the"
        " broker: its rights end with a reload (SIGHUP), new connections with a restart"
    )


@member.group("authority")
def member_authority() -> None:
    """Change the authority that signs the members' certificates.

    Example: vedette member authority rotate --folder region-ca
    """


@member_authority.command("rotate")
@folder_option
def authority_rotate(folder: Path) -> None:
    """Make a new authority; the one before it stays trusted.

    Agents that enrolled by a token learn of it from the enroller; give region-ca.pem to the broker, the landings and
    all others, and renew their certificates. Then: vedette member authority retire.

    Example: vedette member authority rotate --folder region-ca
    """
    with existing(folder) as region:
        region.rotate()
        newest, former = region.authorities.newest, region.authorities.former
    click.echo(f"{newest.name} signs from now on; still trusted: {', '.join(authority.name for authority in former)}")
    click.echo(f"for the broker and all members: members/NAME/region-ca.pem in {folder}")


@member_authority.command("retire")
@folder_option
def authority_retire(folder: Path) -> None:
    """Trust the newest authority alone.

    Refused while a member's certificate is signed by another one.

    Example: vedette member authority retire --folder region-ca
    """
    with existing(folder) as region:
        region.retire()
        newest = region.authorities.newest
    click.echo(
        f"{newest.name} alone is trusted; for the broker and all members: members/NAME/region-ca.pem in {folder}"
    )


@member.command("allow")
@click.argument("name")
@folder_option
def member_allow(name: str, folder: Path) -> None:
    """Let another key enrol as NAME, once.

    For a host whose disk was replaced, or a member that was revoked: within 24 hours it may enrol again by a token.
    Its earlier certificates are revoked then.

    Example: vedette member allow web-1 --folder region-ca
    """
    with existing(folder) as region:
        member = region.consent(name)
    click.echo(f"{name} may enrol again until {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(member.consent))}")


@member.command("move")
@click.argument("name")
@click.option("--site", metavar="SITE", required=True, help="Where the host of NAME is from now on.")
@folder_option
def member_move(name: str, site: str, folder: Path) -> None:
    """Say at which site the agent NAME is.

    For a host that has moved, or that was enrolled without a label site. The landing and the console go by it, whatever
    the agent states; they take it up by themselves where they read FOLDER. The settings of the host stay.

    Example: vedette member move web-1 --site linz --folder region-ca
    """
    with existing(folder) as region:
        region.move(name, site)
    click.echo(f"{name} is at {site}")


@member.command("zip")
@click.argument("name")
@folder_option
@zip_options
def member_zip(name: str, folder: Path, release: Path, bundle: Path | None, key: str) -> None:
    """Write an installation zip for the agent NAME.

    It holds the release and the agent's certificate, key and configuration: keep it secret. Its host needs nothing
    else. For hosts that reach the region rather 'vedette region token zip': their keys are made where they stay.

    Example: vedette member zip web-1 --folder region-ca --release vedette-0.1.0-linux-x86_64.zip
    """
    with existing(folder) as region:
        if (member := region.member(name)).role != "agent":
            raise ValueError(f"{name} is enrolled as {member.role}: only agents are installed by a zip")
        home, signing = folder / "members" / name, site_key(folder)
        path = site_zip(release, of_member(name, home), Rules(bundle, key), home, signing)
        click.echo(f"to install it: {path}: secret, it holds the agent's key")
        click.echo(f"for whoever installs it: --site-key {public_text(load_key(signing))}")


@member.command("list")
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per member.")
def member_list(folder: Path, as_json: bool) -> None:
    """List all members.

    With role, fleet, state and the day on which the certificate expires.

    Example: vedette member list --folder region-ca
    """
    with existing(folder) as region:
        members = sorted(region.members.values(), key=lambda member: member.name)
    if not as_json:
        click.echo(f"{'name':<24}{'role':<10}{'fleet':<16}{'state':<10}expires")
    for member in members:
        state = "active" if member.active else "revoked"
        if as_json:
            row = {
                "name": member.name,
                "role": member.role,
                "fleet": member.fleet,
                "state": state,
                "expires": member.ends,
            }
            click.echo(json_line(row))
        else:
            click.echo(safe(f"{member.name:<24}{member.role:<10}{member.fleet:<16}{state:<10}{_day(member.ends)}"))


def existing(folder: Path) -> AbstractContextManager[Region]:
    """The region of ``folder``, which is not made where there is none. Raises OSError and ValueError."""
    if not (folder / "members.json").exists():
        raise FileNotFoundError(f"{folder}: no region here: 'vedette member enroll' makes one")
    return Region.open(folder)


def _show(region: Region, done: Enrolled) -> None:
    """What was done, and what to do next."""
    member = done.member
    what = "new certificate" if done.renewed else "as it was"
    click.echo(f"{member.name}: {member.role} of fleet {member.fleet}, {what}, good until {_day(member.ends)}")
    if done.renewed and member.former:
        last = _day(max(ends for _, ends in member.former))
        click.echo(f"the old certificate stays valid until {last}; if it is compromised, revoke it and enroll again")
    click.echo(f"for its host: {done.folder}/")
    click.echo(f"for the broker: {region.folder / 'mosquitto.acl'}, then reload it (SIGHUP)")
    if member.role == "landing":
        click.echo(
            f"vedette region land --client-id vedette-{member.name} --group {region.group}"
            f" --receipt-key {RECEIPT_KEY} --members {region.folder} …"
        )


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
