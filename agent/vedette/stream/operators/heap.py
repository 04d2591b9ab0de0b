"""A binary heap of tuples by their first element, with equal ones in the order in which Java's has them.

Which of several matches with the same first row Flink gives depends on the order in which ``java.util.PriorityQueue``
keeps equal elements, and its partial matches are gone through in the order of the array below it. So these functions
move elements as it does (``heapq`` keeps the same invariant by other moves). A heap is a list; the least is its first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Heap = list[Any]


def add(heap: Heap, item: Any) -> None:
    heap.append(item)
    place, first = len(heap) - 1, item[0]
    while place:
        above = (place - 1) >> 1
        if first >= heap[above][0]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = item


def filled(items: Iterable[Any]) -> Heap:
    """Build one of items that are added one after the other."""
    heap: Heap = []
    for item in items:
        add(heap, item)
    return heap


def take(heap: Heap) -> Any:
    """The least, which goes."""
    least, last = heap[0], heap.pop()
    if heap:
        _down(heap, 0, last)
    return least


def keep(heap: Heap, wanted: Callable[[Any], bool]) -> Heap:
    """Return what is left when all others are removed at once."""
    left = [item for item in heap if wanted(item)]
    if len(left) < len(heap):
        for place in range(len(left) // 2 - 1, -1, -1):
            _down(left, place, left[place])
    return left


def _down(heap: Heap, place: int, item: Any) -> None:
    size, first = len(heap), item[0]
    while place < size >> 1:
        child = 2 * place + 1
        if child + 1 < size and heap[child][0] > heap[child + 1][0]:
            child += 1
        if first <= heap[child][0]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = item
