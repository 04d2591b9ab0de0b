"""The commands: what they refuse before Spark starts, and what they say."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from spark_jobs.__main__ import JOBS, parse, parser, work
from spark_jobs.common.session import LOCAL
from tests.spark_jobs.conftest import SETTINGS
from tests.spark_jobs.landed import alert, land

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "ingest|campaigns|"),
        ("ingests --tables t", "invalid choice"),
        ("ingest --tables t", "ingest needs --landing DIR"),
        ("ingest --tables t --source kafka", "--source kafka needs --brokers"),
        ("ingest --landing l --tables /", "names no folder"),
        ("ingest --landing l --tables t --every 5", "expects a time such as 30s, 5m or 1h, not '5'"),
        ("ingest --landing l --tables t --every 0s", "expects a time"),
        ("ingest --landing l --tables t --bytes-per-batch 0", "expects a number from 1, not '0'"),
        ("ingest --landing l --tables t --conf memory=2g", "expects spark.KEY=VALUE, not 'memory=2g'"),
        ("report --tables t --date 20.11.2026", "expects YYYY-MM-DD, today or yesterday, not '20.11.2026'"),
        ("report --tables t --days 40", "at most 31, not 40"),
        ("export --tables t --out o", "--format"),
    ],
)
def test_a_wrong_argument_is_named(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and a sentence that says which argument, what it holds and what it should."""
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_arguments_are_understood() -> None:
    """Times in seconds, days by name in UTC, settings as pairs, folders without a slash at the end."""
    given = parse(["ingest", "--landing=l/", "--tables=t", "--every=1.5m", "--conf=spark.a=b=c"])
    assert (given.landing, given.every, given.conf) == ("l", 90.0, [("spark.a", "b=c")])
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    assert parse(["report", "--tables=t", "--date=yesterday"]).date == yesterday


@pytest.mark.parametrize("job", JOBS)
def test_every_option_is_documented(job: str) -> None:
    """The job's section of docs/analytics.md names each of its options, and no other."""
    page = (ROOT / "docs" / "analytics.md").read_text()
    sections = dict(re.findall(r"^### (\w+)[^\n]*\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    every = re.search(r"^## The jobs\n(.*?)(?=^###)", page, re.MULTILINE | re.DOTALL)
    assert every is not None
    common = set(re.findall(r"--[a-z][a-z-]+", every[1]))
    there = {name for one in actions(job) for name in one.option_strings if name.startswith("--")}
    named = set(re.findall(r"--[a-z][a-z-]+", sections[job]))
    assert there - {"--help"} <= named | common
    assert named - there <= {"--packages"}
    assert common == {"--tables", "--backend", "--master", "--conf"}


def actions(job: str) -> list[argparse.Action]:
    """What the command line of ``job`` knows."""
    jobs = next(one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    found: list[argparse.Action] = jobs.choices[job]._actions
    return found


@pytest.mark.spark
def test_ingest_then_report(spark: SparkSession, tmp_path: Path) -> None:
    """Ingest says its account; the report gives text and leaves one whole page."""
    landing, tables, page = tmp_path / "landing", f"--tables={tmp_path / 'tables'}", tmp_path / "day.html"
    land(landing, [alert(1), alert(2), alert(1)])
    said = work(spark, parse(["ingest", f"--landing={landing}", tables]), Event())
    assert said == "ingest: alerts: 1 files, 3 rows: 2 new, 1 duplicates"
    assert work(spark, parse(["ingest", f"--landing={landing}", tables]), Event()) == "ingest: nothing new"
    said = work(spark, parse(["report", tables, "--date=2026-11-20", f"--html={page}"]), Event())
    assert "2 alerts standing for 2 matches" in said
    assert page.read_text().endswith("</html>\n")
    assert sorted(os.listdir(tmp_path)) == ["day.html", "landing", "tables"]


@pytest.mark.spark
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
    confs = [word for key, value in {**SETTINGS, **LOCAL}.items() for word in ("--conf", f"{key}={value}")]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--py-files", str(package)]
    around = {**os.environ, "PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*submit, *confs, "run.py", "ingest", "--landing=landing", "--tables=tables"],
        cwd=tmp_path, env=around, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["ingest: alerts: 1 files, 3 rows: 2 new, 1 duplicates"], done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "spark_jobs", "report", "--tables=tables", "--date=2026-11-20", "--html=day.html"],
        cwd=tmp_path, env={**around, "PYTHONPATH": str(package)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "2 alerts standing for 2 matches" in done.stdout, done.stderr
    assert (tmp_path / "day.html").read_text().endswith("</html>\n")


def test_the_command_line_has_the_last_word_on_the_jvm(tmp_path: Path) -> None:
    """The JVM of a job has the flags of ``LOCAL``, unless the command line gives others."""
    (tmp_path / "landing").mkdir()
    common = ["ingest", f"--landing={tmp_path}/landing", f"--tables={tmp_path}/tables"]
    flag = LOCAL["spark.driver.extraJavaOptions"]
    for more, has in (([], True), (["--conf", "spark.driver.extraJavaOptions=-Dx=y"], False)):
        job = subprocess.Popen(
            [sys.executable, "-m", "spark_jobs", *common, *more],
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline, found = time.monotonic() + 60, b""
            while b"SparkSubmit" not in found:
                assert job.poll() is None, "ended before its JVM was seen"
                assert time.monotonic() < deadline, "no JVM in 60 s"
                time.sleep(0.05)
                for entry in Path("/proc").glob("[0-9]*/stat"):
                    with contextlib.suppress(OSError):
                        of_job = int(entry.read_text().rpartition(")")[2].split()[2]) == job.pid
                        line = (entry.parent / "cmdline").read_bytes()
                        if of_job and b"java\0" in line and b"SparkSubmit" in line:
                            found = line
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        assert (flag.encode() in found) == has
