"""Sites without a connection, where the region is installed: fleet export, fleet import."""

from __future__ import annotations

from pathlib import Path

import click

from vedette.cli.carry import carry_in, carry_out
from vedette.cli.console import config_option, safe
from vedette.cli.fleet_centre import trust_option
from vedette.fleet import carried
from vedette.region import sites
from vedette.region.enroll import Region
from vedette.region.repository import Repository
from vedette.region.requests import revoked_serials
from vedette.system.wallclock import utc_now
from vedette.system.within import is_name

requests_option = click.option(
    "--requests", "asked", type=click.Path(path_type=Path), default=Path("requests"), show_default=True,
    help="Where requests and replies are kept.",
)  # fmt: skip


@click.command("export")
@click.option("--site", help="Write what the agents of this site need.")
@click.option("--answers", is_flag=True, help="On a host: write what its agent answers.")
@click.option("--out", type=click.Path(path_type=Path), help="The file. Default: SITE.zip or AGENT-answers.zip.")
@trust_option
@requests_option
@config_option
def export(site: str | None, answers: bool, out: Path | None, folder: Path, asked: Path, config: Path) -> None:
    """Write a zip that is carried by hand, to or from a host without a connection.

    With --site the fleet's signed files for the agents of a site, and what was asked of them with --offline; a host
    takes them by `vedette fleet import`. With --answers, on a host, its status, its record and its replies.

    Example: vedette fleet export --site linz --out linz.zip
    """
    if answers == (site is not None):
        raise ValueError("give either --site or --answers")
    if site is None:
        carry_out(config, out)
        return
    if not is_name(site):
        raise ValueError(f"--site {safe(site)}: expects the name of a site")
    target, repository = out or Path(f"{site}.zip"), Repository(folder)
    for id, why in sites.recall(asked, repository, utc_now()):
        click.echo(safe(f"request {id[:8]} does not travel: {why}"), err=True)
    files = [
        *sites.files_for(repository, site), *sites.requests_for(asked, folder, site, utc_now()),
        *sites.certificates_for(folder, site),
    ]  # fmt: skip
    carried.pack(target, files)
    click.echo(safe(f"written to {target}: {len(files)} files, {target.stat().st_size / 1e6:.1f} MB"))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--answers", is_flag=True, help="What a host has written with `vedette fleet export --answers`.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    help="Agents' authorities (default: those of --members): refuse what none vouches for.",
)
@click.option(
    "--members",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The region's folder (region-ca): renew the host's certificate when it asks for it.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="Of a renewed certificate.")
@click.option("--crl", type=click.Path(path_type=Path), help="The region's crl.pem: refuse revoked agents.")
@trust_option
@requests_option
@config_option
def take(
    file: Path, answers: bool, ca_file: Path | None, members: Path | None, days: int, crl: Path | None, folder: Path,
    asked: Path, config: Path,
) -> None:  # fmt: skip
    """Take a zip that was carried by hand, on a host or from one.

    On a host its agent looks at it at once, with the checks of what a broker brings; exit code 1 when it refuses a
    request. With --answers `vedette fleet status` shows what the host answered, and `vedette fleet fetch ID --offline`
    its replies, which need --ca-file. With --members, where the region's authority is, a certificate that is due is
    renewed, and goes with the next `vedette fleet export --site`. Exit code 1 when the host's record was changed, or a
    reply or a renewal is refused.

    Example: vedette fleet import linz.zip
    """
    if not answers:
        carry_in(config, file)
        return
    repository = Repository(folder)
    authorities = _authorities(ca_file, members)
    revoked = revoked_serials(crl) if crl else frozenset[int]()
    answer = carried.read_answer(file, repository.fleet, authorities, revoked)
    fault = sites.keep(folder, answer)
    proof = "signed by it" if answer.proved else "believed as it was carried here: give --ca-file"
    click.echo(safe(f"{answer.agent}: {proof}"))
    wrong = [fault] if fault else []
    if authorities is not None:
        for collection, new in sites.take_replies(asked, answer, carried.replies_in(file), authorities, revoked):
            id = collection.request.id[:8]
            click.echo(safe(f"{answer.agent}: request {id}: {new} new parts: vedette fleet fetch {id} --offline"))
            wrong += [f"request {id}: refused: {why}" for why in collection.refusals]
    elif any(True for _ in carried.replies_in(file)):
        wrong.append("its replies were not taken: give --ca-file, against which they are checked")
    if members is not None:
        wrong += _renew(folder, members, answer, file, days)
    elif carried.renewal_in(file) is not None:
        click.echo(
            safe(f"{answer.agent}: asks for its next certificate: give --members, where the authority is"), err=True
        )
    for why in wrong:
        click.echo(safe(f"{answer.agent}: {why}"), err=True)
    if wrong:
        raise SystemExit(1)


def _authorities(ca_file: Path | None, members: Path | None) -> bytes | None:
    """Of agents. Raises ValueError and OSError."""
    if ca_file is not None:
        return ca_file.read_bytes()
    if members is None:
        return None
    with Region.open(members) as region:
        return region.authorities.pem()


def _renew(trust: Path, members: Path, answer: carried.Answer, file: Path, days: int) -> list[str]:
    """Why the host's certificate is not renewed. Raises OSError."""
    with Region.open(members) as region:
        try:
            request = carried.renewal_in(file)
            if sites.renew(trust, region, answer, request, days):
                click.echo(
                    safe(f"{answer.agent}: its certificate is renewed: vedette fleet export --site takes it along")
                )
        except ValueError as error:
            region.audit("renewal_refused", name=answer.agent, fleet=answer.fleet, reason=str(error)[:1000])
            return [f"its certificate is not renewed: {error}"]
    return []
