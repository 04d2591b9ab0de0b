"""The journal's export format: entries as they were written, however the bytes are cut."""

from __future__ import annotations

import random

import pytest

from vedette.inputs.export import MAX_FIELDS, MAX_VALUE, Entry, Export, Malformed


def text(name: bytes, value: bytes) -> bytes:
    return b"%b=%b\n" % (name, value)


def binary(name: bytes, value: bytes) -> bytes:
    return b"%b\n%b%b\n" % (name, len(value).to_bytes(8, "little"), value)


def read(data: bytes, *cuts: int) -> list[Entry]:
    export, found, start = Export(), list[Entry](), 0
    for end in (*cuts, len(data)):
        found += export.feed(data[start:end])
        start = end
    return found


WRITTEN = (
    text(b"__CURSOR", b"s=1;i=2") + text(b"MESSAGE", b"a=b c") + text(b"EMPTY", b"") + b"\n"
    + text(b"__CURSOR", b"s=1;i=3") + binary(b"MESSAGE", b"one\n\n__CURSOR=forged\n\n") + binary(b"NONE", b"")
    + text(b"TWICE", b"1") + text(b"TWICE", b"2") + b"\n"
    + text(b"MESSAGE", b"last") + b"\n"
)  # fmt: skip
ENTRIES = [
    {b"__CURSOR": [b"s=1;i=2"], b"MESSAGE": [b"a=b c"], b"EMPTY": [b""]},
    {
        b"__CURSOR": [b"s=1;i=3"],
        b"MESSAGE": [b"one\n\n__CURSOR=forged\n\n"],
        b"NONE": [b""],
        b"TWICE": [b"1", b"2"],
    },
    {b"MESSAGE": [b"last"]},
]


def test_cut_anywhere() -> None:
    """Texts and binary fields; what is in a value ends no entry and begins none."""
    assert read(WRITTEN) == ENTRIES
    for cut in range(len(WRITTEN)):
        assert read(WRITTEN, cut) == ENTRIES, cut
    assert read(WRITTEN, *range(1, len(WRITTEN))) == ENTRIES


def test_drawn_entries() -> None:
    """Values of any bytes, in either form, come out as they went in."""
    rng = random.Random(7)
    for _ in range(300):
        written, data = [], b""
        for _ in range(rng.randrange(1, 5)):
            entry: dict[bytes, list[bytes]] = {}
            for _ in range(rng.randrange(1, 6)):
                name = rng.choice([b"A", b"MESSAGE", b"_B_1"])
                value = bytes(rng.choice(b"\n=a\x00\xff") for _ in range(rng.randrange(12)))
                plain = b"\n" not in value and rng.random() < 0.5
                data += (text if plain else binary)(name, value)
                entry.setdefault(name, []).append(value)
            data += b"\n"
            written.append(entry)
        assert read(data, *sorted(rng.randrange(len(data)) for _ in range(3))) == written


@pytest.mark.parametrize("form", [text, binary])
@pytest.mark.parametrize("step", [1 << 16, 1 << 20])
def test_a_value_beyond_the_bound(form: object, step: int) -> None:
    """Its first bytes are kept, the rest is skipped as it comes, and the next entry is whole."""
    assert callable(form)
    data = b"A=1\n" + form(b"MESSAGE", b"x" * (MAX_VALUE * 3)) + b"B=2\n\nMESSAGE=next\n\n"
    export, found = Export(), list[Entry]()
    for start in range(0, len(data), step):
        found += export.feed(data[start : start + step])
        assert len(export._buffer) <= MAX_VALUE + (1 << 20) + 4096
    assert found == [{b"A": [b"1"], b"MESSAGE": [b"x" * MAX_VALUE], b"B": [b"2"]}, {b"MESSAGE": [b"next"]}]


def test_too_many_values() -> None:
    """Of an entry the first are kept, where it is not read as a whole."""
    data = binary(b"N", b"\n") * (MAX_FIELDS + 5) + b"\nMESSAGE=next\n\n"
    first, second = read(data)
    assert len(first[b"N"]) == MAX_FIELDS
    assert second == {b"MESSAGE": [b"next"]}


def test_no_export_format() -> None:
    """A name that is no name is an error, not a wait for more."""
    with pytest.raises(Malformed, match="longer than 256"):
        read(b"x" * (MAX_VALUE + 1000))
    with pytest.raises(Malformed):
        read(b"x" * 300 + b"\n\n")
