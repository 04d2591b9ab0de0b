"""examples/region: the units, the DAG and the manifest call ``all`` as it is, and systemd takes the units."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from spark_jobs.jobs.all import all_due

FOLDER = Path(__file__).parents[2] / "examples" / "region"


def check_options(words: list[str]) -> None:
    """``all`` takes these options, without running, and is given the lookups."""
    assert all_due.make_context("all", words, resilient_parsing=False).params["lookups"]


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """``systemd-analyze verify`` has no word against them, but for the command, which is not installed here."""
    for name in ("vedette-spark.service", "vedette-spark.timer"):
        text = (FOLDER / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/vedette-region/bin/vedette-spark", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(map(str, tmp_path.iterdir()))], capture_output=True, text=True, timeout=60
    )
    mine = [line for line in (done.stdout + done.stderr).splitlines() if "vedette-spark" in line]
    assert mine == []


def test_the_unit_calls_all_as_it_is() -> None:
    """Every option of its command line is one of the job's."""
    text = (FOLDER / "vedette-spark.service").read_text().replace("\\\n", " ")
    command = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert command
    program, name, *words = shlex.split(command[1])
    assert (Path(program).name, name) == ("vedette-spark", "all")
    check_options(words)


def test_the_dag_calls_all_as_it_is() -> None:
    """It is Python, and its one command, its variables filled in, is one that the job takes."""
    tree = ast.parse((FOLDER / "airflow_dag.py").read_text())
    commands = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "bash_command"]
    assert len(commands) == 1
    program, name, *words = shlex.split(re.sub(r"\{\{.*?\}\}", "folder", ast.literal_eval(commands[0])))
    assert (program, name) == ("vedette-spark", "all")
    check_options(words)


def test_the_manifest_calls_all_as_it_is() -> None:
    """A ``ScheduledSparkApplication`` whose arguments the job takes, and whose volumes are mounted."""
    found = yaml.safe_load((FOLDER / "spark-operator.yaml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication")
    template = found["spec"]["template"]
    name, *words = template["arguments"]
    assert name == "all"
    check_options(words)
    volumes = {one["name"] for one in template["volumes"]}
    for pod in ("driver", "executor"):
        assert {one["name"] for one in template[pod]["volumeMounts"]} <= volumes
