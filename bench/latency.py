"""Scenario ``latency``: from the sender's socket to the outbox on the agent's disk, and to the region's broker.

Among the lines, sent at a steady rate in turns of TURN seconds, is every PROBE_EVERY seconds one that holds the time at
which it was written to the socket, and that a rule alerts on. One process sends; another looks into the agent's outbox
every POLL seconds, so a latency may be reported that much too long; a third is subscribed at the broker.
"""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from bench.agent import Bundle, syslog_input
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


def _watch_outbox(folder: Path, end: float) -> dict[int, int]:
    """When each probe is in the outbox, until ``end`` (monotonic)."""
    seen: dict[int, int] = {}
    seq = 0
    with Store.open(folder, readonly=True) as store:
        while time.monotonic() < end:
            pending, _ = store.pending(seq, 1000)
            at = _now()
            for seq, data in pending:  # noqa: B007 - the last one is gone on from
                _note(seen, data, at)
            if not pending:
                time.sleep(POLL)
    return seen


def _watch_broker(port: int, end: float) -> dict[int, int]:
    """When each probe is at the broker."""
    seen: dict[int, int] = {}
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = lambda _client, _data, message: _note(seen, bytes(message.payload), _now())
    client.connect("127.0.0.1", port)
    client.subscribe("vedette/v1/+/+/alerts", qos=1)
    while time.monotonic() < end:
        client.loop(0.01)
    return seen


def _spread(where: str, seen: dict[int, int]) -> dict[str, float]:
    """Milliseconds."""
    took = sorted(at - probe for probe, at in seen.items())
    if not took:
        raise Wrong("no probe arrived")
    parts = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    return {f"{where}_{name}": round(took[int(len(took) * part)] / 1000, 2) for name, part in parts.items()}


def measured(bench: Bench, bundle: Bundle, rate: int, slow: bool) -> dict[str, Any]:
    """The spread of delays at this rate; ``slow``: on a slow disk."""
    seconds, port = bench.size(10, 2), broker.own_port()
    lines = bench.stream(20_000).read_bytes().splitlines(keepends=True) * max(1, rate // 20_000)
    with broker.running(bench.fresh("broker"), verbose=False) as server:
        uplink = f'[broker]\nurl = "{server.url}"\n[uplink]\ntype = "mqtt"\n'
        disk = ("-m", "bench.slow_disk", str(FSYNC_MS)) if slow else ()
        name, inputs = f"latency-{rate}-{slow}", syslog_input(port)
        with running(bench, name, inputs, bundle.settings, uplink, port=port, slow=disk) as run:
            end, store = time.monotonic() + seconds + 1.5, run.agent.data / "store"
            with ProcessPoolExecutor(3) as pool:
                outbox, region = pool.submit(_watch_outbox, store, end), pool.submit(_watch_broker, server.port, end)
                time.sleep(0.5)
                pool.submit(_send, port, lines, rate, seconds).result()
    added = FSYNC_MS if slow else 0
    row = {
        "rate": rate,
        "fsync_ms_added": added,
        **_spread("outbox", outbox.result()),
        **_spread("broker", region.result()),
    }
    bench.say(f"  {row}")
    return row


def run(bench: Bench) -> dict[str, Any]:
    rates = (10_000, 100_000) if not bench.quick else (10_000,)
    probe = bench.fresh("rules-probe")
    (probe / "probe.yml").write_text(_RULE, "utf-8")
    bundle = bench.bundle(bench.rules(bench.size(3000, 300), 0.01), probe)
    with undisturbed(bench.undisturbed) as alone:
        rows = [measured(bench, bundle, rate, slow) for slow in (False, True) for rate in rates]
    return {"tables": [rows], "undisturbed": alone}
