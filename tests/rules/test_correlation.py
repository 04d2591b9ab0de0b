"""Correlation documents: what they come to, and what is refused with which reason and where."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.differences import walk
from tests.differential.material import SHARED
from vedette.api import compile_rules
from vedette.plan.aggregates import Kind
from vedette.plan.grid import Grid
from vedette.plan.ir import Suppress
from vedette.plan.plan import Plan
from vedette.plan.relation import MAX_CHAIN, Clause, Correlation, Slot, meaning_digest
from vedette.rules import build

A = """
title: A
id: 11111111-1111-4111-8111-111111111111
name: rule_a
logsource: {product: x}
detection: {selection: {f: aaaa}, condition: selection}
---
title: B
name: rule_b
logsource: {product: x}
detection: {selection: {f: bbbb}, condition: selection}
---
"""
A_ID = "11111111-1111-4111-8111-111111111111"


def plan(body: str, head: str = "title: C", more: str = "") -> Plan:
    """The plan of rules A and B and one correlation; ``body``: YAML of its inside."""
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    return build.from_text(f"{A}{head}\ncorrelation:\n{lines}\n{more}")


def compiled(body: str, **kwargs: str) -> Correlation:
    made = plan(body, **kwargs)
    assert made.refused == ()
    (one,) = made.correlations
    assert Plan.from_bytes(made.to_bytes()) == made
    return one


def refused(body: str, **kwargs: str) -> tuple[str, int]:
    """Reason, and line counted from the correlation's own first."""
    made = plan(body, **kwargs)
    assert made.correlations == ()
    (one,) = made.refused
    return one.reason, one.line - A.count("\n")


def test_event_count() -> None:
    """Kind, rules by name and id, group, span and condition, with defaults for the rest."""
    made = compiled("type: event_count\nrules: [rule_a]\ngroup-by: [u, v]\ntimespan: 90m\ncondition: {gte: 100}")
    assert made.kind is Kind.EVENT_COUNT
    assert made.slots == (Slot(A_ID, False),)
    assert made.group_by == ("u", "v")
    assert made.span == 5_400_000_000
    assert made.bounds == (("gte", 100),)
    assert (made.level, made.generate, made.prompt) == ("medium", False, True)
    by_id = compiled(
        f"type: event_count\nrules: [{A_ID.upper()}]\ngroup-by: [u, v]\ntimespan: 5400s\ncondition: {{gte: 100}}"
    )
    assert by_id.digest == made.digest


def test_range() -> None:
    """Two operators are a range, and can only be decided when no further event can come."""
    made = compiled("type: event_count\nrules: [rule_a]\ntimespan: 1h\ncondition: {gt: 100, lte: 200}")
    assert made.bounds == (("gt", 100), ("lte", 200))
    assert not made.prompt
    assert [made.holds(n) for n in (100, 101, 200, 201)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        ("type: temporal\nrules: [rule_a, rule_b]\ntimespan: 5m", (("gte", 2),)),
        ("type: temporal_ordered\nrules: [rule_a, rule_b, rule_a]\ntimespan: 5m", (("gte", 3),)),
        ("type: temporal\nrules: [rule_a, rule_b]\ntimespan: 5m\ncondition: {gte: 1}", (("gte", 1),)),
    ],
)
def test_temporal(body: str, bounds: Any) -> None:
    """Without a condition every rule must match."""
    assert compiled(body).bounds == bounds


def test_values() -> None:
    """Field, several fields, percentile."""
    one = compiled("type: value_count\nrules: [rule_a]\ntimespan: 1d\ncondition: {gte: 3, field: [User, Domain]}")
    assert one.field == ("User", "Domain")
    one = compiled("type: value_sum\nrules: [rule_a]\ntimespan: 1d\ncondition: {gt: 1.5, field: n}")
    assert (one.bounds, one.prompt) == ((("gt", 1.5),), True)
    one = compiled(
        "type: value_percentile\nrules: [rule_a]\ntimespan: 1d\ncondition: {gt: 1, field: n, percentile: 95}"
    )
    assert (one.percentile, one.prompt) == (95.0, False)
    one = compiled("type: value_median\nrules: [rule_a]\ntimespan: 1d\ncondition: {gt: 1, field: n}")
    assert one.percentile == 50.0


