"""Syslog to a real rsyslogd over TLS, TCP and UDP, as JSON and CEF."""

from __future__ import annotations

import asyncio
import glob
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker import own_port
from tests.certificates import Authority
from tests.sinks.kit import hostile, outgoing
from tests.waits import DEADLINE, eventually, pauses, until
from vedette.sinks import opening
from vedette.sinks.base import Answer, Outgoing, Receiver, Verdict
from vedette.sinks.settings import SyslogSink

OSSL = glob.glob("/usr/lib*/rsyslog/lmnsd_ossl.so") + glob.glob("/usr/lib*/*/rsyslog/lmnsd_ossl.so")
PARTS = "%pri%|%hostname%|%programname%|%msgid%|%timereported:::date-rfc3339%|%msg%\\n"


class Rsyslog:
    """A rsyslogd that listens and writes what it understood, a line a message."""

    def __init__(self, folder: Path, port: int, listener: str) -> None:
        self.file, self.port = folder / "got", port
        self._config = folder / "rsyslog.conf"
        self._pid = folder / "rsyslog.pid"
        self._config.write_text(
            'global(maxMessageSize="64k" parser.escapeControlCharactersOnReceive="off")\n'
            f'{listener}\ntemplate(name="parts" type="string" string="{PARTS}")\n'
            f'*.* action(type="omfile" file="{self.file}" template="parts")\n'
        )
        self.start()

    def start(self) -> None:
        command = ["rsyslogd", "-n", "-f", str(self._config), "-i", str(self._pid)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listening(self) -> bool:
        assert self.process.poll() is None, "rsyslogd ended"
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE)

    def lines(self) -> list[str]:
        return self.file.read_text("utf-8").splitlines() if self.file.exists() else []


@contextmanager
def rsyslog(folder: Path, listener: str, *, stream: bool = True) -> Iterator[Rsyslog]:
    if shutil.which("rsyslogd") is None:
        pytest.skip("rsyslogd is not installed")
    port = own_port()
    made = Rsyslog(folder, port, listener.replace("PORT", str(port)))
    try:
        until("rsyslogd", lambda: not stream or made.listening())
        yield made
    finally:
        made.end()


TCP = 'module(load="imtcp")\ninput(type="imtcp" port="PORT")'
UDP = 'module(load="imudp")\ninput(type="imudp" port="PORT")'


def opened(**settings: Any) -> Receiver:
    return opening.opened(SyslogSink("s", **settings), "1.2")


async def deliver_all(receiver: Receiver, alerts: list[Outgoing]) -> None:
    """Deliver, again where it is asked for, until all are taken."""
    for pause in pauses():
        answers: list[Answer] = await receiver.deliver(alerts)
        if all(answer.verdict is Verdict.TAKEN for answer in answers):
            return
        await asyncio.sleep(pause)
    raise AssertionError(answers)


@pytest.mark.peer
async def test_json_over_tcp(tmp_path: Path) -> None:
    """rsyslog reads priority, time, host, program and MSGID, and the message is the alert's row, whatever is in it;
    what is sent while it restarts arrives when it is back."""
    with rsyslog(tmp_path, TCP) as peer:
        receiver = opened(address=f"127.0.0.1:{peer.port}", transport="tcp", facility="authpriv")
        await deliver_all(receiver, [outgoing(seq) for seq in range(1, 101)])
        await eventually("lines at the receiver", lambda: len(peer.lines()) >= 100)
        pri, host, program, msgid, when, message = peer.lines()[0].split("|", 5)
        assert (pri, host, program, msgid) == (str(10 * 8 + 3), "a1", "vedette", "detection")
        assert when.startswith("2026-11-21T")
        assert json.loads(message) == dict(outgoing(1).row)
        peer.end()
        (answer,) = await receiver.deliver([outgoing(101)])
        if answer.verdict is Verdict.TAKEN:  # its kernel had acknowledged it before the end was seen
            (answer,) = await receiver.deliver([outgoing(101)])
        assert answer.verdict is Verdict.LATER
        peer.start()
        await eventually("a receiver that listens", peer.listening)
        await deliver_all(receiver, [outgoing(101), hostile(102)])
        await eventually(
            "lines at the receiver",
            lambda: {101, 102} <= {json.loads(one.split("|", 5)[5])["seq"] for one in peer.lines()},
        )
        assert json.loads(peer.lines()[-1].split("|", 5)[5]) == json.loads(json.dumps(hostile(102).row))
        await receiver.close()


