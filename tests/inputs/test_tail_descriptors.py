"""The file input with few descriptors or none, and with files that cannot be looked at: nothing is taken for gone."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.inputs.intake import Bin
from tests.inputs.test_tail import LINGER, append, tailing
from tests.waits import eventually
from vedette.model.counters import Log


def held(folder: Path) -> list[str]:
    """The files under ``folder`` that this process has open."""
    links = (os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd"))
    return [link for link in links if link.startswith(str(folder))]


@contextmanager
def no_descriptor() -> Iterator[Callable[[str], None]]:
    """None is left for this process: every one that there may be is taken. Gives a shell that has its own."""
    shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdin is not None
    assert shell.stdout is not None

    def do(command: str) -> None:
        shell.stdin.write(f"{command}; echo done\n".encode())  # type: ignore[union-attr]
        shell.stdin.flush()  # type: ignore[union-attr]
        assert shell.stdout.readline() == b"done\n"  # type: ignore[union-attr]

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield do
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        shell.communicate()


@pytest.mark.alone
@pytest.mark.parametrize("pattern", ["a.log", "*.log"])
async def test_no_descriptor_is_no_rotation(tmp_path: Path, pattern: str) -> None:
    """While no folder can be read and nothing opened, no file is taken to have gone: those that are open are read, and
    what was renamed or came meanwhile is found, and read to its end, when there are descriptors again."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "one\n")
    with capture_logs() as logs:
        async with tailing(bin, tmp_path / pattern) as tail:
            await eventually("the events", lambda: bin.events == [b"one"])
            with no_descriptor() as do:
                do(f"echo two >> {path}")
                await eventually("the events", lambda: bin.events[1:] == [b"two"])
                await tail.polled(LINGER)
                assert not [entry for entry in logs if entry["event"] == Log.FILE_ROTATED]
                for turn in range(3):  # the second comes and goes without ever having been opened
                    do(f"echo three {turn} >> {path}; mv {path} {path}.{turn}")
                    await tail.polled()
                do(f"echo four >> {path}")
                await tail.polled(LINGER)
            await eventually("6 events", lambda: len(bin.events) == 6)
    assert sorted(bin.events) == [b"four", b"one", *(b"three %d" % turn for turn in range(3)), b"two"]
    rotated = [entry["now"] for entry in logs if entry["event"] == Log.FILE_ROTATED]
    assert None not in rotated
    unreadable = [entry["reason"] for entry in logs if entry["event"] == Log.FILE_UNREADABLE]
    assert any("Too many open files" in reason for reason in unreadable)


async def test_a_folder_that_cannot_be_read_is_no_rotation(tmp_path: Path) -> None:
    """Where a file cannot even be looked at, it has not gone; files elsewhere are not touched by that."""
    real = os.stat

    def failing(path: object, **options: Any) -> os.stat_result:
        if str(path) == str(tmp_path / "a.log"):
            raise OSError(errno.EIO, "the disk fails")
        return real(path, **options)

    bin = Bin()
    append(tmp_path / "a.log", "one\n")
    append(tmp_path / "b.log", "one\n")
    with capture_logs() as logs:
        async with tailing(bin, tmp_path / "a.log", tmp_path / "b.log") as tail:
            await eventually("2 events", lambda: len(bin.events) == 2)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "stat", failing)
                await tail.polled(LINGER)
                (tmp_path / "b.log").rename(tmp_path / "b.log.1")
                append(tmp_path / "b.log", "two\n")
                await eventually("3 events", lambda: len(bin.events) == 3)
            append(tmp_path / "a.log", "two\n")
            await eventually("4 events", lambda: len(bin.events) == 4)
            await eventually(
                "the log event FILE_ROTATED", lambda: any(entry["event"] == Log.FILE_ROTATED for entry in logs)
            )
    rotated = [entry["path"] for entry in logs if entry["event"] == Log.FILE_ROTATED]
    assert rotated == [str(tmp_path / "b.log")]


async def test_a_rotated_file_that_cannot_be_opened_waits(tmp_path: Path) -> None:
    """What was written to it before it was rotated is read once there is a descriptor, however late."""
    real, spent = os.open, True

    def opened(path: str, flags: int) -> int:
        if spent and str(path).endswith("a.log.1"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags)

    bin = Bin()
    append(tmp_path / "a.log", "one\n")
    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        patch.setattr(os, "open", opened)
        async with tailing(bin, tmp_path / "a.log", tmp_path / "b.log", open_files=1) as tail:
            await eventually("an event", lambda: len(bin.events) == 1)
            append(tmp_path / "b.log", "one\n")  # takes the descriptor
            await eventually("2 events", lambda: len(bin.events) == 2)
            append(tmp_path / "a.log.1", "")
            os.replace(tmp_path / "a.log", tmp_path / "a.log.1")
            append(tmp_path / "a.log.1", "two\n")
            append(tmp_path / "a.log", "three\n")
            await eventually(
                "the log event FILE_UNREADABLE", lambda: any(entry["event"] == Log.FILE_UNREADABLE for entry in logs)
            )
            await tail.polled(LINGER)
            spent = False
            await eventually("4 events", lambda: len(bin.events) == 4)
    assert sorted(bin.events) == [b"one", b"one", b"three", b"two"]


async def test_more_files_than_are_held_open(tmp_path: Path) -> None:
    """Files beyond the bound are closed and opened again when they grow, without losing their place."""
    bin, paths = Bin(), [tmp_path / f"{i}.log" for i in range(10)]
    for path in paths:
        append(path, "one\n")
    async with tailing(bin, tmp_path / "*.log", open_files=3):
        await eventually("10 events", lambda: len(bin.events) == 10)
        assert 0 < len(held(tmp_path)) <= 4
        for path in paths:
            append(path, "two\n")
        await eventually("20 events", lambda: len(bin.events) == 20)
    assert sorted(bin.events) == [b"one"] * 10 + [b"two"] * 10
    assert not held(tmp_path)
