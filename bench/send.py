"""Senders that say exactly how far they came: a file's lines over TCP, UDP or MQTT.

Each returns a ``Sent``. Over TCP a line counts as handed over when its last byte, the newline included, was taken by
the kernel; whether the peer read it from there only the peer knows, so after a cut ``lines`` minus what the peer stored
is the transport's loss. Over UDP a line is one datagram. Over MQTT (QoS 1) a line counts when its PUBACK came.
"""

from __future__ import annotations

import argparse
import json
import mmap
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

SLICE = 256 << 10
"""Bytes offered to the kernel at once when no rate is asked."""
TURN = 0.01
"""Seconds between two slices when a rate is asked."""
WINDOW = 500
"""MQTT messages without PUBACK at most."""


@dataclass(slots=True)
class Sent:
    """How far a sender came. ``lines`` and ``bytes`` count what was handed over (for TCP see the module's text)."""

    lines: int = 0
    bytes: int = 0
    complete: bool = True
    seconds: float = 0.0
    cut: str = ""
    """Why it ended early."""


def address(value: str) -> tuple[str, int]:
    """``("::1", 514)`` from ``"[::1]:514"``; raises ValueError."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f'expects "host:port", not {value!r}')
    return host.strip("[]") or "127.0.0.1", int(port)


def _slices(data: mmap.mmap | bytes, rate: float) -> Iterator[tuple[int, int]]:
    """(start, end) of the slices to write next, whole lines: one turn of an asked rate, else SLICE bytes."""
    begun, handed, start = time.monotonic(), 0, 0
    while start < len(data):
        if not rate:
            end = data.rfind(b"\n", start, start + SLICE) + 1 or data.find(b"\n", start) + 1 or len(data)
        else:
            due = int((time.monotonic() - begun) * rate) - handed
            if due <= 0:
                time.sleep(TURN)
                continue
            end = start
            for _ in range(due):
                end = data.find(b"\n", end) + 1
                handed += 1
                if end in (0, len(data)):
                    end = len(data)
                    break
        yield start, end
        start = end


def _each(data: mmap.mmap | bytes, start: int, end: int) -> list[bytes]:
    """The lines of a slice, without their newlines."""
    lines = data[start:end].split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def wait_for(peer: tuple[str, int], seconds: float) -> None:
    """Return when ``peer`` accepts TCP connections; raises OSError after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(peer, timeout=10).close()
            return
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def tcp(peer: tuple[str, int], data: mmap.mmap | bytes, *, rate: float = 0.0) -> Sent:
    """Write ``data`` (lines) to ``peer``; when the connection breaks, ends and says why. Raises OSError when none is
    made."""
    sent, done, began = Sent(), 0, time.monotonic()
    with socket.create_connection(peer, timeout=10) as connection, memoryview(data) as view:
        connection.settimeout(None)
        try:
            for start, end in _slices(data, rate):
                done = start
                while done < end:
                    done += connection.send(view[done:end])
            connection.shutdown(socket.SHUT_WR)  # a reset that comes now is noted: the peer did not read all
            connection.settimeout(2)
            with suppress(TimeoutError):
                connection.recv(1)
        except OSError as error:
            sent.cut = f"after {done} bytes: {error}"
            if done < len(data):
                sent.complete, done = False, data.rfind(b"\n", 0, done) + 1
    sent.bytes, sent.lines = done, _lines(data, done)
    sent.seconds = round(time.monotonic() - began, 3)
    return sent


def _lines(data: mmap.mmap | bytes, end: int) -> int:
    """Lines that end before ``end``; the last one may lack its newline."""
    count = sum(data[at : min(end, at + SLICE)].count(b"\n") for at in range(0, end, SLICE))
    return count + (end == len(data) > 0 and data[-1:] != b"\n")


def udp(peer: tuple[str, int], data: mmap.mmap | bytes, *, rate: float = 0.0) -> Sent:
    """Send each line of ``data`` as a datagram. Raises OSError."""
    sent = Sent()
    begun = time.monotonic()
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.connect(peer)
        for start, end in _slices(data, rate or 50_000):
            for line in _each(data, start, end):
                sender.send(line)
                sent.lines += 1
                sent.bytes += len(line)
    sent.seconds = round(time.monotonic() - begun, 3)
    return sent


def mqtt(
    peer: tuple[str, int], data: mmap.mmap | bytes, *, topic: str = "", rate: float = 0.0, patience: float = 60.0
) -> Sent:
    """Publish each line with QoS 1 to ``topic``, or, without one, to the topic that the line begins with.

    At most WINDOW messages wait for their PUBACK; after a lost connection they are sent again. Ends incomplete when no
    PUBACK came for ``patience`` seconds. Raises OSError when the broker cannot be reached at the start.
    """
    import threading

    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    sent = Sent()
    begun = time.monotonic()
    window = threading.Semaphore(WINDOW)
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.max_inflight_messages_set(WINDOW)
    client.reconnect_delay_set(1, 2)

    def acknowledged(*_: object) -> None:
        sent.lines += 1
        window.release()

    client.on_publish = acknowledged
    client.connect(*peer)
    client.loop_start()
    try:
        handed = 0
        for start, end in _slices(data, rate):
            for line in _each(data, start, end):
                name, payload = (topic, line) if topic else (line.partition(b" ")[0].decode(), line.partition(b" ")[2])
                if not window.acquire(timeout=patience):
                    raise TimeoutError(f"no PUBACK for {patience:g} s")
                client.publish(name, payload, qos=1)
                handed += 1
                sent.bytes += len(payload)
        deadline = time.monotonic() + patience
        while sent.lines < handed and time.monotonic() < deadline:
            time.sleep(0.02)
        sent.complete = sent.lines == handed
    except TimeoutError as error:
        sent.complete, sent.cut = False, str(error)
    finally:
        client.disconnect()
        client.loop_stop()
    sent.seconds = round(time.monotonic() - begun, 3)
    return sent


def main(arguments: Sequence[str]) -> int:
    """``python -m bench.traffic send``; returns 0, or 1 when not everything was handed over."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.traffic send",
        description="Send a file's lines and print as JSON how far that went.",
        epilog="example: python -m bench.traffic send --tcp 127.0.0.1:5514 --file lines.log --rate 20000",
    )
    peer = parser.add_mutually_exclusive_group(required=True)
    for name in ("tcp", "udp", "mqtt"):
        peer.add_argument(f"--{name}", type=address, metavar="HOST:PORT")
    parser.add_argument("--file", required=True, type=Path)
    parser.add_argument("--rate", type=float, default=0.0, help="lines per second; default: as fast as the peer reads")
    parser.add_argument("--topic", default="", help="MQTT: publish lines whole to this topic")
    options = parser.parse_args(arguments)
    if options.file.stat().st_size == 0:
        print(json.dumps(asdict(Sent())))
        return 0
    with options.file.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            if options.tcp:
                sent = tcp(options.tcp, data, rate=options.rate)
            elif options.udp:
                sent = udp(options.udp, data, rate=options.rate)
            else:
                sent = mqtt(options.mqtt, data, topic=options.topic, rate=options.rate)
        except OSError as error:
            sent = Sent(complete=False, cut=str(error))
    print(json.dumps(asdict(sent)))
    return 0 if sent.complete else 1
