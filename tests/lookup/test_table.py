"""An opened lookup answers as its table says, natively and in plain Python, whatever the keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lookup.tables import lookup_of
from vedette.lookup.batch import BuildRefused
from vedette.lookup.layout import LookupRefused
from vedette.lookup.table import Lookup
from vedette.model import event
from vedette.plan.ir import fold

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
LABELS = st.lists(st.sampled_from(["a", "b", "c1", "é", "com"]), min_size=1, max_size=5).map(".".join)


def both(path: Path, *args: Any, **more: Any) -> Iterator[Lookup]:
    """The same table built natively and in Python, each read natively and in Python."""
    for built in (True, False):
        for read in (True, False):
            lookup_of(path, *args, native=built, **more).close()
            with Lookup.open(path, native=read) as found:
                yield found


@settings(max_examples=25)
@given(st.lists(NAMES, min_size=1, unique=True, max_size=60), st.lists(NAMES, max_size=20), st.booleans())
def test_texts(tmp_path_factory: pytest.TempPathFactory, names: list[str], others: list[str], alone: bool) -> None:
    """A text is found when it is in the table, in its case, with its row; and no other."""
    path = tmp_path_factory.mktemp("t") / "names.vlookup"
    rows = [
        (name,) if alone else (name, number, None if number % 3 else name[::-1]) for number, name in enumerate(names)
    ]
    for found in both(path, "name" if alone else "name n:int back", "name", rows):
        for row in rows:
            assert found.get("name", row[0]) == row
            assert found.all("name", row[0]) == [row]
        for other in others:
            assert found.contains("name", other) == (other in names)


@settings(max_examples=15)
@given(st.lists(NAMES, min_size=1, unique_by=fold, max_size=30), st.lists(NAMES, max_size=10), st.booleans())
def test_texts_of_any_case(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], others: list[str], alone: bool
) -> None:
    """An index of kind nocase folds by Unicode simple case folding, on both sides."""
    path = tmp_path_factory.mktemp("t") / "names.vlookup"
    rows = [(name,) if alone else (name, number) for number, name in enumerate(names)]
    for found in both(path, "name" if alone else "name n:int", "name:nocase", rows):
        for row in rows:
            for asked in (row[0], fold(row[0]), row[0].upper() if fold(row[0].upper()) == fold(row[0]) else row[0]):
                assert found.get("name", asked) == (fold(row[0]), *row[1:])
        for other in others:
            assert found.contains("name", other) == (fold(other) in map(fold, names))


@settings(max_examples=25)
@given(
    st.lists(st.integers(-(1 << 63) + 1, (1 << 63) - 1) | st.integers(-50, 50), min_size=1, unique=True, max_size=60),
    st.lists(st.integers(), max_size=20),
    st.booleans(),
)
def test_numbers(tmp_path_factory: pytest.TempPathFactory, keys: list[int], others: list[int], alone: bool) -> None:
    """A number is found as an integer, as its text, and as a float that is equal to it."""
    if not alone:
        keys = [key for key in keys if abs(key) < 1 << 62] or [1]
    path = tmp_path_factory.mktemp("t") / "numbers.vlookup"
    rows = [(key,) if alone else (key, f"n{key}") for key in keys]
    for found in both(path, "n:int" if alone else "n:int name", "n:number", rows):
        for row in rows:
            assert found.get("n", row[0]) == row
            assert found.get("n", str(row[0])) == row
            assert found.get("n", float(row[0])) == (
                row if int(float(row[0])) == row[0] else found.get("n", int(float(row[0])))
            )
        for other in others:
            assert found.contains("n", other) == (other in keys)
        for strange in (None, 0.5, "x", "", "1.5", " 1", True, "+1", float("nan"), float("inf")):
            assert found.get("n", strange) is None


ADDRESSES = st.ip_addresses(network="10.0.0.0/24") | st.ip_addresses().map(lambda one: event.address(str(one)))


@settings(max_examples=25)
@given(
    st.lists(ADDRESSES.map(str), min_size=1, unique=True, max_size=60), st.lists(ADDRESSES, max_size=20), st.booleans()
)
def test_addresses(tmp_path_factory: pytest.TempPathFactory, keys: list[str], others: list[Any], alone: bool) -> None:
    """An address is found in any way to write it; no other is."""
    path = tmp_path_factory.mktemp("t") / "addresses.vlookup"
    rows = [(key,) if alone else (key, number) for number, key in enumerate(keys)]
    for found in both(path, "ip" if alone else "ip n:int", "ip:ip", rows):
        for row in rows:
            assert found.get("ip", row[0]) == row
            assert found.get("ip", ipaddress.ip_address(row[0]).exploded) == row
            assert "." not in row[0] or not found.contains("ip", row[0].replace(".", ".0", 1))
        for other in others:
            assert found.contains("ip", str(other)) == (str(other) in keys)
        for strange in (None, "", "10.0.0", "10.0.0.256", "010.0.0.1", "fe80:::1%1", 5, "::ffff:1.2.3.4.5"):
            assert not found.contains("ip", strange)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.ip_addresses(v=4), st.integers(0, 32)) | st.tuples(st.ip_addresses(v=6), st.integers(0, 128)),
             min_size=1, max_size=40),
    st.lists(st.ip_addresses(), max_size=10),
)  # fmt: skip
def test_networks(tmp_path_factory: pytest.TempPathFactory, given_: list[tuple[Any, int]], others: list[Any]) -> None:
    """Of all networks around an address the longest prefix comes first; at both ends of each, and just outside."""
    path = tmp_path_factory.mktemp("t") / "networks.vlookup"
    networks = [*dict.fromkeys(event.network(f"{address}/{bits}") for address, bits in given_)]
    rows = [(str(network), number) for number, network in enumerate(networks)]
    asked = [*others]
    for network in networks:
        for value in (int(network[0]), int(network[-1]), int(network[0]) - 1, int(network[-1]) + 1):
            if 0 <= value < 1 << network.max_prefixlen:
                asked.append(type(network[0])(value))
    for found in both(path, "net n:int", "net:cidr", rows):
        for address in asked:
            around = sorted(
                (network for network in networks if event.address(str(address)) in network),
                key=lambda network: -network.prefixlen,
            )
            expected = [rows[networks.index(network)] for network in around]
            assert found.all("net", str(address)) == expected
            assert found.get("net", str(address)) == (expected[0] if expected else None)
            assert found.contains("net", str(address)) == bool(expected)


@settings(max_examples=25)
@given(st.lists(LABELS, min_size=1, unique=True, max_size=30), st.lists(LABELS, max_size=20), st.booleans())
def test_domains(tmp_path_factory: pytest.TempPathFactory, keys: list[str], asked: list[str], alone: bool) -> None:
    """A domain finds itself and all above it, the longest first; a dot at the end and case do not matter."""
    path = tmp_path_factory.mktemp("t") / "domains.vlookup"
    rows = [(key,) if alone else (key, number) for number, key in enumerate(keys)]
    for found in both(path, "domain" if alone else "domain n:int", "domain:domain", rows):
        for domain in [*asked, *keys]:
            above = [".".join(domain.split(".")[at:]) for at in range(domain.count(".") + 1)]
            expected = [rows[keys.index(one)] for one in above if one in keys]
            assert found.all("domain", domain) == expected
            assert found.get("domain", f"{domain.upper()}.") == (expected[0] if expected else None)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 12)), min_size=1, max_size=30))
def test_ranges(tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]]) -> None:
    """Both ends belong to a range; of nested ones the narrowest comes first; overlapping ones are refused."""
    path = tmp_path_factory.mktemp("t") / "ranges.vlookup"
    rows = [*dict.fromkeys((float(low), float(low + size), f"{low}+{size}") for low, size in spans)]
    crossing = any(a[0] < b[0] <= a[1] < b[1] for a in rows for b in rows)
    if crossing:
        with pytest.raises(BuildRefused, match="overlaps the range of line"):
            lookup_of(path, "low:float high:float name", "low..high:range", rows)
        return
    for found in both(path, "low:float high:float name", "low..high:range", rows):
        for point in (*(n / 2 for n in range(-90, 120)), -41, 7, "3", "3.5"):
            around = [row for row in rows if row[0] <= float(point) <= row[1]]
            assert found.all("low..high", point) == sorted(around, key=lambda row: row[1] - row[0])


def test_digests(tmp_path: Path) -> None:
    """Hex digests are kept as bytes, and found as texts: in lower case alone where case counts."""
    keys = [f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC834:064x}"[-64:] for number in range(1, 300)]
    for kind, upper in (("text", False), ("nocase", True)):
        for found in both(tmp_path / "digests.vlookup", "sha256", f"sha256:{kind}", [(key,) for key in keys]):
            assert all(found.get("sha256", key) == (key,) for key in keys)
            assert found.contains("sha256", keys[5].upper()) is upper
            assert not found.contains("sha256", keys[0][:-1])
            assert not found.contains("sha256", keys[0][:-1] + ("0" if keys[0][-1] != "0" else "1"))


def test_types_of_columns(tmp_path: Path) -> None:
    """Each value comes back as what it was, null too."""
    rows = [
        ("a", 1, 0.5, True, 1_700_000_000_000_000, "ü\U0001f600" * 100),
        ("b", -(1 << 40), None, False, None, ""),
        ("c", None, -1e300, None, 0, None),
    ]
    for found in both(tmp_path / "types.vlookup", "k i:int f:float b:bool t:time s", "k", rows):
        assert [found.get("k", key) for key in "abc"] == rows
        assert sorted(found.rows()) == rows


def test_several_indexes(tmp_path: Path) -> None:
    """Each index finds the row; a column that is a key in two ways is asked for by both names."""
    rows = [(f"10.0.0.{n}", f"host{n}.example.com", n, f"a{n % 3}") for n in range(100)]
    for found in both(tmp_path / "assets.vlookup", "ip host n:int zone", "ip:ip host:domain n:number", rows):
        assert found.get("ip", "10.0.0.7") == found.get("host", "x.host7.example.com") == found.get("n", 7) == rows[7]
        assert found.get("ip:ip", "10.0.0.7") == rows[7]
        with pytest.raises(KeyError):
            found.get("zone", "a1")


def test_rows_of_one_key(tmp_path: Path) -> None:
    """Duplicates are refused by line, or kept in the table's order, or the first is kept."""
    rows = [("a", 1), ("b", 2), ("a", 3), ("a", 4)]
    path = tmp_path / "d.vlookup"
    for native in (True, False):
        with pytest.raises(BuildRefused, match=r"d\.vlookup:4: key k:text: the same key as on line 2"):
            lookup_of(path, "k n:int", "k", rows, native=native)
    assert not path.exists()
    for found in both(path, "k n:int", "k", rows, duplicates="keep"):
        assert found.all("k", "a") == [rows[0], rows[2], rows[3]]
        assert found.get("k", "a") == rows[0]
    for found in both(path, "k n:int", "k", rows, duplicates="first"):
        assert found.all("k", "a") == [rows[0]]
        assert len(found) == 2
    for columns, keys in (("k", [("a",), ("b",), ("a",)]), ("k:int", [(1,), (2,), (1,)])):
        kind = "k:number" if "int" in columns else "k"
        with pytest.raises(BuildRefused, match="the same key as on line 2"):
            lookup_of(path, columns, kind, keys)
        for found in both(path, columns, kind, keys, duplicates="first"):
            assert found.get("k", keys[0][0]) == keys[0]
            assert len(found) == 2


