"""The journal input on a real journald: whatever is done to it, every entry once, in order, and gaps counted."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.inputs.intake import Bin, account, agent
from tests.inputs.journald import Journald, journald
from tests.waits import eventually
from vedette.decode.decoder import record
from vedette.inputs.follow import JournalFollower
from vedette.inputs.settings import JournalInput
from vedette.model.counters import Counters, Dropped, Log
from vedette.model.event import MAX_EVENT, FilePosition, Flag

pytestmark = pytest.mark.peer


@pytest.fixture
def real() -> Iterator[Journald]:
    with journald() as made:
        yield made


@asynccontextmanager
async def following(bin: Bin, folder: Path, positions: Any = None, **settings: Any) -> AsyncIterator[Counters]:
    """A running follower; stopped afterwards, and the account checked. Goes on from ``positions``, else the bin's."""
    counters, before = Counters(), len(bin.chunks)
    known = list(bin.positions.values()) if positions is None else positions
    wanted = JournalInput("j", directory=str(folder), **settings)
    follower = JournalFollower(wanted, agent(bin, counters, known), backoff=(0.05, 0.2))
    task = asyncio.create_task(follower.run())
    try:
        yield counters
    finally:
        await follower.stop()
        await task
    later = Bin()
    later.chunks = bin.chunks[before:]
    account(counters, later, "j")


def messages(bin: Bin) -> list[str]:
    """Of the test's own entries."""
    found = [record(event, "syslog") for event in bin.events]
    return [str(one.get("message")) for one in found if one.get("program") == "test"]


def numbered(real: Journald, size: int = 50) -> Callable[[], None]:
    """Logs further entries, each with its number and so many different bytes."""
    numbers = count()

    def log() -> None:
        for i in range(size):
            real.log(f"entry {next(numbers)}", PAD=os.urandom(200).hex() + str(i))

    return log


async def test_entries_as_they_come(real: Journald) -> None:
    """What is there and what is added are events with the fields of a syslog line and those of journald; text of
    several lines and bytes that are no text are as they were."""
    bin = Bin()
    real.log("first")
    async with following(bin, real.folder):
        await eventually("the messages", lambda: messages(bin) == ["first"])
        real.send(
            MESSAGE=b'a trace\n\n  at "x" \xff]', SYSLOG_IDENTIFIER="test", PRIORITY="3", SYSLOG_FACILITY="10",
            SYSLOG_PID="7", MESSAGE_ID="f77379a8490b408bbe5f6940505a777b", CONTAINER_NAME='we"b]\\',
        )  # fmt: skip
        await eventually("2 events", lambda: len(messages(bin)) == 2)
    event = record(bin.events[-1], "syslog")
    assert event.raw.endswith(b'] a trace\n\n  at "x" \xff]')
    names = ("message", "facility", "severity", "program", "pid", "msgid", "CONTAINER_NAME", "_UID", "_TRANSPORT")
    assert [event.get(name) for name in names] == [
        'a trace\n\n  at "x" �]', "authpriv", "err", "test", str(os.getpid()), "f77379a8490b408bbe5f6940505a777b",
        'we"b]\\', "0", "journal",
    ]  # fmt: skip
    assert event.get("process.executable") == os.path.realpath("/proc/self/exe")
    assert event.get("container.name") == 'we"b]\\'
    assert event.host == os.uname().nodename
    assert event.event_time


async def test_restarted_and_rotated(real: Journald) -> None:
    """A follower that is stopped goes on behind the last entry that was stored, while journald rotates its files, is
    killed and starts again: every entry once, in order."""
    bin, log = Bin(), numbered(real)
    with capture_logs() as logs:
        async with following(bin, real.folder):
            log()
            await eventually("50 events", lambda: len(messages(bin)) >= 50)
            real.rotated(log)
        log()
        real.kill()
        real.start()
        async with following(bin, real.folder):
            log()
            real.kill()
            real.start()
            log()
            await eventually("250 events", lambda: len(messages(bin)) >= 250)
        async with following(bin, real.folder):
            real.log("last")
            await eventually("the messages", lambda: messages(bin)[-1] == "last")
    assert messages(bin) == real.messages()
    assert not [entry for entry in logs if entry["event"] == Log.JOURNAL_GAP]


