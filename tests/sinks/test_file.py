"""Files of alerts: whole lines, rotation, and what a crash or another program leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.kit import block, unblock
from tests.sinks.kit import hostile, outgoing
from vedette.sinks import opening
from vedette.sinks.base import Receiver, Verdict
from vedette.sinks.formats import cef, json_line
from vedette.sinks.settings import FileSink
from vedette.system.rotated import Rotated


def opened(path: Path, **settings: Any) -> Receiver:
    return opening.opened(FileSink("f", path=path, **settings), "1.2")


async def test_lines(tmp_path: Path) -> None:
    """A line an alert, as JSON or CEF, in order; a new receiver goes on behind them."""
    for begin in (0, 10):
        receiver = opened(tmp_path / "alerts")
        answers = await receiver.deliver([outgoing(begin + i) for i in range(10)])
        assert {one.verdict for one in answers} == {Verdict.TAKEN}
    rows = [json.loads(line) for line in (tmp_path / "alerts").read_text().splitlines()]
    assert [row["seq"] for row in rows] == list(range(20))
    assert rows[0] == dict(outgoing(0).row)
    assert (tmp_path / "alerts").stat().st_mode & 0o007 == 0
    await opened(tmp_path / "cef", format="cef").deliver([hostile(1), hostile(2)])
    assert len((tmp_path / "cef").read_text().splitlines()) == 2


async def test_a_torn_line_is_cut(tmp_path: Path) -> None:
    """What a crash left without its end goes before the next line is written, however long it is, and whatever was
    there before in another format."""
    file = tmp_path / "alerts"
    for torn in (json_line(outgoing(1).row), json_line(outgoing(1).row)[:9], b"\0" * 200_000):
        file.write_bytes(json_line(outgoing(1).row) + b"\n" + torn)
        await opened(file).deliver([outgoing(2)])
        assert [json.loads(line)["seq"] for line in file.read_text().splitlines()] == [1, 2]
    for torn in (json_line(outgoing(1).row), b"{", cef(outgoing(1).row, "1.2")):
        file.write_bytes(torn)
        await opened(file).deliver([outgoing(2)])
        assert [json.loads(line)["seq"] for line in file.read_text().splitlines()] == [2]


OSV = b'{"schema_version":"1.7.0","id":"GHSA-1","modified":"2026-11-29T00:00:00Z"}'


@pytest.mark.parametrize(
    "text",
    [b"a note", b"a note\n", b"\n", b"\0\0", b'{"a": 1}\n{"schema_version":', OSV, OSV + b"\n",
     b'{"schema_version":1,"id":"x"}', b'{"schema_version":1}', b'{"schema_version":-1,"alert_id":"x"}',
     b"CEF:0|Vedette|Other|1|"],
)  # fmt: skip
async def test_what_is_another_programs(tmp_path: Path, text: bytes) -> None:
    """A file that the path names by mistake, or an older one that a rotation would replace, stays as it is; the alert
    waits, and is written once that has gone."""
    for path, other in ((tmp_path / "alerts", tmp_path / "alerts"), (tmp_path / "new", tmp_path / "new.1")):
        other.write_bytes(text)
        receiver = opened(path, max_bytes=10, keep=2)
        answers = [one for seq in (1, 2) for one in await receiver.deliver([outgoing(seq)])]
        assert answers[-1].verdict is Verdict.LATER
        assert "does not begin as a file of alerts" in answers[-1].text
        assert str(other) in answers[-1].text
        assert other.read_bytes() == text
        other.unlink()
        (answer,) = await receiver.deliver([outgoing(2)])
        assert answer.verdict is Verdict.TAKEN


async def test_rotation(tmp_path: Path) -> None:
    """A file ends before ``max_bytes``; ``keep`` older ones stay, and no line is in two."""
    receiver = opened(tmp_path / "alerts", max_bytes=10_000, keep=2)
    for seq in range(100):
        await receiver.deliver([outgoing(seq)])
    files = [tmp_path / name for name in ("alerts.2", "alerts.1", "alerts")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    seqs = [json.loads(line)["seq"] for file in files for line in file.read_text().splitlines()]
    assert seqs == list(range(100 - len(seqs), 100))
    assert all(file.stat().st_size <= 10_000 for file in files)
    assert len(seqs) > 20


async def test_another_program_rotates(tmp_path: Path) -> None:
    """A file that was renamed away is left alone; the next line is in a new one."""
    receiver = opened(tmp_path / "alerts")
    await receiver.deliver([outgoing(1)])
    (tmp_path / "alerts").rename(tmp_path / "mine")
    await receiver.deliver([outgoing(2)])
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("alerts", "mine")] == [1, 1]


async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The alert is asked for again, and is written when the folder can be."""
    block(tmp_path / "folder")
    receiver = opened(tmp_path / "folder" / "alerts")
    (answer,) = await receiver.deliver([outgoing()])
    assert answer.verdict is Verdict.LATER
    assert "alerts" in answer.text
    unblock(tmp_path / "folder")
    (tmp_path / "folder").mkdir(exist_ok=True)
    (answer,) = await receiver.deliver([outgoing()])
    assert answer.verdict is Verdict.TAKEN


def test_one_line_may_be_longer_than_the_bound(tmp_path: Path) -> None:
    """It has a file to itself; without older files the newest stays alone."""
    file = Rotated(tmp_path / "f", 10, 0, (b"a", b"b"))
    for line in (b"a\n", b"b" * 100 + b"\n", b"a\n"):
        file.append(line)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"a\n"]


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "dangling"])
async def test_what_the_folders_owner_puts_in_its_place(tmp_path: Path, kind: str) -> None:
    """Nothing is cut or written through a link to a file of the agent, or by a second name of it; the alert waits, and
    is written once that has gone."""
    own, path = tmp_path / "data.mdb", tmp_path / "alerts"
    own.write_bytes(b"line\nthe rest")
    match kind:
        case "link":
            path.symlink_to(own)
        case "second name":
            os.link(own, path)
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to(tmp_path / "none")
    receiver = opened(path)
    (answer,) = await receiver.deliver([outgoing(1)])
    assert answer.verdict is Verdict.LATER
    assert "remove it" in answer.text
    assert own.read_bytes() == b"line\nthe rest"
    assert not (tmp_path / "none").exists()
    path.unlink()
    (answer,) = await receiver.deliver([outgoing(1)])
    assert answer.verdict is Verdict.TAKEN
