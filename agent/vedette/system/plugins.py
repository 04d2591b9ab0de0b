"""Plugins: entry points of distributions that are installed beside the agent, as far as they are allowed by name.

Nothing is looked for by itself: ``found`` looks into the distributions that ``allow`` names, and imports none of their
code. ``Health`` is the account of one plugin where it is used: faults are the plugin's own, and after ``FAULTS`` in a
row it is in quarantine. ``watch`` is for who notes what the process dies of (``runtime/deaths.py``).
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

KINDS = ("inputs", "decoders", "sinks", "functions", "lookups")
"""Of groups of entry points, ``vedette.KIND``."""
FAULTS = 5
"""In a row, after which a plugin is in quarantine."""
MAX_TEXT = 500
_ALLOWED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})(?::([A-Za-z0-9._-]{1,64}))?")


class Entry(NamedTuple):
    """An entry point."""

    kind: str
    distribution: str
    version: str
    name: str
    target: str
    """``module:attribute``."""

    @property
    def label(self) -> str:
        return f"{self.distribution}:{self.name}"

    def load(self) -> Any:
        """Imports it, which runs its code: whatever that raises."""
        module, _, attribute = self.target.partition(":")
        found = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
        return found


def found(allow: Iterable[str]) -> tuple[list[Entry], list[str]]:
    """The entry points that ``allow`` names, as ``DISTRIBUTION`` or ``DISTRIBUTION:NAME``; and what is wrong with it, a
    line each that begins with its place in the list."""
    from importlib.metadata import PackageNotFoundError, distribution

    entries: dict[Entry, None] = {}
    mistakes: list[str] = []
    for i, text in enumerate(allow):
        match = _ALLOWED.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            mistakes.append(f'[{i}]: expects "DISTRIBUTION" or "DISTRIBUTION:NAME", not {text!r:.80}')
            continue
        try:
            installed = distribution(match[1])
        except PackageNotFoundError:
            mistakes.append(
                f"[{i}]: no distribution {match[1]} is installed for {sys.executable}: pip install it there"
            )
            continue
        own = [one for one in installed.entry_points if one.group in _GROUPS and match[2] in (None, one.name)]
        if not own:
            what = f"entry point {match[2]!r}" if match[2] else "entry point"
            mistakes.append(f"[{i}]: {match[1]} {installed.version} has no {what} in {', '.join(_GROUPS)}")
        for one in own:
            kind = one.group.removeprefix("vedette.")
            entries[Entry(kind, installed.name, installed.version, one.name, one.value.replace(" ", ""))] = None
    return [*entries], mistakes


_GROUPS = tuple(f"vedette.{kind}" for kind in KINDS)


def by_name(entries: Iterable[Entry], kind: str) -> dict[str, Entry]:
    """The entry points of one kind: by ``DISTRIBUTION:NAME``, and by ``NAME`` where one alone has it."""
    own = [one for one in entries if one.kind == kind]
    names = [one.name for one in own]
    return {one.label: one for one in own} | {one.name: one for one in own if names.count(one.name) == 1}


@dataclass(slots=True)
class Health:
    """What one plugin did in one place: ``used`` is ``input NAME``, ``sink NAME`` or ``format NAME``."""

    plugin: str
    kind: str
    used: str
    faults: int = 0
    row: int = 0
    """Faults since it last did what it should."""
    error: str | None = None
    """The last fault, until it does what it should."""
    condemned: bool = False
    """Whether it is in quarantine from the start, and not asked again."""
    version: str = ""

    @property
    def part(self) -> str:
        """Its name to who notes what is at work: another version is another part."""
        return f"{self.used} {self.plugin} {self.version}"

    def at_work(self) -> AbstractContextManager[None]:
        """Around its code, in a thread of its own."""
        return _at_work(self.part)

    @property
    def quarantined(self) -> bool:
        return self.row >= FAULTS

    def fault(self, error: BaseException | str) -> str:
        """Count a fault; what it was, for people."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.faults += 1
        self.row += 1
        self.error = text[:MAX_TEXT]
        return self.error

    def condemn(self, why: str) -> None:
        """It is in quarantine from the start."""
        self.row, self.error, self.condemned = FAULTS, why, True

    def well(self) -> None:
        self.row, self.error = 0, None


_health: dict[tuple[str, str, str], Health] = {}


def _unwatched(part: str) -> AbstractContextManager[None]:
    return nullcontext()


def _allowed(part: str) -> str:
    return ""


_at_work: Callable[[str], AbstractContextManager[None]] = _unwatched
_forbidden: Callable[[str], str] = _allowed


def watch(at_work: Callable[[str], AbstractContextManager[None]], forbidden: Callable[[str], str]) -> None:
    """From here on ``at_work`` is around the code of inputs and sinks, and ``forbidden`` says why one is not asked at
    all; empty: it is. Both are given a ``part``."""
    global _at_work, _forbidden
    _at_work, _forbidden = at_work, forbidden


def health(entry: Entry, used: str) -> Health:
    """The account of ``entry`` in this process; begun again, but for its count of faults."""
    before = _health.get((entry.kind, entry.label, used))
    account = Health(entry.label, entry.kind, used, 0 if before is None else before.faults, version=entry.version)
    if why := _forbidden(account.part):
        account.condemn(why)
    _health[entry.kind, entry.label, used] = account
    return account


def status() -> list[dict[str, Any]]:
    """JSON-able, of all plugins that were in use since the start of this process."""
    return [
        {"plugin": one.plugin, "kind": one.kind, "used": one.used, "faults": one.faults,
         "quarantined": one.quarantined, "error": one.error}
        for one in _health.values()
    ]  # fmt: skip
