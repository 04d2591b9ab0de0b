"""The statements of a plan, as evaluation sees them: matched events in, rows of alerts out.

A match of a rule that selects events for statements becomes a row for each of their scans (``read``), which ``feed``
hands to the network of operators; ``take`` gives the rows of alerts that have come out since, as many as are asked for:
the others wait, also over a restart (``network/waiting.py``). Where statements do no more with a rule's rows than
filter them, ``filter`` gives at once what comes of events (``filters``). Time passes by the rows' own watermarks; where
none come, with the receipts of others (``advance``); at the end of an input by ``finish``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from vedette.plan.query import COUNT, WINDOW, Modules, Row, Scan, Statement, Type
from vedette.stream.keyed import Budget, pack, unpack
from vedette.stream.network.lanes import Source
from vedette.stream.network.network import Network
from vedette.stream.operators.base import AtWork
from vedette.stream.reader import Event, Reader
from vedette.stream.userfunctions import Functions
from vedette.stream.values.dates import date_text, stamp_text, time_text
from vedette.stream.values.numbers import decimal_text, nearest

_NOBODY: Source = ("", "")
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_800_000_000


class Read(NamedTuple):
    """An event as a row of one of the scans of ``rule_id``, which of its values is the time (0: none), whose it is, and
    when it was received."""

    rule_id: str
    at: int
    row: Row
    time: int
    source: Source
    received_at: int


class Selected(NamedTuple):
    """A row that a statement gives: what an alert is made of. ``texts``: of the columns that are an alert's fields the
    place, the name, and what makes it a text. ``number``: as ``Statements.number`` gives it, where it is known."""

    statement: Statement
    row: Row
    texts: Texts
    number: int | None = None

    @property
    def offset(self) -> int:
        """The offset of the newest event behind it."""
        return int(self.row[0])

    def head(self, name: str) -> str:
        """Return what the row says of ``level``, ``title`` or ``tags``; empty when it says nothing."""
        value = self._named(name)
        return value if isinstance(value, str) else ""

    @property
    def fields(self) -> dict[str, str]:
        """All other columns that have a name and are not NULL, as texts."""
        row = self.row
        return {name: text(row[i]) for i, name, text in self.texts if row[i] is not None}

    @property
    def every(self) -> Texts:
        """All columns, as ``texts``."""
        return tuple((at, name, render(kind)) for at, (name, kind) in enumerate(self.statement.root.columns, 1))

    @property
    def window(self) -> tuple[int, int] | None:
        """The first and the last microsecond of the window that the row is about, where both are times of the years
        1 to 9999."""
        bounds = [_LAST, _LAST]
        columns = self.statement.root.columns
        for end, name in enumerate(WINDOW):
            place = self.statement.places.get(name, 0)
            if place and columns[place - 1].type.name.startswith("TIMESTAMP") and self.row[place] is not None:
                bounds[end] = self.row[place]
        start, end = bounds
        return (start, end - 1) if _FIRST < start < end < _LAST else None

    @property
    def times(self) -> int:
        """The column ``count``, if there is one."""
        value = self._named(COUNT)
        return value if type(value) is int and value > 0 else 1

    @property
    def key(self) -> bytes:
        """The bytes that tell it from other rows that the same event completes; empty where there is one row an
        event."""
        return b"" if self.statement.single else pack(self.row[1:])

    def _named(self, name: str) -> Any:
        place = self.statement.places.get(name)
        return None if place is None else self.row[place]


Render = Callable[[Any], str]
Texts = tuple[tuple[int, str, Render], ...]


@cache
def render(of: Type) -> Render:
    """Return what makes an alert's text of a value of this type that is not NULL; times in RFC 3339."""
    match of.name:
        case "BOOLEAN":
            return lambda value: "true" if value else "false"
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            digits, zone = 3 if of.precision else 0, "Z" if of.name == "TIMESTAMP_LTZ" else ""
            # a window's rows have its times in common
            return lru_cache(maxsize=1024)(lambda value: stamp_text(value, digits).replace(" ", "T") + zone)
        case "FLOAT":
            return lambda value: str(nearest(value))
        case "DECIMAL":
            return decimal_text
        case "DATE":
            return date_text
        case "TIME":
            return lambda value: time_text(value, of.precision)
        case "BYTES" | "BINARY" | "VARBINARY":
            return lambda value: str(value.hex())
        case "ARRAY":
            return lambda value: ", ".join(_inner(of.args[0], item) for item in value)
        case "MAP":
            key, inner = of.args
            return lambda value: ", ".join(
                f"{_inner(key, entry_key)}={_inner(inner, two)}" for entry_key, two in value.items()
            )
        case "ROW":
            return lambda value: ", ".join(
                f"{name}={_inner(kind, field)}" for (name, kind), field in zip(of.args, value, strict=True)
            )
        case _:
            return str


