"""Two builds of one commit are equal, whatever the order of a set is in each process: an add-on of the one fits the
other's release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.install.conftest import ROOT

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]


def built(folder: Path, seed: str, *rules: str) -> bytes:
    """A bundle, as `make dist` builds it, by processes with this hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": "1795953600"}
    sample, bundle = folder / f"{seed}.log", folder / f"{seed}.vbundle"
    for arguments in (
        ("bench.traffic", "--count", "200", "--seed", "3", "--attacks", "0.01", "--out", sample),
        ("vedette", "bundle", "build", *rules, "-o", bundle, "--version", "1", "--sample", sample),
    ):
        subprocess.run(
            [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True
        )
    return bundle.read_bytes()


@pytest.mark.parametrize(
    "rules", [("rules/sql/iot",), pytest.param(("rules/sigma", "rules/sql"), marks=pytest.mark.long)]
)
def test_the_starter_bundle(tmp_path: Path, rules: tuple[str, ...]) -> None:
    """The order of test events, which are of several files, is that of the rules, not of their hashes."""
    assert built(tmp_path, "1", *rules) == built(tmp_path, "2", *rules)
