"""What judging remembers, as a whole: bounds, deltas and their merging, another plan."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.state.drawn import row_of
from vedette.decode.decoder import from_mapping
from vedette.plan.plan import Plan
from vedette.rules.build import from_text
from vedette.state import state as module
from vedette.state.state import State
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
OTHER = plan(RULES.rpartition("---")[0] + NUMBERS.partition("---")[1] + NUMBERS.partition("---")[2])
"""Without the last of PLAN's correlations, and with one more."""
RULE = PLAN.rules[0].id


def put(state: State, second: float, group: str, offset: int, **more: Any) -> list[tuple[str, int]]:
    """One match; what fires, as (title, offset)."""
    time = int(second * SECOND)
    fired = state.advance(time)
    source, _ = state.observe("in", "h", time)
    fired += state.match([RULE], from_mapping({"f": "aaaa", "g": group, **more}), source, time, offset, 10)
    return [(one.correlation.title, one.event.offset) for one in fired]


SQL = """
title: B
name: b
logsource: {product: x}
detection: {selection: {f: bbbb}, condition: selection}
---
title: above
id: 0a0a0a0a-0000-4000-8000-000000000004
correlation:
  type: temporal
  rules: [0a0a0a0a-0000-4000-8000-000000000001, b]
  timespan: 20s
"""


def test_who_is_at_work() -> None:
    """A caller is given the id of each correlation before it runs, of those above others too, and an empty one as soon
    as nothing runs."""
    seen = list[str]()
    state = State(plan(RULES + "---" + SQL), lateness=0, at_work=seen.append)
    for offset in range(3):
        put(state, offset, "g", offset)
        assert seen[-1] == ""
    many, few, above = (f"0a0a0a0a-0000-4000-8000-00000000000{number}" for number in (1, 2, 4))
    assert {many, few, above} <= {*seen}
    assert seen.index(many) < seen.index(above)
    seen.clear()
    state.advance(60 * SECOND)
    assert seen[0] == few  # it waits for the end of its window
    assert seen[-1] == ""


def test_bytes_are_bounded() -> None:
    """However many groups come, state stays within the bound; the least recently touched go and are counted."""
    state = State(PLAN, lateness=0, max_bytes=20_000)
    for i in range(500):
        put(state, i / 100, f"group-{i}", i)
        put(state, i / 100, "kept", i)
        assert state.correlator.groups.bytes <= 20_000
    groups = state.correlator.groups
    assert state.correlator.groups.bytes == sum(window.size for window in groups.values())
    assert state.status()["evicted"] + len(groups) == 2 * 501
    assert any(b"kept" in key for key in groups)
    assert any(b"group-499" in key for key in groups)
    assert not any(key[-7:] == b"group-1" for key in groups)


def test_what_lacks_matches_says_so() -> None:
    """Once groups have given way, a correlation's firings are incomplete as far back as their windows reach, also after
    a restart and under another plan, and so are those of the correlations above; others are not."""
    above = RULES + "---" + SQL
    state = State(plan(above), log_id="l", lateness=0, max_bytes=20_000)

    def fire(state: State, second: float, offset: int) -> dict[str, bool]:
        found, group = {}, f"own-{offset}"
        for at in range(3):
            time = int((second + at / 10) * SECOND)
            fired = state.advance(time)
            source, _ = state.observe("in", "h", time)
            fired += state.match([RULE], from_mapping({"f": "aaaa", "g": group}), source, time, offset + at, 10)
            found |= {one.correlation.title: one.incomplete for one in fired if one.values == (group,)}
        return found

    assert fire(state, 0, 0)["many"] is False
    for i in range(500):
        put(state, 1, f"group-{i}", 10 + i)
    assert state.status()["evicted"] > 100
    assert fire(state, 2, 1000)["many"] is True
    again = State(plan(above), log_id="l", lateness=0, max_bytes=20_000)
    again.restore([state.delta()])
    assert fire(again, 3, 1010)["many"] is True
    again.switch(plan(above + "---" + NUMBERS.partition("---")[2]))
    assert fire(again, 4, 1020)["many"] is True
    assert fire(again, 30, 1030)["many"] is False


def test_expired_groups_go() -> None:
    """A group whose windows can hold nothing any more is forgotten, without eviction."""
    state = State(PLAN, lateness=0)
    for i in range(50):
        put(state, i / 10, f"group-{i}", i)
    for second in range(6, 120):
        state.advance(second * SECOND)
    assert state.status()["groups"] == 0
    assert state.status()["evicted"] == 0
    assert state.correlator.groups.bytes == 0


