"""Attacks on what an agent trusts: each installs nothing, and the reason is named. Then what an honest centre does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.asking import OPERATORS
from tests.fleet.kit import DONE, FLEET, Centre, desired, group, named, overlay, rolled, target
from vedette.fleet.documents import Change
from vedette.fleet.operators import Operators
from vedette.fleet.trust import FolderSource, Missing, Trust, Trusted, TrustRefused
from vedette.region.repository import copied
from vedette.region.sign import load_key

ONE, TWO, THREE = (f'[log]\nlevel = "{level}"\n'.encode() for level in ("debug", "info", "error"))


@pytest.fixture
def centre(tmp_path: Path) -> Centre:
    made = Centre(tmp_path / "centre")
    made.publish(overlay(1, ONE), {"config/1.toml": ONE})
    return made


@pytest.fixture
def agent(centre: Centre, tmp_path: Path) -> Trust:
    """One that trusts the first publication."""
    made = Trust(tmp_path / "agent", FLEET, centre.root)
    assert serial(made.refresh(centre.source)) == 1
    return made


def serial(trusted: Trusted) -> int:
    assert trusted.desired is not None
    return trusted.desired.serial


def refused(agent: Trust, source: FolderSource, *kinds: str) -> str:
    """A refresh that is refused, and changes nothing."""
    before = agent.current()
    with pytest.raises(TrustRefused) as caught:
        agent.refresh(source)
    assert caught.value.kind in kinds, str(caught.value)
    assert agent.current().desired == before.desired
    assert agent.current().rollout == before.rollout
    return str(caught.value)


def online(centre: Centre, role: str) -> Ed25519PrivateKey:
    return load_key(centre.folder / "online" / f"{role}.pem")


def test_an_honest_publication(centre: Centre, agent: Trust) -> None:
    """Documents and files come through; a file is fetched by what the documents in force name."""
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO}, rolled(1, c2=DONE))
    found = agent.refresh(centre.source)
    assert (serial(found), found.rollout and found.rollout.serial) == (2, 1)
    assert found.versions == {"root": 1, "timestamp": 3, "snapshot": 3, "targets": 3, "rollout": 2}
    assert found.expires < found.root_expires
    assert agent.fetch(target("config/2.toml", TWO), centre.source) == TWO
    assert agent.length(target("config/2.toml", TWO)) == len(TWO)
    assert agent.refresh(centre.source) == found
    assert not list((agent._folder).glob("**/.*"))


def test_a_restart_trusts_what_it_had(centre: Centre, agent: Trust, tmp_path: Path) -> None:
    """After a restart, without any connection, the same is in force."""
    again = Trust(tmp_path / "agent", FLEET, centre.root)
    assert again.current() == agent.current()


@pytest.mark.parametrize("thief", ["operator", "root", "snapshot", "timestamp", "rollout", "nobody"])
def test_one_stolen_key_signs_no_targets(centre: Centre, agent: Trust, thief: str) -> None:
    """One of three operators' keys, one root key, each online key: none makes an agent take other targets, even where
    the thief has all online keys as well."""
    key = {
        "operator": centre.operators[2],
        "root": centre.roots[0],
        "nobody": Ed25519PrivateKey.generate(),
        **{role: online(centre, role) for role in ("snapshot", "timestamp", "rollout")},
    }[thief]
    evil = centre.repository.stage_desired(overlay(9, TWO), {"config/9.toml": TWO})
    centre.write("targets", evil)
    centre.forge("targets", key)
    centre.repository._commit_online()
    refused(agent, centre.source, "signatures")


@pytest.mark.parametrize("times", [2, 3])
def test_one_key_counts_once(centre: Centre, agent: Trust, times: int) -> None:
    """The same signature given several times is one signature."""
    evil = centre.repository.stage_desired(overlay(9, TWO), {"config/9.toml": TWO})
    centre.write("targets", evil)
    centre.forge("targets", centre.operators[0])
    path = centre.folder / "tuf" / "3.targets.json"
    document = json.loads(path.read_bytes())
    document["signatures"] *= times
    path.write_bytes(json.dumps(document).encode())
    centre.repository._commit_online()
    refused(agent, centre.source, "metadata", "signatures")


def test_a_stolen_controller_chooses_only_what_operators_signed(centre: Centre, agent: Trust) -> None:
    """With the rollout key an attacker signs rollout.json and nothing else: a desired document in that role is not
    looked at, nor any other file."""
    one = centre.repository.newest("rollout")
    assert one is not None
    evil = overlay(9, TWO).to_bytes()
    for path, data in (("desired.json", evil), ("config/9.toml", TWO)):
        one.signed.targets[path] = centre.repository._file(path, data, version=9)
    one.signed.version += 1
    centre.write("rollout", one)
    centre.forge("rollout", online(centre, "rollout"), targets=one.signed.targets)
    centre.repository._commit_online()
    assert serial(agent.refresh(centre.source)) == 1
    with pytest.raises(TrustRefused, match="not among the signed targets"):
        agent.fetch(target("config/9.toml", TWO), centre.source)


def test_freeze(tmp_path: Path) -> None:
    """Metadata that are not renewed end: an agent says when, and takes nothing under them."""
    centre = Centre(tmp_path / "centre", now=1_700_000_000_000_000)
    agent = Trust(tmp_path / "agent", FLEET, centre.root)
    assert "expired" in refused(agent, centre.source, "expired")
    assert agent.current().expires < 1_900_000_000_000_000


def test_an_expired_timestamp_stops_fetching(centre: Centre, agent: Trust) -> None:
    """What was in force stays, but no file is fetched under a timestamp that has expired."""
    centre.forge("timestamp", online(centre, "timestamp"), version=3, expires=datetime(2026, 1, 1))
    refused(agent, centre.source, "expired")
    assert serial(agent.current()) == 1


@pytest.mark.parametrize("role", ["root", "timestamp", "snapshot", "targets", "rollout"])
def test_each_role_expires(centre: Centre, tmp_path: Path, role: str) -> None:
    """One expired file is enough."""
    keys = {"root": centre.roots[:2], "targets": centre.operators[:2]}.get(role) or [online(centre, role)]
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO}, rolled(1))
    centre.forge(role, *keys, expires=datetime(2026, 1, 1))
    if role not in ("root", "timestamp"):
        seal(centre, role)
    root = (centre.folder / "tuf" / "1.root.json").read_bytes()
    agent = Trust(tmp_path / "agent", FLEET, root)
    with pytest.raises(TrustRefused) as caught:
        agent.refresh(centre.source)
    assert caught.value.kind == "expired"


def seal(centre: Centre, role: str) -> None:
    """Sign snapshot and timestamp over files that were written by hand; a bent snapshot itself is only pointed at."""
    if role != "snapshot":
        centre.repository._commit_online()
        return
    one = centre.repository.newest("timestamp")
    assert one is not None
    meta = one.signed.snapshot_meta
    meta.length, meta.hashes = None, None
    centre.forge("timestamp", online(centre, "timestamp"), snapshot_meta=meta)


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_rollback(centre: Centre, agent: Trust, tmp_path: Path, role: str) -> None:
    """Older metadata, once good, are refused after newer ones, also by an agent that was restarted; a thief of online
    keys who signs older versions as new gets no further."""
    old = tmp_path / "old"
    copied(centre.repository, old)
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    assert serial(agent.refresh(centre.source)) == 2
    restarted = Trust(tmp_path / "agent", FLEET, centre.root)
    if role == "timestamp":
        refused(restarted, FolderSource(old), "rollback")
        return
    if role == "snapshot":
        one = centre.repository.newest("timestamp")
        assert one is not None
        one.signed.snapshot_meta.version = 2
        centre.forge("timestamp", online(centre, "timestamp"), version=9, snapshot_meta=one.signed.snapshot_meta)
    else:
        one = centre.repository.newest("snapshot")
        assert one is not None
        one.signed.meta["targets.json"].version = 2
        centre.forge("snapshot", online(centre, "snapshot"), version=9, meta=one.signed.meta)
        stamp = centre.repository.newest("timestamp")
        assert stamp is not None
        meta = stamp.signed.snapshot_meta
        meta.version, meta.length, meta.hashes = 9, None, None
        centre.forge("timestamp", online(centre, "timestamp"), version=9, snapshot_meta=meta)
    refused(restarted, centre.source, "rollback")


def test_rollback_where_the_metadata_were_lost(centre: Centre, agent: Trust, tmp_path: Path) -> None:
    """Without python-tuf's files (a damaged disk) the documents' own serials still refuse older ones."""
    old = tmp_path / "old"
    copied(centre.repository, old)
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    agent.refresh(centre.source)
    shutil.rmtree(tmp_path / "agent" / "tuf")
    restarted = Trust(tmp_path / "agent", FLEET, centre.root)
    assert "serial 1" in refused(restarted, FolderSource(old), "rollback")


def test_a_rollout_begins_again_with_the_next_desired_document(centre: Centre, agent: Trust) -> None:
    """A thief of the controller's key who used up the serials blocks no fleet: operators sign the next document."""
    centre.repository.commit(rolled(2**52))
    assert agent.refresh(centre.source).rollout == rolled(2**52)
    centre.repository.commit(rolled(3))
    refused(agent, centre.source, "rollback")
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO}, rolled(1))
    assert agent.refresh(centre.source).rollout == rolled(1)


