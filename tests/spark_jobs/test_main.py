"""The commands: what they refuse before Spark starts, and what they say."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from spark_jobs.__main__ import JOBS, main
from spark_jobs.common.session import SMALL
from tests.spark_jobs.conftest import SETTINGS, run
from tests.spark_jobs.landed import alert, land
from tests.waits import until

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ingests --tables t", "No such command 'ingests'"),
        ("ingest --landing l", "Missing option '--tables'"),
        ("ingest --tables t", "ingest needs --landing DIR, or --kafka HOST:PORT"),
        ("ingest --tables t --landing l --kafka k:1", "ingest needs --landing DIR, or --kafka HOST:PORT"),
        ("ingest --landing l --tables /", "names no folder"),
        ("ingest --landing l --tables t --every 5", "expects a time such as 30s, 5m or 1h, not '5'"),
        ("ingest --landing l --tables t --every 0s", "expects a time"),
        ("ingest --landing l --tables t --bytes-per-batch 0", "'--bytes-per-batch': 0 is not in the range x>=1"),
        ("ingest --landing l --tables t --conf memory=2g", "expects spark.KEY=VALUE, not 'memory=2g'"),
        ("ingest --landing l --tables t --backend parquet", "expects delta or delta-spark, not 'parquet'"),
        ("campaigns --tables t --days 70", "70 is not in the range"),
        ("campaigns --tables t --days 3 --session-days 4", "--session-days: at most the 3 of --days, not 4"),
        ("report --tables t --date 20.11.2026", "expects YYYY-MM-DD, today or yesterday, not '20.11.2026'"),
        ("report --tables t --days 40", "40 is not in the range 1<=x<=31"),
        ("export --tables t -o o", "Missing option '--format'"),
        ("backtest --logs=l --rules=a.vbundle", "a bundle needs --trusted-key"),
        ("backtest --logs=l --rules=a.vbundle --rules=b --trusted-key=k", "one bundle alone"),
        ("backtest --rules=a", "Missing option '--logs'"),
        ("maintain --tables t --landing=l", "go together"),
        ("report --tables t --date 9999-12-31", "expects a day of 1970 to 2199, not '9999-12-31'"),
        ("coverage --tables t --date 0001-01-01", "expects a day of 1970 to 2199, not '0001-01-01'"),
        ("noise --tables t --days 99999999", "is not in the range 1<=x<=36525"),
        ("maintain --tables t --keep alerts=99999999999", "expects a number from 1 to 99999"),
        ("triage --tables t x --expires 9999-12-31", "expects a day until 2199, not '9999-12-31'"),
        ("maintain --tables t --date=today", "has not ended"),
        ("maintain --tables t --keep=agents=3", "no table of days: 'agents'"),
        ("maintain --tables t --keep=alerts=0", "expects a number from 1"),
    ],
)
def test_a_wrong_argument_is_named(arguments: str, said: str) -> None:
    """Exit code 2, before Spark is started, and a sentence that says which argument and what it should be."""
    done = CliRunner().invoke(main, arguments.split())
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.name))
def test_every_job_is_documented(job: click.Command) -> None:
    """It has a line, an example that it takes, help for each option, and a section in docs/analytics.md that names none
    but its own."""
    assert job.help
    for example in re.findall(r"Example: vedette-spark (.*)", job.help):
        name, *words = example.split()
        assert name == job.name
        job.make_context(name, words, resilient_parsing=False)
    assert "Example: " in job.help
    page = (ROOT / "docs" / "analytics.md").read_text()
    sections = dict(re.findall(r"^### (\w+)[^\n]*\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert str(job.name) in sections
    assert set(re.findall(r"--[a-z][a-z-]+", sections[str(job.name)])) <= {
        name for one in job.params for name in one.opts
    }
    assert all(one.help for one in job.params if isinstance(one, click.Option))


def test_every_module_of_a_job_is_listed() -> None:
    """``JOBS`` has a line for each module of the room, by its name."""
    modules = {path.stem for path in (ROOT / "spark_jobs" / "jobs").glob("*.py")} - {"__init__", "job"}
    assert {job.name for job in JOBS} == modules


def test_the_example_for_contributors_is_a_job() -> None:
    """The code under "Add a Spark job" is the job ``report``, line for line."""
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("### Add a Spark job")[2]
    example = section.partition("```python\n")[2].partition("```")[0]
    assert example
    assert example in (ROOT / "spark_jobs" / "jobs" / "report.py").read_text("utf-8")


@pytest.mark.long
@pytest.mark.spark
def test_ingest_then_report(spark: SparkSession, tmp_path: Path) -> None:
    """Ingest says its account; the report gives text and leaves one whole page."""
    landing, tables, page = tmp_path / "landing", f"--tables={tmp_path / 'tables'}", tmp_path / "day.html"
    land(landing, [alert(1), alert(2), alert(1)])
    said = run(spark, "ingest", f"--landing={landing}", tables)
    assert said == "ingest: alerts: 1 file, 3 rows: 2 new, 1 duplicate"
    assert run(spark, "ingest", f"--landing={landing}", tables) == "ingest: nothing new"
    said = run(spark, "report", tables, "--date=2026-11-20", f"--html={page}")
    assert "2 alerts by 1 rule" in said
    assert page.read_text().endswith("</html>\n")
    assert sorted(os.listdir(tmp_path)) == ["day.html", "landing", "tables"]


def test_a_cluster_needs_no_agent() -> None:
    """The command line and every job load where there is no package ``vedette``."""
    program = (
        "import sys, pkgutil, importlib\n"
        "sys.modules['vedette'] = None\n"
        "import spark_jobs.__main__, spark_jobs.jobs\n"
        "for module in pkgutil.iter_modules(spark_jobs.jobs.__path__):\n"
        "    importlib.import_module('spark_jobs.jobs.' + module.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
@pytest.mark.long
def test_spark_submit_runs_the_package_from_a_zip(tmp_path: Path) -> None:
    """The zip that docs/analytics.md makes is all a cluster needs: ingest by ``spark-submit`` from a folder without the
    package, then the page, whose parts lie in the zip, too."""
    package = tmp_path / "spark_jobs.zip"
    with zipfile.ZipFile(package, "w") as out:
        for file in sorted((ROOT / "spark_jobs").rglob("*")):
            if file.suffix == ".py" or (file.is_file() and file.parent.name == "assets"):
                out.write(file, file.relative_to(ROOT))
    shutil.copy(ROOT / "spark_jobs" / "__main__.py", tmp_path / "run.py")
    land(tmp_path / "landing", [alert(1), alert(2), alert(1)])
    confs = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--py-files", str(package)]
    around = {**os.environ, "PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*submit, *confs, "run.py", "ingest", "--landing=landing", "--tables=tables"],
        cwd=tmp_path, env=around, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["ingest: alerts: 1 file, 3 rows: 2 new, 1 duplicate"], done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "spark_jobs", "report", "--tables=tables", "--date=2026-11-20", "--html=day.html"],
        cwd=tmp_path, env={**around, "PYTHONPATH": str(package)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert "2 alerts by 1 rule" in done.stdout, done.stderr
    assert (tmp_path / "day.html").read_text().endswith("</html>\n")


def jvm(job: subprocess.Popen[bytes]) -> bytes:
    """The command line of the JVM of ``job``; empty as long as there is none."""
    assert job.poll() is None, "ended before its JVM was seen"
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            of_job = int(entry.read_text().rpartition(")")[2].split()[2]) == job.pid
            line = (entry.parent / "cmdline").read_bytes()
            if of_job and b"java\0" in line and b"SparkSubmit" in line:
                return line
    return b""


def test_the_command_line_has_the_last_word_on_the_jvm(tmp_path: Path) -> None:
    """The JVM of a job has the flags of ``SMALL`` while there is little to look at, unless the command line gives
    others."""
    (tmp_path / "landing").mkdir()
    common = ["ingest", f"--landing={tmp_path}/landing", f"--tables={tmp_path}/tables"]
    flag = SMALL["spark.driver.extraJavaOptions"].split()[0]
    for more, has in (([], True), (["--conf", "spark.driver.extraJavaOptions=-Dx=y"], False)):
        job = subprocess.Popen(
            [sys.executable, "-m", "spark_jobs", *common, *more],
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            line = until("the job's JVM", lambda job=job: jvm(job))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        assert (flag.encode() in line) == has
