"""One enrolled agent against the landing: a real landing process with 2 GiB of memory at a real mosquitto."""

from __future__ import annotations

import hashlib
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard

from tests.broker import Broker
from tests.delivery.kit import alert
from tests.e2e.agent import ROOT, Process, landed, say
from tests.waits import DEADLINE, until
from vedette.delivery.batch import DICTIONARIES
from vedette.delivery.envelope import MAX_DEAD_LETTER, encode, pack_batch
from vedette.delivery.receipts import Receipt, unpack_receipt
from vedette.region.land import DEAD_LETTERS

pytestmark = pytest.mark.peer

MEMORY = 2 << 30
LIMITED = (
    sys.executable,
    "-c",
    f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}));"
    "from vedette.cli.main import main; main()",
)
PEAK = 512 << 20
"""Bytes that the landing may take at most, resident: far below its limit."""
UP = "vedette/v1/f1/evil/alerts"
GOOD = encode(alert(1, agent_id="evil"))


class Landing(Process):
    program = LIMITED

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        arguments = ("--broker", broker.url, "--landing", folder, "--seconds", "0.2")
        super().__init__(folder.with_name("landing.log"), "region", "land", *arguments)

    def peak(self) -> int:
        """Most resident memory in this life, in bytes."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10


class Wire:
    """A bare MQTT 5 client on a socket: publishes whatever bytes it is given, and reads what comes."""

    def __init__(self, broker: Broker, name: str, topic: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), 10)
        self.socket.settimeout(60)
        self.file = self.socket.makefile("rb")
        client = name.encode()
        self.send(0x10, b"\0\4MQTT\5\2\0\0" + b"\0" + len(client).to_bytes(2, "big") + client)
        assert self.packet()[0] >> 4 == 2
        if topic:
            self.send(0x82, b"\0\1\0" + len(topic).to_bytes(2, "big") + topic.encode() + b"\1")
            assert self.packet()[0] >> 4 == 9

    def send(self, kind: int, *parts: bytes) -> None:
        length, head = sum(map(len, parts)), bytearray([kind])
        while True:
            head.append(length & 127 | (128 if length > 127 else 0))
            length >>= 7
            if not length:
                break
        self.socket.sendall(b"".join((bytes(head), *parts)))

    def packet(self) -> tuple[int, bytes]:
        """The next packet's first byte and the rest behind its length."""
        kind, size, shift = self.file.read(1)[0], 0, 0
        while True:
            digit = self.file.read(1)[0]
            size |= (digit & 127) << shift
            shift += 7
            if digit < 128:
                return kind, self.file.read(size)

    def publish(self, topic: str, payload: bytes, properties: bytes = b"") -> None:
        """QoS 1, until the broker has acknowledged; ``properties`` as they are on the wire."""
        name, length, size = topic.encode(), len(properties), bytearray()
        while True:
            size.append(length & 127 | (128 if length > 127 else 0))
            length >>= 7
            if not length:
                break
        self.send(0x32, len(name).to_bytes(2, "big"), name, b"\0\7", bytes(size), properties, payload)
        while self.packet()[0] >> 4 != 4:
            pass

    def receipt(self) -> Receipt:
        """The next receipt, acknowledged."""
        while True:
            kind, rest = self.packet()
            if kind >> 4 == 3:
                size = 2 + int.from_bytes(rest[:2], "big")
                if kind & 6:
                    self.send(0x40, rest[size : size + 2])
                return unpack_receipt(rest[size + (2 if kind & 6 else 0) + 1 :])

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()


def batch(*alerts: bytes) -> bytes:
    return pack_batch("log", alerts)


def pressed(data: bytes) -> bytes:
    """``data`` in a frame, however small that gets."""
    dictionary = zstandard.ZstdCompressionDict(DICTIONARIES[max(DICTIONARIES)].read_bytes())
    return zstandard.ZstdCompressor(dict_data=dictionary).compress(data)


def changed(**values: Any) -> bytes:
    """An alert with columns changed."""
    data: bytes = msgpack.packb({**msgpack.unpackb(GOOD), **values})
    return data


def raw(key: str, value: bytes) -> bytes:
    """An alert that ends with ``value``, msgpack or not, under ``key``."""
    document = {name: item for name, item in msgpack.unpackb(GOOD).items() if name != key}
    packed = msgpack.packb(document)
    head = 3 if packed[0] == 0xDE else 1
    return b"\xde" + struct.pack(">H", len(document) + 1) + packed[head:] + msgpack.packb(key) + value


def many(head: bytes, count: int, item: bytes) -> bytes:
    return head + struct.pack(">I", count) + item * count


