"""``[[sink]] type = "command"``: its receiver. A program of this host, run for each alert with its JSON on standard
input; of rows for many together, a line each.

It runs only what ``agent.allow_commands`` of the local file names, which no document of the centre changes. No shell:
the words of ``command`` are the program's arguments as they stand, and nothing of an alert is among them. Its
environment is ``PATH``, ``LANG`` and ``VEDETTE_ALERT_ID``, of rows ``VEDETTE_ROW_ID``, the first one's.

Delivery: exit code 0 takes the alert, 65 (EX_DATAERR of sysexits.h) refuses it for good, any other means later. What
takes longer than ``timeout`` is killed with its process group; ``max_memory`` bounds the address space of each process,
but where a system call filter forbids that, as that of the unit does: there its MemoryMax holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import orjson

from vedette.sinks.base import MAX_TEXT, Answer, Outgoing, Verdict
from vedette.sinks.settings import CommandSink

REFUSED = 65
POLL_SECONDS = 0.01
PIPES = 17
"""Reads that empty a pipe: it holds 1 MiB at most."""
_START = (
    "import contextlib, os, resource, sys\n"
    "memory = int(sys.argv[1])\n"
    "with contextlib.suppress(OSError, ValueError):\n"
    "    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)
"""Bounds the program before it begins: between fork and exec a process with threads may do nothing of the kind."""


class Command:
    """A program, run for each alert, or for many rows."""

    batch, row_batch = 20, 1000

    def __init__(self, settings: CommandSink) -> None:
        self._settings = settings

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        if alerts[0].line:
            return [await self._run("ROW", alerts[0].id, b"\n".join(row.line for row in alerts))] * len(alerts)
        return [await self._run("ALERT", alert.id, orjson.dumps(alert.row)) for alert in alerts]

    async def _run(self, noun: str, id: str, lines: bytes) -> Answer:
        settings = self._settings
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
            f"VEDETTE_{noun}_ID": id,
        }  # fmt: skip
        with _Ear() as ear:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", "-c", _START, str(settings.max_memory), *settings.command,
                    env=environment, cwd="/", start_new_session=True,
                    stdin=asyncio.subprocess.PIPE, stdout=ear.mouth, stderr=ear.mouth,
                )  # fmt: skip
            except OSError as error:
                return Answer(Verdict.LATER, f"{settings.program}: {error}")
            try:
                async with asyncio.timeout(settings.timeout):
                    _, code = await asyncio.gather(_feed(process, lines + b"\n"), _ended(process))
            except TimeoutError:
                return Answer(Verdict.LATER, f"ran for more than {settings.timeout:g} s and was killed")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it has left running, too
                await _ended(process)
            said = ear.heard()
        text = " ".join(said.decode("utf-8", "replace").split())[-MAX_TEXT:]
        shown = f"exit code {code}: {text}" if text else f"exit code {code}"
        verdicts = {0: Verdict.TAKEN, REFUSED: Verdict.REFUSED}
        return Answer(verdicts.get(code, Verdict.LATER), shown)

    async def close(self) -> None:
        pass


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None  # it is a pipe
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not read
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.close()
    except asyncio.CancelledError:
        process.stdin.transport.abort()
        raise


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Its exit code. ``Process.wait`` may wait for pipes, too, which a process that has left the group can hold."""
    while (code := process.returncode) is None:
        await asyncio.sleep(POLL_SECONDS)
    return code


class _Ear:
    """A pipe for what a program prints, of which the end is kept. Closed, whatever still writes there."""

    def __init__(self) -> None:
        self._read, self.mouth = os.pipe()
        self._said = bytearray()
        os.set_blocking(self._read, False)
        asyncio.get_running_loop().add_reader(self._read, self._hear)

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            if block := os.read(self._read, 1 << 16):
                self._said += block
                del self._said[: -4 * MAX_TEXT]
            else:
                asyncio.get_running_loop().remove_reader(self._read)

    def heard(self) -> bytes:
        """The end of what was printed until now."""
        for _ in range(PIPES):
            self._hear()
        return bytes(self._said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)
        os.close(self.mouth)
