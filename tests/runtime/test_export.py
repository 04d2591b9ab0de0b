"""The raw log given to its owner: every event once in each format, over kills, damage and retention."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard

from tests.e2e.agent import KILLS, chance, run_to_its_end
from tests.rawlog.samples import NOW, open_log
from tests.settings import SegmentedLog
from tests.waits import until
from tests.warm import Done
from vedette.model.event import Chunk
from vedette.rawlog.segment import segments

SECOND = 1_000_000
SMALL = SegmentedLog(max_bytes=64 << 20, segment_bytes=20_000)
FRAMES, EVENTS = 60, 50
HOSTILE = b"\xff\xfe not UTF-8"


def line(frame: int, number: int) -> bytes:
    if number == 7:
        return b"<38>1 2026-11-22T10:00:00Z web1 sshd 7 - - " + HOSTILE + b" %d" % frame
    return b"<38>1 2026-11-22T10:%02d:%02dZ web1 sshd 7 - - Failed password %d" % (
        frame,
        number,
        frame * EVENTS + number,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An agent's data folder: 60 frames, one a second, of two inputs by turns."""
    folder = tmp_path / "data"
    with closing(open_log(folder / "raw", SMALL)) as log:
        for frame in range(FRAMES):
            held = b"".join(line(frame, number) + b"\n" for number in range(EVENTS))
            log.append(Chunk(("a", "b")[frame % 2], "syslog", NOW + frame * SECOND, held))
    return folder


def export(data: Path, *words: object, code: int = 0) -> Done:
    return run_to_its_end("logs", "export", "--data-dir", data, *words, code=code)


def every(inputs: str = "ab") -> list[bytes]:
    return [line(frame, n) for frame in range(FRAMES) if "ab"[frame % 2] in inputs for n in range(EVENTS)]


def manifest(folder: Path) -> dict[str, Any]:
    """Once each part is as it says."""
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    for part in found["parts"]:
        held = (folder / part["file"]).read_bytes()
        assert (len(held), hashlib.sha256(held).hexdigest()) == (part["bytes"], part["sha256"])
    assert {one.name for one in folder.iterdir() if not one.name.startswith(".")} == {
        "manifest.json",
        *(part["file"] for part in found["parts"]),
    }
    assert sum(part["events"] for part in found["parts"]) == found["events"]
    return found


def lines(folder: Path) -> list[bytes]:
    """Of all parts, in order."""
    parts = [folder / part["file"] for part in manifest(folder)["parts"]]
    whole = b"".join(zstandard.ZstdDecompressor().decompressobj().decompress(part.read_bytes()) for part in parts)
    return whole.splitlines()


def test_streams(data: Path) -> None:
    """Each format on standard output; filters by input, time and pattern."""
    assert export(data, "--format", "raw").out.splitlines() == every()
    rows = [json.loads(one) for one in export(data, "--input", "b").out.splitlines()]
    assert [
        base64.b64decode(row["raw_base64"]) if "raw_base64" in row else row["raw"].encode() for row in rows
    ] == every("b")
    assert rows[0]["host"] == rows[0]["fields"]["hostname"] == "web1"
    assert rows[1]["fields"]["message"] == "Failed password 51"
    some = export(
        data,
        "--format",
        "raw",
        "--since",
        "2023-11-14T22:13:30Z",
        "--until",
        "2023-11-14T22:13:32Z",
        "--filter",
        "PASSWORD 5[0-9]{2}$",
    )
    assert some.out.splitlines() == [line(frame, n) for frame in (10, 11) for n in range(EVENTS) if n != 7]
    assert b"folder" in export(data, "--format", "parquet", code=2).err
    assert b"not a regular expression" in export(data, "--filter", "(", code=2).err


def test_ocsf(data: Path) -> None:
    """Base Events with what the schema requires; the place finds the event again."""
    rows = [json.loads(one) for one in export(data, "--format", "ocsf").out.splitlines()]
    assert len(rows) == len(every())
    for row in rows:
        assert {"class_uid", "category_uid", "activity_id", "type_uid", "severity_id", "time", "metadata"} <= row.keys()
        assert {"version", "product"} <= row["metadata"].keys()
    assert rows[1]["time"] == 1795341601000
    assert rows[1]["device"]["hostname"] == "web1"
    shown = run_to_its_end("logs", "show", "--data-dir", data, rows[1]["metadata"]["uid"])
    assert shown.out.rstrip() == line(0, 1)


