"""Plugins: entry points of distributions that are installed beside the agent, as far as they are allowed by name.

Nothing is looked for by itself: ``found`` looks into the distributions that ``allow`` names, and imports none of their
code. ``Health`` is the account of one plugin where it is used: faults are the plugin's own, and after ``FAULTS`` in a
row it is in quarantine. ``watch`` is for who notes what the process dies of (``runtime/agent/deaths.py``).
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

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
        loaded = importlib.import_module(module)
        for name in attribute.split("."):
            loaded = getattr(loaded, name)
        return loaded


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
        own = [point for point in installed.entry_points if point.group in _GROUPS and match[2] in (None, point.name)]
        if not own:
            what = f"entry point {match[2]!r}" if match[2] else "entry point"
            mistakes.append(f"[{i}]: {match[1]} {installed.version} has no {what} in {', '.join(_GROUPS)}")
        for point in own:
            kind = point.group.removeprefix("vedette.")
            entries[Entry(kind, installed.name, installed.version, point.name, point.value.replace(" ", ""))] = None
    return [*entries], mistakes


_GROUPS = tuple(f"vedette.{kind}" for kind in KINDS)


def by_name(entries: Iterable[Entry], kind: str) -> dict[str, Entry]:
    """The entry points of one kind: by ``DISTRIBUTION:NAME``, and by ``NAME`` where one alone has it."""
    own = [entry for entry in entries if entry.kind == kind]
    names = [entry.name for entry in own]
    return {entry.label: entry for entry in own} | {entry.name: entry for entry in own if names.count(entry.name) == 1}


class OfPlugin:
    """A base of settings whose type is a plugin: ``settings_of`` makes a class of them for each entry point."""

    __slots__ = ()

    entry: ClassVar[Entry]

    def __reduce__(self) -> tuple[Any, ...]:  # strict rule sets are given the configuration
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}  # type: ignore[arg-type]
        return _again, (type(self).__base__, self.entry, values)


_classes: dict[tuple[type[OfPlugin], Entry], Any] = {}


def settings_of(base: type[OfPlugin], entry: Entry) -> Any:
    """The class of the settings of an input or a sink whose type is this plugin, made of ``base``; always the same."""
    if (base, entry) not in _classes:
        own = {"__slots__": (), "__doc__": base.__doc__, "entry": entry, "type": entry.name}
        _classes[base, entry] = type(base.__name__, (base,), own)
    return _classes[base, entry]


def _again(base: type[OfPlugin], entry: Entry, values: dict[str, Any]) -> Any:
    return settings_of(base, entry)(**values)


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
        {"plugin": health.plugin, "kind": health.kind, "used": health.used, "faults": health.faults,
         "quarantined": health.quarantined, "error": health.error}
        for health in _health.values()
    ]  # fmt: skip
