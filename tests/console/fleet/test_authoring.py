"""Rules as they are typed: answers with places, and hostile text that ends a child at most."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.console.fleet.kit import ADMIN, VIENNA
from tests.waits import eventually
from vedette_console.fleet import authoring
from vedette_console.fleet.authoring import Authoring
from vedette_console.fleet.models import RuleFile
from vedette_console.fleet.models_asked import EventInput, RuleInput
from vedette_console.settings import Settings
from vedette_console.web import Problem

pytestmark = pytest.mark.long
RULE = """title: Needle
id: 5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a01
logsource: {product: linux}
detection:
    k: [needle]
    condition: k
level: high
"""
BESIDE = RULE.replace("a01", "a02").replace("Needle", "Hay")
CORRELATION = """title: Often
id: 5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a03
correlation:
    type: event_count
    rules: [5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a02]
    group-by: [hostname]
    timespan: 5m
    condition: {gte: 3}
level: high
"""
SQL = "-- title: X\nINSERT INTO alerts SELECT foo FROM auth HAVIN 3\n"


@pytest.fixture
def desk(tmp_path: Path) -> Authoring:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "hay.yml").write_text(BESIDE)
    return Authoring(Settings("", work=tmp_path, rules=(tmp_path / "rules",)))


async def test_lint(desk: Authoring) -> None:
    """Mistakes have line and column, in Sigma and in SQL; a rule may refer to those in the folders beside it."""
    wrong = RULE.replace("k: [needle]", "k: {message|frob: x}")
    answer = await desk.lint(ADMIN, RuleInput(text=wrong, kind="sigma"))
    (error,) = [problem for problem in answer.problems if problem.severity == "error"]
    assert not answer.runs
    assert (error.line, error.column) == (5, 9)
    assert "frob" in error.message
    (error,) = (await desk.lint(ADMIN, RuleInput(text=SQL, kind="sql"))).problems
    assert (error.line, error.column, error.path) == (2, 47, "console_rule.sql")
    answer = await desk.lint(ADMIN, RuleInput(text=RULE, kind="sigma"))
    assert answer.runs
    assert [(rule.title, rule.level, rule.kind) for rule in answer.rules] == [("Needle", "high", "detection")]
    assert (await desk.lint(ADMIN, RuleInput(text=CORRELATION, kind="sigma"))).runs
    assert not (await desk.lint(ADMIN, RuleInput(text=CORRELATION, kind="sigma", beside=False))).runs


async def test_explain_and_test_events(desk: Authoring) -> None:
    """Why a rule fires on an event or not; test events that pass, fail, and are none."""
    answer = await desk.explain(ADMIN, EventInput(text=RULE, kind="sigma", event="a needle <b>"))
    assert answer.matches
    assert any("MATCH" in line for line in answer.lines)
    assert not answer.problems
    assert not (await desk.explain(ADMIN, EventInput(text=RULE, kind="sigma", event="hay"))).matches
    wrong = await desk.explain(ADMIN, EventInput(text=RULE, kind="sigma", event="x", format="nonsense"))
    assert "format" in wrong.stopped
    good = await desk.test(ADMIN, RuleInput(text=RULE, kind="sigma", tests="- match: a needle\n- no_match: hay\n"))
    assert good.ok
    assert good.events == 2
    bad = await desk.test(ADMIN, RuleInput(text=RULE, kind="sigma", tests="- match: hay\n- nonsense: 1\n"))
    assert not bad.ok
    assert "should match and does not" in bad.failures[0].detail
    assert bad.problems[0].line == 2


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\n"
        + "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}' if i else '*a'] * 9)}]\n" for i in range(30)),
        "[" * 100_000,
        "\x00\xff",
        "title: " + "x" * 200_000,
        RULE.replace("[needle]", "{message|re: '(a+)+$(a|a)*'}"),
        RULE.replace("condition: k", "condition: " + "not " * 5000 + "k"),
        "---\n" * 10_000,
    ],
    ids=["aliases", "brackets", "binary", "long", "regex", "nots", "documents"],
)
async def test_hostile_text(desk: Authoring, text: str) -> None:
    """Is answered, as every other."""
    answer = await desk.lint(ADMIN, RuleInput(text=text, kind="sigma", beside=False))
    assert answer.problems or answer.stopped or answer.runs


async def test_bounds(desk: Authoring, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that takes too long, or too much memory, is ended, and the answer says so; beyond those that may wait
    they are refused; no folder is left behind."""
    monkeypatch.setattr(authoring, "SECONDS", 0.05)
    assert "longer than" in (await desk.lint(ADMIN, RuleInput(text=RULE, kind="sigma"))).stopped
    monkeypatch.setattr(authoring, "SECONDS", 60.0)
    monkeypatch.setattr(authoring, "MEMORY", 40 << 20)
    assert (await desk.lint(ADMIN, RuleInput(text=RULE, kind="sigma"))).stopped
    monkeypatch.setattr(authoring, "WAITING", 1)
    running = [asyncio.create_task(desk.lint(ADMIN, RuleInput(text=RULE, kind="sigma"))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Problem) as refused:
        await desk.lint(ADMIN, RuleInput(text=RULE, kind="sigma"))
    assert refused.value.status == 429
    await asyncio.gather(*running)


async def test_one_user_leaves_others_a_turn(desk: Authoring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose rules take long, and who tries many: more than OWN of theirs that wait are refused."""
    monkeypatch.setattr(authoring, "OWN", 2)
    run, begun, slow = authoring.child.run_async, list[bytes](), asyncio.Event()

    async def held(*words: str, data: bytes, **more: Any) -> Any:
        begun.append(data)
        if b"slow" in data:
            await slow.wait()
        return await run(*words, data=data, **more)

    monkeypatch.setattr(authoring.child, "run_async", held)
    heavy = EventInput(text=RULE, kind="sigma", event="slow needle")
    tried = [asyncio.create_task(desk.explain(ADMIN, heavy)) for _ in range(3)]
    await eventually("a child", lambda: begun)
    with pytest.raises(Problem) as refused:
        await desk.explain(ADMIN, heavy)
    assert refused.value.status == 429
    assert (await desk.explain(VIENNA, EventInput(text=RULE, kind="sigma", event="a needle"))).matches
    assert len(begun) == 2
    slow.set()
    assert all(answer.matches for answer in await asyncio.gather(*tried))


async def test_paths(desk: Authoring, tmp_path: Path) -> None:
    """A rule file lies below its folder, whatever it is called."""
    for path in ("../x.yml", "/etc/x.yml", "a//b.yml", "a/../../b.yml"):
        with pytest.raises((Problem, ValueError)):
            authoring.write_rules({RuleFile(path=path, text=RULE).path: RULE}, tmp_path / "below")
    with pytest.raises(Problem, match="a file and a folder"):
        await asyncio.to_thread(authoring.write_rules, {"a.yml": RULE, "a.yml/b.yml": RULE}, tmp_path)
