"""Which of several controllers steers, when they run on different hosts: a retained message is the lease. Pure.

The holder renews it every third of TTL. Who has not seen it renewed for TTL may **claim** it, by publishing its own;
all see all claims in the broker's order, and the last one counts. A claimant waits SETTLE seconds after its own has
come back before it acts, so that a claim made at the same time is seen by both; who sees another's after its own gives
up. A lease that was not renewed for half of TTL is not acted on. Time is an argument: a monotonic clock's seconds.

Two that act for a moment all the same, because the broker was slow, do no harm: both choose between states that
operators signed, and agents follow the newer metadata.
"""

from __future__ import annotations

from dataclasses import dataclass

TTL = 30.0
SETTLE = 2.0


@dataclass(slots=True)
class Lease:
    """``me``: this controller's name. ``began``: when it began to listen."""

    me: str
    began: float
    ttl: float = TTL
    settle: float = SETTLE
    holder: str = ""
    """Whose claim or renewal came last."""
    seen: float = 0.0
    mine: float = 0.0
    """Since when the last one is mine; 0: it is not."""
    sent: float = -TTL

    def listen(self, now: float) -> None:
        """The connection began again: what was said meanwhile comes now."""
        self.began, self.holder, self.mine, self.sent = now, "", 0.0, -self.ttl

    def came(self, holder: str, now: float) -> None:
        """A lease with a good signature; empty: it was given back."""
        if holder != self.me:
            self.mine = 0.0
        elif not self.mine or self.holder != self.me:
            self.mine = now
        self.holder, self.seen = holder, now

    def wants(self, now: float) -> bool:
        """Whether to publish a claim or a renewal now."""
        if now - self.sent < min(self.settle, self.ttl / 3):
            return False  # one is under way
        if self.holder == self.me:
            return now - self.sent >= self.ttl / 3
        if self.holder:
            return now - self.seen > self.ttl
        return now - self.began >= self.settle

    def published(self, now: float) -> None:
        self.sent = now

    def held(self, now: float) -> bool:
        """Whether this controller is the one that acts."""
        return bool(self.mine) and now - self.mine >= self.settle and now - self.seen < self.ttl / 2
