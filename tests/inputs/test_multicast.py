"""The audit input on the kernel's own audit: every record as auditd writes it, and what is lost is counted."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.inputs.auditing import auditd, auditing, speaker
from tests.inputs.intake import Bin, account, agent
from tests.waits import eventually
from vedette.decode.decoder import record
from vedette.decode.formats.auditd import TYPES
from vedette.inputs.multicast import OWN, AuditListener
from vedette.inputs.settings import AuditInput
from vedette.model.counters import Counters, Dropped, Log

pytestmark = pytest.mark.peer


@asynccontextmanager
async def listening(bin: Bin, counters: Counters | None = None, **settings: Any) -> AsyncIterator[Counters]:
    """A running input that has opened its socket; stopped afterwards, and the account checked."""
    counted = counters or Counters()
    listener = AuditListener(AuditInput("a", **settings), agent(bin, counted, list(bin.positions.values())))
    with capture_logs() as logs:
        task = asyncio.create_task(listener.run())
        try:
            await eventually(
                "the log event AUDIT_OPENED", lambda: any(entry["event"] == Log.AUDIT_OPENED for entry in logs)
            )
            yield counted
        finally:
            await listener.stop()
            await task


def texts(bin: Bin) -> list[bytes]:
    """What a Speaker has said, in order."""
    return [found[1] for one in bin.events if (found := re.search(rb"msg='(said \d+)", one))]


async def test_records_are_those_of_auditd(tmp_path: Path) -> None:
    """What comes is, byte for byte, what a real auditd beside it writes of the same events; arguments are decoded."""
    program = tmp_path / "prog"
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o755)
    bin, counters = Bin(), Counters()
    with auditing(f"-a always,exit -F arch=b64 -S execve -F path={program} -k vedette-test"), auditd(tmp_path) as log:
        async with listening(bin, counters):
            subprocess.run([program, "a b", "--password"], check=True)
            wanted = re.compile(rb"EXECVE msg=(audit\([^)]+\)).*612062")
            await eventually("the events", lambda: any(wanted.search(one) for one in bin.events))
            await eventually("the events", lambda: bin.events[-1].startswith(b"type=EOE"))
            (id,) = (found[1] for one in bin.events if (found := wanted.search(one)))
            mine = [
                one.rstrip() for one in bin.events if id in one and b"type=EOE" not in one
            ]  # which auditd keeps to itself
            theirs: list[bytes] = []

            def written() -> bool:
                theirs[:] = [line.rstrip() for line in log.read_bytes().splitlines() if id in line]
                return len(theirs) >= len(mine)

            await eventually("all that was written", written)
    assert mine == theirs
    assert {one.split()[0] for one in mine} >= {b"type=SYSCALL", b"type=EXECVE", b"type=CWD", b"type=PATH"}
    event = record(b"\n".join(mine), "auditd")
    call, argument = event.get("a1"), event.get("a2")  # those of the system call come first
    assert isinstance(call, list)
    assert isinstance(argument, list)
    assert (call[1], argument[1], event.get("SYSCALL")) == ("a b", "--password", "execve")
    account(counters, bin, "a")


async def test_overflow_is_counted(tmp_path: Path) -> None:
    """While the raw log takes nothing the kernel's buffer fills: what it drops is counted, what it keeps comes."""
    bin, counters, sent = Bin(), Counters(), 3000
    with auditing(), speaker() as speaking:
        async with listening(bin, counters, receive_buffer=4096):
            speaking.say("said 0")
            await eventually("the messages", lambda: texts(bin) == [b"said 0"])
            bin.close()
            speaking.say("said 1")  # the input waits for this one already
            await eventually("2 events", lambda: len(texts(bin)) == 2)
            for i in range(2, sent):
                speaking.say(f"said {i}")
            bin.reopen()
            await eventually("the count of what was dropped", lambda: counters.dropped["a", Dropped.KERNEL])
            await eventually(
                "the count of what was dropped", lambda: len(texts(bin)) + counters.dropped["a", Dropped.KERNEL] >= sent
            )
    assert counters.received["a"] == len(bin.events) + counters.dropped["a", Dropped.KERNEL]
    assert counters.totals["audit_gaps"] >= 1


async def test_absence_is_counted() -> None:
    """Events while nobody listened are counted at the next start, from their numbers; without a position none are."""
    bin, witness = Bin(), Bin()
    with auditing(), speaker() as speaking:
        async with listening(witness):  # it tells when the kernel has delivered, which it does later
            speaking.say("said 0")
            await eventually("the messages", lambda: texts(witness) == [b"said 0"])
            async with listening(bin) as counters:
                speaking.say("said 1")
                await eventually("the messages", lambda: texts(bin) == [b"said 1"])
            assert not counters.dropped
            for i in range(7):
                speaking.say(f"said {i}")
            await eventually("the messages", lambda: texts(witness)[2:] == [b"said %d" % i for i in range(7)])
            again = Counters()
            async with listening(bin, again):
                speaking.say("said 9")
                await eventually("the messages", lambda: texts(bin) == [b"said 1", b"said 9"])
    assert 7 - OWN < again.dropped["a", Dropped.MISSED] <= 7
    assert again.totals["audit_gaps"] == 1


async def test_own_system_calls_are_left_out(tmp_path: Path) -> None:
    """A rule that watches what this process writes gives no event of it, but of what others write."""
    bin, path = Bin(), tmp_path / "watched"
    path.touch()
    with auditing(f"-w {path} -p wa -k vedette-test"):
        async with listening(bin):
            path.write_text("mine")
            subprocess.run(["sh", "-c", f"echo theirs >{path}"], check=True)
            await eventually("the events", lambda: any(b'comm="sh"' in one for one in bin.events))
    calls = [one for one in bin.events if one.startswith(b"type=SYSCALL") and b"vedette-test" in one]
    assert [b'comm="sh"' in one for one in calls if b"auditctl" not in one] == [True]


def test_without_the_capability() -> None:
    """It says once what is missing, and goes on trying."""
    program = """if True:
        import asyncio, os, sys
        from vedette.inputs.settings import AuditInput
        from vedette.inputs.multicast import OWN, AuditListener
        from vedette.model.counters import Counters
        from tests.inputs.intake import Bin, agent
        from tests.waits import eventually
        os.setgid(65534); os.setuid(65534)
        async def main():
            listener = AuditListener(AuditInput("a"), agent(Bin(), Counters()), backoff=(0.01, 0.01))
            task = asyncio.create_task(listener.run())
            await eventually("three failures", lambda: listener._backoff._failures >= 3)
            await listener.stop()
            await task
        asyncio.run(main())
    """
    with auditing():
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("CAP_AUDIT_READ") == 1


def test_names_of_types(tmp_path: Path) -> None:
    """Every number has the name that libaudit has for it."""
    program = (
        "import ctypes, ctypes.util, sys\n"
        "lib = ctypes.CDLL('libaudit.so.1')\n"
        "lib.audit_msg_type_to_name.restype = ctypes.c_char_p\n"
        "print(*((lib.audit_msg_type_to_name(int(n)) or b'?').decode() for n in sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *TYPES], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no libaudit")
    known = dict(zip(TYPES, done.stdout.split(), strict=True))
    assert {n: name for n, name in known.items() if name not in ("?", TYPES[n])} == {}