def test_aliases() -> None:
    """An alias is another field in each rule; a rule that it does not name has the field itself."""
    body = """
type: temporal
rules: [rule_a, rule_b]
group-by: [ip, user]
timespan: 10s
aliases:
  ip: {rule_a: source.ip, rule_b: destination.ip}
  user: {rule_b: account}
"""
    one = compiled(body)
    assert [[slot.field(name) for name in one.group_by] for slot in one.slots] == [
        ["source.ip", "user"],
        ["destination.ip", "account"],
    ]
    assert one.digest != compiled(body.replace("account", "other")).digest


@pytest.mark.parametrize(
    ("condition", "clauses"),
    [
        ("rule_a and rule_b", (Clause((0, 1)),)),
        ("rule_a or rule_b", (Clause((0,)), Clause((1,)))),
        ("rule_a and not rule_b", (Clause((0,), (1,)),)),
        ("not (not rule_a or rule_b)", (Clause((0,), (1,)),)),
    ],
)
def test_extended_conditions(condition: str, clauses: Any) -> None:
    """A condition that names rules, with its rules listed or not; with 'not' its windows begin at a match."""
    one = compiled(f"type: temporal\ncondition: {condition}\ntimespan: 5m")
    assert one.clauses == clauses
    assert one.forward == any(clause.forbidden for clause in clauses)
    listed = compiled(f"type: temporal\nrules: [rule_a, rule_b]\ncondition: {condition}\ntimespan: 5m")
    assert listed.clauses == clauses


def test_windows() -> None:
    """Windows slide unless the rule says otherwise, which it may also say; each way means another thing."""
    body = "type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {gte: 3}\n"
    plain, tumbling = compiled(body), compiled(body + "window: tumbling")
    session, shorter = (compiled(body + f"window: session\ngap: {gap}") for gap in ("60s", "30s"))
    assert compiled(body + "window: sliding") == plain
    assert plain.grid is None
    assert tumbling.grid == Grid("TUMBLE", 300_000_000)
    assert (session.grid, session.span) == (Grid("SESSION", 60_000_000), 300_000_000)
    assert len({one.digest for one in (plain, tumbling, session, shorter)}) == 4
    assert compiled(body + "window: session\ngap: 1m").digest == session.digest


def test_a_digest_from_before_there_were_windows() -> None:
    """So that state of then goes on."""
    slot = Slot("r", False)
    one = Correlation("c", "t", "low", (), Kind.EVENT_COUNT, (slot,), ("g",), 60_000_000, (("gte", 3),))
    assert meaning_digest(one, ["d"]) == "af48cfd4f12353b80d53c71f9d6c87c8"


