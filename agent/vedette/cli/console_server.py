"""The region's console: region console, and its users and audit log on the command line.

``vedette_console`` and what it needs (the extra ``region``) is loaded when one of these commands runs.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vedette.cli.console import fail, json_line, safe
from vedette.cli.console_settings import ROLES, made, options

if TYPE_CHECKING:
    from vedette_console.security.principal import Grant
    from vedette_console.settings import Settings
    from vedette_console.store.store import Store

_path = click.Path(path_type=Path)


@click.group(invoke_without_command=True)
@options
@click.pass_context
def console(ctx: click.Context, /, **options: Any) -> None:
    """Serve the region's console: pages and the HTTP API.

    Reads the tables that vedette-spark keeps; with --broker it shows the fleet live, with --trust and --operator it
    steers. With no admin yet it prints a link by which the first one logs in, once. Plain HTTP is only served on
    loopback, unless --insecure. Runs until SIGTERM or SIGINT.

    Example: vedette region console --tables tables --broker mqtt://region:1883
    """
    settings = made(**options)
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return
    from vedette.config.settings import LogSettings
    from vedette.runtime.agent.logs import configure_logging

    configure_logging(LogSettings())
    if mistakes := [*settings.mistakes()]:
        fail("\n".join(mistakes))
    with _needed():
        from vedette_console.app import create
        from vedette_console.server import serve

        app = create(settings)

    def started(port: int) -> None:
        store: Store = app.state.store
        here = replace(settings, port=port)
        click.echo(f"console  {here.url}")
        if not store.accounts.administered():
            once = store.sessions.offer("", first=True)
            click.echo(f"first login, once, within 15 minutes: {here.url}/login/once?token={once}")
        sys.stdout.flush()

    serve(app, started)


@console.group("user")
def user() -> None:
    """Users of the console, and what they may.

    Example: vedette region console --database sqlite:console.db user list
    """


grant_options = (
    click.option("--fleet", default="*", show_default=True, metavar="NAME", help="At this fleet; * for all."),
    click.option("--site", default="*", show_default=True, metavar="NAME", help="At this site; * for all."),
)


def _place(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(grant_options):
        command = option(command)
    return command


@user.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="What the user may.")
@_place
@click.option("--password", "ask", is_flag=True, help="Ask for a password, or read a line; else print a login link.")
@click.pass_obj
def user_add(settings: Settings, name: str, role: str, fleet: str, site: str, ask: bool) -> None:
    """Add a user.

    Example: vedette region console user add ann --role analyst --site vienna
    """
    with _store(settings, new=True) as store:
        password = _asked(name) if ask else ""
        store.accounts.add(name, [_grant(role, fleet, site)], password=password)
        _audit(store, "users", "user add", user=name, grants=f"{role} {fleet}/{site}")
        click.echo(f"{name}: {role} of fleet {fleet}, site {site}")
        if not ask:
            _link(store, settings, name)


@user.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per user.")
@click.pass_obj
def user_list(settings: Settings, as_json: bool) -> None:
    """List all users with their grants.

    Example: vedette region console user list
    """
    with _store(settings) as store:
        for account in store.accounts.all():
            places = [f"{grant.role} {grant.fleet}/{grant.site}" for grant in account.grants]
            origin = "oidc" if account.subject else "local"
            if as_json:
                row = {
                    "name": account.name,
                    "origin": origin,
                    "disabled": account.disabled,
                    "grants": places,
                    "password": bool(account.password),
                }
                click.echo(json_line(row))
            else:
                state = "disabled" if account.disabled else origin
                click.echo(safe(f"{account.name:<24}{state:<10}{', '.join(places)}"))


@user.command("remove")
@click.argument("name")
@click.pass_obj
def user_remove(settings: Settings, name: str) -> None:
    """Remove a user, with sessions, tokens and searches.

    Example: vedette region console user remove ann
    """
    with _store(settings) as store:
        store.accounts.remove(name)
        _audit(store, "users", "user remove", user=name)
        click.echo(f"{name}: removed")


@user.command("password")
@click.argument("name")
@click.pass_obj
def user_password(settings: Settings, name: str) -> None:
    """Set a user's password, asked for or read from standard input; ends the user's sessions.

    Example: vedette region console user password ann
    """
    with _store(settings) as store:
        store.accounts.get(name)
        store.accounts.set_password(name, _asked(name))
        store.sessions.end_all(name)
        _audit(store, "users", "user password", user=name)
        click.echo(f"{name}: password changed")


@user.command("grant")
@click.argument("name")
@click.argument("role", type=click.Choice([*ROLES, "none"]))
@_place
@click.pass_obj
def user_grant(settings: Settings, name: str, role: str, fleet: str, site: str) -> None:
    """Give a user a role at a place, in place of the one there; ROLE none takes it.

    Example: vedette region console user grant ann operator --fleet plants
    """
    with _store(settings) as store:
        held = store.accounts.get(name).granted
        grants = [grant for grant in held if (grant.fleet, grant.site) != (fleet, site)]
        if role != "none":
            grants.append(_grant(role, fleet, site))
        now = store.accounts.grant(name, grants)
        places = ", ".join(f"{grant.role} {grant.fleet}/{grant.site}" for grant in now.grants) or "none"
        _audit(store, "users", "user grant", user=name, grants=places)
        click.echo(safe(f"{name}: {places}"))


@user.command("login")
@click.argument("name")
@click.pass_obj
def user_login(settings: Settings, name: str) -> None:
    """Print a link by which a user logs in, once, within 15 minutes.

    Example: vedette region console user login ann
    """
    with _store(settings) as store:
        store.accounts.get(name)
        _audit(store, "users", "user login", user=name)
        _link(store, settings, name)


@console.group("audit")
def audit() -> None:
    """The console's audit log: who did what.

    Example: vedette region console --database sqlite:console.db audit verify
    """


@audit.command("export")
@click.pass_obj
def audit_export(settings: Settings) -> None:
    """Write the whole log, a JSON object a line.

    Example: vedette region console audit export > audit.ndjson
    """
    with _store(settings) as store:
        from vedette_console.store.audit import as_json

        for entry in store.audit.all():
            click.echo(as_json(entry))


@audit.command("verify")
@click.argument("file", type=_path, required=False)
@click.option("--noted", multiple=True, metavar="SEQ:HASH", help="A row's hash that was noted elsewhere; repeatable.")
@click.pass_obj
def audit_verify(settings: Settings, file: Path | None, noted: tuple[str, ...]) -> None:
    """Verify the log, or FILE, an export of it: that no row was changed, removed or inserted.

    Prints the last row's hash: note it elsewhere, and give it with --noted the next time, which shows whether the end
    was cut or all was written anew. Exit code 1 when the log is not whole.

    Example: vedette region console audit verify audit.ndjson
    """
    hashes = {}
    for text in noted:
        seq, _, value = text.partition(":")
        if not seq.isdigit() or len(value) != 64:
            fail(f"--noted: expects SEQ:HASH, not {text!r}")
        hashes[int(seq)] = value
    with _needed():
        from vedette_console.store.audit import from_json, verify
    if file is None:
        with _store(settings) as store:
            verdict = store.audit.verify(hashes)
    else:
        with file.open(encoding="utf-8") as lines:
            verdict = verify((from_json(line) for line in lines if line.strip()), noted=hashes)
    if verdict.broken is not None:
        click.echo(f"row {verdict.broken}: {verdict.reason}; {verdict.rows} rows before it are whole")
        raise SystemExit(1)
    click.echo(f"{verdict.rows} rows, whole; noted: {verdict.rows}:{verdict.head}")


@contextmanager
def _needed() -> Iterator[None]:
    """What lacks is named with the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("vedette"):
            raise
        extra = "region,postgres" if error.name == "psycopg" else "region"
        fail(f"this takes a library that is not installed ({error}): pip install 'vedette[{extra}]'")


