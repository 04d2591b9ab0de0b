"""Sigma YAML to the intermediate form: each modifier and condition means what the specification says, or the rule is
refused with file, line and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from tests.deep import examples
from tests.differences import walk
from vedette.decode.decoder import from_mapping
from vedette.engine.match import Engine
from vedette.plan.ir import ANY, KEYWORDS, STAR, And, Leaf, Not, Op, Or, Predicate, Rule
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.rules.ruleset import RuleSet
from vedette.rules.sigma.expression import MAX_DEPTH

HEAD = "title: t\nlogsource: {product: linux}\ndetection:\n"


def compiled(text: str) -> RuleSet:
    return build.read(text, "rule.yml")


def one(detection: str, condition: str = "s") -> tuple[Rule, list[Predicate]]:
    """The rule with the detection ``s``; fails when it is refused."""
    body = "".join(f"    {line}\n" for line in detection.splitlines())
    rules = compiled(f"{HEAD}  s:\n{body}  condition: {condition}\n")
    assert not rules.refused
    return rules.rules[0], rules.predicates


def reason(text: str) -> tuple[int, str]:
    """Line and reason of the one refusal of ``text``."""
    rules = compiled(text)
    assert not rules.rules
    assert not rules.predicates
    (refusal,) = rules.refused
    assert refusal.path == "rule.yml"
    assert str(refusal).startswith(f"rule.yml:{refusal.line}:")
    return refusal.line, refusal.reason


def exact(value: str, op: Op = Op.EXACT, *, cased: bool = False) -> Predicate:
    return Predicate("f", op, value, cased)


@walk(
    ("item", "expected"),
    [
        ("f: Value", exact("value")),
        ("f|contains: Value", exact("value", Op.CONTAINS)),
        ("f|startswith: Value", exact("value", Op.PREFIX)),
        ("f|endswith: Value", exact("value", Op.SUFFIX)),
        ("f: 'Val*'", exact("val", Op.PREFIX)),
        ("f: '*Val'", exact("val", Op.SUFFIX)),
        ("f: '**Val**'", exact("val", Op.CONTAINS)),
        ("f: 'a?b*c'", Predicate("f", Op.GLOB, ("a", ANY, "b", STAR, "c"))),
        ("f: '?'", Predicate("f", Op.GLOB, (ANY,))),
        ("f: '*'", Predicate("f", Op.GLOB, (STAR,))),
        ("f|contains: ''", Predicate("f", Op.GLOB, (STAR,))),
        ("f: ''", exact("")),
        (r"f: 'a\b'", exact("a\\b")),
        (r"f: 'a\\b'", exact("a\\b")),
        (r"f: 'a\*'", exact("a*")),
        (r"f: 'a\?'", exact("a?")),
        (r"f: 'a\\*'", exact("a\\", Op.PREFIX)),
        (r"f: 'a\\\*'", exact("a\\*")),
        (r"f: 'a\\\\'", exact("a\\\\")),
        (r"f: '\\\\srv\\*'", exact("\\\\srv\\", Op.PREFIX)),
        (r"f|contains: '\'", exact("\\", Op.CONTAINS)),
        ("f: '%name%'", exact("%name%")),
        ("f|cased: Value", exact("Value", cased=True)),
        ("f|contains|cased: Value", exact("Value", Op.CONTAINS, cased=True)),
        ("f|cased|startswith: Value", exact("Value", Op.PREFIX, cased=True)),
        ("f|cased: 'V?'", Predicate("f", Op.GLOB, ("V", ANY), True)),
        ("f: 'Gro\u00dfe S\u017f'", exact("gro\u00dfe ss")),
        ("f: \u1e9e", exact("\u00df")),
        ("f: 4720", Predicate("f", Op.NUMBER, 4720)),
        ("f: '4720'", exact("4720")),
        ("f: 4.0", Predicate("f", Op.NUMBER, 4)),
        ("f: 0.5", Predicate("f", Op.NUMBER, 0.5)),
        ("f: -3", Predicate("f", Op.NUMBER, -3)),
        ("f: true", exact("true")),
        ("f: false", exact("false")),
        ("f: null", Predicate("f", Op.NULL)),
        ("f:", Predicate("f", Op.NULL)),
        ("f|re: 'A.c'", Predicate("f", Op.REGEX, "A.c", True)),
        ("f|re|i: 'A.c'", Predicate("f", Op.REGEX, "A.c", True, "i")),
        ("f|re|s|m|i: 'A.c'", Predicate("f", Op.REGEX, "A.c", True, "ims")),
        ("f|re|ignorecase|multiline|dotall: 'A.c'", Predicate("f", Op.REGEX, "A.c", True, "ims")),
        (r"f|re: '\*a\\.*b\\\*c\?'", Predicate("f", Op.REGEX, r"\*a\\.*b\\\*c\?", True)),
        (r"f|re: 'a\\*b'", Predicate("f", Op.REGEX, r"a\\*b", True)),
        ("f|re: '%a%'", Predicate("f", Op.REGEX, "%a%", True)),
        ("f|re|contains: 'a|b'", Predicate("f", Op.REGEX, ".*(?:a|b).*", True)),
        ("f|cidr: 10.0.0.0/8", Predicate("f", Op.CIDR, "10.0.0.0/8")),
        ("f|cidr: 10.1.2.3", Predicate("f", Op.CIDR, "10.1.2.3/32")),
        ("f|cidr: 'FE80::/10'", Predicate("f", Op.CIDR, "fe80::/10")),
        ("f|lt: 5", Predicate("f", Op.LT, 5)),
        ("f|lte: 5.5", Predicate("f", Op.LTE, 5.5)),
        ("f|gt: -5", Predicate("f", Op.GT, -5)),
        ("f|gte: 5", Predicate("f", Op.GTE, 5)),
        ("f|exists: true", Predicate("f", Op.EXISTS)),
        ("f|fieldref: Other", Predicate("f", Op.FIELD_EXACT, "Other")),
        ("f|fieldref|startswith: Other", Predicate("f", Op.FIELD_PREFIX, "Other")),
        ("f|fieldref|endswith: Other", Predicate("f", Op.FIELD_SUFFIX, "Other")),
        ("f|fieldref|contains: Other", Predicate("f", Op.FIELD_CONTAINS, "Other")),
        ("f|base64: Abc", exact("qwjj")),
        ("f|wide|base64: A", exact("qqa=")),
        ("f|utf16|base64: A", exact("//5baa==")),
        ("f|utf16be|base64: A", exact("aee=")),
        ("f|wide: Ab", exact("a\0b\0")),
        ("f|utf16be: Ab", exact("\0a\0b")),
        ("f|utf16: A", Predicate("f", Op.GLOB, ("\ufeff", "a\0"))),
        ("f|expand: 'no placeholder'", exact("no placeholder")),
        ("F.g-h: x", Predicate("F.g-h", Op.EXACT, "x")),
    ],
)
def test_a_value_becomes_this_predicate(item: str, expected: Predicate) -> None:
    """One detection item of one value: field, operator, value, case, options."""
    rule, predicates = one(item)
    assert rule.expr == Leaf(0)
    assert predicates == [expected]


def test_the_signs_of_wildcards_in_a_text_are_no_wildcards() -> None:
    """NUL and an escaped star, which UTF-16BE makes of a star, are two characters and not the mark of a wildcard."""
    for item in (r"f|utf16be: '\*'", r'f: "\0\\*"'):
        _, predicates = one(item)
        assert predicates == [Predicate("f", Op.GLOB, ("\0", "*"))]


@walk(
    ("item", "expected"),
    [
        ("f: [a, b]", Or((Leaf(0), Leaf(1)))),
        ("f|all: [a, b]", And((Leaf(0), Leaf(1)))),
        ("f|contains|all: [a, b]", And((Leaf(0), Leaf(1)))),
        ("f|neq: a", Not(Leaf(0))),
        ("f|neq: [a, b]", Not(Or((Leaf(0), Leaf(1))))),
        ("f|fieldref|neq: g", Not(Leaf(0))),
        ("f|exists: false", Not(Leaf(0))),
        ("f: [a, null, 5, true]", Or((Leaf(0), Leaf(1), Leaf(2), Leaf(3)))),
        ("f: a\ng: b", And((Leaf(0), Leaf(1)))),
        ("- f: a\n  g: b\n- h: c", Or((And((Leaf(0), Leaf(1))), Leaf(2)))),
        ("- a\n- b", Or((Leaf(0), Leaf(1)))),
        ("- a\n- f: b", Or((Leaf(0), Leaf(1)))),
        ("'|all': [a, b]", And((Leaf(0), Leaf(1)))),
        ("f: [a, A, a]", Or((Leaf(0), Leaf(0), Leaf(0)))),
    ],
)
def test_several_values_are_linked_so(item: str, expected: object) -> None:
    """Lists are OR, maps and ``all`` are AND, ``neq`` and ``exists: false`` negate; equal predicates are one."""
    assert one(item)[0].expr == expected


def texts(item: str) -> list[object]:
    """The values of an OR over the one field."""
    rule, predicates = one(item)
    assert rule.expr == Or(tuple(Leaf(i) for i in range(len(predicates))))
    return [predicate.value for predicate in predicates]


def test_expansions() -> None:
    """windash gives every dash, base64offset each of three shifts."""
    assert texts("f|windash|contains: ' -E'") == [" -e", " /e", " \u2013e", " \u2014e", " \u2015e"]
    for dash in "-/\u2013\u2014\u2015":  # each stands for all five, but not within a word
        assert texts(f"f|windash|contains: ' {dash}E a{dash}b'") == [
            f" {other}e a{dash}b" for other in "-/\u2013\u2014\u2015"
        ]
        assert len(texts(f"f|windash|endswith: '{dash}a *{dash}b'")) == 25
    assert texts("f|windash|cased: '/E'") == ["-E", "/E", "\u2013E", "\u2014E", "\u2015E"]
    assert texts("f|base64offset|contains: foobar") == ["zm9vymfy", "zvb2jhc", "mb29iyx"]
    rule, _ = one("f|windash|contains|all: [' -a', ' -b']")
    assert rule.expr == And((Or(tuple(map(Leaf, range(5)))), Or(tuple(map(Leaf, range(5, 10))))))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("- Evil", Predicate(KEYWORDS, Op.CONTAINS, "evil")),
        ("- 'Ev?l'", Predicate(KEYWORDS, Op.GLOB, (STAR, "ev", ANY, "l", STAR))),
        ("- '*evil'", Predicate(KEYWORDS, Op.CONTAINS, "evil")),
        ("- 4720", Predicate(KEYWORDS, Op.CONTAINS, "4720")),
        ("- ''", Predicate(KEYWORDS, Op.GLOB, (STAR,))),
        ("'|re': 'a.c'", Predicate(KEYWORDS, Op.REGEX, "a.c", True)),
        ("'|cased': Evil", Predicate(KEYWORDS, Op.CONTAINS, "Evil", True)),
        ("'|startswith': evil", Predicate(KEYWORDS, Op.CONTAINS, "evil")),
    ],
)
def test_a_keyword_is_searched(item: str, expected: Predicate) -> None:
    """A value without a field is looked for anywhere in the event's texts."""
    assert one(item)[1] == [expected]


