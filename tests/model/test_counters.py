"""The account: every event of every input is somewhere, also when damage has taken the name of its input."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from vedette.model.counters import UNKNOWN, Counters, Dropped, Lost, visible


def counters(**stored: int) -> Counters:
    """Counters of inputs whose events are all received and stored."""
    tally = Counters()
    for name, events in stored.items():
        tally.received[name] = tally.stored[name] = events
    return tally


def test_a_snapshot_tells_of_every_input_counted() -> None:
    """An input that only one counter knows is in the snapshot, and comes back with it."""
    tally = Counters()
    tally.lost[UNKNOWN, Lost.DAMAGED] = 3
    tally.bytes_in["a"] = 7
    tally.cut["b"] = 1
    tally.drop("c", Dropped.KERNEL, 2)
    snapshot = tally.snapshot()
    assert list(snapshot["inputs"]) == ["?", "a", "b", "c"]
    assert snapshot["inputs"]["?"]["lost"] == {"damaged": 3}
    again = Counters()
    again.restore(snapshot)
    assert again.snapshot() == snapshot


def test_identity_of_each_input() -> None:
    """While the input of all events is known, each has an account of its own: one's surplus does not hide a miss."""
    tally = counters(a=5, b=5)
    tally.judged.update(a=3, b=4)
    tally.lost["b", Lost.DAMAGED] = 1
    assert tally.identity({"a": 2}) == []
    assert tally.identity({"a": 1, "b": 1}) == [
        "a: stored 5 != judged 3 + backlog 1 + lost 0",
        "b: stored 5 != judged 4 + backlog 1 + lost 1",
    ]


def test_identity_when_an_input_is_unknown() -> None:
    """Events lost, or yet to be, with the name of their input: what is stored adds up over all inputs."""
    tally = counters(a=5, b=5)
    tally.judged.update(a=3, b=4)
    assert tally.identity({"a": 1, UNKNOWN: 2}) == []
    tally.lost[UNKNOWN, Lost.DAMAGED] = 2
    assert tally.identity({"a": 1}) == []
    assert tally.identity({}) == ["all inputs: stored 10 != judged 7 + backlog 0 + lost 2"]
    tally.received["b"] += 1
    assert tally.identity({"a": 1}) == ["b: received 6 != stored 5 + dropped 0 + held 0"]
    assert tally.identity({"a": 1}, {"b": 1}) == []


def test_settle_after_a_kill() -> None:
    """What was stored and received since the last commit follows from the log, and from what was dropped; what is known
    to have been stored and is not in the log is lost, what was received and never stored is dropped."""
    tally = counters(a=5, b=9)
    tally.judged.update(a=3, b=4)
    tally.bytes_in.update(a=50, b=90)
    tally.drop("a", Dropped.KERNEL, 2)
    tally.received["b"] += 3  # held in memory for a full disk
    behind = [("a", 2, 20, 1), ("a", 2, 20, 1), ("c", 1, 7, 1)]  # the host's crash took 5 of b that were not on disk
    for _ in range(2):  # as often as the agent is killed
        tally.settle(behind)
        assert (tally.stored, tally.received) == ({"a": 7, "b": 9, "c": 1}, {"a": 9, "b": 12, "c": 1})
        assert tally.lost == {("b", "missing"): 5}
        assert tally.dropped == {("a", "kernel"): 2, ("b", "unwritten"): 3}
        assert tally.identity({"a": 4, "c": 1}) == []
    assert (tally.bytes_in, tally.cut) == ({"a": 70, "b": 90, "c": 7}, {"a": 1, "b": 0, "c": 1})


def test_settle_what_is_read_again() -> None:
    """Of an input that reads it again, nothing counts as lost that the log does not hold: it counts when it comes."""
    tally = counters(a=9, b=9)
    tally.judged.update(a=3, b=3)
    tally.drop("a", Dropped.VACUUMED, 2)
    tally.received["a"] += 3  # held in memory for a full disk
    behind = [("a", 2, 20, 0), ("b", 2, 20, 0)]
    for _ in range(2):  # as often as the agent is killed
        tally.settle(behind, again={"a"})
        assert (tally.stored, tally.received) == ({"a": 5, "b": 9}, {"a": 7, "b": 9})
        assert (tally.lost, tally.dropped) == ({("b", "missing"): 4}, {("a", "vacuumed"): 2})
        assert tally.identity({"a": 2, "b": 2}) == []