def _texts(statement: Statement) -> Texts:
    return tuple((i, column.name, render(column.type)) for i, column in statement.shown)


def _takes(scan: Scan, event: Event) -> bool:
    return not scan.inputs_named or event.input in scan.inputs_named


def _inner(of: Type, value: Any) -> str:
    return "" if value is None else render(of)(value)


class Statements:
    """Statements that run. ``lookups``: the opened ones by name. ``max_bytes`` bounds the state of all together.
    ``functions`` runs user functions, which ``modules`` are of; None: statements that call some do not run
    (``refused``). ``at_work`` is given the id of a statement before its operators run or one of its rows is taken, and
    an empty one afterwards.

    Raises ValueError for statements that nothing here can run, as no front end makes them."""

    def __init__(
        self, statements: Iterable[Statement], lookups: Mapping[str, Any] | None = None, *, max_bytes: int = 64 << 20,
        functions: Functions | None = None, modules: Iterable[Modules] = (), at_work: AtWork | None = None,
    ) -> None:  # fmt: skip
        every = tuple(statements)
        self.statements = tuple(statement for statement in every if functions is not None or not statement.modules)
        self.refused = tuple(statement for statement in every if functions is None and statement.modules)
        self._at_work = at_work
        self.network = _network(self.statements, max_bytes, at_work)
        if self.refused:
            _network(self.refused, max_bytes)  # what is wrong with them is known where they do not run, too
        if functions is not None:
            functions.know(modules)
        self._functions = functions
        self.slow = bool(self.network.budget.tables) or any(statement.modules for statement in self.statements)
        """Whether what they do with an event, or as time passes, may take long."""
        self.network.call_by(functions)
        self.network.use(lookups or {})
        self.reader = Reader(scan for scans in self.network.scans.values() for scan in scans)
        self._texts = {(statement.id, statement.digest): _texts(statement) for statement in self.statements}
        self._scans = {
            rule: (tuple(enumerate(scans)), self.network.wants_source(rule))
            for rule, scans in self.network.scans.items()
        }
        self._filters = {rule for rule in self.network.scans if self.network.filters(rule)}

    def __bool__(self) -> bool:
        return bool(self.statements)

    def wants(self, rule_id: str) -> bool:
        """Whether a statement takes the events that this rule matches."""
        return rule_id in self._scans

    def read(self, rule_id: str, event: Event) -> list[Read]:
        """The rows of an event that the rule has matched, for who brings them into another order: else see ``add``."""
        scans, timed = self._scans[rule_id]
        source, received_at = (event.source, event.host() or "") if timed else _NOBODY, event.record.received_at
        return [
            Read(rule_id, at, self.reader.row(scan, event), scan.time, source, received_at)
            for at, scan in scans
            if _takes(scan, event)
        ]

    def add(self, rule_id: str, event: Event) -> None:
        """An event that the rule has matched, in the order of the log. Raises what a decoder raises; then no statement
        has taken it."""
        scans, timed = self._scans[rule_id]
        read, feed = self.reader.row, self.network.feed
        if len(scans) == 1 and not timed:
            ((at, scan),) = scans
            if _takes(scan, event):
                feed(rule_id, read(scan, event), at)
            return
        source, received_at = (event.source, event.host() or "") if timed else _NOBODY, event.record.received_at
        rows = [(at, read(scan, event)) for at, scan in scans if _takes(scan, event)]
        for at, row in rows:
            feed(rule_id, row, at, source, received_at)

    def filters(self, rule_id: str) -> bool:
        """Whether all that statements do with the rule's events is what ``filter`` does."""
        return rule_id in self._filters

    def filter(self, rule_id: str, events: Sequence[Event]) -> tuple[list[Selected], list[tuple[Event, Exception]]]:
        """The rows that events give, which the rule has matched, by statement; nothing else comes of them. And those
        for which a decoder raised, which no statement has taken."""
        scans, read = self._scans[rule_id][0], self.reader.row
        rows: list[list[Row]] = [[] for _ in scans]
        selected, failed = list[Selected](), list[tuple[Event, Exception]]()
        for event in events:
            try:
                event_rows = [(at, read(scan, event)) for at, scan in scans if _takes(scan, event)]
            except Exception as error:  # other events give their rows
                failed.append((event, error))
                continue
            for at, row in event_rows:
                rows[at].append(row)
        for at, of_scan in enumerate(rows):
            selected += self._filtered(rule_id, of_scan, at)
        return selected, failed

    def _filtered(self, rule_id: str, rows: Sequence[Row], at: int) -> list[Selected]:
        selected = list[Selected]()
        for statement, outcome in self.network.filter(rule_id, rows, at):
            texts = self._texts[statement.id, statement.digest]
            selected += [Selected(statement, row, texts, 0) for row in outcome]
        return selected

    def filter_all(
        self, rules: Sequence[str], rows: Sequence[Any], event: Callable[[int], Event]
    ) -> tuple[list[Selected], list[tuple[Event, Exception]]]:
        """``filter`` of events that all of ``rules`` have matched, by rows as ``add_all`` takes them."""
        scans = [(rule, at) for rule in rules for at in range(len(self._scans[rule][0]))]
        ready = [row for row in rows if row is not None]
        unknown = [event(number) for number, row in enumerate(rows) if row is None]
        selected, failed = list[Selected](), list[tuple[Event, Exception]]()
        for place, (rule, at) in enumerate(scans):
            of_scan = ready if len(scans) == 1 else [of_event[place] for of_event in ready]
            selected += self._filtered(rule, of_scan, at) if of_scan else ()
        for rule in rules if unknown else ():
            more, raised = self.filter(rule, unknown)
            selected, failed = selected + more, failed + raised
        return selected, failed

    def add_all(
        self, rules: Sequence[str], rows: Sequence[Any], hosts: Sequence[str | None], input: str, received_at: int,
        event: Callable[[int], Event],
    ) -> list[tuple[int, Exception]]:  # fmt: skip
        """``add`` of events of an input that all of ``rules`` have matched: by event its row, where there are several
        scans a tuple of its rows by rule and scan; None: ``event`` gives it by its number. Those that raised."""
        scans = [(rule, at) for rule in rules for at in range(len(self._scans[rule][0]))]
        failed: list[tuple[int, Exception]] = []
        begin, end = 0, len(rows)
        while begin < end:
            if rows[begin] is None:
                for rule in rules:
                    try:
                        self.add(rule, event(begin))
                    except Exception as error:  # other events give their rows
                        failed.append((begin, error))
                begin += 1
                continue
            unknown = begin
            while unknown < end and rows[unknown] is not None:
                unknown += 1
            if len(scans) == 1:
                self.network.feed_all(rules[0], rows[begin:unknown], hosts[begin:unknown], input, received_at)
            else:
                for of_event, host in zip(rows[begin:unknown], hosts[begin:unknown], strict=True):
                    for (rule, at), row in zip(scans, of_event, strict=True):
                        self.network.feed(rule, row, at, (input, host or ""), received_at)
            begin = unknown
        return failed

    def feed(self, rows: Iterable[Read]) -> None:
        """Rows in the order of the log."""
        feed = self.network.feed
        for rule_id, at, row, _, source, received_at in rows:
            feed(rule_id, row, at, source, received_at)

    def advance(self, running: int) -> None:
        """So many microseconds of receipts have gone by since the agent began (``state/clock.py``)."""
        self.network.advance(running)

    def failures(self) -> list[tuple[Statement, Exception]]:
        """The statements that raised since the last call; they take no rows any more."""
        return self.network.failures()

    def muted(self) -> set[str]:
        """The ids of those that take no rows."""
        return self.network.muted()

    def mute(self, ids: Collection[str]) -> None:
        """These statements take no rows, and all others do; whoever begins again begins empty."""
        self.network.mute(ids)

    def finish(self) -> Iterator[Selected]:
        """Nothing comes any more: every window ends. What is given since, as ``take`` gives it."""
        self.network.end()
        return self._taken()

    def take(self) -> Iterator[Selected]:
        """Give what the statements have given, of one statement in order. What is not asked for waits on."""
        self.network.drain()
        return self._taken()

    def _taken(self) -> Iterator[Selected]:
        last, texts = None, Texts()
        for statement, row, number in self.network.waiting.take():
            if self._at_work is not None:
                self._at_work(statement.id)
            if statement is not last:
                # rows may be of a statement that the plan does not have any more
                last, texts = statement, self._texts.get((statement.id, statement.digest)) or _texts(statement)
            yield Selected(statement, row, texts, number)
        self.network.lacking.taken()
        if self._at_work is not None:
            self._at_work("")

    def incomplete(self, selected: Selected) -> bool:
        """Whether this row, which ``take`` has given last, may be of fewer events than there were, since state gave way
        to ``max_bytes``."""
        return self.network.lacking.of(selected.statement)

    @property
    def waiting(self) -> int:
        """Rows that nobody has taken."""
        return len(self.network.waiting)

    @property
    def taken(self) -> int:
        """Rows that somebody has taken, since the start."""
        return self.network.waiting.taken

    @property
    def dropped(self) -> int:
        """Rows that had no room to wait."""
        return self.network.waiting.dropped.total()

    def number(self, selected: Selected) -> int:
        """How many rows equal to this one came before it, since none waited; to be asked in the order of ``take``."""
        return (
            self.network.waiting.number(selected.statement, selected.row)
            if selected.number is None
            else selected.number
        )

    def status(self) -> dict[str, Any]:
        """JSON-able figures; counts are since the state began."""
        counts, budget = self.network.counts(), self.network.budget
        return {
            "bytes": budget.used,
            "max_bytes": budget.limit,
            "evicted": sum(table.evicted for table in budget.tables),
            "waiting": self.waiting,
            "waiting_bytes": self.network.waiting.bytes,
            "dropped": self.dropped,
            "timeless": sum(self.network.timeless.values()),
            "unfit": self.reader.unfit,
            "statements": [
                {"rule_id": statement.id, "title": statement.title, **counts[statement.id]._asdict()}
                for statement in self.statements
            ],
            "without_functions": [{"rule_id": statement.id, "title": statement.title} for statement in self.refused],
            "for_sinks": [
                {"rule_id": statement.id, "title": statement.title, "sink": statement.sink}
                for statement in self.statements
                if statement.sink
            ],
            "functions": {} if self._functions is None else dict(self._functions.status()),
        }

    # --- state

    def delta(self) -> bytes:
        """Return what changed since the last call; empty for nothing."""
        changes = self.network.delta()
        return pack(changes) if changes else b""

    def restore(self, data: bytes) -> None:
        """Take over one ``delta``; in the order in which they were made, then ``resume``. Raises ValueError or
        TypeError for anything else."""
        self.network.restore(unpack(data))

    def resume(self) -> None:
        self.network.resume()

    def adopt(self, other: Statements) -> list[str]:
        """Take over the state of another plan's statements as far as it means the same here. Returns the ids of those
        that were there and have changed, so that they start empty, at least in part."""
        self.network.adopt(other.network)
        before = {statement.id: statement.digest for statement in other.statements}
        return [
            statement.id
            for statement in self.statements
            if statement.stateful and before.get(statement.id, statement.digest) != statement.digest
        ]

    def touch(self) -> None:
        """The next ``delta`` holds everything."""
        self.network.touch()


def _network(statements: tuple[Statement, ...], max_bytes: int, at_work: AtWork | None = None) -> Network:
    try:
        return Network(statements, Budget(max_bytes), at_work=at_work)
    except Exception as error:  # whatever a damaged plan says
        if len(statements) != 1:
            for statement in statements:
                _network((statement,), max_bytes)
        raise ValueError(f"the statement {statements[0].title!r} cannot run: {error!r:.200}") from error