A, B, C = Leaf(0), Leaf(1), Leaf(2)


@walk(
    ("condition", "expected"),
    [
        ("sel_a", A),
        ("not sel_a", Not(A)),
        ("sel_a and sel_b", And((A, B))),
        ("sel_a or sel_b and other", Or((A, And((B, C))))),
        ("(sel_a or sel_b) and not other", And((Or((A, B)), Not(C)))),
        ("sel_a or not sel_b and other", Or((A, And((Not(B), C))))),
        ("not (sel_a or sel_b)", Not(Or((A, B)))),
        ("1 of sel_*", Or((A, B))),
        ("any of sel_*", Or((A, B))),
        ("all of sel_*", And((A, B))),
        ("all of *_a", A),
        ("1 of them", Or((A, B, C))),
        ("all of them", And((A, B, C))),
        ("other or 1 of sel*", Or((A, Or((B, C))))),
        ("1 of sel_* and not 1 of oth*", And((Or((A, B)), Not(C)))),
        ("all of _*", A),
        ("[sel_a, sel_b and other]", Or((A, And((B, C))))),
    ],
)
def test_conditions(condition: str, expected: object) -> None:
    """Precedence, selectors and lists of conditions; ``them`` leaves out names with an underscore in front."""
    selections = "  sel_a: {a: 1}\n  sel_b: {b: 1}\n  other: {c: 1}\n  _hidden: {d: 1}\n"
    rules = compiled(f"{HEAD}{selections}  condition: {condition}\n")
    assert not rules.refused
    assert rules.rules[0].expr == expected


