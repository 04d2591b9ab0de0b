"""``vedette`` commands without the import of the program for each: a process that has imported it once forks, and the
fork runs the command.

A command is a process of its own with the caller's environment and folder, an empty standard input and the exit code of
``python -m vedette``. What acts on the start of a process is not for a fork: with another environment or folder than at
the first command, ``run`` says None, and the caller starts a Python.

``python -m tests.warm LISTENER`` is the process that forks: one thread, ended when its standard input ends.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.waits import DEADLINE

ROOT = Path(__file__).parents[1]
PACKAGES = ("vedette.cli", "vedette.bundle", "vedette.fleet", "vedette.region")
MODULES = (
    "vedette.rules.build",
    "vedette.rules.sql.frontend",
    "vedette.runtime.agent.control",
    "vedette.runtime.rulesets.validate",
    "vedette.runtime.offline.scan",
)
"""What the commands import beside those packages."""
MAX_REQUEST = 128 << 10
WITHOUT = "PYTEST_CURRENT_TEST"
"""Another in each test; of no meaning to a command."""


class Done(NamedTuple):
    code: int
    """Negative: the number of the signal that ended it."""
    out: bytes
    err: bytes


class Warm:
    """The process that forks, started by the first command; for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._address: Any = None
        self._as: tuple[str, dict[str, str]] | None = None

    def run(self, arguments: Sequence[str]) -> Done | None:
        """A command run to its end; None when it has to be started anew. Raises TimeoutError."""
        with self._lock:
            here = os.getcwd(), {name: value for name, value in os.environ.items() if name != WITHOUT}
            if self._server is None and "LD_PRELOAD" not in here[1]:
                self._start(here)
        if here != self._as:
            return None
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            Path(os.devnull).open("rb") as nothing,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
        ):
            connection.settimeout(DEADLINE)
            connection.connect(self._address)
            files = [file.fileno() for file in (nothing, out, err)]
            socket.send_fds(connection, ["\0".join(arguments).encode()], files)
            process = int(connection.recv(32))
            try:
                code = int(connection.recv(32))
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                raise
            out.seek(0)
            err.seek(0)
            return Done(code, out.read(), err.read())

    def _start(self, here: tuple[str, dict[str, str]]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("")  # a free name that no file has
            listener.listen()
            command = [sys.executable, "-m", "tests.warm", str(listener.fileno())]
            self._server = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], cwd=ROOT
            )
            self._address, self._as = listener.getsockname(), here
        atexit.register(self.end)

    def end(self) -> None:
        """The process that forks ends; commands that run go on to their end."""
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait()


def serve(listener: socket.socket) -> list[str] | None:
    """Fork for each request; returns the arguments in a fork, None when standard input has ended."""
    with selectors.PollSelector() as waiting:
        waiting.register(0, selectors.EVENT_READ)
        waiting.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd == 0:
                    return None
                if key.fileobj is not listener:  # a command has ended
                    process, connection = key.data
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                    _answer(connection, code)
                    connection.close()
                    continue
                connection = listener.accept()[0]
                data, files, _, _ = socket.recv_fds(connection, MAX_REQUEST, 3)
                process = os.fork()
                if process == 0:
                    connection.close()
                    for other in [*waiting.get_map().values()]:
                        if other.data is not None:
                            os.close(other.fd)
                            other.data[1].close()
                    listener.close()
                    for number, file in enumerate(files):
                        os.dup2(file, number)
                        os.close(file)
                    return data.decode().split("\0")
                for file in files:
                    os.close(file)
                _answer(connection, process)
                waiting.register(os.pidfd_open(process), selectors.EVENT_READ, (process, connection))


def _answer(connection: socket.socket, number: int) -> None:
    try:
        connection.send(b"%d" % number)
    except OSError:  # who asked has gone
        return


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    for name in MODULES:
        importlib.import_module(name)
    threads = [*Path("/proc/self/task").iterdir()]
    assert len(threads) == 1, "an import has started a thread, which a fork does not have"
    gc.collect()
    gc.freeze()
    if (arguments := serve(listener)) is not None:
        sys.argv[1:] = arguments
        runpy.run_module("vedette", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
