"""Decoder plugins: what they give is held against what they declare, and their faults are their own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.waits import DEADLINE
from vedette import evaluate
from vedette.config.read import ConfigError, parse
from vedette.decode import codecs
from vedette.decode.decoder import record
from vedette.engine.match import Engine
from vedette.plan.plan import Plan, names_of
from vedette.rules import build
from vedette.runtime.options.decoders import Bound, Guarded, Overrun, codec_of
from vedette.system.plugins import FAULTS, Entry, Health, health

RULE = """title: R
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {{product: p}}
detection: {{one: {{{}}}, condition: one}}
"""


class Plugin:
    fields: ClassVar[Any] = {"gate": "verbatim", "badge": "synthetic"}

    def read(self, message: str) -> Any:
        gate, _, badge = message.partition(" ")
        return {"gate": gate, "badge": int(badge or "0", 16)}


class Odd(Plugin):
    fields: ClassVar[Any] = {"hostname": "verbatim"}


class Unsure(Plugin):
    fields: ClassVar[Any] = {"gate": "escaped"}


class Empty(Plugin):
    fields: ClassVar[Any] = {}


def entry(name: str) -> Entry:
    return Entry("decoders", "acme", "1", "own", f"{__name__}:{name}")


@pytest.fixture
def plugged() -> Iterator[codecs.Codec]:
    """The plugin at work, in this process."""
    one = entry("Plugin")
    codecs.plugged["own"] = codec_of("own", one, health(one, "format own"))
    yield codecs.plugged["own"]
    del codecs.plugged["own"]


def matches(plan: Plan, *lines: str, **how: Any) -> list[int]:
    return [one.line for one in evaluate(Engine(plan, route=False, **how), lines, format="own")]


@pytest.mark.parametrize("test", ["gate: GATE3", "badge: 41457", "badge|gt: 40000", "gate|exists: true"])
def test_rules_on_its_fields(test: str) -> None:
    """A bundle that was built without the plugin finds its events, with the prefilter as without it."""
    made = build.from_text(RULE.format(test)).to_bytes()
    one = entry("Plugin")
    codecs.plugged["own"] = codec_of("own", one, health(one, "format own"))
    try:
        plan = Plan.from_bytes(made).fitted()
        assert plan.names == names_of(plan.predicates)
        lines = ("GATE3 00A1F1", "<13>Feb  1 10:00:00 host app: GATE3 00A1F1")
        found = matches(plan, *lines, prefilter=False)
        assert found == [1, 2]
        assert matches(plan, *lines) == matches(plan, *lines, kernel=False) == found
    finally:
        del codecs.plugged["own"]


class Typed(Plugin):
    fields: ClassVar[Any] = {"port": "verbatim", "load": "verbatim", "up": "verbatim"}

    def read(self, message: str) -> Any:
        port, load, up = message.split()
        return {"port": int(port), "load": float(load), "up": up == "TRUE"}


@pytest.mark.parametrize(
    "test", ["port: 8022", "port: '8022'", "port: 8022.0", "port|gt: 8000", "load: 1.50", "load|lt: 2", "up: true"]
)
def test_values_that_are_no_texts(test: str, plugged: codecs.Codec) -> None:
    """Numbers and bools that stand in the message match as a JSON event's do, with whatever evaluates."""
    typed = entry("Typed")
    codecs.plugged["own"] = codec_of("own", typed, health(typed, "format own"))
    plan = Plan.from_bytes(build.from_text(RULE.format(test)).to_bytes()).fitted()
    for how in ({"prefilter": False}, {"kernel": False}, {}):
        assert matches(plan, "8022 1.5 TRUE", "<13>Feb  1 10:00:00 host app: 8022 1.5 TRUE", **how) == [1, 2]
        assert not matches(plan, "802 2.5 FALSE", **how)
    same = evaluate(Engine(plan, route=False), ['{"port": 8022, "load": 1.5, "up": true}'])
    assert [match.line for match in same] == [1]


def test_fields(plugged: codecs.Codec) -> None:
    """They are fields of the event beside those of its header."""
    event = record(b"<13>Feb  1 10:00:00 host app: GATE3 0A", plugged)
    assert (event.get("gate"), event.get("badge"), event.get("hostname")) == ("GATE3", 10, "host")


