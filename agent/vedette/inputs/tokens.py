"""Who may push: the tokens of a file, a line each; an empty line or one that begins with ``#`` is none.

Read again when the file changes, so that a token can be replaced without a restart. A file that all may read is
refused. A token comes as ``Authorization: Bearer``, ``Splunk`` or ``ApiKey``, or as the password of ``Basic``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import stat
from contextlib import suppress
from pathlib import Path

from vedette.system.durable import stamp


class Tokens:
    """The tokens of one input."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, with the path, for a file that cannot be used."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._tokens: list[bytes] = []
        self._read()

    def _read(self) -> None:
        with self._path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
                raise PermissionError(f"{self._path}: all may read these tokens: chmod 640 {self._path}")
            seen = stamp(file.fileno())
            if seen == self._seen:
                return
            lines = [line.strip() for line in file.read(1 << 20).splitlines()]
        tokens = [line for line in lines if line and not line.startswith(b"#")]
        if not tokens:
            raise OSError(f"{self._path}: no token in it: write one a line")
        self._tokens = tokens
        self._seen = seen

    def fit(self, authorization: str) -> bool:
        """Whether a header's value has one of the tokens. A file that cannot be read any more: the last ones hold."""
        with suppress(OSError):
            self._read()
        kind, _, value = authorization.partition(" ")
        offered = value.strip().encode()
        if kind.lower() == "basic":
            try:
                offered = base64.b64decode(offered, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif kind.lower() not in ("bearer", "splunk", "apikey"):
            return False
        fits = False
        for token in self._tokens:  # all of them: the time tells nothing
            fits |= hmac.compare_digest(token, offered)
        return fits
