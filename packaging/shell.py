"""Programs that the recipe runs, and digests of files."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path


class BuildError(Exception):
    """The zip cannot be built here; the text says why and what to do."""


def run(*command: str | Path, **options: object) -> str:
    """Standard output of ``command``; raises BuildError with its error output."""
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}: the zip is built on Debian 12, x86_64") from error
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command[:4]))} failed:\n{(done.stderr or done.stdout).strip()}")
    return str(done.stdout)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
