"""What the region's broker and landing take for an alert: ``python -m bench.region``.

Its figures go into ``docs/scale/measured.json``, and from there into ``docs/scale.md`` (``bench.scale``).

* **Messages**: bytes of an alert of a made-up fleet in the JSON that the landing writes to Kafka.
* **Landing**: CPU-seconds of its work on alerts that are there: batches to rows, rows to a file that is synced.
* **Broker**: mosquitto on loopback without TLS: memory of an idle connection with the subscriptions of an agent, and
  CPU-seconds of a message at QoS 1 from a publisher to a subscriber, both of which acknowledge.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgpack
import orjson
import pyarrow.parquet as pq
import zstandard

from bench import fast, scale
from bench.simulate import Plan, simulate
from bench.usage import cpu_seconds, memory_mb
from tests.broker import running
from vedette.delivery.batch import split_batch
from vedette.delivery.envelope import decode_row, landed, pack_batch
from vedette.delivery.landing import LandingFolder
from vedette.system import descriptors

ALERTS = 20_000
BATCH = 20
"""Alerts in a message."""
FILE_ROWS = 10_000
"""Rows that a landing writes at a time."""
KAFKA_BATCH = 1000
"""Messages that Kafka's producer compresses together; a busy landing sends that many at once."""
CONNECTIONS = 2000
MESSAGES = 20_000


def alerts(folder: Path) -> list[bytes]:
    """``ALERTS`` alerts as agents send them."""
    simulate(Plan(alerts=ALERTS, days=2, start=date(2026, 11, 2), sites=20, rules=100, offline=0), folder)
    packed: list[bytes] = []
    for file in sorted((folder / "landing" / "alerts").rglob("*.parquet")):
        for row in pq.read_table(file).drop_columns(["received_at", "ingest"]).to_pylist():
            sent = {name: _sent(value) for name, value in row.items()}
            for name in ("fields", "group_by"):
                sent[name] = dict(sent[name] or ())
            packed.append(msgpack.packb(sent))
    return packed[:ALERTS]


def _sent(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.astimezone(UTC).timestamp() * 1e6)
    return value


def landing(folder: Path, sent: Sequence[bytes]) -> dict[str, float]:
    """Bytes and CPU-seconds of an alert in the landing."""
    messages = [pack_batch("0" * 32, sent[n : n + BATCH]) for n in range(0, len(sent), BATCH)]
    into, now = LandingFolder(folder, "bench"), time.time_ns() // 1000
    began = time.process_time()
    rows: list[dict[str, Any]] = []
    for message in messages:
        _, parts = split_batch(message)
        rows += [landed(decode_row(part), received_at=now, collector_id="bench", topic="t") for part in parts]
        if len(rows) >= FILE_ROWS:
            into.write("alerts", rows, now)
            rows = []
    took = time.process_time() - began
    written = len(sent) - len(rows)
    # As KafkaLanding writes them; alerts hold no bytes.
    texts = [orjson.dumps({**decode_row(part), "received_at": now}) for part in sent[:KAFKA_BATCH]]
    return {
        "kafka_zstd_bytes": len(zstandard.compress(b"".join(texts))) / len(texts),
        "rows_per_cpu_second": written / took,
    }


def broker(folder: Path) -> dict[str, float]:
    """Memory of a connection and CPU of a message, in a mosquitto of its own."""
    descriptors.raise_limit()
    with running(folder, verbose=False) as server:
        assert server.process is not None
        port, pid = server.port, server.process.pid
        before = memory_mb(pid)["VmRSS"]
        idle = [_member(port, n, (f"a/{n}/receipts", f"a/{n}/commands", "b/manifest")) for n in range(CONNECTIONS)]
        connected = memory_mb(pid)["VmRSS"]
        reader = _member(port, -1, ("alerts/#",))
        began = cpu_seconds(pid)
        _through(port, reader, b"x" * 700 * BATCH)
        spent = cpu_seconds(pid) - began
        for client in (*idle, reader):
            client.close()
    return {
        "connection_bytes": (connected - before) * (1 << 20) / CONNECTIONS,
        "message_cpu_us": spent / MESSAGES * 1e6,
        "message_bytes": 700 * BATCH,
    }


def _member(port: int, number: int, topics: Sequence[str]) -> socket.socket:
    """A client by MQTT 3.1.1 (3.1, 3.8), connected and subscribed at QoS 1."""
    client = socket.create_connection(("127.0.0.1", port))  # without a timeout, which MSG_WAITALL would not wait for
    client.sendall(fast.connect(b"bench-%d" % number))
    _exactly(client, 4)  # CONNACK
    for place, topic in enumerate(topics, 1):
        client.sendall(fast.packet(0x82, struct.pack(">H", place) + fast.text(topic.encode()) + b"\x01"))
        _exactly(client, 5)  # SUBACK
    return client


def _through(port: int, reader: socket.socket, payload: bytes) -> None:
    """``MESSAGES`` of ``payload`` at QoS 1 from a publisher to ``reader``, which acknowledges each."""
    topic, head = b"alerts/one", len(fast.packet(0x32, bytes(2 + 10 + 2) + payload)) - len(payload)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(fast.publish, ("127.0.0.1", port), [(topic, payload)] * MESSAGES)
        for _ in range(MESSAGES):
            place = _exactly(reader, head + len(payload))[head - 2 : head]
            reader.sendall(fast.packet(0x40, place))
        sent.result()


def _exactly(client: socket.socket, size: int) -> bytes:
    data = client.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("the broker closed the connection")
    return data


def main() -> int:
    """Measure, and write what was found; the exit code."""
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as temporary:
        folder = Path(temporary)
        sent = alerts(folder / "fleet")
        results = {"landing": landing(folder / "landing", sent), "broker": broker(folder / "broker")}
    for name, figures in results.items():
        print(name, {key: round(value, 1) for key, value in figures.items()})
    scale.keep_region(results)
    scale.document()
    return 0


if __name__ == "__main__":
    sys.exit(main())
