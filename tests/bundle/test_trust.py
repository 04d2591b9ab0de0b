"""Every way to be refused, and the two ways to be taken."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bundle import bombs
from tests.bundle.conftest import CHANNEL, CREATED, DAY, FLEET, Author
from vedette.bundle import seal as sealing
from vedette.bundle import trust
from vedette.bundle.manifest import MANIFEST, Manifest, describe
from vedette.bundle.seal import MAGIC, SIZE, BundleRefused, seal
from vedette.bundle.trust import Installed, addressed, admit, inspect, verify
from vedette.region.build import archive
from vedette.region.sign import sign


def entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def changed(data: bytes, **change: bytes | None) -> bytes:
    """The archive of ``data`` with entries put in, replaced, or (None) taken out."""
    names = {"manifest": MANIFEST, "plan": "plan.msgpack", "tests": "tests.msgpack"}
    content = entries(data) | {names.get(key, key): value for key, value in change.items()}
    return archive({name: value for name, value in content.items() if value is not None})


def refuse(data: bytes, author: Author, said: str, agent_version: str = "0.1.0") -> None:
    """Refused although ``author`` has signed just this, and by who looks at it without trust."""
    body = data[SIZE:] if data.startswith(MAGIC) else data
    with pytest.raises(BundleRefused, match=said):
        verify(seal(body, author.key, FLEET, CHANNEL), [author.public], agent_version)
    if agent_version == "0.1.0":
        with pytest.raises(BundleRefused, match=said):
            inspect(body)


def refuse_as_it_is(data: bytes, author: Author, said: str) -> None:
    with pytest.raises(BundleRefused, match=said):
        verify(data, [author.public], "0.1.0")


def test_a_good_bundle_is_taken(author: Author) -> None:
    """A bundle signed by a trusted key gives back all that was put in."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    assert bundle.version == 3
    assert bundle.key == author.public
    assert (bundle.fleet, bundle.channel) == (FLEET, CHANNEL)
    assert bundle.plan == b"plan of version 3"
    assert bundle.databases == {"prefilter": b"\xdb" * 100}
    assert bundle.sources == {"linux/sshd.yml": b"title: a rule\n"}
    assert bundle.rules == [{"id": "r1", "title": "a rule", "level": "high"}]
    assert bundle.tests == [{"raw": b"<38>a line", "rules": ["r1"]}]


def test_any_zip_reader_reads_it(author: Author) -> None:
    """The signature at the head is no hindrance to an operator's unzip."""
    assert entries(author.bundle()) == entries(author.build())


def test_any_of_several_keys(author: Author, another: Callable[[], Author]) -> None:
    """One trusted key among several is enough (keys are rotated by trusting two for a while)."""
    assert verify(author.bundle(), [another().public, author.public], "0.1.0").key == author.public


def test_untrusted_key(author: Author, another: Callable[[], Author]) -> None:
    """A bundle signed by somebody else is refused, and the key is named."""
    refuse_as_it_is(another().bundle(), author, "not among bundles.trusted_keys")


def test_no_key_trusted(author: Author) -> None:
    """Without trusted keys nothing is taken."""
    with pytest.raises(BundleRefused, match="not among"):
        verify(author.bundle(), [], "0.1.0")


def test_bad_signature(author: Author) -> None:
    """An archive changed after signing is refused, one of the same length too."""
    data = author.bundle(1)
    refuse_as_it_is(data.replace(b'"version": 1', b'"version": 9'), author, "changed after signing")
    refuse_as_it_is(data + b"x", author, "and not the")


def test_signature_of_another_bundle(author: Author) -> None:
    """A signature does not move from one bundle to another."""
    first, second = author.bundle(1), author.bundle(2)
    assert len(first) == len(second)
    refuse_as_it_is(second[:SIZE] + first[SIZE:], author, "changed after signing")


def test_a_signature_says_for_whom(author: Author) -> None:
    """Fleet, channel and size are part of what is signed."""
    data = author.bundle()
    refuse_as_it_is(data.replace(FLEET.encode() + b"\0", b"f2\0", 1), author, "changed after signing")
    refuse_as_it_is(data.replace(CHANNEL.encode() + b"\0", b"strict\0", 1), author, "changed after signing")
    longer = data[:16] + struct.pack("<Q", len(data) - SIZE + 1) + data[24:] + b"x"
    refuse_as_it_is(longer, author, "changed after signing")


def test_key_id_of_a_trusted_key_on_a_foreign_signature(author: Author, another: Callable[[], Author]) -> None:
    """Naming a trusted key is not enough: its signature must fit."""
    foreign, own = another().bundle(), author.bundle()
    refuse_as_it_is(foreign[:312] + own[312:320] + foreign[320:], author, "changed after signing")


def test_unsigned(author: Author) -> None:
    """A bundle nobody signed is refused with the command that signs."""
    refuse_as_it_is(author.build(), author, "not signed, or by an earlier release: sign it with")


