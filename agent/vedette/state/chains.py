"""Chains: events of several rules in their order, each of a later event than the one before.

``Links`` knows how far chains have come, and is moved along with the stretch that is asked for; ``Longest`` does so for
chains of any slots in ascending order: rules times rules for each entry.
"""

from __future__ import annotations

from collections.abc import Sequence

from vedette.plan.relation import Correlation
from vedette.state.entries import Entries

_NEVER = -(1 << 63)


def usable(c: Correlation, window: Entries, start: int, until: int) -> list[int]:
    """The entries that a chain can use: going back, the newest of each slot before any kept one of a later slot, of
    another event."""
    covered = [False] * len(c.slots)
    useful: list[int] = []
    slots, offsets = window.slots(start, until), window.entries[3 * start + 1 : 3 * until : 3]
    i = last = until - start - 1
    while i >= 0:
        if covered[slots[i]] and (not i or offsets[i - 1] != offsets[i]):  # what there is most of
            i -= 1
            continue
        offset, here = offsets[i], []
        while i >= 0 and offsets[i] == offset:  # one event is one link at most
            if not covered[slots[i]] or i == last:
                here.append(i)
            i -= 1
        useful += here
        for n in here:
            covered[slots[n]] = True
        for n in here:
            covered[: slots[n]] = [False] * slots[n]
    return [start + n for n in reversed(useful)]


class Links:
    """How far chains have come. ``tracks``: the slots of each chain, in order. For stretches of which each begins and
    ends no earlier than the one before.

    Of each link, the latest time at which a chain that has come as far began: a chain lies in a stretch when its last
    link has one that is not before the stretch. Neighbours of one offset are one event, and one link at most.
    """

    __slots__ = ("event", "links", "reached", "stop", "undo")

    def __init__(self, tracks: Sequence[Sequence[int]]) -> None:
        self.reached = [[_NEVER] * len(track) for track in tracks]
        self.links: dict[int, list[tuple[list[int], int]]] = {}
        """By slot, of which links it can be: their track in ``reached``, and their place there."""
        for track, reached in zip(tracks, self.reached, strict=True):
            for i, slot in enumerate(track):
                self.links.setdefault(slot, []).append((reached, i))
        self.reset()

    def reset(self) -> None:
        """Know nothing."""
        self.stop = self.event = -1
        self.undo: list[tuple[list[int], int, int]] = []
        """What the last event has changed: how it was before."""
        for reached in self.reached:
            reached[:] = [_NEVER] * len(reached)

    def measure(self, window: Entries, start: int, stop: int) -> int:
        """How many of the chains lie in the stretch."""
        if stop < self.stop or self.stop < start:
            self.reset()
            self.stop = start
        entries = window.entries
        while self.stop < stop:
            begin = self.stop
            offset = entries[3 * begin + 1]
            if self.event >= 0 and offset == entries[3 * self.event + 1]:  # the last event has more
                begin = self.event
                for reached, i, before in reversed(self.undo):
                    reached[i] = before
            after = self.stop + 1
            while after < stop and entries[3 * after + 1] == offset:
                after += 1
            self.undo = []
            for reached, i, since in self._follows(window, begin, after):
                if since > reached[i]:
                    self.undo.append((reached, i, reached[i]))
                    reached[i] = since
            self.event, self.stop = begin, after
        earliest = entries[3 * start]
        return sum([reached[-1] >= earliest for reached in self.reached])

    def _follows(self, window: Entries, begin: int, after: int) -> list[tuple[list[int], int, int]]:
        """Where the entries of one event come in: all follow on what was before it."""
        moves = []
        for n in range(begin, after):
            for reached, i in self.links.get(window.slot(n), ()):
                since = reached[i - 1] if i else window.time(n)
                if since > reached[i]:
                    moves.append((reached, i, since))
        return moves

    def inserted(self, window: Entries, i: int) -> None:
        """See ``slides.Slide``."""
        if i < self.stop:
            self.reset()

    def dropping(self, window: Entries, n: int) -> None:
        """See ``slides.Slide``."""
        if n > self.event:
            self.reset()
        else:
            self.stop -= n
            self.event -= n


class Longest(Links):
    """Chains of any of ``slots`` slots in ascending order: ``measure`` gives how many the longest has."""

    __slots__ = ()

    def __init__(self, slots: int) -> None:
        super().__init__([range(slots)] * slots)
        """Of chains of 1, 2, … links, by slot: those that end there or at a lower one."""

    def _follows(self, window: Entries, begin: int, after: int) -> list[tuple[list[int], int, int]]:
        moves = []
        for n in range(begin, after):
            slot, since = window.slot(n), window.time(n)
            for reached in self.reached:
                moves += [(reached, i, since) for i in range(slot, len(reached)) if since > reached[i]]
                since = reached[slot - 1] if slot else _NEVER
        return moves
