"""Decoder plugins: loaded once, before anything is evaluated, for the formats that inputs name.

What one does is its own: it runs in the thread that evaluates, within ``SECONDS`` for a message, and what it gives is
held against what it declares. A field that it did not declare, or a verbatim one that does not stand in the message,
is left out; so the prefilter stays sound whatever it does. A fault is counted. After ``FAULTS`` messages that took too
long it is in quarantine: its messages then have no fields but ``message``. Raising does not lead there: senders choose
what is sent.

The bound interrupts code in Python. What hangs in native code cannot be interrupted.
"""

from __future__ import annotations

import ctypes
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import structlog

from vedette.config.settings import Config
from vedette.decode import codecs
from vedette.decode.codecs import CODECS, Codec, Kind
from vedette.decode.declared import RESERVED
from vedette.decode.formats.base import Field, Fields, Format, Gives, Provenance
from vedette.decode.values import from_json, lowered, scalars
from vedette.model.counters import Log
from vedette.runtime.pipeline.blackbox import NOWHERE, BlackBox, Stage, cut
from vedette.system.plugins import FAULTS, Entry, Health, by_name, found, health

log = structlog.get_logger()

SECONDS = 1.0
"""For one message."""
LOAD_SECONDS = 30.0
"""For its import."""
MAX_FIELDS = 1000
LARGE = 2**53
"""From here on a number may be one that JSON has not."""
_NAME = re.compile(r"[^\s\x00-\x1f\x7f\"']{1,128}")
_HOW = {"verbatim": Provenance.VERBATIM, "synthetic": Provenance.SYNTHETIC}


class Calls:
    """The calls of decoder plugins, noted in ``box``; ``forbidden``: by part why one is not loaded."""

    def __init__(self, box: BlackBox, forbidden: Mapping[str, str], *, careful: bool) -> None:
        self._box, self._forbidden = box, forbidden
        self.careful = careful
        """Whether each reading is noted."""

    def forbids(self, entry: Entry) -> str:
        """Why a plugin is not loaded; empty: it is."""
        return self._forbidden.get(_part(entry), "")

    def loading(self, entry: Entry) -> AbstractContextManager[None]:
        """Around the import of a plugin."""
        return self._box.within(Stage.LOADING, NOWHERE, _part(entry))

    def reading(self, entry: Entry) -> AbstractContextManager[None]:
        """Around a decoder plugin's reading of a message."""
        return self._box.within(Stage.DECODING, None, _part(entry))


def _part(entry: Entry) -> str:
    return cut(f"{entry.label} {entry.version}")


def adopt(config: Config, calls: Calls | None = None) -> None:
    """Load the decoders that inputs of ``config`` name. One that cannot be loaded, or is in quarantine since the agent
    has died of it, is logged: its inputs' events are read as ``auto`` reads them."""
    if config.plugins.allow:
        plug(config.plugins.allow, [settings.format for settings in config.input], calls)


def plug(allow: Iterable[str], names: Iterable[str] | None = None, calls: Calls | None = None) -> list[str]:
    """Load the decoders that ``allow`` lets in, of ``names`` alone where given, each under the names that an input may
    call it; what cannot be loaded is logged, and returned for people."""
    entries, wrong = found(allow)
    by_format = by_name(entries, "decoders")
    for name in dict.fromkeys(by_format if names is None else names):
        if name in CODECS or name not in by_format or name in codecs.plugged:
            continue
        entry = by_format[name]
        account = health(entry, f"format {name}")
        if calls is not None and (why := calls.forbids(entry)):
            account.condemn(why)
            log.error(Log.PLUGIN_QUARANTINED, plugin=entry.label, format=name, reason=why,
                      action="events of its inputs are read as format auto: install another version, or release it with"
                      " SIGHUP, and start again")  # fmt: skip
            wrong.append(f"{entry.label}: {why}")
            continue
        try:
            with nullcontext() if calls is None else calls.loading(entry):
                codecs.plugged[name] = codec_of(name, entry, account, calls)
        except Exception as error:  # the plugin's, whatever it is
            reason = account.fault(error)
            log.error(Log.PLUGIN_FAILED, plugin=entry.label, format=name, reason=reason,
                      action="events of its inputs are read as format auto")  # fmt: skip
            wrong.append(f"{entry.label}: {reason}")
    return wrong


def codec_of(name: str, entry: Entry, account: Health, calls: Calls | None = None) -> Codec:
    """Raises what the plugin raises, and ValueError for fields that cannot be."""
    decoder = _loaded(entry)
    fields = decoder.fields
    if not isinstance(fields, Mapping) or not 0 < len(fields) <= MAX_FIELDS:
        raise ValueError(f"fields: expects 1 to {MAX_FIELDS} names with verbatim or synthetic, not {fields!r:.80}")
    for field, how in fields.items():
        if not isinstance(field, str) or not _NAME.fullmatch(field) or field in RESERVED:
            raise ValueError(f"fields: {field!r:.80} is a name that the agent gives, or none")
        if how not in _HOW:
            raise ValueError(f"fields: {field} is {how!r:.80}: expects verbatim or synthetic")
    gives = Gives(f'`format = "{name}"`', tuple(Field(field, how=_HOW[how]) for field, how in sorted(fields.items())))
    read: Callable[[str], Fields] = Guarded(decoder.read, dict(fields), account, entry.label)
    if calls is not None and calls.careful:
        read = _noted(read, calls, entry)
    row = Format(name, b"", read, gives, structured=False)
    return Codec(name, Kind.SYSLOG, name, row=row)


