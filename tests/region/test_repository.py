"""The centre's folder of metadata: a commit that is killed anywhere, and what it leaves to agents."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tuf.api.metadata import Metadata

from tests.fleet.kit import DAY, DONE, FLEET, Centre, desired, group, named, overlay, rolled, target
from vedette.fleet.documents import Change, Desired, Progress, State
from vedette.fleet.trust import Trust, TrustRefused
from vedette.region import repository as module
from vedette.region.prune import KEPT
from vedette.system.wallclock import utc_now

ONE, TWO = b'[log]\nlevel = "debug"\n', b'[log]\nlevel = "error"\n'


@pytest.mark.parametrize("steps", range(4))
def test_a_commit_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """After any of its writes an agent has the older document or the newer one, and committing again finishes it."""
    centre = Centre(tmp_path / "centre")
    centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    agent = Trust(tmp_path / "agent", FLEET, centre.root)
    agent.refresh(centre.source)
    centre.repository.stage_desired(overlay(2, TWO), {"config/2.toml": TWO})
    for key in centre.operators[:2]:
        centre.repository.sign(key)
    real, left = module.write_whole, steps

    def dying(*arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        real(*arguments)

    monkeypatch.setattr(module, "write_whole", dying)
    try:
        centre.repository.commit()
    except KeyboardInterrupt:
        assert steps < 3  # targets, snapshot, timestamp
    monkeypatch.undo()
    found = agent.refresh(centre.source)
    assert found.desired is not None
    assert found.desired.serial == (1 if steps < 3 else 2)
    centre.repository.commit()
    found = agent.refresh(centre.source)
    assert found.desired is not None
    assert found.desired.serial == 2
    assert centre.repository.signatures() == []


def test_the_controller_advances_while_signatures_are_collected(tmp_path: Path) -> None:
    """A roll-out document goes in force, agents take it, and what is staged stays staged."""
    centre = Centre(tmp_path / "centre")
    centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    centre.repository.stage_desired(overlay(2, TWO), {"config/2.toml": TWO})
    centre.repository.sign(centre.operators[0])
    assert centre.repository.advance(rolled(1, c1=DONE))
    assert not centre.repository.advance()
    found = Trust(tmp_path / "agent", FLEET, centre.root).refresh(centre.source)
    assert found.desired is not None
    assert (found.desired.serial, found.rollout) == (1, rolled(1, c1=DONE))
    assert [one.missing for one in centre.repository.signatures()] == [1]


def test_what_nobody_needs_is_pruned(tmp_path: Path) -> None:
    """Of many changes the newest versions stay, and the files that they, the roll-out or what is staged name; what a
    change goes back to is among them. An agent that was away since the first, over a change of keys, takes the newest,
    one that comes in the middle, too, and roots stay all."""
    centre = Centre(tmp_path / "centre", now=utc_now())
    folder = centre.folder
    centre.publish(overlay(1, b"# 1"), {"config/1.toml": b"# 1"}, rolled(1, c1=DONE))
    away = Trust(tmp_path / "away", FLEET, centre.root)
    away.refresh(centre.source)
    centre.repository.stage_root(roles={"targets": (named("operator", centre.operators[1:]), 2)})
    for key in (*centre.roots[:2], *centre.operators[1:]):
        centre.repository.sign(key)
    centre.repository.commit()
    staged, seen = b"# staged", set[Path]()
    for serial in range(2, 40):
        centre.now += DAY
        data, before = (b"# %d" % one for one in (serial, serial - 1))
        to, from_ = target(f"config/{serial}.toml", data), target(f"config/{serial - 1}.toml", before)
        document = desired(serial, group("everyone", config=Change(f"c{serial}", to, from_)))
        centre.repository.stage_desired(document, {to.target: data})
        for key in centre.operators[1:]:
            centre.repository.sign(key)
        centre.repository.commit(rolled(serial, **{f"c{serial}": Progress(State.ROLLING, 0)}))
        for path in {*(folder / "tuf").iterdir()} - seen:  # as old as it would be by this clock
            os.utime(path, (centre.now / 1e6, centre.now / 1e6))
            seen.add(path)
        found = Trust(tmp_path / f"fresh-{serial}", FLEET, centre.root).refresh(centre.source)
        assert found.desired is not None
        for one in (to, from_):
            assert hashlib.sha256((folder / "blobs" / one.sha256).read_bytes()).hexdigest() == one.sha256
    counts = [len([*(folder / "tuf").glob(f"*.{role}.json")]) for role in ("root", "targets", "rollout", "snapshot")]
    assert counts[0] == 2
    assert all(30 <= count <= 33 for count in counts[1:])
    centre.repository.stage_desired(overlay(99, staged), {"config/99.toml": staged})
    centre.now += 60 * DAY
    assert centre.repository.advance()
    counts = [len([*(folder / "tuf").glob(f"*.{role}.json")]) for role in ("root", "targets", "rollout", "snapshot")]
    assert counts == [2, KEPT, KEPT, KEPT]
    blobs = {path.name for path in (folder / "blobs").iterdir()}
    assert hashlib.sha256(staged).hexdigest() in blobs
    assert hashlib.sha256(b"# 2").hexdigest() not in blobs
    assert len(blobs) <= 3 * (KEPT + 1) + 1
    assert away.refresh(centre.source).desired == centre.repository.desired()
    assert [row["event"] for row in centre.repository.audit.lines()].count("fleet_pruned") >= 1


@pytest.mark.parametrize("steps", [0, 9, 21, 40])
def test_pruning_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Whatever was deleted by then: agents find what is in force, and the next one finishes it."""
    centre = Centre(tmp_path / "centre", now=utc_now())
    folder = centre.folder
    for serial in range(1, KEPT + 8):
        data = b"# %d" % serial
        centre.publish(overlay(serial, data), {f"config/{serial}.toml": data}, rolled(serial))
    centre.now += 20 * DAY
    for path in (folder / "tuf").iterdir():
        os.utime(path, (0, 0))
    real, left = Path.unlink, steps

    def dying(path: Path, missing_ok: bool = False) -> None:
        nonlocal left
        if path.parent.name in ("tuf", "blobs"):
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", dying)
    with suppress(KeyboardInterrupt):
        centre.repository.advance()
    monkeypatch.undo()
    found = Trust(tmp_path / "agent", FLEET, centre.root).refresh(centre.source)
    assert found.desired == centre.repository.desired()
    centre.now += DAY
    assert centre.repository.advance()
    assert len([*(folder / "tuf").glob("*.targets.json")]) == KEPT
    for path in (folder / "tuf").glob("*.targets.json"):
        for one in Metadata.from_file(str(path)).signed.targets.values():
            assert (folder / "blobs" / one.hashes["sha256"]).exists()


