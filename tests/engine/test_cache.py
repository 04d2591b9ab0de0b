"""The result cache: its memory, when it rests, what it proves; and that no match depends on it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zlib
from collections.abc import Iterator
from datetime import UTC
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from tests.deep import examples
from tests.engine import drawn
from tests.engine.test_property import chunks, matches_of, rule
from vedette.decode import syslog
from vedette.decode.decoder import record
from vedette.engine import cache as caches
from vedette.engine import evaluate, fallback, group
from vedette.engine.cache import KEY, SET, SLOT, WAYS, Cache, Part, Store
from vedette.engine.match import Context, Engine
from vedette.model.event import Chunk
from vedette.plan import plan as plans
from vedette.plan.ir import And, Leaf, Not, Op, Predicate
from vedette.plan.plan import Plan

ROOM = 1 << 20
TRUNCATED = 2


class Weak:
    """MD5 of which only some bytes count: keys collide."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def copy(self) -> Weak:
        return Weak(self.data, self.size)

    def update(self, data: bytes, /) -> None:
        self.data += data

    def digest(self) -> bytes:
        return hashlib.md5(self.data, usedforsecurity=False).digest()[: self.size].ljust(16, b"\0")


def digests(count: int, salt: bytes = b"") -> Iterator[bytes]:
    return (hashlib.md5(salt + b"%d" % i, usedforsecurity=False).digest() for i in range(count))