HOSTILE: dict[str, Callable[[], tuple[str, bytes]]] = {
    "20 million empty tags": lambda: (UP, batch(raw("tags", many(b"\xdd", 20_000_000, b"\xa0")))),
    "half a megabyte of empty lists": lambda: (UP, batch(raw("new", many(b"\xdd", 500_000, b"\x90")))),
    "a million alerts": lambda: (UP, batch(*[b""] * 1_000_000)),
    "a map of a million keys": lambda: (
        UP,
        b"\xdf" + struct.pack(">I", 1_000_000) + b"".join(b"\xce%b\xc0" % struct.pack(">I", n) for n in range(10**6)),
    ),
    "lists in lists": lambda: (UP, b"\x91" * 1_000_000),
    "maps in maps": lambda: (UP, batch(raw("fields", b"\x81\xa1a" * 300_000))),
    "20 MB of text": lambda: (UP, batch(changed(raw="x" * 20_000_000))),
    "20 MB of bytes": lambda: (UP, batch(changed(raw=b"x" * 20_000_000))),
    "20 MB of an extension": lambda: (UP, batch(changed(raw=msgpack.ExtType(7, b"x" * 20_000_000)))),
    "a list of 4 billion": lambda: (UP, b"\xdd\xff\xff\xff\xff"),
    "a map of 4 billion": lambda: (UP, b"\xdf\xff\xff\xff\xff"),
    "a text of 4 GB": lambda: (UP, batch(raw("raw", b"\xdb\xff\xff\xff\xff"))),
    "bytes of 4 GB": lambda: (UP, batch(raw("raw", b"\xc6\xff\xff\xff\xff"))),
    "an extension of 4 GB": lambda: (UP, batch(raw("raw", b"\xc9\xff\xff\xff\xff\7"))),
    "cut short": lambda: (UP, batch(GOOD)[:-9]),
    "an alert cut short": lambda: (UP, batch(GOOD[:-9])),
    "a time that is not a number": lambda: (UP, batch(changed(event_time=float("nan")))),
    "a seq that is a float": lambda: (UP, batch(changed(seq=7.0))),
    "a seq below zero": lambda: (UP, batch(changed(seq=-5))),
    "a seq of 64 bits": lambda: (UP, batch(changed(seq=2**64 - 1))),
    "a count to overflow sums": lambda: (UP, batch(changed(count=2**63 - 1))),
    "a negative count": lambda: (UP, batch(changed(count=-(2**40)))),
    "a date that is none": lambda: (UP, batch(changed(received_date="9999-99-99"))),
    "a tag of 3 KB": lambda: (UP, batch(changed(tags=["t" * 2000]))),
    "65 fields": lambda: (UP, batch(changed(fields={f"f{n}": "" for n in range(65)}))),
    "33 entities": lambda: (UP, batch(changed(entities=[{"kind": "ip", "value": "x"}] * 33))),
    "a log_id of 10 MB": lambda: (UP, pack_batch("l" * 10_000_000, [GOOD])),
    "20 MB of noise": lambda: (UP, hashlib.shake_128(b"noise").digest(20_000_000)),
    "a compressed bomb": lambda: (UP, pressed(bytes(30_000_000))),
    "half a megabyte of empty lists, compressed": lambda: (
        UP,
        pressed(batch(raw("new", many(b"\xdd", 500_000, b"\x90")))),
    ),
    "a frame without a dictionary": lambda: (UP, zstandard.compress(batch(GOOD))),
    "nothing": lambda: (UP, b""),
    "status: lists in lists": lambda: (
        "vedette/v1/f1/evil/status",
        b'{"agent_id": ' + b"[" * 1000 + b"]" * 1000 + b"}",
    ),
    "status: 30 MB of lists": lambda: ("vedette/v1/f1/evil/status", b"[" + b"[]," * 10_000_000 + b"[]]"),
    "status: 30 MB of text": lambda: ("vedette/v1/f1/evil/status", b'{"site": "' + b"s" * 30_000_000 + b'"}'),
}
"""By name: a topic and a payload, none of which may become a row of ``alerts`` or ``status``."""
PAIRS = b"\x26\0\1k\0\0"
"""A user property of MQTT 5."""


def honest(wire: Wire, seq: int) -> float:
    """Publish an honest alert and wait for its receipt; how long that took."""
    wire.socket.settimeout(DEADLINE)
    began = time.monotonic()
    wire.publish("vedette/v1/f1/a1/alerts", batch(encode(alert(seq))))
    while not any(first <= seq <= last for first, last in wire.receipt().ranges):
        pass
    return time.monotonic() - began