@walk(
    ("body", "reason", "line"),
    [
        ("type: temporal\nrules: [rule_a, rule_x]\ntimespan: 5m", "it refers to 'rule_x', which is not among", 4),
        ("type: nonsense\nrules: [rule_a]\ntimespan: 5m", "'nonsense' is no valid Sigma correlation type", 3),
        ("type: event_count\nrules: [rule_a]\ntimespan: 5\ncondition: {gte: 1}", "Timespan '5' is invalid", 5),
        ("type: event_count\nrules: [rule_a]\ntimespan: 9999d\ncondition: {gte: 1}", "longer than 366 days", 5),
        ("type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {lt: 1}", "can never be true", 6),
        ("type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {gt: 5, lt: 6}", "can never be true", 6),
        ("type: temporal\nrules: [rule_a, rule_b]\ntimespan: 5m\ncondition: {gte: 3}", "at most 2 rules", 6),
        ("type: value_sum\nrules: [rule_a]\ntimespan: 5m\ncondition: {gt: 5, lt: 5, field: n}", "never be true", 6),
        ("type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {gte: true}", "gte expects a number", 6),
        ("type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {gte: -1}", "a whole number from 0, not -1", 6),
        ("type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {lt: 5.5}", "a whole number from 0, not 5.5", 6),
        ("type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {field: x}", "has no comparison", 6),
        (
            "type: event_count\nrules: [rule_a]\ntimespan: 5m\ncondition: {gte: 1, field: x}",
            "'field' belongs to",
            6,
        ),
        (
            "type: value_percentile\nrules: [rule_a]\ntimespan: 1d\ncondition: {lte: 1, field: i}",
            "needs 'perc",
            6,
        ),
        ("type: event_count\nrules: [rule_a, rule_a]\ntimespan: 5m\ncondition: {gte: 1}", "names a rule twice", 4),
        ("type: temporal\ncondition: not rule_a\ntimespan: 5m", "none of its rules matches", 4),
        ("type: temporal\ncondition: rule_a and not rule_a\ntimespan: 5m", "can never be true", 4),
        ("type: temporal\nrules: [rule_a]\ntimespan: 5m\nwindow: hopping", "is sliding, tumbling or session", 6),
        ("type: temporal\nrules: [rule_a]\ntimespan: 5m\nwindow: 5m", "its length goes into 'timespan'", 6),
        ("type: temporal\nrules: [rule_a]\ntimespan: 5m\nwindow: session", "a session needs 'gap'", 6),
        ("type: temporal\nrules: [rule_a]\ntimespan: 5m\ngap: 1m", "'gap' is for 'window: session' only", 6),
        ("type: temporal\nrules: [rule_a]\ntimespan: 5m\nwindow: session\ngap: 5", "'gap' is a time such as", 7),
        ("type: temporal\nrules: [rule_a]\ntimespan: 5m\nwindow: session\ngap: 6m", "is longer than 'timespan'", 7),
        ("type: temporal_extended\ncondition: rule_a and rule_b\ntimespan: 5m", "is written as 'type: temporal'", 3),
        ("type: temporal_ordered_extended\ncondition: rule_a\ntimespan: 5m", "'type: temporal_ordered' with", 3),
        (
            "type: temporal\nrules: [rule_a]\ntimespan: 5m\naliases: {ip: {rule_b: x}}",
            "the alias 'ip' is for 'rule_b', which is not one of its rules",
            6,
        ),
    ],
)
def test_refusals(body: str, reason: str, line: int) -> None:
    """What cannot run is refused by name, at the line of the part that is at fault."""
    said, at = refused(body)
    assert reason in said
    assert at == line


def test_chain_and_cycle() -> None:
    """A correlation of a correlation; one that comes back to itself is refused, and so is what is above it."""
    more = """---
title: D
name: d
correlation: {type: temporal, rules: [c, rule_b], timespan: 1h}
---
title: E
name: e
correlation: {type: temporal, rules: [f, rule_b], timespan: 1h}
---
title: F
name: f
correlation: {type: temporal, rules: [e, rule_b], timespan: 1h}
"""
    body = "type: event_count\nrules: [rule_a]\ntimespan: 1m\ncondition: {gte: 2}"
    made = plan(body, head="title: C\nname: c", more=more)
    assert [(c.title, c.slots[0].correlation) for c in made.correlations] == [("C", False), ("D", True)]
    assert {r.title for r in made.refused} == {"E", "F"}
    assert all("cycle" in r.reason for r in made.refused)
    assert made.silent == {A_ID, *(c.id for c in made.correlations if c.title == "C"), made.rules[1].id}
    changed = plan(body.replace("gte: 2", "gte: 3"), head="title: C\nname: c", more=more)
    assert changed.correlations[1].digest != made.correlations[1].digest


LONGER = MAX_CHAIN + 4


@pytest.mark.parametrize(
    "order",
    [
        [*range(LONGER)],
        [*reversed(range(LONGER))],
        [*range(MAX_CHAIN - 1, LONGER), *range(MAX_CHAIN - 1)],
        *(random.Random(seed).sample(range(LONGER), LONGER) for seed in range(8)),
    ],
)
def test_a_chain_has_an_end(order: list[int]) -> None:
    """Correlations of correlations run up to a bound, and what stands above is refused: the same ones in any order."""

    def chain(numbers: list[int]) -> Plan:
        of = "{{type: event_count, rules: [{}], timespan: 1m, condition: {{gte: 2}}}}"
        text = f"title: C{{}}\nname: c{{}}\ncorrelation: {of}\n"
        texts = [text.format(n, n, f"c{n - 1}" if n else "rule_a") for n in numbers]
        return build.from_text(A + "---\n".join(texts))

    made = chain(order)
    assert {correlation.title for correlation in made.correlations} == {f"C{n}" for n in range(MAX_CHAIN)}
    assert {refusal.title for refusal in made.refused} == {f"C{n}" for n in range(MAX_CHAIN, LONGER)}
    assert all(f"chained deeper than {MAX_CHAIN}" in refusal.reason for refusal in made.refused)
    assert chain([n for n in order if n < MAX_CHAIN]).refused == ()


