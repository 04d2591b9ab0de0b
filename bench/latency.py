"""Scenario ``latency``: from the sender's socket to the outbox on the agent's disk, and to the region's broker.

Among the lines, sent at a steady rate in turns of TURN seconds, is every PROBE_EVERY seconds one that holds the time at
which it was written to the socket, and that a rule alerts on. One process sends; another looks into the agent's outbox
every POLL seconds, so a latency may be reported that much too long; a third is subscribed at the broker.
"""

from __future__ import annotations

import multiprocessing
import re
import socket
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.agent import syslog_input
from bench.drive import Bench, Wrong, running
from bench.host import undisturbed
from tests import broker
from vedette.store.store import Store

TURN = 0.002
PROBE_EVERY = 0.005
POLL = 0.0005
FSYNC_MS = 10
_PROBE = re.compile(rb"vedette-probe (\d{16})")
_RULE = """title: Probe
id: 6f1c6f0e-6b0e-4f5a-9b44-0d2f2f0c9a11
status: test
description: Made by bench/latency.py
author: Vedette
logsource:
    product: linux
detection:
    keywords: ["vedette-probe "]
    condition: keywords
level: low
"""
_fork = multiprocessing.get_context("fork")


def _now() -> int:
    return time.time_ns() // 1000


def _send(port: int, lines: list[bytes], rate: float, seconds: float) -> None:
    per_turn = max(1, int(rate * TURN))
    turns = [b"".join(lines[at : at + per_turn]) for at in range(0, len(lines) - per_turn, per_turn)]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        turn, probe = 0, 0
        while (now := time.monotonic() - began) < seconds:
            data = b""
            while turn * TURN <= now:
                data += turns[turn % len(turns)]
                turn += 1
            if probe * PROBE_EVERY <= now:
                probe += 1
                data += b"<13>Nov 21 06:00:00 web1 bench: vedette-probe %d\n" % _now()
            if data:
                connection.sendall(data)
            time.sleep(max(0.0, turn * TURN - (time.monotonic() - began)))


def _note(seen: dict[int, int], data: bytes, at: int) -> None:
    for probe in set(_PROBE.findall(data)):
        seen.setdefault(int(probe), at)


def _watch_outbox(folder: Path, results: Connection) -> None:
    """Until told to stop: when each probe is in the outbox."""
    seen: dict[int, int] = {}
    seq = 0
    with Store.open(folder, readonly=True) as store:
        while not results.poll():
            pending, _ = store.pending(seq, 1000)
            at = _now()
            for seq, data in pending:  # noqa: B007 - the last one is gone on from
                _note(seen, data, at)
            if not pending:
                time.sleep(POLL)
    results.send(seen)


def _watch_broker(port: int, results: Connection) -> None:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    seen: dict[int, int] = {}
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = lambda _client, _data, message: _note(seen, bytes(message.payload), _now())
    client.connect("127.0.0.1", port)
    client.subscribe("vedette/v1/+/+/alerts", qos=1)
    while not results.poll():
        client.loop(0.01)
    results.send(seen)


def _spread(seen: dict[int, int]) -> dict[str, Any]:
    """Milliseconds."""
    took = sorted(at - probe for probe, at in seen.items())
    if not took:
        raise Wrong("no probe arrived")
    at = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    return {
        "probes": len(took),
        **{name: round(took[min(len(took) - 1, int(len(took) * part))] / 1000, 2) for name, part in at.items()},
        "max": round(took[-1] / 1000, 2),
    }


def _started(target: Any, *arguments: Any) -> tuple[Any, Connection]:
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    return process, ours


def _collected(watchers: Iterable[tuple[Any, Connection]]) -> list[dict[int, int]]:
    noted = []
    for process, pipe in watchers:
        pipe.send("stop")
        noted.append(pipe.recv() if pipe.poll(10) else {})
        process.join(5)
    return noted


def _probe(bench: Bench) -> Path:
    """The folder of the rule that alerts on probes."""
    folder = bench.folder / "rules-probe"
    folder.mkdir(exist_ok=True)
    (folder / "probe.yml").write_text(_RULE, "utf-8")
    return folder


def one(bench: Bench, rate: int, slow: bool) -> dict[str, Any]:
    seconds = bench.size(10, 2)
    bundle = bench.bundle(bench.rules(bench.size(3000, 300), 0.01), _probe(bench))
    lines = bench.stream(20_000).read_bytes().splitlines(keepends=True) * max(1, rate // 20_000)
    name, port = f"latency-{rate}-{slow}", broker.own_port()
    with broker.running(bench.fresh("broker"), verbose=False) as server:
        uplink = f'[broker]\nurl = "{server.url}"\n[uplink]\ntype = "mqtt"\n'
        disk = ("-m", "bench.slow_disk", str(FSYNC_MS)) if slow else ()
        with running(bench, name, syslog_input(port), bundle, port=port, uplink=uplink, slow=disk) as run:
            watchers = [
                _started(_watch_outbox, run.folder / "data" / "store"),
                _started(_watch_broker, server.port),
            ]
            time.sleep(0.5)
            run.mark()
            sender = _fork.Process(target=_send, args=(port, lines, rate, seconds), daemon=True)
            sender.start()
            sender.join(seconds + 30)
            time.sleep(1)
            outbox, region = _collected(watchers)
            used = run.agent.usage().seconds - run.before.seconds
    figures = {
        "rate": rate,
        "fsync_ms_added": FSYNC_MS if slow else 0,
        "cpu_share": round(used / seconds, 3),
        "outbox": _spread(outbox),
        "broker": _spread(region),
    }
    bench.say(
        f"  {rate:,}/s, fsync +{figures['fsync_ms_added']} ms: outbox {figures['outbox']}, broker {figures['broker']}"
    )
    return figures


def run(bench: Bench) -> dict[str, Any]:
    rates = (10_000, 100_000) if not bench.quick else (10_000,)
    bench.bundle(bench.rules(bench.size(3000, 300), 0.01), _probe(bench))
    with undisturbed(bench.undisturbed) as alone:
        rows = [one(bench, rate, slow) for slow in (False, True) for rate in rates]
    return {"rows": rows, "undisturbed": alone}