@contextmanager
def _store(settings: Settings, *, new: bool = False) -> Iterator[Store]:
    """The console's database; only a ``new`` one is made. Raises FileNotFoundError and what ``open_store`` raises."""
    kind, _, path = settings.database.partition(":")
    if kind == "sqlite" and not new and not Path(path).exists():
        raise FileNotFoundError(f"{path}: no database of a console here: give --database")
    with _needed():
        from vedette_console.store.store import open_store

        store = open_store(settings)
    try:
        yield store
    except KeyError as error:
        fail(f"there is no user {error.args[0]!r}: vedette region console user list")
    finally:
        store.close()


def _grant(role: str, fleet: str, site: str) -> Grant:
    from vedette_console.security.principal import Grant, Role

    return Grant(Role(role), fleet, site)


def _asked(name: str) -> str:
    """The hash of a password that is typed twice, or read as a line where standard input is no terminal."""
    from vedette_console.security.passwords import make, mistake

    if sys.stdin.isatty():
        text = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        text = sys.stdin.readline().rstrip("\r\n")
    if why := mistake(text, name):
        fail(why)
    return make(text)


def _link(store: Store, settings: Settings, name: str) -> None:
    click.echo(f"login, once, within 15 minutes: {settings.url}/login/once?token={store.sessions.offer(name)}")


def _audit(store: Store, act: str, request: str, **details: str) -> None:
    store.audit.add(f"{getpass.getuser()} (command line)", act, {"request": request, **details})
