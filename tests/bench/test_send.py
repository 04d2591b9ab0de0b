"""bench/send.py: senders against real sockets; what they say is what arrived or was handed over."""

from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from bench import send
from bench.traffic import blocks, main
from tests.broker import own_port
from tests.waits import DEADLINE, until


class Server:
    """A TCP server that reads connection after connection; the n-th one only up to ``limits[n]`` bytes."""

    def __init__(self, *limits: int | None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.peer: tuple[str, int] = self.listener.getsockname()
        self.read: list[bytes] = []
        self.thread = threading.Thread(target=self._run, args=(limits,))
        self.thread.start()

    def _run(self, limits: tuple[int | None, ...]) -> None:
        for limit in limits:
            connection, _ = self.listener.accept()
            with connection:
                got = bytearray()
                while (limit is None or len(got) < limit) and (piece := connection.recv(4096)):
                    got += piece
                self.read.append(bytes(got))

    def close(self) -> list[bytes]:
        self.thread.join(10)
        self.listener.close()
        return self.read


def test_tcp_delivers_all() -> None:
    """A willing peer gets the bytes as they are, and the report counts them."""
    data = b"".join(blocks(1, 3000))
    server = Server(None)
    sent = send.tcp(server.peer, data)
    assert server.close() == [data]
    assert (sent.lines, sent.bytes, sent.complete, sent.cut) == (3000, len(data), True, "")


def test_tcp_cut_off_counts_what_the_kernel_took() -> None:
    """When the peer goes away the report holds the whole lines handed over, no more, and says why it ended."""
    data = b"".join(blocks(1, 200_000))
    server = Server(50_000)
    sent = send.tcp(server.peer, data)
    (read,) = server.close()
    assert not sent.complete
    assert sent.cut
    assert len(read) < sent.bytes + 200_000
    assert sent.lines == data[: sent.bytes].count(b"\n") < 200_000
    assert data[sent.bytes - 1 : sent.bytes] == b"\n"


def test_rate_is_kept_and_nothing_lost() -> None:
    """A paced sender takes its time and delivers all, a last line without newline included."""
    data = b"\n".join(b"line %d" % i for i in range(200))
    server = Server(None)
    sent = send.tcp(server.peer, data, rate=1000)
    assert server.close() == [data]
    assert sent.lines == 200
    assert sent.seconds >= 0.15


def test_udp_sends_a_datagram_a_line() -> None:
    """Each line is one datagram without its newline."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        sent = send.udp(receiver.getsockname(), b"one\ntwo\n\nfour\n", rate=1000)
        assert [receiver.recv(100) for _ in range(4)] == [b"one", b"two", b"", b"four"]
    assert (sent.lines, sent.bytes) == (4, 10)


def test_command_reports_refused_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listening: exit code 1 and a report with the reason."""
    file = tmp_path / "lines.log"
    file.write_bytes(b"x\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert main(["send", "--tcp", f"127.0.0.1:{port}", "--file", str(file)]) == 1
    assert '"complete": false' in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", "host", "host:", "host:x"])
def test_bad_address(value: str) -> None:
    """An address without a port is refused."""
    with pytest.raises(ValueError, match="host:port"):
        send.address(value)


@pytest.mark.peer
def test_mqtt_counts_acknowledged_messages(tmp_path: Path) -> None:
    """Over a real broker every line arrives once, in order, and is counted at its PUBACK."""
    port = own_port()
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 10000\n")
    broker = subprocess.Popen(["/usr/sbin/mosquitto", "-c", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        send.wait_for(("127.0.0.1", port), DEADLINE)
        received: list[bytes] = []
        subscribed = threading.Event()
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.on_message = lambda _client, _data, message: received.append(message.payload)
        client.on_subscribe = lambda *_: subscribed.set()
        client.connect("127.0.0.1", port)
        client.subscribe("site/log", qos=1)
        client.loop_start()
        assert subscribed.wait(DEADLINE)
        sent = send.mqtt(("127.0.0.1", port), b"".join(blocks(1, 1000)), topic="site/log")
        until("all messages", lambda: len(received) >= 1000)
        client.disconnect()
        client.loop_stop()
    finally:
        broker.terminate()
        broker.wait(DEADLINE)
    assert (sent.lines, sent.complete) == (1000, True)
    assert received == b"".join(blocks(1, 1000)).splitlines()
