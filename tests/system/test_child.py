"""A module of ours in a process of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vedette.system import child

MODULE = "import sys\nsys.stdout.write(' '.join([__name__, *sys.argv[1:]]))\nsys.exit(3)\n"


def test_it_runs_as_with_m_and_finds_what_we_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only this process's path leads to runs as ``__main__``, with its arguments and its exit code; the
    environment's paths do not count."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "only_here.py").write_text(MODULE)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "json.py").write_text("raise RuntimeError('from the environment')")
    monkeypatch.syspath_prepend(tmp_path / "ours")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    done = subprocess.run(child.command("only_here", "a", "b c"), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode, done.stderr) == ("__main__ a b c", 3, "")
