"""Names and log sources that the prefilter may search for: what it concludes from code holds for events.

Events of the rules' tests, of the benchmark's traffic and, where they are at hand, of other projects' tests.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from bench import benign, windows
from tests.decode.test_vectors import DATA
from vedette.decode import names
from vedette.decode.decoder import record
from vedette.engine.prefilter import tolerant
from vedette.model.event import LogSource
from vedette.plan.ir import Op, Predicate
from vedette.plan.literals import Literals, clauses_of, folded, unescaped
from vedette.plan.witness import witness
from vedette.rules.authoring import cases

RULES = Path(__file__).parents[2] / "rules"


@cache
def events() -> list[tuple[bytes, str, str]]:
    """(event, codec, topic)."""
    found: list[tuple[bytes, str, str]] = []
    for path in RULES.rglob("*.test.yml"):
        for item in yaml.safe_load(path.read_text("utf-8")):
            for part in item.get("sequence") or [item.get("match") or item.get("no_match")]:
                part = {key: value for key, value in part.items() if key != "at"} if isinstance(part, dict) else part
                found.append(cases._event(part))
    found += [(body, "auto", "") for body in benign.pool(benign.SYSLOG, Random(1), 200)]
    found += [(body, "auto", "") for body in benign.pool(benign.ACCESS, Random(1), 20)]
    found += [(event, "json", "") for event in itertools.islice(windows.events(1, 100), 100)]
    for name in ("cef_vectors.json", "vendor_syslog_lines.json", "sigma_regression.json"):
        if (DATA / name).exists():
            found += [(line.encode(), "auto", "") for line in texts(json.loads((DATA / name).read_text("utf-8")))]
    if (lines := DATA / "failed_login_lines.jsonl").exists():
        for line in lines.read_text("utf-8").splitlines():
            found += [(text.encode(), "auto", "") for text in texts(json.loads(line))]
    return [one for one in found if one[0] and b"\n" not in one[0]]


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value that may be an event, and every object as one."""
    if isinstance(value, str):
        if len(value) > 20:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        if len(value) > 3:
            yield json.dumps(value)
        for item in value.values():
            yield from texts(item)


def paths(value: object, prefix: str = "") -> Iterator[str]:
    """The names of fields, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, prefix)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield prefix + name
            yield from paths(inner, f"{prefix}{name}.")


@cache
def pattern(clause: Literals) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(tolerant, sorted(clause))), re.IGNORECASE)


def holds(raw: bytes, clause: Literals) -> bool:
    """Whether the scan finds one of ``clause`` in ``raw``, or in the forms in which it is searched again."""
    return any(pattern(clause).search(form) for form in (raw, unescaped(raw), folded(raw)))


@cache
def clause_of(name: str) -> Literals | None:
    return next(iter(clauses_of(Predicate(name, Op.EXISTS))), None)


def test_a_field_stands_under_its_name() -> None:
    """Every decoded field of every event: where its name is a literal, the event holds it, or another of its names."""
    told = set()
    for raw, codec, topic in events():
        for name in paths(record(raw, codec, origin=topic).fields()):
            for asked in (name, *names.ALIASES.get(name, ())):
                if (clause := clause_of(asked)) is not None:
                    told.add(name)
                    assert holds(raw, clause), (asked, raw)
    assert len(told) > 100


def test_an_event_tells_its_log_source() -> None:
    """Every event of every source: where the source has literals and the input does not say it, the event holds one."""
    told = set()
    for raw, codec, topic in events():
        for read in {codec, "auto", "syslog"}:
            for part, values in enumerate(record(raw, read, origin=topic).source):
                for value in values:
                    wanted = LogSource(*(value if i == part else "" for i in range(3)))
                    found = witness(wanted)
                    if found is not None and found.excuses(wanted, read, LogSource()):
                        told.add(value)
                        assert holds(raw, found.literals), (wanted, read, raw)
    assert len(told) > 20


@pytest.mark.parametrize("name", ["OwnName", "customer_id", "winlog.event_data.TaskContentNew"])
def test_names_that_no_decoder_makes(name: str) -> None:
    """They stand in the event as they are."""
    assert names.stands_as(name) == {name}


@pytest.mark.parametrize("name", ["src_ip", "cs-uri-stem", "repeated", "topic", "topic_level_3", "peer.x", "value", ""])
def test_names_that_decoders_make(name: str) -> None:
    """Nothing is said about them."""
    assert names.stands_as(name) is None


def test_the_digest_tells_decoders_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that gives a field under a name of its own changes what is told of that field, and of no other."""
    one, other = names.digest(["OwnName", "user"]), names.digest(["user"])
    words = names._invented()
    monkeypatch.setattr(names, "_invented", lambda: words | {"OwnName"})
    names.stands_as.cache_clear()
    assert names.digest(["OwnName", "user"]) != one
    assert names.digest(["user"]) == other
    names.stands_as.cache_clear()


@pytest.mark.parametrize("module", ["vedette.runtime.app", "vedette.rules.build", "vedette.cli.region"])
def test_the_digest_is_of_the_decoders_alone(module: str) -> None:
    """Whatever else a process has loaded, the digest is the same. Else an agent would take a bundle's literals for
    those of other decoders, and choose its own without having seen any traffic."""
    code = f"import {module}; from vedette.decode import names; print(names.digest(names._invented()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment, text=True)
    alone = "from vedette.decode import names; print(names.digest(names._invented()))"
    least = subprocess.run([sys.executable, "-c", alone], capture_output=True, check=True, env=environment, text=True)
    assert done.stdout == least.stdout
