"""Enrichment: columns of lookups into the fields of alerts, as ``[[enrich]]`` says.

``Enrichment.of`` is a function of an alert, its event and the lookups of the active ruleset: an alert that is made
again by a replay gets the same columns as long as the lookup is the same version; once committed it never changes.
Which version it was stands in the alert, in the field PREFIX + ``lookup``. An alert is never held back: without its
lookup it leaves flagged ``MISSING``, what exceeds ``MAX_BYTES`` is left out and flagged ``CUT``, and a field that a
rule gave is never replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.config.settings import EnrichSettings
from vedette.model.counters import Counters
from vedette.model.event import Alert
from vedette.plan.ir import as_shown, leaves

if TYPE_CHECKING:
    from vedette.lookup.table import Lookup

MISSING, CUT = "enrichment_missing", "enrichment_cut"
"""Among an alert's ``flags``."""
MAX_BYTES = 4096
"""Of names and values that enrichment adds to one alert."""
MAX_VALUE = 1024
"""Characters of one value."""
MAX_KEYS = 16
"""Values of a field, or entities of a kind, that are looked up."""
LOOKUP = "lookup"
"""The field that names lookup and version, behind the prefix."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Get = Callable[[str], object]


class _Step(NamedTuple):
    """One table ``[[enrich]]``; ``lookup`` None: it is unavailable, or lacks what is asked."""

    settings: EnrichSettings
    lookup: Lookup | None
    key: str
    columns: Sequence[tuple[str, str, int]]
    """Of each column its field in the alert, its type and its place in a row."""


class Enrichment:
    """See the module's text. ``lookups`` by name."""

    def __init__(self, settings: Iterable[EnrichSettings], lookups: Mapping[str, Lookup], counters: Counters) -> None:
        self._counters = counters
        self._steps = [_step(table, lookups.get(table.lookup)) for table in settings]

    def safely(self, alert: Alert, get: Get, failed: Callable[[str, Exception], None]) -> Alert:
        """As ``of``; ``failed`` is given what that raises, and the alert leaves without."""
        try:
            return self.of(alert, get)
        except Exception as error:
            failed(f"enriching an alert of {alert.rule_title}", error)
            return replace(alert, flags=(*alert.flags, MISSING))

    def of(self, alert: Alert, get: Get) -> Alert:
        """``get``: a field of the alert's event."""
        fields, flags, room = dict(alert.fields), list(alert.flags), MAX_BYTES
        for step in self._steps:
            if step.lookup is None:
                self._counters.totals["enrichments_missing"] += 1
                flags.append(MISSING)
                continue
            row = next(self._rows(step, step.lookup, alert, get), None)
            if row is None:
                continue
            named = [(step.settings.before + LOOKUP, f"{step.settings.lookup}@{step.lookup.version[:12]}")]
            named += [(name, value) for name, kind, at in step.columns if (value := shown(row[at], kind)) is not None]
            for name, value in named:
                if len(value) > MAX_VALUE:
                    value = value[:MAX_VALUE]
                    flags.append(CUT)
                size = len(name.encode()) + len(value.encode("utf-8", "surrogatepass"))
                if name in fields:
                    continue
                if size > room:
                    flags.append(CUT)
                    continue
                fields[name] = value
                room -= size
        if len(fields) > len(alert.fields):
            self._counters.totals["alerts_enriched"] += 1
        elif len(flags) == len(alert.flags):
            return alert
        return replace(alert, fields=fields, flags=tuple(dict.fromkeys(flags)))

    @staticmethod
    def _rows(step: _Step, lookup: Lookup, alert: Alert, get: Get) -> Iterator[tuple[Any, ...]]:
        """The rows of the alert's values, in their order."""
        if step.settings.entity:
            values: list[Any] = [entity.value for entity in alert.entities if entity.kind == step.settings.entity]
        elif (value := alert.fields.get(step.settings.field)) is not None:
            values = [value]
        else:
            values = leaves(get(step.settings.field))
        for value in values[:MAX_KEYS]:
            if value is not None and (row := lookup.get(step.key, value, alert.event_time)) is not None:
                yield row


def _step(settings: EnrichSettings, lookup: Lookup | None) -> _Step:
    if lookup is None:
        return _Step(settings, None, "", ())
    wanted = settings.columns or tuple(column.name for column in lookup.columns)
    places = {column.name: (number, column.type) for number, column in enumerate(lookup.columns)}
    index = settings.key or lookup.indexes[0].name
    try:
        lookup.index(index)
        return _Step(
            settings, lookup, index,
            [(settings.before + name, places[name][1], places[name][0]) for name in wanted],
        )  # fmt: skip
    except KeyError:
        return _Step(settings, None, "", ())


def shown(value: Any, kind: str) -> str | None:
    """A column's value as an alert's text; times in RFC 3339."""
    if kind == "time" and value is not None:
        try:
            return (_EPOCH + timedelta(microseconds=value)).isoformat().replace("+00:00", "Z")
        except OverflowError:
            return str(value)
    return as_shown(value)
