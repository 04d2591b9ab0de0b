"""Segments to a store and back: nothing lost, nothing twice, whatever the store does and whenever the agent dies."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tests.archive import s3, samples
from tests.archive.samples import AGENT, EVENTS, Life, events, filled, index, reach
from tests.rawlog.samples import NOW
from tests.settings import SegmentedLog
from vedette.archive import stores
from vedette.archive.archiver import Pace, Stopped, stored_rows
from vedette.archive.stores import FolderStore, open_store
from vedette.config.settings import ArchiveSettings
from vedette.model.event import RawRef
from vedette.rawlog.log import RawLog
from vedette.rawlog.read import Gap, event_at, search
from vedette.rawlog.segment import segments


@pytest.fixture
def mounted(tmp_path: Path) -> ArchiveSettings:
    (tmp_path / "mnt").mkdir()
    return ArchiveSettings(str(tmp_path / "mnt"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3]:
    with s3.s3(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.peer)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveSettings:
    """Of a folder, and of a bucket, empty below its prefix."""
    if request.param == "folder":
        (tmp_path / "mnt").mkdir()
        return ArchiveSettings(str(tmp_path / "mnt"))
    return _bucket(request.getfixturevalue("server"), tmp_path)


def _bucket(server: s3.S3, folder: Path) -> ArchiveSettings:
    server.proxy.mode, server.proxy.only, server.proxy.passes, server.proxy.slow = "pass", "", 0, 0.05
    server.key(s3.SECRET)
    return ArchiveSettings(f"s3://{s3.BUCKET}/{folder.name}", server.options)


def _objects(settings: ArchiveSettings) -> list[str]:
    return sorted(open_store(settings).keys(f"{AGENT}/"))


def _left(folder: Path, log: RawLog) -> int:
    """How many segments retention deletes."""
    before = len(segments(folder / "raw"))
    while log.retain(log.end, NOW, make_room=True):
        pass
    return before - len(segments(folder / "raw"))


def test_what_left_is_read_from_the_store(tmp_path: Path, settings: ArchiveSettings) -> None:
    """Search, time range and place give the same when all but the active segment has left the host."""
    life = Life(tmp_path, settings)
    log = filled(tmp_path, life.index)
    before = events(tmp_path / "raw")
    assert len(before) == EVENTS
    assert _left(tmp_path, log) == 0, "what is not archived stays, however full the disk"
    life.run(log)
    assert _left(tmp_path, log) > 5
    assert len(segments(tmp_path / "raw")) == 1
    whole = reach(tmp_path, settings)
    assert events(whole) == before
    offset, raw = before[3]
    assert event_at(whole, RawRef(log.log_id, offset, len(raw))) == raw
    whole = reach(tmp_path, settings)
    some = search(whole, since=NOW + 10_000_000, until=NOW + 12_000_000)
    assert [hit.raw for hit in some] == [raw for _, raw in before[10:12]]
    assert whole.fetched <= 2, "segments of other times are not fetched"
    log.close()


def test_an_archive_again_is_the_same(tmp_path: Path, settings: ArchiveSettings) -> None:
    """Archived again by a host that has lost its index, nothing is put twice; the rows come from the store."""
    life = Life(tmp_path, settings)
    log = filled(tmp_path, life.index)
    life.run(log)
    objects, rows = _objects(settings), life.index.rows()
    (tmp_path / "archive" / "index").unlink()
    life = Life(tmp_path, settings)
    assert life.index.rows() == []
    life.run(log)
    assert life.archiver.uploaded == 0
    assert (_objects(settings), life.index.rows()) == (objects, rows)
    assert sorted(objects) == sorted(f"{AGENT}/{row.segment}{end}" for row in rows for end in ("", ".json"))
    log.close()


def test_rows_survive_a_cut_line(tmp_path: Path, mounted: ArchiveSettings) -> None:
    """A line of the index that a crash has cut is not believed, and the next one takes its place."""
    life = Life(tmp_path, mounted)
    log = filled(tmp_path, life.index)
    life.run(log)
    path = tmp_path / "archive" / "index"
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    life = Life(tmp_path, mounted)
    life.run(log)
    assert life.archiver.uploaded == 0
    assert path.read_bytes() == data
    log.close()


def test_the_index_of_another_store_is_not_believed(tmp_path: Path, mounted: ArchiveSettings) -> None:
    """What one store has is not let go for it by the next one, whose index begins anew; the former lies beside it."""
    life = Life(tmp_path, mounted)
    log = filled(tmp_path, life.index)
    life.run(log)
    (tmp_path / "two").mkdir()
    life = Life(tmp_path, ArchiveSettings(str(tmp_path / "two")))
    assert life.index.rows() == []
    life.run(log)
    assert life.archiver.uploaded == len(log.final()) > 0
    assert (tmp_path / "archive" / "index.before").exists()
    log.close()


class Decaying(FolderStore):
    """Keeps as many bytes of one object as it is sent, but others."""

    def __init__(self, root: Path, key: str) -> None:
        super().__init__(root)
        self._key = key

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        super().put(key, (bytes(255 - byte for byte in piece) for piece in pieces) if key == self._key else pieces)


@pytest.mark.parametrize(
    ("ending", "said"), [("", "is not what was sent; the local copy stays"), (".json", "not the row of an archived")]
)
def test_other_bytes_of_the_same_size_are_not_believed(
    tmp_path: Path, mounted: ArchiveSettings, ending: str, said: str
) -> None:
    """Of a segment or its row. Those that a store keeps: the local copy stays. That lie there already: are replaced."""
    life = Life(tmp_path, mounted)
    log = filled(tmp_path, life.index)
    segment, key = log.final()[0].segment, f"{AGENT}/{log.final()[0].segment.path.name}"
    life.archiver.find(life.store)
    with pytest.raises(OSError, match=said):
        life.archiver.archive(segment, Decaying(tmp_path / "mnt", key + ending))
    assert not life.index.lets_go(segment.path.name)
    life.archiver.archive(segment, life.store)
    assert (tmp_path / "mnt" / key).read_bytes() == segment.path.read_bytes()
    refused: list[OSError] = []
    assert stored_rows(life.store, AGENT, refused.append) == life.index.rows()
    assert refused == []
    log.close()


def test_each_step_is_on_disk_before_the_next(
    tmp_path: Path, mounted: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest in the index, the object and its name, its row and its name, the state in the index."""
    life, steps, fsync = Life(tmp_path, mounted), list[str](), os.fsync
    log = filled(tmp_path, life.index)
    life.archiver.find(life.store)
    first, second = (one.segment for one in log.final()[:2])
    life.archiver.archive(first, life.store)

    def seen(descriptor: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    life.archiver.archive(second, life.store)
    name = second.path.name
    assert steps == ["index", f".{name}.tmp", AGENT, f".{name}.json.tmp", AGENT, "index"]
    log.close()


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("at", range(6))
def test_killed_between_two_steps(
    tmp_path: Path, mounted: ArchiveSettings, at: int, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life that ends before any step leaves one object a segment, and one digest for it."""
    if encrypted:
        pyrage = pytest.importorskip("pyrage")
        mounted = ArchiveSettings(mounted.url, recipient=str(pyrage.x25519.Identity.generate().to_public()))
    log = filled(tmp_path)
    life = Life(tmp_path, mounted)
    steps = iter(range(at, -1, -1))

    def killing(call: object, *arguments: object) -> object:
        if next(steps, 1) == 0:
            raise _Killed
        return call(*arguments)  # type: ignore[operator]

    store, own_index = life.store, life.index
    life.archiver.find(store)
    for owner, name in ((store, "put"), (store, "stat"), (own_index, "put")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *rest, real=real: killing(real, *rest))
    with pytest.raises(_Killed):
        life.run(log)
    monkeypatch.undo()
    before = {key: (tmp_path / "mnt" / key).read_bytes() for key in _objects(mounted)}
    life = Life(tmp_path, mounted)
    life.archiver.discard()
    life.run(log)
    after = {key: (tmp_path / "mnt" / key).read_bytes() for key in _objects(mounted)}
    assert before.items() <= after.items()
    assert len(after) == 2 * len(log.final())
    assert not [*(tmp_path / "archive").glob("*.age"), *(tmp_path / "archive").glob("*.tmp")]
    log.close()


def test_an_object_that_goes_bad_is_not_believed(tmp_path: Path, mounted: ArchiveSettings) -> None:
    """A changed object gives a gap that names it, not other events; the rest is read."""
    life = Life(tmp_path, mounted)
    log = filled(tmp_path, life.index)
    life.run(log)
    _left(tmp_path, log)
    row = life.index.rows()[1]
    path = tmp_path / "mnt" / AGENT / row.segment
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    gaps: list[Gap] = []
    found = [hit.raw for hit in search(reach(tmp_path, mounted), on_gap=gaps.append)]
    assert [gap.events for gap in gaps] == [row.events]
    assert "digest" in gaps[0].reason
    assert gaps[0].unreachable
    assert len(found) == EVENTS - row.events
    path.unlink()
    gaps.clear()
    list(search(reach(tmp_path, mounted), on_gap=gaps.append))
    assert "not found" in gaps[0].reason.lower() or "no such file" in gaps[0].reason.lower()
    log.close()


def test_a_folder_that_is_not_mounted_takes_nothing(tmp_path: Path) -> None:
    """Without its folder an archive fails; nothing goes to the disk below, and nothing leaves."""
    settings = ArchiveSettings(str(tmp_path / "mnt"))
    life = Life(tmp_path, settings)
    log = filled(tmp_path, life.index)
    with pytest.raises(OSError, match="mounted"):
        life.run(log)
    assert not (tmp_path / "mnt").exists()
    assert _left(tmp_path, log) == 0
    log.close()


def test_not_required_the_budget_counts(tmp_path: Path) -> None:
    """``required = false``: what the store does not take leaves as it would without an archive."""
    settings = ArchiveSettings(str(tmp_path / "mnt"), required=False)
    log = filled(tmp_path, index(tmp_path, settings))
    assert _left(tmp_path, log) > 5
    log.close()


def test_a_claimed_segment_is_not_compacted(tmp_path: Path, mounted: ArchiveSettings) -> None:
    """What is archived keeps its bytes."""
    life = Life(tmp_path, mounted)
    log = filled(tmp_path, life.index)
    life.run(log)
    data = {one.path.name: one.path.read_bytes() for one in segments(tmp_path / "raw")[:-1]}
    for _ in range(50):
        log.maintain(0, NOW)
    assert {one.path.name: one.path.read_bytes() for one in segments(tmp_path / "raw")[:-1]} == data
    log.close()


def test_the_pace_is_kept() -> None:
    """One second's worth goes at once, then as much as the rate allows; the end of the agent ends it."""
    now, ends = [0.0], [False]

    def wait(seconds: float) -> bool:
        now[0] += seconds
        return ends[0]

    pace = Pace(1000, wait, lambda: now[0])
    for _ in range(100):
        pace.take(100)
    assert 8.5 <= now[0] <= 9.5
    ends[0] = True
    with pytest.raises(Stopped):
        pace.take(1)


# --- an object store


# What is late and dead is waited for until its time is over, several times each.
@pytest.mark.peer
@pytest.mark.parametrize(
    "mode",
    ["500", "cut", "corrupt", "revoked"]
    + [pytest.param(mode, marks=pytest.mark.long) for mode in ("full", "half", "other", "slow", "late", "dead")],
)
def test_a_store_that_fails(
    tmp_path: Path, server: s3.S3, mode: s3.Mode | Literal["late"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors, a full bucket, uploads that are cut or lose their answer, other bytes that come or that are kept, a store
    that is slow, slower than the time it has, or dead, a key that is revoked: the local copy stays until the store has
    the right bytes, and then there is one object a segment."""
    settings = _bucket(server, tmp_path)
    if mode in ("late", "dead"):
        monkeypatch.setattr(stores, "REQUEST_SECONDS", 1)
    if mode == "late":
        mode, server.proxy.slow = "slow", 1.5
    direct = server.folder / "direct.toml"
    direct.write_text(server.options.read_text().replace(str(server.proxy.port), str(server.target)))

    def other(path: str) -> None:
        place = open_store(replace(settings, options_file=direct))
        place.put(path.partition("?")[0].split(f"/{tmp_path.name}/")[1], [b"something else"])

    server.proxy.other = other
    life = Life(tmp_path, settings)
    log = filled(tmp_path, life.index)
    before = events(tmp_path / "raw")
    life.archiver.find(life.store)
    server.proxy.mode, faults = mode, server.proxy.faults
    for one in log.final()[:3]:
        if mode == "slow" and server.proxy.slow < 1:
            life.archiver.archive(one.segment, life.store)
            continue
        with pytest.raises(OSError, match="seg"):
            life.archiver.archive(one.segment, life.store)
        assert not life.index.lets_go(one.segment.path.name)
    assert server.proxy.faults > faults
    server.proxy.mode = "pass"
    Life(tmp_path, settings, life.index).run(log)
    _left(tmp_path, log)
    assert len(segments(tmp_path / "raw")) == 1
    assert events(reach(tmp_path, settings)) == before
    assert len(_objects(settings)) == 2 * len(life.index.rows())
    log.close()


@pytest.mark.peer
def test_a_key_that_is_revoked_meanwhile(tmp_path: Path, server: s3.S3) -> None:
    """What was archived before stays so, and is not sent again with the new key; what was not waits for it."""
    settings = _bucket(server, tmp_path)
    life = Life(tmp_path, settings)
    log = filled(tmp_path, life.index)
    before = events(tmp_path / "raw")
    server.proxy.passes, server.proxy.mode = 12, "revoked"
    with pytest.raises(OSError, match="seg"):
        life.run(log)
    archived = life.index.rows()
    assert 0 < len(archived) < len(log.final())
    server.proxy.mode = "pass"
    server.proxy.requests.clear()
    Life(tmp_path, settings, life.index).run(log)
    sent = {path.rpartition("/")[2].partition("?")[0] for verb, path in server.proxy.requests if verb == "PUT"}
    assert not sent & {row.segment for row in archived}
    _left(tmp_path, log)
    assert events(reach(tmp_path, settings)) == before
    log.close()


@pytest.mark.peer
def test_a_key_that_is_revoked_and_renewed(tmp_path: Path, server: s3.S3) -> None:
    """Refused, it says so; the options file is read again."""
    settings = _bucket(server, tmp_path)
    log = filled(tmp_path)
    server.key("another-secret")
    with pytest.raises(OSError, match=r"privileges|SignatureDoesNotMatch"):
        Life(tmp_path, settings).run(log)
    server.key(s3.SECRET)
    life = Life(tmp_path, settings)
    life.run(log)
    assert len(life.index.rows()) == len(log.final())
    log.close()


@pytest.mark.peer
def test_large_objects_are_verified_by_their_tag(tmp_path: Path, server: s3.S3) -> None:
    """Of an upload in parts the ETag is that of the parts; nothing is read back."""
    settings = _bucket(server, tmp_path)
    big = SegmentedLog(max_bytes=1 << 30, segment_bytes=11 << 20)
    log = RawLog.open(tmp_path / "raw", big, samples.Counters(), clock=lambda: NOW)
    noise = random.Random(1)
    for i in range(24):
        log.append(samples.lines(noise.randbytes(1 << 20).replace(b"\n", b"x"), at=NOW + i))
    log.sync()
    while not log.final():  # compaction finds that it would gain nothing
        log.maintain(0, NOW)
    life = Life(tmp_path, settings)
    server.proxy.requests.clear()
    life.run(log)
    sizes = [row.stored_size for row in life.index.rows()]
    assert max(sizes) > 10 << 20
    assert not [path for verb, path in server.proxy.requests if verb == "GET" and path.endswith(".seg")]
    log.close()


@pytest.mark.peer
def test_encrypted_the_owner_reads_it(tmp_path: Path, server: s3.S3) -> None:
    """The host cannot read what it has encrypted, and says so; with the owner's identity it can."""
    pyrage = pytest.importorskip("pyrage")
    key = pyrage.x25519.Identity.generate()
    identity = tmp_path / "owner.txt"
    identity.write_text(f"# created for a test\n{key}\n")
    bucket = _bucket(server, tmp_path)
    settings = ArchiveSettings(bucket.url, bucket.options_file, recipient=str(key.to_public()))
    life = Life(tmp_path, settings)
    log = filled(tmp_path, life.index)
    before = events(tmp_path / "raw")
    life.run(log)
    _left(tmp_path, log)
    gaps: list[Gap] = []
    list(search(reach(tmp_path, settings), on_gap=gaps.append))
    assert sum(gap.events for gap in gaps) == sum(one.events for one in life.index.rows()) > EVENTS // 2
    assert all("--identity" in gap.reason for gap in gaps)
    assert events(reach(tmp_path, settings, identity)) == before
    row = life.index.rows()[0]
    store = open_store(settings)
    sealed = store.read(f"{AGENT}/{row.name}", 0, row.stored_size)
    assert sealed.startswith(b"age-encryption.org/v1\n")
    assert pyrage.decrypt(sealed, [key])[:8] == b"VEDSEG2\n"
    log.close()