def test_mix_and_match(centre: Centre, agent: Trust, tmp_path: Path) -> None:
    """Files of two publications do not fit together: the snapshot names the versions, the timestamp its digest."""
    older = (centre.folder / "tuf" / "2.targets.json").read_bytes()
    snapshot = (centre.folder / "tuf" / "2.snapshot.json").read_bytes()
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    mixed = tmp_path / "mixed"
    copied(centre.repository, mixed)
    (mixed / "tuf" / "3.targets.json").write_bytes(older)
    refused(agent, FolderSource(mixed), "rollback", "length or hash", "metadata")
    copied(centre.repository, mixed)
    (mixed / "tuf" / "3.snapshot.json").write_bytes(snapshot)
    with pytest.raises(TrustRefused) as caught:
        Trust(tmp_path / "fresh", FLEET, centre.root).refresh(FolderSource(mixed))
    assert caught.value.kind == "length or hash"


def test_another_fleet(centre: Centre, agent: Trust, tmp_path: Path) -> None:
    """Metadata of another fleet are signed by others; where two fleets have the same keys, files and documents name
    theirs."""
    other = Centre(tmp_path / "other", fleet="ships")
    other.publish(overlay(5, TWO, fleet="ships"), {"config/5.toml": TWO})
    refused(agent, other.source, "signatures")
    shared = Centre(tmp_path / "shared", fleet="ships", roots=centre.roots, operators=centre.operators)
    shared.publish(overlay(5, TWO, fleet="ships"), {"config/5.toml": TWO})
    misled = Trust(tmp_path / "misled", FLEET, shared.root)
    with pytest.raises(TrustRefused, match="fleet 'ships', this is fleet 'plants'") as caught:
        misled.refresh(shared.source)
    assert caught.value.kind == "fleet"


