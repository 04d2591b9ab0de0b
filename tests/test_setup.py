"""tools/setup.sh and .ci/run: which Python an environment is made with, when it and the kernel are made, how CI ends.

Nothing is installed here: the Pythons are scripts that answer what is asked of them, and note what they are to install.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KERNEL = "agent/kernel"
PYTHON = """\
case "$*" in
*version_info*) exit {supported} ;;
*sys.version*) echo {name} ;;
"-m venv"*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
*"pip install"*)
    echo "{name}" "$@" >>calls
    case "$*" in *"-v -e ."*)
        echo "  error: no such crate"
        [ {built} != 0 ] || echo new >agent/vedette/_kernel.abi3.so
    esac ;;
*"import vedette._kernel"*) [ {built} = 0 ] || {{ echo "ImportError: no kernel" >&2; exit 1; }} ;;
esac
"""


class Tree:
    """A project that only has what set-up reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools").mkdir()
        (folder / "agent/vedette").mkdir(parents=True)
        for name in ("tools/setup.sh", "tools/kernel.sh", "pyproject.toml", "requirements.lock"):
            shutil.copyfile(ROOT / name, folder / name)
        for name in ("Cargo.toml", "Cargo.lock", "src/lib.rs"):
            (folder / KERNEL / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / KERNEL / name, folder / KERNEL / name)
        self.library = folder / "agent/vedette/_kernel.abi3.so"
        self.cargo("1.99.0")

    def program(self, name: str, text: str) -> str:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
        return str(path)

    def python(self, name: str, *, supported: bool = True, built: bool = True) -> str:
        """A Python named ``name``, also on the PATH."""
        return self.program(name, PYTHON.format(name=name, supported=int(not supported), built=int(not built)))

    def cargo(self, version: str) -> None:
        self.program("cargo", f"echo cargo {version}")

    def setup(self, python: str = "", *more: str, code: int = 0, venv: str = "venv") -> list[str]:
        """What was installed, each line with its Python; or the first line of an error."""
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        around = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        command = ["sh", "tools/setup.sh", python, venv, *more]
        done = subprocess.run(command, cwd=self.folder, env=around, capture_output=True, text=True, check=False)
        self.printed = done.stdout
        assert done.returncode == code, done.stderr
        return done.stderr.splitlines()[:1] if code else calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_installed_once_by_hash(tree: Tree) -> None:
    """What the lock names is installed by hash, our own package without its dependencies; a second time nothing is."""
    python = tree.python("one")
    *locked, own, kernel = tree.setup(python)
    assert len(locked) == 2
    assert all("--require-hashes -r" in line and "--no-build-isolation" in line for line in locked)
    assert own.endswith(
        "-q --disable-pip-version-check --no-deps --no-build-isolation --use-pep517"
        " --config-settings=editable_mode=compat -e ."
    )
    assert kernel.endswith("--no-deps --no-build-isolation --use-pep517 --config-settings=editable_mode=compat -v -e .")
    assert "native kernel: built" in tree.printed
    assert tree.setup(python) == []
    assert not tree.printed


def test_packages_alone(tree: Tree) -> None:
    """First what the lock names, then ours and the kernel: each once."""
    python = tree.python("one")
    assert len(tree.setup(python, "packages")) == 2
    assert tree.setup(python, "packages") == []
    own, kernel = tree.setup(python)
    assert own.endswith("-e .")
    assert kernel.endswith("-v -e .")
    assert tree.setup(python) == tree.setup(python, "packages") == []


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
    # What the lock names has not changed with pyproject.toml; the kernel is built with what that says.
    assert len(installed) == (2 if changed == "pyproject.toml" else 3)
    assert tree.setup(python) == []


def test_interrupted(tree: Tree) -> None:
    """What was interrupted before its end is done again."""
    python = tree.python("one")
    tree.setup(python)
    (tree.folder / "venv/.installed").unlink()
    assert len(tree.setup(python)) == 3


