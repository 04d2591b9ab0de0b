"""Streams of log lines, seeded and reproducible, with attacks planted in them; and a command that writes or sends one.

Promises:

* The stream is a function of (seed, kind, attack_rate, start, per_second): line *n* is the same however many are asked.
* ``blocks`` and ``lines`` give the same bytes. ``blocks`` is the bulk form: over 500,000 lines per CPU-second.
* At the end of each block of 1,000 lines at most ``attack_rate`` of all lines are planted. An incident's lines lie in
  order within one block. The kinds of incidents take turns in shuffled rounds, so each occurs.
* Every planted line, and no other, is in ``truth``.

Kinds: ``syslog`` (RFC 3164, some RFC 5424; web requests and JSON inside), ``access`` (combined web log) and
``mqtt-json`` (``topic payload`` with one space between, as ``mosquitto_sub -v`` prints; one payload in ten is no JSON).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

from bench import attacks, benign, send

BLOCK = 1000
POOL = 8000
REPEATED = 500
"""Different messages among those that repeat."""
START = 1_790_000_000_000_000
"""2026-09-21T14:13:20Z, in microseconds."""
PER_SECOND = 100


class Planted(NamedTuple):
    """The label of one attack line. ``line`` counts from 1; lines of one incident share ``incident``."""

    line: int
    attack: str
    incident: int


KINDS: Mapping[str, tuple[Sequence[tuple[int, benign.Body]], Mapping[str, attacks.Incident]]] = {
    "syslog": (benign.SYSLOG, attacks.SYSLOG),
    "access": (benign.ACCESS, attacks.WEB),
    "mqtt-json": (benign.MQTT, attacks.MQTT),
}


class _Incidents:
    """Gives whole incidents while the share of planted lines allows."""

    def __init__(self, table: Mapping[str, attacks.Incident], rng: Random, rate: float) -> None:
        self._table, self._rng, self._rate = table, rng, rate
        self._allowed = 0.0
        self._round: list[str] = []
        self._number = 0
        self._draw()

    def _draw(self) -> None:
        if not self._round:
            self._round = list(self._table)
            self._rng.shuffle(self._round)
        self._attack = self._round.pop()
        self._lines = self._table[self._attack](self._rng)
        self._number += 1

    def plant(self, block: list[bytes]) -> list[tuple[int, str, int]]:
        """Overwrite lines of ``block``; returns (index, attack, incident), ascending."""
        self._allowed += self._rate * len(block)
        rows: list[tuple[str, int, str]] = []
        incidents: list[tuple[str, int, list[str]]] = []
        while len(self._lines) <= self._allowed and len(rows) + len(self._lines) <= len(block):
            self._allowed -= len(self._lines)
            incidents.append((self._attack, self._number, self._lines))
            rows += [(self._attack, self._number, line) for line in self._lines]
            self._draw()
        self._rng.shuffle(rows)
        left = {number: iter(lines) for _, number, lines in incidents}
        planted = []
        for index, (attack, number, _) in zip(
            sorted(self._rng.sample(range(len(block)), len(rows))), rows, strict=True
        ):
            block[index] = next(left[number]).encode()
            planted.append((index, attack, number))
        return planted


def _stamped(block: bytes, second: int) -> bytes:
    """``block`` with the time ``second`` (Unix) wherever one is open."""
    when = datetime.fromtimestamp(second, UTC)
    block = block.replace(b"\x00", when.strftime("%b %e %H:%M:%S").encode())
    block = block.replace(b"\x01", when.strftime("%d/%b/%Y:%H:%M:%S +0000").encode())
    block = block.replace(b"\x02", when.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode())
    return block.replace(b"\x03", str(second).encode())


def blocks(
    seed: int,
    count: int,
    *,
    attack_rate: float = 0.0,
    start: int = START,
    per_second: int = PER_SECOND,
    kind: str = "syslog",
    truth: list[Planted] | None = None,
    repeated: float = 0.0,
) -> Iterator[bytes]:
    """``count`` lines in runs, each line ended by ``\\n``.

    ``start`` is the time of the first line in UTC microseconds; ``per_second`` lines share a second. ``repeated``: this
    share of the lines (but for time and process id) is one of REPEATED. The labels of planted lines are appended to
    ``truth`` as the lines are given. Raises KeyError for an unknown kind.
    """
    ordinary, incidents_of = KINDS[kind]
    rng = Random(f"vedette {kind} {seed}")
    pool = benign.pool(ordinary, rng, POOL)
    incidents = _Incidents(incidents_of, Random(f"attacks {kind} {seed}"), attack_rate)
    pids, numbers = range(300, 32768), range(1024, 65536)
    often = Random(f"repeated {kind} {seed}")
    usual = [(often.choice(pool), often.choice(numbers)) for _ in range(REPEATED)]
    second = start // 1_000_000
    for first in range(0, count, BLOCK):
        chosen = zip(rng.choices(pool, k=BLOCK), rng.choices(pids, k=BLOCK), rng.choices(numbers, k=BLOCK), strict=True)
        block = [body % (pid, number) for body, pid, number in chosen]
        for i in range(BLOCK) if repeated else ():
            if often.random() < repeated:
                body, number = often.choice(usual)
                block[i] = body % (often.choice(pids), number)
        labels = incidents.plant(block)
        wanted = min(BLOCK, count - first)
        if truth is not None:
            truth += [Planted(first + i + 1, attack, number) for i, attack, number in labels if i < wanted]
        runs = []
        at = 0
        while at < wanted:
            line = first + at
            until = min(wanted, (line // per_second + 1) * per_second - first)
            runs.append(_stamped(b"\n".join(block[at:until]), second + line // per_second))
            at = until
        runs.append(b"")
        yield b"\n".join(runs)


def lines(seed: int, count: int, **options: Any) -> Iterator[bytes]:
    """The lines of ``blocks``, whose ``options`` it takes, one by one and without ``\\n``."""
    for block in blocks(seed, count, **options):
        yield from block[:-1].split(b"\n")


def planted(seed: int, count: int, rate: float, kind: str = "syslog") -> list[bytes]:
    """The lines of attacks, with ``\\n``, in such a stream."""
    truth: list[Planted] = []
    lines = b"".join(blocks(seed, count, attack_rate=rate, kind=kind, truth=truth)).splitlines(keepends=True)
    return [lines[label.line - 1] for label in truth]


def messages(seed: int, count: int, **options: Any) -> Iterator[tuple[str, bytes]]:
    """The kind ``mqtt-json`` as (topic, payload)."""
    for line in lines(seed, count, kind="mqtt-json", **options):
        topic, _, payload = line.partition(b" ")
        yield topic.decode(), payload


def _start(value: str, count: int, per_second: int) -> int:
    if value == "now":
        return (int(time.time()) - count // per_second) * 1_000_000
    moment = datetime.fromisoformat(value)
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()) * 1_000_000


def _generate(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.traffic",
        description="Write a stream of log lines. See also: python -m bench.traffic send --help",
        epilog="example: python -m bench.traffic --count 200000 --attacks 0.01 --truth truth.ndjson > lines.log",
    )
    parser.add_argument("--count", type=int, required=True, help="lines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attacks", type=float, default=0.0, metavar="SHARE", help="share of planted lines, e.g. 0.01")
    parser.add_argument("--kind", choices=sorted(KINDS), default="syslog")
    parser.add_argument("--start", metavar="ISO", help='time of the first line; "now": the last line is now')
    parser.add_argument("--per-second", type=int, default=PER_SECOND, help="lines per second of the stream's own time")
    parser.add_argument("--truth", metavar="FILE", help="write the labels of planted lines here, as NDJSON")
    parser.add_argument("--out", metavar="FILE", help="default: standard output")
    options = parser.parse_args(arguments)
    truth: list[Planted] = []
    start = _start(options.start, options.count, options.per_second) if options.start else START
    with ExitStack() as stack:
        out = stack.enter_context(open(options.out, "wb")) if options.out else sys.stdout.buffer
        for block in blocks(
            options.seed,
            options.count,
            attack_rate=options.attacks,
            start=start,
            per_second=options.per_second,
            kind=options.kind,
            truth=truth,
        ):
            out.write(block)
        out.flush()
    if options.truth:
        with open(options.truth, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(label._asdict()) + "\n" for label in truth)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return send.main(words[1:]) if words[:1] == ["send"] else _generate(words)


if __name__ == "__main__":
    sys.exit(main())
