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
from bench.agent import Agent, Bundle, syslog_input
from bench.drive import Bench, Wrong, account, finished, ready, totals
from bench.host import undisturbed
from tests.broker import free_port, running

RATES = (50_000, 100_000, 150_000, 200_000, 250_000, 310_000, 350_000, 400_000, 500_000)
BATCH = 200
"""Events in an MQTT payload."""


def _started(bench: Bench, name: str, inputs: str, bundle: Bundle) -> Agent:
    agent = bench.agent(bench.fresh(name), inputs, bundle.settings)
    try:
        ready(agent)
        deadline = time.monotonic() + 30
        while 'type = "mqtt"' in inputs and b"broker_connected" not in agent.log.read_bytes():
            time.sleep(0.1)
            if time.monotonic() > deadline:
                raise Wrong(f"the agent does not reach the broker:\n{agent.tail()}")
        time.sleep(0.5)  # the subscription follows
        agent.settle(10)
    except BaseException:
        agent.stop(1)
        raise
    if bench.profile:
        agent.sample()
    return agent


def _figures(agent: Agent, events: int, seconds: float, before: float, after: float) -> dict[str, Any]:
    return {
        "events": events,
        "events_per_second": round(events / seconds),
        "events_per_cpu_second": round(events / (after - before)),
        "us_per_event": round((after - before) / events * 1e6, 3),
    }


def udp(bench: Bench, bundle: Bundle) -> dict[str, Any]:
    port = free_port()
    lines = bench.stream(20_000).read_bytes().splitlines()
    agent = _started(bench, "udp", syslog_input(port, "udp"), bundle)
    steps: list[dict[str, Any]] = []
    sender = fast.Datagrams(("127.0.0.1", port), lines)
    try:
        for rate in RATES if not bench.quick else RATES[:1]:
            base, before = totals(agent.status() or {"inputs": {}, "totals": {}}), agent.usage().seconds
            began = time.monotonic()
            sent = sender.send(rate, bench.size(3, 1))
            seconds = time.monotonic() - began
            usage = agent.settle(30)
            deadline = time.monotonic() + 10
            while True:  # kernel drops are read once a second
                now = totals(agent.wait(lambda status: True, 30))
                now.subtract(base)
                if now["received"] >= sent or time.monotonic() > deadline:
                    break
                time.sleep(0.3)
            if now["received"] != sent or now["stored"] != now["received"] - now["dropped"]:
                raise Wrong(f"UDP: sent {sent}, told as received {now['received']} and dropped {now['dropped']}")
            lost = now["dropped"]
            steps.append({"dropped": lost, **_figures(agent, sent, seconds, before, usage.seconds)})
            bench.say(f"  UDP {sent / seconds:,.0f} a second: {lost} dropped, {steps[-1]['us_per_event']} µs each")
            if lost or sent / seconds < rate * 0.9:
                break
    finally:
        sender.close()
        agent.stop()
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
    found: dict[str, Any] = {"batch": BATCH}
    for name, messages in kinds.items():
        events = len(single) if name == "one_event" else len(many)
        with running(bench.fresh(f"broker-{name}"), verbose=False) as broker:
            port = broker.port
            inputs = f"""[broker]
url = "mqtt://127.0.0.1:{port}"
[[input]]
type = "mqtt"
name = "mqtt"
topics = ["plant/#"]
logsource = {{ product = "linux" }}
"""
            agent = _started(bench, f"mqtt-{name}", inputs, bundle)
            try:
                base, before, began = (
                    totals(agent.status() or {"inputs": {}, "totals": {}}),
                    agent.usage().seconds,
                    time.monotonic(),
                )
                fast.publish(("127.0.0.1", port), messages)
                while totals(agent.wait(lambda status: True, 30))["judged"] - base["judged"] < events:
                    time.sleep(0.05)
                    if time.monotonic() - began > 120:
                        raise Wrong(f"MQTT: not all of {events} events were judged in 120 s")
                seconds = time.monotonic() - began
                usage, status = finished(agent, events, base)
                account(status, base, events)
                found[name] = _figures(agent, events, seconds, before, usage.seconds)
            finally:
                agent.stop()
        bench.say(
            f"  MQTT {name}: {found[name]['events_per_second']:,} events/s, {found[name]['us_per_event']} µs each"
        )
    return found


def file(bench: Bench, bundle: Bundle) -> dict[str, Any]:
    lines = bench.size(500_000, 40_000)
    stream, folder = bench.stream(lines), bench.fresh("logs")
    inputs = f"""[[input]]
type = "file"
name = "file"
paths = ["{folder}/*.log"]
format = "syslog"
poll = 0.05
timezone = "UTC"
logsource = {{ product = "linux" }}
"""
    agent = _started(bench, "file", inputs, bundle)
    try:
        base, before, began = (
            totals(agent.status() or {"inputs": {}, "totals": {}}),
            agent.usage().seconds,
            time.monotonic(),
        )
        os.link(stream, folder / "lines.log")
        while totals(agent.wait(lambda status: True, 30))["judged"] - base["judged"] < lines:
            time.sleep(0.02)
            if time.monotonic() - began > 120:
                raise Wrong(f"file: not all of {lines} lines were judged in 120 s")
        seconds = time.monotonic() - began
        usage, status = finished(agent, lines, base)
        account(status, base, lines)
    finally:
        agent.stop()
    found = _figures(agent, lines, seconds, before, usage.seconds)
    bench.say(f"  file: {found['events_per_second']:,} events/s, {found['us_per_event']} µs each")
    return found


def run(bench: Bench) -> dict[str, Any]:
    bundle = bench.bundle(bench.rules(bench.size(3000, 300), 0.01))
    bench.stream(20_000)
    with undisturbed(bench.undisturbed) as alone:
        datagrams = udp(bench, bundle)
    return {"udp": datagrams, "undisturbed": alone, "mqtt": mqtt(bench, bundle), "file": file(bench, bundle)}
