"""Whether the native kernel is in use, and that every page of the status says so, or why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import vedette
from vedette.cli.main import main
from vedette.engine import kernel
from vedette.runtime.agent.metrics import METRICS, samples

ASK = "from vedette.engine import kernel; print(kernel.LOADED is not None, kernel.why_not)"
built = pytest.mark.skipif(kernel.why_not == "not built", reason="the native kernel is not built here")


def asked(folder: Path | None = None, **environment: str) -> str:
    """What another process says of its kernel; of the package in ``folder``."""
    around = {name: value for name, value in os.environ.items() if name != kernel.SWITCH} | environment
    if folder:
        around["PYTHONPATH"] = str(folder)
    done = subprocess.run([sys.executable, "-c", ASK], env=around, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package, without a kernel."""
    shutil.copytree(Path(vedette.__file__).parent, tmp_path / "vedette", ignore=shutil.ignore_patterns("_kernel*.so"))
    return tmp_path


@built
def test_in_use() -> None:
    """Where it is built it is used, unless the environment says off."""
    assert asked() == "True None"
    assert asked(VEDETTE_KERNEL="on") == "True None"
    assert asked(VEDETTE_KERNEL="off") == "False switched off by VEDETTE_KERNEL"


def test_not_built(package: Path) -> None:
    assert asked(package) == "False not built"


def test_not_to_be_loaded(package: Path) -> None:
    """A library that is damaged, or for another machine, is named with the loader's reason; all else goes on."""
    (package / "vedette/_kernel.abi3.so").write_bytes(b"\x7fELF and nothing else")
    assert asked(package).startswith("False cannot be loaded: ")


def test_what_check_says(tmp_path: Path) -> None:
    config = tmp_path / "vedette.toml"
    config.write_text('[agent]\nid = "a"\n[[input]]\nname = "f"\ntype = "file"\npaths = ["/f"]\n')
    shown = CliRunner().invoke(main, ["check", "-c", str(config)]).output
    assert f"native kernel: {kernel.why_not or 'in use'}\n" in shown


def test_what_the_metrics_say() -> None:
    (metric,) = (one for one in METRICS if one.name == "kernel_in_use")
    for in_use in (True, False):
        assert list(samples(metric, {"kernel": {"in_use": in_use, "why_not": None}})) == [((), float(in_use))]
