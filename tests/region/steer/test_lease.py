"""At most one controller acts, also where several start at once or the broker is slow."""

from __future__ import annotations

from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.region.steer.lease import SETTLE, TTL, Lease
from vedette.region.steer.sealed import opened, seal


class Wire:
    """A broker that hands every claim to all, in one order, after a delay of its own for each listener."""

    def __init__(self, rng: Random, leases: list[Lease]) -> None:
        self.rng, self.leases, self.retained = rng, leases, ""
        self.queues: dict[str, list[tuple[float, str]]] = {one.me: [] for one in leases}

    def publish(self, holder: str, now: float) -> None:
        self.retained = holder
        for queue in self.queues.values():
            at = max(now + self.rng.uniform(0, SETTLE / 2), queue[-1][0] if queue else 0.0)
            queue.append((at, holder))

    def deliver(self, now: float) -> None:
        for one in self.leases:
            queue = self.queues[one.me]
            while queue and queue[0][0] <= now:
                one.came(queue.pop(0)[1], now)


@pytest.mark.parametrize("seed", range(30))
def test_one_acts(seed: int) -> None:
    """Never two at once; always one soon after the holder has gone."""
    rng = Random(seed)
    leases = [Lease(name, rng.uniform(0, 3)) for name in "abc"]
    wire, alive, now, idle = Wire(rng, leases), {*"abc"}, 0.0, 0.0
    acted = set()
    while now < 600:
        now += 0.1
        wire.deliver(now)
        for one in leases:
            if one.me in alive and now >= one.began and one.wants(now):
                wire.publish(one.me, now)
                one.published(now)
        acting = [one.me for one in leases if one.me in alive and one.held(now)]
        assert len(acting) <= 1
        acted |= {*acting}
        idle = 0.0 if acting else idle + 0.1
        assert idle < 2 * TTL
        if acting and len(alive) > 1 and rng.random() < 0.005:
            alive.discard(acting[0])
    assert acted


def test_the_holder_that_was_killed_goes_on_at_once() -> None:
    """It has the same name; another waits for the lease to end; one that is given back is free."""
    again, other = Lease("a", 100.0), Lease("b", 100.0)
    for one in (again, other):
        one.came("a", 100.1)
    assert again.wants(100.2)
    assert again.held(100.2 + SETTLE)
    assert not other.wants(100.1 + TTL)
    assert other.wants(100.2 + TTL)
    other.came("", 110.0)
    assert other.wants(110.1)
    assert not again.held(100.2 + TTL)


def test_only_the_key_of_the_controller_counts() -> None:
    """Tampered, signed by another, made for another purpose, or nothing at all: none."""
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    data = seal("lease", {"holder": "a"}, key)
    assert opened("lease", data, [other.public_key(), key.public_key()]) == {"holder": "a"}
    assert opened("lease", data, [other.public_key()]) is None
    assert opened("progress", data, [key.public_key()]) is None
    assert opened("lease", data.replace(b'"a"', b'"b"'), [key.public_key()]) is None
    for junk in (b"", b"[]", b"{}", b'{"sealed":1,"signature":"00"}', b"[" * 100_000):
        assert opened("lease", junk, [key.public_key()]) is None