@pytest.mark.peer
async def test_cef_over_tls(tmp_path: Path) -> None:
    """With a certificate that rsyslog asks for and one that is checked here; another authority's is refused."""
    if not OSSL:
        pytest.skip("the package rsyslog-openssl is not installed")
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    (cert, key), (own, own_key) = authority.issue("rsyslog"), authority.issue("agent")
    listener = (
        f'global(DefaultNetstreamDriverCAFile="{authority.ca}" DefaultNetstreamDriverCertFile="{cert}"'
        f' DefaultNetstreamDriverKeyFile="{key}")\n'
        'module(load="imtcp" StreamDriver.Name="ossl" StreamDriver.Mode="1" StreamDriver.AuthMode="x509/certvalid")\n'
        'input(type="imtcp" port="PORT")'
    )
    with rsyslog(tmp_path, listener) as peer:
        about = {"address": f"127.0.0.1:{peer.port}", "cert_file": own, "key_file": own_key, "format": "cef"}
        receiver = opened(ca_file=authority.ca, **about)
        await deliver_all(receiver, [hostile(1)])
        await eventually("lines at the receiver", lambda: len(peer.lines()) == 1)
        message = peer.lines()[0].split("|", 5)[5]
        head, extension = message.split("|")[:7], message.rpartition("|8|")[2]
        assert head[:5] == ["CEF:0", "Vedette", "Vedette", "1.2", "r1"]
        assert head[5] == "a\\"  # the first part of an escaped "a|b"
        values = dict(re.findall(r"(?:^| )(\w+)=((?:[^=\\]|\\.)*)(?= \w+=|$)", extension))
        raw = values["msg"].replace("\\n", "\n").replace("\\=", "=").replace("\\\\", "\\")
        assert raw == hostile().row["raw"]
        assert (values["src"], values["externalId"]) == ("192.0.2.7", hostile(1).id)
        await receiver.close()
        for wrong in ({"ca_file": other.ca}, {}):
            refused = opened(**{**about, **wrong})
            (answer,) = await refused.deliver([outgoing()])
            assert answer.verdict is Verdict.LATER
            assert "certificate verify failed" in answer.text
            await refused.close()
        assert len(peer.lines()) == 1


@pytest.mark.peer
async def test_datagrams(tmp_path: Path) -> None:
    """One message a datagram; an alert that is too long for one arrives without what makes it long."""
    with rsyslog(tmp_path, UDP, stream=False) as peer:
        receiver = opened(address=f"127.0.0.1:{peer.port}", transport="udp")
        long = outgoing(2, fields={f"f{i}": "x" * 1024 for i in range(64)})
        for pause in pauses():  # until it listens
            await receiver.deliver([outgoing(1), long])
            if len(peer.lines()) >= 2:
                break
            await asyncio.sleep(pause)
        rows = [json.loads(one.split("|", 5)[5]) for one in peer.lines()]
        assert {row["seq"] for row in rows} == {1, 2}
        assert {row["alert_id"] for row in rows if not row["fields"]} == {long.id}
        await receiver.close()


async def test_a_receiver_that_does_not_read() -> None:
    """One that accepts and reads nothing is given up after ``timeout``, though the kernel here may hold all that was
    sent; nobody there is an answer, too."""
    with socket.create_server(("127.0.0.1", 0), backlog=2) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for count in (100, 5000):
            receiver = opened(address=address, transport="tcp", timeout=0.5)
            answers = await receiver.deliver(
                [outgoing(i, fields={"x": "y" * 1024, "raw": "r" * 1024}) for i in range(count)]
            )
            assert {answer.text for answer in answers} == {"not acknowledged within 0.5 s"}
            await receiver.close()
    for transport in ("tcp", "tls"):
        (answer,) = await opened(address="127.0.0.1:1", transport=transport).deliver([outgoing()])
        assert answer.verdict is Verdict.LATER