@pytest.mark.parametrize(
    ("answer", "fields", "why"),
    [
        ({"gate": "G", "badge": 1}, {"gate": "G", "badge": 1}, None),
        ({"gate": "other"}, {}, "gate is 'other', which does not stand in the message"),
        ({"gate": 7}, {}, "gate is 7, which does not stand in the message"),
        ({"gate": 3}, {"gate": 3}, None),
        ({"gate": 0.5}, {"gate": 0.5}, None),
        ({"gate": True}, {"gate": True}, None),
        ({"gate": False}, {}, "gate is False, which does not stand in the message"),
        ({"gate": None}, {"gate": None}, None),
        ({"badge": 2**64}, {"badge": str(2**64)}, None),
        ({"badge": float("inf")}, {"badge": "Infinity"}, None),
        ({"badge": "\ud800G"}, {"badge": "\ufffdG"}, None),
        ({"badge": 10**5000}, {}, "badge is a number of more digits than can be read"),
        ({"more": "G"}, {}, "'more' is not among its fields"),
        ({1: "G"}, {}, "1 is not among its fields"),
        ({"badge": ["x"]}, {}, "badge is ['x']: expects a text, a number, a bool or None"),
        ({"badge": None}, {"badge": None}, None),
        ("text", {}, "read returned 'text': expects a table of fields"),
        (ZeroDivisionError("by zero"), {}, "ZeroDivisionError: by zero"),
        (SystemExit(1), {}, "SystemExit: 1"),
    ],
)
def test_what_it_gives(answer: Any, fields: dict[str, Any], why: str | None) -> None:
    """What it did not declare is left out and counted; that is no reason for quarantine, since senders choose it."""

    def read(message: str) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    account = Health("acme:own", "decoders", "format own")
    guarded = Guarded(read, Plugin.fields, account, "acme:own")
    for _ in range(FAULTS + 1):
        assert guarded("a G b 3 0.5 TRUE") == fields
    assert (account.faults, account.error, account.quarantined) == (FAULTS + 1 if why else 0, why, False)


def test_one_that_hangs() -> None:
    """It is interrupted, and after some times not asked any more."""
    calls: list[str] = []

    def read(message: str) -> dict[str, Any]:
        calls.append(message)
        while message == "hang":
            try:
                time.monotonic()
            except Exception:  # whatever it catches
                continue
        return {"gate": message}

    account = Health("acme:own", "decoders", "format own")
    guarded = Guarded(read, Plugin.fields, account, "acme:own", seconds=0.02)
    assert guarded("good") == {"gate": "good"}
    for count in range(1, FAULTS + 1):
        assert guarded("hang") == {}
        assert account.row == count
    assert str(account.error) == "Overrun: took more than 0.02 s for a message"
    assert guarded("good") == {}
    assert len(calls) == FAULTS + 1


def test_an_interruption_never_comes_late() -> None:
    """Whether a call ends just before or just after its time, nothing is raised behind it."""
    bound, seconds = Bound(0.004), 0.005

    def nearly(message: str) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return message

    ended = interrupted = 0
    for number in range(150):
        seconds = 0.004 + 0.002 * (number % 3)
        try:
            assert bound.call(nearly, "x") == "x"
            ended += 1
        except Overrun:
            interrupted += 1
        sum(range(2000))  # here nothing may be raised
    assert ended + interrupted == 150
    assert threading.current_thread() is threading.main_thread()


def test_a_debugger_goes_on_behind_an_interruption() -> None:
    """Nothing of an interruption stays behind in the interpreter: Python 3.11 hung in the next call that was traced."""
    program = """
import sys, time
from vedette.runtime.options.decoders import Bound, Overrun

def hang(message):
    while True:
        time.sleep(0)

try:
    Bound(0.02).call(hang, "x")
except Overrun:
    sys.settrace(lambda *event: None)
    print(str("ended"))
    (lambda: None)()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE)
    assert (result.returncode, result.stdout) == (0, "ended\n"), result.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Odd", "fields: 'hostname' is a name that the agent gives"),
        ("Unsure", "fields: gate is 'escaped': expects verbatim or synthetic"),
        ("Empty", "fields: expects 1 to 1000 names"),
    ],
)
def test_what_cannot_be(name: str, why: str) -> None:
    """Names that the agent gives, and declarations that are none."""
    with pytest.raises(ValueError, match=why):
        codec_of("own", entry(name), Health("a", "decoders", "b"))


def test_an_input_names_it() -> None:
    """A format that no allowed plugin has is a mistake, with its key."""
    with pytest.raises(ConfigError, match=r"input\[0\]\.format: expects one of auto, .* not 'own'"):
        parse('[[input]]\ntype = "file"\nname = "i"\npaths = ["/x"]\nformat = "own"\n')