def test_a_document_of_another_fleet(centre: Centre, agent: Trust) -> None:
    """Signed and named for this fleet by mistake, the document itself still says whose it is."""
    centre.publish(overlay(5, TWO, fleet="ships"), {"config/5.toml": TWO})
    refused(agent, centre.source, "document")


class Endless:
    """Every file without end, as far as anybody reads."""

    read = 0

    def metadata(self, name: str) -> bytes | None:
        if ".root." in name:
            return None
        self.read += 1
        return b"{" + b" " * (8 << 20)

    def blob(self, sha256: str) -> bytes | None:
        return b"x" * (8 << 20)


def test_endless_data(centre: Centre, agent: Trust) -> None:
    """A file beyond its bound is refused before it is parsed; a target beyond its signed length, too."""
    assert "exceeding" in refused(agent, Endless(), "length or hash")  # type: ignore[arg-type]  # a Source
    with pytest.raises(TrustRefused) as caught:
        agent.fetch(target("config/1.toml", ONE), Endless())
    assert caught.value.kind == "length or hash"


@pytest.mark.parametrize("bend", [lambda data: data[:-1], lambda data: data + b"\n", lambda data: data[:-1] + b"x"])
def test_wrong_length_or_hash(centre: Centre, agent: Trust, bend: Callable[[bytes], bytes]) -> None:
    """A file that is not the one signed, by a byte more, a byte less or another one."""
    for path in (centre.folder / "blobs").iterdir():
        path.write_bytes(bend(path.read_bytes()))
    with pytest.raises(TrustRefused) as caught:
        agent.fetch(target("config/1.toml", ONE), centre.source)
    assert caught.value.kind == "length or hash"


def test_a_document_that_disagrees_with_the_metadata(centre: Centre, agent: Trust) -> None:
    """The SHA-256 of a target in the document and that in the metadata must be the same."""
    with pytest.raises(TrustRefused) as caught:
        agent.fetch(target("config/1.toml", TWO), centre.source)
    assert caught.value.kind == "mix"


@pytest.mark.parametrize("name", ["timestamp.json", "3.snapshot.json", "3.targets.json", "2.rollout.json"])
def test_a_file_that_lacks_is_named(centre: Centre, agent: Trust, name: str) -> None:
    """What has not come yet is named; once it has, the refresh succeeds."""
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO}, rolled(1))
    path = centre.folder / "tuf" / name
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(Missing) as caught:
        agent.refresh(centre.source)
    assert caught.value.name == name
    path.write_bytes(data)
    assert serial(agent.refresh(centre.source)) == 2


