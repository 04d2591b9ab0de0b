"""``mqtts://`` against a real mosquitto that asks for client certificates, and against servers that are not right."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker import Broker, running
from tests.certificates import Authority
from tests.mqtt.kit import QUICK, connected
from tests.waits import eventually
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings

pytestmark = pytest.mark.peer
ASKS = ("require_certificate true", "use_identity_as_username true", "allow_anonymous false")


def outage(settings: MqttSettings) -> str:
    """The reason that is told when this client cannot connect; it is told once, and the client goes on trying."""

    async def main() -> None:
        client = MqttClient(settings, "a", backoff=QUICK)
        async with client.running():
            await eventually("further attempts to connect", lambda: client.attempts >= 3)
            assert not client.connected.is_set()

    with capture_logs() as logs:
        asyncio.run(main())
    (entry,) = logs
    assert (entry["event"], entry["broker"], entry["action"]) == ("broker_away", settings.url, "retrying")
    return str(entry["reason"])


def test_both_sides_show_certificates(tmp_path: Path) -> None:
    """With a certificate of the region's authority an agent gets through, by TLS 1.3 and by 1.2."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("a1")
    for version in ("tlsv1.3", "tlsv1.2"):
        tls = (authority.ca, *authority.issue("broker"))
        with running(tmp_path / version, tls=tls, extra=[*ASKS, f"tls_version {version}"]) as broker:

            async def main(url: str = broker.url) -> None:
                got: list[Message] = []
                settings = MqttSettings(url=url, ca_file=authority.ca, cert_file=cert, key_file=key)
                async with connected(settings, "a", subscriptions=["t"], on_message=got.append) as client:
                    await asyncio.gather(*(client.publish("t", bytes(300_000)) for _ in range(30)))
                    await eventually("30 messages", lambda: len(got) == 30)

            asyncio.run(main())


def test_a_broker_with_another_name(tmp_path: Path) -> None:
    """A certificate of the right authority for another host is refused by name."""
    authority = Authority(tmp_path)
    tls = (authority.ca, *authority.issue("broker", host="broker.example"))
    with running(tmp_path / "broker", tls=tls) as broker:
        said = outage(MqttSettings(url=broker.url, ca_file=authority.ca))
    assert said.startswith("certificate verify failed: IP address mismatch")
    assert "127.0.0.1" in said


def test_a_broker_whose_certificate_expired(tmp_path: Path) -> None:
    """An expired certificate is refused; when the broker gets a good one the same client connects."""
    authority = Authority(tmp_path)
    tls = (authority.ca, *authority.issue("broker", expired=True))
    with running(tmp_path / "broker", tls=tls) as broker:
        assert outage(MqttSettings(url=broker.url, ca_file=authority.ca)) == (
            "certificate verify failed: certificate has expired"
        )

        async def main() -> None:
            client = MqttClient(MqttSettings(url=broker.url, ca_file=authority.ca), "a", backoff=QUICK)
            async with client.running():
                await eventually("the outage", lambda: client.outage)
                authority.issue("broker")
                broker.restart()
                await eventually("the connection", client.connected.is_set)

        asyncio.run(main())


def test_a_broker_of_another_authority(tmp_path: Path) -> None:
    """A certificate that an authority unknown to us signed is refused."""
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", "another authority")
    with running(tmp_path / "broker", tls=(other.ca, *other.issue("broker"))) as broker:
        said = outage(MqttSettings(url=broker.url, ca_file=authority.ca))
    assert said == "certificate verify failed: self-signed certificate in certificate chain"


