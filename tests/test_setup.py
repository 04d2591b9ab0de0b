"""tools/setup.sh: which Python an environment is made with, and when it is made anew. Nothing is installed here: the
Pythons are scripts that answer what set-up asks of them, and keep account of what they are told to install."""

from __future__ import annotations

import shutil
import subprocess
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
    assert {line.split()[0] for line in tree.setup(python)} == {"two" if changed == "the Python" else "one"}
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
