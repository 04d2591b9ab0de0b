"""What judging remembers, as a whole: bounds, deltas and their merging, another plan."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.decode.decoder import from_mapping
from vedette.plan.plan import Plan
from vedette.rules.build import from_text
from vedette.state import memory as module
from vedette.state.memory import Memory
from vedette.state.windows import Window

SECOND = 1_000_000
RULES = """
title: A
name: a
logsource: {product: x}
detection: {selection: {f: aaaa}, condition: selection}
---
title: many
id: 0a0a0a0a-0000-4000-8000-000000000001
correlation: {type: event_count, rules: [a], group-by: [g], timespan: 10s, condition: {gte: 3}}
---
title: few
id: 0a0a0a0a-0000-4000-8000-000000000002
correlation: {type: event_count, rules: [a], group-by: [g], timespan: 10s, condition: {eq: 2}}
"""


def plan(text: str = RULES) -> Plan:
    made = from_text(text)
    assert not made.refused
    return made


NUMBERS = (
    RULES.partition("---")[0]
    + """---
title: mean
id: 0a0a0a0a-0000-4000-8000-000000000003
correlation: {type: value_avg, rules: [a], group-by: [g], timespan: 10s, condition: {field: n, gt: 9}}
"""
)
PLAN = plan()
RULE = PLAN.rules[0].id


def put(memory: Memory, second: float, group: str, offset: int, **more: Any) -> list[tuple[str, int]]:
    """One match; what fires, as (title, offset)."""
    time = int(second * SECOND)
    fired = memory.advance(time)
    source, _ = memory.observe("in", "h", time)
    fired += memory.match([RULE], from_mapping({"f": "aaaa", "g": group, **more}), source, time, offset, 10)
    return [(one.correlation.title, one.event.offset) for one in fired]


def test_bytes_are_bounded() -> None:
    """However many groups come, memory stays within the bound; the least recently touched go and are counted."""
    memory = Memory(PLAN, lateness=0, max_bytes=20_000)
    for i in range(500):
        put(memory, i / 100, f"group-{i}", i)
        put(memory, i / 100, "kept", i)
        assert memory.correlator.groups.bytes <= 20_000
    groups = memory.correlator.groups
    assert memory.correlator.groups.bytes == sum(window.size for window in groups.values())
    assert memory.status()["evicted"] + len(groups) == 2 * 501
    assert any(b"kept" in key for key in groups)
    assert any(b"group-499" in key for key in groups)
    assert not any(key[-7:] == b"group-1" for key in groups)


def test_expired_groups_go() -> None:
    """A group whose windows can hold nothing any more is forgotten, without eviction."""
    memory = Memory(PLAN, lateness=0)
    for i in range(50):
        put(memory, i / 10, f"group-{i}", i)
    for second in range(6, 120):
        memory.advance(second * SECOND)
    assert memory.status()["groups"] == 0
    assert memory.status()["evicted"] == 0
    assert memory.correlator.groups.bytes == 0


class Parts:
    """The deltas that a store keeps; like ``committing.py``, with a rewriting when they are more than ``above``."""

    def __init__(self, memory: Memory, above: int = 1 << 60) -> None:
        self.memory, self.above = memory, above
        self.kept: list[bytes] = []
        self.old = self.rewritten = 0

    def commit(self) -> None:
        if not self.memory.rewriting and len(self.kept) > self.above:
            self.memory.rewrite()
            self.old = len(self.kept)
        self.kept += [delta] if (delta := self.memory.delta()) else []
        if self.memory.rewritten:
            self.kept, self.rewritten = self.kept[self.old :], self.rewritten + 1


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("xyz")), max_size=30), st.sets(st.integers(0, 30)),
    st.sampled_from([0, 1, 3, 1 << 60]), st.sampled_from([1, 200, 1 << 20]), st.booleans(),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_deltas(
    events: list[tuple[int, str]], commits: set[int], above: int, slices: int, restart: bool
) -> None:  # fmt: skip
    """Restored from the deltas of its commits, of which old ones go as all is written again, it goes on as if it had
    not stopped: at every commit, or only at the last."""
    newest = 0
    for i, (second, group) in enumerate(events):  # no event further behind than the lateness
        newest = max(newest, second)
        events[i] = (max(second, newest - 5), group)
    whole = Memory(PLAN, log_id="l", lateness=5 * SECOND)
    expected = [fired for i, (second, group) in enumerate(events) for fired in put(whole, second, group, i)]
    found: list[tuple[str, int]] = []
    parts = Parts(Memory(PLAN, log_id="l", lateness=5 * SECOND), above)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE_BYTES", slices)
        for i, (second, group) in enumerate(events):
            found += put(parts.memory, second, group, i)
            if i in commits:
                parts.commit()
                if restart or i == max(commits):
                    parts.memory = Memory(PLAN, log_id="l", lateness=5 * SECOND)
                    parts.memory.restore(parts.kept)
    assert found == expected
    ends = [one.finish() for one in (whole.correlator, parts.memory.correlator)]
    assert [one.event for one in ends[0]] == [one.event for one in ends[1]]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it goes on, the deltas kept are a few times what they tell, and restore to it at every moment."""
    monkeypatch.setattr(module, "SLICE_BYTES", 2000)
    parts = Parts(memory := Memory(PLAN, log_id="l", lateness=0), above=200)
    most, checked = 0, 0
    for i in range(4000):
        put(memory, 1 + i / 1e6, f"group-{i % 300}", i)
        parts.commit()
        most = max(most, sum(map(len, parts.kept)))
        if i % 97 == 0:
            copy, checked = Memory(PLAN, log_id="l", lateness=0), checked + 1
            copy.restore(parts.kept)
            assert list(copy.correlator.groups) == list(memory.correlator.groups)
            assert copy.status() == memory.status()
    assert parts.rewritten > 8
    assert most < 6 * memory.correlator.groups.bytes
    assert checked == 42


