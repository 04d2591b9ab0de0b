"""Syslog over TLS (RFC 5425) against a real rsyslogd, ``openssl s_client`` and Python's own TLS."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.certificates import Authority
from tests.inputs.intake import LOCAL, Bin, listening, rsyslogd
from tests.waits import eventually
from vedette.inputs import accept
from vedette.inputs.settings import TlsListener
from vedette.model.counters import Counters, Log

OSSL = glob.glob("/usr/lib*/rsyslog/lmnsd_ossl.so") + glob.glob("/usr/lib*/*/rsyslog/lmnsd_ossl.so")


def tls(cert: Path, key: Path, client_ca: Path | None = None) -> TlsListener:
    return TlsListener(LOCAL, cert, key, client_ca)


def client(authority: Authority, name: str = "", **options: Any) -> ssl.SSLContext:
    """A sender's context; with ``name`` it shows a certificate."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    if name:
        context.load_cert_chain(*authority.issue(name, **options))
    return context


async def send(port: int, data: bytes, context: ssl.SSLContext, source: str = "127.0.0.1") -> None:
    """One connection that sends ``data``, ends in order, and raises what TLS says, also after the handshake."""
    about = {"ssl": context, "server_hostname": "127.0.0.1", "local_addr": (source, 0)}
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **about)
    try:
        writer.write(data)
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):  # the refusal of a certificate comes after the handshake in TLS 1.3
                await reader.read()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_lines_and_counted_messages(tmp_path: Path) -> None:
    """Octet-counted messages and lines over TLS are stored as over TCP, in order, also when they are many."""
    authority = Authority(tmp_path)
    bin, counters = Bin(), Counters()
    texts = [b"<13>1 message\n%d" % i for i in range(20_000)]
    async with listening(bin, counters, tls=tls(*authority.issue("agent"))) as (_, port):
        await send(port, b"".join(b"%d %b" % (len(text), text) for text in texts), client(authority))
        await eventually("the events", lambda: len(bin.events) == len(texts))
        await send(port, b"<13>a\n<13>unfinished", client(authority))
        await eventually("the events", lambda: len(bin.events) == len(texts) + 2)
    assert bin.events == [*texts, b"<13>a", b"<13>unfinished"]
    assert {chunk.origins for chunk in bin.chunks} == {("127.0.0.1",)}


async def test_stop_hands_over(tmp_path: Path) -> None:
    """What a TLS peer has sent before ``stop`` is stored, and ``stop`` does not wait for the peer's goodbye."""
    authority = Authority(tmp_path)
    bin, counters = Bin(), Counters()
    lines = [b"<13>line %d" % i for i in range(20_000)]
    async with listening(bin, counters, tls=tls(*authority.issue("agent"))) as (_, port):
        raw = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
        peer = await asyncio.to_thread(client(authority).wrap_socket, raw, server_hostname="127.0.0.1")
        await asyncio.to_thread(peer.sendall, b"\n".join(lines))
    peer.close()
    assert bin.events == lines


@pytest.mark.parametrize("ticks", range(8))
async def test_stop_while_a_peer_says_goodbye(tmp_path: Path, ticks: int) -> None:
    """A peer that closes in the very moment of ``stop``, so many turns of the loop before: what it sent is stored, and
    ``stop`` ends well."""
    authority = Authority(tmp_path)
    bin = Bin()
    async with listening(bin, Counters(), tls=tls(*authority.issue("agent"))) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(authority))
        writer.write(b"<13>last words")
        await eventually("bytes that wait for their end", lambda: listener.buffered)
        writer.close()
        for _ in range(ticks):
            await asyncio.sleep(0)
    assert bin.events == [b"<13>last words"]
    with suppress(OSError):
        await writer.wait_closed()


