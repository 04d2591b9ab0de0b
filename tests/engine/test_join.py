"""Audit records of one event are judged as one, whichever of them a literal is in."""

from __future__ import annotations

from array import array

import hypothesis.strategies as st
from hypothesis import given, settings

from vedette.compiler import plan as plans
from vedette.compiler import sigma
from vedette.compiler.plan import Plan
from vedette.engine.join import MAX_RECORDS, joined
from vedette.engine.match import Engine
from vedette.engine.prefilter import Candidate
from vedette.event import Chunk

RULE = """
title: hidden file run
logsource: {product: linux, service: auditd}
detection:
  ran: {type: EXECVE, a1|contains: payload}
  file: {type: PATH, name|startswith: /tmp/hidden}
  known: {exe|endswith: /backup}
  condition: ran and file and not known
"""


def plan() -> Plan:
    rules = sigma.RuleSet()
    sigma.add(rules, RULE)
    return plans.build(rules.rules, rules.predicates, rules.refused)


def record(kind: str, number: int, body: str) -> str:
    return f"type={kind} msg=audit(1795168800.250:{number}): {body}"


RUN = record("EXECVE", 1, 'a0="sh" a1="payload"')
FILE = record("PATH", 1, 'name="/tmp/hidden/x"')


def lines(*texts: str, codec: str = "auto") -> Chunk:
    return Chunk("test", codec, 0, "".join(text + "\n" for text in texts).encode())


def test_one_event() -> None:
    """A rule over two records fires once, at the first of them, with the text of both."""
    other = record("EXECVE", 2, 'a0="payload"')
    chunk = lines("noise", RUN, other, FILE, record("PROCTITLE", 1, "proctitle=6C73"))
    for prefilter in (True, False):
        (match,) = Engine(plan(), prefilter=prefilter).judge(chunk)
        assert chunk.data[match.start : match.end].decode() == RUN
        assert match.record.get("type") == ["EXECVE", "PATH", "PROCTITLE"]
        assert match.record.get("proctitle") == "ls"


def test_not_one_event() -> None:
    """Records of other ids, of other hosts and origins, and text that only looks like records, stay apart."""
    elsewhere = record("PATH", 2, 'name="/tmp/hidden/x"')
    assert not list(Engine(plan()).judge(lines(RUN, elsewhere)))
    assert not list(Engine(plan()).judge(lines("node=a " + RUN, "node=b " + FILE)))
    assert not list(Engine(plan()).judge(lines(f"<14>Nov 20 10:00:00 a x: {RUN}", f"<14>Nov 20 10:00:00 b x: {FILE}")))
    assert not list(Engine(plan()).judge(lines("said: " + RUN, FILE)))
    first, second = RUN.encode(), FILE.encode()
    ends = array("I", [len(first), len(first) + len(second)])
    chunk = Chunk("test", "auto", 0, first + second, ends, ("10.0.0.1", "10.0.0.2"), array("H", [0, 1]))
    assert not list(Engine(plan()).judge(chunk))
    same = Chunk("test", "auto", 0, first + second, ends, ("10.0.0.1", "10.0.0.2"), array("H", [1, 1]))
    assert len(list(Engine(plan()).judge(same))) == 1


def test_all_records_count() -> None:
    """A record without a literal of the rule takes part: here it is the exception that the rule makes."""
    assert not list(Engine(plan()).judge(lines(record("SYSCALL", 1, 'exe="/bin/backup"'), RUN, FILE)))


def test_bounds() -> None:
    """An event is at most so many records; the rest of a flood is events of its own."""
    chunk = lines(*[FILE] * (MAX_RECORDS + 3))
    candidates = [Candidate(start, end, frozenset({0})) for start, end in chunk.spans()]
    assert [event.raw.count(b"type=") for event in joined(chunk, candidates)] == [MAX_RECORDS, 3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(['EXECVE a1="payload"', 'PATH name="/tmp/hidden"', 'SYSCALL exe="/backup"', "CWD cwd=6C"]),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_prefilter_changes_nothing(drawn: list[tuple[int, str]], ends: bool) -> None:
    """With the prefilter and without, the same events match."""
    texts = [record(kind.split()[0], number, kind.split()[1]) for number, kind in drawn]
    chunk = lines(*texts)
    if ends:
        ends_at = array("I")
        for text in texts:
            ends_at.append((ends_at[-1] if ends_at else 0) + len(text))
        chunk = Chunk("test", "auditd", 0, "".join(texts).encode(), ends_at)
    on, off = (list(Engine(plan(), prefilter=way).judge(chunk)) for way in (True, False))
    assert [(m.rule, m.start, m.end, m.record.raw) for m in on] == [(m.rule, m.start, m.end, m.record.raw) for m in off]
    assert [m.start for m in on] == sorted(m.start for m in on)
