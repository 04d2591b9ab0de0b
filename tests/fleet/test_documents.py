"""The two documents: their bytes, what they want of an agent, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.kit import DONE, desired, group, rolled, target
from vedette.fleet import documents
from vedette.fleet.documents import Change, DocumentRefused, Progress, Ring, State, Window

OLD, NEW = target("bundles/linux-7", b"7", 7), target("bundles/linux-8", b"8", 8)
RINGS = (Ring("canary", 1800.0, agents=2), Ring("tenth", 1800.0, percent=10), Ring("all", 0.0, percent=100))
CHANGE = Change("c1", NEW, OLD)
WHOLE = desired(
    3,
    group("vienna", "site = vienna", bundles={"main": CHANGE}, config=Change("c2", NEW), windows=(
        Window("22:00", "04:00", ("sat", "sun")), Window("01:00", "02:00", ("wed",)))),
    group("rest", bundles={"main": CHANGE}, lookups={"staff": Change("c3", None, OLD)}, release=Change("c4", NEW),
          windows=(Window("01:00", "02:00", ("mon",), "Europe/Vienna", ("bundles", "config")),)),
    rings=RINGS,
)  # fmt: skip


def test_bytes_are_read_back() -> None:
    """A document that was written is read as what it was, and written again as the same bytes."""
    read = documents.read_desired(WHOLE.to_bytes(), "plants")
    assert read == WHOLE
    assert read.to_bytes() == WHOLE.to_bytes()
    done = rolled(4, c1=Progress(State.ROLLING, 1, ("web-1",)), c2=DONE)
    assert documents.read_rollout(done.to_bytes(), "plants") == done


def run(agent: str, *progress: Progress) -> object:
    """The bundle that ``agent`` runs."""
    found = documents.wanted(WHOLE, rolled(1, **dict.fromkeys(("c1",), *progress) if progress else {}), agent, {})
    assert found is not None
    return found.bundles["main"]


def test_rings() -> None:
    """An agent runs the new target once its ring is reached, or it is named, or all is done; else the old one."""
    agents = [f"web-{i}" for i in range(1000)]
    low = min(agents, key=lambda agent: documents.place("c1", agent))
    high = max(agents, key=lambda agent: documents.place("c1", agent))
    assert run(low) is run(high)
    assert run(low) == OLD
    for state in (State.ROLLING, State.PAUSED):
        assert run(low, Progress(state, 0)) == OLD
        assert run(high, Progress(state, 0, (high,))) == NEW
        assert run(low, Progress(state, 1)) == NEW
        assert run(high, Progress(state, 1)) == OLD
        assert run(high, Progress(state, 2)) == NEW
    assert run(low, Progress(State.ABORTED, 2, (low,))) == OLD
    assert run(high, DONE) == NEW
    tenth = sum(run(agent, Progress(State.ROLLING, 1)) == NEW for agent in agents)
    assert 70 <= tenth <= 130


@given(st.integers(0, 2), st.integers(0, 500))
def test_a_later_ring_holds_the_earlier_ones(ring: int, number: int) -> None:
    """Who has the change in one ring keeps it in the next."""
    agent = f"a-{number}"
    if run(agent, Progress(State.ROLLING, ring)) == NEW:
        assert run(agent, Progress(State.ROLLING, ring + 1)) == NEW


def test_without_rings_everything_is_done() -> None:
    """A fleet without rings needs no roll-out document, and can still stop a change by one."""
    plain = desired(1, group("all", bundles={"main": CHANGE}))
    first = documents.wanted(plain, None, "web-1", {})
    stopped = documents.wanted(plain, rolled(1, c1=Progress(State.ABORTED)), "web-1", {})
    assert first is not None
    assert stopped is not None
    assert (first.bundles["main"], stopped.bundles["main"]) == (NEW, OLD)


def test_the_first_group_that_matches() -> None:
    """Order decides; an agent in no group has nothing wanted of it."""
    found = documents.wanted(WHOLE, None, "web-1", {"site": "vienna"})
    assert found is not None
    assert found.group == "vienna"
    only = desired(1, group("vienna", "site = vienna"))
    assert documents.wanted(only, None, "web-1", {"site": "linz"}) is None


def test_windows_past_midnight() -> None:
    """A window belongs to the day on which it begins."""
    window = Window("22:00", "04:00", ("sat",))
    saturday = 1_795_824_000_000_000  # 2026-11-28T00:00:00Z
    hour = 3_600_000_000
    assert [window.holds(saturday + n * hour) for n in (3, 21, 22, 23, 24, 27, 28, 46)] == [
        False, False, True, True, True, True, False, False,
    ]  # fmt: skip


def test_windows_by_the_clock_on_the_wall() -> None:
    """In their own time zone: from 2 to 3 in the morning there is no window in the night in which clocks are put
    forward, and one of two hours in that in which they are put back."""
    window = Window("02:00", "03:00", timezone="Europe/Vienna")
    quarter = 900_000_000
    for night, quarters in ((1_774_656_000, 4), (1_774_742_400, 0), (1_792_886_400, 8)):
        start = night * 1_000_000 - 2 * 3_600_000_000  # from 22:00 UTC on
        assert sum(window.holds(start + n * quarter) for n in range(32)) == quarters


def test_what_windows_are_for() -> None:
    """Kinds that no window of the group names change at any time; the others in one that names them."""
    always = Window("00:00", "23:59")
    never = Window("00:00", "00:01", ("mon",), kinds=("release", "config"))
    saturday = 1_795_824_060_000_000
    assert [documents.may((never,), kind, saturday) for kind in documents.KINDS] == [True, True, False, False]
    assert [documents.may((never, always), kind, saturday) for kind in documents.KINDS] == [True, True, False, True]
    assert documents.may((), "release", saturday)


def test_the_way_back_is_urgent() -> None:
    """What an aborted change goes back to waits for no window; what a change in force goes to does."""
    for state, expected in ((State.ABORTED, {OLD}), (State.ROLLING, set()), (State.DONE, set())):
        found = documents.wanted(WHOLE, rolled(1, c1=Progress(state)), "web-1", {})
        assert found is not None
        assert found.urgent == expected


@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        ({"format": 2}, "format 2: this agent knows 1: upgrade the agent"),
        ({"fleet": "ships"}, "it is for fleet 'ships', this is fleet 'plants'"),
        ({"serial": 0}, "serial: expects a number above 0, not 0"),
        ({"serial": True}, "serial: expects a number above 0, not True"),
        ({"groups": {}}, "groups: expects a list of at most 1000, not an object"),
        ({"groups": [{"name": "a", "match": "x ="}]}, "groups[0].match: at character 4: expects a value, not the end"),
        ({"groups": [{"name": "a", "match": "all"}] * 2}, "groups[1]: the name 'a' is used twice"),
        ({"groups": [{"name": "a", "match": "all", "config": {"id": "x", "to": {"target": "../etc/passwd",
          "sha256": "0" * 64, "version": 1}}}]},
         "groups[0].config.to.target: expects a path without '..', not '../etc/passwd'"),
        ({"groups": [{"name": "a", "match": "all", "config": {"id": "x", "to": {"target": "a", "sha256": "0"}}}]},
         "groups[0].config.to.sha256: expects 64 lower-case hex digits, not '0'"),
        ({"rings": [{"name": "a"}]}, "rings[0]: expects either agents or percent"),
        ({"rings": [{"name": "a", "percent": 0}]}, "rings[0].percent: expects a number above 0, up to 100, not 0"),
        ({"gates": {"x": "y"}}, "gates.x: expects a number, true or false, not 'y'"),
    ],
)  # fmt: skip
def test_refused(bend: dict[str, Any], reason: str) -> None:
    """A document that cannot be followed is refused with its place and why."""
    document = {**json.loads(WHOLE.to_bytes()), **bend}
    with pytest.raises(DocumentRefused) as caught:
        documents.read_desired(json.dumps(document).encode(), "plants")
    assert str(caught.value) == reason


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"nul", b"[" * 100_000, b"x" * (documents.MAX_DOCUMENT + 1)])
def test_what_is_no_document(data: bytes) -> None:
    """Any bytes are refused, none ends the agent."""
    for read in (documents.read_desired, documents.read_rollout):
        with pytest.raises(DocumentRefused):
            read(data, "plants")
