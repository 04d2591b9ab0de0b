"""docs/analyst.md: every command of the walk runs, on a fleet as small as one can be, in the folders it names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.fleet import take
from tests.spark_jobs.landed import alert
from vedette.config.settings import RawLogSettings
from vedette.model.counters import Counters
from vedette.model.event import Chunk
from vedette.rawlog.log import RawLog

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "analyst.md").read_text("utf-8")
PLACE = re.compile(r"\b[0-9a-f]{32}:\d+\+\d+")


def commands() -> list[str]:
    """The lines of the page's sh blocks, continued ones joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def shown() -> str:
    """The raw line that the walk ends with: what the page shows below ``vedette logs show``."""
    found = re.search(r"^```sh\nvedette logs show [^\n]*\n```\n```\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, "no output below vedette logs show"
    return found[1]


@pytest.fixture
def fleet(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """``build/sites`` below the working folder: a site with a raw log that holds the page's line, and its alert in the
    tables. Gives the line's place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").symlink_to(ROOT / "rules")
    site, now = tmp_path / "build" / "sites" / "dublin", time.time_ns() // 1000
    site.mkdir(parents=True)
    (site / "vedette.toml").write_text(f'[agent]\nid = "edge-dublin-1"\ndata_dir = "{site}/data"\n')
    log = RawLog.open(site / "data" / "raw", RawLogSettings(), Counters())
    raw = shown()
    log.append(Chunk("auth", "syslog", now, b"another line\n"))
    frame = log.append(Chunk("auth", "syslog", now, f"{raw}\n".encode()))
    log.close()
    ref = {"log_id": log.log_id, "offset": frame.offset, "length": len(raw)}
    row = alert(1, event_time=now, detected_at=now, received_at=now, raw=raw, raw_ref=ref, site="dublin",
                level="critical", rule_title="Reverse Shell in a Logged Command")  # fmt: skip
    whole = tmp_path / "build" / "sites"  # in full, since the JVM stays in the folder that it was started in
    take(spark, open_tables(f"{whole}/tables"), "batch", [row])
    return f"{ref['log_id']}:{ref['offset']}+{ref['length']}"


@pytest.mark.spark
def test_every_command_of_the_walk_runs(fleet: str) -> None:
    """Jobs, the agent's commands and what is piped into them, in the page's order; the raw line comes out."""
    assert PLACE.search(PAGE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": f"{ROOT / 'agent'}{os.pathsep}{ROOT}"}
    said: dict[str, str] = {}
    for line in commands():
        if line.startswith("make "):
            target = line.split()[1]
            assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
        elif line.startswith("vedette-spark "):
            job, *options = shlex.split(line)[1:]
            assert job in ("report", "export"), f"{job}: its folders must be given in full here"
            said[line] = run(None, job, *options)
        else:
            done = subprocess.run(
                ["sh", "-c", PLACE.sub(fleet, line)], env=environment, capture_output=True, text=True, timeout=600
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            said[line] = done.stdout
    show = next(line for line in said if line.startswith("vedette logs show") and "|" not in line)
    assert said[show] == shown() + "\n"
    assert Path("build/sites/report.html").stat().st_size > 50_000
    assert fleet in Path("build/sites/report.html").read_text("utf-8")
    kinds = {line.split()[0] for line in commands()}
    assert kinds >= {"make", "vedette-spark", "vedette", "grep"}
