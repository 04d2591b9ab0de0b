"""What the demos share: commands that are run to their end, processes that run beside them, and waits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VEDETTE = str(Path(sys.executable).parent / "vedette")
TAIL = 2000
"""Characters of a log that are shown where a demo fails."""


def say(text: str) -> None:
    print(f"\033[1m==> {text}\033[0m" if sys.stdout.isatty() else f"==> {text}", flush=True)


def command(*arguments: object, folder: Path = ROOT, **options: Any) -> str:
    """Run in ``folder`` to its end; its standard output. A failure shows what it said and ends the demo."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(a) for a in arguments], cwd=folder, capture_output=True, text=True, **options
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}\nended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def running(log: Path, *arguments: object, folder: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in ``log``, ended by SIGTERM."""
    with log.open("wb") as out:
        process = subprocess.Popen([str(a) for a in arguments], cwd=folder, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(what: str, check: Callable[[], Any], logs: Path, seconds: float = 120.0) -> Any:
    """Wait for a true answer of ``check`` and return it; in vain it ends the demo with the tails of ``logs/*.log``."""
    deadline = time.monotonic() + seconds
    while not (answer := check()):
        if time.monotonic() > deadline:
            tails = "\n".join(f"--- {p}\n{p.read_text(errors='replace')[-TAIL:]}" for p in sorted(logs.glob("*.log")))
            sys.exit(f"waited {seconds:.0f} s in vain for: {what}\n{tails}")
        time.sleep(0.1)
    return answer


def status(config: Path) -> dict[str, Any]:
    """An agent's; empty while it starts."""
    arguments = [VEDETTE, "status", "-c", str(config), "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
    document: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return document
