"""Rule files made to blow up: refused or bounded by name, in little time and memory, by the compiler and by a plan."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from vedette.model.event import LogSource
from vedette.plan import limits
from vedette.plan import plan as plans
from vedette.plan.ir import Leaf, Op, Predicate, Rule
from vedette.plan.limits import SetFull, Tally, weight
from vedette.plan.plan import Plan
from vedette.rules import build

HEAD = "title: T\nid: 929a690e-bef0-4204-a928-ef5e620d6fcc\nstatus: test\nlogsource: {product: linux}\nlevel: low\n"


def rule(selection: str, condition: str = "s", head: str = HEAD) -> str:
    return f"{head}detection:\n  s: {selection}\n  condition: {condition}\n"


def _bomb() -> str:
    text = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefghij", "abcdefghi", strict=True):
        text += f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    return text


BOMB = _bomb()
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 3000))
MANY = "".join(f"      - value{i}\n" for i in range(60_000))
SEARCHES = "".join(f"  s{i}: {{f{i}: {i}}}\n" for i in range(300))
HOSTILE = {
    "conditions in each other": (rule("{f: 1}", "not " * 10_000 + "s"), "nested too deep: the limit is 100 levels"),
    "a long condition": (rule("{f: 1}", "s and (" * 10_000 + "s" + ")" * 10_000), "longer than 65536 characters"),
    "conditions of conditions": (
        f"{HEAD}detection:\n{SEARCHES}  condition: {' and '.join(['1 of s*'] * 300)}\n",
        "more than 50000 tests in one rule",
    ),
    "lists in lists": (rule("[" * 100_000 + "]" * 100_000), "line 7: nested deeper than 60"),
    "mappings in mappings": (rule("{a: " * 20_000 + "1" + "}" * 20_000), "line 7: nested deeper than 60"),
    "a list without end": (rule(f"\n    f|contains:\n{MANY}"), "more keys and values (aliases expanded) than 50000"),
    "a file without end": (rule("{f: 1}") + "#" * (9 << 20), "more than 8388608 bytes"),
    "aliases in a search": (BOMB + rule("{f: *j}"), "aliases expanded) than 50000"),
    "aliases in fields": (BOMB + "fields: *j\n" + rule("{f: 1}"), "aliases expanded) than 50000"),
    "aliases in descriptions": (BOMB + "references: *j\n" + rule("{f: 1}"), "aliases expanded) than 50000"),
    "aliases of aliases": (CHAIN + rule("{f: 1}"), "aliases nest deeper than 60"),
    "a global for thousands": (
        "action: global\nx: [" + "1, " * 40_000 + "]\n" + "".join(f"---\ntitle: {i}\n" for i in range(100)),
        "more than 1000000 keys and values, actions expanded",
    ),
    "repeats in repeats": (rule("{'f|re': '(a.{1000}){1000}'}"), "spells out 1001000 characters: the limit is 5000"),
    "a long repeat": (rule("{'f|re': '.{30000}x'}"), "spells out 30001 characters"),
    "countless repeats": (rule("{'f|re': '((((a{1,999}){999}){999}){999}){999}'}"), "countless characters"),
    "repeats in a look-ahead": (rule("{'f|re': '(?=(a{1,1000}){1,1000})b'}"), "spells out 1000"),
    "groups in groups": (rule("{'f|re': '" + "(" * 10_000 + "a" + ")" * 10_000 + "'}"), "nested too deep"),
    "many parts": (rule("{f: '" + "*a?" * 5000 + "'}"), "15000 parts between wildcards: the limit is 200"),
    "a long value": (rule("{'f|base64offset|contains': '" + "x" * 1_000_000 + "'}"), "characters: the limit is 65536"),
    "a long number": (rule("{f: " + "9" * 200_000 + "}"), "4300 digits"),
    "a long title": (rule("{f: 1}", head=HEAD.replace("title: T", "title: " + "T" * 100_000)), "must not exceed 256"),
}


@walk("name", HOSTILE)
def test_refused_by_name(name: str) -> None:
    """Each is one refusal that names the bound, short enough to be shown; the rule after it in a set still runs."""
    text, says = HOSTILE[name]
    plan = build.from_text(text)
    assert plan.rules == ()
    assert [says in refusal.reason for refusal in plan.refused[:1]] == [True], plan.refused[0].reason[:300]
    assert all(len(refusal.reason) < 1200 and len(refusal.title) <= 1000 for refusal in plan.refused)


def test_within_the_bounds_they_run() -> None:
    """What is large and in use runs: 10,000 brackets, 2,000 values, a repeat of a thousand, shared lists."""
    for text in (
        rule("{f: 1}", "(" * 10_000 + "s" + ")" * 10_000),
        rule("\n    f|contains:\n" + "".join(f"      - value{i}\n" for i in range(2000))),
        rule("{'f|re': '[a-z]{1000,}'}"),
        rule("{f: &v [1, 2, 3], g: *v, h: *v}"),
    ):
        plan = build.from_text(text)
        assert (len(plan.rules), plan.refused) == (1, ())


@pytest.mark.long
def test_all_at_once_in_little_time_and_memory(tmp_path: Path) -> None:
    """``bundle build`` and ``rules lint`` over all of them beside a good rule, with 30 s of CPU time and 1.5 GiB:
    both end in order, and the good rule is built."""
    for i, (text, _) in enumerate(HOSTILE.values()):
        (tmp_path / f"{i}.yml").write_text(text)
    (tmp_path / "0.test.yml").write_text(BOMB + "z: *j\n")
    (tmp_path / "good.test.yml").write_text("[" * 100_000)
    (tmp_path / "good.yml").write_text(rule("{f: 1}").replace("929a690e", "00000000"))

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1536 << 20,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))

    out = tmp_path / "out.vbundle"
    for command in (
        ["bundle", "build", str(tmp_path), "-o", str(out), "--version", "1"],
        ["rules", "lint", str(tmp_path)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "vedette", *command], capture_output=True, text=True, preexec_fn=bounded, check=False
        )
        assert done.returncode in (0, 1), done.stderr[-1000:]
        assert "Traceback" not in done.stderr
    assert out.exists()


def test_a_set_is_bounded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that are small by themselves fill the set: those before the bound run, those after it are refused, and a
    refused rule leaves room for a smaller one."""
    monkeypatch.setattr(limits, "MAX_OF_FIELD", 10)
    monkeypatch.setattr(limits, "MAX_REPEATS", 100)
    values = ["[a, b, c, d]", "[e, f, g, h]", "[i, j, k]", "[l, m]", "[n]"]
    texts = [rule(f"{{f: {value}}}").replace("929a690e", f"0000000{i}") for i, value in enumerate(values)]
    plan = build.from_text("---\n".join(texts))
    assert [r.id[7] for r in plan.rules] == ["0", "1", "3"]
    assert all("more than 10 tests of the field 'f'" in refusal.reason for refusal in plan.refused)
    texts = [rule(f"{{'f|re': 'a{i}{{60}}'}}").replace("929a690e", f"0000000{i}") for i in range(3)]
    plan = build.from_text("---\n".join(texts))
    assert len(plan.rules) == 1
    assert "counted repeats" in plan.refused[0].reason
    monkeypatch.setattr(limits, "MAX_WEIGHTS", 100)
    texts = [rule(f"{{'f|re': 'b{i}{'.x' * 30}'}}").replace("929a690e", f"0000000{i}") for i in range(3)]
    plan = build.from_text("---\n".join(texts))
    assert [r.id[7] for r in plan.rules] == ["0"]
    assert "regular expressions have more than 100 characters together" in plan.refused[0].reason