async def test_deleted_before_they_were_read(real: Journald) -> None:
    """Entries that were deleted while the follower was away are counted, exactly, and what is left comes once."""
    bin, log = Bin(), numbered(real)
    log()
    async with following(bin, real.folder):
        await eventually("50 events", lambda: len(messages(bin)) == 50)
    before = len(bin.events)
    real.rotated(log)
    for file in real.files()[:-2]:
        file.unlink()
    left = real.messages()
    with capture_logs() as logs:
        async with following(bin, real.folder) as counters:
            await eventually("the messages", lambda: messages(bin)[-1] == left[-1])
    assert messages(bin) == [*(f"entry {i}" for i in range(50)), *left]
    last = int(left[-1].split()[1])
    gone = last + 1 - 50 - len(left)
    assert gone > 0
    others = len(bin.events) - before - len(left)  # of journald itself
    assert gone <= counters.dropped["j", Dropped.VACUUMED] <= gone + 40 + others
    assert counters.totals["journal_gaps"] == 1
    (gap,) = [entry for entry in logs if entry["event"] == Log.JOURNAL_GAP]
    assert gap["entries"] == counters.dropped["j", Dropped.VACUUMED]


async def test_deleted_ahead_of_a_follower_that_waits(real: Journald) -> None:
    """So are entries that were deleted while the raw log took nothing."""
    bin, log = Bin(), numbered(real, 500)
    async with following(bin, real.folder) as counters:
        real.log("first")
        await eventually("the messages", lambda: messages(bin) == ["first"])
        bin.close()
        for _ in range(8):  # more than the pipe and its reader hold
            log()
        for file in real.files()[:-2]:
            file.unlink()
        left = real.messages()
        bin.reopen()
        await eventually("the messages", lambda: messages(bin)[-1] == left[-1])
        came = messages(bin)
    assert len(came) == len(set(came))
    assert 1 + 4000 - len(came) > 0
    assert counters.dropped["j", Dropped.VACUUMED] >= 1 + 4000 - len(came)
    assert counters.totals["journal_gaps"] >= 1


@pytest.mark.parametrize("cursor", ["nonsense", f"s={'0' * 32};i=5;b={'0' * 32};m=1;t=1;x=1"])
async def test_a_cursor_of_another_journal(real: Journald, cursor: str) -> None:
    """It is a gap of unknown size, and what the journal has is read once."""
    bin = Bin()
    real.log("one", "two")
    position = FilePosition(f"journal:j:{real.folder}", 0, cursor, 5)
    async with following(bin, real.folder, [position]) as counters:
        await eventually("the messages", lambda: messages(bin) == ["one", "two"])
    assert counters.totals["journal_gaps"] == 1


async def test_only_what_is_new(real: Journald) -> None:
    """Without ``from_start`` a journal that is read for the first time is read from its newest entry on, with which the
    cursor is committed."""
    bin = Bin()
    real.log("old", "newest")
    await eventually("the messages", lambda: real.messages() == ["old", "newest"])
    async with following(bin, real.folder, from_start=False):
        await eventually("the messages", lambda: messages(bin) == ["newest"])
        real.log("new")
        await eventually("the messages", lambda: messages(bin) == ["newest", "new"])


async def test_only_what_is_wanted(real: Journald) -> None:
    """Entries are taken by priority and by fields; others are no events, and no gaps."""
    bin = Bin()
    settings = {"priority": "warning", "exclude": ("CONTAINER_NAME=noisy",), "fields": ("SHOP",)}
    async with following(bin, real.folder, **settings) as counters:
        real.log("chatter", PRIORITY="6")
        real.log("loud", PRIORITY="4", CONTAINER_NAME="noisy")
        real.log("wanted", PRIORITY="4", SHOP="7")
        await eventually("the messages", lambda: messages(bin) == ["wanted"])
    assert record(bin.events[-1], "syslog").get("SHOP") == "7"
    assert not counters.totals


async def test_an_entry_beyond_every_bound() -> None:
    """A message of several megabytes is cut and flagged, and the entry behind it comes."""
    bin = Bin()
    with journald("16M") as real:
        await _cut(bin, real)


async def _cut(bin: Bin, real: Journald) -> None:
    async with following(bin, real.folder) as counters:
        memory = os.memfd_create("entry", os.MFD_ALLOW_SEALING)
        text = b"SYSLOG_IDENTIFIER=test\nMESSAGE=" + b"x" * (3 << 20) + b"\n"
        os.write(memory, text)
        _send_memory(real, memory)
        real.log("next")
        await eventually("the messages", lambda: messages(bin)[-1:] == ["next"])
    (cut,) = [event for event in bin.events if len(event) == MAX_EVENT]
    assert cut.endswith(b"xxx")
    assert [bits for chunk in bin.chunks for _, bits in chunk.marks] == [Flag.CUT]
    assert counters.cut["j"] == 1


def _send_memory(real: Journald, memory: int) -> None:
    """An entry too large for a datagram, as sd_journal_send hands it over: a sealed memory file."""
    import fcntl
    import socket

    every = 0x1 | 0x2 | 0x4 | 0x8  # F_SEAL_SEAL, SHRINK, GROW, WRITE
    fcntl.fcntl(memory, 1033, every)  # F_ADD_SEALS
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"{real.run}/systemd/journal/socket")
        socket.send_fds(sender, [b""], [memory])
    os.close(memory)


