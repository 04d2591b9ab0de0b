"""The filter before an index never hides a key, rules most others out, and is refused when it does not fit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lookup.tables import lookup_of
from vedette.lookup import filter as filters
from vedette.lookup.filter import Filter, Shape
from vedette.lookup.layout import LookupRefused, Writer, parse
from vedette.lookup.table import Lookup
from vedette.plan.ir import fold

HASHES = st.integers(0, (1 << 64) - 1)


@settings(max_examples=60)
@given(st.lists(HASHES, max_size=200), st.lists(HASHES, max_size=200), st.integers(1, 40), st.integers(1, 7))
def test_no_key_is_hidden(keys: list[int], others: list[int], lines: int, tests: int) -> None:
    """Whatever the hashes and the shape: a hash that was put in may be there, any other as its bits in a set say."""
    shape = Shape(lines, tests)
    data = filters.made(shape, keys)
    found = Filter({"lines": lines, "tests": tests}, memoryview(data))
    bits = {(line, bit) for line, each in map(shape.bits, keys) for bit in each}
    for one in (*keys, *others):
        line, each = shape.bits(one)
        assert found.may_hold(one) is all((line, bit) in bits for bit in each)
    assert all(map(found.may_hold, keys))


@pytest.mark.parametrize(("bits", "most"), [(3.0, 0.30), (8.0, 0.035), (8.4, 0.03)])
def test_most_others_are_ruled_out(bits: float, most: float) -> None:
    """As many as the sizes in the decision promise."""
    draw = random.Random(3)
    shape = filters.shape(20_000, bits)
    data = filters.made(shape, (draw.getrandbits(64) for _ in range(20_000)))
    found = Filter({"lines": shape.lines, "tests": shape.tests}, memoryview(data))
    assert sum(found.may_hold(draw.getrandbits(64)) for _ in range(20_000)) < most * 20_000
    assert len(data) * 8 <= bits * 20_000 * 1.01


def _v4(number: int) -> str:
    return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


MAKE: dict[str, tuple[str, Callable[[random.Random], Any]]] = {
    "text": ("k", lambda draw: draw.choice(["User", "user", "ü", ""]) + f"{draw.randrange(4000)}"),
    "nocase": ("k", lambda draw: draw.choice(["User", "uSER", "Ü", "ß"]) + f"{draw.randrange(4000)}"),
    "domain": ("k", lambda draw: ".".join([*(f"n{draw.randrange(9)}" for _ in range(draw.randrange(5))), "x"])),
    "number": ("k:int", lambda draw: draw.choice([draw.randrange(-3000, 3000), draw.getrandbits(62)])),
    "ip": ("k", lambda draw: _v4(draw.choice([0x0A000000, 0xC0A80000]) + draw.randrange(4000))),
    "ip, of both widths": (
        "k",
        lambda draw: draw.choice([_v4(0x0A000000 + draw.randrange(2000)), f"fe80::{1 + draw.randrange(2000):x}"]),
    ),
    "text, digests": ("k", lambda draw: f"{draw.randrange(4000) * 0x9E3779B97F4A7C15:024x}"[-24:]),
}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("kind", [*MAKE])
def test_as_a_dict(tmp_path: Path, kind: str, alone: bool) -> None:
    """Of each kind of key a lookup of 1,500 answers as a dict, also for what is not there; built natively and in Python
    its filters are the same bytes."""
    columns, make = MAKE[kind]
    kind = kind.partition(",")[0]
    draw = random.Random(f"{kind}{alone}")
    form: Callable[[Any], Any] = fold if kind in ("nocase", "domain") else lambda key: key
    table = {}
    for number in range(1500):
        key = form(make(draw))
        table.setdefault(key, (key,) if alone else (key, number))
    asked = [*table, *(make(draw) for _ in range(1500))]
    wide: list[bytes] = []
    for built in (True, False):
        path = tmp_path / "t.vlookup"
        lookup_of(path, columns if alone else f"{columns} n:int", f"k:{kind}", [*table.values()], native=built).close()
        wide.append(_parts(path)["i0.filter"])
        for read in (True, False):
            with Lookup.open(path, native=read) as found:
                for key in asked:
                    above = [form(key)]
                    if kind == "domain":
                        labels = form(key).split(".")
                        above = [".".join(labels[at:]) for at in range(len(labels))]
                    expected = [table[one] for one in above if one in table]
                    assert found.all("k", key) == expected
                    assert found.contains("k", key) == bool(expected)
    # Without the kernel no automaton is built: then rows are, whose filters are a little smaller.
    assert wide[0] == wide[1] or (alone and kind in ("text", "nocase", "domain"))


def _parts(path: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    header, base, _ = parse(data)
    return {name: data[base + at : base + at + size] for name, (at, size, _) in header.sections.items()}


def _rewritten(path: Path, layout: dict[str, Any], part: bytes | None = None) -> None:
    """The file with another description of its filter, or another filter, as a whole whose digests fit."""
    header, _, _ = parse(path.read_bytes())
    parts = _parts(path)
    header.layouts[0]["filter"] |= layout
    if part is not None:
        parts["i0.filter"] = part
    with path.open("wb") as file:
        writer = Writer(file)
        for name, one in parts.items():
            writer.section(name, one)
        writer.finish(header)


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("columns", ["k", "k n:int"])
def test_a_filter_that_does_not_fit_is_refused(tmp_path: Path, read: bool, columns: str) -> None:
    """One that is cut off, or said to be of another shape: never read beyond, and never taken for "not there"."""
    path = tmp_path / "t.vlookup"
    rows = [(f"user{n}", n)[: 1 + columns.count(" ")] for n in range(900)]
    lookup_of(path, columns, "k", rows).close()
    whole, right = path.read_bytes(), _parts(path)["i0.filter"]
    for layout, part in (
        ({}, right[:-64]),
        ({}, right[:-1]),
        ({}, b""),
        ({"lines": 0}, b""),
        ({"lines": len(right) // 64 + 1}, None),
        ({"lines": 1 << 60}, None),
        ({"lines": -1}, None),
        ({"tests": 0}, None),
        ({"tests": 8}, None),
        ({"tests": "x"}, None),
        ({"part": "none"}, None),
    ):
        path.write_bytes(whole)
        _rewritten(path, layout, part)
        with pytest.raises(LookupRefused, match=r"do not fit together .*build it again"):
            Lookup.open(path, native=read)


@pytest.mark.parametrize("read", [True, False])
def test_changed_bytes_of_a_filter_are_found(tmp_path: Path, read: bool) -> None:
    """After a transfer the whole file is checked, and the filter that has other bytes is named."""
    path = tmp_path / "t.vlookup"
    lookup_of(path, "k", "k:ip", [(_v4(n * 7),) for n in range(900)]).close()
    data = bytearray(path.read_bytes())
    at, size, _ = parse(data)[0].sections["i0.filter"]
    for place in (at, at + size // 2, at + size - 1):
        data[place] ^= 1
        path.write_bytes(data)
        with Lookup.open(path, native=read) as found:
            assert found.damaged() == "i0.filter"
        data[place] ^= 1


def test_keys_that_stay_keep_their_bits(tmp_path: Path) -> None:
    """A few rows more leave the filter of the version before as it is, but for their bits; many make another one."""
    path = tmp_path / "t.vlookup"

    def of(rows: int, created: int) -> bytes:
        lookup_of(path, "k n:int", "k", [(f"u{n}", n) for n in range(rows)], created=created).close()
        return _parts(path)["i0.filter"]

    before = of(4000, 1)
    after = of(4010, 2)
    assert len(before) == len(after)
    assert 0 < sum(a != b for a, b in zip(before, after, strict=True)) <= 60
    assert len(of(6000, 3)) > len(after)
