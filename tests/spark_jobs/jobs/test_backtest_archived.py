"""Backtests straight from an archive, in an S3 server and in a folder that is mounted: what the files give."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.backtest.rows import MATCHES
from spark_jobs.jobs import backtest
from tests.archive import s3
from tests.spark_jobs.conftest import run
from tests.spark_jobs.jobs.test_backtest import Export, _by_agent, _scanned, export
from vedette.archive.archiver import Archiver, Pace
from vedette.archive.index import Index
from vedette.archive.stores import open_store
from vedette.config.settings import ArchiveSettings
from vedette.rawlog.segment import segments

pyrage = pytest.importorskip("pyrage", reason="an environment from before: make environment")
pytest.importorskip("obstore", reason="an environment from before: make environment")
__all__ = ["export"]
pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def identity(tmp_path: Path) -> tuple[Path, str]:
    """The owner's file, and the public key."""
    key = pyrage.x25519.Identity.generate()
    path = tmp_path / "identity"
    path.write_text(f"{key}\n")
    return path, str(key.to_public())


def archived(export: Export, settings: ArchiveSettings, folder: Path, agents: Iterable[str] = ("a", "fleet/b")) -> None:
    """Put all segments of the export there, as agents do."""
    store = open_store(settings)
    for agent in agents:
        known = Index(folder / agent, settings, agent)
        archiver = Archiver(known, agent, settings.recipient, Pace(0, threading.Event().wait))
        archiver.find(store)
        for one in segments(export.logs / agent):
            archiver.archive(one, store)
        assert len(known.rows()) >= 5


def counted(rows: list[Any]) -> tuple[int, int]:
    """Events and bytes that were read."""
    read = [row for row in rows if row.kind == "read"]
    return sum(row.events for row in read), sum(row.bytes for row in read)


@pytest.mark.peer
def test_a_bucket(spark: SparkSession, export: Export, tmp_path: Path, identity: tuple[Path, str]) -> None:
    """One agent's segments encrypted, another's not: row for row what `vedette scan` finds. Damage and what is not
    whole are gaps, and so is all that is encrypted where no identity is given; the rest goes on."""
    path, recipient = identity
    with s3.s3(tmp_path / "s3") as server:
        archived(export, server.settings(recipient=recipient), tmp_path / "known", ["a"])
        archived(export, server.settings(), tmp_path / "known", ["fleet/b"])
        rules, url = backtest.built([export.rules], [], [], [], False, ""), server.settings().url
        rows = backtest.matches(spark, url, rules, server.options, path).collect()
        expected, lines = _scanned(export), export.text.read_bytes().count(b"\n")
        assert _by_agent(rows, export.text) == {"a": expected, "fleet/b": expected}
        assert counted(rows) == (2 * lines, 2 * export.text.stat().st_size)
        assert {row.kind for row in rows} == {"match", "correlation", "statement", "read"}

        store = open_store(server.settings())
        key = f"fleet/b/{segments(export.logs / 'fleet' / 'b')[1].path.name}"
        store.put(key, [b"something else"])
        store.put("fleet/b/00000000000000000001-00000000000000000000.seg", [b"x"])
        out = tmp_path / "out"
        said = run(spark, "backtest", f"--logs={url}", f"--options-file={server.options}", f"--rules={export.rules}",
                   f"--output={out}")  # fmt: skip
        rows = spark.read.schema(MATCHES).parquet(str(out)).collect()
        reasons = Counter(
            next(word for word in ("encrypted", "only", "KEY.json", "digest") if word in row.reason)
            for row in rows
            if row.kind == "gap"
        )
        assert reasons == {"encrypted": len(segments(export.logs / "a")), "only": 1, "KEY.json": 1}
        lost = sum(row.events for row in rows if row.kind == "gap")
        assert lost > lines
        assert counted(rows)[0] + lost == 2 * lines
        assert f"{lost} events cannot be read, in {sum(reasons.values())} places" in said


def test_a_mounted_folder(spark: SparkSession, export: Export, tmp_path: Path, identity: tuple[Path, str]) -> None:
    """Encrypted segments beside plain ones; without the identity they are gaps, not passed over."""
    path, recipient = identity
    (mount := tmp_path / "mnt").mkdir()
    archived(export, ArchiveSettings(str(mount), recipient=recipient), tmp_path / "known", ["a"])
    archived(export, ArchiveSettings(str(mount)), tmp_path / "known", ["fleet/b"])
    rules = backtest.built([export.rules], [], [], [], False, "")
    rows = backtest.matches(spark, str(mount), rules, None, path).collect()
    expected = _scanned(export)
    assert _by_agent(rows, export.text) == {"a": expected, "fleet/b": expected}
    rows = backtest.matches(spark, str(mount), rules).collect()
    assert _by_agent(rows, export.text) == {"fleet/b": expected}
    gaps = [row for row in rows if row.kind == "gap"]
    assert len(gaps) == len(segments(export.logs / "a"))
    assert all("--identity" in row.reason for row in gaps)


def test_what_is_no_archive(spark: SparkSession, export: Export) -> None:
    """A place that is none is said at once."""
    with pytest.raises(ValueError, match="--logs: expects"):
        run(spark, "backtest", "--logs=hdfs://x/y", f"--rules={export.rules}")
