from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from vedette.bundle.manifest import Manifest, Part, describe, part_name, release
from vedette.system.within import NAME

SECOND = 1_000_000
MANIFEST = Manifest(
    name="starter",
    version=7,
    created=1_900_000_000 * SECOND,
    expires=1_902_592_000 * SECOND,
    min_agent="0.1.0",
    hyperscan="5.4.12",
    parts={"plan.msgpack": Part(3, "ab" * 32), "rules/linux/sshd.yml": Part(0, "cd" * 32)},
)

names = st.sampled_from(["plan.msgpack", "rules.json", "tests.msgpack", "databases/a.hsdb", "rules/a/b.yml"])
times = st.integers(0, 4_000_000_000).map(lambda seconds: seconds * SECOND)


@given(
    st.builds(
        Manifest,
        name=st.from_regex(NAME, fullmatch=True),
        version=st.integers(1, 2**53 - 1),
        created=times,
        expires=times,
        min_agent=st.sampled_from(["0.1.0", "1", "12.3"]),
        hyperscan=st.from_regex(r"[ -~]{0,20}", fullmatch=True),
        parts=st.dictionaries(
            names, st.builds(Part, st.integers(0, 10**9), st.from_regex(r"[0-9a-f]{64}", fullmatch=True))
        ),
    )
)
def test_round_trip(manifest: Manifest) -> None:
    """What is written is read back, and equal manifests are equal bytes."""
    data = manifest.to_bytes()
    assert Manifest.from_bytes(data) == manifest
    assert Manifest.from_bytes(data).to_bytes() == data


def test_times_are_rfc_3339_utc() -> None:
    """A reader sees plain UTC times."""
    document = json.loads(MANIFEST.to_bytes())
    assert document["created"] == "2030-03-17T17:46:40Z"


@walk(
    ("key", "value", "said"),
    [
        ("format", 2, "newer"),
        ("format", "1", "format"),
        ("name", "../x", "name"),
        ("version", 0, "version"),
        ("version", True, "version"),
        ("version", 1.5, "version"),
        ("version", 2**60, "version"),
        ("created", "yesterday", "created"),
        ("created", "2030-13-17T17:46:40Z", "created"),
        ("expires", None, "expires"),
        ("min_agent", "new", "min_agent"),
        ("hyperscan", 5, "hyperscan"),
        ("parts", [], "parts"),
        ("parts", {"../evil": {"size": 1, "sha256": "a" * 64}}, "evil"),
        ("parts", {"plan.msgpack": 1}, "plan.msgpack"),
        ("parts", {"plan.msgpack": {"size": -1, "sha256": "a" * 64}}, "size"),
        ("parts", {"plan.msgpack": {"size": 1, "sha256": "A" * 64}}, "sha256"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, said: str) -> None:
    """A manifest with a wrong value is refused by the key's name."""
    document = json.loads(MANIFEST.to_bytes())
    document[key] = value
    with pytest.raises(ValueError, match=said):
        Manifest.from_bytes(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}'])
def test_anything_else_is_a_value_error(data: bytes) -> None:
    """Bytes that are no manifest raise ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"manifest\.json"):
        Manifest.from_bytes(data)


@walk(
    "name",
    [
        "", ".", "..", "/plan.msgpack", "plan.msgpack/", "rules/../plan.yml", "rules//a.yml", "rules/.hidden.yml",
        "rules/a.yml\n", "rules\\a.yml", "databases/a/b.hsdb", "databases/.hsdb", "rules/a.pyc", "manifest.json",
        "rules/é.yml", "rules/" + "a" * 300 + ".yml",
    ],
)  # fmt: skip
def test_names_outside_the_format_are_no_parts(name: str) -> None:
    """Only plain relative names of known parts are taken."""
    assert not part_name(name)


def test_names_of_the_format_are_parts() -> None:
    """The names the format lists are taken."""
    names = ("plan.msgpack", "rules.json", "tests.msgpack", "databases/pre_1.hsdb", "rules/linux/a-b.c.yml")
    for name in (*names, f"rules/{'a' * 230}.yml", f"rules/{'a' * 200}/b.sql"):
        assert part_name(name)


def test_describe_gives_size_and_sha256() -> None:
    """A part is described by its size and SHA-256."""
    assert describe({"plan.msgpack": b"abc"}) == {
        "plan.msgpack": Part(3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    }


def test_releases_compare_by_number() -> None:
    """0.10 follows 0.9, and a suffix does not count."""
    assert release("0.9.3") < release("0.10") < release("1.0.0rc1")
