"""bench/prefilter.py: candidates and cost of a stream, by the engine as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench import rules
from bench.traffic import lines


def test_what_the_prefilter_leaves(tmp_path: Path) -> None:
    """The command prints shares, costs and matches, and the matches are those without the prefilter."""
    sample, stream = list(lines(1, 5000)), list(lines(2, 3000))
    rules.write(tmp_path / "rules", rules.rules(3, 60, sample, share=0.2, alert_share=0.05))
    for name, content in (("sample.log", sample), ("stream.log", stream)):
        (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in content))
    command = [sys.executable, "-m", "bench.prefilter", "--format", "syslog", "--product", "linux"]
    files = ["--rules", tmp_path / "rules", "--sample", tmp_path / "sample.log", "--check", tmp_path / "stream.log"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["events"], told["rules"], told["equal_without_prefilter"]) == (3000, 60, True)
    assert 0 < told["candidates"] < 0.6
    assert told["matches"] > 0
    assert told["scan_us"] > 0
