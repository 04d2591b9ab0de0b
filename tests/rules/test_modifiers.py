"""Every modifier with every kind of value: what runs, and what those that do not run are told to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from sigma.modifiers import modifier_mapping

from tests.differences import walk
from vedette.rules import build
from vedette.rules.authoring import lint
from vedette.rules.sigma.faults import condition_advice
from vedette.rules.sigma.modifiers import MODIFIERS

HEAD = "title: T\nid: 929a690e-bef0-4204-a928-ef5e620d6fcc\nlogsource: {product: linux}\n"
TEXTS = "contains startswith endswith cased windash expand wide utf16 utf16le utf16be re base64 base64offset fieldref"
NUMBERS = "lt lte gt gte"
PARTS = {"minute": 59, "hour": 23, "day": 31, "week": 53, "month": 12, "year": 9999}
FLAGS = "i ignorecase m multiline s dotall"
RUN = ""

KINDS = {"text": "text", "digits": "'55'", "number": "5", "true": "true", "null": "null", "none": "[]",
         "mapping": "{a: b}", "lists": "[[a]]", "nan": ".nan"}  # fmt: skip
QUOTES = "in quotes"
"""By kind of value how it is written."""
TABLE: dict[str, dict[str, str]] = {
    **{name: {"text": RUN, "digits": RUN, "number": QUOTES, "true": QUOTES, "null": "not null", "nan": RUN}
       for name in TEXTS.split()},
    **{name: {"text": "compares numbers, not 'text'", "digits": "quotes around 55", "number": RUN, "true": "not true",
              "null": "not null", "nan": "compares with a number"} for name in NUMBERS.split()},
    **{name: {"text": "takes a whole number from", "digits": "quotes around 55", "number": RUN, "true": "not true",
              "null": "not null", "nan": "takes a whole number from"} for name in PARTS},
    **{name: dict.fromkeys(("text", "digits", "number", "true", "null", "nan"), f"write f|re|{name}")
       for name in FLAGS.split()},
    **{name: {"text": RUN, "digits": RUN, "number": RUN, "true": RUN, "null": RUN, "nan": "Invalid number"}
       for name in ("all", "neq")},
    "exists": {"text": "takes true or false, not 'text'", "digits": "takes true or false", "number": "true or false",
               "true": RUN, "null": "not null", "nan": "takes true or false"},
    "cidr": {"text": "such as 10.0.0.0/8", "digits": "such as", "number": QUOTES, "true": QUOTES, "null": "not null",
             "nan": "such as 10.0.0.0/8"},
}  # fmt: skip
ALWAYS = {"none": "is empty: write null", "mapping": "f.NAME, a path", "lists": "not a list"}


def refusal(item: str, condition: str = "s") -> str:
    """Why a rule with this item does not run; empty: it does."""
    rules = build.read(f"{HEAD}detection:\n  s:\n    {item}\n  condition: {condition}\n", "rule.yml")
    assert len(rules.refused) + len(rules.rules) == 1
    if not rules.refused:
        return ""
    assert rules.refused[0].line == (6 if condition == "s" else 7)
    return rules.refused[0].reason


def test_every_modifier_has_a_row_a_test_and_a_line_in_the_docs() -> None:
    """A modifier that a new pySigma brings must be declared, tried here and described; modifiers of one meaning share
    a line."""
    assert set(MODIFIERS) == set(TABLE) == set(modifier_mapping)
    lines: dict[str, list[str]] = {}
    for name, row in MODIFIERS.items():
        lines.setdefault(row.meaning, []).append(f"`{name}`")
    wanted = [f"| {', '.join(names)} | {meaning} |" for meaning, names in lines.items()]
    docs = (Path(__file__).parents[2] / "docs" / "rules.md").read_text("utf-8")
    table = docs.partition("| modifier | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == wanted


@walk("modifier", sorted(TABLE))
@walk("kind", sorted(KINDS))
def test_a_modifier_with_a_value(modifier: str, kind: str) -> None:
    """It runs, or is refused by its line in words of the rule's author, with what to write instead."""
    says = ALWAYS.get(kind) if modifier not in FLAGS.split() or kind == "none" else TABLE[modifier].get(kind)
    says = TABLE[modifier].get(kind, f"write f|re|{modifier}") if says is None else says
    told = refusal(f"f|{modifier}: {KINDS[kind]}")
    assert says in told
    assert bool(says) == bool(told)
    assert "Sigma" not in told
    assert "object at" not in told


@pytest.mark.parametrize(("part", "most"), PARTS.items())
def test_parts_of_a_time_that_never_occur(part: str, most: int) -> None:
    """Numbers beyond the range are refused, also among good ones."""
    assert refusal(f"f|{part}: {most}") == ""
    assert f"{most + 1} never occurs" in refusal(f"f|{part}: [1, {most + 1}]")
    assert "-1 never occurs" in refusal(f"f|{part}: -1")
    assert "whole number" in refusal(f"f|{part}: 1.5")


