"""Scenario ``inputs``: the highest rate without loss of UDP, MQTT and tailed files.

UDP: rising rates, each for some seconds; the last before the kernel dropped one is the figure. MQTT: messages wait with
the broker, so nothing is lost, and the rate is what the agent acknowledges; one event a message, and batches. A file is
read as fast as it can be.
"""

from __future__ import annotations

import os
import time
from itertools import islice
from typing import Any

from bench import fast, traffic
from bench.agent import Bundle, syslog_input
from bench.drive import Bench, Wrong, running
from bench.host import undisturbed
from tests import broker

RATES = (50_000, 100_000, 150_000, 200_000, 250_000, 310_000, 400_000, 500_000, 550_000, 600_000, 700_000)
BATCH = 200
"""Events in an MQTT payload."""


def udp(bench: Bench, bundle: Bundle) -> dict[str, Any]:
    port = broker.own_port()
    steps: list[dict[str, Any]] = []
    with running(bench, "udp", syslog_input(port, "udp"), bundle) as run:
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
            lost = now["dropped"]
            steps.append({"dropped": lost, **run.figures(sent, seconds, usage)})
            bench.say(f"  UDP {sent / seconds:,.0f} a second: {lost} dropped, {steps[-1]['us_per_event']} µs each")
            if lost or sent / seconds < rate * 0.9:
                break
        sender.close()
    whole = [step for step in steps if not step["dropped"]]
    return {"steps": steps, **(max(whole, key=lambda step: step["events_per_second"]) if whole else {})}


def _messages(bench: Bench, count: int) -> list[tuple[bytes, bytes]]:
    return [
        (topic.encode(), payload)
        for topic, payload in islice(traffic.messages(1, 2 * count), 2 * count)
        if payload[:1] == b"{"
    ][:count]


def mqtt(bench: Bench, bundle: Bundle) -> dict[str, Any]:
    single = _messages(bench, bench.size(60_000, 5_000))
    many = [payload for _, payload in _messages(bench, bench.size(600_000, 20_000))]
    groups = [many[at : at + BATCH] for at in range(0, len(many), BATCH)]
    kinds = {
        "one_event": single,
        "ndjson": [(b"plant/batch", b"\n".join(group)) for group in groups],
        "array": [(b"plant/batch", b"[" + b",".join(group) + b"]") for group in groups],
    }
    figures: dict[str, Any] = {"batch": BATCH}
    for name, messages in kinds.items():
        events = len(single) if name == "one_event" else len(many)
        with broker.running(bench.fresh(f"broker-{name}"), verbose=False) as server:
            inputs = f"""[broker]
url = "{server.url}"
[[input]]
type = "mqtt"
name = "mqtt"
topics = ["plant/#"]
logsource = {{ product = "linux" }}
"""
            with running(bench, f"mqtt-{name}", inputs, bundle) as run:
                fast.publish(("127.0.0.1", server.port), messages)
                seconds = run.evaluated(events, within=120)
                figures[name] = run.figures(events, seconds, run.finished(events)[0])
        bench.say(
            f"  MQTT {name}: {figures[name]['events_per_second']:,} events/s, {figures[name]['us_per_event']} µs each"
        )
    return figures


def file(bench: Bench, bundle: Bundle) -> dict[str, Any]:
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
    with running(bench, "file", inputs, bundle) as run:
        os.link(stream, folder / "lines.log")
        seconds = run.evaluated(lines, within=120, pause=0.02)
        figures = run.figures(lines, seconds, run.finished(lines)[0])
    bench.say(f"  file: {figures['events_per_second']:,} events/s, {figures['us_per_event']} µs each")
    return figures


def run(bench: Bench) -> dict[str, Any]:
    bundle = bench.bundle(bench.rules(bench.size(3000, 300), 0.01))
    bench.stream(20_000)
    with undisturbed(bench.undisturbed) as alone:
        datagrams = udp(bench, bundle)
    return {"udp": datagrams, "undisturbed": alone, "mqtt": mqtt(bench, bundle), "file": file(bench, bundle)}
