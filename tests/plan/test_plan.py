"""A plan as bytes: round trip, damage, digests."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.differences import walk
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.plan import plan as plans
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.rules.build import described, from_text

RULES = """
title: One
id: 929a690e-bef0-4204-a928-ef5e620d6fcc
level: high
tags: [attack.t1059]
fields: [user]
logsource: {product: linux, service: sshd}
detection:
  s:
    message|contains: [mimikatz, 'a?b*c']
    count|gt: 5.5
    ip|cidr: 10.0.0.0/8
    n: [4720, 0.5, null]
    g|fieldref: h
  k: [evil]
  f: {x|re|i: 'a.c', y|exists: false, z|cased: Abc}
  condition: s and not k or f
---
title: Two
logsource: {category: webserver}
detection: {s: {f|not-a-modifier: x}, condition: s}
---
title: Three
logsource: {category: webserver}
detection: {s: {f: null}, condition: s}
"""
PLAN = from_text(RULES)


def test_a_plan_survives_its_bytes() -> None:
    """Rules, predicates, literals and refusals come back equal; so do the digests."""
    again = Plan.from_bytes(PLAN.to_bytes())
    assert again == PLAN
    assert (again.digest, again.literal_digest) == (PLAN.digest, PLAN.literal_digest)
    assert again.to_bytes() == PLAN.to_bytes()
    assert [rule.title for rule in again.rules] == ["One", "Three"]
    assert [refusal.title for refusal in again.refused] == ["Two"]
    assert Plan.from_bytes(Plan((), (), ()).to_bytes()) == Plan((), (), ())


def test_what_a_plan_tells() -> None:
    """The rules that are always candidates, and the fields that an alert shows: those tested and those wanted."""
    assert [rule.title for rule in PLAN.always] == ["Three"]
    assert PLAN.fields_of[1] == ("f",)
    assert set(PLAN.fields_of[0]) == {"", "message", "count", "ip", "n", "g", "x", "y", "z", "user"}
    rows = described(PLAN)
    assert rows[0]["logsource"] == {"product": "linux", "service": "sshd"}
    assert rows[1]["id"] == PLAN.rules[1].id


def test_digests_tell_meaning_from_choice() -> None:
    """Other literals: the same digest. Another title: another one. The order of rules does not matter."""
    rules = build.read(RULES)
    other = plans.build(rules.rules, rules.predicates, cost=lambda literal: len(literal))
    assert other.digest == PLAN.digest
    assert plans.build(reversed(rules.rules), rules.predicates).digest == PLAN.digest
    assert from_text(RULES.replace("title: One", "title: Uno")).digest != PLAN.digest
    simple = "title: t\nlogsource: {product: x}\ndetection: {s: {f: 'one<three'}, condition: s}\n"
    plan, dear = from_text(simple), from_text(simple, sample=b"three\nthree\n")
    assert (plan.digest, plan.literals) == (dear.digest, (frozenset({b"three"}),))
    assert dear.literals == (frozenset({b"one"}),)
    assert dear.literal_digest != plan.literal_digest


@walk(
    "data",
    [
        b"",
        b"\x00",
        b"\xff" * 20,
        b"{}",
        msgpack.packb([]),
        msgpack.packb([99, [], [], [], []]),
        msgpack.packb([1, [], [], [], [], []]),
        msgpack.packb([1, [["f", "no such operator", "x", False, ""]], [], [], []]),
        msgpack.packb([1, [["f"]], [], [], []]),
        msgpack.packb([1, None, [], [], []]),
        msgpack.packb([1, [], [], [None], []]),
        msgpack.packb([1, [], [["id", "t", "low", [], ["", "", ""], [], 0, "d", "p", 1]], [None], []]),
        msgpack.packb([1, [], [["id", "t", "low", [], ["", "", ""], [], ["and"], "d", "p", 1]], [None], []]),
        msgpack.packb([1, [], [["id", "t", "low", [], ["", "", "", ""], [], ["and"], "d", "p", 1]], [None], []]),
        PLAN.to_bytes()[:-1],
        PLAN.to_bytes() + b"\x00",
    ],
)
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    """ValueError, and nothing else, for other bytes and for plans whose parts do not fit."""
    with pytest.raises(ValueError, match="plan"):
        Plan.from_bytes(data)


@examples(150)
@given(st.integers(0, len(PLAN.to_bytes()) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_gives_a_plan(position: int, change: int) -> None:
    """Damage never raises anything but ValueError, neither when read nor when made ready to judge."""
    data = bytearray(PLAN.to_bytes())
    data[position] ^= change
    try:
        Engine(Plan.from_bytes(bytes(data)))
    except ValueError:
        return


@examples(200)
@given(st.binary(max_size=200))
def test_random_bytes_are_no_artifact(data: bytes) -> None:
    """Neither a plan nor a built rule set is read from bytes at random."""
    for read in (Plan.from_bytes, Artifact.from_bytes):
        with pytest.raises(ValueError):  # noqa: PT011 - the type is the claim
            read(data)


def test_an_artifact_survives_its_bytes() -> None:
    """Plan and databases come back; under another library version the databases are left aside."""
    artifact = Artifact.of(PLAN)
    again = Artifact.from_bytes(artifact.to_bytes())
    assert again == artifact
    assert again.engine().plan == PLAN
    assert again._replace(library="vectorscan 0.0.0", databases={"prefilter": b"x"}).engine().plan == PLAN
    group = next(name for name in again.databases if name.startswith("group-"))
    with pytest.raises(ValueError, match="cannot be loaded"):
        again._replace(databases={**again.databases, group: b"damaged"}).engine()


@examples(50)
@given(st.data())
def test_a_damaged_artifact_is_refused(data: st.DataObject) -> None:
    """A flipped byte anywhere in a cached rule set: ValueError, so that it is built anew."""
    good = Artifact.of(PLAN).to_bytes()
    position = data.draw(st.integers(0, len(good) - 1))
    bad = good[:position] + bytes([good[position] ^ data.draw(st.integers(1, 255))]) + good[position + 1 :]
    with pytest.raises(ValueError):  # noqa: PT011 - the type is the claim
        Artifact.from_bytes(bad)


def test_a_plan_made_for_other_decoders_gets_other_literals() -> None:
    """What was concluded from them may not hold: a built rule set of another version loses no match."""
    plan = from_text("title: t\nlogsource: {product: any}\ndetection: {s: {OwnName: 7}, condition: s}")
    assert plan.fitted() is plan
    built = Artifact.of(replace(plan, literals=(frozenset({b"unheard"}),), names="0"))
    engine = Artifact.from_bytes(built.to_bytes()).engine(route=False)
    assert engine.plan == plan
    assert len(list(engine.evaluate(Chunk("in", "json", 0, b'{"OwnName":7}\n')))) == 1
