"""``bench.scale``, ``bench.usage`` and ``bench.spark``: formulas, what is measured, and the tables of docs/scale.md."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import scale, spark
from bench.usage import Usage, _Seen, measured
from tests.waits import until


@pytest.mark.parametrize(
    ("formula", "value"),
    [("2 * most + agents / 60", 220.0), ("max(4, 2 * ceil(most / 7))", 30), ("(agents - most) * 1e3", 1_100_000)],
)
def test_formulas(formula: str, value: float) -> None:
    """Numbers, names, max and ceil, as written."""
    assert scale.computed(formula, {"most": 100.0, "agents": 1200.0}) == value


def run(alerts: int, cpu: float, skew: float = 0.0) -> dict[str, Any]:
    """A run in which each job took ``cpu`` seconds for each million alerts."""
    job = {"rows": alerts, "seconds": 2.0, "cpu_seconds": cpu * alerts / 1e6, "jvm_mb": 900.0, "python_mb": 300.0,
           "tasks": 8, "longest": 1.5, "uneven": 1.2, "files": 3, "file_mb": 10.0, "tables_mb": {"alerts": 10.0},
           "said": "", "at": "2026-11-21T12:00:00+00:00", "load": 0.1, "start_cpu_seconds": 60.0,
           "code": "c0de"}  # fmt: skip
    return {
        "alerts": alerts, "skew": skew, "landed": alerts, "made_seconds": 5.0,
        "landing_mb": 100.0, "batch_bytes": 1 << 25, "checkpoint_mb": 0.1, "batches": 4, "disk_mb": 700.0,
        "machine": {"cpu": "a", "cores": 2}, "jobs": {name: dict(job) for name in ("ingest", *scale.WINDOWS)},
    }  # fmt: skip


REGION = {
    "landing": {"kafka_zstd_bytes": 100.0, "rows_per_cpu_second": 10_000.0},
    "broker": {"connection_bytes": 2000.0, "message_cpu_us": 20.0, "message_bytes": 700.0},
}


def test_sizes_of_a_fleet() -> None:
    """By hand: 100,000 agents of 1,000 alerts a day, ingest 40 CPU-seconds a million."""
    measurements = {"runs": [run(1_000_000, 40.0)], "region": REGION}
    sizes = scale.sizes(measurements, 100_000)
    assert sizes["a_day"] == 100_000_000
    assert sizes["most"] == pytest.approx(11_574, rel=1e-3)
    assert sizes["ingest_cores"] == pytest.approx((11_574 + 100_000 / 60) * 40e-6 / 0.5, rel=1e-3)
    assert (sizes["partitions"], sizes["ingest_executors"], sizes["brokers"], sizes["state"]) == (4, 1, 5, 0)
    assert sizes["landings"] == 4
    small = scale.sizes(measurements, 1000)
    assert (small["partitions"], small["ingest_executors"], small["brokers"], small["landings"]) == (4, 1, 2, 2)
    assert all(sizes[line.name] >= small[line.name] for line in scale.SIZES)


def test_what_was_not_measured_has_no_size() -> None:
    """Without the region's figures, or some job, the lines that hang on them are left out and named in the table."""
    measurements: dict[str, Any] = {"runs": [run(1_000_000, 40.0)], "region": {}}
    del measurements["runs"][0]["jobs"]["noise"]
    sizes = scale.sizes(measurements, 1000)
    assert {"ingest_cores", "tables", "state"} <= sizes.keys()
    assert not {"brokers", "landings", "kafka_disk", "daily_executors"} & sizes.keys()
    assert "| not measured | not measured |" in scale._sizes(measurements)


def test_growth_is_of_an_alert() -> None:
    """Ten times the alerts at the same cost each is 1.0; above the limit it is said."""
    small, even, worse = run(1_000_000, 10.0), run(10_000_000, 10.0), run(50_000_000, 15.0)
    assert scale.growth(small, even, "noise") == "1.00"
    said = scale._growth({"runs": [small, even, worse], "region": {}})
    assert "| noise | 1.00 | 1.50 (above 1.3) |" in said


def test_growth_compares_like_with_like() -> None:
    """Runs on different machines are not compared; a ratio between different code is marked."""
    small, large, other = run(1_000_000, 10.0), run(10_000_000, 12.0), run(10_000_000, 30.0)
    large["jobs"]["noise"]["code"] = "0ther"
    other["machine"] = {"cpu": "b", "cores": 2}
    said = scale._growth({"runs": [small, large, other], "region": {}})
    assert "| job | a, 1,000,000 to 10,000,000 |" in said
    assert "| noise | 1.20, other code |" in said
    assert "| export | 1.20 |" in said
    small["jobs"]["export"]["code"] = large["jobs"]["export"]["code"] = None  # not known
    assert scale.growth(small, large, "export") == "1.20, other code"
    assert "nothing to compare" in scale._growth({"runs": [small, other], "region": {}})


def test_jobs_that_were_not_run_are_named() -> None:
    """The notes below the table of jobs say which jobs a run lacks."""
    missing = run(1_000_000, 10.0)
    del missing["jobs"]["export"]
    assert "Not run: export." in scale._jobs({"runs": [missing], "region": {}})