@pytest.mark.parametrize(
    ("shows", "says"),
    [("nothing", "certificate required"), ("another's", "unknown ca"), ("expired", "certificate expired; our cert")],
)
def test_a_client_that_the_broker_refuses(tmp_path: Path, shows: str, says: str) -> None:
    """No client certificate, one of another authority and an expired one: what the broker says is in the reason, and
    of an expired one its file and date."""
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", "another authority")
    cert, key = {
        "nothing": lambda: (None, None),
        "another's": lambda: other.issue("a1"),
        "expired": lambda: authority.issue("a1", expired=True),
    }[shows]()
    tls = (authority.ca, *authority.issue("broker"))
    with running(tmp_path / "broker", tls=tls, extra=ASKS) as broker:
        said = outage(MqttSettings(url=broker.url, ca_file=authority.ca, cert_file=cert, key_file=key))
    assert f"the peer refuses us: {says}" in said
    if shows == "expired":
        assert str(cert) in said


@pytest.mark.parametrize("what", ["mode", "missing", "passphrase", "not a key"])
def test_keys_that_cannot_be_used(tmp_path: Path, what: str) -> None:
    """A key that others can reach, is not there, wants a passphrase or is none: told by file and what to do; the client
    goes on trying, and connects once it is mended."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("a1")
    good = key.read_bytes()
    if what == "mode":
        key.chmod(0o640)
    elif what == "missing":
        key.unlink()
    elif what == "passphrase":
        os.system(f"openssl pkcs8 -topk8 -in {key} -out {key}.enc -passout pass:x -v2 aes128 && mv {key}.enc {key}")
        key.chmod(0o600)
    else:
        key.write_text("no key\n")
    tls = (authority.ca, *authority.issue("broker"))
    with running(tmp_path / "broker", tls=tls, extra=ASKS) as broker:
        settings = MqttSettings(url=broker.url, ca_file=authority.ca, cert_file=cert, key_file=key)
        said = outage(settings)
        assert str(key) in said
        assert {"mode": "chmod 600", "missing": "is missing", "passphrase": "passphrase", "not a key": "no cert"}[
            what
        ] in said

        async def main() -> None:
            client = MqttClient(settings, "a", backoff=QUICK)
            async with client.running():
                await eventually("the outage", lambda: client.outage)
                key.touch(0o600)
                key.chmod(0o600)
                key.write_bytes(good)
                await eventually("the connection", client.connected.is_set)

        asyncio.run(main())


def test_the_key_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many connections the private key is read once; again only when its file has changed."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("a1")
    reads: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def counted(self: ssl.SSLContext, *args: Any, **options: Any) -> None:
        reads.append(str(args[0]))
        load(self, *args, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", counted)
    with running(tmp_path / "broker", tls=(authority.ca, *authority.issue("broker")), extra=ASKS) as broker:

        async def main() -> None:
            settings = MqttSettings(url=broker.url, ca_file=authority.ca, cert_file=cert, key_file=key)
            async with connected(settings, "a") as client:
                for turn in range(4):
                    if turn == 2:
                        authority.issue("a1")
                    client.reconnect()
                    await eventually("the connection", client.connected.is_set)

        asyncio.run(main())
    assert reads == [str(cert), str(cert)]


@contextmanager
def old_server(authority: Authority) -> Iterator[int]:
    """A server that speaks TLS 1.1 and nothing newer; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("broker"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    try:
                        context.wrap_socket(peer, server_side=True).close()
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_1_1(tmp_path: Path) -> None:
    """A broker that speaks nothing newer than TLS 1.1 is refused."""
    authority = Authority(tmp_path)
    with old_server(authority) as port:
        said = outage(MqttSettings(url=f"mqtts://127.0.0.1:{port}", ca_file=authority.ca))
    assert "protocol version" in said or "unsupported protocol" in said


def test_a_broker_that_speaks_no_tls(tmp_path: Path) -> None:
    """A plain broker under an ``mqtts://`` address is told, and a name that does not resolve is, too."""
    authority = Authority(tmp_path)
    broker = Broker(tmp_path / "broker")
    broker.start()
    try:
        said = outage(MqttSettings(url=f"mqtts://127.0.0.1:{broker.port}", ca_file=authority.ca))
    finally:
        broker.kill()
    assert said
    said = outage(MqttSettings(url="mqtts://broker.invalid:8883", ca_file=authority.ca))
    assert "Name or service not known" in said or "name resolution" in said
