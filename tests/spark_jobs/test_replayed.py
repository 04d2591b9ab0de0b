"""The region of ``replayed``: that it is what it says, and, by ``make evaluate``, what the jobs find of it.

The recordings lie beside the checkout; without them all here is skipped. The aims are those of ``test_playbooks``.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.playbooks import Size
from tests.spark_jobs.playbooks.measure import SEEDS, SITES, Measured, measure, missed, table
from tests.spark_jobs.replayed import make
from tests.spark_jobs.replayed.recordings import HERE, LOUDEST, Recorded, alerts_of_all

pytestmark = [pytest.mark.long, pytest.mark.skipif(not HERE, reason="the shared recordings are not here")]
evaluated = pytest.mark.skipif("VEDETTE_FLEETS" not in os.environ, reason="an hour: make evaluate")
SMALL = Size(sites=12, alerts=6_000)
MEASURED: list[Measured] = []


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The real agent's alerts, once for all tests."""
    return alerts_of_all(tmp_path_factory.mktemp("agent"))


def test_recordings_say_what_they_are(recorded: Recorded) -> None:
    """Attacks of both collections, each with a class of its own and a high alert; and an everyday that is no attack's
    alone."""
    names = [recording.name for recording in recorded.attacks]
    assert len({*names}) == len(names) > 20
    assert {recording.source for recording in recorded.attacks} == {"OTRF/Security-Datasets", "SigmaHQ's tests"}
    for recording in recorded.attacks:
        assert recording.rows[recording.turn]["level"] in LOUDEST
        assert recording.rows == sorted(recording.rows, key=lambda row: row["event_time"])
    assert all(len(kinds) > 5 for kinds in recorded.units.values())


def test_a_seed_is_a_region(recorded: Recorded, tmp_path: Path) -> None:
    """The same bytes again; what is planted has landed, and every host has a name of its site."""
    first, second = (make(recorded, tmp_path / name, 5, SMALL) for name in "ab")
    assert first == second
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)
    landed = ds.dataset(tmp_path / "a" / "landing" / "alerts", partitioning=None).to_table().to_pylist()
    rows = {row["alert_id"]: row for row in landed}
    assert len(rows) == len(landed) == first.alerts
    for row in landed:
        hosts = {row["host"], *(entity["value"] for entity in row["entities"] if entity["kind"] == "host")}
        assert all(host.startswith(f"{row['site'][0]}{row['site'][-2:]}-") for host in hosts), row
        assert "theshire" not in str(row).lower()
    for attack in first.attacks:
        named = {(entity["kind"], entity["value"]) for key in attack.alerts for entity in rows[key]["entities"]}
        assert named >= attack.own
        assert {value for kind, value in named if kind == "host"} >= attack.hosts != set()
        assert attack.begin <= attack.moment <= attack.end < first.end
    assert all(decoy.alerts <= rows.keys() for decoy in first.decoys)


@evaluated
@pytest.mark.spark
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_recordings_land_day_by_day(spark: SparkSession, recorded: Recorded, tmp_path: Path, seed: int) -> None:
    """Prints what was seen of each attack; nothing that landed is missing."""
    size = Size(sites=SITES, alerts=SITES * 1_000)
    result = measure(spark, tmp_path, seed, size, make=partial(make, recorded))
    MEASURED.append(result)
    sys.stdout.write(f"\n{table([result])}\n")
    assert result.landed == result.alerts


@evaluated
def test_planted_recordings_are_found() -> None:
    """The aims, over all seeds that were measured."""
    if not MEASURED:
        pytest.skip("no region was measured in this run")
    sys.stdout.write(f"\n{table(MEASURED)}\n")
    assert not missed(MEASURED)