class Parts:
    """The deltas that a store keeps; like ``checkpointer.py``, with a rewriting when they are more than ``above``."""

    def __init__(self, state: State, above: int = 1 << 60) -> None:
        self.state, self.above = state, above
        self.deltas: list[bytes] = []
        self.old = self.rewritten = 0

    def commit(self) -> None:
        if not self.state.rewriting and len(self.deltas) > self.above:
            self.state.rewrite()
            self.old = len(self.deltas)
        self.deltas += [delta] if (delta := self.state.delta()) else []
        if self.state.rewritten:
            self.deltas, self.rewritten = self.deltas[self.old :], self.rewritten + 1


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("xyz")), max_size=30), st.sets(st.integers(0, 30)),
    st.sampled_from([0, 1, 3, 1 << 60]), st.sampled_from([1, 200, 1 << 20]), st.booleans(),
)  # fmt: skip
@settings(max_examples=300)
def test_deltas(
    events: list[tuple[int, str]], commits: set[int], above: int, slices: int, restart: bool
) -> None:  # fmt: skip
    """Restored from the deltas of its commits, of which old ones go as all is written again, it goes on as if it had
    not stopped: at every commit, or only at the last."""
    newest = 0
    for i, (second, group) in enumerate(events):  # no event further behind than the lateness
        newest = max(newest, second)
        events[i] = (max(second, newest - 5), group)
    whole = State(PLAN, log_id="l", lateness=5 * SECOND)
    expected = [fired for i, (second, group) in enumerate(events) for fired in put(whole, second, group, i)]
    found: list[tuple[str, int]] = []
    parts = Parts(State(PLAN, log_id="l", lateness=5 * SECOND), above)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE_BYTES", slices)
        for i, (second, group) in enumerate(events):
            found += put(parts.state, second, group, i)
            if i in commits:
                parts.commit()
                if restart or i == max(commits):
                    parts.state = State(PLAN, log_id="l", lateness=5 * SECOND)
                    parts.state.restore(parts.deltas)
    assert found == expected
    ends = [one.finish() for one in (whole.correlator, parts.state.correlator)]
    assert [one.event for one in ends[0]] == [one.event for one in ends[1]]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it goes on, the deltas kept are a few times what they tell, and restore to it at every moment."""
    monkeypatch.setattr(module, "SLICE_BYTES", 2000)
    parts = Parts(state := State(PLAN, log_id="l", lateness=0), above=200)
    most, checked = 0, 0
    for i in range(4000):
        put(state, 1 + i / 1e6, f"group-{i % 300}", i)
        parts.commit()
        most = max(most, sum(map(len, parts.deltas)))
        if i % 97 == 0:
            copy, checked = State(PLAN, log_id="l", lateness=0), checked + 1
            copy.restore(parts.deltas)
            assert list(copy.correlator.groups) == list(state.correlator.groups)
            assert copy.status() == state.status()
    assert parts.rewritten > 8
    assert most < 6 * state.correlator.groups.bytes
    assert checked == 42


def test_a_switch_at_every_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the plan is switched, the rewriting ends, and what is kept stays bounded."""
    monkeypatch.setattr(module, "SLICE_BYTES", 1)
    parts = Parts(state := State(PLAN, log_id="l", lateness=0), above=3)
    plans = [OTHER, PLAN]
    for i in range(60):
        put(state, 1, f"group-{i % 8}", i)
        parts.commit()
        state.switch(plans[i % 2])
    assert parts.rewritten > 2
    assert len(parts.deltas) < 40
    copy = State(PLAN, log_id="l", lateness=0)
    copy.restore(parts.deltas)
    assert list(copy.correlator.groups) == list(state.correlator.groups)
    assert copy.status() == state.status()


def test_nothing_new_is_nothing_to_write() -> None:
    """A delta after which nothing came is empty."""
    state = State(PLAN)
    assert state.delta() == b""
    put(state, 1, "a", 1)
    assert state.delta()
    state.advance(2 * SECOND)
    assert state.delta() == b""


def test_another_log() -> None:
    """What was remembered of another raw log is dropped: its offsets mean nothing here."""
    state = State(PLAN, log_id="l")
    put(state, 1, "a", 1)
    other = State(PLAN, log_id="m")
    other.restore([state.delta()])
    assert other.status()["groups"] == 0


def test_another_version() -> None:
    """What another version has written is refused by name, not passed over; what this one writes after it is read."""
    state = State(PLAN, log_id="a", lateness=0)
    put(state, 1, "x", 1)
    ours = state.delta()
    form, *rest = msgpack.unpackb(ours)
    theirs = msgpack.packb([form - 1, *rest])
    with pytest.raises(ValueError, match=f"is of format {form - 1}; this version reads format {form} only"):
        State(PLAN, log_id="a", lateness=0).restore([theirs])
    again = State(PLAN, log_id="a", lateness=0)
    again.restore([theirs, ours])
    assert len(again.correlator.groups) == 2