def test_generate() -> None:
    """Rules that a correlation refers to are silent, unless one says 'generate'."""
    body = "type: temporal\nrules: [rule_a, rule_b]\ntimespan: 5m"
    assert len(plan(body).silent) == 2
    assert plan(body + "\ngenerate: true").silent == frozenset()
    assert plan(body, more="generate: true").silent == frozenset()


def test_across_files(tmp_path: Path) -> None:
    """Rules of other files are found, in whatever order; of the same name, the one in the same file goes before."""
    rule = A.split("---")[0].replace(f"id: {A_ID}\n", "")
    correlation = (
        "title: {}\ncorrelation: {{type: event_count, rules: [rule_a], timespan: 1m, condition: {{gte: 2}}}}\n"
    )
    (tmp_path / "1.yml").write_text(correlation.format("first"))
    (tmp_path / "2.yml").write_text(rule)
    assert [c.slots[0].rule_id for c in build.build([tmp_path]).correlations] == [build.build([tmp_path]).rules[0].id]
    (tmp_path / "3.yml").write_text(rule.replace("title: A", "title: A3") + "---\n" + correlation.format("third"))
    made = build.build([tmp_path])
    assert [c.title for c in made.correlations] == ["third"]
    assert made.correlations[0].slots[0].rule_id == made.rules[1].id
    (ambiguous,) = made.refused
    assert "is the name of several rules" in ambiguous.reason


def test_of_a_rule_that_is_refused() -> None:
    """It is refused with that rule's reason."""
    text = A.replace("{f: aaaa}", "{f|nonsense: aaaa}") + (
        f"title: C\ncorrelation: {{type: event_count, rules: [{A_ID}], timespan: 1m, condition: {{gte: 2}}}}\n"
    )
    made = build.from_text(text)
    assert made.correlations == ()
    assert any("is refused: Unknown modifier" in r.reason for r in made.refused)


@pytest.mark.parametrize("broken", ["{f|nonsense: aaaa}", "{f: !x aaaa}"])
def test_of_a_refused_rule_with_the_name_of_another(broken: str, tmp_path: Path) -> None:
    """The rule of another file with that name does not take its place, in its own file nor elsewhere."""
    rule = A.split("---")[0]
    correlation = (
        "title: {}\ncorrelation: {{type: event_count, rules: [rule_a], timespan: 1m, condition: {{gte: 2}}}}\n"
    )
    refused = rule.replace("{f: aaaa}", broken).replace(f"id: {A_ID}\n", "")
    (tmp_path / "1.yml").write_text(f"{refused}---\n{correlation.format('C')}")
    (tmp_path / "2.yml").write_text(rule)
    (tmp_path / "3.yml").write_text(correlation.format("D"))
    made = build.build([tmp_path])
    assert len(made.rules) == 1
    assert made.correlations == ()
    reasons = {one.title: one.reason for one in made.refused}
    assert "which is refused: " in reasons["C"]
    assert "is the name of several rules" in reasons["D"]


def test_of_a_refused_correlation_with_the_name_of_a_rule(tmp_path: Path) -> None:
    """As of a rule."""
    (tmp_path / "1.yml").write_text(
        "title: C\nname: rule_a\ncorrelation: {type: nonsense, rules: [rule_a], timespan: 1m}\n---\n"
        "title: D\ncorrelation: {type: event_count, rules: [rule_a], timespan: 1m, condition: {gte: 2}}\n"
    )
    (tmp_path / "2.yml").write_text(A.split("---")[0])
    made = build.build([tmp_path])
    assert made.correlations == ()
    assert {one.title for one in made.refused} == {"C", "D"}


def test_a_second_copy_of_a_rule_is_in_nobody_s_way(tmp_path: Path) -> None:
    """A correlation goes on with the first, whose id it is."""
    rule = A.split("---")[0]
    for name in ("1.yml", "2.yml"):
        (tmp_path / name).write_text(rule)
    (tmp_path / "3.yml").write_text(
        "title: C\ncorrelation: {type: event_count, rules: [rule_a], timespan: 1m, condition: {gte: 2}}\n"
    )
    assert len(build.build([tmp_path]).correlations) == 1


