"""bench/harness.py, bench/agent.py, bench/sampler.py: what the figures are made of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from bench import harness
from bench.agent import configuration, directory, free_port
from bench.sampler import Sampler
from vedette.config import SyslogInput, parse


def test_totals_add_up_inputs() -> None:
    """Counters of all inputs are summed and stand beside the agent's own."""
    counts = {"received": 5, "stored": 4, "judged": 3, "bytes_in": 70, "cut": 0, "dropped": {"kernel": 1}, "lost": {}}
    status = {"inputs": {"a": counts, "b": counts}, "totals": {"alerts_made": 2}}
    expected = Counter(received=10, stored=8, judged=6, bytes_in=140, alerts_made=2)
    assert harness.totals(status) == expected


def test_alerts_are_told_by_line(tmp_path: Path) -> None:
    """A raw offset is turned into the line that begins there; alerts behind the sample are left out."""
    stream = b"one\ntwo\nthree\nfour\n"
    folder = tmp_path / "alerts" / "dt=2026-01-01" / "hh=00"
    folder.mkdir(parents=True)
    offsets = [0, 8, 8, 14]
    rows = [{"rule_id": f"r{offset}", "raw_ref": {"log_id": "x", "offset": offset, "length": 3}} for offset in offsets]
    parquet.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    assert harness.alerts(tmp_path, stream, 3) == Counter({("r0", 1): 1, ("r8", 3): 2})
    assert harness.alerts(tmp_path, stream, 4).total() == 4


def test_configuration_is_valid(tmp_path: Path) -> None:
    """The bench agent's configuration is one the agent accepts."""
    config = parse(configuration(tmp_path, free_port(), directory(tmp_path / "rules")))
    assert isinstance(config.input[0], SyslogInput)
    assert config.agent.data_dir == tmp_path / "data"


def test_middle_run() -> None:
    """The run shown is the one with the median throughput."""
    runs = [{"events_per_cpu_second": n} for n in (5, 1, 3)]
    assert harness._middle(runs) == {"events_per_cpu_second": 3}
    assert harness._middle(runs[:2]) == {"events_per_cpu_second": 1}


def test_sampler_finds_the_busy_line() -> None:
    """Most samples of a busy loop fall into the function that loops."""
    code = (
        "from bench.sampler import Sampler\n"
        "def busy():\n    return sum(i * i for i in range(3_000_000))\n"
        "s = Sampler(); s.start(); busy(); s.stop(); print(s.report())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment, text=True)
    assert "busy.<locals>.<genexpr>" in done.stdout
    assert Sampler().report().startswith("0 samples")