@pytest.mark.parametrize(
    "predicate",
    [
        Predicate("f", Op.REGEX, "(a{1000}){1000}", True),
        Predicate("f", Op.EXACT, "x" * 70_000),
        Predicate("f", Op.GLOB, ("\x00*", "a") * 200),
    ],
)
def test_a_plan_beyond_the_bounds(predicate: Predicate) -> None:
    """A plan from elsewhere that holds what the compiler refuses is refused where it arrives."""
    one = Rule("id", "t", "low", (), LogSource(), (), Leaf(0), "d", "p", 1)
    data = plans.Plan((predicate,), (one,), (None,)).to_bytes()
    with pytest.raises(ValueError, match=r"not a plan that this version can run: a (value|regular expression)"):
        Plan.from_bytes(data)


def test_a_plan_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one with more rules or tests than a set may have."""
    predicates = tuple(Predicate("f", Op.EXACT, str(i)) for i in range(20))
    data = plans.Plan(predicates, (), ()).to_bytes()
    monkeypatch.setattr(limits, "MAX_OF_FIELD", 19)
    with pytest.raises(ValueError, match="more than 19 tests of the field 'f'"):
        Plan.from_bytes(data)


@walk(
    ("source", "expected"),
    [
        ("abc", 3), ("a{2,5}", 5), ("a{9,}", 9), ("a{3}", 3), ("(ab{3}){4}", 16), ("(?:a|bc)+", 4), ("[a-z]{10}x", 11),
        (r"\{9999\}", 6), ("[{9999}]", 1), ("a{,7}", 7), ("x{}", 2), ("a{0}", 1), ("(", 0), (")))", 3),
    ],
)  # fmt: skip
def test_weight(source: str, expected: int) -> None:
    """Counted repeats are spelled out, of groups and classes too; what only looks like one is not."""
    assert weight(source) == expected


@given(st.text(alphabet="ab(){},0123456789|*+?[]\\^", max_size=60))
def test_weight_of_anything(source: str) -> None:
    """Any text has a weight, not below none, and no counted repeat makes it lighter."""
    assert 0 <= weight(source) <= 1 << 40
    assert weight(f"(?:a{{3}}){{7}}{source}") >= 21


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from("fgh"))))
def test_the_tally_adds_up(steps: list[tuple[bool, int, str]]) -> None:
    """What is counted in and out again leaves nothing behind."""
    tally, held = Tally(), []
    for comes, size, name in steps:
        p = Predicate(name, Op.REGEX, f"a{{{size}}}", True)
        if comes:
            try:
                tally.add(p)
            except SetFull:
                continue
            held.append(p)
        elif held:
            tally.remove(held.pop())
        assert tally.count == len(held)
    for p in held:
        tally.remove(p)
    assert (tally.count, tally._repeats, tally._weight, sum(tally._fields.values())) == (0, 0, 0, 0)