def test_parquet(data: Path, tmp_path: Path) -> None:
    """As PyArrow reads it: bytes as they are, times, fields as JSON."""
    out = tmp_path / "out"
    export(data, "--format", "parquet", "-o", out)
    assert manifest(out)["complete"]
    rows = pq.read_table(out / "part-000001.parquet").to_pylist()
    assert [row["raw"] for row in rows] == every()
    assert json.loads(rows[1]["fields"])["message"] == "Failed password 1"
    assert rows[0]["received_at"].timestamp() * 1e6 == NOW


def test_another_request(data: Path, tmp_path: Path) -> None:
    """A folder with another export, or with anything else, is refused; the same request again changes nothing."""
    out = tmp_path / "out"
    export(data, "-o", out)
    before = (out / "manifest.json").read_bytes()
    export(data, "-o", out)
    assert (out / "manifest.json").read_bytes() == before
    assert b"choose an empty folder" in export(data, "--input", "a", "-o", out, code=2).err
    assert b"choose an empty folder" in export(data, "-o", data, code=2).err
    (out / "manifest.json").write_text("{}")
    assert b"not the manifest of an export" in export(data, "-o", out, code=2).err


@pytest.fixture
def slow(tmp_path: Path) -> list[str]:
    """``vedette`` with parts of few events, which lets a kill fall between them."""
    program = tmp_path / "slow.py"
    program.write_text(
        "import time\n"
        "from vedette.runtime.offline import export\n"
        "from vedette.cli.main import main\n"
        "export.PART_BYTES = 10_000\n"
        "put = export.Parts._put\n"
        "export.Parts._put = lambda *given: (time.sleep(0.01), put(*given), time.sleep(0.01))\n"
        "main()\n"
    )
    return [sys.executable, str(program)]


def cut(command: list[str], seconds: float) -> None:
    """Kill an export so long after it has named a part."""
    named = Path(command[-1]) / "manifest.json"

    def written() -> int:
        return named.stat().st_mtime_ns if named.exists() else 0

    before, running = written(), subprocess.Popen(command, stderr=subprocess.PIPE)
    until("a part", lambda: running.poll() is not None or written() != before)
    time.sleep(seconds)
    running.kill()
    running.communicate()


@pytest.mark.long
def test_killed(data: Path, tmp_path: Path, slow: list[str]) -> None:
    """Killed at random and started again, the export ends with every event once; so it does while retention deletes
    what it has read, and what it has not read counts as gone."""
    out, rng = tmp_path / "out", chance()
    command = [*slow, "logs", "export", "--data-dir", str(data), "--format", "raw", "-o", str(out)]
    for _ in range(KILLS):
        cut(command, rng.uniform(0, 0.1))
    subprocess.run(command, check=True, stderr=subprocess.PIPE)
    assert manifest(out)["complete"]
    assert lines(out) == every()

    again = tmp_path / "again"
    command[-1] = str(again)
    cut(command, 0)
    every_segment = segments(data / "raw")
    for segment in every_segment[: len(every_segment) // 2]:
        segment.path.unlink()
    subprocess.run(command, check=False, stderr=subprocess.PIPE)
    found = manifest(again)
    assert found["complete"]
    assert found["gone"] > 0
    assert found["gone"] + found["events"] == FRAMES * EVENTS


def test_damage(data: Path, tmp_path: Path) -> None:
    """A damaged frame is counted, the others are exported; the exit code says so."""
    segment = segments(data / "raw")[1]
    with segment.path.open("r+b") as file:
        file.seek(segment.path.stat().st_size // 2)
        file.write(b"\x00" * 64)
    out = tmp_path / "out"
    assert b"could not be read" in export(data, "-o", out, code=1).err
    found = manifest(out)
    assert found["damaged"] > 0
    assert found["damaged"] + found["events"] == FRAMES * EVENTS
    assert found["gone"] == 0
