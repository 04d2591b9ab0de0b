"""``python -m bench.dictionary ID FILE``: train the dictionary by which batches of alerts are compressed.

All of it is of this project's own making. The agent's pipeline makes the alerts: of the starter rules, from the test
events beside them and from the streams of ``bench.traffic``, and of a rule for every event, from the events of
``bench.windows`` and ``bench.services``. Made-up agents send them, so that names, numbers and times are of no host.

A dictionary that was released never changes: a later one has a new id, and its file goes beside the others into
``agent/vedette/delivery/dictionaries`` as ``ID.zdict``. Ids are 32,768 to 65,535, which zstd leaves to us and writes in
two bytes. Prints what batches take by it that were not trained on.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any

import zstandard

from bench import services, traffic, windows
from tests.life import NOW, Life
from vedette import compile_rules
from vedette.delivery.batch import LEVEL
from vedette.delivery.envelope import encode, pack_batch, received_date
from vedette.engine.match import Context, Engine
from vedette.model.event import Alert, Chunk, LogSource, RawRef
from vedette.rules.authoring import cases

RULES = Path(__file__).parents[1] / "rules"
SIZE = 64 << 10
"""Bytes of a dictionary."""
EVERY = """
title: Event of Windows
id: 5f0d3c1e-0000-4000-8000-000000000001
tags: [attack.execution, attack.t1059.001]
logsource: {product: windows}
detection: {selection: {EventID|exists: true}, condition: selection}
level: high
---
title: Event of a Service
id: 5f0d3c1e-0000-4000-8000-000000000002
tags: [attack.initial-access, attack.t1078]
logsource: {product: service}
detection: {keywords: ['"'], condition: keywords}
level: medium
"""
LINES, ATTACKS = 60_000, 0.02
"""Of each stream, and the share of attacks; only these are evaluated."""
WINDOWS, SERVICES = 150, 12
"""Events, of services of each kind."""
ALONE, TOGETHER = 12, 300
"""Samples of one alert, for each rule; samples of some alerts of one agent."""
NAMES = ("edge", "gw", "plant", "web", "db", "site", "host", "srv")
SITES = ("vienna", "graz", "linz", "berlin", "paris", "north", "s1", "default", "")
FLEETS = ("default", "f1", "plants", "eu", "prod")
INPUTS = ("syslog", "journal", "web", "files", "tcp", "mqtt", "http")
DAY = 86_400_000_000


def chunks() -> Iterator[tuple[LogSource, Chunk]]:
    """All that is evaluated, each with the log source of its input, which is named after it."""
    plan = compile_rules(RULES / "sigma", RULES / "sql")
    anything = LogSource()
    for case in cases.load(plan)[0]:
        if case.expect and b"\n" not in case.raw:
            yield anything, Chunk("tests", case.codec or "auto", NOW, case.raw + b"\n", origins=(case.origin,))
    for sequence in cases.sequences(plan)[0]:
        for timed in sequence.events:
            yield (
                anything,
                Chunk("tests", timed.codec or "auto", timed.time, timed.raw + b"\n", origins=(timed.origin,)),
            )
    for kind, source in (
        ("syslog", LogSource("linux")),
        ("access", LogSource("", "webserver")),
        ("mqtt-json", anything),
    ):
        for line in traffic.planted(11, LINES, ATTACKS, kind):
            if kind == "mqtt-json":
                topic, _, payload = line.partition(b" ")
                yield source, Chunk(kind, "mqtt", NOW, payload, origins=(topic.decode(),))
            else:
                yield source, Chunk(kind, "auto", NOW, line)
    yield LogSource("windows"), Chunk("windows", "auto", NOW, b"\n".join([*windows.events(3, WINDOWS), b""]))
    for kind in services.KINDS:
        events = b"\n".join([*services.events(kind, 3, SERVICES), b""])
        yield LogSource("service"), Chunk("services", "auto", NOW, events)


def alerts(folder: Path) -> Mapping[str, Sequence[Alert]]:
    """The alerts of these events, by rule."""
    life = Life(folder, Engine(compile_rules(RULES / "sigma", RULES / "sql", text=EVERY)))
    for source, chunk in chunks():
        life.context.input_contexts[chunk.input] = Context(UTC, source, "web1")
        life.give(chunk)
    by_rule: dict[str, list[Alert]] = defaultdict(list)
    for alert in life.live().alerts():
        by_rule[alert.rule_id].append(alert)
    life.end()
    return by_rule


class Sender:
    """A made-up agent."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.log_id, self._raw_log = (f"{rng.getrandbits(128):032x}" for _ in range(2))
        self._who: dict[str, Any] = {
            "agent_id": f"{rng.choice(NAMES)}-{rng.randrange(1, 99)}",
            "site": rng.choice(SITES),
            "fleet": rng.choice(FLEETS),
            "bundle": rng.choice((None, f"starter-{rng.randrange(1, 9)}")),
            "source": rng.choice(INPUTS),
        }
        self._time = traffic.START + rng.randrange(365) * DAY + rng.randrange(DAY)
        self._seq, self._offset = rng.randrange(1, 10 ** rng.randrange(1, 6)), rng.randrange(10 ** rng.randrange(3, 10))

    def batch(self, some: Iterable[Alert]) -> bytes:
        return pack_batch(self.log_id, [self._sent(alert) for alert in some])

    def _sent(self, alert: Alert) -> bytes:
        rng = self._rng
        self._seq += 1
        self._offset += rng.randrange(100, 5000)
        self._time += rng.randrange(10 ** rng.randrange(3, 8))
        own = replace(
            alert,
            **self._who,
            alert_id=f"{rng.getrandbits(128):032x}",
            seq=self._seq,
            event_time=self._time,
            detected_at=self._time + rng.randrange(5_000, 300_000),
            received_date=received_date(self._time),
            raw_ref=RawRef(self._raw_log, self._offset, alert.raw_ref.length),
            contributing=tuple(
                event._replace(
                    event_time=self._time - rng.randrange(10**8),
                    raw_ref=RawRef(self._raw_log, rng.randrange(self._offset), event.raw_ref.length),
                )
                for event in alert.contributing
            ),
        )
        return encode(own)


def samples(by_rule: Mapping[str, Sequence[Alert]], rng: Random) -> tuple[list[bytes], list[bytes]]:
    """Batches of one alert, and of some."""
    every = [alert for one_rule in by_rule.values() for alert in rng.sample(one_rule, min(ALONE, len(one_rule)))]
    alone = [Sender(rng).batch([rng.choice(of_rule)]) for of_rule in by_rule.values() for _ in range(ALONE)]
    return alone, [Sender(rng).batch(rng.sample(every, rng.randrange(2, 12))) for _ in range(TOGETHER)]


def main(number: int, file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        by_rule = alerts(Path(folder))
    alone, together = samples(by_rule, Random(1))
    trained = zstandard.train_dictionary(SIZE, [*alone, *together], k=200, d=8, dict_id=number, level=LEVEL)
    file.write_bytes(trained.as_bytes())
    compress = zstandard.ZstdCompressor(level=LEVEL, dict_data=trained).compress
    alone, together = samples(by_rule, Random(2))
    figures: dict[str, float] = {"rules": len(by_rule), "bytes": len(trained)}
    for name, some in (("alone", alone), ("together", together)):
        figures[name] = sum(map(len, some)) / len(some)
        figures[f"{name}_compressed"] = sum(len(compress(batch)) for batch in some) / len(some)
    print(json.dumps({name: round(figure) for name, figure in figures.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