async def test_stop_within_an_octet_count(tmp_path: Path) -> None:
    """A stream that ``stop`` ends within an octet count, so that it is malformed: what was whole is stored."""
    authority = Authority(tmp_path)
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, tls=tls(*authority.issue("agent"))) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(authority))
        writer.write(b"5 <13>a12")
        await eventually("bytes that wait for their end", lambda: listener.buffered)
    assert bin.events == [b"<13>a"]
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("sender", "says"),
    [
        ("none", "peer did not return a certificate"),
        ("expired", "certificate has expired"),
        ("stranger", "unable to get local issuer certificate"),
    ],
)
async def test_senders_without_a_good_certificate(tmp_path: Path, sender: str, says: str) -> None:
    """With ``client_ca`` a sender without a certificate, with an expired one or another authority's is refused: told
    once with peer and reason, counted, nothing of it stored; a good one gets through meanwhile and afterwards."""
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", "another authority")
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, tls=tls(*authority.issue("agent"), authority.ca)) as (_, port):
        context = client(authority, *(["bad"] if sender == "expired" else []), expired=True)
        if sender == "stranger":
            context.load_cert_chain(*other.issue("stranger"))
        with capture_logs() as logs:
            for _ in range(3):
                with suppress(ssl.SSLError, ConnectionError):  # or it is cut off without a word
                    await send(port, b"<13>no\n", context)
            await eventually("failed handshakes", lambda: counters.totals["handshakes_failed"] == 3)
        await send(port, b"<13>yes\n", client(authority, "web-1"))
        await eventually("the events", lambda: bin.events == [b"<13>yes"])
    (line,) = [entry for entry in logs if entry["event"] == Log.TLS_REFUSED]
    assert line["peer"] == "127.0.0.1"
    assert says in line["reason"]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_tls_1_1_and_no_tls_at_all(tmp_path: Path) -> None:
    """TLS 1.1 and plain TCP on the TLS port are refused with the reason; a silent peer loses its place in time."""
    authority = Authority(tmp_path)
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, tls=tls(*authority.issue("agent"))) as (listener, port):
        old = client(authority)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with capture_logs() as logs:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await send(port, b"<13>no\n", old)
            await eventually("failed handshakes", lambda: counters.totals["handshakes_failed"] == 1)
            with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) as plain:
                plain.sendall(b"<13>Nov 20 10:00:00 host app: not TLS\n")
                await eventually("failed handshakes", lambda: counters.totals["handshakes_failed"] == 2)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(accept, "HANDSHAKE_SECONDS", 0.3)
                with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.3", 0)):
                    await eventually("an open connection", lambda: listener.gate.open == 1)
                    await eventually("no open connection", lambda: listener.gate.open == 0)
        await send(port, b"<13>yes\n", client(authority))
        await eventually("the events", lambda: bin.events == [b"<13>yes"])
    reasons = [entry["reason"] for entry in logs if entry["event"] == Log.TLS_REFUSED]
    assert "unsupported protocol" in reasons[0]
    assert any(part in reasons[1] for part in ("wrong version number", "http request", "record layer"))
    assert "longer than 0.3 seconds" in reasons[2]