def test_what_a_rule_carries() -> None:
    """Id, level, tags, fields, log source, place; defaults where nothing is given."""
    full = """\
# a comment
---
title: A title
id: 929A690E-bef0-4204-a928-ef5e620d6fcc
status: test
level: high
tags: [attack.t1059, attack.execution]
fields: [user, src_ip]
logsource: {product: Linux, category: process_creation, service: sshd, definition: x}
detection: {s: {f: 1}, condition: s}
---
title: bare
logsource: {category: webserver}
detection: {s: {f: 1}, condition: s}
"""
    rules = compiled(full)
    rule, bare = rules.rules
    assert (rule.id, rule.title, rule.level) == ("929a690e-bef0-4204-a928-ef5e620d6fcc", "A title", "high")
    assert rule.tags == ("attack.t1059", "attack.execution")
    assert rule.fields == ("user", "src_ip")
    assert rule.logsource == ("linux", "process_creation", "sshd")
    assert (rule.path, rule.line) == ("rule.yml", 3)
    assert (bare.level, bare.tags, bare.fields) == ("medium", (), ())
    assert bare.line == 12
    assert bare.id == compiled(full).rules[1].id
    assert bare.digest != rule.digest


def test_the_digest_is_of_the_meaning() -> None:
    """Title and level change nothing; the numbers of predicates neither; a value does."""
    plain = f"{HEAD}  s: {{f: a}}\n  condition: s\n"
    digest = compiled(plain).rules[0].digest
    assert compiled(plain.replace("title: t", "title: u\nlevel: low")).rules[0].digest == digest
    both = compiled(
        f"title: first\nlogsource: {{product: linux}}\ndetection: {{s: {{g: b}}, condition: s}}\n---\n{plain}"
    )
    assert both.rules[1].digest == digest
    assert compiled(plain.replace("f: a", "f: b")).rules[0].digest != digest
    assert compiled(plain.replace("product: linux", "product: windows")).rules[0].digest != digest


