"""A host's clock that is ahead, or put back: nothing that has expired comes alive again, nothing is taken twice."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.asking import AGENT, HOUR, NOW, asked, host, signed
from tests.fleet.kit import DAY, FLEET, Centre, overlay, rolled, target
from tests.fleet.test_trust import online, seal
from vedette.fleet.kinds import KINDS
from vedette.fleet.requests import MAX_LIFE, Refused, Request, admit, follow_up
from vedette.fleet.signedtime import SignedTime
from vedette.fleet.spool import Spool
from vedette.fleet.trust import Trust, TrustRefused
from vedette.model.times import micros
from vedette.system.wallclock import utc_now

ONE, TWO = b"# 1\n", b"# 2\n"


class Agent:
    """The part of an agent that takes requests, in lives; ``clock`` may be set at any time."""

    def __init__(self, folder: Path, clock: int = NOW) -> None:
        self.folder, self.clock = folder, clock
        self.start()

    def start(self) -> None:
        self.time = SignedTime(self.folder / "time", lambda: self.clock)
        self.spool = Spool(self.folder / "requests", self.time)

    def take(self, request: Request) -> str:
        """Which check refuses it; empty: it is worked on."""
        where = host(clock=self.time.now, trusted_until=NOW + 400 * DAY)
        try:
            admit(signed(request), where, KINDS, self.spool.seen, lambda id: "")
            if request.kind == "cancel":
                self.spool.note(request, request.body["request"])
            else:
                self.spool.take(request, signed(request))
        except Refused as error:
            return error.kind
        return ""


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_it_only_rises(tmp_path: Path) -> None:
    """Over restarts, as far as the clock bears it out; a damaged file counts as none."""
    clock = [NOW]
    time = SignedTime(tmp_path / "time", lambda: clock[0])
    assert (time.now(), time.sure()) == (NOW, 0)
    time.rise(NOW + 9 * DAY)  # of who signs what he likes
    assert (time.now(), time.sure()) == (NOW, NOW)
    time.rise(NOW - HOUR)
    clock[0] = NOW - DAY
    for one in (time, SignedTime(tmp_path / "time", lambda: clock[0])):
        assert (one.now(), one.sure()) == (NOW, NOW - DAY)
    for data in (b"", b"\xff", b"-5", b"1e9", b"9" * 5000):
        (tmp_path / "time").write_bytes(data)
        assert SignedTime(tmp_path / "time", lambda: clock[0]).now() >= NOW - DAY


@pytest.mark.parametrize("ahead", [2 * HOUR, 30 * DAY, 26_000 * DAY])
def test_a_start_with_a_clock_ahead_forgets_no_request(agent: Agent, ahead: int) -> None:
    """The host boots past a request's expiry; once its clock is right the same request is not taken again."""
    request = asked()
    assert agent.take(request) == ""
    agent.spool.drop(request.id)
    agent.clock = NOW + ahead
    agent.start()
    assert agent.take(request) in ("expired", "operator expired")
    agent.clock = NOW + HOUR // 2
    for _ in range(2):
        assert agent.take(request) == "replayed"
        agent.start()


