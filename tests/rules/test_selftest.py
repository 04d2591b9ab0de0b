"""Real rules and events beside the project (``../shared/data``): everything loads, every path agrees, and the expected
matches of other engines' suites come out. Skipped where the material is absent."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import reference
from vedette.api import evaluate
from vedette.decode.decoder import record
from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.rules import build
from vedette.runtime.offline.scan import chunk_of

SHARED = Path(__file__).parents[3] / "shared"
DATA = SHARED / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared material is not here")

RULES = 1614
ALWAYS = 40
"""Rules of the set that may lack literals; more means that literals are found worse than they were."""


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text("utf-8"))


def hits(text: str, events: Iterable[Mapping[str, Any]]) -> list[int] | None:
    """The indexes of the events that the rules of ``text`` match; None when none of them runs."""
    plan = build.from_text(text)
    return sorted({found.line - 1 for found in evaluate(plan, events)}) if plan.rules else None


@pytest.fixture(scope="module")
def engines() -> tuple[Engine, Engine]:
    """All rules of the set, with prefilter and without."""
    plan = build.build([DATA / "sigma" / "rules"])
    on = Engine(plan, route=False)
    return on, Engine(plan, on.databases(), route=False, prefilter=False)


@pytest.mark.long
def test_every_rule_loads(engines: tuple[Engine, Engine]) -> None:
    """The whole set runs: none refused, none on the slow engine, few that must see every event."""
    plan = engines[0].plan
    sys.stdout.write(f"{len(plan.rules)} rules, {len(plan.refused)} refused, {len(plan.always)} always candidates\n")
    assert plan.refused == ()
    assert len(plan.rules) == RULES
    assert len(plan.always) <= ALWAYS
    assert engines[0].evaluator.fallback == []


@pytest.mark.long
def test_every_rule_is_evaluated_alike(engines: tuple[Engine, Engine]) -> None:
    """All rules over events of real attacks and lines of real hosts: prefilter on, off and the reference agree."""
    on, off = engines
    attacks = [event for case in load("sigma_regression.json") for event in case["events"]]
    chunks = list(chunk_of(attacks, "json"))
    for path in sorted((DATA / "loghub").rglob("*.log")):
        lines = path.read_bytes().splitlines()[::10]
        chunks.append(Chunk("in", "auto", 0, b"".join(line + b"\n" for line in lines)))
    found = 0
    for chunk in chunks:
        matches = [(m.start, m.rule) for m in on.evaluate(chunk)]
        assert matches == [(m.start, m.rule) for m in off.evaluate(chunk)]
        found += len(matches)
        for start, end in list(chunk.spans())[::8]:
            event = record(chunk.data[start:end], chunk.codec)
            assert reference.matches(on.plan, event) == [rule for at, rule in matches if at == start]
    sys.stdout.write(f"{found} matches; {on.tally.candidates} of {on.tally.events} events are candidates\n")
    assert found > 150
    assert not on.tally.undecided


def test_regression_events() -> None:
    """SigmaHQ's regression events match as an independent engine says; as often as SigmaHQ says, where it does."""
    agreed, differing = 0, []
    for case in load("sigma_regression.json"):
        found, wanted = hits(case["rule_yaml"], case["events"]), case["expected_match_count"]
        if found == case["sqlite_hits"] and wanted in (None, len(found)):
            agreed += 1
        else:
            differing.append((case["case"].rpartition("/")[2], found, case["sqlite_hits"], wanted))
    sys.stdout.write(f"regression: {agreed} agreed, {len(differing)} differ: {differing}\n")
    # The one case holds six events, three of which the independent engine and we match; SigmaHQ counts one alert.
    assert differing == [("file_event_win_cred_dump_tools_dropped_files", [0, 2, 4], [0, 2, 4], 1)]
    assert agreed == 70


@pytest.mark.long
def test_triples_of_other_engines() -> None:
    """Every (rule, event, expected) on which other engines agree comes out as they say."""
    agreed, differing, disputed = 0, [], []
    for case in load("sigma_triples.json"):
        for step in case["steps"]:
            found = hits(case["rules_yaml_std"] or case["rules_yaml"], [step["event"]])
            same = found is not None and bool(found) == step["match"]
            if step["status"] != "consensus":
                disputed.append((case["id"], step["status"], step["match"], found and bool(found)))
            elif same:
                agreed += 1
            else:
                differing.append((case["id"], case["test"], step, found))
    sys.stdout.write(f"triples: {agreed} agreed, {len(differing)} differ: {differing}; without consensus: {disputed}\n")
    assert differing == []
    assert agreed == 128


def test_rule_texts_of_pysigmas_tests() -> None:
    """Valid and invalid texts of all kinds: each document runs or is refused with line and reason; nothing raises."""
    run = refused = 0
    for case in load("sigma_rule_literals.json"):
        text = case.get("yaml") or yaml.safe_dump(case.get("dict"), allow_unicode=True)
        rules = build.read(text)
        assert all(refusal.reason and refusal.line > 0 for refusal in rules.refused)
        run, refused = run + len(rules.rules), refused + len(rules.refused)
    sys.stdout.write(f"{run} documents run, {refused} are refused\n")
    assert run > 100


@pytest.mark.skipif(
    importlib.util.find_spec("sigma.backends.sqlite") is None, reason="pysigma-backend-sqlite is not installed"
)
def test_against_the_sqlite_oracle() -> None:
    """Rules over the regression events of all rules: the matches are those of pySigma's SQLite backend."""
    spec = importlib.util.spec_from_file_location("sqlite_oracle", SHARED / "tools" / "sqlite_oracle.py")
    assert spec is not None
    assert spec.loader is not None
    oracle = importlib.util.module_from_spec(spec)
    sys.modules["sqlite_oracle"] = oracle
    spec.loader.exec_module(oracle)
    cases = load("sigma_regression.json")
    events = [event for case in cases for event in case["events"]]
    table = oracle.load(events)
    for case in cases:
        assert hits(case["rule_yaml"], events) == sorted(oracle.match(case["rule_yaml"], events, table))
