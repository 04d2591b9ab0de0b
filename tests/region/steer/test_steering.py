"""A change goes ring by ring, is stopped where it does harm, and ends the same however often its controller dies."""

from __future__ import annotations

from random import Random

import msgpack
import pytest

from tests.fleet.kit import desired, group
from tests.region.steer.kit import BEAT, NEW, OLD, RINGS, SECOND, START, Host, World, bundle
from vedette.fleet.documents import Change, Ring, place
from vedette.region.steer.agents import Agents
from vedette.region.steer.steering import Steering

IDS = [f"agent-{i:03}" for i in range(100)]
SOME = IDS[:30]
YEAR = 365 * 86_400 * SECOND
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 20))]


def test_ring_by_ring() -> None:
    """Nothing before the agents were watched; then the five with the lowest places, a tenth, all; no ring before the
    soak of the one before is over; at the end it is done."""
    world = World(bundle(), IDS)
    world.minutes(9)
    assert (world.state, world.having()) == ("", set())
    world.minutes(3)
    assert world.having() == {*sorted(IDS, key=lambda id: place("c1", id))[:5]}
    world.minutes(28)
    assert len(world.having()) == 5
    world.minutes(5)
    tenth = {id for id in IDS if place("c1", id) < 0.1} | world.having()
    assert world.having() == tenth
    world.minutes(40)
    assert world.having() == {*IDS}
    world.minutes(20)
    assert world.state == "done"
    assert [event for _, event in world.events] == [*["rollout_ring", "rollout_soaks"] * 3, "rollout_done"]


@pytest.mark.parametrize("late", [0, 1, 3, 20])
def test_a_ring_waits_for_its_number(late: int) -> None:
    """A canary of five is no canary of the first one that says that it follows the documents; who never does is not
    waited for."""
    world = World(desired(1, group("everyone", bundles={"default": Change("c1", OLD, OLD)}), rings=RINGS), SOME)
    world.minutes(25)
    for host in world.hosts.values():
        host.deaf = host.id not in SOME[:2]
    world.desire(bundle(2))
    for minute in range(late):
        world.minute()
        assert len(world.reached) == (2 if minute >= 4 else 0)  # after five minutes with those there are
    for host in world.hosts.values():
        host.deaf = False
    world.minute()
    assert len(world.reached) == (2 if late > 5 else 5)
    world.minutes(150)
    assert world.state == "done"


def test_a_restart_hides_no_flood() -> None:
    """Agents that are restarted all through the soak, cleanly, have shown nothing: the ring waits until they have, and
    is stopped."""
    world = World(bundle(), IDS)

    def restarts(host: Host, world: World) -> None:
        if host.runs == NEW.sha256 and world.now < START + 90 * BEAT:
            host.figures.update(started=world.now - 20 * SECOND, alerts={"noisy": 0})
        else:
            floods(host, world)

    world.worse = restarts
    world.minutes(89)
    assert (world.state, len(world.reached)) == ("rolling", 5)
    world.minutes(30)
    assert (world.state, len(world.reached)) == ("aborted", 5)


def test_a_controller_that_starts_looks_at_what_it_has_heard() -> None:
    """It hears agents before it has read the documents: a flood among that is found at its first look."""
    world = World(bundle(), IDS)
    world.minutes(13)
    assert len(world.reached) == 5
    agents = Agents()
    agents.restore(msgpack.unpackb(world.rows))
    for host in world.hosts.values():
        floods(host, world)
        agents.take(host.id, host.beat(world.now + 120 * SECOND), world.now + 120 * SECOND)
    steering = Steering(agents, world.notes)
    steering.follow(world.document, world.rollout, world.now)
    assert [move.event for _, move in steering.moves(world.now + 120 * SECOND, 0)] == ["rollout_aborted"]


def test_what_stays_goes_through_no_rings() -> None:
    """After an aborted change, what ran before is desired again: no ring is begun for it."""
    world = World(bundle(), IDS)
    change = Change("c2", OLD, OLD)
    world.desire(desired(2, group("everyone", bundles={"default": change}), rings=RINGS))
    world.minutes(120)
    assert (world.steering.steps, world.events) == ((), [])


def floods(host: Host, world: World) -> None:
    """A rule that makes 100 alerts a minute under NEW."""
    if host.runs == NEW.sha256:
        alerts = host.figures.setdefault("alerts", {"noisy": 0})
        host.figures["alerts"] = {"noisy": alerts["noisy"] + 100}