def test_settle_where_retention_was() -> None:
    """What is known to have been stored before the oldest frame is lost, under its input where that is known."""
    tally = counters(a=9)
    for _ in range(2):  # as often as the agent is killed
        tally.settle([("a", 4, 40, 0)], stored=12)
        assert tally.stored == tally.received == {"a": 9, UNKNOWN: 3}
        assert tally.lost == {("a", "missing"): 5, (UNKNOWN, "missing"): 3}
        assert tally.identity({"a": 4}) == []


def test_what_was_shown_does_not_go_back() -> None:
    """Restored counters are raised to what was shown after them, but for what evaluating again counts again."""
    tally, later = counters(a=5), counters(a=7, b=1)
    tally.judged["a"] = later.judged["a"] = 5
    later.drop("a", Dropped.DISK_FULL, 4)
    later.bytes_in["a"] = 70
    later.totals.update(connections_refused=3, matches=9)
    tally.raise_to(later.snapshot())
    assert (tally.stored, tally.received, tally.bytes_in["a"]) == ({"a": 7, "b": 1}, {"a": 11, "b": 1}, 70)
    assert tally.dropped == {("a", "disk_full"): 4}
    assert tally.totals == {"connections_refused": 3}
    tally.raise_to(counters(a=1).snapshot())
    assert tally.stored["a"] == 7


def test_what_is_not_committed_is_shown_as_backlog() -> None:
    """As it would be after a kill; the account shown adds up, and nothing in it can go back."""
    tally = counters(a=10)
    tally.judged["a"] = 4
    tally.totals.update(matches=2, commits=1)
    committed = tally.snapshot()
    tally.judged["a"], tally.lost["a", Lost.DAMAGED] = 7, 1
    tally.totals.update(matches=5, commits=2)
    shown = visible(tally, committed, {"a": 2})
    counts = shown["inputs"]["a"]
    assert (counts["stored"], counts["judged"], counts["lost"], shown["backlog"]) == (10, 4, {}, {"a": 6})
    assert shown["totals"] == {"matches": 2, "commits": 2}


def test_settle_keeps_what_unknown_inputs_had_stored() -> None:
    """Events whose input damage took stay with the inputs that are known to have stored them; the rest is unknown's."""
    tally = counters(a=5, b=5)
    tally.judged.update(a=4, b=4)
    tally.lost[UNKNOWN, Lost.DAMAGED] = 1
    for _ in range(2):  # as often as the agent is killed
        tally.settle([(UNKNOWN, 2, 20, 0)])
        assert tally.stored == tally.received == {"a": 5, "b": 5, UNKNOWN: 1}
        assert tally.identity({UNKNOWN: 2}) == []


@given(st.data())
def test_settle_adds_up(data: st.DataObject) -> None:
    """Whatever was saved and whatever the log holds: the identity holds, and no input's judged or lost is touched."""
    some = st.dictionaries(st.sampled_from("ab?"), st.integers(0, 5))
    tally = Counters()
    for counts in (tally.stored, tally.judged):
        counts.update(data.draw(some))
    tally.judged[UNKNOWN] = 0
    tally.lost.update({(name, "damaged"): n for name, n in data.draw(some).items()})
    tally.dropped.update({(name, "kernel"): n for name, n in data.draw(some).items()})
    behind = data.draw(st.lists(st.tuples(st.sampled_from("ab?"), st.integers(1, 5), st.just(1), st.just(0))))
    backlog: Counter[str] = Counter()
    for name, events, *_ in behind:
        backlog[name] += events
    tally.settle(behind)
    assert tally.identity(backlog) == []


def test_what_was_broken_before_a_restart_is_not_repaired_unsaid() -> None:
    """Restored totals that did not add up when they were saved are named before ``settle`` makes them fit the log."""
    tally = counters(a=5, b=5, c=5)
    tally.received["a"] += 1
    tally.judged.update(a=5, b=6, c=2)
    again = Counters()
    again.restore(tally.snapshot())
    assert again.inherited(tally.snapshot()) == [
        "a: received 6 != stored 5 + dropped 0 at the end",
        "b: stored 5 < judged and lost 6 at the end",
    ]
    again.settle([])
    assert again.inherited(again.snapshot()) == []


def test_what_is_held_is_no_broken_account() -> None:
    """Events that waited in memory for a full disk were received and not stored: saved with the rest, they add up."""
    tally = counters(a=5)
    tally.received["a"] = 8
    assert tally.inherited(tally.snapshot({"a": 3})) == []
    assert tally.inherited(tally.snapshot({"a": 2})) == ["a: received 8 != stored 5 + dropped 2 at the end"]
