"""Rows of tables from events: each column a decoded field as its type, or what the agent knows of the event.

| column | from |
|---|---|
| texts | a text; a number as Python prints it, ``true`` or ``false`` |
| whole numbers | a number, its fraction cut; a text that is one |
| ``FLOAT DOUBLE DECIMAL`` | a number, or a text that is one; ``DECIMAL`` rounded half up |
| ``BOOLEAN`` | a boolean; the texts ``true`` and ``false`` in any case |
| ``DATE TIME`` | a text such as ``2026-11-22``, ``10:00:00.5`` |
| ``TIMESTAMP TIMESTAMP_LTZ`` | a text of RFC 3339, or seconds (or milli-, micro-, nanoseconds) since 1970 |
| ``BYTES`` | a text in Base64 |
| ``ARRAY`` | a list; ``MAP`` and ``ROW``: an object |

A text is a number when it is written as predicates of rules read it (``plan/numbers.py``): ``-5``, ``0.5``, ``1e9``.
What does not fit its type is NULL and counted (``unfit``); so are a number beyond the type's range, and a list or an
object in any other column. A time attribute more than five minutes after the event's receipt is set to the receipt, as
everywhere in the agent.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from vedette.decode.decoder import Record
from vedette.decode.values import ABSENT
from vedette.model.times import clamp, iso_time, time_of
from vedette.plan.ir import text
from vedette.plan.numbers import BITS, as_number
from vedette.plan.query import MILLISECOND, Field, Named, Row, Scan, Type
from vedette.stream.values.numbers import single

_NOWHERE: Mapping[str, int] = {}
_DAY = date(1970, 1, 1).toordinal()
_CONTEXT = Context(prec=80, rounding=ROUND_HALF_UP)


class Unfit(Exception):
    """A value is none of the column's type."""


Convert = Callable[[Any], Any]


def by_receipt(scan: Scan) -> bool:
    """Whether a table's time is that of receipt: it goes on with the receipts of all, and no row is late."""
    return scan.time > 0 and scan.sources[scan.time - 1] == Field("received_at", True)


def converter(of: Type) -> Convert:
    """Return what makes a decoded value, neither absent nor null, a value of the type ``of``; raises ``Unfit``."""
    name = of.name
    if name in ("STRING", "CHAR", "VARCHAR"):
        return _text
    if bits := BITS.get(name):
        return _integer(1 << bits - 1)
    if name == "ARRAY":
        element = converter(of.args[0])
        return lambda value: tuple([_nested(element, item) for item in _is(list, value)])
    if name == "MAP":
        key, inner = converter(of.args[0]), converter(of.args[1])
        return lambda value: {key(entry_key): _nested(inner, two) for entry_key, two in _is(dict, value).items()}
    if name == "ROW":
        parts = [(field, converter(kind)) for field, kind in of.args]
        return lambda value: tuple([_nested(part, _is(dict, value).get(field)) for field, part in parts])
    if name == "DECIMAL":
        return _decimal(of.precision, of.scale)
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        unit = 10 ** max(0, 6 - of.precision)
        return _time if unit == 1 else lambda value: _time(value) // unit * unit
    try:
        return _SIMPLE[name]
    except KeyError:
        raise ValueError(f"a table's column cannot be of type {of}") from None


def _nested(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise Unfit
    return value


def _text(value: Any) -> str:
    shown = value if type(value) is str else text(value)
    if shown is None:
        raise Unfit
    return shown


def _integer(limit: int) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is str:
            value = as_number(value)
        elif type(value) is float and math.isfinite(value):
            value = int(value)
        if type(value) is not int or not -limit <= value < limit:
            raise Unfit
        return value

    return convert


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    number = as_number(value) if type(value) is str else value
    if type(number) is float and math.isfinite(number):
        return number
    if type(number) is int:
        with suppress(OverflowError):
            return float(number)
    raise Unfit


def _decimal(precision: int, scale: int) -> Convert:
    unit = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if type(value) is bool or not isinstance(value, int | float | str) or len(str(value)) > 400:
            raise Unfit
        if type(value) is str and as_number(value) is None:
            raise Unfit
        try:
            rounded = Decimal(str(value)).quantize(unit, context=_CONTEXT)
        except InvalidOperation:
            raise Unfit from None
        if rounded.adjusted() >= precision - scale and rounded:
            raise Unfit
        return rounded

    return convert


def _boolean(value: Any) -> bool:
    if type(value) is str:
        value = {"true": True, "false": False}.get(value.lower())
    return bool(_is(bool, value))


def _time(value: Any) -> int:
    micros = time_of(value) if type(value) is not str else iso_time(value)
    if micros is None:
        raise Unfit
    return micros


def _date(value: Any) -> int:
    try:
        return date.fromisoformat(_is(str, value)).toordinal() - _DAY
    except ValueError:
        raise Unfit from None


def _clock(value: Any) -> int:
    micros = iso_time(f"1970-01-01T{_is(str, value)}")
    if micros is None:
        raise Unfit
    return micros // MILLISECOND


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_is(str, value), validate=True)
    except ValueError:
        raise Unfit from None


