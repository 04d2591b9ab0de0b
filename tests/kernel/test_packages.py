"""The packages that pip builds and installs: the wheel carries the kernel for every supported Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from vedette.engine import kernel

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.long, pytest.mark.skipif(kernel.why_not == "not built", reason="the kernel is not built")]
BACKEND = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(what: str, source: Path, output: Path, **environment: str) -> Path:
    """What pip has the build backend do in ``source``."""
    output.mkdir(exist_ok=True)
    around = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "agent/kernel/target"), **environment}
    around["PATH"] += f":{os.environ.get('CARGO_HOME') or Path.home() / '.cargo'}/bin"
    done = subprocess.run(
        [sys.executable, "-c", BACKEND, what, output],
        cwd=source,
        env=around,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return output / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project unpacked from its source archive, which holds all that the kernel is built from."""
    tree = tmp_path_factory.mktemp("source") / "tree"
    shutil.copytree(
        ROOT / "agent", tree / "agent", ignore=shutil.ignore_patterns("target", "__pycache__", "*.egg-info")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copyfile(ROOT / name, tree / name)
    archive = build("build_sdist", tree, tree / "dist")
    subprocess.run(["tar", "-xzf", archive, "-C", tree.parent], check=True)
    return tree.parent / archive.name.removesuffix(".tar.gz")


def newest() -> str:
    """Another supported Python, where there is one."""
    for name in ("python3.13", "python3.12"):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return sys.executable


def test_the_wheel(source: Path, tmp_path: Path) -> None:
    """One for all supported Pythons; the kernel in it is imported by the oldest and the newest there is."""
    wheel = build("build_wheel", source, tmp_path / "wheel")
    assert "-cp311-abi3-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as file:
        assert [name for name in file.namelist() if name.endswith(".so")] == ["vedette/_kernel.abi3.so"]
        file.extractall(tmp_path / "site")
    script = "import vedette._kernel as found; print(found.__file__)"
    for python in (sys.executable, newest()):
        done = subprocess.run(
            [python, "-c", script],
            env={"PYTHONPATH": str(tmp_path / "site")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert Path(done.stdout.strip()).parent == tmp_path / "site/vedette"


def test_a_wheel_without_rust(source: Path, tmp_path: Path) -> None:
    """It is built all the same, without a kernel: not even with one that lies in the source tree from before."""
    tree = shutil.copytree(source, tmp_path / "tree", ignore=shutil.ignore_patterns("build"))
    (tree / "agent/vedette/_kernel.abi3.so").write_bytes(b"old")
    wheel = build("build_wheel", tree, tmp_path / "wheel", CARGO="false")
    with zipfile.ZipFile(wheel) as file:
        assert "vedette/engine/kernel.py" in file.namelist()
        assert not [name for name in file.namelist() if name.endswith(".so")]