def test_a_blob_that_lacks_is_named(centre: Centre, agent: Trust) -> None:
    """A target that has not come yet is named by its SHA-256."""
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    for path in (centre.folder / "blobs").iterdir():
        path.unlink()
    with pytest.raises(Missing, match=r"^[0-9a-f]{64} is missing"):
        agent.refresh(centre.source)
    assert serial(agent.current()) == 1


def rotate(centre: Centre, *signers: Ed25519PrivateKey, **how: Any) -> None:
    centre.repository.stage_root(**how)
    for key in signers:
        centre.repository.sign(key)
    centre.repository.commit()


def test_a_rotated_root_chain(centre: Centre, agent: Trust, tmp_path: Path) -> None:
    """An agent that was away follows every root in turn, to keys that it had never seen."""
    fresh = [Ed25519PrivateKey.generate() for _ in range(3)]
    rotate(centre, *centre.roots[:2], *fresh[:2], roles={"root": (named("root", fresh), 2)})
    newest = [Ed25519PrivateKey.generate() for _ in range(2)]
    rotate(centre, *fresh[1:], *newest, roles={"root": (named("root", newest), 1)})
    rotate(centre, newest[0])
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    found = agent.refresh(centre.source)
    assert (found.versions["root"], serial(found)) == (4, 2)
    assert serial(Trust(tmp_path / "new", FLEET, centre.root).refresh(centre.source)) == 2


def test_a_missing_root_stops_at_the_one_before(centre: Centre, agent: Trust) -> None:
    """Without root 2, root 3 is not reached: what only root 3's keys have signed is refused."""
    fresh = [Ed25519PrivateKey.generate() for _ in range(2)]
    rotate(centre, *centre.roots[:2], *fresh, roles={"targets": (named("operator", fresh), 2)})
    rotate(centre, *centre.roots[:2])
    centre.operators = fresh
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    path = centre.folder / "tuf" / "2.root.json"
    data = path.read_bytes()
    path.unlink()
    refused(agent, centre.source, "signatures")
    path.write_bytes(data)
    assert serial(agent.refresh(centre.source)) == 2


@pytest.mark.parametrize("signers", [(0,), (), (3, 4)])
def test_a_root_needs_both_thresholds(centre: Centre, agent: Trust, signers: tuple[int, ...]) -> None:
    """The next root is signed by thresholds of the old keys and of its own; a thief of one key makes none."""
    fresh = [Ed25519PrivateKey.generate() for _ in range(2)]
    keys = [*centre.roots, *fresh]
    centre.repository.stage_root(roles={"root": (named("root", fresh), 2)})
    for i in signers:
        centre.repository.sign(keys[i])
    with pytest.raises(ValueError, match="more signatures"):
        centre.repository.commit()
    staged = centre.repository.staged("root")
    assert staged is not None
    centre.write("root", staged)
    refused(agent, centre.source, "signatures", "metadata")


@pytest.mark.parametrize("role", ["snapshot", "timestamp", "rollout"])
def test_rotated_online_keys(centre: Centre, agent: Trust, role: str) -> None:
    """A stolen online key is replaced: what it signs afterwards is refused."""
    stolen = online(centre, role)
    rotate(centre, *(centre.operators if role == "rollout" else centre.roots)[:2], online=[role])
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO}, rolled(1))
    assert serial(agent.refresh(centre.source)) == 2
    assert online(centre, role).public_key() != stolen.public_key()
    centre.forge(role, stolen, version=50)
    if role != "timestamp":
        seal(centre, role)
        if role == "snapshot":
            one = centre.repository.newest("timestamp")
            assert one is not None
            one.signed.snapshot_meta.version = 50
            centre.forge("timestamp", online(centre, "timestamp"), version=60, snapshot_meta=one.signed.snapshot_meta)
    refused(agent, centre.source, "signatures", "length or hash")


def test_rotated_operators(centre: Centre, agent: Trust) -> None:
    """An operator who leaves signs nothing more."""
    fresh = [*centre.operators[1:], Ed25519PrivateKey.generate()]
    rotate(centre, *centre.roots[:2], *fresh[1:], roles={"targets": (named("operator", fresh), 2)})
    centre.repository.stage_desired(overlay(2, TWO), {"config/2.toml": TWO})
    with pytest.raises(ValueError, match="may sign"):
        centre.repository.sign(centre.operators[0])
    centre.operators = fresh
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    assert serial(agent.refresh(centre.source)) == 2