def detection(item: str) -> str:
    return f"{HEAD}  ok: {{g: 1}}\n  s:\n    x: y\n    {item}\n  condition: s and ok\n"


@walk(
    ("item", "says"),
    [
        ("f|bogus: a", "Unknown modifier 'bogus'"),
        ("f|contains: 5", "put the number in quotes"),
        ("f|lt: abc", "lt compares numbers, not 'abc'"),
        ("f|cidr: 10.0.0.1/8", "host bits set: write 10.0.0.0/8"),
        ("f|cidr: nonsense", "takes a network such as"),
        ("f|re: '('", "is invalid"),
        (r'f|re: "a\0b"', "NUL"),
        (r"f|re: '\Qa.b\E'", "is not supported"),
        ("f|re: '(a$|b)(?i)c'", "use the modifiers"),
        ("f|re: '(?U)(a$|b)'", "cannot be read"),
        ("f|i: a", "write f|re|i"),
        ("f|contains|re: a", "only applicable to unmodified"),
        ("f|exists: maybe", "exists takes true or false"),
        ("f|base64: 'a*'", "wildcards is not allowed"),
        ("f|wide: \u00e9", "ascii"),
        ("f|windash: ' -a -b -c -d'", "at most three"),
        ("f|fieldref: 'a*'", "must not contain wildcards"),
        ("f|expand: '%admins%'", "placeholder %admins% has no value"),
        ("f|re|expand: '%admins%.*'", "placeholder %admins% has no value"),
        ("f|expand|base64: '%admins%'", "placeholder %admins% has no value"),
        ("f|expand|fieldref: '%admins%'", "placeholder %admins% has no value"),
        ("f|contains|expand: ['x', 'a%admins%']", "placeholder %admins% has no value"),
        ("f|contains: null", "takes a text, not null"),
        ("f|hour|gte: 20", "list the numbers, as in"),
        ("f|minute|hour: 5", "list the numbers, as in"),
        ("f: .inf", "Invalid number"),
        ("f: .nan", "Invalid number"),
        ("f: 100000000000000000000", "too large"),
        ("f: -10108206218330767360", "too large"),
        ("f: {g: h}", "a nested field is f.NAME"),
        ("5: a", "a field's name is a text: put it in quotes"),
        ("'|fieldref': g", "needs a field"),
        ("'|gt': 5", "needs a field"),
        ("'|exists': true", "must be applied to field"),
    ],
)
def test_an_item_that_cannot_run_is_refused_at_its_line(item: str, says: str) -> None:
    """The reason is told, and the line is the item's own."""
    line, why = reason(detection(item))
    assert says in why
    assert line == 7


