"""Processing pipelines map rules before they are compiled; lookups give placeholders their values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differences import walk
from vedette.api import compile_rules
from vedette.decode.decoder import from_mapping
from vedette.engine.match import Engine
from vedette.plan.ir import Op, Predicate
from vedette.rules.sigma import pipelines

SHIPPED = Path(__file__).parents[2] / "rules"
HEAD = "title: t\nlogsource: {product: windows, category: process_creation}\ndetection:\n"


def rule(item: str) -> str:
    return f"{HEAD}  s:\n    {item}\n  condition: s\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def predicates(item: str, folder: Path) -> set[Predicate]:
    plan = compile_rules(text=rule(item), lookups=[folder])
    assert not plan.refused
    return set(plan.predicates)


def test_fields_and_log_sources_are_mapped(tmp_path: Path) -> None:
    """By priority, whatever the order on the command line; added conditions are part of the rule."""
    second = write(tmp_path, "a.yml", "priority: 20\ntransformations: [{type: field_name_mapping, mapping: {E: code}}]")
    first = write(
        tmp_path,
        "b.yml",
        "priority: 10\ntransformations:\n- {type: add_condition, conditions: {E: 1}}\n"
        "- {type: change_logsource, product: windows, service: sysmon}\n",
    )
    plan = compile_rules(text=rule("Image: x") + "fields: [E]\n", pipelines=[second, first])
    assert {(p.field, p.value) for p in plan.predicates} == {("Image", "x"), ("code", 1)}
    assert plan.rules[0].logsource == ("windows", "", "sysmon")
    assert plan.rules[0].fields == ("code",)
    assert compile_rules(text=rule("Image: x"), pipelines=[tmp_path]).digest


def test_a_pipeline_may_refuse_a_rule(tmp_path: Path) -> None:
    """The reason it gives is the rule's; others run."""
    failing = (
        "transformations: [{type: rule_failure, message: not for us, rule_conditions: [{type: logsource, product: x}]}]"
    )
    path = write(tmp_path, "p.yml", failing)
    text = rule("a: b") + "---\n" + rule("a: b").replace("windows", "x")
    plan = compile_rules(text=text, pipelines=[path])
    assert len(plan.rules) == 1
    assert [refusal.reason for refusal in plan.refused] == ["not for us"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("transformations: [{type: bogus}]", "bogus"),
        ("- a\n", "expects a mapping"),
        ("a: [", "p.yml:2:1"),
        ("transformations: 5", "not a processing pipeline"),
        ("postprocessing: [{type: embed, prefix: x}]", "'postprocessing' works on the text of a query"),
        ("bogus: 5", "bogus"),
    ],
)
def test_pipelines_that_are_none(text: str, says: str, tmp_path: Path) -> None:
    """File and reason are told."""
    path = write(tmp_path, "p.yml", text)
    with pytest.raises(ValueError, match=r"p\.yml") as error:
        pipelines.load([path])
    assert says in str(error.value)


def test_pipelines_reach_nothing_outside(tmp_path: Path) -> None:
    """A pipeline that would read a file or run a command does neither: its rules are refused."""
    marker = tmp_path / "marker"
    for source in (
        f"{{type: file_placeholders, path: {marker}}}",
        f"{{type: command_placeholders, command: touch {marker}}}",
    ):
        path = write(tmp_path, "p.yml", f"transformations: [{source}]")
        try:
            plan = compile_rules(text=rule("a|expand: '%x%'"), pipelines=[path])
        except ValueError:
            continue
        assert not plan.rules
    assert not marker.exists()


def test_placeholders_from_a_pipeline(tmp_path: Path) -> None:
    """``vars`` of a pipeline give values; they go before a lookup's."""
    path = write(tmp_path, "p.yml", "vars: {x: [a, b*]}\ntransformations: [{type: value_placeholders}]")
    lookup = write(tmp_path, "x.txt", "c\n")
    plan = compile_rules(text=rule("f|expand: '%x%'"), pipelines=[path], lookups=[lookup])
    assert set(plan.predicates) == {Predicate("f", Op.EXACT, "a"), Predicate("f", Op.PREFIX, "b")}


