"""Which log sources an event belongs to: the taxonomy, from input, program, facility and format to Sigma's words.

A source is the union of what the outermost layer says (``_BY_KIND``), the program (``PROGRAMS``), the syslog facility,
the format or make of the message (``formats``) and the input's own ``logsource``. ``possible_source`` is what events of
an input can belong to at all: always a superset of what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vedette.decode.codecs import CODECS, Codec, Kind
from vedette.decode.formats.base import NOWHERE, union
from vedette.decode.formats.table import FORMATS, SHAPES
from vedette.decode.programs import NO_PROGRAM, PROGRAMS
from vedette.model.event import LogSource, Source

_BY_FACILITY = {4: "auth", 10: "auth", 9: "cron", 2: "mail", 13: "auditd"}
_BY_KIND: Mapping[Kind, Source] = {
    Kind.SYSLOG: Source(services=frozenset({"syslog"})),
    Kind.ACCESS: Source(categories=frozenset({"webserver"})),
    Kind.MQTT: Source(frozenset(), frozenset({"iot"}), frozenset({"mqtt"})),
}
OUTER = union(*_BY_KIND.values(), Source(services=frozenset(_BY_FACILITY.values())))
"""The source of an event by its outermost layer alone."""


@lru_cache(maxsize=256)
def of_input(logsource: LogSource) -> Source:
    """Return the source of every event that comes from an input with this log source."""
    return Source(*(frozenset({part} - {""}) for part in logsource))


@lru_cache(maxsize=4096)
def source(kind: Kind, program: str, facility: int, logsource: LogSource, format_source: Source = NOWHERE) -> Source:
    """The source of an event; ``facility`` -1 for none, ``program`` a key of ``PROGRAMS`` or empty."""
    row = PROGRAMS.get(program, NO_PROGRAM)
    by_facility = Source(services=frozenset({_BY_FACILITY[facility]} if facility in _BY_FACILITY else ()))
    return union(_BY_KIND.get(kind, NOWHERE), row.source, by_facility, format_source, of_input(logsource))


@lru_cache(maxsize=256)
def possible_source(codec: str | Codec, logsource: LogSource) -> Source:
    """All that the ``source`` of an event can hold that comes from an input with this codec and log source.

    What does not fit it never meets such an event: so a rule is known to be idle on an input, or dead on an agent.
    """
    read = CODECS[codec] if isinstance(codec, str) else codec
    kinds = read.kinds
    only = read.only
    sources = [of_input(logsource), *(_BY_KIND.get(kind, NOWHERE) for kind in kinds)]
    if Kind.SYSLOG in kinds:
        sources.append(Source(services=frozenset(_BY_FACILITY.values())))
    if read.program:
        sources.append(PROGRAMS[read.program].source)
    if read.row is not None:
        sources.append(read.row.sources)
    if kinds & {Kind.SYSLOG, Kind.JSON}:
        sources += [row.sources for row in FORMATS.values() if only in (None, row.name)]
        sources += [row.sources for row in SHAPES.values() if only in (None, row.name)]
    if only is None and kinds & {Kind.SYSLOG, Kind.JSON, Kind.MQTT}:  # the journal as JSON comes by MQTT, too
        sources += [row.source for row in PROGRAMS.values()]
    return union(*sources)