def test_times_of_validity(tmp_path: Path) -> None:
    """With a time only rows that hold then are found: from the first moment on, up to the last one exclusively."""
    rows = [("h", 100, 200, "old"), ("h", 200, None, "new"), ("i", None, 150, "gone")]
    for found in both(
        tmp_path / "v.vlookup", "host since:time until:time owner", "host", rows, valid=("since", "until")
    ):
        assert found.get("host", "h", at=99) is None
        assert found.get("host", "h", at=199) == rows[0]
        assert found.get("host", "h", at=200) == rows[1]
        assert found.contains("host", "i", at=149)
        assert not found.contains("host", "i", at=150)
        assert len(found.all("host", "h")) == 2


@pytest.mark.parametrize(
    ("since", "until"),
    [("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"), ("1601-01-01T00:00:00Z", "9999-12-31"),
     ("9999-12-31", "0001-01-01T00:00:00+02:00"), (-62_135_596_800_000_000, 253_402_300_799_999_999),
     (-11_644_473_600_000_000, 253_402_304_399_000_000)],
)  # fmt: skip
def test_times_that_stand_for_none(tmp_path: Path, since: object, until: object) -> None:
    """The first year and the last, and Windows' zero, are open ends: as a text and as a number."""
    rows = [("h", since, until, "x")]
    for found in both(
        tmp_path / "v.vlookup", "host since:time until:time owner", "host", rows, valid=("since", "until")
    ):
        assert found.get("host", "h", at=100) == ("h", None, None, "x")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("columns", "key", "keys"),
    [("k since:time until:time v", "k", ("x", "y")),
     ("k since:time until:time v", "k:cidr", ("10.0.0.0/8", "10.1.0.0/16")),
     ("k:int since:time until:time v", "k:number", (1, 2))],
)  # fmt: skip
def test_times_of_one_key_do_not_overlap(
    tmp_path: Path, columns: str, key: str, keys: tuple[Any, Any], native: bool
) -> None:
    """Two rows of a key that hold at the same time end the build with both lines named, and are kept when asked for; a
    row that begins when the other ends is none of them, nor is one of another key."""
    one, other = keys
    path, more = tmp_path / "a.vlookup", {"valid": ("since", "until"), "native": native}
    good = [(one, None, 5, "a"), (other, 1, 9, "b"), (one, 5, 7, "c"), (one, 8, None, "d")]
    with lookup_of(path, columns, key, good, **more) as found:
        asked = str(one).partition("/")[0]
        assert [row and row[3] for row in (found.get("k", asked, at) for at in (4, 5, 7, 8))] == ["a", "c", None, "d"]
    bad = [*good, (one, 6, 8, "e")]
    with pytest.raises(BuildRefused, match=r":6: key .* holds at the same time as line 4 of the same key"):
        lookup_of(path, columns, key, bad, **more)
    with lookup_of(path, columns, key, bad, duplicates="keep", **more) as found:
        assert len(found.all("k", asked, 6)) == 2
    with pytest.raises(BuildRefused, match=r":6: the row holds until a time before it begins"):
        lookup_of(path, columns, key, [*good, (one, 30, 20, "e")], **more)
    with pytest.raises(BuildRefused, match="would drop the rows of other times"):
        lookup_of(path, columns, key, good, duplicates="first", **more)