def test_signed_by_an_earlier_release(author: Author) -> None:
    """Bundles had their signature as an entry of the zip: it is neither believed nor passed on."""
    former = changed(author.build(), **{"manifest.sig": b"{}"})
    refuse_as_it_is(former, author, "by an earlier release")
    with pytest.raises(BundleRefused, match=r"manifest\.sig.*does not belong"):
        sign(former, author.key)


@pytest.mark.parametrize("fleet", ["", "f2"])
def test_for_whom_it_is(author: Author, fleet: str) -> None:
    """A bundle for another fleet or channel is not taken; one for no fleet only as a file of the host."""
    bundle = verify(author.bundle(fleet=fleet, channel=fleet and CHANNEL), [author.public], "0.1.0")
    with pytest.raises(BundleRefused, match=r"not for fleet f1|not signed for a fleet"):
        addressed(bundle, FLEET, CHANNEL)
    if fleet:
        addressed(bundle, "f2", CHANNEL)
        with pytest.raises(BundleRefused, match="signed for fleet f2, channel stable, not for fleet f2, channel test"):
            addressed(bundle, "f2", "test", of_host=True)
    else:
        addressed(bundle, FLEET, CHANNEL, of_host=True)


@pytest.mark.parametrize(("fleet", "channel"), [("a/b", "c"), ("a", "c\0"), ("a", ""), ("", "c"), ("a" * 129, "c")])
def test_names_that_are_none(author: Author, fleet: str, channel: str) -> None:
    with pytest.raises(ValueError, match=r"fleet|channel"):
        sign(author.build(), author.key, fleet, channel)


def test_digest_mismatch(author: Author) -> None:
    """A part exchanged behind the manifest is refused by its name, of the same length or not."""
    refuse(changed(author.bundle(), plan=b"plan of version X"), author, r"plan\.msgpack.*differ")
    refuse(changed(author.bundle(), plan=b"longer than it was before"), author, r"plan\.msgpack.*differ")


def test_missing_part(author: Author) -> None:
    """A part of the manifest that is not there is refused."""
    refuse(changed(author.bundle(), plan=None), author, r"plan\.msgpack' is missing")


def test_required_part_missing_from_the_manifest(author: Author) -> None:
    """A signed manifest without a plan is refused all the same."""
    parts = {"rules.json": b"[]"}
    manifest = Manifest("x", 1, CREATED, CREATED + DAY, "0.1.0", "", describe(parts))
    with pytest.raises(BundleRefused, match=r"plan\.msgpack' is missing"):
        sign(archive({MANIFEST: manifest.to_bytes(), **parts}), author.key)


def test_part_beside_the_manifest(author: Author) -> None:
    """A part that the manifest does not list is refused."""
    refuse(changed(author.bundle(), **{"rules/more.yml": b"title: x"}), author, "not in the manifest")


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/cron.d/evil.yml",
        "rules/../../evil.yml",
        "evil.sh",
        "rules/",
        "plan.msgpack\0x",
        "rules/\xe9.yml",
    ],
)
def test_unknown_and_escaping_names(author: Author, name: str) -> None:
    """Zip-slip names and names outside the format are refused before anything is unpacked."""
    refuse(bombs.archive([bombs.Entry(name.encode(), b"x")]), author, "does not belong")


def test_entry_twice(author: Author) -> None:
    """Two entries of one name are refused: readers differ in which one they take."""
    refuse(bombs.archive([bombs.Entry(b"rules/a.yml", b"x")] * 2), author, "there twice")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"mode": 0o120777}, "no plain file"),
        ({"mode": 0o040755}, "no plain file"),
        ({"method": 8}, "packed by method 8"),
        ({"method": 14}, "packed by method 14"),
        ({"flags": 1}, "encrypted"),
        ({"flags": 8}, "zip"),
        ({"size": 10 << 30 & 0xFFFFFFFF}, "zip"),
        ({"stated": 3, "size": 3}, "zip"),
        ({"stated": 0xFFFFFFFF, "size": 0xFFFFFFFF}, "zip"),
        ({"offset": 1 << 31}, "zip"),
        ({"extra": b"\1\0\x10\0" + bytes(16)}, "zip"),
        ({"crc": 1}, "checksum"),
    ],
)
def test_entries_that_lie(author: Author, how: dict[str, Any], said: str) -> None:
    """Links, folders, packed and encrypted entries, and headers that say another thing than is there are refused."""
    good = [
        bombs.Entry(MANIFEST.encode(), b"{}"),
        bombs.Entry(b"rules/a.yml", b"12345"),
        bombs.Entry(b"rules/b.yml", b""),
    ]
    refuse(bombs.archive(good), author, "manifest.json: format")
    refuse(bombs.archive([good[0], good[1]._replace(**how), good[2]]), author, said)


def test_a_directory_that_lies(author: Author) -> None:
    """Another count than entries, a comment, a gap, something before, between or behind."""
    good = [bombs.Entry(MANIFEST.encode(), b"{}"), bombs.Entry(b"rules/a.yml", b"12345")]
    for count in (0, 1, 3, 0xFFFF):
        refuse(bombs.archive(good, count=count), author, "zip|entries")
    refuse(bombs.archive(good, comment=b"PK"), author, "zip")
    refuse(b"x" + bombs.archive(good), author, "zip")
    refuse(bombs.archive(good) + b"x", author, "zip")
    whole = bombs.archive(good)
    at = whole.index(b"PK\1\2")
    refuse(whole[:at] + b"gap" + whole[at:], author, "zip")
    refuse(whole[:at] + b"gap" + whole[at:-6] + struct.pack("<L2x", at + 3), author, "more in it")


