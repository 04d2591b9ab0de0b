"""The commands of those who make bundles and run the centre: ``bundle keygen|build|sign`` and ``region``."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from vedette.cli.console import fail, json_line, pipeline_options, safe
from vedette.mqtt.settings import MqttSettings
from vedette.region import build as builder
from vedette.region import sign as signer
from vedette.region.enroll import DAYS, RECEIPT_KEY, ROLES, Region
from vedette.region.sitezip import Site, site_key, site_zip
from vedette.system.folders import read_regular


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that reach a broker: the fields of ``MqttSettings``."""
    for option in reversed(
        [
            click.option(
                "--broker", "url", required=True, metavar="URL", help="mqtt://host:port, or mqtts://host:port for TLS."
            ),
            click.option("--username", default="", metavar="NAME", help="Name at the broker."),
            click.option(
                "--password-file", type=click.Path(path_type=Path), help="Its password: the first line of this file."
            ),
            click.option(
                "--ca",
                "ca_file",
                type=click.Path(path_type=Path),
                help="Authority of the broker's certificate (PEM); default: those of the host.",
            ),
            click.option(
                "--cert",
                "cert_file",
                type=click.Path(path_type=Path),
                help="Client certificate (PEM), with --key-file.",
            ),
            click.option("--key-file", type=click.Path(path_type=Path), help="Its private key (PEM)."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
def keygen(path: Path) -> None:
    """Write a new signing key to PATH (for its owner only) and print the public key for agents.

    Example: vedette bundle keygen region.pem
    """
    try:
        click.echo(signer.keygen(path))
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
def public(path: Path) -> None:
    """Print the public key of the private key in PATH, as agents have it in bundles.trusted_keys.

    Example: vedette bundle public region.pem
    """
    try:
        click.echo(signer.public_text(signer.load_key(path)))
    except (OSError, ValueError) as error:
        fail(error)


@click.command()
@click.argument("rules", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The bundle file to write.")
@click.option("--version", type=click.IntRange(1), required=True, help="Must rise with every published bundle.")
@click.option("--name", metavar="NAME", default="rules", show_default=True, help="Shown in alerts as NAME-VERSION.")
@click.option(
    "--days",
    default=365,
    show_default=True,
    type=click.IntRange(1),
    help="Days until it expires; it keeps judging, and is said to be expired.",
)
@click.option("--sample", type=click.Path(path_type=Path), help="Lines of typical traffic: guides the prefilter.")
@click.option(
    "--strict", is_flag=True, help="Do not build either when a rule does not run or a test file has mistakes."
)
@pipeline_options
def build(
    rules: tuple[Path, ...], output: Path, version: int, name: str, days: int, sample: Path | None, strict: bool,
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...],
) -> None:  # fmt: skip
    """Build an unsigned bundle from the rule files and folders RULES, with the test events beside them.

    Rules that do not run are told and left out. Exit code 2 when a test event fails: nothing is built.

    Example: vedette bundle build rules/sigma -o starter-1.vbundle --version 1
    """
    from vedette.engine.artifact import Artifact
    from vedette.rules import build as compiler
    from vedette.rules.authoring import cases
    from vedette.rules.selftest import check

    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        fail(f"--name {name}: expects letters, digits, '.', '_' or '-'")
    try:
        traffic = sample.read_bytes() if sample else b""
        plan = compiler.build(rules, sample=traffic, pipelines=pipelines, lookups=lookups)
        tests, mistakes = cases.load(plan.rules)
        timed, more = cases.sequences(plan)
        mistakes += more
        artifact = Artifact.of(plan)
        failures = check(artifact.engine(), [*tests, *timed])
        for line in (*plan.refused, *mistakes, *failures):
            click.echo(safe(str(line)), err=True)
        if failures or (strict and (plan.refused or mistakes)):
            fail("not built: a test event fails or a rule does not run; see above")
        now = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()) * 1_000_000  # the former: reproducible builds
        listed = [*compiler.described(plan), *({"state": "refused", **r._asdict()} for r in plan.refused)]
        data = builder.build(
            name=name,
            version=version,
            created=now,
            expires=now + days * 86_400_000_000,
            plan=artifact.plan,
            databases=artifact.databases,
            sources=_sources(rules, list(compiler.files(rules)), {one.path for one in plan.refused}),
            rules=listed,
            tests=[*(case.to_row() for case in tests), *(case.to_row() for case in timed)],
            hyperscan_version=artifact.library,
        )
        output.write_bytes(data)
    except (OSError, ValueError) as error:
        fail(error)
    click.echo(
        f"{output}: {len(plan.rules)} rules, {len(plan.correlations)} correlations, {len(tests)} test events,"
        f" {len(timed)} sequences, {len(data):,} bytes, not signed yet"
    )


def _sources(roots: tuple[Path, ...], files: list[Path], refused: set[str]) -> dict[str, bytes]:
    """Rule files by path below the folder they were found in; ``.yaml`` becomes ``.yml``, other signs ``-``. Of the
    ``refused`` those that can be read."""
    sources = {}
    for file in files:
        root = next((root for root in roots if file.is_relative_to(root) and root.is_dir()), file.parent)
        parts = [re.sub(r"[^A-Za-z0-9._-]", "-", part) for part in file.relative_to(root).with_suffix(".yml").parts]
        try:
            sources["/".join(parts)] = read_regular(file)
        except OSError:
            if str(file) not in refused:
                raise
    return sources


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Private key from `bundle keygen`.")
@click.option("--fleet", metavar="NAME", default="", help="The agents' agent.fleet, for a bundle to be published.")
@click.option("--channel", metavar="NAME", default="", help="With --fleet: their bundles.channel.  [default: stable]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of replacing PATH.")
def sign(path: Path, key: Path, fleet: str, channel: str, output: Path | None) -> None:
    """Sign the bundle PATH with a private key, for the agents of one fleet that follow one channel.

    Signed without --fleet it can be given to hosts as a file ([bundles] file), and cannot be published. One build may
    be signed for several fleets: write each with -o.

    Example: vedette bundle sign starter-1.vbundle --key region.pem --fleet plants -o plants-1.vbundle
    """
    from vedette.bundle.install import read_bundle

    try:
        if channel and not fleet:
            raise ValueError("--channel goes with --fleet")
        private = signer.load_key(key)
        data = signer.sign(read_bundle(path), private, fleet, channel or (fleet and "stable"))
        (output or path).write_bytes(data)
    except (OSError, ValueError) as error:
        fail(error)
    whom = f"for fleet {fleet}, channel {channel or 'stable'}" if fleet else "for no fleet: to be given as a file"
    click.echo(f"{output or path}: signed by {signer.public_text(private)}, {whom}")


@click.group()
def region() -> None:
    """The centre: enroll agents, publish bundles, land alerts.

    Example: vedette region land --broker mqtt://region:1883 --folder /srv/landing
    """


@region.command()
@click.argument("name", metavar="AGENT")
@click.option("--folder", type=click.Path(path_type=Path), required=True,
              help="The region's authority, members and access list; made when it is not there.")  # fmt: skip
@click.option("--fleet", metavar="NAME", default="default", show_default=True, help="The agent's agent.fleet.")
@click.option("--role", type=click.Choice(ROLES), default="agent", show_default=True,
              help="What AGENT is: an agent, a landing, an operator who publishes bundles, the broker.")  # fmt: skip
@click.option("--broker", metavar="URL", help="The region's broker, for agents' configuration: once, it is remembered.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="Name or address of the broker; may be repeated.")
@click.option("--days", default=DAYS, show_default=True, type=click.IntRange(1, 3650), help="Days until it expires.")
@click.option("--renew", is_flag=True, help="A new key and certificate, though the old one is good for longer.")
@click.option("--revoke", is_flag=True, help="Take AGENT out: rights and certificates.")
@click.option("--zip", "release", type=click.Path(path_type=Path), metavar="PATH",
              help="Also write the agent's own copy of this installation zip: unzip, one line, done.")  # fmt: skip
@click.option("--bundle", type=click.Path(path_type=Path), help="With --zip: rules to begin with, a signed bundle.")
@click.option("--key", default="", metavar="KEY", help="With --zip: the public key of the region's bundles.")
def enroll(
    name: str, folder: Path, fleet: str, role: str, broker: str | None, hosts: tuple[str, ...], days: int, renew: bool,
    revoke: bool, release: Path | None, bundle: Path | None, key: str,
) -> None:  # fmt: skip
    """Make AGENT a member of the region: certificate, key, access to its own topics, configuration.

    Run again it changes nothing, but for a certificate with less than 30 days left, which is renewed.

    Example: vedette region enroll web-1 --folder region-ca --broker mqtts://region.example:8883
    """
    try:
        if broker is not None and not re.fullmatch(r"mqtts?://[A-Za-z0-9.:\[\]_-]+", broker):
            raise ValueError(f"--broker {broker}: expects mqtts://host:port")
        if release is None and (bundle or key):
            raise ValueError("--bundle and --key go with --zip")
        if release is not None and (role != "agent" or revoke):
            raise ValueError("--zip is for agents that are enrolled")
        with Region.open(folder) as known:
            known.broker = broker or known.broker
            if revoke:
                number = len(known.revoke(name).revoked)
                what = f"{number} certificates" if number > 1 else "1 certificate"
                click.echo(
                    f"{name} is revoked, {what}. Give {folder / 'mosquitto.acl'} and {folder / 'crl.pem'} to the"
                    " broker: its rights end with a reload (SIGHUP), new connections with a restart"
                )
                return
            done = known.enroll(name, role=role, fleet=fleet, hosts=hosts, days=days, renew=renew)
            until = time.strftime("%Y-%m-%d", time.gmtime(done.member.ends))
            what = "new certificate" if done.renewed else "as it was"
            click.echo(f"{name}: {role} of fleet {fleet}, {what}, good until {until}")
            if done.renewed and done.member.former:
                last = time.strftime("%Y-%m-%d", time.gmtime(max(ends for _, ends in done.member.former)))
                click.echo(f"the earlier one stays good until {last}; in wrong hands: --revoke, then enroll anew")
            click.echo(f"for its host: {done.folder}/")
            if release is not None:
                signing = site_key(folder)
                made = site_zip(release, Site(name, done.folder, bundle, key), done.folder, signing)
                click.echo(f"to install it: {made}: secret, it holds the agent's key")
                click.echo(f"by who installs it: --site-key {signer.public_text(signer.load_key(signing))}")
            click.echo(f"for the broker: {folder / 'mosquitto.acl'}, then reload it (SIGHUP)")
            if role == "landing":
                click.echo(
                    f"vedette region land --client-id {name} --group {known.group} --receipt-key {RECEIPT_KEY} …"
                )
    except (OSError, ValueError) as error:
        fail(error)


@region.command()
@click.argument("path", type=click.Path(path_type=Path))
@broker_options
@click.option("--fleet", metavar="NAME", help="Not published unless the bundle is signed for this fleet.")
@click.option("--channel", metavar="NAME", help="Not published unless the bundle is signed for this channel.")
@click.option("--landing", type=click.Path(path_type=Path), help="Also keep the rule list in this landing folder.")
def publish(path: Path, fleet: str | None, channel: str | None, landing: Path | None, **broker: object) -> None:
    """Publish the bundle PATH to the agents of the fleet and channel that it is signed for.

    Example: vedette region publish plants-1.vbundle --broker mqtt://region:1883
    """
    from vedette.bundle.install import read_bundle
    from vedette.config.settings import LogSettings
    from vedette.region.publish import publish as publish_bundle
    from vedette.runtime.logs import configure_logging

    configure_logging(LogSettings(level="warning"))
    try:
        settings = MqttSettings(**broker)  # type: ignore[arg-type]
        announced = asyncio.run(
            publish_bundle(settings, read_bundle(path), fleet=fleet, channel=channel, landing=landing)
        )
    except (OSError, ValueError, TimeoutError) as error:
        fail(f"not published: {error}")
    click.echo(f"{path}: published version {announced.version} to fleet {announced.fleet}, channel {announced.channel}")


@region.command()
@broker_options
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="The landing folder.")
@click.option("--client-id", metavar="NAME", default="vedette-landing", show_default=True,
              help="Its session at the broker: keep it over restarts.")  # fmt: skip
@click.option("--group", metavar="NAME", default="landing", show_default=True,
              help="All landings of one group share the alerts.")  # fmt: skip
@click.option("--seconds", default=5.0, show_default=True, help="Write a file after so many seconds at the latest.")
@click.option("--rows", default=10_000, show_default=True, help="And after so many rows at the latest.")
@click.option("--kafka", metavar="HOST:PORT,…", default="", help="Write every row to Kafka, too.")
@click.option("--kafka-topics", metavar="NAME", default="vedette", show_default=True,
              help="Topics are NAME.alerts, NAME.status, NAME.bad and NAME.seqs.")  # fmt: skip
@click.option("--receipt-key", type=click.Path(path_type=Path),
              help="Sign receipts with this private key; agents know it by uplink.receipt_keys.")  # fmt: skip
def land(
    folder: Path,
    client_id: str,
    group: str,
    seconds: float,
    rows: int,
    kafka: str,
    kafka_topics: str,
    receipt_key: Path | None,
    **broker: object,
) -> None:
    """Land alerts and heartbeats as Parquet files, then send receipts; until SIGTERM or SIGINT.

    Example: vedette region land --broker mqtt://region:1883 --folder /srv/landing
    """
    from vedette.config.settings import LogSettings
    from vedette.region.land import LandingSettings
    from vedette.region.land import land as run_landing
    from vedette.runtime.logs import configure_logging

    configure_logging(LogSettings())

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        settings = MqttSettings(**broker)  # type: ignore[arg-type]
        key = None if receipt_key is None else signer.load_key(receipt_key)
        wanted = LandingSettings(
            settings, folder, client_id, group, rows, seconds, kafka=kafka, kafka_topics=kafka_topics, receipt_key=key
        )
        await run_landing(wanted, stop)

    try:
        asyncio.run(main())
    except ModuleNotFoundError as error:
        fail(f"--kafka needs a library ({error}): pip install 'vedette[kafka]'")
    except (OSError, ValueError) as error:
        fail(error)


@region.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="The landing folder.")
@click.option("--days", default=7, show_default=True, type=click.IntRange(1), help="How far back to look.")
@click.option("--settle", default=900.0, show_default=True, help="Seconds for which a gap may be on its way.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per agent and numbering.")
def status(folder: Path, days: int, settle: float, as_json: bool) -> None:
    """Show what the landing has of each agent's alerts: the numbers that came, and those that are missing.

    Exit code 1 when alerts are missing.

    Example: vedette region status --folder /srv/landing
    """
    from vedette.region.gaps import find

    try:
        found = find(folder, time.time_ns() // 1000, days=days, settle=settle)
    except ModuleNotFoundError as error:
        fail(f"region status reads Parquet ({error}): pip install 'vedette[region]'")
    except (OSError, ValueError) as error:
        fail(error)
    if not as_json:
        click.echo(f"{'fleet':<12}{'agent':<20}{'state':<12}{'seqs':<18}{'landed':>9}{'on its way':>12}{'missing':>9}")
    for one in found:
        if as_json:
            click.echo(json_line(one._asdict()))
            continue
        seqs = f"{one.first}-{one.last}"
        told = f"{one.fleet:<12}{one.agent_id:<20}{one.state:<12}{seqs:<18}"
        click.echo(safe(f"{told}{one.landed:>9}{one.on_the_way:>12}{one.missing:>9}"))
        for first, last in one.gaps:
            click.echo(f"    gap {first}-{last}")
        if one.unlanded:
            click.echo(f"    {one.unlanded} after {one.last} left the agent's outbox and did not land")
    if not found:
        click.echo(f"no alerts in the last {days} days", err=True)
    raise SystemExit(1 if any(one.missing for one in found) else 0)
