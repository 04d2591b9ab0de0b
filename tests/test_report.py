"""The account: every event of every input is somewhere, also when damage has taken the name of its input."""

from __future__ import annotations

from vedette.report import UNKNOWN, Counters, Dropped, Lost


def counters(**stored: int) -> Counters:
    """Counters of inputs whose events are all received and stored."""
    made = Counters()
    for name, events in stored.items():
        made.received[name] = made.stored[name] = events
    return made


def test_a_snapshot_tells_of_every_input_counted() -> None:
    """An input that only one counter knows is in the snapshot, and comes back with it."""
    made = Counters()
    made.lost[UNKNOWN, Lost.DAMAGED] = 3
    made.bytes_in["a"] = 7
    made.cut["b"] = 1
    made.drop("c", Dropped.KERNEL, 2)
    snapshot = made.snapshot()
    assert list(snapshot["inputs"]) == ["?", "a", "b", "c"]
    assert snapshot["inputs"]["?"]["lost"] == {"damaged": 3}
    again = Counters()
    again.restore(snapshot)
    assert again.snapshot() == snapshot


def test_identity_of_each_input() -> None:
    """While the input of all events is known, each has an account of its own: one's surplus does not hide a miss."""
    made = counters(a=5, b=5)
    made.judged.update(a=3, b=4)
    made.lost["b", Lost.DAMAGED] = 1
    assert made.identity({"a": 2}) == []
    assert made.identity({"a": 1, "b": 1}) == [
        "a: stored 5 != judged 3 + backlog 1 + lost 0",
        "b: stored 5 != judged 4 + backlog 1 + lost 1",
    ]


def test_identity_when_an_input_is_unknown() -> None:
    """Events lost, or yet to be, with the name of their input: what is stored adds up over all inputs."""
    made = counters(a=5, b=5)
    made.judged.update(a=3, b=4)
    assert made.identity({"a": 1, UNKNOWN: 2}) == []
    made.lost[UNKNOWN, Lost.DAMAGED] = 2
    assert made.identity({"a": 1}) == []
    assert made.identity({}) == ["all inputs: stored 10 != judged 7 + backlog 0 + lost 2"]
    made.received["b"] += 1
    assert made.identity({"a": 1}) == ["b: received 6 != stored 5 + dropped 0"]


def test_settle_after_a_kill() -> None:
    """What was stored and received since the last commit follows from the log's backlog, and from what was dropped."""
    made = counters(a=5, b=9)
    made.judged.update(a=3, b=4)
    made.drop("a", Dropped.KERNEL, 2)
    made.settle({"a": 4, "c": 1})  # of b the host's crash took 5 that were not yet on disk
    assert (made.stored, made.received) == ({"a": 7, "b": 4, "c": 1}, {"a": 9, "b": 4, "c": 1})
    assert made.identity({"a": 4, "c": 1}) == []


def test_settle_keeps_what_unknown_inputs_had_stored() -> None:
    """Events whose input damage took stay with the inputs that are known to have stored them; the rest is unknown's."""
    made = counters(a=5, b=5)
    made.judged.update(a=4, b=4)
    made.lost[UNKNOWN, Lost.DAMAGED] = 1
    made.settle({UNKNOWN: 2})
    assert made.stored == made.received == {"a": 5, "b": 5, UNKNOWN: 1}
    assert made.identity({UNKNOWN: 2}) == []
    made.settle({UNKNOWN: 2})
    assert made.stored == {"a": 5, "b": 5, UNKNOWN: 1}