@walk(
    ("text", "line", "says"),
    [
        (f"{HEAD}  s: {{f: 1}}\n  condition: s and nothing\n", 5, "'nothing' not defined"),
        (f"{HEAD}  s: {{f: 1}}\n  condition: s and (\n", 5, ""),
        (f"{HEAD}  s: {{f: 1}}\n  condition: 2 of s*\n", 5, ""),
        (f"{HEAD}  s: {{f: 1}}\n  condition: 1 of x*\n", 5, "doesn't match any"),
        (f"{HEAD}  s: {{f: 1}}\n  condition: s | count() > 5\n", 5, "pipe syntax"),
        (f"{HEAD}  s: {{f: 1}}\n", 1, "condition"),
        (f"{HEAD}  s: {{}}\n  condition: s\n", 4, "empty"),
        (f"{HEAD}  s: []\n  condition: s\n", 4, ""),
        (f"{HEAD}  s: [a, null]\n  condition: s\n", 4, "null needs a field"),
        ("title: t\nlogsource: {product: x}\n", 1, "detection"),
        ("title: t\nlogsource: {product: x}\ndetection: 5\n", 3, ""),
        ("title: t\ndetection: {s: {f: 1}, condition: s}\n", 1, "log source"),
        ("logsource: {product: x}\ndetection: {s: {f: 1}, condition: s}\n", 1, "title"),
        ("title: t\nlevel: extreme\nlogsource: {product: x}\ndetection: {s: {f: 1}, condition: s}\n", 2, "extreme"),
        ("title: t\nid: x-y\nlogsource: {product: x}\ndetection: {s: {f: 1}, condition: s}\n", 2, "UUID"),
        (
            "title: t\nid: 5\nlogsource: {product: x}\ndetection: {s: {f: 1}, condition: s}\n",
            1,
            "not a valid Sigma rule",
        ),
        ("- a\n- b\n", 1, "expects a mapping"),
        ("just text\n", 1, "expects a mapping"),
        ("title: t\ntitle: u\n", 2, "not valid YAML"),
        (f"{HEAD}  s: {{f: 1}}\n  s: {{f: 2}}\n  condition: s\n", 5, "not valid YAML"),
        ("title: [\n", 2, "not valid YAML"),
        ("title: t\n  bad: indent\n", 2, "not valid YAML"),
        ('title: "\\ud800"\n', 1, "not valid YAML"),
        ("title: !!python/object:os.system x\n", 1, "not valid YAML"),
    ],
)
def test_a_document_that_cannot_run_is_refused(text: str, line: int, says: str) -> None:
    """Conditions are refused at the condition, YAML at its mark, the rest at the document or its detection."""
    at, why = reason(text)
    assert says.lower() in why.lower()
    assert why
    assert at == line