def test_not_a_bundle(author: Author) -> None:
    """A zip without a manifest, and an empty one, are refused."""
    refuse(archive({"rules/a.yml": b""}), author, "not a bundle")
    refuse(archive({}), author, "not a bundle")


def test_truncated(author: Author) -> None:
    """A bundle cut anywhere is refused, signed or not."""
    data = author.bundle()
    for length in range(0, len(data), 97):
        refuse_as_it_is(data[:length], author, "cut off|that were signed|not signed")
        if length > SIZE:
            refuse(data[:length], author, "zip")


def test_oversize(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the bound is refused unread."""
    data = author.bundle()
    monkeypatch.setattr(sealing, "MAX_BUNDLE", 1000)
    monkeypatch.setattr(sealing, "MAX_BODY", 1000)
    refuse(data, author, "more than the 1000")


def test_too_many_entries(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """More entries than the bound are refused."""
    data = author.bundle()
    monkeypatch.setattr(trust, "MAX_ENTRIES", 5)
    refuse(data, author, "more than the 5")


def test_oversize_manifest(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is parsed of a bundle that nobody has signed is small."""
    data = author.bundle()
    monkeypatch.setattr(trust, "_MAX_MANIFEST", 100)
    refuse(data, author, "longer than it may be")


def test_agent_too_old(author: Author) -> None:
    """A bundle for a newer agent is refused with both versions."""
    data = author.bundle(min_agent="0.10.0")
    refuse(data, author, r"needs agent 0\.10\.0, this one is 0\.9\.1", "0.9.1")
    verify(data, [author.public], "0.10.0")


def test_newer_format(author: Author) -> None:
    """A format from the future is refused with what to do."""
    data = author.build()
    content = entries(data)
    document = json.loads(content[MANIFEST]) | {"format": 2}
    with pytest.raises(BundleRefused, match="upgrade the agent"):
        inspect(changed(data, manifest=json.dumps(document).encode()))


def test_older_version(author: Author) -> None:
    """A lower version than the installed one is refused (a rollback by replay)."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    with pytest.raises(BundleRefused, match="older than the installed version 4"):
        admit(bundle, Installed(4, "aa"), CREATED)


def test_same_version_other_contents(author: Author) -> None:
    """One version is one rule set."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    with pytest.raises(BundleRefused, match="other contents"):
        admit(bundle, Installed(3, "0" * 12), CREATED)


def test_expired(author: Author) -> None:
    """An expired bundle is refused for a new installation, but not when it is the installed one."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    late = CREATED + 31 * DAY
    for installed in (None, Installed(2, "aa")):
        with pytest.raises(BundleRefused, match="expired at 2030-04-16T17:46:40Z"):
            admit(bundle, installed, late)
    admit(bundle, Installed(3, bundle.digest[:12]), late)
    assert bundle.expired(late)


def test_clock_that_was_never_set(author: Author) -> None:
    """A host whose clock stands at 1970 takes a good bundle."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    admit(bundle, Installed(2, "aa"), 0)
    assert not bundle.expired(0)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AAAA", "rsa:" + "A" * 43 + "=", "ed25519:" + "*" * 44])
def test_public_keys_that_are_none(text: str) -> None:
    """A wrong key in the configuration raises ValueError with the form that is expected."""
    with pytest.raises(ValueError, match="ed25519:"):
        sealing.public_key(text)


def test_lists_of_the_wrong_kind(author: Author) -> None:
    """A rule list or self-test of another type raises ValueError when it is asked for."""
    parts = {"plan.msgpack": b"", "rules.json": b"{}", "tests.msgpack": msgpack.packb({})}
    manifest = Manifest("x", 1, CREATED, CREATED + DAY, "0.1.0", "", describe(parts))
    bundle = inspect(archive({MANIFEST: manifest.to_bytes(), **parts}))
    with pytest.raises(ValueError, match=r"rules\.json"):
        _ = bundle.rules
    with pytest.raises(ValueError, match=r"tests\.msgpack"):
        _ = bundle.tests


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    author = Author(tmp_path_factory.mktemp("author") / "key.pem")
    return author.bundle(), author.public


@settings(max_examples=100)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_changes_what_runs(signed: tuple[bytes, str], position: float, bit: int) -> None:
    """A bundle with one bit flipped is refused, wherever it is."""
    data, public = signed
    damaged = bytearray(data)
    damaged[int(position * len(data))] ^= 1 << bit
    with pytest.raises(BundleRefused):
        verify(bytes(damaged), [public], "0.1.0")


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    """Bytes of any kind are refused and raise nothing else."""
    with pytest.raises(BundleRefused):
        inspect(data)
