from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.bundle.conftest import CHANNEL, CREATED, DAY, FLEET, Author
from vedette.bundle.attempts import LIMIT, REST
from vedette.bundle.install import KEEP, BundleDir
from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import Bundle
from vedette.model.counters import Log


def plan_of(bundle: Bundle) -> bytes:
    return bundle.plan


def fails(bundle: Bundle) -> bytes:
    raise RuntimeError("rule r1 does not match its event")


@pytest.fixture
def bundles(tmp_path: Path, author: Author) -> BundleDir:
    return folder(tmp_path / "bundles", [author.public])


def folder(path: Path, trusted: Sequence[str], **more: Any) -> BundleDir:
    values = {"fleet": FLEET, "channel": CHANNEL, "agent_version": "0.1.0", "clock": lambda: CREATED + DAY}
    return BundleDir(path, trusted, **values | more)


def files(bundles: BundleDir) -> list[str]:
    return sorted(path.name for path in bundles.folder.iterdir() if not path.is_symlink())


def test_an_empty_folder(bundles: BundleDir) -> None:
    """Before the first bundle there is none to load."""
    assert bundles.current() is None
    assert bundles.load(plan_of) is None
    assert bundles.refused is None


def test_install_and_load(bundles: BundleDir, author: Author) -> None:
    """An installed bundle is current, in the next process too, and the one before it is previous."""
    assert bundles.install(author.bundle(1), plan_of) == b"plan of version 1"
    first = bundles.current()
    bundles.install(author.bundle(2), plan_of)
    again = folder(bundles.folder, bundles.trusted)
    loaded = again.load(plan_of)
    assert loaded is not None
    assert loaded[0].version == 2
    assert loaded[1] == b"plan of version 2"
    assert again.previous() == first


