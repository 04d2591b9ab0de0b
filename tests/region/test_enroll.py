"""``vedette member``: the folder, and what a real mosquitto makes of its certificates and access list."""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from tests.broker import Broker, own_port
from tests.delivery.kit import alert
from tests.mqtt.kit import QUICK, connected
from tests.waits import DEADLINE, eventually, pauses, until
from vedette.cli.main import main as cli
from vedette.config.read import parse
from vedette.delivery.envelope import encode, pack_batch
from vedette.delivery.receipts import unpack_receipt
from vedette.delivery.topics import enrolment_requests
from vedette.fleet.certificates import new_key
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.region import enroll
from vedette.region.enroll import MAX_FORMER, Region
from vedette.region.land import Landing, LandingSettings
from vedette.region.sign import load_key, public_text

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
URL = "mqtts://region.example:8883"


def member(verb: str, *arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["member", verb, *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def run(*arguments: object, code: int = 0) -> str:
    return member("enroll", *arguments, code=code)


@contextmanager
def opened(folder: Path, now: datetime | None = NOW) -> Iterator[Region]:
    """The region in ``folder``, which has a broker's address."""
    with Region.open(folder, now=now) as region:
        region.broker = URL
        yield region


def test_an_agent_from_the_command_line(tmp_path: Path) -> None:
    """One command makes authority, key, certificate, access and configuration; again, nothing changes; what lacks or
    does not fit is made anew; the modes are those promised."""
    folder = tmp_path / "region"
    said = run("web-1", "--folder", folder, "--fleet", "plants", "--broker", URL)
    home = folder / "members" / "web-1"
    assert f"{home}/" in said
    assert "new certificate" in said
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
    assert modes["agent.key"] == modes["ca.key"] == modes["members.json"] == 0o600
    assert not any(mode & 0o022 for mode in modes.values())
    assert stat.S_IMODE(home.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o700

    certificate = x509.load_pem_x509_certificate((home / "agent.pem").read_bytes())
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "web-1"
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    config = parse((home / "vedette.toml").read_text() + '[[input]]\ntype = "file"\nname = "f"\npaths = ["/x"]\n')
    assert (config.agent.id, config.agent.fleet, config.uplink.broker.url) == ("web-1", "plants", URL)

    assert "as it was" in run("web-1", "--folder", folder, "--fleet", "plants")
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "crl.pem"}
    assert kept == {path: data for path, data in files.items() if path.name != "crl.pem"}
    (home / "agent.key").write_bytes((folder / "ca.key").read_bytes())  # of another certificate
    assert "new certificate" in run("web-1", "--folder", folder, "--fleet", "plants")
    (home / "agent.pem").unlink()
    assert "new certificate" in run("web-1", "--folder", folder, "--fleet", "plants")
    assert "new certificate" in member("renew", "web-1", "--folder", folder)
    assert parse((home / "vedette.toml").read_text()).agent.fleet == "plants"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a/b",), "'a/b': expects"),
        (("+",), "'+': expects"),
        (("#",), "'#': expects"),
        (("a" * 65,), "1 to 64"),
        (("bundles",), "not bundles"),
        (("vedette-a",), "begin with 'vedette-'"),
        (("a\nuser root",), "expects"),
        (("web-1", "--fleet", "+"), "fleet '+'"),
        (("web-1", "--role", "landing"), "enrolled as agent of fleet default: revoke it first"),
        (("web-1", "--fleet", "other"), "enrolled as agent of fleet default"),
        (("web-1", "--host", "x"), "a broker needs the host names"),
        (("broker", "--role", "broker"), "a broker needs the host names"),
        (("web-2", "--broker", 'mqtts://x"\nid = "y'), "expects mqtts://host:port"),
    ],
)
def test_what_is_refused(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    """Names that topics, certificates or access lists would read as something else, and roles that do not fit."""
    run("web-1", "--folder", tmp_path, "--broker", URL)
    acl = (tmp_path / "mosquitto.acl").read_bytes()
    assert says.replace("\n", "\\n") in run(*arguments, "--folder", tmp_path, code=2)
    for verb in ("revoke", "renew"):
        assert "gone is not enrolled" in member(verb, "gone", "--folder", tmp_path, code=2)
    assert (tmp_path / "mosquitto.acl").read_bytes() == acl


def test_all_members(tmp_path: Path) -> None:
    """A line each, revoked ones included; as JSON, too."""
    run("web-1", "--folder", tmp_path, "--broker", URL)
    run("landing-1", "--folder", tmp_path, "--role", "landing")
    member("revoke", "web-1", "--folder", tmp_path)
    rows = [line.split() for line in member("list", "--folder", tmp_path).splitlines()]
    assert [row[:4] for row in rows] == [
        ["name", "role", "fleet", "state"],
        ["landing-1", "landing", "default", "active"],
        ["web-1", "agent", "default", "revoked"],
    ]
    one, _ = map(json.loads, member("list", "--folder", tmp_path, "--json").splitlines())
    assert (one["name"], one["state"]) == ("landing-1", "active")
    assert "web-1 is not enrolled" in member("renew", "web-1", "--folder", tmp_path, code=2)


@pytest.mark.parametrize("arguments", [("list",), ("renew", "a"), ("revoke", "a"), ("zip", "a", "--release", "r.zip")])
def test_a_folder_without_a_region(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Only ``enroll`` makes one: a mistyped folder gives no second authority."""
    for folder in (tmp_path / "none", tmp_path):
        assert "no region here" in member(*arguments, "--folder", folder, code=2)
    assert not list(tmp_path.iterdir())


def test_the_broker_is_asked_for_once(tmp_path: Path) -> None:
    """The first agent needs the broker's address; further ones take it from the folder."""
    assert "Give its address once" in run("web-1", "--folder", tmp_path, code=2)
    run("web-1", "--folder", tmp_path, "--broker", URL)
    run("web-2", "--folder", tmp_path)
    assert URL in (tmp_path / "members/web-2/vedette.toml").read_text()


def test_agents_know_the_key_of_receipts(tmp_path: Path) -> None:
    """The first landing makes the region's key; every landing has it, for its owner only, and agents enrolled from then
    on have its public part in their configuration."""
    run("early", "--folder", tmp_path, "--broker", URL)
    shown = run("one", "--folder", tmp_path, "--role", "landing")
    run("two", "--folder", tmp_path, "--role", "landing")
    run("web-1", "--folder", tmp_path)
    assert "--receipt-key receipt.key" in shown
    key, *copies = tmp_path / "receipt.key", *(tmp_path / f"members/{name}/receipt.key" for name in ("one", "two"))
    assert {path.stat().st_mode & 0o777 for path in (key, *copies)} == {0o600}
    assert {path.read_bytes() for path in copies} == {key.read_bytes()}
    settings = parse((tmp_path / "members/web-1/vedette.toml").read_text())
    assert settings.uplink.receipt_keys == (public_text(load_key(key)),)
    assert not settings.uplink.warning
    assert parse((tmp_path / "members/early/vedette.toml").read_text()).uplink.receipt_keys == ()
    run("early", "--folder", tmp_path)
    assert "receipt_keys" in (tmp_path / "members/early/vedette.toml").read_text()


def test_renewal_is_by_time(tmp_path: Path) -> None:
    """A certificate with more than 30 days left stays; with less it is renewed; none outlives its authority."""
    with opened(tmp_path) as region:
        first = region.enroll("a", now=NOW)
        assert not region.enroll("a", now=NOW + timedelta(days=334)).renewed
        later = region.enroll("a", now=NOW + timedelta(days=336))
        assert later.renewed
        assert first.member.ends == later.member.ends  # one object: the newest
        end = NOW + timedelta(days=3650)
        assert region.enroll("b", now=end - timedelta(days=40)).member.ends == int(end.timestamp())
        with pytest.raises(ValueError, match="the authority ended"):
            region.enroll("c", now=end + timedelta(days=1))


def test_allowed_while_the_clock_was_ahead(tmp_path: Path) -> None:
    """Who may enrol with another key within 24 hours may no more when the clock is set right."""
    with opened(tmp_path) as region:
        region.admit("a", new_key().public_key(), fleet="default", labels={}, now=NOW)
        region.consent("a", now=NOW + timedelta(days=365))
        with pytest.raises(ValueError, match="'vedette member allow a' lets it enrol again"):
            region.admit("a", new_key().public_key(), fleet="default", labels={}, now=NOW)
        region.consent("a", now=NOW + timedelta(minutes=4))
        region.admit("a", new_key().public_key(), fleet="default", labels={}, now=NOW)


def test_renewals_have_a_bound(tmp_path: Path) -> None:
    """A member that renews without end is refused until its earlier certificates have ended; others are not."""
    with opened(tmp_path) as region:
        for name in ("a", "b"):
            region.admit(name, new_key().public_key(), fleet="default", labels={}, now=NOW)
        for _ in range(MAX_FORMER):
            region.renew("a", new_key().public_key(), days=30, now=NOW)
        before = (tmp_path / "members.json").read_bytes()
        with pytest.raises(ValueError, match="32 certificates beside its newest"):
            region.renew("a", new_key().public_key(), days=30, now=NOW)
        assert (tmp_path / "members.json").read_bytes() == before
        region.renew("b", new_key().public_key(), days=30, now=NOW)
        region.renew("a", new_key().public_key(), days=30, now=NOW + timedelta(days=400))


def test_two_commands_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first, and says whom it waited for when that takes too long."""
    folder = tmp_path / "region"
    run("web-1", "--folder", folder, "--broker", URL)
    monkeypatch.setattr("vedette.region.enroll.LOCK_SECONDS", 0.2)
    with Region.open(folder):
        assert "another `vedette member` command is at work" in run("web-2", "--folder", folder, code=2)
    monkeypatch.setattr("vedette.region.enroll.LOCK_SECONDS", DEADLINE)
    flock, tries = fcntl.flock, list[int]()
    with ThreadPoolExecutor() as pool:
        with Region.open(folder):
            monkeypatch.setattr(fcntl, "flock", lambda *how: tries.append(1) or flock(*how))
            second = pool.submit(lambda: Region.open(folder).__enter__().members)
            until("a second try", lambda: len(tries) > 1)
            assert not second.done()
        assert "web-1" in second.result(DEADLINE)


def test_keys_and_files_that_are_not_right(tmp_path: Path) -> None:
    """An authority's key that others can reach, a foreign one, and a damaged list of members are refused by name."""
    folder = tmp_path / "region"
    run("web-1", "--folder", folder, "--broker", URL)
    (folder / "ca.key").chmod(0o640)
    assert f"chmod 600 {folder}/ca.key" in run("web-2", "--folder", folder, code=2)
    (folder / "ca.key").chmod(0o600)
    good = (folder / "members.json").read_bytes()
    (folder / "members.json").write_bytes(good[:-20])
    assert "members.json cannot be read" in run("web-2", "--folder", folder, code=2)
    (folder / "members.json").write_bytes(good)
    run("x", "--folder", tmp_path / "other", "--broker", URL)
    (folder / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    assert "not the one of the certificate" in run("web-2", "--folder", folder, code=2)


def serials(folder: Path) -> list[int]:
    """What ``crl.pem`` revokes."""
    return sorted(entry.serial_number for entry in x509.load_pem_x509_crl((folder / "crl.pem").read_bytes()))


def test_a_revoked_member_has_no_earlier_certificate_left(tmp_path: Path) -> None:
    """A renewal leaves the earlier certificate good, until its end or until the member is revoked: then all that are
    not expired are on the list; those of older member files, which do not name them, without them."""
    run("a", "--folder", tmp_path, "--broker", URL)
    given = [_serial_of(tmp_path)]
    for _ in range(2):
        said = member("renew", "a", "--folder", tmp_path)
        assert "the old certificate stays valid until" in said
        given.append(_serial_of(tmp_path))
    assert serials(tmp_path) == []
    assert "3 certificates" in member("revoke", "a", "--folder", tmp_path)
    assert serials(tmp_path) == sorted(given)
    run("a", "--folder", tmp_path)
    member("revoke", "a", "--folder", tmp_path)
    assert len(serials(tmp_path)) == 4

    old, end = tmp_path / "old", NOW + timedelta(days=366)
    with opened(old) as region:
        region.enroll("a", now=NOW)
    known = json.loads((old / "members.json").read_bytes())
    del known["members"][0]["former"]
    (old / "members.json").write_text(json.dumps(known))
    with Region.open(old, now=NOW) as region:
        region.enroll("a", now=NOW + timedelta(days=300), renew=True)
        region.enroll("a", now=end, renew=True)
        region.revoke("a", now=end)  # the first one has expired
    assert len(serials(old)) == 2
    assert _serial_of(old) in serials(old)


def _serial_of(folder: Path) -> int:
    return x509.load_pem_x509_certificate((folder / "members/a/agent.pem").read_bytes()).serial_number


@pytest.mark.parametrize("step", range(1, 9))
def test_killed_between_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Wherever it is killed, the next run ends with a key and a certificate that fit, and a member in the list; no
    certificate that was written is forgotten when the member is revoked."""
    with opened(tmp_path, None) as region:
        region.enroll("a")
    write, count, given = enroll.write_whole, 0, {_serial_of(tmp_path)}

    def killed(path: Path, data: bytes, mode: int) -> None:
        nonlocal count
        count += 1
        if count == step:
            raise KeyboardInterrupt
        write(path, data, mode)
        if path.name == "agent.pem":
            given.add(_serial_of(tmp_path))

    monkeypatch.setattr(enroll, "write_whole", killed)
    with Region.open(tmp_path) as region, suppress(KeyboardInterrupt):
        region.enroll("a", renew=True)
        assert step == 9
    monkeypatch.undo()
    with Region.open(tmp_path) as region:
        done = region.enroll("a")
        certificate = x509.load_pem_x509_certificate((done.folder / "agent.pem").read_bytes())
        private = load_pem_private_key((done.folder / "agent.key").read_bytes(), None)
        assert str(certificate.serial_number) == done.member.serial
        assert certificate.public_key() == private.public_key()
        region.revoke("a")
    assert {_serial_of(tmp_path), *given} <= set(serials(tmp_path))
    with Region.open(tmp_path) as region:
        region.enroll("a")
    assert "user a\n" in (tmp_path / "mosquitto.acl").read_text()


# --- with a real broker


class Site:
    """A region's folder and a mosquitto that runs by it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = Broker(folder / "broker")
        self.broker.url = self.broker.url.replace("mqtt:", "mqtts:")
        with self.region() as region:
            region.broker = self.broker.url
            home = region.enroll("broker", role="broker", hosts=["127.0.0.1"]).folder
            self.group = region.group
        text = self.broker.config.read_text().replace("allow_anonymous true\n", "")
        lines = (
            "require_certificate true",
            "use_identity_as_username true",
            "use_username_as_clientid true",
            "allow_anonymous false",
            f"cafile {home}/region-ca.pem",
            f"certfile {home}/agent.pem",
            f"keyfile {home}/agent.key",
            f"crlfile {folder}/region/crl.pem",
            f"acl_file {folder}/region/mosquitto.acl",
        )
        self.broker.config.write_text(text + "\n".join(lines) + "\n")

    def region(self) -> AbstractContextManager[Region]:
        return Region.open(self.folder / "region")

    def enroll(self, *names: str, role: str = "agent", fleet: str = "f1") -> None:
        with self.region() as region:
            for name in names:
                region.enroll(name, role=role, fleet=fleet)

    def settings(self, name: str) -> MqttSettings:
        home = self.folder / "region" / "members" / name
        cert, key = home / "agent.pem", home / "agent.key"
        return MqttSettings(url=self.broker.url, ca_file=home / "region-ca.pem", cert_file=cert, key_file=key)

    def client(self, name: str, client_id: str = "", **options: object) -> AbstractAsyncContextManager[MqttClient]:
        return connected(self.settings(name), client_id or name, **options)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.enroll("a1", "a2")
    made.enroll("b1", fleet="f2")
    made.enroll("land-1", role="landing")
    made.enroll("op", role="operator")
    yield made
    made.broker.kill()


async def refusal(settings: MqttSettings, client_id: str) -> str:
    """Why the broker, or its certificate, ends a connection before it is one."""
    client = MqttClient(settings, client_id, backoff=QUICK)
    async with client.running():
        await eventually("the refusal", lambda: client.outage)
        assert not client.connected.is_set()
    return client.outage


async def denied(client: MqttClient, topic: str) -> None:
    """The broker refuses a publication."""
    with pytest.raises(PermissionError):
        await published(client, topic, b"not mine", retain="retain" in topic)


async def published(client: MqttClient, topic: str, payload: bytes, *, retain: bool) -> None:
    """Again where the connection ends: mosquitto 2.0.11 ends it after a publication that it refuses."""
    for pause in pauses():
        await asyncio.wait_for(client.connected.wait(), DEADLINE)
        try:
            await client.publish(topic, payload, retain=retain)
        except ConnectionError:
            await asyncio.sleep(pause)
        else:
            return


@pytest.mark.peer
async def test_an_agent_only_as_itself(site: Site) -> None:
    """A member publishes under its own id and fleet and nowhere else, and gets what is its own and nothing else,
    whatever it subscribes to and under whatever client id it comes; the one it tries to be is not disturbed."""
    site.broker.start()

    mine: list[Message] = []
    stolen: list[Message] = []
    seen: list[Message] = []
    watched = ["vedette/v1/+/+/status", "vedette/v1/+/+/replies"]
    wide = ["#", "vedette/#", "vedette/v1/f1/a1/receipts", "vedette/v1/f1/a1/commands", "vedette/v1/+/+/#",
            "$share/x/vedette/v1/+/+/alerts", "$SYS/#", "vedette/v1/f2/bundles/#"]  # fmt: skip
    async with (
        site.client("op", subscriptions=watched, on_message=seen.append)
        as op,
        site.client("land-1") as land,
        site.client("a1", "vedette-f1-a1", on_message=mine.append,
                    subscriptions=["vedette/v1/f1/a1/receipts", "vedette/v1/f1/a1/commands"]) as a1,
        site.client("a2", "vedette-f1-a1", on_message=stolen.append, subscriptions=wide) as a2,  # the same id
        site.client("b1", subscriptions=wide, on_message=stolen.append) as b1,
    ):  # fmt: skip
        await a1.publish("vedette/v1/f1/a1/alerts", b"alert")
        await a1.publish("vedette/v1/f1/a1/status", b"status", retain=True)
        await a1.publish("vedette/v1/f1/a1/replies", b"reply")
        await land.publish("vedette/v1/f1/a1/receipts", b"receipt")
        await op.publish("vedette/v1/f1/a1/commands", b"command")
        await op.publish("vedette/v1/f2/bundles/stable/manifest", b"of f2", retain=True)
        await eventually("messages of its own", lambda: len(mine) == 2 and len(seen) == 2)
        assert {message.payload for message in mine} == {b"receipt", b"command"}
        await eventually("messages of others", lambda: stolen)
        for topic in (
            "f1/a1/alerts", "f1/a1/status", "f1/a1/replies", "f1/a1/receipts", "f1/a2/receipts", "f2/a2/alerts",
            "f1/a2/commands", "f1/bundles/stable/manifest", "f1/a2", "f1/a2/alerts/x",
        ):  # fmt: skip
            await denied(a2, f"vedette/v1/{topic}")
        await denied(a2, "other")
        await denied(a2, "plant/retain")
        await denied(b1, "vedette/v1/f1/b1/alerts")
        await denied(land, "vedette/v1/f1/bundles/stable/manifest")
        await denied(op, "vedette/v1/f1/a1/receipts")
        last = {(f"vedette/v1/{fleet}/bundles/stable/manifest", b"the last") for fleet in ("f1", "f2")}
        for topic, payload in last:
            await published(op, topic, payload, retain=True)

        def messages() -> set[tuple[str, bytes]]:
            return {(message.topic, message.payload) for message in stolen}

        await eventually("what comes last", lambda: last <= messages())
        assert messages() - last == {("vedette/v1/f2/bundles/stable/manifest", b"of f2")}  # to b1, whose fleet it is
        assert (a1.connected.is_set(), a1.attempts) == (True, 1)


@pytest.mark.peer
async def test_no_host_without_a_certificate_is_taken_for_a_member(site: Site) -> None:
    """With the broker's configuration as packaged, its listener for hosts that enrol included: neither by user name nor
    by client id, nor by a client id with wildcards; a member's session is not disturbed."""
    shipped = (ROOT / "packaging/mosquitto.conf").read_text()
    port, home = own_port(), site.folder / "region/members/broker"
    for name, path in {
        "listener 8883": f"listener {site.broker.port} 127.0.0.1",
        "listener 8884": f"listener {port} 127.0.0.1",
        "/etc/mosquitto/certs/broker": f"{home}/agent",
        "/etc/mosquitto/certs/region-ca.pem": f"{home}/region-ca.pem",
        "/etc/mosquitto/certs/crl.pem": f"{site.folder}/region/crl.pem",
        "/etc/mosquitto/": f"{site.folder}/region/",
        "/var/lib/mosquitto/": f"{site.broker.folder}/",
    }.items():
        assert name in shipped
        shipped = shipped.replace(name, path)
    site.broker.config.write_text(
        f"user {getpass.getuser()}\n" + re.sub(r"(?m)^#(?=[a-z_]+ [^ ]+( 127\.0\.0\.1)?$)", "", shipped)
    )
    site.broker.start()
    password = site.folder / "password"
    password.write_text("enrolment")
    guest = MqttSettings(
        url=f"mqtts://127.0.0.1:{port}", ca_file=home / "region-ca.pem", username="enrolment", password_file=password
    )

    stolen: list[Message] = []
    async with site.client("a1", "vedette-f1-a1", subscriptions=["vedette/v1/f1/a1/receipts"]) as a1:
        for client_id in ("a1", "land-1", "+", "#"):
            assert await refusal(guest, client_id) == "Not authorized"
        for user in ("a1", "op", "land-1"):
            assert await refusal(replace(guest, username=user), "vedette-x") == "Not authorized"
        wide = ["#", "vedette/v1/enrolment/#", "vedette/v1/f1/a1/receipts"]
        for client_id in ("vedette-+", "vedette-#", "vedette-x"):
            async with connected(guest, client_id, subscriptions=wide, on_message=stolen.append) as client:
                if client_id == "vedette-x":
                    await client.publish(enrolment_requests(), b"a request")
                await denied(client, "vedette/v1/f1/a1/alerts")
        async with site.client("land-1", "vedette-land-1") as land:
            await land.publish("vedette/v1/f1/a1/receipts", b"receipt")
        await a1.publish("vedette/v1/f1/a1/alerts", b"alert")
        assert (a1.connected.is_set(), a1.attempts) == (True, 1)
    assert stolen == []


@pytest.mark.peer
async def test_revoked(site: Site) -> None:
    """A revoked member loses its rights when the broker reloads, though it stays connected, and may not connect any
    more when the broker has the list; enrolled anew it may."""
    site.broker.start()

    async with site.client("a1") as a1:
        await a1.publish("vedette/v1/f1/a1/alerts", b"x")
        with site.region() as region:
            region.revoke("a1")
            region.revoke("a1")
        assert site.broker.process is not None
        site.broker.process.send_signal(signal.SIGHUP)
        await eventually("the broker's new configuration", lambda: "Reloading config" in site.broker.log())
        await denied(a1, "vedette/v1/f1/a1/alerts")
    site.broker.restart()
    stranger = MqttClient(site.settings("a1"), "a1", backoff=QUICK)
    async with stranger.running():
        await eventually("the refusal", lambda: stranger.outage)
        assert not stranger.connected.is_set()
        assert "certificate revoked" in stranger.outage or "accept our certificate?" in stranger.outage
        async with site.client("a2") as a2:
            await a2.publish("vedette/v1/f1/a2/alerts", b"x")
        site.enroll("a1")
        site.broker.restart()
        await eventually("a connection by the renewed files", stranger.connected.is_set)
        await stranger.publish("vedette/v1/f1/a1/alerts", b"x")


@pytest.mark.peer
def test_an_agents_key_makes_no_broker(site: Site, tmp_path: Path) -> None:
    """A server that shows an agent's certificate is refused: it is good for a client only."""
    home = tmp_path / "region" / "members"
    fake = Broker(tmp_path / "fake", tls=(home / "a2/region-ca.pem", home / "a2/agent.pem", home / "a2/agent.key"))
    fake.start()
    site.broker.url = fake.url
    try:
        with capture_logs():
            outage = asyncio.run(refusal(site.settings("a1"), "a1"))
        assert outage.startswith("certificate verify failed: unsuitable certificate purpose")
    finally:
        fake.kill()


@pytest.mark.peer
async def test_landings_of_the_random_group(site: Site, tmp_path: Path) -> None:
    """A landing with the folder's group lands and receipts while a member sits in the default group and takes nothing
    away from it."""
    site.broker.start()

    landing = Landing(
        LandingSettings(site.settings("land-1"), tmp_path / "landing", "land-1", site.group, max_seconds=0.05)
    )
    task = asyncio.create_task(landing.run())
    await asyncio.wait_for(landing.client.connected.wait(), DEADLINE)
    receipts: list[Message] = []
    greedy = ["$share/landing/vedette/v1/+/+/alerts"]
    async with (
        site.client("a2", subscriptions=greedy),
        site.client("a1", subscriptions=["vedette/v1/f1/a1/receipts"], on_message=receipts.append) as a1,
    ):
        for seq in range(1, 21):
            await a1.publish("vedette/v1/f1/a1/alerts", pack_batch("log", [encode(alert(seq))]))
        await eventually("the landing", lambda: landing.landed["alerts"] == 20)
        await eventually("receipts", lambda: receipts)
    await landing.stop()
    await task
    landed = {seq for m in receipts for a, b in unpack_receipt(m.payload).ranges for seq in range(a, b + 1)}
    assert landed <= set(range(1, 21))


def test_openssl_accepts_the_chain(tmp_path: Path) -> None:
    """``openssl verify``, strictly: agents as clients, the broker as a server, nobody as the other, no one revoked."""
    with opened(tmp_path, None) as region:
        region.enroll("a1")
        region.enroll("gone")
        region.revoke("gone")
        region.enroll("broker", role="broker", hosts=["region.example", "192.0.2.1"])
    command = ["openssl", "verify", "-x509_strict", "-crl_check", "-CAfile", tmp_path / "ca.pem", "-CRLfile",
               tmp_path / "crl.pem"]  # fmt: skip

    def verified(name: str, purpose: str, *more: str) -> bool:
        words = [*command, "-purpose", purpose, *more, tmp_path / "members" / name / "agent.pem"]
        return subprocess.run(list(map(os.fspath, words)), capture_output=True, check=False).returncode == 0

    assert verified("a1", "sslclient")
    assert not verified("a1", "sslserver")
    assert verified("broker", "sslserver", "-verify_hostname", "region.example")
    assert verified("broker", "sslserver", "-verify_ip", "192.0.2.1")
    assert not verified("broker", "sslserver", "-verify_hostname", "other.example")
    assert not verified("gone", "sslclient")
