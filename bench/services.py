"""Scenario ``services``: logs of services as JSON lines, of which hardly a value comes twice.

``services.txt`` has templates of events as vendors document them, by kind and weight: Zeek as it streams a site's
traffic (http, dns, conn, ssl, files), nginx with the variables that its documentation shows and with the request's
first line alone, Caddy, Beats, OpenTelemetry, CloudTrail, Kubernetes' audit and others; Winlogbeat and unusual shapes
(``shapes.py``) are made here. URIs, addresses, ports, ids and times are fresh in nearly every event, one request in 500
is a probe.
With all rules of SigmaHQ where they are at hand, else the starter rules; with the native kernel and without it, by
turns, in one process: CPU µs an event, and the share of events that the kernel decided.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import orjson

from bench import shapes, windows
from bench.drive import Bench
from bench.values import AGENTS, COMMANDS, WORDS, address, digits, identity, time_of, uri
from vedette.api import compile_rules
from vedette.engine.cache import Cache
from vedette.engine.match import Context, Engine
from vedette.model.event import Chunk, LogSource

ROOT = Path(__file__).parents[1]
RULES = (ROOT.parent / "shared" / "data" / "sigma-all" / "rules", ROOT / "rules" / "sigma")
"""The first that is there."""
CHUNK = 500
"""Events."""
MOST_BYTES = 40 << 20
"""Of the events of one kind."""


PLACE = re.compile(r"<([^<>#]+)(?:#(\d+))?>")
"""In the templates of ``services.txt``: a value by name, ``int LOW HIGH``, ``hex BITS`` or one of ``a|b|c``; places
with the same number are filled alike."""
VALUES: Mapping[str, Callable[[Random, int], str]] = {
    "time": lambda rng, number: time_of(number),
    "n": lambda rng, number: str(number),
    "ip": lambda rng, number: address(rng),
    "inside": lambda rng, number: address(rng, inside=True),
    "uri": lambda rng, number: uri(rng),
    "uuid": lambda rng, number: identity(rng),
    "id": lambda rng, number: f"C{rng.getrandbits(90):x}",
    "word": lambda rng, number: rng.choice(WORDS),
    "agent": lambda rng, number: rng.choice(AGENTS),
    "command": lambda rng, number: rng.choice(COMMANDS),
}


def _value(place: str, rng: Random, number: int) -> str:
    match place.split():
        case ["int", low, high]:
            return str(rng.randrange(int(low), int(high)))
        case ["hex", bits]:
            return digits(rng, int(bits))
    return VALUES[place](rng, number) if place in VALUES else rng.choice(place.split("|"))


def _read() -> dict[str, tuple[list[str], list[int]]]:
    """Templates and their weights, by kind."""
    kinds: dict[str, tuple[list[str], list[int]]] = {}
    for line in Path(__file__).with_name("services.txt").read_text("utf-8").splitlines():
        kind, weight, template = line.split("\t")
        templates, weights = kinds.setdefault(kind, ([], []))
        templates.append(template)
        weights.append(int(weight))
    return kinds


TEMPLATES = _read()


def _winlogbeat(rng: Random, number: int) -> dict[str, Any]:
    event = windows.event(rng, number)
    code, data = event["winlog"]["event_id"], event["winlog"]["event_data"]
    process = {"entity_id": data["ProcessGuid"], "executable": data["Image"], "name": data["Image"].rpartition("\\")[2]}
    if code == 1:
        process |= {"command_line": data["CommandLine"], "pid": data["ProcessId"],
                    "parent": {"executable": data["ParentImage"], "pid": data["ParentProcessId"]}}  # fmt: skip
    return {
        **event, "ecs": {"version": "8.11.0"}, "agent": {"id": "a1", "type": "winlogbeat", "version": "9.2.0"},
        "event": {"code": str(code), "kind": "event", "provider": windows.SYSMON, "created": time_of(number) + "Z"},
        "log": {"level": "information"}, "process": process, "user": {"name": data["User"].rpartition("\\")[2]},
    }  # fmt: skip


MADE_UP: Mapping[str, Callable[[Random, int], dict[str, Any]]] = {"Winlogbeat": _winlogbeat, **shapes.KINDS}
KINDS = (*TEMPLATES, *MADE_UP)


SOURCES = {
    "Filebeat, system auth": LogSource("linux", "", "auth"), "Filebeat, nginx": LogSource("", "webserver", "nginx"),
    "CloudTrail": LogSource("aws", "", "cloudtrail"), "Falco": LogSource("linux"), "osquery": LogSource("linux"),
}  # fmt: skip
"""What a user says of the inputs of these, whose events do not tell."""


def events(kind: str, seed: int, count: int) -> Iterator[bytes]:
    """``count`` lines of JSON without newline."""
    rng = Random(f"{kind} {seed}")
    for number in range(count):
        if kind in MADE_UP:
            yield orjson.dumps(MADE_UP[kind](rng, number))
            continue
        alike: dict[str, str] = {}

        def fill(place: re.Match[str], number: int = number, alike: dict[str, str] = alike) -> str:
            value = _value(place[1], rng, number)
            return alike.setdefault(place[2], value) if place[2] else value

        yield PLACE.sub(fill, rng.choices(*TEMPLATES[kind])[0]).encode()


def run(bench: Bench) -> dict[str, Any]:
    """Of 20,000 events of each kind, or fewer that are large."""
    folder, count = next(path for path in RULES if path.is_dir()), bench.size(20_000, 1_000)
    plan = compile_rules(folder, sample=b"\n".join(line for kind in KINDS for line in _within(1 << 20, kind, 2, 500)))
    databases = Engine(plan).databases()
    rows = []
    for kind in KINDS:
        lines = list(_within(MOST_BYTES, kind, 1, count))
        data = [b"".join(line + b"\n" for line in lines[at : at + CHUNK]) for at in range(0, len(lines), CHUNK)]
        chunks = [Chunk("bench", "json", 0, part) for part in data]
        times: dict[bool, list[float]] = {True: [], False: []}
        matches, share = set[tuple[tuple[int, int, int], ...]](), 0.0
        for _ in range(bench.runs):
            for kernel in (True, False):
                engine = Engine(plan, databases, kernel=kernel, cache=Cache(0))
                began = time.process_time()
                matches.add(found(engine, chunks, SOURCES.get(kind, LogSource())))
                times[kernel].append((time.process_time() - began) / len(lines) * 1e6)
                if kernel and (account := engine.kernel()):
                    share = 1 - account["undecided"] / account["events"]
        if len(matches) > 1:
            raise ValueError(f"{kind}: with the kernel and without it other matches: {sorted(map(len, matches))}")
        rows.append({
            "events": kind, "bytes": round(sum(map(len, lines)) / len(lines)), "decided by the kernel": f"{share:.1%}",
            "CPU µs an event": statistics.median(times[True]), "without the kernel": statistics.median(times[False]),
        })  # fmt: skip
        bench.say(f"  {rows[-1]}")
    return {"tables": [rows], "said": f"{len(plan.rules):,} rules."}


def _within(most: int, kind: str, seed: int, count: int) -> Iterator[bytes]:
    """``events`` of at most so many bytes in all."""
    for line in events(kind, seed, count):
        most -= len(line)
        if most < 0:
            return
        yield line


def found(engine: Engine, chunks: Iterable[Chunk], source: LogSource) -> tuple[tuple[int, int, int], ...]:
    """Chunk, place and rule of each."""
    context = Context(None, source)
    each = ((number, match) for number, chunk in enumerate(chunks) for match in engine.evaluate(chunk, context))
    return tuple((number, match.start, match.rule) for number, match in each)