def test_keys_that_others_can_reach(tmp_path: Path) -> None:
    """A private key for more than its owner, a missing one and one of another certificate stop the start, by name."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("agent")
    _, foreign = authority.issue("foreign")

    async def start(key: Path) -> None:
        async with listening(Bin(), Counters(), tls=tls(cert, key)):
            pass

    for mode in (0o640, 0o604, 0o660):
        key.chmod(mode)
        with pytest.raises(OSError, match=rf"input 'in': tls: {key}: others .*{mode:04o}.*: chmod 600 {key}"):
            asyncio.run(start(key))
    key.chmod(0o600)
    asyncio.run(start(key))
    with pytest.raises(OSError, match=r"gone\.key is missing"):
        asyncio.run(start(tmp_path / "gone.key"))
    with pytest.raises(OSError, match="key values mismatch"):
        asyncio.run(start(foreign))


async def test_a_renewed_certificate(tmp_path: Path) -> None:
    """A certificate renewed on disk is shown at the next connection; one that went bad leaves the last good one."""
    authority = Authority(tmp_path)

    def shown(port: int) -> int:
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            client(authority).wrap_socket(raw, server_hostname="127.0.0.1") as peer,
        ):
            found = peer.getpeercert()
            assert found is not None
            return int(str(found["serialNumber"]), 16)

    cert, key = authority.issue("agent")
    async with listening(Bin(), Counters(), tls=tls(cert, key)) as (_, port):
        first = await asyncio.to_thread(shown, port)
        assert await asyncio.to_thread(shown, port) == first
        authority.issue("agent")
        second = await asyncio.to_thread(shown, port)
        key.chmod(0o644)
        os.utime(key, (1, 1))
        with capture_logs() as logs:
            assert [await asyncio.to_thread(shown, port) for _ in range(2)] == [second, second]
    assert first != second
    assert [entry["event"] for entry in logs] == [Log.CERTIFICATE_UNUSABLE]


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
async def test_openssl_s_client(tmp_path: Path) -> None:
    """``openssl s_client`` delivers by TLS 1.2 and 1.3, and is turned away with 1.1."""
    authority = Authority(tmp_path)
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, tls=tls(*authority.issue("agent"))) as (_, port):
        for i, version in enumerate(("-tls1_2", "-tls1_3", "-tls1_1")):
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", str(authority.ca)]
            command += ["-verify_return_error", "-quiet", "-no_ign_eof", version]
            command += ["-cipher", "ALL:@SECLEVEL=0"] if version == "-tls1_1" else []
            process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            _, said = await process.communicate(b"<13>over %s\n" % version.encode())
            assert (process.returncode == 0) == (i < 2), said
        await eventually("2 events", lambda: len(bin.events) == 2)
    assert bin.events == [b"<13>over -tls1_2", b"<13>over -tls1_3"]
    assert counters.totals["handshakes_failed"] == 1


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("rsyslogd") or not OSSL, reason="needs rsyslogd with rsyslog-openssl")
@pytest.mark.parametrize("named", [True, False], ids=["client certificate", "none"])
async def test_rsyslog(tmp_path: Path, named: bool) -> None:
    """A real rsyslogd forwards over TLS, octet-counted, and checks our name: every message once, in order. Without the
    certificate that the agent asks for it gets nothing through, and that is told."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("rsyslog")
    bin, counters = Bin(), Counters()
    agent = authority.issue("agent", host="agent.example")
    async with listening(bin, counters, tls=tls(*agent, authority.ca)) as (_, port):
        own = f'StreamDriver.CertFile="{cert}" StreamDriver.KeyFile="{key}"' if named else ""
        action = (
            f'action(type="omfwd" target="127.0.0.1" port="{port}" protocol="tcp" TCP_Framing="octet-counted"'
            f' StreamDriver="ossl" StreamDriverMode="1" StreamDriverAuthMode="x509/name"'
            f' StreamDriverPermittedPeers="agent.example" StreamDriver.CAFile="{authority.ca}" {own}'
            ' action.resumeInterval="1")'
        )
        lines = tmp_path / "lines"
        lines.write_text("".join(f"message {i} of 200\n" for i in range(200)))
        with capture_logs() as logs, rsyslogd(tmp_path, action) as sock:
            process = await asyncio.create_subprocess_exec("logger", "-u", str(sock), "-t", "demo", "-f", str(lines))
            assert await process.wait() == 0
            if named:
                await eventually("200 events", lambda: len(bin.events) >= 200)
            else:
                await eventually("failed handshakes", lambda: counters.totals["handshakes_failed"] >= 1)
    told = [entry for entry in logs if entry["event"] == Log.TLS_REFUSED]
    texts = [event.partition(b"demo: ")[2] for event in bin.events]
    if named:
        assert texts == [b"message %d of 200" % i for i in range(200)]
        assert not told
    else:
        assert not texts
        assert "did not return a certificate" in told[0]["reason"]
