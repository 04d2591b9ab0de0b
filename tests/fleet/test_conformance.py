"""The cases of The Update Framework's conformance suite, by its names, for what an agent trusts (``fleet/trust.py``).

Which cases there are is the suite's (github.com/theupdateframework/tuf-conformance); how each is tried here is ours,
since an agent has no command to be driven by: it follows what comes, and fetches only what the documents in force name.
Keys and delegations are in ``test_conformance_keys.py``; ``NOT_OURS`` has what does not apply, and decision 0066 why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from securesystemslib.signer import SSlibKey
from tuf.api.metadata import Metadata, Signature

from tests.fleet.simulated import KEYS, PAST, TOP, Client, Repository
from vedette.fleet.trust import Trust, TrustRefused

NOT_OURS = {
    "implicit_refresh": "an agent fetches only what the documents in force name",
    "keytype_and_scheme": "fleets sign with Ed25519 alone",
    "static_repositories": "repositories of other programs, for clients that load over HTTP",
}


@pytest.fixture
def repository() -> Repository:
    return Repository()


@pytest.fixture
def client(tmp_path: Path, repository: Repository) -> Client:
    return Client(tmp_path / "agent", repository)


# --- one function a case


def basic_init_and_refresh(r: Repository, c: Client) -> None:
    c.refresh()
    assert r.asked[:4] == ["2.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json"]
    assert c.versions == (1, 1, 1, 1)


def timestamp_content_changes(r: Repository, c: Client) -> None:
    """Another content under the same version is not looked at."""
    c.refresh()
    r.signed["snapshot"].version = 100
    r.write("timestamp")
    c.refresh()
    kept = Metadata.from_file(str(c.folder / "tuf" / "timestamp.json"))
    assert kept.signed.snapshot_meta.version == 1  # type: ignore[attr-defined]  # a Timestamp


def new_targets_hash_mismatch(r: Repository, c: Client) -> None:
    r.hashes = True
    r.publish("targets")
    c.refresh()
    r.publish("targets")
    r.signed["targets"].unrecognized_fields["later"] = 1
    r.write("targets")  # the snapshot has the hash of what was there before
    c.refuse("length or hash")
    assert (c.version("snapshot"), c.version("targets")) == (3, 2)


def new_targets_version_mismatch(r: Repository, c: Client) -> None:
    """Targets that no snapshot names are not taken."""
    c.refresh()
    r.next("targets")
    c.refresh()
    assert c.versions == (1, 1, 1, 1)


def invalid_initial_root(r: Repository, c: Client) -> None:
    document = json.loads(r.files["1.root.json"])
    del document["signed"]["version"]
    with pytest.raises(TrustRefused):
        Trust(c.folder / "new", "plants", json.dumps(document).encode()).refresh(r)
    assert r.asked == []


def unsigned_initial_root(r: Repository, c: Client) -> None:
    document = json.loads(r.files["1.root.json"])
    document["signatures"][0]["sig"] = "ab" * 64
    with pytest.raises(TrustRefused) as caught:
        Trust(c.folder / "new", "plants", json.dumps(document).encode()).refresh(r)
    assert caught.value.kind == "signatures"
    assert r.asked == []


def custom_fields(r: Repository, c: Client) -> None:
    """What nobody knows is signed with the rest, and harms nothing."""
    c.refresh()
    for signed in r.signed.values():
        signed.unrecognized_fields["x-other"] = {"a": [1, None]}
    keyid = r.root.roles["root"].keyids[0]
    r.root.keys[keyid].unrecognized_fields["x-key"] = True
    r.root.roles["root"].unrecognized_fields["x-role"] = "y"
    r.publish("root", "targets", "rollout")
    c.refresh()
    assert c.versions == (2, 2, 2, 2)


def simple_snapshot_rollback(r: Repository, c: Client) -> None:
    """The timestamp names version 2, which is here: an older file of the snapshot is not asked for."""
    r.publish()
    c.refresh()
    r.files["2.snapshot.json"] = r.files["1.snapshot.json"]
    c.refresh()
    assert c.version("snapshot") == 2
    assert not any("snapshot" in name for name in r.asked)


def new_timestamp_version_rollback(r: Repository, c: Client) -> None:
    older = r.files["timestamp.json"]
    r.publish()
    c.refresh()
    r.files["timestamp.json"] = older
    c.refuse("rollback")
    assert c.version("timestamp") == 2


def _snapshot_rollback(r: Repository, c: Client, *, hashes: bool) -> None:
    r.hashes = hashes
    r.publish()
    c.refresh()
    r.signed["snapshot"].version = 1
    r.next("timestamp")
    c.refuse("rollback")
    assert (c.version("timestamp"), c.version("snapshot")) == (2, 2)


def _targets_rollback(r: Repository, c: Client, *, hashes: bool) -> None:
    r.hashes = hashes
    r.publish("targets")
    r.publish("targets")
    c.refresh()
    r.signed["targets"].version = 1
    r.write("targets")
    r.publish()
    c.refuse("rollback")
    assert c.version("targets") == 3


def new_timestamp_fast_forward_recovery(r: Repository, c: Client) -> None:
    """A thief of the key used up versions; a root with another key lets them begin again."""
    r.signed["timestamp"].version = 99_998
    r.next("timestamp")
    c.refresh()
    assert c.version("timestamp") == 99_999
    r.rotate("timestamp")
    r.signed["timestamp"].version = 1
    r.write("timestamp")
    c.refresh()
    assert c.version("timestamp") == 1


def new_snapshot_fast_forward_recovery(r: Repository, c: Client) -> None:
    r.signed["snapshot"].version = 99_998
    r.publish()
    c.refresh()
    assert c.version("snapshot") == 99_999
    r.rotate("snapshot", "timestamp")
    r.signed["snapshot"].version = 0
    r.publish()
    c.refresh()
    assert c.version("snapshot") == 1


def new_targets_fast_forward_recovery(r: Repository, c: Client) -> None:
    r.signed["targets"].version = 99_998
    r.publish("targets")
    c.refresh()
    assert c.version("targets") == 99_999
    r.rotate("snapshot")
    r.signed["targets"].version = 0
    r.publish("targets")
    c.refresh()
    assert c.version("targets") == 1


def new_snapshot_version_mismatch(r: Repository, c: Client) -> None:
    """The file that the timestamp names holds another version."""
    r.publish()
    r.files["2.snapshot.json"] = r.files["1.snapshot.json"]
    c.refuse("rollback")
    assert c.versions == (1, 2, 0, 0)


def root_has_keys_but_not_snapshot(r: Repository, c: Client) -> None:
    """Keys that the root names and that did not sign reach no threshold."""
    c.refresh()
    r.entrust("snapshot", [KEYS[one] for one in "abc"], 3)
    r.signers["snapshot"].pop()
    r.publish("root")
    c.refuse("signatures")
    assert (c.version("root"), c.version("snapshot")) == (2, 1)
    r.signers["snapshot"].append(KEYS["c"])
    r.publish()
    c.refresh()
    assert c.version("snapshot") == 3


def wrong_hashing_algorithm(r: Repository, c: Client) -> None:
    """What a key says of hashes is no part of the specification."""
    for key in r.root.keys.values():
        key.unrecognized_fields["keyid_hash_algorithms"] = ["md5"]
    r.publish("root")
    c.refresh()
    assert c.versions == (2, 2, 2, 1)


def snapshot_threshold(r: Repository, c: Client) -> None:
    """A threshold above the number of keys is never met."""
    c.refresh()
    r.entrust("snapshot", [KEYS[one] for one in "abcde"], 6)
    r.publish("root")
    c.refuse("signatures")
    assert c.version("snapshot") == 1


def duplicate_keys_root(r: Repository, c: Client) -> None:
    """One key under several key ids is one signature."""
    c.refresh()
    signer = KEYS["a"]
    r.entrust("snapshot", [signer], 2)
    key = signer.public_key
    ids = [key.keyid, "1" * 64]
    r.root.add_key(SSlibKey(ids[1], key.keytype, key.scheme, dict(key.keyval)), "snapshot")
    r.publish("root")
    made = Metadata.from_bytes(r.files["2.snapshot.json"])
    one = made.signatures[ids[0]].signature
    made.signatures = {keyid: Signature(keyid, one) for keyid in ids}
    r.files["2.snapshot.json"] = made.to_bytes()
    c.refuse("keys")


def _expired(role: str) -> Callable[[Repository, Client], None]:
    def case(r: Repository, c: Client) -> None:
        c.refresh()
        before = c.versions
        r.signed[role].expires = PAST
        r.publish(*([role] if role in ("root", "targets", "rollout") else []))
        c.refuse("expired")
        if role == "root":  # which is kept, so that the next one is found
            before = (2, *before[1:])
        assert c.version(role) == dict(zip((*TOP, "rollout"), (*before, 1), strict=True))[role]

    return case


def _outdated(role: str) -> Callable[[Repository, Client], None]:
    """What an agent keeps has expired, and newer metadata have not: they are taken."""

    def case(r: Repository, c: Client) -> None:
        r.add("rollout/first", b"first", "rollout")
        r.publish("rollout")
        c.refresh()
        c.age(role)
        r.publish("targets", "rollout")
        c.refresh()
        assert (c.version("timestamp"), c.version("targets"), c.version("rollout")) == (3, 2, 3)

    return case


def expired_local_delegated_targets(r: Repository, c: Client) -> None:
    """Where there is no newer one, the expired one is not gone by."""
    c.refresh()
    c.age("rollout")
    r.signed["rollout"].expires = PAST
    r.write("rollout")
    c.refuse("expired")


def client_downloads_expected_file(r: Repository, c: Client, path: str = "file.txt") -> None:
    r.add(path, b"content")
    r.publish("targets")
    c.refresh()
    assert c.download(path, b"content") == b"content"


def client_downloads_expected_file_in_sub_dir(r: Repository, c: Client) -> None:
    client_downloads_expected_file(r, c, "path/to/a/file.txt")


def repository_substitutes_target_file(r: Repository, c: Client) -> None:
    client_downloads_expected_file(r, c)
    for sha256 in r.blobs:
        r.blobs[sha256] = b"malice!"
    with pytest.raises(TrustRefused) as caught:
        c.download("file.txt", b"content")
    assert caught.value.kind == "length or hash"


def multiple_changes_to_target(r: Repository, c: Client) -> None:
    """Of many versions of a file the agent gets what is signed now, and refuses the one before."""
    for n in range(7):
        data = b"content %d" % n
        r.add("file.txt", data)
        r.publish("targets")
        if n % 3:
            continue
        c.refresh()
        assert c.download("file.txt", data) == data
        with pytest.raises(TrustRefused) as caught:
            c.download("file.txt", b"content %d" % (n - 1))
        assert caught.value.kind == "mix"


CASES: dict[str, Callable[[Repository, Client], None]] = {
    **{
        case.__name__: case
        for case in (
            basic_init_and_refresh, timestamp_content_changes, new_targets_hash_mismatch, new_targets_version_mismatch,
            invalid_initial_root, unsigned_initial_root, custom_fields, simple_snapshot_rollback,
            new_timestamp_version_rollback, new_timestamp_fast_forward_recovery, new_snapshot_fast_forward_recovery,
            new_targets_fast_forward_recovery, new_snapshot_version_mismatch, root_has_keys_but_not_snapshot,
            wrong_hashing_algorithm, snapshot_threshold, duplicate_keys_root, expired_local_delegated_targets,
            client_downloads_expected_file, client_downloads_expected_file_in_sub_dir,
            repository_substitutes_target_file, multiple_changes_to_target,
        )
    },
    "timestamp_eq_versions_check": timestamp_content_changes,
    "snapshot_rollback[basic]": lambda r, c: _snapshot_rollback(r, c, hashes=False),
    "snapshot_rollback[with hashes]": lambda r, c: _snapshot_rollback(r, c, hashes=True),
    "targets_rollback[basic]": lambda r, c: _targets_rollback(r, c, hashes=False),
    "targets_rollback[with hashes]": lambda r, c: _targets_rollback(r, c, hashes=True),
    **{f"{role}_expired": _expired(role) for role in TOP},
    "delegated_targets_expired": _expired("rollout"),
    "expired_metadata": _outdated("timestamp"),
    "expired_local_delegated_targets_updates": _outdated("rollout"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_case(case: str, repository: Repository, client: Client) -> None:
    """As its name in the suite says."""
    CASES[case](repository, client)


def test_what_does_not_apply_is_named() -> None:
    """With its reason, in the decision."""
    text = (Path(__file__).parents[2] / "docs" / "decisions" / "0066-trust-of-the-fleet.md").read_text()
    assert [case for case in NOT_OURS if f"`{case}`" not in text] == []
    assert not {*NOT_OURS} & {*CASES}
