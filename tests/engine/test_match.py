"""Chunks in, matches out: order, routing by log source, empty and broken events, what an alert shows."""

from __future__ import annotations

from array import array
from functools import cache

from tests.differences import walk
from vedette.decode.decoder import CODECS
from vedette.engine.match import Context, Engine
from vedette.model.event import Chunk, LogSource
from vedette.rules.build import from_text

RULES = """
title: ssh
logsource: {product: linux, service: sshd}
fields: [src_ip]
detection: {s: {message|contains: root}, condition: s}
---
title: web
logsource: {category: webserver}
detection: {s: {cs-uri-stem|contains: root}, condition: s}
---
title: any linux
logsource: {product: linux}
detection: {s: {nothing: null}, condition: s}
---
title: mqtt
logsource: {category: iot, service: mqtt}
detection: {s: {topic: plant/press/1, temp|gt: 90}, condition: s}
"""
SSH = b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2"
SUDO = b"<38>Nov 20 10:00:00 web1 sudo: root : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/sh"
WEB = b'203.0.113.9 - - [10/Oct/2025:13:55:36 +0200] "GET /root HTTP/1.1" 200 15 "-" "curl"'
PLAN = from_text(RULES)


@cache
def engines(route: bool) -> tuple[Engine, Engine]:
    """With the prefilter and without it."""
    return Engine(PLAN, route=route), Engine(PLAN, route=route, prefilter=False)


def titles(chunk: Chunk, *, route: bool = True, logsource: LogSource = LogSource()) -> list[tuple[int, str]]:
    """(event, title) of every match; the same without the prefilter."""
    found = [
        [(chunk.index(m.start), PLAN.rules[m.rule].title) for m in engine.evaluate(chunk, Context(None, logsource))]
        for engine in engines(route)
    ]
    assert found[0] == found[1]
    return found[0]


def lines(*events: bytes, codec: str = "auto") -> Chunk:
    return Chunk("in", codec, 0, b"".join(event + b"\n" for event in events))


def test_rules_meet_events_of_their_log_source() -> None:
    """What a decoder finds and what the input's settings say together make an event's log sources."""
    chunk = lines(SSH, SUDO, WEB)
    assert titles(chunk) == [(0, "ssh"), (0, "any linux"), (1, "any linux"), (2, "web")]  # programs of Linux
    assert titles(chunk, logsource=LogSource(product="linux")) == [
        (0, "ssh"),
        (0, "any linux"),
        (1, "any linux"),
        (2, "web"),
        (2, "any linux"),
    ]
    assert titles(chunk, logsource=LogSource(product="windows")) == titles(chunk)
    assert (1, "ssh") in titles(chunk, logsource=LogSource("linux", "", "sshd"))


def test_without_routing_log_sources_are_ignored() -> None:
    """Every rule is asked about every event."""
    assert titles(lines(SSH, SUDO, b"x"), route=False) == [
        (0, "ssh"),
        (0, "any linux"),
        (1, "ssh"),
        (1, "any linux"),
        (2, "any linux"),
    ]


def test_a_rule_that_no_input_can_feed() -> None:
    """``reaching`` tells which rules an input's events can meet."""
    engine = Engine(PLAN)
    ssh, web, linux, mqtt = range(4)
    assert ssh in engine.reaching("auto", LogSource("linux"))
    assert linux in engine.reaching("auto", LogSource())
    assert linux not in engine.reaching("text", LogSource())
    assert mqtt in engine.reaching("mqtt", LogSource())
    assert mqtt not in engine.reaching("access", LogSource("linux"))
    assert mqtt in Engine(PLAN, route=False).reaching("access", LogSource("linux"))
    assert web in engine.reaching("access", LogSource())