def _loaded(entry: Entry) -> Any:
    """What the entry point gives. Its import may take LOAD_SECONDS."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append((entry.load()(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work, name="plugin", daemon=True)
    thread.start()
    thread.join(LOAD_SECONDS)
    if not outcome:
        raise TimeoutError(f"its import took more than {LOAD_SECONDS:g} s")
    loaded, error = outcome[0]
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(repr(error))
    return loaded


def _noted(read: Callable[[str], Fields], calls: Calls, entry: Entry) -> Callable[[str], Fields]:
    def noted(message: str) -> Fields:
        with calls.reading(entry):
            return read(message)

    return noted


class Guarded:
    """``Format.read`` of a plugin."""

    def __init__(
        self, read: Callable[[str], Any], fields: Mapping[str, str], account: Health, label: str,
        seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        self._read, self._fields, self._health, self._label = read, fields, account, label
        self._bound = Bound(seconds)

    def __call__(self, message: str) -> Fields:
        if self._health.quarantined:
            return {}
        try:
            answer = self._bound.call(self._read, message)
        except Overrun as error:
            self._health.fault(error)
            if self._health.row >= FAULTS:
                log.error(Log.PLUGIN_QUARANTINED, plugin=self._label, reason=self._health.error,
                          action="its messages have no fields but message, until a start")  # fmt: skip
            return {}
        except BaseException as error:  # its fault, whatever it is
            self._blame(f"{type(error).__name__}: {error}")
            return {}
        if not isinstance(answer, Mapping):
            self._blame(f"read returned {answer!r:.80}: expects a table of fields")
            return {}
        fields: Fields = {}
        for name, value in answer.items():
            how = self._fields.get(name) if isinstance(name, str) else None
            if how is None:
                self._blame(f"{name!r:.80} is not among its fields")
            elif value is not None and type(value) not in (str, int, float, bool):
                self._blame(f"{name} is {value!r:.80}: expects a text, a number, a bool or None")
            else:
                try:
                    fields[name] = self._held(value, message if how == "verbatim" else None)
                except ValueError as error:
                    self._blame(f"{name} is {error}")
        return fields

    @staticmethod
    def _held(value: Any, message: str | None) -> Any:
        """Return a value as one of JSON would be: ``from_json``. Raises ValueError when its text, as rules see it, does
        not stand in ``message``, in whatever case where it is no text."""
        simple = value.isascii() if type(value) is str else value is None or -LARGE < value < LARGE
        if not simple:
            try:
                value = from_json(json.dumps(value).encode())
            except ValueError:
                raise ValueError("a number of more digits than can be read") from None
        if message is not None and value is not None:
            (text,) = scalars([value])
            if text not in (message if type(value) is str else lowered(message)):
                raise ValueError(f"{value!r:.80}, which does not stand in the message")
        return value

    def _blame(self, reason: str) -> None:
        """Count a fault that does not lead to quarantine."""
        row = self._health.row
        self._health.fault(reason)
        self._health.row = row


class Overrun(BaseException):
    """Raised in the plugin's code when its time is over."""


class Bound:
    """Calls that are interrupted after some seconds, by a thread that looks every quarter of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._thread = 0
        self._until = 0.0
        """Monotonic; 0: nothing is under way."""
        self._fired = False
        self._watching = False

    def call(self, function: Callable[[str], Any], message: str) -> Any:
        """Raises Overrun, and what ``function`` raises."""
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="plugin-bound", daemon=True).start()
        with self._lock:
            self._thread, self._fired = threading.get_ident(), False
            self._until = time.monotonic() + self._seconds
        try:
            try:
                return function(message)
            finally:
                with self._lock:
                    self._until = 0.0
                if self._fired:
                    self._settle()
        except Overrun:
            raise Overrun(f"took more than {self._seconds:g} s for a message") from None

    def _settle(self) -> None:
        """Have nothing raised later: neither what was not raised yet, nor the interpreter's note that something is to
        be raised. Taking it back by NULL leaves that note for ever: Python 3.12 then runs slower, and 3.11 hangs once
        somebody traces."""
        with suppress(Overrun):
            _raise(self._thread)
            while True:
                time.sleep(0)

    def _watch(self) -> None:
        while True:
            time.sleep(self._seconds / 4)
            with self._lock:
                if self._until and time.monotonic() > self._until:
                    self._until, self._fired = 0.0, True
                    _raise(self._thread)


def _raise(thread: int) -> None:
    """Have ``Overrun`` raised in a thread, in the place of what is to be raised there and was not yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Overrun))
