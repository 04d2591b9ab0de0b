"""A command in a fork of a process that has imported the program does what it does in a Python of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warm import Done, Warm


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    made = Warm()
    yield made
    made.end()


@pytest.mark.parametrize(
    "words", ["version", "fleet plan missing.toml --trust nowhere", "bundle keygen {key}", "nothing"]
)
def test_it_is_the_same(warm: Warm, words: str, tmp_path: Path) -> None:
    """What it prints and how it ends: done, not done, a file that is there the second time, wrong usage."""
    arguments = words.format(key=tmp_path / "key.pem").split()
    first, again = warm.run(arguments), warm.run(arguments)
    cold = subprocess.run([sys.executable, "-m", "vedette", *arguments], capture_output=True, check=False)
    assert again == Done(cold.returncode, cold.stdout, cold.stderr)
    assert first is not None
    assert (first == again) is ("key" not in words)


def test_what_acts_at_the_start_needs_a_start(warm: Warm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another environment or folder is not that of the process which forks."""
    assert warm.run(["version"]) is not None
    with monkeypatch.context() as patch:
        patch.setenv("VEDETTE_ANYTHING", "1")
        assert warm.run(["version"]) is None
    monkeypatch.chdir(tmp_path)
    assert warm.run(["version"]) is None