def test_finish_again() -> None:
    """More files may be added after a first plan: what was lacking is then there."""
    rules = build.read(
        "title: C\ncorrelation: {type: event_count, rules: [rule_a], timespan: 1m, condition: {gte: 2}}\n"
    )
    assert len(build.from_rules(rules).refused) == 1
    build.add(rules, A)
    made = build.from_rules(rules)
    assert (len(made.correlations), made.refused) == (1, ())


def test_suppress() -> None:
    """A rule and a correlation may say how their alerts are folded; what cannot be read is refused."""
    body = "type: temporal\nrules: [rule_a]\ntimespan: 5m"
    assert compiled(body, more="suppress: {by: [src_ip, user], for: 10m}").suppress == Suppress(("src_ip", "user"), 600)
    made = build.from_text(A.replace("title: A", "suppress: {for: 1h}\ntitle: A", 1))
    assert made.rules[0].suppress == Suppress((), 3600.0)
    assert Plan.from_bytes(made.to_bytes()) == made
    for wrong in ("10m", "{by: [a]}", "{for: 10}", "{for: 0s}", "{by: 1, for: 1m}", "{for: 1m, when: 2}"):
        assert "suppress expects" in refused(body, more=f"suppress: {wrong}")[0]


def test_suppress_in_a_pipeline(tmp_path: Path) -> None:
    """A pipeline sets the attribute for the rules that its conditions name."""
    (tmp_path / "p.yml").write_text(
        "name: p\ntransformations:\n- id: s\n  type: set_custom_attribute\n  attribute: suppress\n"
        "  value: {by: [u], for: 10m}\n  rule_conditions: [{type: is_sigma_correlation_rule}]\n"
    )
    (tmp_path / "r.yml").write_text(f"{A}title: C\ncorrelation: {{type: temporal, rules: [rule_a], timespan: 5m}}\n")
    made = compile_rules(tmp_path / "r.yml", pipelines=[tmp_path / "p.yml"])
    assert [rule.suppress for rule in made.rules] == [None, None]
    assert [c.suppress for c in made.correlations] == [Suppress(("u",), 600)]


def test_digest_covers_the_meaning() -> None:
    """Title and level do not change the digest; rules, fields and numbers do."""
    body = "type: value_count\nrules: [rule_a]\ngroup-by: [u]\ntimespan: 1d\ncondition: {gte: 3, field: f}"
    same = compiled(body, head="title: Other\nid: 22222222-2222-4222-8222-222222222222", more="level: high")
    assert same.digest == compiled(body).digest
    changes = [("[rule_a]", "[rule_b]"), ("[u]", "[w]"), ("1d", "2d"), ("gte: 3", "gte: 4"), ("field: f", "field: g")]
    assert len({compiled(body).digest, *(compiled(body.replace(*change)).digest for change in changes)}) == 6


def test_a_damaged_plan_is_refused() -> None:
    """Bytes whose correlations refer to nothing do not load."""
    made = plan("type: temporal\nrules: [rule_a, rule_b]\ntimespan: 5m")
    broken = Plan(made.predicates, made.rules[1:], made.literals[1:], (), made.correlations)
    with pytest.raises(ValueError, match="do not fit together"):
        Plan.from_bytes(broken.to_bytes())


def test_examples_of_the_specification() -> None:
    """The correlation rules of the specification's own tests run once the rules that they name are there, but for the
    percentile that does not say which."""
    folder = SHARED / "data" / "sigma-specification" / "tests" / "schema" / "correlation"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    found = {}
    for path in sorted(folder.glob("*.yml")):
        rules = build.read(path.read_bytes(), str(path))
        body = yaml.safe_load(path.read_text("utf-8"))["correlation"]
        for name in body["rules"]:
            by = f"id: {name}" if name.count("-") == 4 else f"name: {name}"
            build.add(rules, A.split("---")[0].replace(f"id: {A_ID}\nname: rule_a", by).replace("aaaa", name))
        made = build.from_rules(rules)
        found[path.stem] = made.refused[0].reason if made.refused else made.correlations[0].kind.value
    assert found.pop("value_percentile").startswith("value_percentile needs 'percentile'")
    assert found.pop("event_count_ecs") == "event_count"
    assert found == {name: name for name in found}
    assert len(found) == 6