def test_a_job_that_runs_again_replaces_its_figures_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other jobs of that size, and other sizes, keep theirs."""
    monkeypatch.setattr(scale, "MEASURED", tmp_path / "scale" / "measured.json")
    scale.keep(run(1_000_000, 10.0), {"cpu": "a", "cores": 2})
    scale.keep(run(1_000_000, 30.0, skew=0.5), {"cpu": "a", "cores": 2})
    again = run(1_000_000, 20.0)
    again["jobs"] = {"noise": again["jobs"]["noise"]}
    scale.keep(again, {"cpu": "a", "cores": 2})
    jobs = scale.find(scale.load(), 1_000_000, 0.0, "a")["jobs"]
    assert (jobs["noise"]["cpu_seconds"], jobs["ingest"]["cpu_seconds"]) == (20.0, 10.0)
    assert scale.find(scale.load(), 1_000_000, 0.5, "a")["jobs"]["noise"]["cpu_seconds"] == 30.0


def test_each_job_has_the_session_that_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later session of two jobs leaves the others their date, load and start; one cut short has a date."""
    monkeypatch.setattr(scale, "MEASURED", tmp_path / "measured.json")
    scale.keep(run(1_000_000, 10.0), {"cpu": "a", "cores": 2})
    again = run(1_000_000, 20.0)
    again["jobs"] = {name: again["jobs"][name] for name in ("ingest", "noise")}
    for job in again["jobs"].values():
        job.update(at="2026-11-22T09:00:00+00:00", load=None, start_cpu_seconds=None)
    scale.keep(again, {"cpu": "a", "cores": 2})
    first, second = (line for line in scale.BLOCKS["jobs"](scale.load()).split("All jobs ran. ")[1].split(". ")[:2])
    assert first.startswith("2026-11-21T12:00:00+00:00, load 0.1, start 60.0 CPU-s: campaigns, ")
    assert "noise" not in first
    assert second == "2026-11-22T09:00:00+00:00: ingest, noise"


def test_the_document_holds_what_was_measured() -> None:
    """Its tables are those of docs/scale/measured.json, made again: nobody has written a figure by hand."""
    text = scale.DOCUMENT.read_text("utf-8")
    assert scale.written(text, scale.load()) == text
    assert scale.written(text, {"runs": [run(1_000_000, 1.0)], "region": {}}) != text


def test_the_code_of_the_jobs_has_a_name_once_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of git, another one for other code; none outside of a clone, nor for what nobody can look up."""
    monkeypatch.setattr(spark, "ROOT", tmp_path)
    (tmp_path / "spark_jobs").mkdir()
    assert spark.code() is None
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    names = []
    for text in ("one", "two"):
        (tmp_path / "spark_jobs" / "a.py").write_text(text)
        assert spark.code() is None
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], check=True)
        names.append(spark.code())
    assert None not in names
    assert len(set(names)) == 2


def test_usage_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time of a process below this one is counted, and its memory; that of before is not."""
    burn = "import time\nx = bytearray(60_000_000)\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    spent = time.process_time()
    while time.process_time() < spent + 0.3:
        pass
    look, looks = _Seen.look, list[None]()
    monkeypatch.setattr(_Seen, "look", lambda self: (look(self), looks.append(None)))
    command, pipe = [sys.executable, "-c", burn], subprocess.PIPE
    with measured(Usage()) as usage, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        enough = len(looks) + 2
        until("two looks at it", lambda: len(looks) >= enough)
        child.communicate("\n")
    assert usage.cpu_seconds > 0.3
    assert usage.python_mb > 60


def test_a_job_that_runs_again_finds_nothing_of_its_own(tmp_path: Path) -> None:
    """Its tables are gone and all others stay; ingest has no tables, maintain all; without any it is said."""
    names = ("alerts", "win_5m", "campaigns", "sessions", "baselines", "anomalies", "first_seen")

    def left(job: str) -> set[str]:
        for name in names:
            (tmp_path / "tables" / name).mkdir(parents=True, exist_ok=True)
        spark.clear(job, tmp_path)
        return {folder.name for folder in tmp_path.glob("tables/*")}

    assert left("campaigns") == {*names} - {"campaigns", "sessions"}
    assert left("baselines") == {*names} - {"baselines", "anomalies", "first_seen"}
    assert left("maintain") == left("report") == {*names}
    assert left("ingest") == set()
    with pytest.raises(SystemExit, match="run ingest first"):
        spark.clear("noise", tmp_path)


def test_uneven_stages(tmp_path: Path) -> None:
    """The longest task over the mean of its stage, of stages with long tasks; tasks from before are left out."""

    def task(stage: int, start: int, milliseconds: int) -> str:
        info = {"Launch Time": start, "Finish Time": start + milliseconds}
        return json.dumps({"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Info": info})

    tasks = [
        task(1, 500, 90_000),
        *(task(2, 2000, n) for n in (1000, 1000, 4000)),
        *(task(3, 2000, n) for n in (1, 90)),
    ]
    (tmp_path / "log").write_text("\n".join(['{"Event": "SparkListenerLogStart"}', *tasks]) + "\n")
    assert spark.stalls(tmp_path, 1.0, 3.0) == (5, 4.0, 2.0)
    assert spark.stalls(tmp_path, 3.0, 9.0) == (0, 0.0, 1.0)
