"""Rows of a source to typed columns. A value that does not fit is refused with source, line and column."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import accumulate
from typing import Any

from vedette.engine import kernel
from vedette.lookup.batch import Batch, BuildRefused, Key
from vedette.lookup.columns import NULL, Numbers, Texts, integers
from vedette.lookup.earlier import NOTHING, Earlier
from vedette.lookup.keys import address, integer
from vedette.lookup.layout import Column
from vedette.model.event import network as as_network
from vedette.model.times import iso_time
from vedette.plan.ir import fold

PLAIN_ROWS = 1_000_000
"""Rows of a table that is built without the kernel."""
MAX_ROWS = (1 << 32) - 2
_EPOCH, _DAY = date(1970, 1, 1), 86_400_000_000
_ZERO = (date(1600, 12, 31), date(1601, 1, 1))
"""Of Windows, in whatever zone."""


class Table:
    """The columns of a table as its rows come in."""

    def __init__(
        self, columns: Sequence[Column], keys: Sequence[Key], source: str, library: Any, before: Earlier = NOTHING
    ) -> None:
        self.names, self.keys, self.source, self.before = columns, keys, source, before
        self._library = library
        forms = {column: "ip" if k.kind in ("ip", "cidr") else k.kind for k in keys for column in k.columns}
        cidr = {column for k in keys if k.kind == "cidr" for column in k.columns}
        self.columns: list[Texts | Numbers] = [
            Texts(None if column.name in cidr else forms.get(column.name), before.words.get(column.name, ()))
            if column.type == "text"
            else Numbers(column.type)
            for column in columns
        ]
        self.networks: dict[str, list[tuple[int, int, int]]] = {column: [] for column in cidr}
        """Of columns of networks: width, first and last address."""
        self.lines = array("I")

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, batch: Batch) -> None:
        for column, gathered, values in zip(self.names, self.columns, batch.columns, strict=True):
            try:
                typed = _typed(values, column.type)
                if column.name in self.networks:
                    typed = self._networks(column.name, typed)
                elif isinstance(gathered, Texts) and gathered.form == "ip":
                    gathered.add_packed(*_addresses(typed, self._library))
                    continue
                elif isinstance(gathered, Texts) and gathered.form is not None:
                    typed = _canonical(typed, gathered.form)
                elif any(column.name in key.columns for key in self.keys) and None in typed:
                    raise _Wrong(typed.index(None), None, "a key")
            except _Wrong as wrong:
                line = batch.lines[wrong.at]
                raise BuildRefused(f"{self.source}:{line}: column {column.name}: {wrong.text}") from None
            gathered.add(typed)
        self.lines.extend(batch.lines)
        if len(self.lines) > MAX_ROWS:
            raise BuildRefused(f"more than {MAX_ROWS} rows: make several lookups of the table")
        if self._library is None and len(self.lines) > PLAIN_ROWS:
            raise BuildRefused(
                f"more than {PLAIN_ROWS} rows need the native kernel, which is not built here ({kernel.why_not})"
            )

    def _networks(self, name: str, values: Sequence[Any]) -> list[str]:
        shown = []
        for at, value in enumerate(values):
            try:
                if value is None:
                    raise ValueError("is empty")
                network = as_network(value, strict=True)
            except ValueError as error:
                raise _Wrong(at, value, f"a network ({error})") from None
            width = network.max_prefixlen // 8
            first = int(network.network_address)
            self.networks[name].append((width, first, first + network.num_addresses - 1))
            shown.append(str(network))
        return shown

    def where(self, row: int) -> str:
        return f"{self.source}:{self.lines[row]}"


class _Wrong(Exception):
    """Value number ``at`` of a batch is not what it has to be."""

    def __init__(self, at: int, value: object, expected: str) -> None:
        self.at = at
        self.text = f"{'is empty' if value is None else repr(value)[:80]}; expects {expected}"


_TRUE = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def _typed(values: Sequence[Any], kind: str) -> Sequence[Any]:
    """The values of a batch in the column's type; empty texts of other types are null. Raises _Wrong."""
    if kind == "text":
        if all(type(value) is str or value is None for value in values):
            return values
        return [_text(value, at) for at, value in enumerate(values)]
    make: Callable[[object], Any] = {"int": _integer, "float": _real, "bool": _boolean, "time": _time}[kind]
    for at, value in enumerate(values):
        if isinstance(value, list | dict):
            raise _Wrong(at, value, "a single value")
    if kind == "time":
        values = [None if is_open(value) else value for value in values]
    typed_by_value = {(type(value), value): None if value is None or value == "" else make(value) for value in values}
    typed = [typed_by_value[type(value), value] for value in values]
    if None in typed:
        for at, value in enumerate(values):
            if typed[at] is None and value is not None and value != "":
                raise _Wrong(at, value, {"int": "an integer of 64 bits", "float": "a number", "bool": "true or false",
                                         "time": "a time, as 2026-05-06T07:08:09Z"}[kind])  # fmt: skip
    return typed


def _text(value: object, at: int) -> str | None:
    if value is None or type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise _Wrong(at, value, "a text")


def _integer(value: object) -> int | None:
    if type(value) is str:
        value = value.strip()
    number = integer(value)
    return None if number == NULL else number


def _real(value: object) -> float | None:
    if isinstance(value, int | float) and type(value) is not bool:
        return float(value)
    try:
        return float(value.strip()) if type(value) is str else None
    except ValueError:
        return None


def _boolean(value: object) -> bool | None:
    return value if type(value) is bool else _TRUE.get(str(value).strip().lower())


def _time(value: object) -> int | None:
    if type(value) is int:
        return value
    return iso_time(value.strip()) if type(value) is str else None


def is_open(value: object) -> bool:
    """Whether a time (a text, or UTC microseconds) says that there is none: of the first year or the last that systems
    know (0001-01-01, 9999-12-31), or Windows' zero, 1601-01-01."""
    try:
        if type(value) is int:
            day = _EPOCH + timedelta(days=value // _DAY)
        else:
            day = date.fromisoformat(value.strip()[:10]) if type(value) is str else _EPOCH
    except OverflowError:
        return True
    except ValueError:
        return False
    return day.year in (date.min.year, date.max.year) or day in _ZERO


def _canonical(values: Sequence[Any], form: str) -> Sequence[Any]:
    """The values of a key's column as they are compared. Raises _Wrong for what is no key."""
    if None in values or "" in values:
        at = next(at for at, value in enumerate(values) if not value)
        raise _Wrong(at, None, "a key")
    if form == "text":
        return values
    folded = [fold(value) for value in values]
    if form == "domain":
        folded = [value.removesuffix(".") for value in folded]
        if "" in folded:
            raise _Wrong(folded.index(""), ".", "a domain")
    return folded


def _addresses(values: Sequence[Any], library: Any) -> tuple[bytes, Sequence[int]]:
    """Addresses as their bytes, and where each ends. Raises _Wrong for what is none."""
    if None in values:
        raise _Wrong(values.index(None), None, "an address")
    if library is not None:
        arena, ends, wrong = library.lookup_addresses(list(values))
        if wrong is not None:
            raise _Wrong(wrong, values[wrong] or None, "an address")
        return arena, integers(ends)
    addresses = []
    for at, value in enumerate(values):
        packed = address(value.strip())
        if packed is None:
            raise _Wrong(at, value or None, "an address")
        addresses.append(packed)
    return b"".join(addresses), list(accumulate(map(len, addresses)))