@walk(
    ("item", "says"),
    [
        ("f|endswith|fieldref: g", "write f|fieldref|endswith"),
        ("f|contains|fieldref: g", "write f|fieldref|contains"),
        ("f|expand|re: 'a'", "write f|re|expand"),
        ("f|i|re: a", "write f|re|i"),
        ("f|cased|re: a", "take 'cased' out"),
        ("f|re|cased: a", "take 'cased' out"),
        ("f|contains|cidr: 10.0.0.0/8", "write f|cidr"),
        ("f|cidr|contains: 10.0.0.0/8", "write f|cidr"),
        ("f|neq|cidr: 10.0.0.0/8", "write f|cidr|neq"),
        ("f|cidr: 10.0.0.1/8", "write 10.0.0.0/8"),
        ("f|conatins: a", "did you mean 'contains'?"),
        ("f|gt|expand: '5'", "quotes around"),
        ("f|exists: yes", "write true"),
        ("f|exists: 'false'", "write false"),
        ("f|base64offset|contains: a", "needs 2 characters"),
        ("f|base64: ''", "needs 1 character"),
        ("f|fieldref: ''", "name of a field"),
        ("f: []", "write null for an absent field"),
        ("<<: {a: b}", "no merge keys"),
    ],
)
def test_advice(item: str, says: str) -> None:
    """What pySigma refuses for its order, or takes though it means nothing."""
    assert says in refusal(item)


@walk(
    ("condition", "says"),
    [
        ("s AND s", "lower case"),
        ("NOT s", "lower case"),
        ("2 of s*", "no '2 of': write out what may hold together"),
        ("s && s", "&& is written and"),
        ("s || s", "|| is written or"),
        ("!s", "! is written not"),
        ("(s and s", "1 parentheses are opened, and 0 closed"),
        ("selektion", "there is no 'selektion': there are"),
        ("s and sel", "there is no 'sel'"),
    ],
)
def test_conditions(condition: str, says: str) -> None:
    """A condition that cannot be read is refused with what is wrong in it."""
    told = refusal("f: a", f"'{condition}'")
    if "||" not in condition:  # that is Sigma 1's pipe, too
        assert says in told
    assert says in condition_advice(condition, ["s"])


def findings(tmp_path: Path, text: str) -> list[str]:
    """What lint says of a rule's values and keys, and what is refused."""
    (tmp_path / "rule.yml").write_text(text)
    rules = build.load([tmp_path])
    found = lint.lint([tmp_path], rules, build.from_rules(rules))
    return [str(one) for one in found if one.check in ("values", "keys", "refused", "cost")]


@walk(
    ("item", "says"),
    [
        ("f|contains|all: a", "'all' with one value has no effect"),
        ("f|contains|all: [a]", "'all' with one value has no effect"),
        ("f|expand: '\\%username%'", "is the text %username%: a placeholder has no backslash before it"),
        ("f|expand: username", "no %placeholder% in"),
        ("f: '%username%'", "write f|expand: '%username%'"),
        ("f: '\\%username%'", "write f|expand: '%username%'"),
        ("f|startswith|endswith: a", "together mean contains"),
        ("f|contains: ''", "write f|exists: true"),
        ("f|contains: '*'", "write f|exists: true"),
        ("f|cased|fieldref: g", "'cased' has no effect"),
    ],
)
def test_doubts(tmp_path: Path, item: str, says: str) -> None:
    """What runs and is likely a slip is a warning at its line; a rule without it has none."""
    text = f"{HEAD}detection:\n  s:\n    g: long enough\n    ITEM\n  condition: s\n"
    (told,) = findings(tmp_path, text.replace("ITEM", item))
    assert says in told
    assert told.startswith(f"{tmp_path}/rule.yml:7:5: warning:")
    assert not findings(tmp_path, text.replace("ITEM", "f|contains|all: [a, b]"))
    for good in ("f: '100% sure'", "f|contains: '%temp%'"):
        assert not findings(tmp_path, text.replace("ITEM", good))


@pytest.mark.parametrize(
    ("key", "says"),
    [("timeframe: 5m", "'timespan'"), ("group_by: [user]", "'group-by'"),
     ("grup-by: [user]", "'group-by'"), ("field: user", "condition: {field: NAME}"), ("xyz: 1", "it has type, rules")],
)  # fmt: skip
def test_unknown_keys_of_a_correlation(tmp_path: Path, key: str, says: str) -> None:
    """They are refused at their place: what its author asked for would not be done."""
    rule = f"{HEAD}name: r\ndetection: {{s: {{f: long enough}}, condition: s}}\n---\ntitle: C\ncorrelation:\n"
    body = "  type: event_count\n  rules: [r]\n  timespan: 5m\n  condition: {gte: 5}\n"
    assert not findings(tmp_path, rule + body)
    (told,) = findings(tmp_path, f"{rule}{body}  {key}\n")
    assert f"{tmp_path}/rule.yml:13:3: error: '{key.partition(':')[0]}' is not a key of a correlation" in told
    assert says in told