def test_a_set_keeps_its_newest_entries() -> None:
    """A store of one set holds WAYS entries; the oldest goes, and nothing else is ever found."""
    store = Store(1)
    keys = list(digests(3 * WAYS))
    for i, key in enumerate(keys):
        assert store.get(key) is None
        assert store.put(key, (i,), ROOM)
        newest = range(i, max(-1, i - WAYS // 2), -1)
        assert [store.get(keys[j]) for j in newest] == [(j,) for j in newest]
    assert sum(store.get(key) is not None for key in keys) == WAYS == store.entries()
    assert store.bytes == SET


def test_what_is_asked_for_stays() -> None:
    """An entry that is found while it is old in its set outlives newer ones that are not."""
    store = Store(1)
    keys = list(digests(20 * WAYS))
    store.put(keys[0], "asked", ROOM)
    for key in keys[1:]:
        store.put(key, "not asked", ROOM)
        assert store.get(keys[0]) == "asked"


@pytest.mark.parametrize("at", [1, 2])
def test_bytes_of_two_slots_are_no_key(at: int) -> None:
    """What looks like a key but lies across two slots is not found; the key behind it is."""
    store = Store(1)
    key, other = digests(2)
    store.put(key, "it", ROOM)
    store.put(other, "another", ROOM)
    store._memory[at : at + KEY] = key[:KEY]
    assert store.get(key) == "it"
    store._memory[SLOT : 2 * SLOT] = bytes(SLOT)
    assert store.get(key) is None


def test_a_key_of_zeros_is_a_key() -> None:
    """Slots never used hold zeros, and still a digest of zeros is not found before it is put in."""
    store = Store(1)
    assert store.get(bytes(16)) is None
    store.put(bytes(16), (), ROOM)
    assert store.get(bytes(16)) == ()


def test_an_entry_costs_its_slot() -> None:
    """A full store of any size takes at most 20 bytes an entry, its answers included."""
    store = Store(2 << 20)
    for i, key in enumerate(digests(400_000)):
        store.put(key, (i % 1000,), ROOM)
    entries = store.entries()
    assert entries > 0.99 * store.bytes / SLOT
    assert (store.bytes + store.answer_bytes) / entries <= 20


def test_too_many_answers_are_forgotten_all() -> None:
    """Distinct answers have a bound in number and in bytes; beyond it all begins anew, and the bound holds."""
    with mock.patch.object(caches, "MAX_ANSWERS", 10):
        cache = Cache(1 << 20)
        for i, key in enumerate(digests(25)):
            cache.put(key, (i,))
            assert cache.get(key) == (i,)
    assert cache.forgotten == 2
    cache = Cache(1 << 16)
    for i, key in enumerate(digests(1000)):
        cache.put(key, tuple(range(i)))
    assert cache.forgotten > 1
    assert cache.account()["bytes"] <= 1 << 16


@pytest.mark.parametrize("size", [0, 1, 7, 64, 4096])
def test_tiny_sizes_work(size: int) -> None:
    """A cache too small for an answer keeps none; nothing raises."""
    cache = Cache(size)
    for i, key in enumerate(digests(100)):
        assert cache.get(key) is None
        cache.put(key, (i,))
        assert cache.get(key) in (None, (i,))
    assert cache.on is (size > 0)


def test_keys_cannot_be_foreseen() -> None:
    """Two caches have other digests for the same bytes: who writes logs cannot make two that collide."""
    assert Cache().begin(b"head")().digest() != Cache().begin(b"head")().digest()


def wanted(part: Part) -> bool:
    """Whether an event is looked up, as ``Engine.matches`` counts them."""
    part.left -= 1
    if part.left < 0:
        part.turn()
    part.skipped += not part.on
    return part.on


def test_a_use_without_hits_rests_and_tries_again() -> None:
    """Under its floor a use is off for REST times its trial; trials grow, up to a bound; with hits it stays on."""
    part = Part(0.5)
    asked = [wanted(part) for _ in range(2_000_000)]
    looked_up = sum(asked)
    assert asked[: caches.TRIAL] == [True] * caches.TRIAL
    assert looked_up < len(asked) / (caches.REST + 1) * 1.5
    assert part.skipped == len(asked) - looked_up
    while not wanted(part):
        pass
    for _ in range(caches.MAX_TRIAL * 2):
        part.hits += 1
        assert wanted(part)


CONTAINS = Predicate("message", Op.CONTAINS, "fail")


def plan_of(*predicates: Predicate) -> Plan:
    return plans.build([rule(i, Leaf(i)) for i in range(len(predicates))], predicates)


def lines(*events: bytes, codec: str = "syslog", origin: str = "") -> Chunk:
    return Chunk("i", codec, 1_790_000_000_000_000, b"".join(event + b"\n" for event in events), origins=(origin,))


def test_only_the_parts_that_rules_ask_for_are_in_the_key() -> None:
    """A message at another time, of another process and host is known, unless a rule asks for those."""
    first = b"<38>Nov 20 10:00:00 web1 sshd[7]: fail"
    others = [first.replace(b"10:00:00", b"11:11:11"), first.replace(b"[7]", b"[9]"), first.replace(b"web1", b"db1")]
    others += [first.replace(b"38", b"39"), first.replace(b"sshd", b"sudo"), first.replace(b"fail", b"failed")]
    known = {"message": [1, 1, 1, 0, 0, 0], "pid": [1, 0, 0, 0, 0, 0], "process.pid": [1, 0, 0, 0, 0, 0]}
    known |= {"host.name": [1, 1, 0, 0, 0, 0], "hostname": [1, 1, 0, 0, 0, 0], "program": [1, 1, 1, 0, 0, 0]}
    for name, expected in known.items():
        engine = Engine(plan_of(CONTAINS, Predicate(name, Op.NULL)), route=False, prefilter=False)
        list(engine.evaluate(lines(first)))
        part = engine.cache.parts[0]
        for other, hit in zip(others, expected, strict=True):
            before = part.hits
            list(engine.evaluate(lines(other)))
            assert part.hits - before == hit, (name, other)


def test_a_sender_is_in_the_key_when_a_rule_asks_for_it() -> None:
    """The same line from another peer, the same payload under another topic: judged anew by such rules."""
    for name, codec, raw in (("peer", "syslog", b"<38>Nov 20 10:00:00 w a: fail"), ("topic_level_1", "mqtt", b"fail")):
        plan = plan_of(Predicate(name, Op.EXACT, "one"))
        engine = Engine(plan, route=False)
        assert [len(list(engine.evaluate(lines(raw, codec=codec, origin=o)))) for o in ("one", "two", "one")] == [
            1,
            0,
            1,
        ]
        assert engine.cache.parts[0].hits == 1


def test_inputs_do_not_share_what_they_do_not_mean() -> None:
    """The same bytes under another codec or log source are another event."""
    engine = Engine(plan_of(Predicate("a", Op.EXISTS)), route=False)
    raw = b'{"a": 1}'
    assert [len(list(engine.evaluate(lines(raw, codec=c)))) for c in ("json", "text", "json", "text")] == [1, 0, 1, 0]


@st.composite
def repeated(draw: st.DrawFn, fragments: list[str]) -> list[drawn.Drawn]:
    """Events, some of them again: as they are, or with another time, process, host or sender."""
    events = draw(st.lists(drawn.event(fragments), min_size=1, max_size=5))
    for event in draw(st.lists(st.sampled_from(events), max_size=10)):
        raw = event.raw
        for old, new in ((b"10:00:00", b"11:22:33"), (b"[7]", b"[8]"), (b"web1", b"db2"), (b"app 12", b"app 13")):
            if draw(st.booleans()):
                raw = raw.replace(old, new, 1)
        origin = draw(st.sampled_from([event.origin, event.origin, "a"]))
        events.append(event._replace(raw=raw, origin=origin))
    return [event._replace(raw=event.raw.replace(drawn.SERIAL, b"%d" % i)) for i, event in enumerate(events)]


@examples(30)
@given(data=st.data())
def test_the_same_matches_with_and_without(data: st.DataObject) -> None:
    """Any rules, any codec's events, repeated: the cache, of any size, changes no match."""
    fragments = data.draw(drawn.FRAGMENTS)
    predicates = data.draw(st.lists(drawn.predicate(fragments), min_size=1, max_size=6, unique=True))
    exprs = data.draw(st.lists(drawn.exprs(len(predicates)), min_size=1, max_size=5))
    rules = [rule(i, expr) for i, expr in enumerate(exprs)]
    salt = data.draw(st.integers(0, 3)).to_bytes(1, "big")
    plan = plans.build(rules, predicates, cost=lambda literal: zlib.crc32(salt + literal) / 2**32)
    batch = chunks(data.draw(repeated(fragments)), data.draw(st.booleans()))
    filtered = data.draw(st.booleans())
    expected = matches_of(Engine(plan, route=False, prefilter=filtered, cache=Cache(0)), batch)
    cache = Cache(data.draw(st.sampled_from([1, 2000, 20_000, 1 << 20])), data.draw(st.sampled_from([0, 0.5, 1])))
    few, scan_from = data.draw(st.sampled_from([0, 2, 12])), data.draw(st.sampled_from([1, 8]))
    with mock.patch.object(evaluate, "FEW", few), mock.patch.object(group, "SCAN_FROM", scan_from):
        engine = Engine(plan, route=False, prefilter=filtered, cache=cache)
        for _ in range(3):
            assert matches_of(engine, batch) == expected
    assert not cache.failure


@examples(40)
@given(data=st.data())
def test_keys_that_collide_are_found_out(data: st.DataObject) -> None:
    """With a hash of 16 values and each hit verified, matches are right, and the first wrong answer ends the cache."""
    fragments = data.draw(drawn.FRAGMENTS)
    predicates = data.draw(st.lists(drawn.predicate(fragments), min_size=1, max_size=4, unique=True))
    plan = plan_of(*predicates)
    batch = chunks(data.draw(repeated(fragments)), False)
    expected = matches_of(Engine(plan, route=False, cache=Cache(0)), batch)
    cache = Cache(1 << 20, 1.0, seed=lambda data: Weak(data, 0))
    engine = Engine(plan, route=False, cache=cache)
    assert matches_of(engine, batch) == expected
    assert matches_of(engine, batch) == expected
    assert not cache.failure or not cache.on


def test_a_wrong_answer_is_told_and_ends_the_cache() -> None:
    """An answer that is not what judging afresh gives: the fresh one counts, the cache says why and is off."""
    cache = Cache(1 << 20, 1.0, seed=lambda data: Weak(data, 0))
    engine = Engine(plan_of(CONTAINS), route=False, prefilter=False, cache=cache)
    assert list(engine.evaluate(lines(b"<38>Nov 20 10:00:00 w a: fine"))) == []
    assert len(list(engine.evaluate(lines(b"<38>Nov 20 10:00:00 w a: fail")))) == 1
    assert "[0]" in cache.failure
    assert not cache.on
    assert cache.account()["bytes"] == 0
    assert [len(list(engine.evaluate(lines(b"<38>Nov 20 10:00:00 w a: fail")))) for _ in range(3)] == [1, 1, 1]


HARD = "a" * 60 + "!"


def test_what_is_undecided_is_not_kept() -> None:
    """A pattern that ran out of time is asked again for the same event; with a cache quarantine counts the same."""
    slow = Predicate("message", Op.REGEX, "(?=a)(a|aa)+$", True)
    accounts = []
    for cache in (Cache(0), Cache(1 << 20, 0.5)):
        engine = Engine(plan_of(slow, CONTAINS), route=False, prefilter=False, quarantine_after=2, cache=cache)
        chunk = lines(*[f"<38>Nov 20 10:00:00 w x: {HARD}".encode()] * 2, *[b"<38>Nov 20 10:00:00 w x: fail"] * 4)
        matches = [(m.rule, m.start) for _ in range(2) for m in engine.evaluate(chunk)]
        accounts.append(
            (matches, engine.tally.undecided, engine.tally.skipped, engine.quarantined, engine.undecided_events())
        )
    assert accounts[0] == accounts[1]
    assert accounts[0][1] == {0: 2}
    assert accounts[0][3] == {0}


def test_what_was_undecided_is_evaluated_afresh() -> None:
    """An event for whose pattern no time was left matches all its rules when it comes again: no part was kept."""
    slow, plain = Predicate("message", Op.REGEX, "(?=a)a+$", True), Predicate("message", Op.CONTAINS, "aaa")
    chunk = lines(b"<38>Nov 20 10:00:00 w x: aaa")
    engine = Engine(plan_of(slow, plain), route=False, prefilter=False)
    with mock.patch.object(fallback.Watch, "finds", side_effect=fallback.Undecided):
        assert [match.rule for match in engine.evaluate(chunk)] == [1]
    assert engine.tally.undecided == {0: 1}
    assert [match.rule for match in engine.evaluate(chunk)] == [0, 1]


def test_a_rule_put_in_quarantine_is_not_answered_from_memory() -> None:
    """What was kept before a rule went into quarantine is not used after it."""
    engine = Engine(plan_of(CONTAINS), route=False, prefilter=False)
    chunk = lines(b"<38>Nov 20 10:00:00 w x: fail")
    assert [len(list(engine.evaluate(chunk))) for _ in range(2)] == [1, 1]
    engine.quarantine({"0"})
    assert [len(list(engine.evaluate(chunk))) for _ in range(2)] == [0, 0]
    assert engine.tally.skipped == {0: 2}


def test_a_match_from_memory_has_the_whole_event() -> None:
    """The record of a match that was known is that of its own event: its time, host and process."""
    engine = Engine(plan_of(CONTAINS), route=False, kernel=False)  # which would not ask the cache
    chunk = lines(b"<38>Nov 20 10:00:00 w1 x[1]: fail", b"<38>Nov 20 10:00:01 w2 x[2]: fail")
    first, second = engine.evaluate(chunk, Context())
    assert engine.cache.parts[0].hits == 1
    assert (first.record.host, first.record.get("pid")) == ("w1", "1")
    assert (second.record.host, second.record.get("pid")) == ("w2", "2")
    assert second.record.event_time == (first.record.event_time or 0) + 1_000_000


def test_rules_of_the_same_candidates_are_told_apart() -> None:
    """The same message as a candidate of other rules is another question."""
    first, second = Predicate("message", Op.CONTAINS, "fail"), Predicate("hostname", Op.EXACT, "special")
    plan = plans.build([rule(0, Leaf(0)), rule(1, And((Leaf(1), Not(Leaf(0)))))], [first, second])
    engine = Engine(plan, route=False)
    chunk = lines(b"<38>Nov 20 10:00:00 special x: ok", b"<38>Nov 20 10:00:00 other x: ok")
    assert [(m.rule, m.start) for m in [*engine.evaluate(chunk), *engine.evaluate(chunk)]] == [(1, 0), (1, 0)]


HEADERS = st.one_of(
    st.builds(
        b"<%b>%b %b %b %b: %b".__mod__,
        st.tuples(
            st.sampled_from([b"38", b"0", b"191", b"192", b"007"]),
            st.sampled_from([b"Nov 20", b"Feb 29", b"Feb 30", b"Nov  1", b"Jun 31", b"Jan 28", b"Mai 01", b"Foo 11"]),
            st.sampled_from([b"10:00:00", b"23:59:60", b"24:00:00", b"00:00:00.5"]),
            st.sampled_from([b"web1", b"1", b"10.0.0.1", b"w:", b"2026", b"app:", b"fe80::1"]),
            st.sampled_from([b"sshd", b"sshd[7]", b"a b", b"%ASA-6-1", b"CEF", b"x[]", b"/usr/sbin/CRON[1]", b"12"]),
            st.sampled_from([b"x", b"", b" x", b"CEF:0|a|b|c|d|e|f|", b'{"a": 1}', b"a=1", b"x[1]: y"]),
        ),
    ),
    st.builds(
        b"<%b>%b %b %b %b %b %b %b".__mod__,
        st.tuples(
            st.sampled_from([b"38", b"191", b"192"]),
            st.sampled_from([b"1", b"999", b"0"]),
            st.sampled_from([b"2026-11-20T10:00:00Z", b"2026-99", b"-", b"2026-11-20T10:00:00.123456+02:00", b"20261"]),
            st.sampled_from([b"web1", b"-", b"1"]),
            st.sampled_from([b"app", b"-", b"x:"]),
            st.sampled_from([b"12", b"-"]),
            st.sampled_from([b"ID", b"-"]),
            st.sampled_from([b"- x", b'[a b="1"] x', b"- \xef\xbb\xbfx", b"x", b"", b"-"]),
        ),
    ),
)
RECEIVED = (0, 1_790_000_000_000_000, 86_400_000_000, 4_102_444_800_000_000)


@settings(max_examples=300)
@given(first=HEADERS, second=HEADERS, host=st.booleans(), pid=st.booleans(), received=st.sampled_from(RECEIVED))
@example(b"<38>Nov 20 10:00:00 1 x: y", b"<38>1 2026-11-20T10:00:00Z x: y - z", True, False, 0)
def test_lines_alike_but_for_their_time_have_one_header(
    first: bytes, second: bytes, host: bool, pid: bool, received: int
) -> None:
    """Where two lines are the same without their times, so are header and message, but for what that leaves out."""

    def timeless(line: bytes) -> bytes | None:
        found = syslog.usual(line)
        return None if found is None else syslog.without_time(found, line, host, pid)

    kept = timeless(first)
    for other in (second, first.replace(b"10:00:00", b"11:11:11").replace(b"[7]", b"[8]").replace(b"web1", b"db1")):
        if kept is None or timeless(other) != kept:
            continue
        headers = [syslog.parse(line, received) for line in (first, other)]
        assert None not in headers
        shown = [
            {name: header.field(name) for name in syslog.FIELDS if name not in ("hostname", "pid")}
            | ({"hostname": header.host} if host or pid else {})
            | ({"pid": header.pid} if pid else {})
            | {"data": header.structured_data, "message": line[header.message_start :]}
            for header, line in zip(headers, (first, other), strict=True)
            if header is not None
        ]
        assert shown[0] == shown[1]


@settings(max_examples=300)
@given(line=HEADERS, received=st.sampled_from((*RECEIVED, 5)))
@example(b"<38>Nov 20 10:00:00 web1 12: %ASA-6-1: x", 0)
@example(b"<38>Nov 20 10:00:00 - sshd[7]: x", 5)
def test_a_usual_line_has_the_header_that_parsing_gives(line: bytes, received: int) -> None:
    """What the one pattern has found is the header that the line has without it."""
    found = syslog.usual(line)
    assert found is None or syslog.of_usual(found, line, received, UTC) == syslog.parse(line, received, UTC)


@settings(max_examples=300)
@given(line=HEADERS, end=st.sampled_from([b"", b"\r\n", b"\0", b"]"]), received=st.sampled_from((*RECEIVED, 5)))
@example(b"<38>Nov 20 10:00:00 web1 sshd[7]: message repeated 2 times: [ x", b"]", 0)
@example(b"<38>Nov 20 10:00:00 web1 12: %ASA-6-1: x", b"", 0)
@example(b'<38>Nov 20 10:00:00 web1 app: @cee: {"program": "y", "message": 1}', b"", 0)
def test_program_and_message_are_those_of_the_header(line: bytes, end: bytes, received: int) -> None:
    """Program and message of a line, asked for alone, are what they are once all of it is decoded."""
    for codec in ("auto", "syslog", "json", "text", "cef"):
        whole = record(line + end, codec, received_at=received)
        whole.fields()
        for name in ("program", "message"):
            alone = record(line + end, codec, received_at=received)
            assert alone.get(name) == whole.get(name)
            told = record(line + end, codec, received_at=received)
            if codec == "syslog":
                told.usual = syslog.usual(line + end)
            assert told.get(name) == whole.get(name)


_FULL = """
import ctypes, mmap, random
from vedette.engine import cache
mprotect = ctypes.CDLL(None).mprotect
mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
PAGE, real = mmap.PAGESIZE, mmap.mmap

def guarded(file, size):  # what lies behind the pages asked for cannot be read
    pages = -(-size // PAGE) * PAGE
    memory = real(file, pages + PAGE)
    assert mprotect(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + pages, PAGE, 0) == 0
    return memory

cache.mmap.mmap = guarded
store, chance = cache.Store(PAGE), random.Random(1)
for number in range(200_000):
    digest = chance.randbytes(16)
    if store.get(digest) is None and not number % 8:
        store.put(digest, number % 5, 1 << 20)
"""


def test_nothing_behind_the_memory_is_read() -> None:
    """A look-up in the last set stays within what is mapped: one byte more is a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", _FULL], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