def test_a_refusal_is_in_the_log_before_it_is_shown(bundles: BundleDir, author: Author) -> None:
    """Who reads the reason in ``refused``, from another thread, finds it in the log as well."""
    shown: list[str | None] = []

    def look(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        shown.append(bundles.refused)
        return entry

    with capture_logs(processors=[look]) as logged, pytest.raises(BundleRefused):
        bundles.install(author.bundle(1)[:-9], plan_of)
    assert [entry["event"] for entry in logged] == [Log.BUNDLE_REFUSED]
    assert shown == [None]
    assert bundles.refused is not None


def test_a_refused_bundle_changes_nothing(bundles: BundleDir, author: Author, another: Callable[[], Author]) -> None:
    """A bad signature or an older version leaves the current bundle, and the reason stands in ``refused``."""
    bundles.install(author.bundle(2), plan_of)
    before = files(bundles)
    with pytest.raises(BundleRefused, match="trusted_keys"):
        bundles.install(another().bundle(3), plan_of)
    with pytest.raises(BundleRefused, match="older"):
        bundles.install(author.bundle(1), plan_of)
    assert bundles.refused is not None
    assert "older than the installed version 2" in bundles.refused
    assert files(bundles) == before


def test_a_failed_trial_leaves_no_trace(bundles: BundleDir, author: Author) -> None:
    """A bundle that fails its self-test is not switched to and does not stay on disk."""
    bundles.install(author.bundle(1), plan_of)
    before = files(bundles)
    with pytest.raises(BundleRefused, match="rule r1 does not match"):
        bundles.install(author.bundle(2), fails)
    assert files(bundles) == before
    assert bundles.load(plan_of) is not None
    bundles.install(author.bundle(2), plan_of)
    assert bundles.refused is None


def test_an_expired_bundle_keeps_judging(bundles: BundleDir, author: Author) -> None:
    """An installed bundle loads after it has expired; a new one that has expired is refused."""
    bundles.install(author.bundle(1), plan_of)
    bundles.clock = lambda: CREATED + 60 * DAY
    loaded = bundles.load(plan_of)
    assert loaded is not None
    assert loaded[0].expired(bundles.clock())
    with pytest.raises(BundleRefused, match="expired"):
        bundles.install(author.bundle(2), plan_of)


def damage(path: Path | None) -> None:
    assert path is not None
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def test_a_damaged_current_falls_back(bundles: BundleDir, author: Author) -> None:
    """When the current file is damaged the last good one runs and the reason is kept; a new push of it repairs it."""
    bundles.install(author.bundle(1), plan_of)
    bundles.install(author.bundle(2), plan_of)
    damage(bundles.current())
    loaded = bundles.load(plan_of)
    assert loaded is not None
    assert loaded[0].version == 1
    assert bundles.refused is not None
    assert "that were signed" in bundles.refused
    with pytest.raises(BundleRefused, match="older"):
        bundles.install(author.bundle(1), plan_of)
    bundles.install(author.bundle(2), plan_of)
    loaded = bundles.load(plan_of)
    assert loaded is not None
    assert loaded[0].version == 2
    previous = bundles.previous()
    assert previous is not None
    assert previous.name.startswith("1-")


def test_a_current_that_does_not_run_falls_back(bundles: BundleDir, author: Author) -> None:
    """When the trial of the current bundle fails at start the last good one runs; with both bad there is none."""
    bundles.install(author.bundle(1), plan_of)
    bundles.install(author.bundle(2), plan_of)

    def only_first(bundle: Bundle) -> bytes:
        return bundle.plan if bundle.version == 1 else fails(bundle)

    loaded = bundles.load(only_first)
    assert loaded is not None
    assert loaded[0].version == 1
    assert bundles.load(fails) is None


def test_a_key_taken_back(bundles: BundleDir, author: Author, another: Callable[[], Author]) -> None:
    """A bundle of a key that is no longer trusted does not load."""
    bundles.install(author.bundle(1), plan_of)
    later = folder(bundles.folder, [another().public])
    assert later.load(plan_of) is None


def test_few_files_stay(bundles: BundleDir, author: Author) -> None:
    """Old bundles and leftovers of a crash go."""
    for version in range(1, 7):
        bundles.install(author.bundle(version), plan_of)
    (bundles.folder / ".7-000000000000.vbundle.tmp").write_bytes(b"half")
    bundles.install(author.bundle(8), plan_of)
    assert len(files(bundles)) == KEEP
    assert files(bundles)[-1].startswith("8-")


@pytest.mark.parametrize("crash", range(1, 10))
def test_a_crash_at_any_step(bundles: BundleDir, author: Author, monkeypatch: pytest.MonkeyPatch, crash: int) -> None:
    """Whichever rename or fsync is the last one before a crash, the old or the new bundle is whole and current."""
    bundles.install(author.bundle(1), plan_of)
    bundles.install(author.bundle(2), plan_of)
    real, calls = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == crash:
            raise KeyboardInterrupt
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with contextlib.suppress(KeyboardInterrupt):
        bundles.install(author.bundle(3), plan_of)
    monkeypatch.setattr(os, "fsync", real)
    loaded = bundles.load(plan_of)
    assert loaded is not None
    assert loaded[0].version in (2, 3)
    assert bundles.refused is None
    assert bundles.previous() is not None
    bundles.install(author.bundle(4), plan_of)
    assert not list(bundles.folder.glob(".*.tmp"))


def test_a_rollback(bundles: BundleDir, author: Author) -> None:
    """The bundle before runs again, in the next process too; nothing up to the version gone back from is taken but what
    is current; a higher one is, and then it is as if nothing had been. Each step goes back one more."""
    for version in (1, 2, 3):
        bundles.install(author.bundle(version), plan_of)
    with capture_logs() as logged:
        assert bundles.rollback(plan_of)[1] == b"plan of version 2"
    assert [(entry["event"], entry["withdrawn"]) for entry in logged] == [(Log.BUNDLE_ROLLED_BACK, 3)]
    again = folder(bundles.folder, bundles.trusted)
    assert again.load(plan_of) is not None
    assert again.installed() is not None
    assert again.installed().version == 2  # type: ignore[union-attr]
    for version in (1, 3):
        with pytest.raises(BundleRefused, match="version 3 was rolled back on this agent"):
            again.install(author.bundle(version), plan_of)
    assert again.install(author.bundle(2), plan_of) == b"plan of version 2"  # the same again mends a damaged file
    assert again.rollback(plan_of)[0].version == 1
    assert again.withdrawn() == 3
    assert again.previous() is None
    assert again.install(author.bundle(4), plan_of) == b"plan of version 4"
    assert again.withdrawn() == 0
    assert again.rollback(plan_of)[0].version == 1


def test_a_rollback_to_nothing_that_works(bundles: BundleDir, author: Author) -> None:
    """Without an earlier bundle, or with one that does not run, nothing changes and nothing is withdrawn."""
    with pytest.raises(BundleRefused, match="no earlier bundle is kept"):
        bundles.rollback(plan_of)
    bundles.install(author.bundle(1), plan_of)
    with pytest.raises(BundleRefused, match="no earlier bundle is kept"):
        bundles.rollback(plan_of)
    bundles.install(author.bundle(2), plan_of)
    with pytest.raises(BundleRefused, match="does not match its event"):
        bundles.rollback(fails)
    assert (bundles.withdrawn(), bundles.installed().version) == (0, 2)  # type: ignore[union-attr]
    bundles.install(author.bundle(3), plan_of)


@pytest.mark.parametrize("crash", range(1, 7))
def test_a_crash_within_a_rollback(
    bundles: BundleDir, author: Author, monkeypatch: pytest.MonkeyPatch, crash: int
) -> None:
    """Whichever fsync is the last before a crash, one of the two bundles is current and loads; a rollback that is asked
    for again ends at the earlier one, and the one gone back from is refused."""
    for version in (1, 2, 3):
        bundles.install(author.bundle(version), plan_of)
    real, calls = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == crash:
            raise KeyboardInterrupt
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        bundles.rollback(plan_of)
    monkeypatch.setattr(os, "fsync", real)
    loaded = bundles.load(plan_of)
    assert loaded is not None
    assert loaded[0].version == bundles.installed().version  # type: ignore[union-attr]
    assert loaded[0].version == (3 if crash <= 4 else 2)
    assert bundles.refused is None
    if loaded[0].version == 3:
        bundles.rollback(plan_of)
    assert bundles.installed().version == 2  # type: ignore[union-attr]
    with pytest.raises(BundleRefused, match="rolled back"):
        bundles.install(author.bundle(3), plan_of)
    bundles.install(author.bundle(4), plan_of)


def test_for_another_fleet(bundles: BundleDir, author: Author) -> None:
    """A bundle that the agent's own region signed for another fleet or channel is not taken, nor one for no fleet that
    is no file of this host; an installed one stays when the agent moves to another fleet."""
    for fleet, channel in (("f2", CHANNEL), (FLEET, "test"), ("", "")):
        with pytest.raises(BundleRefused, match=r"signed for (a )?fleet"):
            bundles.install(author.bundle(5, fleet=fleet, channel=channel), plan_of)
        assert bundles.refused is not None
    assert files(bundles) == []
    with pytest.raises(BundleRefused, match="signed for fleet f2"):
        bundles.install(author.bundle(5, fleet="f2"), plan_of, of_host=True)
    assert bundles.install(author.bundle(5, fleet="", channel=""), plan_of, of_host=True) == b"plan of version 5"
    assert bundles.install(author.bundle(6), plan_of) == b"plan of version 6"
    moved = folder(bundles.folder, bundles.trusted, fleet="f2")
    assert moved.load(plan_of) is not None
    assert moved.refused is None
    with pytest.raises(BundleRefused, match="not for fleet f2"):
        moved.install(author.bundle(7), plan_of)


def test_after_a_death_it_is_tried_elsewhere_first(bundles: BundleDir, author: Author) -> None:
    """A bundle that a start died of is opened only when another process has; what that says is why it is refused."""

    def careful(data: bytes) -> None:
        seen.append(data)
        if b"plan of version 2" in data:
            raise ValueError("its trial ended by SIGSEGV")

    seen: list[bytes] = []
    first, second = author.bundle(1), author.bundle(2)
    bundles.install(first, plan_of)
    bundles.install(second, plan_of)
    trying = bundles.folder / "trying"
    again = folder(bundles.folder, bundles.trusted, careful=careful)
    assert again.load(plan_of) is not None
    assert seen == []
    trying.write_text(f"{hashlib.sha256(second).hexdigest()} 1 0\n")
    for starts in (1, 2):
        loaded = again.load(plan_of)
        assert loaded is not None
        assert loaded[0].version == 1
        assert seen == [second] * starts
        assert "SIGSEGV" in (again.refused or "")
    assert trying.exists()
    harmless = folder(bundles.folder, bundles.trusted)
    loaded = harmless.load(plan_of)
    assert loaded is not None
    assert loaded[0].version == 2
    assert not trying.exists()


def test_a_bundle_that_met_three_kills_by_chance_comes_back(bundles: BundleDir, author: Author) -> None:
    """After LIMIT deaths a bundle is not loaded for REST seconds; then, if its dry run succeeds, once more, and at once
    when the clock was set back."""
    now = CREATED // 1_000_000
    first, second = author.bundle(1), author.bundle(2)
    bundles.install(first, plan_of)
    bundles.install(second, plan_of)
    trying = bundles.folder / "trying"
    sha256 = hashlib.sha256(second).hexdigest()
    seen: list[bytes] = []
    again = folder(bundles.folder, bundles.trusted, careful=seen.append, clock=lambda: now * 1_000_000)

    def version(note: str) -> int:
        trying.write_text(note)
        loaded = again.load(plan_of)
        assert loaded is not None
        return loaded[0].version

    assert version(f"{sha256} {LIMIT} {now - REST + 1}\n") == 1
    assert "tries it again in an hour" in (again.refused or "")
    assert trying.exists()
    with pytest.raises(BundleRefused, match="died 3 times"):
        again.install(second, plan_of)
    assert seen == []
    for note in (f"{LIMIT} {now - REST}", f"70 {now - REST}", f"{LIMIT} {now + REST}"):
        assert version(f"{sha256} {note}\n") == 2
        assert not trying.exists()
    assert seen == [second] * 3


def test_a_deadly_bundle_rests_after_each_death(bundles: BundleDir, author: Author) -> None:
    """The note on disk while a bundle is loaded counts this attempt as a death, at this time."""
    now = CREATED // 1_000_000
    data = author.bundle(1)
    bundles.install(data, plan_of)
    trying = bundles.folder / "trying"
    sha256 = hashlib.sha256(data).hexdigest()
    trying.write_text(f"{sha256} {LIMIT} {now - REST}\n")
    notes: list[str] = []
    again = folder(bundles.folder, bundles.trusted, clock=lambda: now * 1_000_000)
    again.load(lambda bundle: notes.append(trying.read_text()))
    assert notes == [f"{sha256} {LIMIT + 1} {now}\n"]


@pytest.mark.parametrize("text", ["", "x", "0" * 64, f"{'0' * 64} 99999999\n", "\xff", "a b\n" * 1000])
def test_a_damaged_note_of_what_was_tried(bundles: BundleDir, author: Author, text: str) -> None:
    """It costs no bundle."""
    bundles.install(author.bundle(1), plan_of)
    (bundles.folder / "trying").write_bytes(text.encode("latin-1"))
    assert bundles.load(plan_of) is not None
    assert bundles.refused is None


def test_a_wrong_key_in_the_configuration(tmp_path: Path) -> None:
    """A trusted key that is none is said at start, not at the first push."""
    with pytest.raises(ValueError, match="not a public key"):
        folder(tmp_path, ["ed25519:AAAA"])


def test_a_link_to_elsewhere_is_no_bundle(bundles: BundleDir, author: Author, tmp_path: Path) -> None:
    """A link that does not name a bundle of this folder counts as none."""
    bundles.install(author.bundle(1), plan_of)
    (bundles.folder / "current").unlink()
    (bundles.folder / "current").symlink_to(tmp_path / "author.pem")
    assert bundles.current() is None
    assert bundles.load(plan_of) is None