def test_a_large_window_over_many_commits() -> None:
    """A group of thousands, of which each commit writes what is new: restored from that, or from the deltas since all
    was written again, it is what it was; and that is no more work than there is written."""
    state, parts = State(plan(NUMBERS), log_id="a", lateness=30 * SECOND), []
    for i in range(3000):
        put(state, 100 + i / 100 - (20 if i % 50 == 7 else 0), "x", i, n=i % 11)
        if i == 2000:
            state.rewrite()
        parts.append(state.delta())
    assert state.rewritten
    applied = 0
    with pytest.MonkeyPatch.context() as patch:
        apply = Window.apply

        def counting(self: Window, row: list[Any]) -> None:
            nonlocal applied
            applied += len(row[2]) // 24
            apply(self, row)

        patch.setattr(Window, "apply", counting)
        for saved in (parts, parts[2000:]):
            again = State(plan(NUMBERS), log_id="a", lateness=30 * SECOND)
            again.restore(saved)
            assert again.correlator.groups.bytes == state.correlator.groups.bytes
            assert [row_of(w)[2:] for w in again.correlator.groups.values()] == [
                row_of(w)[2:] for w in state.correlator.groups.values()
            ]
    assert sum(map(len, parts)) < 3000 * 1500
    assert applied < 2 * 3000 * 30


def test_another_plan() -> None:
    """An unchanged correlation keeps its windows, a changed one starts empty and is named."""
    state = State(PLAN, lateness=0)
    put(state, 1, "a", 1)
    put(state, 2, "a", 2)
    state.switch(plan(RULES.replace("{eq: 2}", "{eq: 1}").replace("title: many", "title: MANY")))
    assert state.started_empty == ["0a0a0a0a-0000-4000-8000-000000000002"]
    assert put(state, 3, "a", 3) == [("MANY", 3)]
    parts = [state.delta()]
    later = State(plan(RULES.replace("{gte: 3}", "{gte: 4}").replace("{eq: 2}", "{eq: 1}")), lateness=0)
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
    state = State(plan(text + CHAIN % "host"), lateness=0)

    def more(second: int) -> list[tuple[str, tuple[str, ...]]]:
        source, _ = state.observe("in", "h", second * SECOND)
        event = from_mapping({"f": "aaaa", "g": "x", "host": f"h{second}", "dst": f"d{second}"})
        fired = state.match([RULE], event, source, second * SECOND, second, 9)
        return [(one.correlation.title, one.values) for one in fired if one.correlation.title != "few"]

    assert [more(1), more(2)] == [[], []]
    wider = plan(text + CHAIN % "dst, host")
    if again:
        parts = [state.delta()]
        state = State(wider, lateness=0)
        state.restore(parts)
    else:
        parts = []
        state.switch(wider)
    for _ in range(2):
        copy = State(wider, lateness=0)
        copy.restore(parts := [*parts, state.delta()])
        known, expected = ([w.carried for w in one.correlator.groups.values()] for one in (copy, state))
        assert sorted(known, key=repr) == sorted(expected, key=repr)
        state.observe("in", "other", SECOND)
    assert more(3) == [("many", ("x",)), ("above", ("d3", "h3"))]
    state.switch(plan(text))
    assert all(window.carried is None for window in state.correlator.groups.values())
    groups = state.correlator.groups
    assert groups.bytes == sum(window.size for window in groups.values())


@pytest.mark.parametrize("jump", [1, 4_000_000_000])
def test_the_agents_clock_jumps(jump: int) -> None:
    """To 1970 or 2099 and back: nothing fires by it, no window is lost, no later event is late."""
    state, now = State(PLAN, lateness=30 * SECOND), 1_790_000_000
    assert put(state, now, "a", 1) + put(state, now + 1, "a", 2) == []
    for _ in range(3):
        assert state.advance(jump * SECOND) == []
        assert state.advance((now + 1) * SECOND) == []
    assert put(state, now + 2, "a", 3) == [("many", 3)]
    put(state, now + 2, "c", 90)
    put(state, now + 2, "c", 91)
    copy = State(PLAN, lateness=30 * SECOND)
    copy.restore([state.delta()])
    silent = [one.event.offset for second in range(3, 40) for one in copy.advance((now + second) * SECOND)]
    assert silent == [2, 91]
    found = [fired for second in range(3, 40) for fired in put(state, now + second, "b", second + 1)]
    assert found == [("many", 6), ("few", 2), ("few", 91), ("few", 5)]
    assert state.clock.jumps == 0