def test_one_bad_document_leaves_the_others() -> None:
    """A file of several documents: each runs or is refused by itself, under its own line."""
    good = "title: {0}\nlogsource: {{product: x}}\ndetection: {{s: {{f: {0}}}, condition: s}}\n"
    bad = "title: bad\nlogsource: {product: x}\ndetection: {s: {f|no: 1}, condition: s}\n"
    rules = compiled("---\n".join([good.format("a"), bad, "", good.format("b"), "title: u\nid: 1\nid: 2\n"]))
    assert [rule.title for rule in rules.rules] == ["a", "b"]
    assert [(refusal.line, refusal.title) for refusal in rules.refused] == [(7, "bad"), (16, "")]
    assert [predicate.value for predicate in rules.predicates] == ["a", "b"]


@pytest.mark.parametrize(
    "broken", ["title: [", "a: &x\n  b: *y", "a: {{ x }}", "'no end", "a:\n\t- b", "{{% x %}}", "[" * 99]
)
def test_a_document_that_is_not_yaml(broken: str) -> None:
    """It is refused by its own line, and those beside it run; of a collection nothing runs, as what the broken document
    gives to the others is not known."""
    good = "title: {0}\nlogsource: {{product: x}}\ndetection: {{s: {{f: {0}}}, condition: s}}\n"
    text = f"{good.format('a')}---\n{broken}\n---\n{good.format('b')}"
    rules = compiled(text)
    assert [(rule.title, rule.line) for rule in rules.rules] == [("a", 1), ("b", 7 + broken.count("\n"))]
    assert len(rules.refused) == 1
    assert 5 <= rules.refused[0].line <= 7 + broken.count("\n")
    if not rules.refused[0].reason.startswith("not valid YAML: a mapping"):  # which is YAML
        assert not compiled(f"action: global\nlevel: low\n---\n{text}").rules


def test_bytes_that_are_no_text() -> None:
    """A file that is not UTF-8 is refused, not raised."""
    rules = build.read(b"title: \xff\xfe\xfd", "rule.yml")
    assert "not valid YAML" in rules.refused[0].reason
    build.add(rules, b"\x00\x01", "rule.yml")
    assert len(rules.refused) == 2


def test_an_id_runs_once() -> None:
    """The second rule of an id is refused and leaves no predicate behind."""
    document = (
        "title: {0}\nid: 929a690e-bef0-4204-a928-ef5e620d6fcc\nlogsource: {{product: x}}\n"
        "detection: {{s: {{f: {0}}}, condition: s}}\n"
    )
    rules = compiled(document.format("a") + "---\n" + document.format("b"))
    assert [rule.title for rule in rules.rules] == ["a"]
    assert "is used by an earlier rule" in rules.refused[0].reason
    assert len(rules.predicates) == 1


def test_aliases_that_explode_are_refused() -> None:
    """A few lines of YAML that stand for a billion values cost nothing."""
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefghij", "abcdefghi", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    rules = compiled(bomb + f"{HEAD}  s: {{f: *j}}\n  condition: s\n")
    assert not rules.rules
    assert rules.refused


