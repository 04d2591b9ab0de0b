"""A module in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

import vedette
from tests.waits import eventually
from vedette.system.child import run, run_async

MODULE = """
import sys
sys.stdout.write(" ".join([__name__, *sys.argv[1:], sys.stdin.read()]))
sys.stderr.write("first\\nlast\\n")
sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where modules lie that only this process's path leads to."""
    (tmp_path / "ours").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "ours")
    return tmp_path / "ours"


def test_it_runs_as_with_m_and_finds_what_we_find(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only this process's path leads to runs as ``__main__``, with its arguments, input and exit
    code; the environment's paths do not count."""
    (folder / "only_here.py").write_text(MODULE)
    other = folder.parent / "other"
    other.mkdir()
    (other / "json.py").write_text("raise RuntimeError('from the environment')")
    monkeypatch.setenv("PYTHONPATH", str(other))
    assert run("only_here", "a", "b c", data=b"given", seconds=30) == (3, b"__main__ a b c given", "last")


def test_bounds(folder: Path) -> None:
    """Too much memory fails in the child; too much time, and a signal, are told apart, and what was written is kept."""
    (folder / "greedy.py").write_text("print('begun', flush=True); x = b'x' * (1 << 30)")
    code, out, complaint = run("greedy", seconds=30, memory=256 << 20)
    assert (code, out, complaint) == (1, b"begun\n", "MemoryError")
    (folder / "slow.py").write_text("import time; print('begun', flush=True); time.sleep(3600)")
    assert run("slow", seconds=2).code is None
    (folder / "crashes.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert run("crashes", seconds=30).code == -signal.SIGSEGV
    with pytest.raises(OSError, match="Argument list too long"):
        run("crashes", "x" * (1 << 20), seconds=30)


def test_a_cancelled_caller_kills_it(folder: Path) -> None:
    """Beside the event loop a child ends with who waits for it."""
    (folder / "slow.py").write_text("import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(3600)")
    begun = folder / "begun"

    async def scenario() -> None:
        task = asyncio.create_task(run_async("slow", str(begun), seconds=3600))
        await eventually("the child", begun.exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_our_own_package_is_found_without_its_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an editable installation finds it by a hook of its own."""
    (folder / "ours_too.py").write_text("import vedette, sys; sys.stdout.write(vedette.__file__)")
    root = str(Path(vedette.__file__).parents[1])
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != root])
    assert run("ours_too", seconds=30) == (0, vedette.__file__.encode(), "")
