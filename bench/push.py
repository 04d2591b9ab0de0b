"""What the HTTP input costs: events a CPU-second for each protocol, in batches of 500, gzip.

    python -m bench.push [--requests 400]
    python -m bench.push --readers

A sender in a process of its own posts the same body over 4 connections, each request when the one before it is
answered. The listener writes to a real raw log, which is synced before an answer. Its process's CPU time is all that
counts: HTTP, gunzip, decoding, the events' JSON, compressing, syncing. No rules are evaluated.
``--readers``: what reads a body, alone: the shortest of 100 times, and of OTLP also by the readers in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import json
import multiprocessing
import resource
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tests.inputs.intake import agent
from vedette.config.settings import RawLogSettings
from vedette.inputs.http_listen import HttpListener, protocol_of
from vedette.inputs.push.base import LOKI_PATH, PROTOBUF, Request
from vedette.inputs.push.otlp import OTLP, read_json, read_protobuf
from vedette.inputs.settings import HttpInput
from vedette.model.counters import Counters
from vedette.model.event import Chunk
from vedette.rawlog.log import RawLog

A = TypeVar("A")
BATCH = 500
CONNECTIONS = 4
HOST = {"service.name": "shop", "host.name": "web-1", "k8s.pod.name": "shop-7d9f"}


def text(i: int) -> str:
    return f"user u{i % 97} logged in from 10.0.{i % 7}.{i % 250} with session 9f86d081884c7d65{i:06}"


def otlp() -> Iterator[tuple[str, str, str, bytes]]:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    for attributes in (1, 3):
        made = ExportLogsServiceRequest()
        of_resource = made.resource_logs.add()
        for name, value in HOST.items():
            of_resource.resource.attributes.add(key=name).value.string_value = value
        of_scope = of_resource.scope_logs.add()
        for i in range(BATCH):
            log = of_scope.log_records.add(time_unix_nano=1_790_000_000_000_000_000 + i, severity_text="INFO")
            log.body.string_value = text(i)
            log.attributes.add(key="log.file.name").value.string_value = "app.log"
            if attributes > 1:
                log.attributes.add(key="http.method").value.string_value = "GET"
                log.attributes.add(key="http.status_code").value.int_value = 200
        about = f"{attributes} attribute{'s' if attributes > 1 else ''}"
        yield f"OTLP protobuf, {about}", "/v1/logs", PROTOBUF, made.SerializeToString()
        yield f"OTLP JSON, {about}", "/v1/logs", "application/json", json.dumps(MessageToDict(made)).encode()


def bodies() -> Iterator[tuple[str, str, str, bytes]]:
    """Name, path, content type and body."""
    yield from otlp()
    rows = [{"@timestamp": "2026-11-23T06:16:34Z", "message": text(i), **HOST} for i in range(BATCH)]
    lines = [json.dumps(row) for row in rows]
    yield "NDJSON", "/events", "application/x-ndjson", "\n".join(lines).encode()
    yield (
        "syslog lines",
        "/events",
        "text/plain",
        "\n".join(f"<38>Nov 23 06:16:34 web-1 app[7]: {text(i)}" for i in range(BATCH)).encode(),
    )
    hec = "".join(json.dumps({"time": 1.79e9, "host": "web-1", "event": text(i)}) for i in range(BATCH))
    yield "HEC events", "/services/collector", "application/json", hec.encode()
    yield "_bulk", "/_bulk", "application/x-ndjson", "".join(f'{{"create":{{}}}}\n{line}\n' for line in lines).encode()
    values = [[str(1_790_000_000_000_000_000 + i), text(i)] for i in range(BATCH)]
    loki = {"streams": [{"stream": {"host": "web-1", "job": "app"}, "values": values}]}
    yield "Loki JSON", LOKI_PATH, "application/json", json.dumps(loki).encode()
    yield "Loki protobuf, Snappy", LOKI_PATH, PROTOBUF, _loki(values)


def _loki(values: list[list[str]]) -> bytes:
    import cramjam

    from vedette.inputs.push.loki_protobuf import PushRequest

    request = PushRequest()
    stream = request.streams.add(labels=b'{host="web-1", job="app"}')
    for time_text, line in values:
        entry = stream.entries.add(line=line.encode())
        entry.timestamp.seconds, entry.timestamp.nanos = divmod(int(time_text), 1_000_000_000)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def post(port: int, path: str, kind: str, body: bytes, requests: int) -> None:
    """The sender."""
    headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
    packed = gzip.compress(body)
    if path == LOKI_PATH and kind == PROTOBUF:  # is packed
        packed, headers = body, {"Content-Type": kind}

    def run(_: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(requests // CONNECTIONS):
            connection.request("POST", path, packed, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 300, answer.status

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(run, range(CONNECTIONS)))


class Stored:
    """An intake that is a raw log."""

    def __init__(self, folder: Path) -> None:
        self.log = RawLog.open(folder, RawLogSettings(), Counters())
        self._lock = threading.Lock()

    def store(self, chunk: Chunk) -> int:
        return self.log.append(chunk).end

    async def durable(self, offset: int) -> None:
        if self.log.durable < offset:
            await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        with self._lock:
            self.log.sync()

    def accepting(self) -> bool:
        return True

    async def ready(self) -> None:
        return None


async def measured(path: str, kind: str, body: bytes, requests: int) -> tuple[float, int]:
    """CPU seconds of this process, and events."""
    with tempfile.TemporaryDirectory() as folder:
        counters = Counters()
        intake = Stored(Path(folder))
        listener = HttpListener(HttpInput("in", tcp="127.0.0.1:0"), agent(intake, counters))
        await listener.start()
        port = listener.addresses[0][2]
        context = multiprocessing.get_context("spawn")

        async def play(count: int) -> None:
            sender = context.Process(target=post, args=(port, path, kind, body, count))
            sender.start()
            await asyncio.to_thread(sender.join)
            assert sender.exitcode == 0

        await play(CONNECTIONS)  # what is loaded once
        before, began = counters.received["in"], time.process_time()
        await play(requests)
        spent = time.process_time() - began
        await listener.stop()
        intake.log.close()
        return spent, counters.received["in"] - before


def shortest(read: Callable[[A], Iterable[object]], given: A) -> str:
    """µs of CPU an event to take all that ``read`` gives."""
    best = float("inf")
    for _ in range(100):
        began = time.process_time()
        deque(read(given), 0)
        best = min(best, time.process_time() - began)
    return f"{best / BATCH * 1e6:.2f}"


def gunzipped(packed: bytes) -> Iterator[bytes]:
    yield gzip.decompress(packed)


def readers(row: Callable[[str], None]) -> None:
    row("| µs of CPU an event | reader | … in Python | gunzip |")
    row("|---|---|---|---|")
    for name, path, kind, body in bodies():
        protocol = protocol_of("POST", path)
        assert protocol is not None
        reader = shortest(protocol.read, Request("POST", path, {}, {"content-type": kind}, body))
        python = shortest(read_protobuf if kind == PROTOBUF else read_json, body) if protocol is OTLP else ""
        row(f"| {name} | {reader} | {python} | {shortest(gunzipped, gzip.compress(body))} |")


def main(row: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--readers", action="store_true")
    asked = parser.parse_args()
    if asked.readers:
        readers(row)
        return
    requests = asked.requests
    row(f"| batches of {BATCH}, gzip | bytes an event, unpacked | µs of CPU an event | events a CPU-second |")
    row("|---|---|---|---|")
    for name, path, kind, body in bodies():
        spent, events = asyncio.run(measured(path, kind, body, requests))
        row(f"| {name} | {len(body) // BATCH} | {spent / events * 1e6:.2f} | {events / spent:,.0f} |")
    row(f"\npeak memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
