"""tools/reach.py: what a change can reach, on a small project and on this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.reach import ROOT, Graph, git, mine

PROJECT = {
    "agent/vedette/__init__.py": "",
    "agent/vedette/base.py": "",
    "agent/vedette/user.py": "def use():\n    from vedette.base import name",
    "agent/vedette/started.py": '"""Beside ``vedette.base``."""',
    "agent/vedette/starter.py": 'run("-m", "vedette.started")',
    "agent/vedette/typed.py": "if TYPE_CHECKING:\n    import vedette.base",
    "tests/conftest.py": "import pytest\ndef user():\n    import vedette.user",
    "tests/test_base.py": "import vedette.base",
    "tests/test_user.py": "def test(user): ...",
    "tests/test_starter.py": "from vedette import starter",
    "tests/test_typed.py": "from vedette import typed",
    "tests/e2e/agent.py": 'command = "python", "-m", "vedette"',
    "tests/e2e/test_agent.py": "from tests.e2e.agent import command",
    "tests/e2e/lines.txt": "",
}


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("agent/vedette/base.py", {"test_base", "test_user", "test_agent"}),
        ("agent/vedette/started.py", {"test_starter", "test_agent"}),
        ("agent/vedette/typed.py", {"test_typed", "test_agent"}),
        ("tests/e2e/lines.txt", {"test_agent"}),
        ("tests/conftest.py", {"test_base", "test_user", "test_starter", "test_typed", "test_agent"}),
        ("unknown", {"test_base", "test_user", "test_starter", "test_typed", "test_agent"}),
    ],
)
def test_reached(changed: str, reached: set[str], tmp_path: Path) -> None:
    """By imports, also within functions, by names in strings, through fixtures and programs; never by a docstring."""
    for path, text in PROJECT.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    graph = Graph(tmp_path, [*PROJECT, "unknown"])
    assert {Path(test).stem for test in graph.reached([changed])} == reached


@pytest.mark.long
def test_of_this_project() -> None:
    """A page reaches no agent; a module of the agent reaches the end-to-end tests, and not all else."""
    # Over 3 s: every file of the project is read.
    graph = Graph(ROOT, [path for path in git("ls-files").splitlines() if (ROOT / path).exists()])
    assert "tests/test_docs.py" in graph.reached(["docs/guide.md"])
    assert not any(test.startswith("tests/e2e/") for test in graph.reached(["docs/guide.md"]))
    tail = graph.reached(["agent/vedette/inputs/tail.py"])
    assert {"tests/inputs/test_tail.py", "tests/e2e/test_killed.py"} <= tail < set(graph.tests)


def test_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not on origin's main: commits since, changed files, new ones; without any of them all tests."""

    for path, text in PROJECT.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr("tools.reach.ROOT", tmp_path)
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        git(*words)
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    tests = {f"tests/test_{name}.py" for name in ("base", "user", "starter", "typed")} | {"tests/e2e/test_agent.py"}
    assert mine() == tests
    (tmp_path / "tests/test_new.py").write_text("")
    assert mine() == {"tests/test_new.py"}
    (tmp_path / "tests/test_typed.py").write_text("changed")
    assert mine() == {"tests/test_new.py", "tests/test_typed.py"}
    git("add", ".")
    git(*identity, "commit", "-qm", "second")
    assert mine() == {"tests/test_new.py", "tests/test_typed.py"}
    (tmp_path / "tests/test_new.py").unlink()
    assert mine() == {"tests/test_typed.py"}
