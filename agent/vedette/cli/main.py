"""The command line: ``vedette COMMAND``. The commands are listed here; each but ``run`` and ``version`` lies in the
file named beside it, which is imported when the command is used. ``run`` imports no more than the agent does."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vedette.cli.console import Main, config_option
from vedette.version import __version__

MODULES = {
    **dict.fromkeys(("check", "status", "alerts", "logs"), "agent"),
    "scan": "scan",
    "rules": "rules",
    "bundle": "bundle",
    "lookup": "lookup",
    "archive": "archive",
    "fleet": "fleet",
    "sink": "sink",
    "response": "response",
    "top": "top",
}
"""By command the module that has it."""


@click.version_option(__version__, message="vedette %(version)s", help="Show the agent's version and exit.")
@click.group(
    cls=Main,
    modules=MODULES,
    region={"member": "member", "region": "region"},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def main() -> None:
    """Vedette: evaluate logs where they arise, forward only alerts.

    Exit codes: 0 done; 1 done, and what was examined has a fault; 2 not done.

    Example: vedette scan --rules rules/sigma /var/log/auth.log

    Example: vedette run -c vedette.toml
    """


@main.command()
@config_option
def run(config: Path) -> None:
    """Run the agent in the foreground.

    SIGTERM and SIGINT stop it, a second one hurries the stop; SIGHUP reloads configuration and rules. Exit code 2 when
    it cannot start or go on: a full disk, no rules that work. An input that cannot be opened, since its port is in use,
    say, is tried again, and `vedette status` names it.

    Example: vedette run -c vedette.toml
    """
    from vedette.runtime.agent import app, optional

    app.run(optional.configuration(config, starting=True), config)


@main.command()
def version() -> None:
    """Print the versions of agent, pattern engine, Python, and the add-ons that are installed.

    Example: vedette version
    """
    from vedette.plan.database import LIBRARY
    from vedette.system.installation import running

    installed = running()
    addons = f" with {', '.join(installed.addons)}" if installed is not None and installed.addons else ""
    click.echo(f"vedette {__version__} ({LIBRARY}, Python {sys.version.split()[0]}){addons}")


if __name__ == "__main__":
    main()
