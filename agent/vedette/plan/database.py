"""Many patterns against one text in one pass: the only place that knows Hyperscan.

The wheel is Vectorscan on Linux. Its serialized databases are byte-identical on x86-64 and aarch64, are bound to the
exact library version (another one cannot load them) and are guarded by a CRC only: load them from a verified bundle
or from the agent's own cache, nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

NEEDED = frozenset(("popcnt", "bmi1", "bmi2", "abm", "avx2"))
"""What the wheel is compiled for on x86-64, as /proc/cpuinfo names it; the library looks for none of it, and dies of an
illegal instruction, or goes on with wrong results where LZCNT (abm) lacks. Of aarch64 it needs what every one has."""


def _lacking() -> list[str]:
    """Return what of ``NEEDED`` this processor lacks; nothing where that is unknown."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), None)
    except OSError:
        return []
    return [] if flags is None else sorted(NEEDED.difference(flags))


if lacking := _lacking():
    raise ImportError(
        f"the processor lacks {', '.join(lacking)}, which the pattern matcher is compiled for: it takes x86-64-v3"
        " (Intel from Haswell, AMD from Excavator on), also as the processor type of a virtual machine",
        name="hyperscan",
    )

import hyperscan  # noqa: E402
import hyperscan._hs_ext  # noqa: E402

MODULE = str(hyperscan._hs_ext.__file__)
"""The file of the extension module that holds the library, whose functions the kernel calls."""

CASELESS = hyperscan.HS_FLAG_CASELESS
DOTALL = hyperscan.HS_FLAG_DOTALL
MULTILINE = hyperscan.HS_FLAG_MULTILINE
UTF8 = hyperscan.HS_FLAG_UTF8
ONCE = hyperscan.HS_FLAG_SINGLEMATCH
MAY_BE_EMPTY = hyperscan.HS_FLAG_ALLOWEMPTY


class Pattern(NamedTuple):
    """``expression``: PCRE syntax, UTF-8; ``flags``: an OR of this module's flags."""

    expression: bytes
    flags: int = 0


Handler = Callable[[int, int, int, int, Any], bool | None]
"""Called with (pattern's index, 0, end of the match, 0, None); a true result ends the scan (``scan_until``)."""


class Scanner:
    """A compiled set of patterns; ``scan(data, handler)`` calls ``handler`` for every match end."""

    __slots__ = ("_db", "scan")

    def __init__(self, db: Any) -> None:
        self._db = db
        self.scan: Callable[[bytes, Handler], None] = db.scan

    @classmethod
    def compile(cls, patterns: Sequence[Pattern]) -> Scanner:
        """Raises ValueError when the library refuses a pattern; ``refusal`` tells which."""
        db = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        try:
            db.compile(
                expressions=[p.expression for p in patterns],
                ids=list(range(len(patterns))),
                elements=len(patterns),
                flags=[p.flags for p in patterns],
            )
        except hyperscan.error as error:
            raise ValueError(f"Hyperscan: {error}") from error
        return cls(db)

    @classmethod
    def load(cls, data: bytes) -> Scanner:
        """Raises ValueError when ``data`` is damaged or from another library version."""
        try:
            db = hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK)
        except hyperscan.error as error:
            raise ValueError(f"Hyperscan database cannot be loaded: {error}") from error
        db.scratch = hyperscan.Scratch(db)
        return cls(db)

    @staticmethod
    def look(data: bytes) -> None:
        """Raises ValueError when ``data`` is by its head no whole database of this library; ``load`` looks at all."""
        if data[: len(_HEAD)] != _HEAD or int.from_bytes(data[8:12], "little") > len(data):
            raise ValueError("Hyperscan database cannot be loaded: its head is that of no database of this library")

    def scan_until(self, data: bytes, handler: Handler) -> None:
        """``scan`` with a handler that may end it."""
        with contextlib.suppress(hyperscan.ScanTerminated):
            self.scan(data, handler)

    def hits(self, data: bytes) -> list[tuple[int, int]]:
        """Number and end of every match."""
        hits: list[tuple[int, int]] = []
        self.scan(data, lambda number, _from, to, _flags, _context: hits.append((number, to)))
        return hits

    def dump(self) -> bytes:
        return bytes(hyperscan.dumpb(self._db))


def refused(patterns: Sequence[Pattern]) -> set[int]:
    """The indexes of the patterns that the library cannot take; all are tried at once, then halves of what fails."""
    try:
        if patterns:
            Scanner.compile(patterns)
        return set()
    except ValueError:
        half = len(patterns) // 2
        return refused(patterns[:half]) | {half + i for i in refused(patterns[half:])} if half else {0}


SCHEME = 3
"""How searches are written as patterns; raised with that, so that databases built before are compiled again."""


_HEAD = Scanner.compile([Pattern(b"vedette")]).dump()[:8]
"""Of every serialized database: four bytes of magic, then the version's (patch, minor and major last); its length
follows."""
LIBRARY = f"vectorscan {_HEAD[7]}.{_HEAD[6]}.{_HEAD[5]}, patterns {SCHEME}"
"""What serialized databases are bound to."""


def fault() -> str | None:
    """Say what this library does wrong that it must not; None when the known cases come out right.

    Vectorscan 5.4.12 drops matches: its two-byte accelerator skips over them (VectorCamp/vectorscan, issues 358 and
    382; mended after that release). A rule that silently never fires is worse than none.
    """
    for expressions, data in _MUST_MATCH:
        numbers: list[int] = []
        scanner = Scanner.compile([Pattern(expression, DOTALL) for expression in expressions])
        scanner.scan(data, lambda number, *_, numbers=numbers: numbers.append(number))
        if 0 not in numbers:
            return f"{LIBRARY} misses {expressions[0].decode()!r} in {data.decode()!r}: install hyperscan 0.7.13"
    return None


_MUST_MATCH = (
    ((rb"curl.*\|\s*python",), b"curl http://vader:8080/ 2>&1 | python"),
    ((rb"(?i)bd.*hb", rb"hfhb.*ga"), b"bd0000000000000000000000000000hfhb00000000000000000000"),
    ((rb"\x5c1", rb"Fa."), b"00000000000000000000\\1\n\n"),
)
"""Patterns, and data in which the first one must be found."""


def literal(data: bytes) -> bytes:
    """An expression that matches exactly ``data``."""
    return b"".join([LITERALS[byte] for byte in data])


LITERALS = tuple(bytes([byte]) if byte > 127 or chr(byte).isalnum() else b"\\x%02x" % byte for byte in range(256))
"""``literal`` of each byte."""