@pytest.mark.parametrize("native", [True, False])
def test_a_new_version_keeps_the_arrangement(tmp_path: Path, native: bool) -> None:
    """Rows that did not change are the same bytes as in the version before, also where rows with other texts and new
    words lie between; without it nothing is."""
    path = tmp_path / "a.vlookup"
    rows = [(f"host{n}", ("it", "ot")[n % 2], n, f"note {n} {fold(str(n))}") for n in range(3000)]
    lookup_of(path, "host team n:int note", "host:nocase", rows, native=native, created=1).close()
    before = path.read_bytes()
    rows[1500] = ("host1500", "new", 7, "note 7 7!!")
    lookup_of(path, "host team n:int note", "host:nocase", rows, native=native, created=2).close()
    after = path.read_bytes()
    assert len(after) < len(before) + 100
    assert sum(a != b for a, b in zip(before, after, strict=False)) < len(before) // 4
    path.unlink()
    lookup_of(path, "host team n:int note", "host:nocase", rows, native=native, created=2).close()
    fresh = path.read_bytes()
    assert sum(a != b for a, b in zip(before, fresh, strict=False)) > len(before) // 4


def test_an_empty_table(tmp_path: Path) -> None:
    """A list may be empty; then nothing is in it."""
    for keys in ("k", "k:nocase", "k:ip", "k:cidr", "k:domain"):
        for found in both(tmp_path / "none.vlookup", "k", keys, []):
            assert not found.contains("k", "1.1.1.1")
            assert found.all("k", "x") == []


