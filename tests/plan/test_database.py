"""The library under the engine: that it finds what it must, dumps and loads, and says what it cannot take."""

from __future__ import annotations

import random
import re

import pytest

from vedette.plan.database import CASELESS, DOTALL, LIBRARY, ONCE, Pattern, Scanner, fault, literal, refused


def ends(scanner: Scanner, data: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    scanner.scan(data, lambda number, _from, to, _flags, _context: found.append((number, to)))
    return sorted(found)


def test_the_library_is_one_that_finds_matches() -> None:
    """The installed wheel has none of the known faults: with one, rules silently never fire."""
    assert fault() is None


def test_random_patterns_are_found() -> None:
    """Sets of patterns over data around the widths of vectors: the same patterns match as in Python's engine."""
    random_ = random.Random(20251121)

    def word(most: int) -> str:
        return "".join(random_.choice("abcdABCD") for _ in range(random_.randint(1, most)))

    for _ in range(300):
        sources = []
        for _ in range(random_.choice([1, 2, 3, 6])):
            shape = random_.choice(["{}", "{}.", "{}.*{}", "[ab]{}", "{}?{}", "(?:{}|{})", "{}[0-9]"])
            sources.append(shape.format(word(4), word(3)))
        flags, ours = random_.choice([(re.DOTALL, DOTALL), (re.DOTALL | re.IGNORECASE, DOTALL | CASELESS), (0, 0)])
        scanner = Scanner.compile([Pattern(source.encode(), ours | ONCE) for source in sources])
        for _ in range(20):
            noise = random_.choice([0.02, 0.1, 0.5])
            size = random_.randint(0, 120)
            data = "".join(random_.choice("abcdABCD\n") if random_.random() < noise else "0" for _ in range(size))
            data += random_.choice(["", word(4), word(4) + "0" * random_.randint(0, 40)])
            expected = {i for i, source in enumerate(sources) if re.search(source, data, flags)}
            assert {number for number, _ in ends(scanner, data.encode())} == expected, (sources, data)


def test_dump_and_load() -> None:
    """A serialized database finds the same; damaged bytes are a ValueError."""
    scanner = Scanner.compile([Pattern(b"a+b"), Pattern(b"xyz", CASELESS)])
    again = Scanner.load(scanner.dump())
    assert ends(again, b"aab XYZ") == ends(scanner, b"aab XYZ") == [(0, 3), (1, 7)]
    for damaged in (b"", b"x", scanner.dump()[:-1], b"\0" * 100):
        with pytest.raises(ValueError, match="cannot be loaded"):
            Scanner.load(damaged)
    assert LIBRARY.startswith("vectorscan ")


def test_refused_patterns() -> None:
    """Which of many patterns the library cannot take, wherever they stand."""
    good, bad = Pattern(b"abc"), Pattern(b"(?=a)b")
    assert refused([]) == set()
    assert refused([good, good]) == set()
    assert refused([bad]) == {0}
    assert refused([good, bad, good, good, bad]) == {1, 4}
    with pytest.raises(ValueError, match="Hyperscan"):
        Scanner.compile([bad])


def test_a_scan_that_is_ended() -> None:
    """A handler that has enough ends the scan without an error."""
    found: list[int] = []

    def handler(_number: int, _from: int, to: int, _flags: int, _context: object) -> bool:
        found.append(to)
        return len(found) == 3

    Scanner.compile([Pattern(b"a")]).scan_until(b"a" * 100, handler)
    assert found == [1, 2, 3]


def test_literal_is_exact() -> None:
    """Every byte stands for itself."""
    every = bytes(range(256))
    assert ends(Scanner.compile([Pattern(literal(every))]), b"x" + every) == [(0, 257)]
