"""Messages and the log, programs, and files that are replaced as a whole: the host, for every action."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn, TextIO

PID = str(os.getpid())
"""In the names of temporary files; that of the shell before this program."""


class Failed(Exception):
    """An action that cannot go on: ``code`` is an exit code of docs/install.md, ``text`` says why and what to do."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Interrupted(BaseException):
    """SIGHUP, SIGINT or SIGTERM."""


class Report:
    """Messages to the terminal, whose reader may be gone, and to the log."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.step = "starting"
        """Name of what goes on, for the message about an error."""

    def say(self, text: str) -> None:
        _print(sys.stdout, text)
        self.note(text)

    def warn(self, text: str) -> None:
        _print(sys.stderr, f"warning: {text}")
        self.note(f"warning: {text}")

    def failed(self, code: int, text: str) -> None:
        _print(sys.stderr, text)
        self.note(f"{text} (exit code {code})")

    def lines(self, text: str) -> None:
        """Pass on what a program has said, as it is."""
        _print(sys.stderr, text, "")
        self.note(text)

    def note(self, text: str) -> None:
        try:
            with self.log.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
        except OSError:
            pass  # a full disk


def _print(stream: TextIO | None, text: str, prefix: str = "vedette: ") -> None:
    if stream is None:  # closed
        return
    try:
        stream.write(f"{prefix}{text}\n")
        stream.flush()
    except OSError:
        # The interpreter flushes once more at its end: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def stop_at_signals() -> None:
    """Raises Interrupted at each of SIGNALS that is not ignored already, as nohup has it."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def quiet() -> None:
    """Ignore signals from now on, also in what this process starts."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Done(NamedTuple):
    code: int
    text: str
    """Output and errors."""


def run(*command: str | Path) -> Done:
    """Run a program to its end; the code is 127 for one that cannot be run."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return Done(127, str(error))
    return Done(done.returncode, done.stdout.rstrip("\n"))


def need(*command: str | Path) -> str:
    """Run a program that must succeed; returns its output. Raises Failed, OSError."""
    done = run(*command)
    if done.code:
        raise Failed(1, f"{' '.join(str(word) for word in command)}: {done.text or f'exit code {done.code}'}")
    return done.text


def program(release: Path, *words: str | Path) -> Done:
    """Run the private Python of ``release``, without anything of the host's."""
    return run(release / "runtime/bin/vedetted", "-X", "utf8", "-I", "-S", "-B", *words)


def facts(path: Path) -> dict[str, str]:
    """Return the lines KEY=VALUE of a file, the first of each key; none where there is no file."""
    try:
        return pairs(path.read_text("utf-8", "replace"))
    except OSError:
        return {}


def pairs(text: str) -> dict[str, str]:
    """Return the lines KEY=VALUE of a text, the first of each key."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            rows.setdefault(key, value)
    return rows


def link_target(link: Path) -> str:
    """Return where a link leads; empty: there is no link."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def point(link: Path, target: str | Path) -> None:
    """Make ``link`` lead to ``target``, by a rename."""
    temporary = f"{link}.tmp.{PID}"
    remove(Path(temporary))  # of a killed run with the same number
    os.symlink(target, temporary)
    os.replace(temporary, link)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file as a whole, by a rename."""
    temporary = Path(f"{path}.tmp.{PID}")
    temporary.write_text(text, "utf-8")
    temporary.chmod(mode)
    temporary.replace(path)


def same(left: Path, right: Path) -> bool:
    """Say whether two files have the same bytes."""
    return left.read_bytes() == right.read_bytes()


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: Path) -> None:
    """Remove a file, link or folder, if it is there. One that cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return what has such a name in a folder, also links that lead nowhere, which Path.glob leaves out."""
    try:
        return [folder / name for name in fnmatch.filter(os.listdir(folder), pattern)]
    except OSError:
        return []


def remove_empty(*folders: Path) -> None:
    """Remove those of the folders that are empty."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
