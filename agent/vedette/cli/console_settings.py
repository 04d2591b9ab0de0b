"""The options of region console, on the command line and in a file, and the settings that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vedette.cli.console import fail
from vedette.cli.options import broker_options, broker_settings
from vedette.model.times import seconds

if TYPE_CHECKING:
    from vedette_console.settings import Settings

ROLES = ("viewer", "analyst", "operator", "admin")
_path = click.Path(path_type=Path)


def _from_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    """The options of a TOML file become defaults. Raises BadParameter for a key that is no option."""
    if value is None:
        return
    import tomllib

    try:
        options = tomllib.loads(value.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{value}: {error}") from error
    by_options = [option for option in ctx.command.params if isinstance(option, click.Option)]
    names = {option.opts[-1].lstrip("-"): option.name or "" for option in by_options}
    for key in options:
        if key not in names or key == "config":
            raise click.BadParameter(f"{value}: there is no option {key!r}")
    ctx.default_map = {
        names[key]: [*map(str, setting)] if isinstance(setting, list) else setting for key, setting in options.items()
    }


def _period(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


OPTIONS = (
    click.option("-c", "--config", type=_path, is_eager=True, expose_value=False, callback=_from_file,
                 help="TOML file of these options, by their names without dashes in front."),
    click.option("--database", default="sqlite:console.db", show_default=True, metavar="URL",
                 help="Users, sessions, audit log: sqlite:PATH, or postgresql://… for several consoles."),
    click.option("--listen", default="127.0.0.1:8470", show_default=True, metavar="HOST:PORT", help="Its address."),
    click.option("--public-url", default="", metavar="URL", help="How browsers reach it, behind a proxy say."),
    click.option("--tls-cert", type=_path, help="Certificate (PEM) for HTTPS, with --tls-key."),
    click.option("--tls-key", type=_path, help="Its private key (PEM)."),
    click.option("--insecure", is_flag=True, help="Plain HTTP also beyond loopback: passwords can be read on the way."),
    click.option("--trusted-proxy", "trusted_proxies", multiple=True, metavar="ADDRESS",
                 help="A proxy whose X-Forwarded-For and -Proto are believed."),
    click.option("--tables", default="tables", show_default=True, metavar="PATH", help="The tables of vedette-spark."),
    click.option("--landing", type=_path, help="The landing folder."),
    click.option("--fleet", default="", metavar="NAME", help="Only agents of this fleet; default: all."),
    click.option("--trust", type=_path, help="The fleet's folder of `vedette fleet init`, for roll-outs."),
    click.option("--requests", type=_path, help="Folder for what agents reply."),
    click.option("--keep-requests", default="90d", show_default=True, callback=_period, metavar="TIME",
                 help="After so long the console's requests and their replies go; of each kind a user's newest 2,000 "
                 "stay, and the only copy of evidence."),
    click.option("--evidence", type=_path, help="Folder for pulled evidence."),
    click.option("--operator", default="", metavar="NAME", help="In whose name the console asks agents."),
    click.option("--operator-key", type=_path, help="The operator's private key, which signs what is asked."),
    click.option("--author-key", type=_path, help="Private key that signs bundles the console builds."),
    click.option("--signer-key", "signer_keys", type=_path, multiple=True,
                 help="Private key that signs the fleet's documents, for proposals; repeatable."),
    click.option("--fleet-file", type=_path, help="fleet.toml, which proposals change."),
    click.option("--crl", "revoked", type=_path, help="The region's crl.pem: replies of revoked agents are refused."),
    click.option("--work", type=_path, help="Folder for proposals and backtests; default: beside the SQLite file."),
    click.option("--authorities", type=_path, help="Authority of agents' certificates (PEM): whose replies count."),
    click.option("--members", type=_path, metavar="FOLDER",
                 help="The region's folder, or a copy of its members.json: agents are at the sites it says."),
    click.option("--rules", type=_path, multiple=True, help="Rule files and folders, for the editor; repeatable."),
    click.option("--pipeline", "pipelines", type=_path, multiple=True, help="A pySigma pipeline for them."),
    click.option("--lookup", "lookups", type=_path, multiple=True, help="A lookup that they ask."),
    click.option("--backtest-source", "backtest_sources", multiple=True, metavar="PATH",
                 help="Folder or store of raw log segments, for backtests; repeatable."),
    click.option("--reports", type=_path, help="Folder for HTML reports."),
    click.option("--report-hour", type=click.IntRange(0, 23), help="Hour (UTC) at which the daily report is written."),
    click.option("--session-idle", default="12h", show_default=True, callback=_period, metavar="TIME",
                 help="After so long without a request one is logged out."),
    click.option("--session-max", default="7d", show_default=True, callback=_period, metavar="TIME",
                 help="After so long one is logged out in any case."),
    click.option("--oidc-issuer", default="", metavar="URL", help="OpenID provider for single sign-on."),
    click.option("--oidc-client-id", default="vedette", show_default=True, metavar="ID", help="The console's there."),
    click.option("--oidc-secret-file", type=_path, help="File with the client's secret."),
    click.option("--oidc-name", default="Single sign-on", show_default=True, metavar="TEXT", help="Its name on pages."),
    click.option("--oidc-claim", default="groups", show_default=True, metavar="NAME", help="Claim that gives roles."),
    click.option("--oidc-role", "oidc_roles", multiple=True, metavar="VALUE=ROLE",
                 help="Who has VALUE in the claim has this role, everywhere; repeatable."),
    click.option("--oidc-default-role", type=click.Choice(["", *ROLES]), default="", help="The role of all others."),
    click.option("--oidc-ca-file", type=_path, help="Authority of the provider's certificate (PEM)."),
)  # fmt: skip


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = broker_options(command, required=False)
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def made(
    listen: str, tls_cert: Path | None, tls_key: Path | None, session_idle: float, session_max: float,
    oidc_issuer: str, oidc_client_id: str, oidc_secret_file: Path | None, oidc_name: str, oidc_claim: str,
    oidc_roles: tuple[str, ...], oidc_default_role: str, oidc_ca_file: Path | None, url: str, username: str,
    password_file: Path | None, ca_file: Path | None, cert_file: Path | None, key_file: Path | None, **others: Any,
) -> Settings:  # fmt: skip
    """The settings of the options above. Ends with a message for one that cannot be read."""
    from vedette_console.settings import Oidc, Sessions, Settings

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        fail(f"--listen: expects HOST:PORT, not {listen!r}")
    roles = []
    for text in oidc_roles:
        value, sign, role = text.rpartition("=")
        if not sign or role not in ROLES:
            fail(f"--oidc-role: expects VALUE=ROLE with a role of {', '.join(ROLES)}, not {text!r}")
        roles.append((value, role))
    broker = {"url": url, "username": username, "password_file": password_file, "ca_file": ca_file,
              "cert_file": cert_file, "key_file": key_file}  # fmt: skip
    oidc = Oidc(oidc_issuer, oidc_client_id, oidc_secret_file, oidc_name, claim=oidc_claim, roles=tuple(roles),
                default_role=oidc_default_role, ca_file=oidc_ca_file)  # fmt: skip
    return Settings(
        **others, host=host.strip("[]"), port=int(port), cert_file=tls_cert, key_file=tls_key,
        broker=broker_settings(broker) if url else None, sessions=Sessions(session_idle, session_max),
        oidc=oidc if oidc_issuer else None,
    )  # fmt: skip