def test_deep_conditions_are_refused_or_run() -> None:
    """Nesting beyond the bound is a refusal and never a crash."""
    for depth in (50, 90, 200, 3000):
        rules = compiled(f"{HEAD}  s: {{f: 1}}\n  condition: {'not ' * depth}s\n")
        assert len(rules.rules) + len(rules.refused) == 1
        assert bool(rules.rules) == (depth <= MAX_DEPTH)


def test_wide_conditions_run() -> None:
    """A thousand selections are one OR."""
    names = [f"s{i}" for i in range(1000)]
    body = "".join(f"  {name}: {{f: {name}}}\n" for name in names)
    assert compiled(f"{HEAD}{body}  condition: 1 of s*\n").rules[0].expr == Or(tuple(map(Leaf, range(1000))))


def test_rule_files_of_folders(tmp_path: Path) -> None:
    """Folders are read recursively in order; test events and other files are no rules; a missing path is an error."""
    for name in ("b/z.yml", "a.yaml", "b/a.yml", "a.test.yml", "b/note.txt", "c.test.yaml", "d.v2.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = [str(path.relative_to(tmp_path)) for path in build.files([tmp_path])]
    assert found == ["a.yaml", "b/a.yml", "b/z.yml", "d.v2.yml"]
    assert list(build.files([tmp_path / "b/note.txt"])) == [tmp_path / "b/note.txt"]
    with pytest.raises(FileNotFoundError, match="no such rule file"):
        list(build.files([tmp_path / "nothing"]))


def test_file_names_that_are_no_utf8(tmp_path: Path) -> None:
    """A rule in a file with a strange name runs, and the plan of it can be written."""
    path = tmp_path / "bad\udcff.yml"
    path.write_text(f"{HEAD}  s: {{f: 1}}\n  condition: s\n")
    plan = build.build([path])
    assert len(plan.rules) == 1
    assert plan.to_bytes()
    assert plan.digest
    gone = tmp_path / "gone.yml"
    gone.symlink_to(tmp_path / "nowhere")
    assert [rule.title for rule in build.load([path]).rules] == ["t"]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["s", "1 of s*", "all of them", "not s", "a*b", "%x%", "10.0.0.0/8", "2025-01-01", "high", "test", ""]
    ),
    st.dates(),
)
NAMES = st.one_of(st.text(max_size=5), st.integers(), st.sampled_from(["f", "f|re", "|all", "s"]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner),
    ),
    max_leaves=6,
)
KEYS = (
    *("title", "id", "name", "status", "level", "tags", "fields", "date", "modified", "author", "references"),
    *("falsepositives", "related", "taxonomy", "license", "scope", "description", "logsource", "detection", "custom"),
)
MODIFIERS = (
    *("contains", "startswith", "endswith", "all", "re", "i", "m", "s", "cidr", "windash", "base64", "base64offset"),
    *("wide", "utf16", "utf16be", "lt", "lte", "gt", "gte", "neq", "exists", "cased", "fieldref", "expand", "minute"),
    *("hour", "day", "week", "month", "year", "nonsense", ""),
)


@examples(200)
@given(st.data())
def test_any_yaml_is_answered(data: st.DataObject) -> None:
    """Whatever stands where in a document: it is a rule or a refusal, and a rule's plan can be made."""
    item = "|".join(["f", *data.draw(st.lists(st.sampled_from(MODIFIERS), max_size=3))])
    document: dict[str, Any] = {
        "title": "t",
        "logsource": {"product": "x"},
        "detection": {"s": {item: data.draw(VALUES)}, "condition": data.draw(st.one_of(st.just("s"), VALUES))},
    }
    for key in data.draw(st.lists(st.sampled_from(KEYS), max_size=2)):
        document[key] = data.draw(VALUES)
    rules = compiled(yaml.safe_dump(document))
    assert len(rules.rules) + len(rules.refused) == 1
    plan = build.from_rules(rules)
    assert Plan.from_bytes(plan.to_bytes()) == plan
    if rules.rules:
        Engine(plan).true(from_mapping({"f": "x"}))
