"""The function in a statement, run as agents run it: in the isolated process of functions, by its name of a plugin."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

RULE = """
CREATE TABLE dns (query STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time', WATERMARK FOR ts AS ts)
    WITH ('connector' = 'vedette');
CREATE FUNCTION entropy AS 'vedette-example-function:entropy' LANGUAGE PYTHON;
INSERT INTO alerts SELECT query, entropy(query) AS bits, ts FROM dns WHERE entropy(query) >= {least};
"""


def rows(folder: Path, least: float, *queries: str) -> dict[str, float]:
    """The bits of those of ``queries`` that have ``least`` of them."""
    (folder / "rules").mkdir()
    (folder / "rules" / "names.sql").write_text(RULE.format(least=least))
    (folder / "in.json").write_text("".join(json.dumps({"query": query}) + "\n" for query in queries))
    command = (sys.executable, "-m", "vedette", "scan", "--rules", folder / "rules", "--functions", "--format", "json")
    done = subprocess.run([*command, folder / "in.json"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["fields"] for line in done.stdout.splitlines()]
    return {row["query"]: float(row["bits"]) for row in found}


def test_bits(tmp_path: Path) -> None:
    """One letter tells nothing; equally many of each are log2 of how many there are, in whatever order."""
    known = {"": 0.0, "aaaa": 0.0, "ab": 1.0, "baab": 1.0, "abcd": 2.0, "äöüß": 2.0, "aab": 0.918296}
    found = rows(tmp_path, 0.0, *known)
    assert found == {query: pytest.approx(bits, abs=1e-6) for query, bits in known.items()}


def test_made_up_names(tmp_path: Path) -> None:
    """What it is for: a name that a program has made up passes a bound which names of people do not."""
    made_up = "q8z1x0v7m3k5"
    assert rows(tmp_path, 3.5, "example.org", "www.example.org", made_up) == {made_up: pytest.approx(math.log2(12))}
