"""Sites without a connection, where the region is installed: fleet export, fleet import."""

from __future__ import annotations

from pathlib import Path

import click

from vedette.cli.carry import carry_in, carry_out
from vedette.cli.console import config_option, safe
from vedette.cli.fleet_centre import trust_option
from vedette.fleet import carried
from vedette.region import sites
from vedette.region.repository import Repository


@click.command("export")
@click.option("--site", help="Write what the agents of this site need.")
@click.option("--answers", is_flag=True, help="On a host: write what its agent answers.")
@click.option("--out", type=click.Path(path_type=Path), help="The file. Default: SITE.zip or AGENT-answers.zip.")
@trust_option
@config_option
def export(site: str | None, answers: bool, out: Path | None, folder: Path, config: Path) -> None:
    """Write a zip that is carried by hand, to or from a host without a connection.

    With --site the fleet's signed files for the agents of a site; a host takes them by `vedette fleet import`. With
    --answers, on a host, its status and its record.

    Example: vedette fleet export --site linz --out linz.zip
    """
    if answers == (site is not None):
        raise ValueError("give either --site or --answers")
    if site is None:
        carry_out(config, out)
        return
    target = out or Path(f"{site}.zip")
    files = [*sites.files_for(Repository(folder), site)]
    carried.pack(target, files)
    click.echo(safe(f"written to {target}: {len(files)} files, {target.stat().st_size / 1e6:.1f} MB"))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--answers", is_flag=True, help="What a host has written with `vedette fleet export --answers`.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Agents' authorities: refuse what none vouches for.")
@trust_option
@config_option
def take(file: Path, answers: bool, ca_file: Path | None, folder: Path, config: Path) -> None:
    """Take a zip that was carried by hand, on a host or from one.

    On a host its agent looks at it at once, with the checks of what a broker brings. With --answers `vedette fleet
    status` shows what the host answered. Exit code 1 when the host's record was changed.

    Example: vedette fleet import linz.zip
    """
    if not answers:
        carry_in(config, file)
        return
    repository = Repository(folder)
    answer = carried.read_answer(file, repository.fleet, None if ca_file is None else ca_file.read_bytes())
    fault = sites.keep(folder, answer)
    proof = "signed by it" if answer.proved else "believed as it was carried here: give --ca-file"
    click.echo(safe(f"{answer.agent}: {proof}"))
    if fault:
        click.echo(safe(f"{answer.agent}: {fault}"), err=True)
        raise SystemExit(1)