def test_placeholders_from_lookups(tmp_path: Path) -> None:
    """Values are Sigma patterns; several placeholders give all their combinations; text around them stays."""
    write(tmp_path, "x.txt", "# names\nOne\n\n srv* \nOne\n")
    write(tmp_path, "y.csv", "value,comment\nA,first\n'B',second\n")
    write(tmp_path, "Z.csv", '"q,r"\n')
    assert predicates("f|expand: '%x%'", tmp_path) == {
        Predicate("f", Op.EXACT, "one"),
        Predicate("f", Op.PREFIX, "srv"),
    }
    assert predicates("f|expand: 'p%Z%s'", tmp_path) == {Predicate("f", Op.EXACT, "pq,rs")}
    assert predicates("f|expand|cased: '%x%'", tmp_path) == {
        Predicate("f", Op.EXACT, "One", True),
        Predicate("f", Op.PREFIX, "srv", True),
    }
    assert len(predicates("f|contains|expand: '%x%-%y%'", tmp_path)) == 4
    assert predicates("f|re|expand: '^%x%$'", tmp_path) == {
        Predicate("f", Op.REGEX, "^One$", True),
        Predicate("f", Op.REGEX, "^srv.*$", True),
    }
    assert predicates("'|expand': '%Z%'", tmp_path) == {Predicate("", Op.CONTAINS, "q,r")}


def test_a_placeholder_is_one_value_under_all(tmp_path: Path) -> None:
    """``all`` asks for each value of the rule, not for each value of a placeholder."""
    write(tmp_path, "x.txt", "a\nb\n")
    engine = Engine(compile_rules(text=rule("f|contains|all|expand: ['%x%', c]"), lookups=[tmp_path]), route=False)
    assert [engine.true(from_mapping({"f": text})) for text in ("ac", "bc", "ab", "c")] == [[0], [0], [], []]


@pytest.mark.parametrize(
    ("value", "predicate"),
    [
        (r"\%plain%x%", Predicate("f", Op.EXACT, "%plainv")),
        (r"\%x\%", Predicate("f", Op.EXACT, "%x%")),
        ("100%", Predicate("f", Op.EXACT, "100%")),
        ("%%", Predicate("f", Op.EXACT, "%%")),
        ("%x%%x%", Predicate("f", Op.EXACT, "vv")),
    ],
)
def test_escaped_percent_signs(value: str, predicate: Predicate, tmp_path: Path) -> None:
    """The specification's ``\\%plain%name%`` has one placeholder; lone signs are plain."""
    write(tmp_path, "x.txt", "v\n")
    assert predicates(f"f|expand: '{value}'", tmp_path) == {predicate}


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("f|expand: '%nobody%'", "%nobody% has no value"),
        ("f|expand|base64: '%x%'", "%x% has no value"),
        ("f|expand|fieldref: '%x%'", "%x% has no value"),
        ("f|contains|expand: '%x%%x%%x%%x%%x%'", "more than 10,000 values"),
    ],
)
def test_placeholders_that_have_no_value(item: str, says: str, tmp_path: Path) -> None:
    """The rule is refused, as the specification asks."""
    write(tmp_path, "x.txt", "\n".join(map(str, range(10))))
    plan = compile_rules(text=rule(item), lookups=[tmp_path])
    assert not plan.rules
    assert says in plan.refused[0].reason


def test_lookups_that_are_none(tmp_path: Path) -> None:
    """Empty, too long, twice, not UTF-8: each is listed by its file and refuses the rules that ask for it alone."""
    lookups = tmp_path / "lookups"
    lookups.mkdir()
    (lookups / "latin.txt").write_bytes(b"\xff\n")
    write(lookups, "empty.txt", "# nothing\n")
    write(lookups, "long.txt", "x" * 9_000_000)
    write(lookups, "x.txt", "a")
    write(lookups, "x.csv", "a")
    write(lookups, "good.txt", "a")
    wrong = {
        "latin": "UTF-8",
        "empty": "lookup is empty",
        "long": "larger than 8 MiB",
        "x": "another lookup",
    }
    rules = tmp_path / "rules"
    rules.mkdir()
    for name in (*wrong, "good"):
        write(rules, f"{name}.yml", rule(f"f|expand: '%{name}%'").replace("title: t", f"title: {name}"))
    plan = compile_rules(rules, lookups=[lookups])
    assert [made.title for made in plan.rules] == ["good"]
    for name, says in wrong.items():
        by_file = [one for one in plan.refused if Path(one.path).parent == lookups and Path(one.path).stem == name]
        assert [says in one.reason for one in by_file] == [True], name
        (refused,) = [one for one in plan.refused if one.path == str(rules / f"{name}.yml")]
        assert f"%{name}% has no value: {lookups}/{name}." in refused.reason
    with pytest.raises(FileNotFoundError):
        pipelines.load([tmp_path / "nowhere.yml"])


