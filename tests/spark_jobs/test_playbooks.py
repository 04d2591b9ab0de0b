"""The region of ``playbooks``: that it is what it says, and, by ``make evaluate``, what the jobs find of it.

Aims, over the seeds of a run: nine of ten lines of the first screen are right, eight of ten attacks of the last seven
days are on it, all but one in twenty are anywhere, and each is seen within a day of what makes it one.
"""

from __future__ import annotations

import ast
import os
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from spark_jobs.report.headline import Pointer
from tests.spark_jobs import playbooks
from tests.spark_jobs.playbooks import PLAYBOOKS, Size, Truth, make
from tests.spark_jobs.playbooks.measure import SEEDS, SITES, Measured, judged, measure, missed, table
from tests.spark_jobs.playbooks.world import RULES

SMALL = Size(sites=16, alerts=12_000)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Truth]]:
    """Three small regions in a row: between them they play every playbook."""
    folders = [tmp_path_factory.mktemp("made") for _ in range(3)]
    return [(folder, make(folder, seed, SMALL)) for seed, folder in enumerate(folders)]


def test_three_seeds_play_every_playbook(small: list[tuple[Path, Truth]]) -> None:
    played = [attack.name for _, truth in small for attack in truth.attacks]
    assert sorted(played) == sorted(playbook.name for playbook in PLAYBOOKS)


def test_what_is_planted_has_landed(small: list[tuple[Path, Truth]]) -> None:
    """Every alert of the truth is in the landing, by a rule that was published, with its entities."""
    for folder, truth in small:
        landed = ds.dataset(folder / "landing" / "alerts", partitioning=None).to_table().to_pylist()
        rows = {row["alert_id"]: row for row in landed}
        assert len(rows) == len(landed) == truth.alerts
        assert {row["rule_title"] for row in landed} <= set(RULES)
        for attack in truth.attacks:
            alerts = [rows[key] for key in attack.alerts if key in rows]
            # What a site sends twice a day may be on its way still.
            assert len(alerts) >= 0.9 * len(attack.alerts) > 0
            named = {(entity["kind"], entity["value"]) for row in alerts for entity in row["entities"]}
            assert named & attack.own
            assert attack.begin <= attack.moment <= attack.end < truth.end


def test_a_seed_is_a_region(tmp_path: Path) -> None:
    """The same bytes again."""
    first, second = make(tmp_path / "a", 5, SMALL), make(tmp_path / "b", 5, SMALL)
    assert first == second
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)


def test_the_region_is_made_without_the_program() -> None:
    """All but ``measure`` import the standard library, pyarrow and each other: no number is one of the jobs'."""
    folder = Path(playbooks.__file__).parent
    for path in folder.glob("*.py"):
        if path.name != "measure.py":
            tree = ast.parse(path.read_text("utf-8"))
            named = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
            named |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert {name.partition(".")[0] for name in named} <= {*sys.stdlib_module_names, "pyarrow", "tests"}
            assert not any(name.startswith("tests") for name in named if not name.startswith("tests.spark_jobs."))


def test_a_line_is_about_what_it_names(small: list[tuple[Path, Truth]]) -> None:
    """The attacker's own, cut or not; not somebody whose name begins alike, nor before it began."""
    truth = small[0][1]
    attack = max(truth.attacks, key=lambda attack: attack.begin)
    value = max((value for _, value in attack.own), key=len)

    def verdict(text: str, hours: float = 24) -> str:
        return judged(Pointer("high", "risk", text, ""), truth, attack.begin + timedelta(hours=hours)).verdict

    assert verdict(f"user {value}: 12 alerts") == verdict(f"user {value[:26]}…: 12 alerts") == "attack"
    assert verdict(f"user {value}x: 12 alerts") == verdict(f"user {value}: 12 alerts", hours=0) == "wrong"
    decoy = next(decoy for decoy in truth.decoys if decoy.name == "red team")
    line = judged(Pointer("high", "campaign", f"ip {next(iter(decoy.entities))[1]}", ""), truth, truth.end)
    assert (line.verdict, line.about) == ("wrong", ["red team"])


MEASURED: list[Measured] = []
evaluated = pytest.mark.skipif("VEDETTE_FLEETS" not in os.environ, reason="an hour: make evaluate")


@evaluated
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_playbooks_land_day_by_day(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Prints what was seen of each attack; nothing that landed is missing."""
    result = measure(spark, tmp_path, seed, Size(sites=SITES, alerts=SITES * 5_000))
    MEASURED.append(result)
    sys.stdout.write(f"\n{table([result])}\n")
    assert result.landed == result.alerts


@evaluated
@pytest.mark.long
@pytest.mark.spark
def test_planted_playbooks_are_found() -> None:
    """The aims, over all seeds that were measured."""
    if not MEASURED:
        pytest.skip("no region was measured in this run")
    sys.stdout.write(f"\n{table(MEASURED)}\n")
    assert not missed(MEASURED)