def test_rules_without_literals_are_told_by_their_source() -> None:
    """Where the source stands in the event, other events are no candidates; where the input gives it, all are."""
    plan = from_text(
        "title: t\nlogsource: {product: linux, service: sudo}\ndetection: {s: {nothing: null}, condition: s}"
    )
    for logsource, candidates in ((LogSource(), 1), (LogSource("linux"), 1), (LogSource(service="sudo"), 3)):
        engine = Engine(plan)
        chunk, context = lines(SSH, SUDO, WEB), Context(None, logsource)
        found = [(m.start, m.rule) for m in engine.evaluate(chunk, context)]
        assert found == [(m.start, m.rule) for m in Engine(plan, prefilter=False).evaluate(chunk, context)]
        assert engine.tally.candidates == candidates
    assert len(list(Engine(plan, route=False).evaluate(lines(SSH, SUDO, WEB)))) == 3


def test_an_input_that_few_rules_can_meet_has_a_scan_of_its_own() -> None:
    """The same matches, with and without; an input that many can meet has none."""
    engine = Engine(PLAN)
    engine.prepare([("access", LogSource()), ("auto", LogSource()), ("text", LogSource())])
    for codec in ("access", "auto", "text"):
        chunk = lines(SSH, SUDO, WEB, codec=codec)
        found = [(m.start, m.rule) for m in engine.evaluate(chunk)]
        assert found == [(m.start, m.rule) for m in Engine(PLAN).evaluate(chunk)]
    scans = [engine._at_input(codec, LogSource())[2] for codec in ("access", "auto", "text")]
    assert [scan is engine.prefilter for scan in scans] == [False, True, False]


def test_origins_reach_the_record() -> None:
    """Each event has its own topic, also where chunks hold several and events are newlines only."""
    ends, data = array("I"), b""
    for payload in (b'{"temp": 99}', b"\n", b'{"temp": 99}', b'{"temp": 10}'):
        data += payload
        ends.append(len(data))
    chunk = Chunk("in", "mqtt", 0, data, ends, ("other", "plant/press/1"), array("H", [0, 1, 1, 1]))
    assert titles(chunk) == [(2, "mqtt")]


def test_matches_carry_bounds_and_record() -> None:
    """Start and end are the event's own; the record is decoded from it; the tally counts."""
    engine = Engine(PLAN, route=False)
    chunk = lines(b"", SSH)
    (empty, ssh, always) = engine.evaluate(chunk)
    assert (empty.start, empty.end, empty.record.raw) == (0, 0, b"")
    assert chunk.data[ssh.start : ssh.end] == ssh.record.raw == SSH
    assert ssh.record is always.record
    assert engine.shown(ssh.rule, ssh.record) == {
        "message": "Failed password for root from 203.0.113.9 port 22 ssh2",
        "src_ip": "203.0.113.9",
    }
    assert (engine.tally.events, engine.tally.candidates, engine.tally.matches) == (2, 2, 3)


@walk("codec", sorted(CODECS))
@walk(
    "event",
    [b"", b"\0", b"\xff\xfe\xfd", b"{", b'{"a": "\xff"}', b"<", b"<999>", b"<38>", b"\r", b'{"a": NaN}', b"[" * 2000],
)
def test_no_event_raises(codec: str, event: bytes) -> None:
    """Any bytes under any codec are judged."""
    chunk = Chunk("in", codec, 0, event + b"\n")
    assert (0, "any linux") in titles(chunk, route=False)


def test_an_empty_chunk() -> None:
    """No events, no matches, in either form."""
    assert titles(Chunk("in", "auto", 0, b"")) == []
    assert titles(Chunk("in", "auto", 0, b"", array("I"))) == []


def test_a_plan_without_rules() -> None:
    """An agent that waits for its first bundle judges all events, with nothing to find."""
    engine = Engine(from_text(""))
    assert list(engine.evaluate(lines(SSH, WEB))) == []
    assert engine.tally.events == 2


def test_invalid_utf8_is_judged_as_replaced() -> None:
    """Bytes that are no UTF-8 become U+FFFD before evaluation; what is around them is found."""
    plan = from_text(
        "title: t\nlogsource: {product: x}\ndetection: {s: {message|contains: 'evil\ufffdthing'}, condition: s}"
    )
    assert len(list(Engine(plan, route=False).evaluate(lines(b"an evil\xffthing")))) == 1
