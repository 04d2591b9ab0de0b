"""tools/setup.sh and .ci/run: which Python an environment is made with, when it is made anew, and how CI ends.

Nothing is installed here: the Pythons are scripts that answer what is asked of them, and note what they are to install.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = """\
#!/bin/sh
case "$*" in
*version_info*) exit {supported} ;;
*sys.version*) echo {name} ;;
"-m venv"*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
*"pip install"*) echo "{name}" "$@" >>calls ;;
esac
"""


class Tree:
    """A project that only has what set-up reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools").mkdir()
        for name in ("tools/setup.sh", "pyproject.toml", "requirements.lock"):
            shutil.copyfile(ROOT / name, folder / name)

    def python(self, name: str, *, supported: bool = True) -> str:
        """A Python named ``name``, also on the PATH."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(PYTHON.format(name=name, supported=int(not supported)))
        path.chmod(0o755)
        return str(path)

    def setup(self, python: str = "", code: int = 0) -> list[str]:
        """What was installed, each line with its Python; or the first line of an error."""
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        done = subprocess.run(
            ["sh", "tools/setup.sh", python, "venv"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stderr.splitlines()[:1] if code else calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_installed_once_by_hash(tree: Tree) -> None:
    """What the lock names is installed by hash, our own package without its dependencies; a second time nothing is."""
    python = tree.python("one")
    *locked, own = tree.setup(python)
    assert len(locked) == 2
    assert all("--require-hashes -r" in line and "--no-build-isolation" in line for line in locked)
    assert own.endswith("-e .")
    assert "--no-deps" in own
    assert tree.setup(python) == []


@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements.lock", "tools/setup.sh", "the Python"])
def test_made_anew(tree: Tree, changed: str) -> None:
    """Another Python than the one that made the environment, or other versions than it has: it is made anew."""
    python = tree.python("one")
    assert tree.setup(python)
    if changed == "the Python":
        python = tree.python("two")
    else:
        with (tree.folder / changed).open("a") as file:
            file.write("\n# changed\n")
    installed = tree.setup(python)
    assert {line.split()[0] for line in installed} == {"two" if changed == "the Python" else "one"}
    assert len(installed) == (1 if changed == "pyproject.toml" else 3)  # what the lock names has not changed with it
    assert tree.setup(python) == []


def test_interrupted(tree: Tree) -> None:
    """What was interrupted before its end is done again."""
    python = tree.python("one")
    tree.setup(python)
    (tree.folder / "venv/.installed").unlink()
    assert len(tree.setup(python)) == 3


def test_a_python_that_is_not_supported(tree: Tree) -> None:
    """It is refused by name, and no other is taken in its place; nothing is made."""
    python = tree.python("old", supported=False)
    assert tree.setup(python, code=1) == [f"Vedette needs Python 3.11, 3.12 or 3.13, which {python} is not."]
    assert not (tree.folder / "venv").exists()


MAKEFILE = """\
test:
\t@mkdir -p .venv/bin && ln -sf {python} .venv/bin/python
\t@sleep 300 & echo $$! >stray
\t@echo "3 passed, 1 skipped in 2.50s"
\t@exit {code}
"""


@pytest.mark.parametrize(
    ("whole", "unit"), [(0, 0), (1, 0), (0, 1)], ids=["green", "the whole fails", "the smoke fails"]
)
def test_what_ci_runs(tmp_path: Path, whole: int, unit: int) -> None:
    """.ci/run fails when a part fails, ends with what pytest said, names the Pythons, and leaves nothing running."""
    for name in (".ci", "tools", "bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copyfile(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "Makefile").write_text(MAKEFILE.format(python=sys.executable, code=whole))
    (tmp_path / "tools/setup.sh").write_text("true\n")
    (tmp_path / "tools/test.sh").write_text(f'echo "2 passed in 1.00s"\nexit {unit}\n')
    newest = tmp_path / "bin/python3.13"
    newest.write_text('#!/bin/sh\ncase "$2" in *platform*) echo 3.13.99 ;; esac\n')
    newest.chmod(0o755)
    around = {**os.environ, "PATH": f"{newest.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, env=around, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == (1 if whole or unit else 0), done.stderr
    *_, used, smoke, last = done.stdout.splitlines()
    assert (smoke, last) == ("2 passed in 1.00s", "3 passed, 1 skipped in 2.50s")
    assert platform.python_version() in used
    assert "3.13.99" in used
    stray = Path("/proc", (tmp_path / "stray").read_text().strip(), "cmdline")
    assert not stray.exists() or not stray.read_bytes(), "it still runs"