def test_a_full_memory_with_a_clock_ahead(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no further nonce has room, none that may come back makes room."""
    monkeypatch.setattr("vedette.fleet.spool.MAX_NONCES", 2)
    requests = [asked(), asked()]
    assert [agent.take(one) for one in requests] == ["", ""]
    agent.clock += 3 * HOUR
    late = asked(created=agent.clock, expires=agent.clock + HOUR)
    assert agent.take(late) == "busy"
    agent.clock = NOW
    assert [agent.take(one) for one in requests] == ["replayed", "replayed"]


def test_what_expired_stays_so(agent: Agent) -> None:
    """A clock that is put back brings back no request that expired before the newest that was taken."""
    old, new = asked(), asked(created=NOW + 2 * HOUR, expires=NOW + 3 * HOUR)
    agent.clock = NOW + 2 * HOUR
    assert agent.take(new) == ""
    agent.clock = NOW
    for _ in range(2):
        assert agent.take(old) == "expired"
        agent.start()
    assert agent.spool.expired() == []
    agent.clock = NOW + 3 * HOUR + 1
    assert agent.spool.expired() == [new.id]


@pytest.mark.parametrize("wrong", [-30 * DAY, 30 * DAY])
def test_a_cancel_that_came_first_outlives_a_wrong_clock(agent: Agent, wrong: int) -> None:
    """The request that it is about is not taken, for as long as that may live, whatever the clock showed."""
    request = asked(expires=NOW + MAX_LIFE)
    assert agent.take(follow_up(request, "cancel", [AGENT], NOW)) == ""
    agent.clock = NOW + wrong
    agent.start()
    agent.clock = NOW + 6 * DAY
    where = Agent(agent.folder, agent.clock)
    assert where.spool.seen(request.id)
    with pytest.raises(Refused) as caught:
        where.spool.take(request, signed(request))
    assert caught.value.kind == "cancelled"


@given(st.lists(st.tuples(st.integers(-40 * 24, 40 * 24), st.booleans(), st.integers(0, 3)), max_size=12), st.data())
def test_whatever_the_clock_does_none_is_taken_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool, int]], data: Any
) -> None:
    """Clocks and restarts at random, new requests by each clock's time: each is taken once at most."""
    agent, known, taken = Agent(tmp_path_factory.mktemp("agent")), [asked()], list[str]()
    for hours, restart, which in steps:
        agent.clock = NOW + hours * HOUR
        if restart:
            agent.start()
        known.append(asked(created=agent.clock, expires=agent.clock + (1 + which) * 24 * HOUR, operator="vera"))
        one = data.draw(st.sampled_from(known))
        if agent.take(one) == "":
            taken.append(one.id)
            agent.spool.drop(one.id)
    assert len(taken) == len({*taken})


# --- metadata


class Watched:
    """An agent's trust whose clock may be set, and a centre's that is right."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, utc_now()
        self.centre = Centre(folder / "centre", now=self.clock)
        self.start()

    def start(self) -> None:
        time = SignedTime(self.folder / "time", lambda: self.clock)
        self.trust = Trust(self.folder / "agent", FLEET, self.centre.root, time)


def test_a_timestamp_raises_the_time(tmp_path: Path) -> None:
    """Verified metadata say when they were signed, so that what expired before is over though the clock is put back,
    and over a restart; a copy of the metadata that is taken by another way is not fresh either."""
    watched = Watched(tmp_path)
    watched.centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    targets = watched.centre.repository.newest("targets")
    assert targets is not None
    ends = micros(targets.signed.expires.replace(tzinfo=UTC))
    watched.trust.refresh(watched.centre.source)
    watched.centre.now = watched.clock = ends + HOUR  # the operators sign again, later
    watched.centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    watched.trust.refresh(watched.centre.source)
    assert SignedTime(tmp_path / "time", lambda: 0).now() // 1_000_000 == watched.clock // 1_000_000
    old = Centre(tmp_path / "old", now=utc_now(), roots=watched.centre.roots, operators=watched.centre.operators)
    old.publish(overlay(1, ONE), {"config/1.toml": ONE})
    watched.clock = utc_now()
    for _ in range(2):
        watched.start()
        fresh = Trust(tmp_path / f"fresh-{_}", FLEET, old.root, SignedTime(tmp_path / "time", lambda: watched.clock))
        with pytest.raises(TrustRefused, match="expired at") as caught:
            fresh.refresh(old.source)
        assert caught.value.kind == "expired"
    assert watched.trust.refresh(watched.centre.source).desired == overlay(2, TWO)


@pytest.mark.parametrize("role", ["root", "timestamp", "snapshot", "targets", "rollout"])
def test_each_role_is_held_against_it(tmp_path: Path, role: str) -> None:
    """What expires with the newest signature is refused where python-tuf, by the host's clock, takes it; for fetching
    a file, too."""
    watched = Watched(tmp_path)
    centre, soon = watched.centre, utc_now() // 1_000_000 * 1_000_000 + HOUR
    centre.publish(overlay(1, ONE), {"config/1.toml": ONE}, rolled(1))
    keys = {"root": centre.roots[:2], "targets": centre.operators[:2]}.get(role) or [online(centre, role)]
    centre.forge(role, *keys, expires=datetime.fromtimestamp(soon / 1e6, UTC))
    if role not in ("root", "timestamp"):
        seal(centre, role)
    watched.trust = Trust(tmp_path / "agent", FLEET, centre.root, watched.trust._time)
    assert watched.trust.refresh(centre.source).desired == overlay(1, ONE)
    SignedTime(tmp_path / "time", lambda: soon).rise(soon)
    watched.start()
    with pytest.raises(TrustRefused, match=f"{role}.json expired at") as caught:
        watched.trust.refresh(centre.source)
    assert caught.value.kind == "expired"
    if role != "rollout":
        with pytest.raises(TrustRefused, match=f"{role}.json expired at"):
            watched.trust.fetch(target("config/1.toml", ONE), centre.source)


def test_a_stolen_key_that_signs_the_future(tmp_path: Path) -> None:
    """A timestamp that says 2100 is taken, and moves the time no further than the host's clock."""
    watched = Watched(tmp_path)
    watched.centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    clock, repository = watched.clock, watched.centre.repository
    watched.centre.now = micros(datetime(2100, 1, 1, tzinfo=UTC))
    repository.advance(None)
    watched.trust.refresh(watched.centre.source)
    assert SignedTime(tmp_path / "time", lambda: 0).now() == clock