_SIMPLE: dict[str, Convert] = {
    "BOOLEAN": _boolean,
    "DOUBLE": _number,
    "FLOAT": lambda value: single(_number(value)),
    "DATE": _date,
    "TIME": _clock,
    "BYTES": _bytes,
    "BINARY": _bytes,
    "VARBINARY": _bytes,
}


class Event:
    """The source of a row: a decoded event, and what the agent knows of it. Values are read once for all scans."""

    __slots__ = ("converted", "host", "input", "offset", "places", "received_at", "record", "time", "values")

    def __init__(
        self, record: Record, offset: int, *, input: str, host: Callable[[], str | None],
        time: Callable[[], int | None], values: tuple[Any, ...] | None = None, places: Mapping[str, int] = _NOWHERE,
        received_at: int | None = None,
    ) -> None:  # fmt: skip
        """``offset``: the event's, in the raw log. ``time``: UTC microseconds, as the agent has it; None: unknown. Both
        it and ``host`` are asked for where a table has them. ``values``: those of fields that are known before the
        event is decoded, an Ellipsis for one that is not, at their ``places``. ``received_at``: None: the record's."""
        self.record, self.offset, self.input, self.host, self.time = record, offset, input, host, time
        self.values, self.places = values, places
        self.received_at = record.received_at if received_at is None else received_at
        self.converted: dict[int, Any] = {}

    @property
    def source(self) -> str:
        """Whose watermark it goes by, with its host."""
        return self.input


class _Column(NamedTuple):
    """One column of a scan."""

    path: str
    at: int
    """Its place among the values that are known before the event is decoded; 0: none."""
    number: int | None
    """Under which its values are kept for other scans; None: there is no other."""
    as_is: bool
    """Whether a text is its value as it is."""
    convert: Convert
    read: Callable[[Event], Any] | None
    """None: it is a decoded field."""


def _column(source: Field, of: Type, number: int | None) -> _Column:
    if source.metadata:
        if source.path not in _METADATA:
            raise ValueError(f"events have no metadata called {source.path!r}")
        return _Column("", 0, number, False, _as_read, _METADATA[source.path])
    convert = converter(of)
    return _Column(source.path, 0, number, convert is _text, convert, None)


class Reader:
    """Rows for the ``scans`` of a plan."""

    def __init__(self, scans: Iterable[Scan]) -> None:
        self.unfit = 0
        """Values that were NULL because they did not fit their column."""
        self._places: Mapping[str, int] = _NOWHERE
        every = {scan.fingerprint: scan for scan in scans}
        asked = Counter((source, column.type) for scan in every.values() for source, column in _columns(scan))
        numbers = {column: number for number, (column, times) in enumerate(asked.items()) if times > 1}
        self._by_scan = {
            fingerprint: tuple(
                _column(source, column.type, numbers.get((source, column.type))) for source, column in _columns(scan)
            )
            for fingerprint, scan in every.items()
        }

    def row(self, scan: Scan, event: Event) -> Row:
        """The row of ``event`` in the table of ``scan``."""
        values, get = event.values, event.record.get
        if values is not None and event.places is not self._places:
            self._arrange(event.places)
        row: list[Any] = [event.offset]
        for path, at, number, as_is, convert, read in self._by_scan[scan.fingerprint]:
            if number is not None and number in event.converted:
                row.append(event.converted[number])
                continue
            value = ... if values is None or not at else values[at]
            if value is ...:
                value = get(path) if read is None else read(event)
            if value is None or value is ABSENT:
                value = None
            elif not as_is or type(value) is not str:
                try:
                    value = convert(value)
                except Unfit:
                    self.unfit += 1
                    value = None
            row.append(value)
            if number is not None:
                event.converted[number] = value
        if (at := scan.time) and (time := row[at]) is not None:
            received_at = event.record.received_at
            if time > received_at > 0:
                time = clamp(time, received_at)[0]
            row[at] = time // MILLISECOND * MILLISECOND
        return tuple(row)

    def _arrange(self, places: Mapping[str, int]) -> None:
        self._places = places
        for scan, columns in self._by_scan.items():
            self._by_scan[scan] = tuple(column._replace(at=places.get(column.path, 0)) for column in columns)


def _columns(scan: Scan) -> Iterable[tuple[Field, Named]]:
    return zip(scan.sources, scan.columns, strict=True)


def _as_read(value: Any) -> Any:
    return value


def _whole(time: int | None) -> int | None:
    return None if time is None else time // MILLISECOND * MILLISECOND


_METADATA: dict[str, Callable[[Event], Any]] = {
    "event_time": lambda event: _whole(event.time()),
    "received_at": lambda event: _whole(event.received_at) or None,
    "host": lambda event: event.host(),
    "input": lambda event: event.input,
    "raw": lambda event: event.record.text,
    "offset": lambda event: event.offset,
}
