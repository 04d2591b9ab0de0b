"""The compiler as a process of its own: what it writes, prints and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from vedette.engine.artifact import Artifact
from vedette.plan.plan import Plan

RULE = "title: t\nlogsource: {product: linux}\ndetection: {s: {message|contains: 'one<three'}, condition: s}\n"


def compiler(*arguments: object, sample: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "vedette.rules", *map(str, arguments)]
    return subprocess.run(command, input=sample, capture_output=True, timeout=60, check=False)


def test_it_builds_a_rule_set(tmp_path: Path) -> None:
    """The artifact loads and judges; one JSON line tells rules, refusals and digest; the sample chose the literal."""
    rules, out = tmp_path / "rules", tmp_path / "out.vplan"
    rules.mkdir()
    (rules / "good.yml").write_text(RULE)
    (rules / "bad.yml").write_text("title: [\n")
    done = compiler(out, rules, sample=b"three\n" * 100)
    assert (done.returncode, done.stderr) == (0, b"")
    engine = Artifact.from_bytes(out.read_bytes()).engine()
    assert json.loads(done.stdout) == {"rules": 1, "refused": 1, "digest": engine.plan.digest}
    assert engine.plan.literals == (frozenset({b"one"}),)
    assert engine.plan.refused[0].path == str(rules / "bad.yml")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
    assert Plan.from_bytes(Artifact.from_bytes(out.read_bytes()).plan) == engine.plan


def test_nothing_to_run_is_an_error(tmp_path: Path) -> None:
    """No rule file, only broken ones: exit code 2; a missing path, which may come back: 1. A reason, no artifact."""
    out, folder = tmp_path / "out.vplan", tmp_path / "rules"
    folder.mkdir()
    done = compiler(out, folder)
    assert (done.returncode, done.stderr) == (2, b"no rule can run: no rule file found\n")
    (folder / "bad.yml").write_text("title: [\n")
    done = compiler(out, folder)
    assert done.returncode == 2
    assert b"bad.yml:2:1: not valid YAML" in done.stderr
    done = compiler(out, tmp_path / "nowhere")
    assert done.returncode == 1
    assert b"no such rule file" in done.stderr
    assert not out.exists()


def test_it_refuses_to_write_where_it_cannot(tmp_path: Path) -> None:
    """An output folder that is not there is an error of the host with the path in it: exit code 1."""
    (tmp_path / "good.yml").write_text(RULE)
    done = compiler(tmp_path / "no/such/out.vplan", tmp_path / "good.yml")
    assert done.returncode == 1
    assert b"no/such" in done.stderr