@pytest.mark.parametrize("changed", ["src/lib.rs", "Cargo.lock", "the library is gone"])
def test_the_kernel_alone(tree: Tree, changed: str) -> None:
    """The kernel is built again when its sources have changed, and nothing else is installed."""
    python = tree.python("one")
    tree.setup(python)
    if changed == "the library is gone":
        tree.library.unlink()
    else:
        with (tree.folder / KERNEL / changed).open("a") as file:
            file.write("# changed")
    (installed,) = tree.setup(python)
    assert installed.endswith("-v -e .")
    assert tree.printed == "native kernel: built\n"


def test_one_library_for_all(tree: Tree) -> None:
    """A second environment takes the library that is there, also when it installs our own package."""
    tree.setup(tree.python("one"))
    tree.library.write_text("of the first")
    assert not [line for line in tree.setup(tree.python("two"), venv="other") if " -v " in line]
    assert tree.library.read_text() == "of the first"


def test_not_built(tree: Tree) -> None:
    """A kernel that cannot be built fails nothing: set-up says why, and no library of older sources stays behind."""
    tree.library.write_text("old")
    python = tree.python("one", built=False)
    assert tree.setup(python)
    assert tree.printed.endswith(
        "native kernel: not built (ImportError: no kernel: error: no such crate; more in build/kernel.log); "
        "the agent evaluates in Python\n"
    )
    assert not tree.library.exists()
    (again,) = tree.setup(python)
    assert again.endswith("-v -e .")


@pytest.mark.parametrize(
    ("apt", "root", "says"),
    [
        ("cargo-web 1.96.0+dfsg1-1", False, "sudo apt-get install -y cargo-web rustc-web gcc libc6-dev)"),
        ("cargo 1:1.91.1ubuntu1", False, "sudo apt-get install -y cargo rustc gcc libc6-dev)"),
        ("cargo 1.75.0", False, "is missing, and apt has no such version: https://rustup.rs)"),
        ("cargo-web 1.96.0+dfsg1-1", True, "native kernel: built"),
    ],
)
def test_no_rust(tree: Tree, apt: str, root: bool, says: str) -> None:
    """Root installs Rust, where Debian has a new enough one; any other user is told the line, and set-up goes on."""
    package, version = apt.split()
    tree.program("cargo", "exit 127")
    tree.program("id", f"echo {0 if root else 1000}")
    tree.program("apt-get", 'echo "$@" >>installed')
    tree.program("apt-cache", f'[ "$2" != {package} ] || echo "  Candidate: {version}"')
    tree.setup(tree.python("one"))
    assert says in tree.printed
    installed = tree.folder / "installed"
    assert installed.exists() == root
    if root:
        assert installed.read_text().endswith("--no-install-recommends cargo-web rustc-web gcc libc6-dev\n")


def test_an_old_rust(tree: Tree) -> None:
    """It is named with the version that is needed, and nothing is installed in its place."""
    tree.cargo("1.63.0")
    tree.setup(tree.python("one"))
    needed = tomllib.loads((ROOT / KERNEL / "Cargo.toml").read_text())["package"]["rust-version"]
    assert f"native kernel: not built (Rust 1.63.0 is older than {needed})" in tree.printed


def kernel(tree: Tree, what: str) -> subprocess.CompletedProcess[str]:
    """``tools/kernel.sh`` with the Python of the environment, as `make lint` and `make test` call it."""
    around = {**os.environ, "PATH": f"{tree.folder / 'bin'}:{os.environ['PATH']}"}
    command = ["sh", "tools/kernel.sh", what, "venv/bin/python"]
    return subprocess.run(command, cwd=tree.folder, env=around, capture_output=True, text=True, check=False)


def test_the_kernel_is_tested_where_it_can_be_built(tree: Tree) -> None:
    """`make test` fails where there is Rust and no kernel; without Rust it says so."""
    tree.setup(tree.python("one", built=False))
    done = kernel(tree, "test")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1, "native kernel: there is a Rust, but no kernel; see build/kernel.log",
    )  # fmt: skip
    tree.program("cargo", "exit 127")
    done = kernel(tree, "test")
    assert (done.returncode, done.stdout.partition(" (")[0]) == (0, "native kernel: not tested")