def crashes(host: Host, world: World) -> None:
    if host.runs == NEW.sha256:
        host.figures["crashes"] = host.figures.get("crashes", 0) + 1


def keeps_restarting(host: Host, world: World) -> None:
    """It stops as it should, and begins again, every minute."""
    if host.runs == NEW.sha256:
        host.figures.update(starts=host.figures.get("starts", 1) + 1, started=world.now - 20 * SECOND)


def poisons(host: Host, world: World) -> None:
    if host.runs == NEW.sha256:
        host.figures["poisoned"] = host.figures.get("poisoned", 0) + 3


def refuses(host: Host, world: World) -> None:
    """It does not take NEW, and says so."""
    if host.runs == NEW.sha256:
        host.runs = OLD.sha256
        host.figures["actual"] = {"refused": {NEW.sha256: "the dry run failed"}}


def falls_silent(host: Host, world: World) -> None:
    if host.runs == NEW.sha256:
        host.online = False


@pytest.mark.parametrize("worse", [floods, crashes, keeps_restarting, poisons, refuses, falls_silent])
def test_a_bad_change_comes_back(worse) -> None:  # type: ignore[no-untyped-def]  # one of the functions above
    """It is stopped at the canary and undone within the soak; the others never had it; and it does not begin again."""
    world = World(bundle(), SOME)
    world.worse = worse
    world.minutes(60)
    assert world.state == "aborted"
    assert len(world.reached) == 5
    for host in world.hosts.values():
        host.online = True
    world.minutes(120)
    assert (world.state, world.having()) == ("aborted", set())
    assert [event for _, event in world.events].count("rollout_ring") == 1
    assert len(world.reached) == 5
    note = world.notes["c1"]
    words = {floods: "alerts", crashes: "crashes", keeps_restarting: "restarts", poisons: "poisoned",
             refuses: "refused", falls_silent: "silence"}  # fmt: skip
    assert note.reasons[0].startswith(f"{words[worse]}: ")


def test_what_happens_to_everybody_fails_no_ring() -> None:
    """A wave of attacks makes alerts at all agents, with the change and without it."""
    world = World(bundle(), IDS)

    def attacked(host: Host, world: World) -> None:
        if len(world.reached) >= 5:
            host.figures["alerts"] = {"ssh": host.figures.get("alerts", {"ssh": 0})["ssh"] + 200}

    world.worse = attacked
    world.minutes(80)
    assert len(world.having()) > 5


def test_one_host_of_five_with_some_more_alerts_fails_no_ring() -> None:
    """A single host may be busy by itself."""
    world = World(bundle(), IDS)

    def busy(host: Host, world: World) -> None:
        if host.id == min(world.reached, default=""):
            host.figures["alerts"] = {"ssh": host.figures.get("alerts", {"ssh": 0})["ssh"] + 30}

    world.worse = busy
    world.minutes(80)
    assert len(world.having()) > 5


def test_who_is_away_catches_up_and_holds_nothing_up() -> None:
    """Agents that went away before are not waited for, and take on their return what their ring has."""
    world = World(bundle(), IDS)
    world.minutes(12)
    assert len(world.having()) == 5
    out = {id for id in IDS if id not in world.having()}
    for id in sorted(out)[::2]:
        world.hosts[id].online = False
        world.steering.agents.take(id, {"state": "lost"}, world.now)
    world.minutes(120)
    assert world.state == "done"
    late = {id for id in IDS if not world.hosts[id].online}
    assert world.having() == {*IDS} - late
    for host in world.hosts.values():
        host.online = True
    world.minute()
    assert world.having() == {*IDS}


def test_agents_that_were_stopped_long_ago_fail_no_ring() -> None:
    """Their last heartbeats stay at the broker, and a controller that begins again gets them."""
    world = World(bundle(), IDS)
    world.minutes(2)
    for id in sorted(IDS)[::3]:
        world.hosts[id].last, world.hosts[id].online = world.hosts[id].beat(world.now), False
    for _ in range(200):
        world.minute()
        if world.rng.random() < 0.1:
            world.start()
    assert world.state == "done"
    assert world.having() == {id for id in IDS if world.hosts[id].online}


def test_a_small_group_and_a_small_percentage() -> None:
    """A ring of a percentage that holds nobody names one agent; a ring that adds nobody is passed over."""
    world = World(bundle(rings=(Ring("one", 600.0, percent=1.0), *RINGS)), ["a", "b"])
    world.minutes(12)
    assert len(world.having()) == 1
    world.minutes(20)
    assert world.having() == {"a", "b"}
    world.minutes(80)
    assert world.state == "done"


