"""Long lists of values are lookups: they mean what their values mean spelled out, wherever rules run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from tests import reference
from tests.bundle.conftest import Author
from tests.deep import DEEP
from tests.differences import walk
from vedette import compile_rules
from vedette.cli.main import main
from vedette.decode.decoder import record
from vedette.engine.artifact import Artifact
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.lookup.sets import made
from vedette.model.event import Chunk
from vedette.plan.ir import Op
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.rules.ruleset import RuleSet
from vedette.rules.sigma.frontend import Sigma
from vedette.rules.sigma.lists import SPELLED
from vedette.rules.sigma.pipelines import Pipelines

HEAD = "title: t\nid: 00000000-0000-4000-8000-000000000001\nlogsource: {product: test}\nlevel: high\n"
WORDS = (
    "a",
    "A",
    "\u00e9",
    "\u00c9",
    "s",
    "\u017f",
    "K",
    "\u212a",
    "1",
    "1.0",
    ".",
    " ",
    "*",
    "?",
    "\\*",
    "\\",
    "%",
    "srv",
)
ADDRESSES = (
    *(
        "10.1.2.3",
        "10.1.2.0/24",
        "10.0.0.0/8",
        "::1",
        "fe80::/10",
        "fe80::1",
        "::ffff:10.1.2.3",
        "0.0.0.0/0",
        "1.2.3.4/32",
    ),
    *(" 10.1.2.3 ", "fe80::1%eth0", "10.1.2", "x", "::ffff:10.9.9.9", "10.01.2.3", "::/0", "fe80:0::1"),
)


def rule(detection: str) -> str:
    return f"{HEAD}detection: {{s: {{{detection}}}, condition: s}}\n"


def plan_of(item: str, values: list[str], spelled: int) -> Plan:
    rules = RuleSet()
    given = Pipelines(lookups={"x": tuple(values)}, spelled=dict.fromkeys(SPELLED, spelled))
    rules.front_ends[build.SIGMA] = Sigma(rules, given)
    build.add(rules, rule(item))
    return build.from_rules(rules)


def matched(plan: Plan, lines: list[bytes], *, kernel: bool) -> set[int]:
    engine = Engine(plan, route=False, cache=Cache(0), kernel=kernel)
    chunk = Chunk("in", "json", 0, b"".join(line + b"\n" for line in lines))
    places = {start: number for number, (start, _) in enumerate(chunk.spans())}
    for _ in range(3):  # the kernel learns
        found = {places[match.start] for match in engine.evaluate(chunk)}
    return found


@walk("item", ["f|expand: '%x%'", "f|cased|expand: '%x%'", "f|cidr|expand: '%x%'", "f|contains|expand: '%x%'"])
@walk("seed", range(DEEP or 20))
def test_a_lookup_means_what_its_values_mean(item: str, seed: int) -> None:
    """Random lists and random values of events, case, wildcards, escapes and numbers among them: spelled out, as a
    lookup with the kernel and without, the same events; and those that the naive evaluator finds."""
    random = Random(seed)

    def text() -> str:
        return "".join(random.choice(WORDS) for _ in range(random.randint(1, 3)))

    if "cidr" in item:
        values = random.sample(ADDRESSES[:9], random.randint(1, 5))
        asked: list[Any] = [*ADDRESSES, random.choice(values), 1, None]
    else:
        values = [one for one in {text() for _ in range(random.randint(1, 12))} if one.strip()] or ["a"]
        asked = [text() for _ in range(20)] + [random.choice(values).swapcase() for _ in range(10)]
        asked += [one.replace("\\", "") for one in values] + [1, 1.0, True, None, "", [text(), values[0]], {"g": "a"}]
    lines = [orjson.dumps({"f": one, "n": number}) for number, one in enumerate(asked)]
    plain, table = plan_of(item, values, 10**9), plan_of(item, values, 0)
    assert not plain.refused
    assert not table.refused
    assert not any(p.op is Op.LOOKUP for p in plain.predicates)
    whole = "contains" not in item and ("cidr" in item or any(not {*"*?\\"} & {*one} for one in values))
    assert any(p.op is Op.LOOKUP for p in table.predicates) >= whole
    expected = {n for n, line in enumerate(lines) if reference.matches(plain, record(line, "json"))}
    for plan in (plain, table):
        for kernel in (True, False):
            assert matched(plan, lines, kernel=kernel) == expected, (values, asked)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lookups = tmp_path / "lookups"
    lookups.mkdir()
    (lookups / "staff list.txt").write_text("".join(f"User{n}\n" for n in range(50_000)) + "svc-*\n")
    (lookups / "nets.csv").write_text("value\n" + "".join(f"10.{n}.0.0/16\n" for n in range(200)))
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/r.yml").write_text(rule("user|expand: '%staff list%', src|cidr|expand: '%nets%'"))
    (tmp_path / "rules/r.test.yml").write_text(
        "- match: {event: {user: uSER49999, src: 10.199.1.1}}\n- match: {event: {user: SVC-1, src: 10.0.0.0}}\n"
        "- no_match: {event: {user: user50000, src: 10.0.0.0}}\n- no_match: {event: {user: user1, src: 10.200.0.0}}\n"
    )
    return tmp_path


def run(*arguments: object) -> str:
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_long_list_is_one_test(folder: Path) -> None:
    """And one for its values with wildcards. A list that has changed makes another rule of the same that asks it."""
    plan = compile_rules(folder / "rules", lookups=[folder / "lookups"])
    assert not plan.refused
    assert sorted(p.op for p in plan.predicates) == [Op.LOOKUP, Op.LOOKUP, Op.PREFIX]
    assert [name.rpartition("-")[0] for name, _ in sorted(plan.asked)] == ["nets", "staff_list"]
    digest = plan.rules[0].digest
    assert compile_rules(folder / "rules", lookups=[folder / "lookups"]).rules[0].digest == digest
    with (folder / "lookups/nets.csv").open("a") as file:
        file.write("10.200.0.0/16\n")
    assert compile_rules(folder / "rules", lookups=[folder / "lookups"]).rules[0].digest != digest


def test_where_a_long_list_is_asked(folder: Path) -> None:
    """``rules test``, ``lint``, ``list`` and ``explain``, ``scan`` from rule files and from what it kept of them, and
    bundles."""
    rules, lookups = folder / "rules", folder / "lookups"
    run("rules", "test", "--lookup", lookups, rules)
    run("rules", "lint", "--lookup", lookups, rules)
    run("rules", "list", "--lookup", lookups, rules)
    shown = run("rules", "explain", "--lookup", lookups, rules / "r.yml")
    assert "user is in value of the lookup staff_list-" in shown
    assert len(shown) < 2_000
    events = folder / "events.json"
    events.write_text('{"user": "USER7", "src": "10.1.1.1"}\n{"user": "nobody", "src": "10.1.1.1"}\n')
    for _ in range(2):
        found = run("scan", "--rules", rules, "--lookup", lookups, "--format", "json", events)
        assert [orjson.loads(line)["line"] for line in found.splitlines()] == [1]
    bundle, key = folder / "b.vbundle", folder / "key.pem"
    author = Author(key)
    run("bundle", "build", rules, "-o", bundle, "--version", "1", "--lookup", lookups)
    run("bundle", "sign", bundle, "--key", key, "--fleet", "f")
    run("bundle", "verify", bundle, "--trusted-key", author.public)
    found = run("scan", "--rules", bundle, "--trusted-key", author.public, "--format", "json", events)
    assert [orjson.loads(line)["line"] for line in found.splitlines()] == [1]


def test_what_is_compiled_carries_them(folder: Path) -> None:
    """What the compiler leaves for the agent runs without the list's file, also with literals chosen by its traffic."""
    detection = "user|expand: '%staff list%', cmd|contains|all: ['abcdefghijkl', 'xyz']"
    (folder / "rules/r.yml").write_text(rule(detection))
    given, out = folder / "given", folder / "out"
    given.write_bytes(Artifact.of(compile_rules(folder / "rules", lookups=[folder / "lookups"])).to_bytes())
    arguments = [sys.executable, "-m", "vedette.rules.retune", str(given), str(out)]
    subprocess.run(arguments, input=b"abcdefghijkl\n" * 1000, check=True, capture_output=True)
    for path in (given, out):
        artifact = Artifact.from_bytes(path.read_bytes())
        engine = artifact.engine(made(artifact.lookups), route=False)
        lines = [orjson.dumps({"user": user, "cmd": "abcdefghijkl xyz"}) for user in ("user7", "user50000")]
        found = engine.evaluate(Chunk("in", "json", 0, b"".join(line + b"\n" for line in lines)))
        assert [match.start for match in found] == [0]


def test_a_value_that_is_no_network(folder: Path) -> None:
    """It refuses the rule, as where networks are spelled out."""
    (folder / "lookups/nets.csv").write_text("".join(f"10.{n}.0.0/16\n" for n in range(200)) + "10.0.0.1/8\n")
    plan = compile_rules(folder / "rules", lookups=[folder / "lookups"])
    assert "10.0.0.1/8 has host bits set" in plan.refused[0].reason