@pytest.mark.parametrize("missing", ["fmt", "clippy", "fmt clippy"])
@pytest.mark.parametrize("finds", ["nothing", "fmt", "clippy"])
def test_the_kernel_is_linted(tree: Tree, missing: str, finds: str) -> None:
    """What a part of Rust that is there finds fails `make lint`; a part that is missing is named."""
    tree.program(
        "cargo",
        f"""case "$*" in
--version) echo cargo 1.99.0 ;;
*--version) case " {missing} " in *" $1 "*) exit 101 ;; esac ;;
"{finds}"*) exit 1 ;;
esac""",
    )
    tree.setup(tree.python("one"))
    done = kernel(tree, "lint")
    assert done.returncode == (finds != "nothing" and finds not in missing.split())
    if not done.returncode:
        assert [line.split()[3] for line in done.stdout.splitlines()] == missing.split()


def test_a_python_that_is_not_supported(tree: Tree) -> None:
    """It is refused by name, and no other is taken in its place; nothing is made."""
    python = tree.python("old", supported=False)
    assert tree.setup(python, code=1) == [f"Vedette needs Python 3.11, 3.12 or 3.13, which {python} is not."]
    assert not (tree.folder / "venv").exists()


MAKEFILE = """\
test:
\t@mkdir -p .venv/bin && ln -sf {python} .venv/bin/python && cp pytest .venv/bin/pytest
\t@sleep 300 & echo $$! >stray
\t@echo "3 passed, 1 skipped in 2.50s"
\t@exit {quick}
"""
PYTEST = """\
#!/bin/sh
echo "$@" >>runs
case "$*" in
*last-failed*) echo "1 passed in 4.00s"; exit {again} ;;
*test_reached*) [ {reached} = 0 ] || echo "FAILED test_reached"; echo "5 passed in 5.00s"; exit {reached} ;;
*test_other*) [ {others} = 0 ] || echo "FAILED test_other"; echo "6 passed in 6.00s"; exit {others} ;;
*) echo "2 passed in 1.00s"; exit {newer} ;;
esac
"""
REACH = """\
import subprocess, sys
base = subprocess.run("git hash-object -t tree /dev/null", shell=True, capture_output=True, text=True).stdout.strip()
print(base) if "--base" in sys.argv else print("test_reached", "", "test_other", sep="\\n")
"""
PARTS = {"quick": 0, "reached": 0, "again": 0, "others": 0, "newer": 0}


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ({}, 0),
        ({"quick": 1}, 1),
        ({"newer": 1}, 1),
        ({"reached": 1}, 0),
        ({"reached": 1, "again": 1}, 1),
        ({"others": 1}, 0),
    ],
    ids=str,
)
def test_what_ci_runs(tmp_path: Path, ends: dict[str, int], code: int) -> None:
    """.ci/run fails when a part of its fails, but for tests that the change cannot reach, and for long ones that pass
    alone; it ends with what pytest said, names the Pythons, and leaves nothing running."""
    for name in (".ci", "tools", "bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copyfile(ROOT / ".ci/run", tmp_path / ".ci/run")
    parts = {**PARTS, **ends}
    (tmp_path / "Makefile").write_text(MAKEFILE.format(python=sys.executable, quick=parts["quick"]))
    (tmp_path / "pytest").write_text(PYTEST.format(**parts))
    (tmp_path / "tools/setup.sh").write_text('mkdir -p "$2/bin" && cp pytest "$2/bin"\n')
    (tmp_path / "tools/reach.py").write_text(REACH)
    (tmp_path / "pyproject.toml").write_text("\n")
    for file in ("pytest", "bin/python3.13"):
        (tmp_path / file).touch()
        (tmp_path / file).chmod(0o755)
    (tmp_path / "bin/python3.13").write_text('#!/bin/sh\ncase "$2" in *platform*) echo 3.13.99 ;; esac\n')
    for words in ("init -q", "add pyproject.toml", "-c user.name=a -c user.email=a@b commit -qm a"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    around = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    used, newer, *_, last = done.stdout.splitlines()[-5 - parts["reached"] :]
    assert (newer, last) == ("2 passed in 1.00s", "3 passed, 1 skipped in 2.50s")
    assert platform.python_version() in used
    assert "3.13.99" in used
    assert ((tmp_path / "build/unreached-failures").exists()) == bool(parts["others"])
    stray = Path("/proc", (tmp_path / "stray").read_text().strip(), "cmdline")
    assert not stray.exists() or not stray.read_bytes(), "it still runs"