def test_damaged_metadata_delete_no_file(tmp_path: Path) -> None:
    """What an unreadable version names is unknown: files stay, that is recorded, and what is in force goes on."""
    centre = Centre(tmp_path / "centre", now=utc_now())
    for serial in range(1, 4):
        centre.publish(overlay(serial, b"# %d" % serial), {f"config/{serial}.toml": b"# %d" % serial})
    kept = {path.name for path in (centre.folder / "blobs").iterdir()}
    (centre.folder / "tuf" / "2.targets.json").write_bytes(b"{")
    centre.now += 30 * DAY
    assert centre.repository.advance()
    assert kept <= {path.name for path in (centre.folder / "blobs").iterdir()}
    [row] = [row for row in centre.repository.audit.lines() if row["event"] == "fleet_not_pruned"]
    assert "2.targets.json: not a file of metadata" in row["reason"]


def test_lookups_of_a_staged_document_stay(tmp_path: Path) -> None:
    """Those of the documents in force and staged; others go, and so does what a killed copy left."""
    centre = Centre(tmp_path / "centre", now=utc_now())
    folder = centre.folder / "lookups"
    folder.mkdir()

    def of(serial: int, to: bytes, from_: bytes) -> Desired:
        change = Change(f"c{serial}", target(f"lookups/{serial}", to), target(f"lookups/{serial - 1}", from_))
        return desired(serial, group("everyone", lookups={"staff": change}))

    heads = [b"head %d" % n for n in range(4)]
    files = [folder / f"{hashlib.sha256(head).hexdigest()}.vlookup" for head in heads]
    for path in (*files, folder / "x.tmp"):
        path.write_bytes(b"a table")
    centre.publish(of(1, heads[1], heads[0]), {"lookups/1": heads[1], "lookups/0": heads[0]})
    centre.repository.stage_desired(of(2, heads[2], heads[1]), {"lookups/2": heads[2]})
    centre.now += 30 * DAY
    assert centre.repository.advance()
    assert sorted(folder.iterdir()) == sorted(files[:3])


def test_what_a_commit_refuses(tmp_path: Path) -> None:
    """Without enough signatures nothing changes; what is discarded is forgotten."""
    centre = Centre(tmp_path / "centre")
    centre.repository.stage_desired(overlay(1, ONE), {"config/1.toml": ONE})
    centre.repository.sign(centre.operators[0])
    with pytest.raises(ValueError, match="needs 1 more signatures"):
        centre.repository.commit()
    centre.repository.discard()
    assert not centre.repository.commit()
    assert centre.repository.desired() is None
    with pytest.raises(TrustRefused, match="root of trust"):
        Trust(tmp_path / "agent", FLEET, b"")


@pytest.mark.parametrize("role", ["rollout", "snapshot", "timestamp"])
def test_a_lost_online_key(tmp_path: Path, role: str) -> None:
    """Nothing is begun without it; the message says how it is replaced, and that works."""
    centre = Centre(tmp_path / "centre")
    (centre.folder / "online" / f"{role}.pem").unlink()
    centre.repository.stage_desired(overlay(1, ONE), {"config/1.toml": ONE})
    for key in centre.operators[:2]:
        centre.repository.sign(key)
    before = sorted((centre.folder / "tuf").iterdir())
    with pytest.raises(FileNotFoundError, match=f"fleet rotate --online {role}"):
        centre.repository.commit()
    assert sorted((centre.folder / "tuf").iterdir()) == before
    centre.repository.discard()
    centre.repository.stage_root(online=[role])
    for key in (*centre.roots[:2], *centre.operators[:2]):
        with suppress(ValueError):  # each signs what is staged for it
            centre.repository.sign(key)
    assert centre.repository.commit()
    centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    found = Trust(tmp_path / "agent", FLEET, centre.root).refresh(centre.source)
    assert found.desired is not None


def test_a_lost_or_damaged_file(tmp_path: Path) -> None:
    """Is named, with what to do, and never taken for what was signed."""
    centre = Centre(tmp_path / "centre")
    centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    [path] = [one for one in (centre.folder / "blobs").iterdir() if b"groups" in one.read_bytes()]
    path.write_bytes(path.read_bytes().replace(b"everyone", b"somebody"))
    with pytest.raises(ValueError, match=f"{path.name} was damaged"):
        centre.repository.desired()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{path.name} is missing"):
        centre.repository.desired()