@pytest.mark.long
def test_no_message_takes_the_landing_down(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every hostile message is a dead letter of bounded size, in bounded memory, after a kill -9 and redelivery, too;
    an honest agent's alerts land and are receipted beside each. Messages of 30 MB and five starts: seconds of work."""
    landing = Landing(tmp_path / "landing", broker)
    landing.start()
    try:
        until("the landing", lambda: "broker_connected" in landing.text())
        with Wire(broker, "a1", "vedette/v1/f1/a1/receipts") as wire, Wire(broker, "evil") as evil:
            slowest, largest = 0.0, 0
            for seq, (name, make) in enumerate(HOSTILE.items(), 1):
                evil.publish(*make())
                took = honest(wire, seq)
                assert landing.running(), name
                slowest, largest = max(slowest, took), max(largest, landing.peak())
                assert largest < PEAK, (name, largest)
            # Again while the landing is away: what ended it once would end it at every start.
            landing.kill()
            for make in HOSTILE.values():
                evil.publish(*make())
            for _ in range(3):
                landing.start()
                until("the landing", lambda: "broker_connected" in landing.text())
                landing.kill()
            landing.start()
            honest(wire, 1000)
            letters = 2 * (len(HOSTILE) - 1)
            until("all dead letters", lambda: len(landed(landing.folder, "bad")) >= letters)
        assert landing.running()
        assert landing.peak() < PEAK
        assert landing.stop() == 0
    finally:
        landing.kill()
    rows = landed(landing.folder)
    assert {row["agent_id"] for row in rows} == {"a1"}
    assert {row["seq"] for row in rows} == {*range(1, len(HOSTILE) + 1), 1000}
    assert not landed(landing.folder, "status")
    bad = landed(landing.folder, "bad")
    assert max(len(row["payload"]) for row in bad) == MAX_DEAD_LETTER
    noise = HOSTILE["20 MB of noise"]()[1]
    whole = f"{len(noise)} bytes in all, SHA-256 {hashlib.sha256(noise).hexdigest()}"
    assert {row["payload"] for row in bad if whole in row["reason"]} == {noise[:MAX_DEAD_LETTER]}
    say(capsys, f"{len(HOSTILE)} hostile messages: at most {slowest:.1f} s for an honest alert, {largest >> 20} MiB")


def test_properties_cost_nothing(broker: Broker, tmp_path: Path) -> None:
    """A message with 160,000 user properties (1 MB) delays nobody: parsing them would take minutes."""
    landing = Landing(tmp_path / "landing", broker)
    landing.start()
    try:
        until("the landing", lambda: "broker_connected" in landing.text())
        with Wire(broker, "a1", "vedette/v1/f1/a1/receipts") as wire, Wire(broker, "evil") as evil:
            evil.publish(UP, batch(GOOD), PAIRS * 160_000)
            honest(wire, 1)
        assert landing.stop() == 0
    finally:
        landing.kill()
    assert {row["agent_id"] for row in landed(landing.folder)} == {"a1", "evil"}


FLOOD = """
import sys, time
from tests.region.test_hostile import FLOODS, Wire
from types import SimpleNamespace
with Wire(SimpleNamespace(port=int(sys.argv[1])), "evil") as evil:
    payload, sent, end = FLOODS[sys.argv[2]](), 0, time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        evil.publish("vedette/v1/f1/evil/alerts", payload)
        sent += 1
print(sent)
"""
FLOODS: dict[str, Callable[[], bytes]] = {
    "64 MB, not read": lambda: bytes((64 << 20) - 100),
    "a million lists": lambda: b"\x81\xa6alerts\xdc\x03\xe8" + (b"\xdc\x03\xe8" + b"\x90" * 1000) * 1000,
    "1,000 bad alerts": lambda: batch(*[msgpack.packb({"seq": seq}) for seq in range(1000)]),
    "900 bad alerts of 1 KB": lambda: batch(*[changed(count=-1)] * 900),
    "the same, compressed": lambda: pressed(batch(*[changed(count=-1)] * 900)),
    "1 MB of nothing, compressed": lambda: pressed(
        msgpack.packb({"log_id": "l", "pad": os.urandom(5_000) + bytes(10**6), "alerts": []})
    ),
}
FLOOD_SECONDS = 5.0
FLOOD_PEAK = 384 << 20
"""Of messages of 64 MB, one waits, one is received and one is copied out of its packet."""


@pytest.mark.long
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_delays_no_other_agent(
    flood: str, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While an agent publishes bad messages as fast as the broker takes them, another one's alerts are landed and
    receipted all the while, and memory stays bounded."""
    landing = Landing(tmp_path / "landing", broker)
    landing.start()
    try:
        until("the landing", lambda: "broker_connected" in landing.text())
        command = [sys.executable, "-c", FLOOD, str(broker.port), flood, str(FLOOD_SECONDS)]
        with (
            Wire(broker, "a1", "vedette/v1/f1/a1/receipts") as wire,
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as flooding,
        ):
            delays = [honest(wire, 1)]
            while flooding.poll() is None:
                delays.append(honest(wire, len(delays) + 1))
            sent = int(flooding.communicate()[0])
            peak = landing.peak()
    finally:
        landing.kill()
    assert sent
    assert len(delays) > 1
    assert len(landed(landing.folder, "bad")) <= DEAD_LETTERS
    assert peak < FLOOD_PEAK
    say(
        capsys,
        f"{flood}: {sent} messages in {FLOOD_SECONDS:g} s; an honest alert's receipt after"
        f" {statistics.median(delays):.1f} s, at most {max(delays):.1f} s; {peak >> 20} MiB",
    )