@pytest.mark.parametrize("name", ["timestamp.json", "3.snapshot.json", "3.targets.json", "2.root.json"])
def test_what_is_no_metadata(centre: Centre, agent: Trust, name: str, tmp_path: Path) -> None:
    """Any bytes in place of any file are refused, and none ends the agent."""
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})
    for number, data in enumerate((b"", b"{}", b"null", b"\xff", b"[" * 9000, b'{"signed": 1, "signatures": 2}')):
        (centre.folder / "tuf" / name).write_bytes(data)
        folder = shutil.copytree(tmp_path / "agent", tmp_path / f"agent-{number}")
        refused(Trust(folder, FLEET, centre.root), centre.source, "metadata", "length or hash", "signatures")


def test_no_root_of_trust(tmp_path: Path) -> None:
    """An agent does not begin with what is no root."""
    with pytest.raises(TrustRefused, match="root of trust"):
        Trust(tmp_path, FLEET, b"{}")


def test_a_torn_cache_is_fetched_again(centre: Centre, agent: Trust, tmp_path: Path) -> None:
    """Whatever file of the agent's folder is cut or empty, the next refresh gives the same trust."""
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO}, rolled(1))
    whole = agent.refresh(centre.source)
    files = [path for path in (tmp_path / "agent").rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) >= 7
    for path in files:
        for cut in (0, path.stat().st_size // 2):
            data = path.read_bytes()
            os.truncate(path, cut)
            assert Trust(tmp_path / "agent", FLEET, centre.root).refresh(centre.source) == whole, path
            path.write_bytes(data)


def test_warnings(tmp_path: Path) -> None:
    """What expires soon is named while there is time."""
    start = 1_795_824_000_000_000
    centre = Centre(tmp_path / "centre", now=start)
    assert centre.repository.warnings() == []
    centre.now = start + int(timedelta(days=80).total_seconds() * 1e6)
    assert [(one.role, one.expired) for one in centre.repository.warnings()] == [
        ("timestamp", True), ("snapshot", True), ("rollout", True), ("targets", False),
    ]  # fmt: skip
    assert centre.repository.commit()
    assert [one.role for one in centre.repository.warnings()] == ["targets"]
    assert not centre.repository.commit()


def test_bundles_by_two_groups(centre: Centre, agent: Trust) -> None:
    """Files of all groups are among the targets; a change keeps the file that it comes from."""
    old, new = b"old" * 100, b"new" * 100
    change = Change("c5", target("bundles/2", new, 2), target("bundles/1", old, 1))
    centre.publish(desired(2, group("a", bundles={"main": change})), {"bundles/1": old, "bundles/2": new})
    agent.refresh(centre.source)
    for path, data, version in (("bundles/1", old, 1), ("bundles/2", new, 2)):
        assert agent.fetch(target(path, data, version), centre.source) == data


def test_operators_come_and_go(centre: Centre, agent: Trust, tmp_path: Path) -> None:
    """Who may ask is signed by the operators' threshold: one signature makes nobody one, who is taken out stays out
    though older files are replayed, also to an agent that lost what TUF keeps."""
    assert agent.current().operators is None
    document = overlay(1, ONE)
    blobs = {"config/1.toml": ONE}
    centre.repository.stage_desired(document, blobs, replace(OPERATORS, serial=1))
    centre.repository.sign(centre.operators[0])
    with pytest.raises(ValueError, match="1 more signature"):
        centre.repository.commit()
    centre.repository.sign(centre.operators[1])
    centre.repository.commit()
    found = agent.refresh(centre.source).operators
    assert found is not None
    assert sorted(found.by_name) == ["ann", "otto", "past", "vera"]
    shutil.copytree(centre.folder, tmp_path / "old")
    left = {name: one for name, one in OPERATORS.by_name.items() if name != "otto"}
    centre.repository.stage_desired(document, {}, Operators(FLEET, 2, left))
    for key in centre.operators[:2]:
        centre.repository.sign(key)
    centre.repository.commit()
    found = agent.refresh(centre.source).operators
    assert found is not None
    assert sorted(found.by_name) == ["ann", "past", "vera"]
    refused(agent, FolderSource(tmp_path / "old"), "rollback")
    shutil.rmtree(tmp_path / "agent" / "tuf")
    again = Trust(tmp_path / "agent", FLEET, centre.root)
    refused(again, FolderSource(tmp_path / "old"), "rollback")
    kept = again.current().operators
    assert kept is not None
    assert "otto" not in kept.by_name
    centre.publish(overlay(2, TWO), {"config/2.toml": TWO})  # which says nothing of operators
    kept = again.refresh(centre.source).operators
    assert kept is not None
    assert kept.serial == 2