@pytest.mark.parametrize("native", [True, False])
def test_bad_files(tmp_path: Path, native: bool) -> None:
    """A file that is foreign, cut off, newer or damaged is refused, and the text says what to do."""
    path = tmp_path / "a.vlookup"
    with lookup_of(path, "k n:int", "k", [(f"k{n}", n) for n in range(500)]) as found:
        at = found.header.sections["records"][0] + 5
    whole = path.read_bytes()

    def refused(data: bytes) -> str:
        path.write_bytes(data)
        with pytest.raises(LookupRefused) as error:
            Lookup.open(path, native=native)
        return str(error.value)

    assert "no lookup: build one" in refused(b"PK\3\4" + bytes(100))
    assert "empty" in refused(b"")
    assert "copy it again" in refused(whole[:40])
    assert "copy it again" in refused(whole[:-1])
    assert "copy it again" in refused(whole + b"x")
    assert "newer than 2: upgrade" in refused(whole[:8] + b"\3" + whole[9:])
    assert "older than 2: build it again" in refused(whole[:8] + b"\1" + whole[9:])
    assert "header is damaged" in refused(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with Lookup.open(path, native=native) as found:
        assert found.damaged() == "records"
    path.write_bytes(whole)
    with Lookup.open(path, native=native) as found:
        assert found.damaged() is None


def test_replaced_under_a_reader(tmp_path: Path) -> None:
    """Who has a version open reads it on while a new one takes its place."""
    path = tmp_path / "a.vlookup"
    old = lookup_of(path, "k n:int", "k", [("a", 1)])
    new = lookup_of(path, "k n:int", "k", [("a", 2)])
    assert (old.get("k", "a"), new.get("k", "a")) == (("a", 1), ("a", 2))
    assert old.version != new.version
    old.close()
    with pytest.raises(ValueError, match="closed"):
        old.get("k", "a")
    new.close()


@pytest.mark.parametrize(
    ("columns", "keys", "row", "wrong"),
    [
        ("ip n:int", "ip:ip", ("10.0.0", 1), r":2: column ip: '10\.0\.0'; expects an address"),
        ("ip n:int", "ip:ip", (None, 1), ":2: column ip: is empty; expects an address"),
        ("net", "net:cidr", ("10.0.0.1/8",), "has host bits set"),
        ("k n:int", "k", ("a", "x"), ":2: column n: 'x'; expects an integer"),
        ("k n:int", "k", ("", 1), ":2: column k: is empty"),
        ("n:int s", "n:number", (None, "x"), ":2: column n: is empty"),
        ("low:int high:int", "low..high:range", (5, 4), "no range of numbers"),
        ("k t:time", "k", ("a", "yesterday"), "expects a time"),
        ("k n:int", "z", ("a", 1), "no column z"),
        ("k n:int", "n:ip", ("a", 1), "of type int, expects text"),
        ("k n:int", "k k:nocase", ("a", 1), "write it as two columns"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path: Path, columns: str, keys: str, row: tuple[Any, ...], wrong: str) -> None:
    """A bad row or a key that cannot be is refused by line and column; what was there stays."""
    path = tmp_path / "t.vlookup"
    path.write_bytes(b"old")
    with pytest.raises(BuildRefused, match=wrong):
        lookup_of(path, columns, keys, [row])
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["t.vlookup"]