def children(option: str = "") -> list[int]:
    """The journalctl processes of this one; with an ``option`` those that were given it."""
    pids = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for child in task.read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):
                    command = Path(f"/proc/{child}/cmdline").read_text().split("\0")
                    if command[0] == "journalctl" and (not option or option in command):
                        pids.append(int(child))
    return pids


async def test_a_child_that_ends(real: Journald) -> None:
    """journalctl killed from outside is started again: logged, and every entry once. None is left after the stop."""
    bin = Bin()
    with capture_logs() as logs:
        async with following(bin, real.folder):
            real.log("one")
            await eventually("the messages", lambda: messages(bin) == ["one"])
            await eventually("journalctl", lambda: children("--follow"))
            os.kill(children("--follow")[0], 9)
            real.log("two")
            await eventually("the messages", lambda: messages(bin) == ["one", "two"])
    assert children() == []
    (gone,) = [entry for entry in logs if entry["event"] == Log.JOURNAL_UNAVAILABLE]
    assert gone["reason"] == "journalctl was ended by signal 9"


async def test_no_journal_yet(tmp_path: Path, real: Journald) -> None:
    """A folder without a journal is looked at again until there is one."""
    bin, folder = Bin(), real.run / "later"
    with capture_logs() as logs:
        async with following(bin, folder):
            await eventually("a log line", lambda: logs)
            real.log("one")
            await eventually("the messages", lambda: real.messages() == ["one"])
            subprocess.run(["cp", "-a", real.folder, folder], check=True)
            await eventually("the messages", lambda: messages(bin) == ["one"])
    assert {entry["event"] for entry in logs} <= {Log.JOURNAL_UNAVAILABLE, Log.JOURNAL_COMPLAINT}


def told_the_kernel(marker: str) -> bool:
    """Write a line into the kernel's buffer; whether it is read from there. Containers have a pipe in its place."""
    path = Path("/dev/kmsg")
    try:
        if not path.is_char_device():
            return False
        with path.open("r+b", buffering=0) as buffer:
            os.set_blocking(buffer.fileno(), False)
            buffer.write(f"<4>{marker}\n".encode())
            while line := os.read(buffer.fileno(), 8192):
                if marker.encode() in line:
                    return True
    except OSError:
        return False
    return False


async def test_the_kernels_entries() -> None:
    """What is in the kernel's own buffer comes through a real journald as lines of a program and a severity, and the
    fields that journald vouches for tell it from what a process says of itself."""
    marker = f"vedette-test[7]: marker {os.urandom(8).hex()}"
    if not told_the_kernel(marker):
        pytest.skip("no /dev/kmsg of the kernel's here that gives what is written to it, as in a container")
    with journald("8M", kernel="yes") as real:
        real.send(MESSAGE=marker, SYSLOG_IDENTIFIER="kernel", TRANSPORT="kernel")
        real.log("last")
        kernel, others = Bin(), Bin()
        async with (
            following(kernel, real.folder, include=("_TRANSPORT=kernel",)),
            following(others, real.folder, exclude=("_TRANSPORT=kernel",)),
        ):
            await eventually("the marker", lambda: marker[17:] in str(kernel.events))
            await eventually("the messages", lambda: messages(others) == ["last"])
    found = [record(event, "syslog") for event in kernel.events]
    (own,) = [one for one in found if str(one.get("message")) == marker.partition(": ")[2]]
    assert (own.get("program"), own.get("pid"), own.get("severity")) == ("vedette-test", "7", "warning")
    assert {str(one.get("_TRANSPORT")) for one in found} == {"kernel"}
    assert messages(kernel) == []
    (liar,) = [one for one in (record(event, "syslog") for event in others.events) if one.get("message") == marker]
    assert liar.get("_TRANSPORT") == "journal"


async def test_a_containers_entries(real: Journald) -> None:
    """Of what Docker's journald driver writes (docs.docker.com, Journald logging driver) the container's name, id and
    image are fields, also by ECS's names, and a filter can go by them."""
    fields = {"CONTAINER_NAME": "web", "CONTAINER_ID": "0123456789ab", "CONTAINER_TAG": "web/7", "IMAGE_NAME": "shop:1"}
    real.send(MESSAGE="GET /", SYSLOG_IDENTIFIER="test", PRIORITY="3", CONTAINER_ID_FULL="0" * 64, **fields)
    real.log("of the host")
    every, one = Bin(), Bin()
    async with following(every, real.folder), following(one, real.folder, include=("CONTAINER_NAME=web",)):
        await eventually("the messages", lambda: messages(every) == ["GET /", "of the host"])
        await eventually("the messages", lambda: messages(one) == ["GET /"])
    found = record(one.events[0], "syslog")
    assert {name: found.get(name) for name in fields} == fields
    assert (found.get("container.name"), found.get("container.id")) == ("web", "0123456789ab")