@pytest.mark.parametrize("order", ["cidr|expand", "expand|cidr"])
def test_networks_of_a_placeholder(tmp_path: Path, order: str) -> None:
    """``cidr`` and ``expand`` work in either order, with a lookup or a pipeline; what is no network is named."""
    write(tmp_path, "nets.txt", "10.0.0.0/8\nfe80::/10\n192.0.2.1\n")
    write(tmp_path, "hosts.txt", "web*\n")
    wanted = {Predicate("f", Op.CIDR, net) for net in ("10.0.0.0/8", "fe80::/10", "192.0.2.1/32")}
    assert predicates(f"f|{order}: '%nets%'", tmp_path) == wanted
    assert predicates(f"f|{order}|all: ['%nets%', 10.0.0.0/9]", tmp_path) == {
        *wanted,
        Predicate("f", Op.CIDR, "10.0.0.0/9"),
    }
    assert predicates(f"f|{order}: 10.0.0.0/8", tmp_path) == {Predicate("f", Op.CIDR, "10.0.0.0/8")}
    assert "is not a network" in compile_rules(text=rule(f"f|{order}: '%hosts%'"), lookups=[tmp_path]).refused[0].reason
    given = write(tmp_path, "p.yml", "name: p\npriority: 1\nvars: {corp: [10.0.0.0/8]}\n"
                  "transformations: [{type: value_placeholders}]\n")  # fmt: skip
    plan = compile_rules(text=rule(f"f|{order}: '%corp%'"), pipelines=[given])
    assert set(plan.predicates) == {Predicate("f", Op.CIDR, "10.0.0.0/8")}


@walk("order", ["cidr|expand", "expand|cidr"])
@walk(
    ("item", "wanted"),
    [
        ("f|{}: '%nets%'", [0, 1]),
        ("f|{}: ['%nets%', 172.16.0.0/12]", [0, 1, 3]),
        ("f|{}: [172.16.0.0/12, '%nets%']", [0, 1, 3]),
        ("f|{}: ['%nets%', '%more%']", [0, 1, 3]),
        ("f|{}|neq: '%nets%'", [2, 3]),
        ("f|{}|neq: ['%nets%', '%more%']", [2]),
        ("{{f|{}: '%nets%', f|exists: true}}", [0, 1]),
        ("[{{f|{}: '%nets%'}}]", [0, 1]),
        ("[{{f|{0}: '%nets%'}}, {{f|{0}: '%more%'}}]", [0, 1, 3]),
    ],
)
@walk(
    "pipeline",
    [
        "",
        "transformations: [{type: field_name_mapping, mapping: {f: [a, b]}}]",
        "transformations: [{type: field_name_mapping, mapping: {f: b}}]",
        "vars: {nets: [10.0.0.0/8, 192.0.2.7], more: 172.16.0.0/12}\ntransformations: [{type: value_placeholders}]",
        "vars: {nets: [10.0.0.0/8, 192.0.2.7]}\ntransformations: [{type: value_placeholders, include: [nets]}]",
        "transformations: [{type: replace_string, regex: '^0+', replacement: ''}]",
        "transformations: [{type: map_string, mapping: {172.16.0.0/12: [172.16.5.0/24, 172.16.6.0/24]}}]",
        "transformations: [{type: add_condition, conditions: {always: 1}}]",
    ],
)
def test_networks_wherever_they_stand(order: str, item: str, wanted: list[int], pipeline: str, tmp_path: Path) -> None:
    """In a list, beside a network, negated, in several items, behind any pipeline: always a network, never a text."""
    lookups = [write(tmp_path, "nets.txt", "10.0.0.0/8\n192.0.2.7\n"), write(tmp_path, "more.txt", "172.16.0.0/12\n")]
    given = [write(tmp_path, "p.yml", pipeline)] if pipeline else []
    text = f"{HEAD}  s: {item.format(order)}\n  condition: s\n".replace("s: f|", "s:\n    f|")
    plan = compile_rules(text=text, pipelines=given, lookups=lookups)
    assert not plan.refused
    assert {p.op for p in plan.predicates} <= {Op.CIDR, Op.EXISTS, Op.NUMBER}
    engine = Engine(plan, route=False)
    field = "b" if "field_name" in pipeline else "f"
    addresses = ("10.1.2.3", "192.0.2.7", "11.0.0.1", "172.16.5.5")
    events = [from_mapping({field: address, "always": 1}) for address in addresses]
    if "neq" in item and "[a, b]" in pipeline:  # each of the fields must be there and outside
        events = [from_mapping({"a": address, "b": address}) for address in addresses]
    assert [i for i, event in enumerate(events) if engine.true(event)] == wanted


