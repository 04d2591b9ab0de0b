"""Placeholders of built lookups: asked for each value, in place of patterns, wherever rules run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from tests.bundle.conftest import Author
from tests.lookup.tables import lookup_of
from vedette import compile_rules
from vedette.cli.main import main
from vedette.decode.decoder import record
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.plan.ir import Op

HEAD = "title: t\nid: 00000000-0000-4000-8000-000000000001\nlogsource: {category: test}\nlevel: high\n"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with a table of assets and one of bad domains."""
    folder = tmp_path / "lookups"
    folder.mkdir()
    lookup_of(folder / "assets.vlookup", "ip net user owner", "ip:ip net:cidr user:nocase",
         [(f"10.{n}.0.1", f"10.{n}.0.0/16", f"User{n}", "x") for n in range(200)]).close()  # fmt: skip
    lookup_of(folder / "bad.vlookup", "domain", "domain:domain", [(f"evil{n}.example",) for n in range(20_000)]).close()
    lookup_of(folder / "exact.vlookup", "name n:int", "name", [("Anna", 1)]).close()
    return folder


def rule(detection: str, condition: str = "s") -> str:
    return f"{HEAD}detection: {{s: {{{detection}}}, condition: {condition}}}\n"


def matches(engine: Engine, event: dict[str, Any]) -> bool:
    return engine.evaluator.holds(0, record(orjson.dumps(event), "json"))


@pytest.mark.parametrize(
    ("detection", "index", "good", "bad"),
    [
        ("src|expand: '%assets%'", "ip", "10.7.0.1", "10.7.0.2"),
        ("src|expand: '%assets%'", "ip", "::ffff:10.7.0.1", "::ffff:10.7.0.2"),
        ("src|expand: '%assets%'", "ip", " 10.7.0.1 ", "10.7.0.1x"),
        ("src|cidr|expand: '%assets.net%'", "net", "10.7.200.9", "10.200.0.1"),
        ("src|expand: '%assets.user%'", "user", "USER7", "user200"),
        ("src|expand: '%bad%'", "domain", "www.EVIL19999.example.", "evil20000.example"),
        ("src|cased|expand: '%exact%'", "name", "Anna", "anna"),
    ],
)
def test_a_value_is_looked_up(tables: Path, detection: str, index: str, good: str, bad: str) -> None:
    """One predicate asks the table, whatever its size; a list is true when one of its values is there."""
    plan = compile_rules(text=rule(detection), lookups=[tables])
    assert not plan.refused
    (predicate,) = plan.predicates
    assert (predicate.op, predicate.option) == (Op.LOOKUP, index)
    engine = Engine(plan)
    assert matches(engine, {"src": good})
    assert matches(engine, {"src": [bad, good]})
    assert not matches(engine, {"src": bad})
    assert not matches(engine, {"src": None})
    assert not matches(engine, {})


def test_the_prefilter_asks_for_the_rest_of_the_rule(tables: Path) -> None:
    """An event is no candidate because of the table; the rule's other literals select it."""
    plan = compile_rules(text=rule("src|expand: '%assets%', cmd|contains: mimikatz"), lookups=[tables])
    assert plan.literals == (frozenset({b"mimikatz"}),)


@pytest.mark.parametrize(
    ("detection", "wrong"),
    [
        ("src|contains|expand: '%bad%'", "asked for the whole value of a field"),
        ("src|expand: 'x%bad%'", "asked for the whole value of a field"),
        ("src|re|expand: '%bad%'", "asked for the whole value of a field"),
        ("src|expand: '%bad.owner%'", "has no key that this can ask; it has domain"),
        ("src|cidr|expand: '%bad%'", "has no key that this can ask; it has domain"),
        ("src|cased|expand: '%bad%'", "has no key that this can ask; it has domain"),
        ("src|expand: '%worse%'", "no pipeline or lookup defines it"),
    ],
)
def test_refused(tables: Path, detection: str, wrong: str) -> None:
    """What a table cannot be asked is refused by name, with what to write instead."""
    plan = compile_rules(text=rule(detection), lookups=[tables])
    assert wrong in str(plan.refused[0])
    assert not plan.rules


def test_a_damaged_table_stops_its_rules_alone(tables: Path) -> None:
    """The rules that ask it are refused with the reason, the others run."""
    path = tables / "bad.vlookup"
    path.write_bytes(path.read_bytes()[:-1])
    plan = compile_rules(
        text=rule("src|expand: '%bad%'") + "---\n" + rule("src: x").replace("0001", "0002"), lookups=[tables]
    )
    assert len(plan.rules) == 1
    assert any("copy it again" in str(one) for one in plan.refused)


def test_a_plan_without_its_table(tables: Path) -> None:
    """A built plan does not run without the lookups that it asks, or with one that lacks the key."""
    artifact = Artifact.of(compile_rules(text=rule("src|expand: '%assets%'"), lookups=[tables]))
    with pytest.raises(ValueError, match="ask the lookup assets, which is not there"):
        artifact.engine()
    with (
        lookup_of(tables / "other.vlookup", "ip n:int", "n:number", [("x", 1)]) as other,
        pytest.raises(ValueError, match="by ip, which is no key of it"),
    ):
        artifact.engine({"assets": other})


def test_in_a_bundle(tables: Path, tmp_path: Path) -> None:
    """A bundle carries the tables that its rules ask, and is verified, tested and run with them."""
    (tmp_path / "r.yml").write_text(rule("src|expand: '%bad%'"))
    (tmp_path / "r.test.yml").write_text("- match: {src: www.evil7.example}\n- no_match: {src: good.example}\n")
    bundle = tmp_path / "b.vbundle"
    author = Author(tmp_path / "key.pem")
    for arguments in (
        ["bundle", "build", tmp_path / "r.yml", "-o", bundle, "--version", "1", "--lookup", tables],
        ["bundle", "sign", bundle, "--key", tmp_path / "key.pem", "--fleet", "f"],
        ["bundle", "verify", bundle, "--trusted-key", author.public],
    ):
        done = CliRunner().invoke(main, list(map(str, arguments)))
        assert done.exit_code == 0, done.output
    events = tmp_path / "events.json"
    events.write_text('{"src": "a.b.evil0.example"}\n{"src": "evil20000.example"}\n{"src": "EVIL3.example"}\n')
    done = CliRunner().invoke(
        main, ["scan", "--rules", str(bundle), "--trusted-key", author.public, "--format", "json", str(events)]
    )
    assert [orjson.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 3]
