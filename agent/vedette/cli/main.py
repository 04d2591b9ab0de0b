"""The command line: ``vedette COMMAND``. The commands are listed here; each lies in the file named beside it, which is
imported when the command is used."""

from __future__ import annotations

import sys

import click

from vedette import __version__
from vedette.cli.console import Main

MODULES = {
    **dict.fromkeys(("run", "check", "status", "alerts", "logs"), "agent"),
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