@walk("item", ["f|cased: Root", "f|contains|cased: Root", "f|windash|cased: 'Root -a'"])
@walk(
    "step",
    ["type: replace_string, regex: 'Root', replacement: 'RooT'", "type: map_string, mapping: {Root: RooT}",
     "type: replace_string, regex: 'Root', replacement: 'RooT', skip_special: true"],
)  # fmt: skip
def test_case_counts_behind_any_pipeline(item: str, step: str, tmp_path: Path) -> None:
    """A pipeline puts plain texts in the place of those under ``cased``: upper and lower case count in these, too."""
    given = write(tmp_path, "p.yml", f"transformations: [{{{step}}}]")
    plan = compile_rules(text=rule(item), pipelines=[given])
    assert not plan.refused
    assert all(p.cased for p in plan.predicates)
    if item == "f|cased: Root" or ("replace" in step and "windash" not in item):  # which make other texts of theirs
        assert all("RooT" in str(p.value) for p in plan.predicates)


@pytest.mark.parametrize("item", ["f|hour: 5", "f|gte: 5"])
def test_comparisons_behind_any_pipeline(item: str, tmp_path: Path) -> None:
    """A pipeline that replaces texts leaves what is compared as a number alone."""
    given = write(tmp_path, "p.yml", "transformations: [{type: replace_string, regex: '5', replacement: '6'}]")
    plan = compile_rules(text=rule(item), pipelines=[given])
    assert plan.predicates == compile_rules(text=rule(item)).predicates


@pytest.mark.parametrize(("name", "of_set"), [("big.yml", True), ("big.txt", False), ("big.csv", False)])
def test_files_that_are_too_large(name: str, of_set: bool, tmp_path: Path) -> None:
    """No more is read of a pipeline or lookup than the bound; the refusal names the file."""
    path = write(tmp_path, name, "")
    with path.open("wb") as file:
        file.truncate(pipelines.MAX_BYTES + 1)
    if of_set:
        with pytest.raises(ValueError, match=r"big\.yml: larger than 8 MiB"):
            compile_rules(text=rule("f: a"), pipelines=[path])
    else:
        plan = compile_rules(text=rule("f|expand: '%big%'"), lookups=[path])
        assert ["larger than 8 MiB" in one.reason for one in plan.refused] == [True, True]


@pytest.mark.parametrize("path", sorted((SHIPPED / "pipelines").glob("*.yml")), ids=lambda path: path.stem)
def test_shipped_pipelines_load(path: Path) -> None:
    """Each says its name and changes a rule that it is about."""
    loaded = pipelines.load([path]).pipeline
    assert loaded is not None
    assert loaded.name
    product = "linux" if "linux" in path.stem else "windows"
    text = rule("Image: x").replace("windows", product)
    assert compile_rules(text=text, pipelines=[path]).digest != compile_rules(text=text).digest


def test_shipped_pipelines_together() -> None:
    """A generic rule becomes one on Sysmon events in the Elastic Common Schema."""
    both = [SHIPPED / "pipelines" / name for name in ("ecs.yml", "windows-sysmon.yml")]
    plan = compile_rules(text=rule("Image|endswith: x"), pipelines=both)
    assert {(p.field, p.value) for p in plan.predicates} == {("process.executable", "x"), ("event.code", 1)}
    assert pipelines.load(lookups=[SHIPPED / "lookups"]).lookups["Administrators"]