def test_another_plan_while_rewriting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch of plans in the middle leaves what was written before; the rewriting begins anew."""
    monkeypatch.setattr(module, "SLICE_BYTES", 1)
    parts = Parts(memory := Memory(PLAN, log_id="l", lateness=0), above=3)
    for i in range(8):
        put(memory, 1, f"group-{i}", i)
        parts.commit()
    assert memory.rewriting
    memory.switch(PLAN)
    assert not memory.rewriting
    assert len(parts.kept) == 8
    for i in range(8, 60):
        put(memory, 1, f"group-{i % 8}", i)
        parts.commit()
    assert parts.rewritten
    copy = Memory(PLAN, log_id="l", lateness=0)
    copy.restore(parts.kept)
    assert list(copy.correlator.groups) == list(memory.correlator.groups)
    assert copy.status() == memory.status()


def test_nothing_new_is_nothing_to_write() -> None:
    """A delta after which nothing came is empty."""
    memory = Memory(PLAN)
    assert memory.delta() == b""
    put(memory, 1, "a", 1)
    assert memory.delta()
    memory.advance(2 * SECOND)
    assert memory.delta() == b""


def test_another_log() -> None:
    """What was remembered of another raw log is dropped: its offsets mean nothing here."""
    memory = Memory(PLAN, log_id="l")
    put(memory, 1, "a", 1)
    other = Memory(PLAN, log_id="m")
    other.restore([memory.delta()])
    assert other.status()["groups"] == 0


def test_another_version() -> None:
    """What another version has written is refused by name, not passed over; what this one writes after it is read."""
    memory = Memory(PLAN, log_id="a", lateness=0)
    put(memory, 1, "x", 1)
    ours = memory.delta()
    form, *rest = msgpack.unpackb(ours)
    theirs = msgpack.packb([form - 1, *rest])
    with pytest.raises(ValueError, match=f"is of format {form - 1}; this version reads format {form} only"):
        Memory(PLAN, log_id="a", lateness=0).restore([theirs])
    again = Memory(PLAN, log_id="a", lateness=0)
    again.restore([theirs, ours])
    assert len(again.correlator.groups) == 2


def test_a_large_window_over_many_commits() -> None:
    """A group of thousands, of which each commit writes what is new: restored from that, or from the deltas since all
    was written again, it is what it was; and that is no more work than there is written."""
    memory, parts = Memory(plan(NUMBERS), log_id="a", lateness=30 * SECOND), []
    for i in range(3000):
        put(memory, 100 + i / 100 - (20 if i % 50 == 7 else 0), "x", i, n=i % 11)
        if i == 2000:
            memory.rewrite()
        parts.append(memory.delta())
    assert memory.rewritten
    applied = 0
    with pytest.MonkeyPatch.context() as patch:
        apply = Window.apply

        def counting(self: Window, row: list[Any]) -> None:
            nonlocal applied
            applied += len(row[2]) // 24
            apply(self, row)

        patch.setattr(Window, "apply", counting)
        for saved in (parts, parts[2000:]):
            again = Memory(plan(NUMBERS), log_id="a", lateness=30 * SECOND)
            again.restore(saved)
            assert again.correlator.groups.bytes == memory.correlator.groups.bytes
            assert [w.pack()[2:] for w in again.correlator.groups.values()] == [
                w.pack()[2:] for w in memory.correlator.groups.values()
            ]
    assert sum(map(len, parts)) < 3000 * 1500
    assert applied < 2 * 3000 * 30


def test_another_plan() -> None:
    """An unchanged correlation keeps its windows, a changed one starts empty and is named."""
    memory = Memory(PLAN, lateness=0)
    put(memory, 1, "a", 1)
    put(memory, 2, "a", 2)
    memory.switch(plan(RULES.replace("{eq: 2}", "{eq: 1}").replace("title: many", "title: MANY")))
    assert memory.started_empty == ["0a0a0a0a-0000-4000-8000-000000000002"]
    assert put(memory, 3, "a", 3) == [("MANY", 3)]
    parts = [memory.delta()]
    later = Memory(plan(RULES.replace("{gte: 3}", "{gte: 4}").replace("{eq: 2}", "{eq: 1}")), lateness=0)
    later.restore(parts)
    assert later.started_empty == ["0a0a0a0a-0000-4000-8000-000000000001"]
    assert later.status()["groups"] == 1


CHAIN = """
---
title: above
id: 0a0a0a0a-0000-4000-8000-000000000003
correlation: {type: event_count, rules: [many], group-by: [%s], timespan: 10s, condition: {gte: 1}}
"""


@pytest.mark.parametrize("again", [False, True])
def test_another_plan_wants_to_know_more(again: bool) -> None:
    """A correlation above comes in, or groups by another field: what was kept for it of earlier events is read by its
    name, and what was not kept belongs to no group; over a restart, too."""
    text = RULES.replace("title: many\n", "title: many\nname: many\n")
    memory = Memory(plan(text + CHAIN % "host"), lateness=0)

    def more(second: int) -> list[tuple[str, tuple[str, ...]]]:
        source, _ = memory.observe("in", "h", second * SECOND)
        event = from_mapping({"f": "aaaa", "g": "x", "host": f"h{second}", "dst": f"d{second}"})
        fired = memory.match([RULE], event, source, second * SECOND, second, 9)
        return [(one.correlation.title, one.values) for one in fired if one.correlation.title != "few"]

    assert [more(1), more(2)] == [[], []]
    wider = plan(text + CHAIN % "dst, host")
    if again:
        parts = [memory.delta()]
        memory = Memory(wider, lateness=0)
        memory.restore(parts)
    else:
        parts = []
        memory.switch(wider)
    for _ in range(2):
        copy = Memory(wider, lateness=0)
        copy.restore(parts := [*parts, memory.delta()])
        known, expected = ([w.carried for w in one.correlator.groups.values()] for one in (copy, memory))
        assert sorted(known, key=repr) == sorted(expected, key=repr)
        memory.observe("in", "other", SECOND)
    assert more(3) == [("many", ("x",)), ("above", ("d3", "h3"))]
    memory.switch(plan(text))
    assert all(window.carried is None for window in memory.correlator.groups.values())
    groups = memory.correlator.groups
    assert groups.bytes == sum(window.size for window in groups.values())


@pytest.mark.parametrize("jump", [1, 4_000_000_000])
def test_the_agents_clock_jumps(jump: int) -> None:
    """To 1970 or 2099 and back: nothing fires by it, no window is lost, no later event is late."""
    memory, now = Memory(PLAN, lateness=30 * SECOND), 1_790_000_000
    assert put(memory, now, "a", 1) + put(memory, now + 1, "a", 2) == []
    for _ in range(3):
        assert memory.advance(jump * SECOND) == []
        assert memory.advance((now + 1) * SECOND) == []
    assert put(memory, now + 2, "a", 3) == [("many", 3)]
    put(memory, now + 2, "c", 90)
    put(memory, now + 2, "c", 91)
    copy = Memory(PLAN, lateness=30 * SECOND)
    copy.restore([memory.delta()])
    silent = [one.event.offset for second in range(3, 40) for one in copy.advance((now + second) * SECOND)]
    assert silent == [2, 91]
    found = [fired for second in range(3, 40) for fired in put(memory, now + second, "b", second + 1)]
    assert found == [("many", 6), ("few", 2), ("few", 91), ("few", 5)]
    assert memory.clock.jumps == 0
