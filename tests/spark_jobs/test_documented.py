"""docs/analytics.md against the command line of the jobs: every job and option is told, and nothing else."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from spark_jobs import __main__ as program

PAGE = (Path(__file__).parents[2] / "docs" / "analytics.md").read_text("utf-8")
COMMON = {"--help", "--tables", "--backend", "--master", "--conf"}


def told(job: str) -> set[str]:
    """The options in the section of ``job``; ingest's goes on over Kafka and lookups."""
    found = re.search(rf"^### {job}: .*?(?=^### (?!Kafka|Lookups)|^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no section of {job}"
    rows = [line.split("|")[1] for line in found[0].splitlines() if line.startswith("| `--")]
    return {name for row in rows for name in re.findall(r"--[a-z-]+", row)}


@pytest.mark.parametrize("job", program.JOBS)
def test_every_option_is_told(job: str) -> None:
    """Each job has a section whose table names its options, all of them and no other."""
    parser = argparse.ArgumentParser()
    program.JOBS[job].arguments(parser)
    has = {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    assert told(job) == has - COMMON