@pytest.mark.parametrize(
    ("search", "says"),
    [
        ("s: ['%few%', long enough]", "write '|expand': '%few%'"),
        ("s: '%few%'", "write '|expand': '%few%'"),
        ("s: {f: long enough}\n  timeframe: 5m", "'timeframe' is Sigma 1, and here a search"),
        ("s: {f: long enough}\n  window: 30 s", "write a correlation with timespan: 30s"),
    ],
)
def test_doubts_of_searches(tmp_path: Path, search: str, says: str) -> None:
    """A keyword that looks like a placeholder, and a window of Sigma 1, are warnings; texts like them are not."""
    text = f"{HEAD}detection:\n  SEARCH\n  condition: all of them\n"
    told = [one for one in findings(tmp_path, text.replace("SEARCH", search)) if "[values]" in one]
    assert [says in one for one in told] == [True], told
    for good in (
        "s: ['%few% of them']",
        "s: {f|expand: ['%few%', extra]}",
        "timeframe: {f: long enough}",
        "window: [long enough]",
    ):
        assert not [one for one in findings(tmp_path, text.replace("SEARCH", good)) if "[values]" in one]


@pytest.mark.parametrize(("condition", "shown"), [("5", "5"), ("[s, 5]", "5"), ("", "null"), ("{a: s}", "{'a': 's'}")])
def test_conditions_that_are_no_text(tmp_path: Path, condition: str, shown: str) -> None:
    """The reason says what is expected, at the condition."""
    text = f"{HEAD}detection:\n  s: {{f: long enough}}\n  condition: {condition}\n"
    (told,) = [one for one in findings(tmp_path, text) if "[refused]" in one]
    assert f"the condition is a text that names searches, as in 'selection and not filter', not {shown} " in told
    assert told.startswith(f"{tmp_path}/rule.yml:6:3: error:")


def test_unknown_keys_of_a_rule(tmp_path: Path) -> None:
    """A part of a log source that there is not, and an attribute that is spelled wrongly, are warnings."""
    rule = HEAD.replace("linux}", "linux, sevice: sshd}") + "detection: {s: {f: long enough}, condition: s}\n"
    assert "'sevice' is no attribute of a log source" in findings(tmp_path, rule)[0]
    rule = f"{HEAD}detection: {{s: {{f: long enough}}, condition: s}}\nleval: high\n"
    assert "did you mean 'level'?" in findings(tmp_path, rule)[0]
    assert not findings(tmp_path, rule.replace("leval", "x_own"))


def test_placeholders_with_more_values_than_are_searched_for(tmp_path: Path) -> None:
    """They are one lookup; lint names it, since text lines are looked at one by one."""
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"user{i}" for i in range(3000)))
    (tmp_path / "rule.yml").write_text(f"{HEAD}detection: {{s: {{user|expand: '%names%'}}, condition: s}}\n")
    rules = build.load([tmp_path], lookups=[names])
    found = lint.lint([tmp_path], rules, build.from_rules(rules))
    (told,) = [one.message for one in found if one.check == "cost"]
    assert "user is in value of the lookup names-" in told


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("user|contains|expand: '%ten%-%a%'", "%ten% and %a% stand for 9,000 values"),
        ("user: [{}]".format(", ".join(f"name{i}" for i in range(2049))), "a choice of 2,049 values"),
    ],
)
def test_several_placeholders_with_more_values_than_are_searched_for(item: str, says: str, tmp_path: Path) -> None:
    """All are named, with the sum of their values: what each has alone is within the bound."""
    for name, count in (("a", 1500), ("b", 1500), ("full", 2048), ("ten", 6)):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{name}{i:05}" for i in range(count)))
    bad = f"{HEAD}detection: {{s: {{user|expand: ['%a%', '%nobody%']}}, condition: s}}\n---\n"
    search = item if item.startswith("[") else f"{{{item}}}"
    (tmp_path / "rule.yml").write_text(f"{bad}{HEAD}detection: {{s: {search}, condition: s}}\n")
    rules = build.load([tmp_path / "rule.yml"], lookups=[tmp_path])
    found = lint.lint([tmp_path / "rule.yml"], rules, build.from_rules(rules))
    (told,) = [one.message for one in found if one.check == "cost"]
    assert f"({says}, more than the 2,048 that the prefilter searches for)" in told
