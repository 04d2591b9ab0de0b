"""``python -m bench.wire``: the bytes that alerts take on their way to the region, over a real mosquitto.

An agent with the starter rules for Linux, a landing and a broker, all on loopback. After a first alert, with whose
receipt the landing has said what it can read, come ``--lines`` failed logins at once (99 bytes each, each an alert),
the same for SECONDS at each of ``--rates`` a second, and ALONE attacks of all kinds, each after the receipt for the
one before. A subscriber beside the landing sees what is published. Prints one JSON object: by phase alerts, messages,
bytes of payload an alert, and CPU microseconds an alert of agent (from the line in to the receipt) and landing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from bench import send, traffic
from bench.agent import Agent, directory, syslog_input
from bench.usage import cpu_seconds
from tests.broker import own_port, running
from tests.e2e.agent import Process
from tests.waits import until
from vedette.delivery.batch import split_batch

RULES = Path(__file__).parents[1] / "rules" / "sigma" / "linux"
ALONE = 40
SECONDS = 4.0


def logins(seed: int, count: int) -> bytes:
    """Lines of 99 bytes, each of which is an alert."""
    rng, lines = Random(seed), bytearray()
    for number in range(count):
        seconds = number // 100
        address = ".".join(str(rng.randrange(100, 250)) for _ in range(4))
        lines += (
            f"<86>Sep 21 14:{seconds // 60 % 60:02}:{seconds % 60:02} gw-vienna sshd[{rng.randrange(10_000, 100_000)}]:"
            f" Failed password for root from {address} port {rng.randrange(10_000, 65_536)} ssh2\n"
        ).encode()
    return bytes(lines)


class Way:
    """Agent, landing and what is published between them."""

    def __init__(self, agent: Agent, landing: Process, broker: int, syslog: int) -> None:
        self._agent, self._landing, self._peer = agent, landing, ("127.0.0.1", syslog)
        self._payloads: list[bytes] = []
        self._stored = 0
        client = Client(CallbackAPIVersion.VERSION2, "wire", protocol=MQTTv5)
        client.on_message = lambda client, data, message: self._payloads.append(bytes(message.payload))
        client.connect("127.0.0.1", broker)
        client.subscribe("vedette/v1/+/+/alerts", 0)
        client.loop_start()

    def through(self, parts: Sequence[bytes], rate: float = 0.0) -> dict[str, Any]:
        """What it takes to take ``parts`` (lines) through, each until the last receipt."""
        self._payloads.clear()
        made, used = self._made(), self._used()
        for part in parts:
            send.tcp(self._peer, part, rate=rate)
            self._stored += part.count(b"\n")
            self._agent.wait(self._settled, 120, pause=0.1)
        alerts = self._made() - made
        agent, landing = ((after - before) / alerts * 1e6 for before, after in zip(used, self._used(), strict=True))
        batches = [len(split_batch(payload)[1]) for payload in self._payloads]
        return {
            "alerts": alerts,
            "messages": len(batches),
            "bytes_an_alert": round(sum(map(len, self._payloads)) / sum(batches), 1),
            "agent_cpu_us": round(agent, 1),
            "landing_cpu_us": round(landing, 1),
        }

    def _settled(self, status: dict[str, Any]) -> bool:
        """All is evaluated, and every alert has its receipt."""
        counts = status["inputs"].get("tcp", {"judged": 0})
        return bool(counts["judged"] >= self._stored and not status["alerts"]["in_outbox"])

    def _made(self) -> int:
        return int(self._agent.wait()["alerts"]["made"])

    def _used(self) -> tuple[float, float]:
        return self._agent.usage().seconds, cpu_seconds(self._landing.pid)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What alerts take on their way to the region.")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rates", type=int, nargs="*", default=[10, 100, 1000], metavar="LINES")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, running(Path(name) / "broker", verbose=False) as broker:
        folder, port = Path(name), own_port()
        command = ("region", "land", "--broker", broker.url, "--landing", folder / "landing", "--seconds", "0.5")
        landing = Process(folder / "landing.log", *command)
        landing.start()
        uplink = f'[broker]\nurl = "{broker.url}"\n[uplink]\ntype = "mqtt"\n'
        agent = Agent(folder, syslog_input(port), directory(RULES), uplink)
        try:
            agent.wait(lambda status: bool(status["uplink"]["connected"]), 60)
            until("the landing", lambda: "broker_connected" in landing.text())
            way = Way(agent, landing, broker.port, port)
            way.through([logins(1, 1)])
            result = {"burst": way.through([logins(2, options.lines)])}
            for rate in options.rates:
                result[f"{rate} a second"] = way.through([logins(rate, int(rate * SECONDS))], rate)
            attacks = traffic.planted(7, 40_000, 0.01)
            result["alone"] = way.through(attacks[:: len(attacks) // ALONE][:ALONE])
        finally:
            agent.stop()
            landing.stop()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
