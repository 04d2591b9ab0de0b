"""Scenario ``inputs``: the highest rate without loss of UDP, MQTT and tailed files.

UDP: rising rates, each for some seconds; the last before the kernel dropped one is the figure. MQTT: messages wait with
the broker, so nothing is lost, and the rate is what the agent acknowledges; one event a message, and batches. A file is
read as fast as it can be.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from bench import fast, traffic
from bench.agent import syslog_input
from bench.drive import Bench, Wrong, running
from bench.host import undisturbed
from tests import broker

RATES = (50_000, 100_000, 150_000, 200_000, 250_000, 310_000, 400_000, 500_000, 550_000, 600_000, 700_000)
BATCH = 200
"""Events in an MQTT payload."""


def udp(bench: Bench, settings: str) -> dict[str, Any]:
    """The highest rate without loss."""
    port, best = broker.own_port(), dict[str, Any]()
    with running(bench, "udp", syslog_input(port, "udp"), settings) as run:
        sender = fast.Datagrams(("127.0.0.1", port), bench.stream(20_000).read_bytes().splitlines())
        for rate in RATES if not bench.quick else RATES[:1]:
            run.mark()
            sent = sender.send(rate, bench.size(3, 1))
            seconds = time.monotonic() - run.began
            usage = run.agent.settle(30)
            deadline = time.monotonic() + 10
            while (now := run.now())["received"] < sent and time.monotonic() < deadline:
                time.sleep(0.3)  # kernel drops are read once a second
            if now["received"] != sent or now["stored"] != now["received"] - now["dropped"]:
                raise Wrong(f"UDP: sent {sent}, counted as received {now['received']} and dropped {now['dropped']}")
            bench.say(f"  UDP {sent / seconds:,.0f} a second: {now['dropped']} dropped")
            if not now["dropped"]:
                best = max(best, run.figures(sent, seconds, usage), key=lambda step: step.get("events_per_second", 0))
            if now["dropped"] or sent / seconds < rate * 0.9:
                break
        sender.close()
    return best


def _messages(count: int) -> list[tuple[bytes, bytes]]:
    """So many readings, each with its topic."""
    stream = traffic.messages(1, 2 * count)
    return [(topic.encode(), payload) for topic, payload in stream if payload[:1] == b"{"][:count]


def mqtt(bench: Bench, settings: str, messages: Sequence[tuple[bytes, bytes]], events: int) -> dict[str, Any]:
    with broker.running(bench.fresh("broker"), verbose=False) as server:
        inputs = f"""[broker]
url = "{server.url}"
[[input]]
type = "mqtt"
name = "mqtt"
topics = ["plant/#"]
logsource = {{ product = "linux" }}
"""
        with running(bench, "mqtt", inputs, settings) as run:
            fast.publish(("127.0.0.1", server.port), messages)
            seconds = run.evaluated(events, within=120)
            return run.figures(events, seconds, run.finished(events)[0])


def file(bench: Bench, settings: str) -> dict[str, Any]:
    lines = bench.size(500_000, 40_000)
    stream, folder = bench.stream(lines), bench.fresh("logs")
    inputs = f"""[[input]]
type = "file"
name = "file"
paths = ["{folder}/*.log"]
format = "syslog"
timezone = "UTC"
logsource = {{ product = "linux" }}
"""
    with running(bench, "file", inputs, settings) as run:
        os.link(stream, folder / "lines.log")
        seconds = run.evaluated(lines, within=120, pause=0.02)
        return run.figures(lines, seconds, run.finished(lines)[0])


def run(bench: Bench) -> dict[str, Any]:
    settings = bench.bundle(bench.rules(bench.size(3000, 300), 0.01)).settings
    bench.stream(20_000)
    with undisturbed(bench.undisturbed) as alone:
        figures = {"UDP, highest rate without loss": udp(bench, settings)}
    single = _messages(bench.size(60_000, 5_000))
    many = [payload for _, payload in _messages(bench.size(600_000, 20_000))]
    groups = [many[at : at + BATCH] for at in range(0, len(many), BATCH)]
    lines = [(b"plant/batch", b"\n".join(group)) for group in groups]
    arrays = [(b"plant/batch", b"[" + b",".join(group) + b"]") for group in groups]
    figures["MQTT, one event a message"] = mqtt(bench, settings, single, len(single))
    figures[f"MQTT, NDJSON of {BATCH}"] = mqtt(bench, settings, lines, len(many))
    figures[f"MQTT, JSON array of {BATCH}"] = mqtt(bench, settings, arrays, len(many))
    figures["file"] = file(bench, settings)
    rows = [{"input": name, **row} for name, row in figures.items()]
    for row in rows:
        bench.say(f"  {row}")
    return {"tables": [rows], "undisturbed": alone}
