"""Which entries of systemd's journal an input takes: by unit, priority and field. Pure.

Only what journald itself vouches for can leave an entry out by its unit: fields with ``_`` before their name, and
``UNIT`` where systemd says it. Any process may log a ``UNIT=`` of its choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vedette.inputs.export import Entry
from vedette.inputs.settings import JournalInput

UNITS = (b"_SYSTEMD_UNIT", b"_SYSTEMD_USER_UNIT")
_BY_SYSTEMD = frozenset({b"1"})
_INFO = [b"6"]


class Filter:
    """``own``: the unit of the agent itself, whose entries are left out; empty: it is no service. ``machine``: whose
    entries are wanted; empty: those of any."""

    def __init__(self, settings: JournalInput, own: str = "", machine: str = "") -> None:
        self._units = frozenset(map(_unit, settings.units))
        self._exclude_units = frozenset(map(_unit, settings.exclude_units))
        self._own = own.encode()
        self._machine = machine.encode()
        self._least = b"%d" % settings.least
        self._include = _by_field(settings.include)
        self._exclude = _by_field(settings.exclude)

    @property
    def wanted(self) -> tuple[bytes, ...]:
        """Fields that it looks at."""
        return (*UNITS, b"UNIT", b"PRIORITY", b"_PID", b"_MACHINE_ID", *self._include, *self._exclude)

    def wants(self, entry: Entry) -> bool:
        get = entry.get
        if self._machine and self._machine not in get(b"_MACHINE_ID", ()):
            return False
        if self._own and self._own in get(b"_SYSTEMD_UNIT", ()):
            return False
        if self._least < b"7" and get(b"PRIORITY", _INFO)[0] > self._least:
            return False
        if self._units or self._exclude_units:
            units = {unit for name in UNITS for unit in get(name, ())}
            if not _BY_SYSTEMD.isdisjoint(get(b"_PID", ())):
                units.update(get(b"UNIT", ()))
            if (self._units and self._units.isdisjoint(units)) or not self._exclude_units.isdisjoint(units):
                return False
        if any(values.isdisjoint(get(name, ())) for name, values in self._include.items()):
            return False
        return all(values.isdisjoint(get(name, ())) for name, values in self._exclude.items())


def _by_field(matches: Iterable[str]) -> Mapping[bytes, frozenset[bytes]]:
    """The values of ``FIELD=VALUE``, by field."""
    values: dict[bytes, frozenset[bytes]] = {}
    for match in matches:
        name, _, value = match.encode().partition(b"=")
        values[name] = values.get(name, frozenset()) | {value}
    return values


def _unit(name: str) -> bytes:
    """As systemd writes it: a name without a type is a service."""
    return (name if "." in name else f"{name}.service").encode()