def test_an_operator_has_the_last_word() -> None:
    """Paused, nothing advances, and a gate still stops it; resumed, it goes on; aborted, all go back."""
    world = World(bundle(), IDS)
    world.minutes(12)

    def say(command: str) -> None:
        moves = world.steering.asked(command, "c1", f"{command} by carol")
        assert world.steering.take(moves)
        world.rollout = type(world.rollout)(  # type: ignore[misc]  # there is one by now
            world.document.fleet,
            world.rollout.serial + 1,
            dict(world.steering.progress),  # type: ignore[union-attr]
        )

    say("pause")
    world.minutes(120)
    assert (world.state, len(world.having())) == ("paused", 5)
    assert world.steering.asked("pause", "", "") == []
    say("resume")
    world.minutes(5)
    assert len(world.having()) > 5
    say("abort")
    world.minutes(5)
    assert (world.state, world.having()) == ("aborted", set())
    assert [world.steering.asked(one, "", "") for one in ("pause", "resume", "abort")] == [[], [], []]


def test_the_controller_is_not_fooled_by_its_own_absence() -> None:
    """While it was away all agents were silent to it; and a soak ends only with heartbeats from after it."""
    world = World(bundle(), IDS)
    world.minutes(12)
    world.now += 7200 * SECOND
    for host in world.hosts.values():
        host.follow(world.document, world.rollout, world.now)
    world.start()
    world.step()
    assert (world.state, len(world.reached)) == ("rolling", 5)
    world.minutes(40)
    assert len(world.reached) > 5


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("silent", [False, True])
def test_a_clock_that_was_ahead(silent: bool, restarted: bool) -> None:
    """Set right by a year in the middle of a soak: the ring begins again, and so does silence, which fails its gate."""
    world = World(bundle(), SOME)
    world.now += YEAR
    world.start()
    world.minutes(20)
    assert (world.state, len(world.having())) == ("rolling", 5)
    world.now -= YEAR
    if restarted:
        world.start()
    for host in world.hosts.values():
        host.online = not silent or host.id not in world.having()
    world.minutes(150)
    assert world.state == ("aborted" if silent else "done")
    assert [reason.partition(":")[0] for reason in world.notes["c1"].reasons] == ["silence"] * silent


@pytest.mark.parametrize("minutes", [9, 70])
def test_a_clock_that_was_behind(minutes: int) -> None:
    """At a boot, and set right in the middle of a soak, or after it: the soak lasts as long as it is to, and nobody was
    silent meanwhile."""
    world = World(bundle(), SOME)
    world.minutes(15)
    world.now -= 7200 * SECOND
    world.start()
    world.minutes(minutes)
    world.now += 7200 * SECOND
    having = len(world.having())
    world.minutes(28)
    assert len(world.having()) == having
    world.minutes(150)
    assert world.state == "done"


def test_a_clock_that_is_set_to_and_fro() -> None:
    """By less than two clocks may be apart: no ring begins again for it, however often."""
    world = World(bundle(), SOME)
    world.start()
    for minute in range(150):
        world.minutes(1)
        world.now += (-1) ** minute * 120_000_000
    assert world.state == "done"


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_killed_and_away_at_random(seed: int, *, bad: bool) -> None:
    """Whatever dies and whoever goes away: nobody runs what he was not given, and the end is the desired state, or the
    one before."""
    rng = Random(seed)
    world = World(bundle(), IDS[:20], rng)
    world.worse = floods if bad else lambda host, world: None
    for _ in range(150):
        for host in world.hosts.values():
            if rng.random() < (0.02 if host.online else 0.3) and not bad:
                host.online = not host.online
                if not host.online and rng.random() < 0.7:
                    world.steering.agents.take(host.id, {"state": "lost"}, world.now)
        world.minute(die=rng.choice(["", "", "", "watched", "noted", "committed"]))
        if rng.random() < 0.1:
            world.start()
    for host in world.hosts.values():
        host.online = True
    world.minutes(150)
    if bad:
        assert (world.state, world.having(), len(world.reached)) == ("aborted", set(), 5)
    elif world.state == "done":
        assert world.having() == {*world.hosts}
    else:  # somebody who had it fell silent for longer than the gate allows
        assert (world.state, world.having()) == ("aborted", set())
        assert world.notes["c1"].reasons[0].startswith("silence: ")
