"""fleet.toml to the desired document: every mistake at once, and what follows what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundle.conftest import Author
from vedette.fleet.documents import Change, Desired, Progress, Rollout, State
from vedette.region import compare, fleetfile
from vedette.region.fleetfile import FleetFileError, next_desired, read

NOW = 1_795_824_000_000_000
RING = '[[ring]]\nname = "all"\npercent = 100\nsoak = "10m"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    author = Author(tmp_path / "author.pem")
    for version in (1, 2, 3):
        (tmp_path / f"{version}.vbundle").write_bytes(author.bundle(version, fleet="f1"))
    (tmp_path / "foreign.vbundle").write_bytes(author.bundle(1, fleet="other"))
    (tmp_path / "debug.toml").write_text('[log]\nlevel = "debug"\n')
    return tmp_path


def file_of(folder: Path, *lines: str, rings: str = "") -> fleetfile.FleetFile:
    path = folder / "fleet.toml"
    path.write_text("\n".join([rings, "[[group]]", 'name = "all"', *lines]))
    return read(path, "f1")


def bundle(desired: Desired | None) -> Change:
    assert desired is not None
    return desired.groups[0].bundles["default"]


def test_what_follows_what(folder: Path) -> None:
    """The same file makes no new document; another bundle becomes a change from the one that agents run; what was
    aborted stays so until it is retried."""
    one = file_of(folder, 'bundle = "1.vbundle"', rings=RING)
    first = next_desired(one, "f1", None, None, NOW)
    assert first is not None
    assert (first.serial, first.created, bundle(first).from_) == (1, "2026-11-28T00:00:00Z", None)
    assert first.rings[0].soak == 600
    assert next_desired(one, "f1", first, None, NOW) is None
    done = Rollout("f1", 1, {bundle(first).id: Progress(State.DONE)})
    second = next_desired(file_of(folder, 'bundle = "2.vbundle"', rings=RING), "f1", first, done, NOW)
    assert second is not None
    assert (bundle(second).from_, second.serial) == (bundle(first).to, 2)
    assert bundle(second).id != bundle(first).id
    aborted = Rollout("f1", 2, {bundle(second).id: Progress(State.ABORTED)})
    third = next_desired(file_of(folder, 'bundle = "3.vbundle"', rings=RING), "f1", second, aborted, NOW)
    assert bundle(third).from_ == bundle(first).to
    same = file_of(folder, 'bundle = "2.vbundle"', rings=RING)
    assert next_desired(same, "f1", second, aborted, NOW) is None
    again = next_desired(same, "f1", second, aborted, NOW, retry=True)
    assert bundle(again).id != bundle(second).id


def test_an_overlay_that_goes(folder: Path) -> None:
    """Taking an overlay away is a change to nothing, which later documents forget once it is done."""
    first = next_desired(file_of(folder, 'config = "debug.toml"'), "f1", None, None, NOW)
    without = file_of(folder)
    second = next_desired(without, "f1", first, None, NOW)
    assert second is not None
    gone = second.groups[0].config
    assert gone is not None
    assert gone.to is None
    assert gone.from_ is not None
    assert [(one.what, one.after) for one in compare.differences(first, second)] == [("config", None)]
    third = next_desired(without, "f1", second, None, NOW)
    assert third is not None
    assert third.groups[0].config is None


def test_all_mistakes_at_once(folder: Path) -> None:
    """Each is a line with its place: unknown keys, lacking files, bundles of another fleet, overlays no agent takes."""
    (folder / "bad.toml").write_text('[agent]\nid = "x"\n')
    (folder / "worse.toml").write_text('[log]\nlevel = "loud"\n')
    path = folder / "fleet.toml"
    path.write_text(
        '[[group]]\nname = "a"\nmatch = "site ="\nbundle = "foreign.vbundle"\nconfig = "bad.toml"\ncolour = 1\n'
        '[[group]]\nname = "b"\nbundle = "none.vbundle"\nconfig = "worse.toml"\nrelease = "../x"\n'
    )
    with pytest.raises(FleetFileError) as caught:
        read(path, "f1")
    text = "\n".join(caught.value.mistakes)
    for part in (
        "group[0].colour: unknown key",
        "group[0].bundle: foreign.vbundle: signed for fleet other",
        "group[0].config: bad.toml: agent.id: no overlay changes this",
        "group[1].bundle: none.vbundle: [Errno 2]",
        "group[1].config: worse.toml: overlay: log.level: expects one of",
        "group[1].release: expects a path below the file's folder",
    ):
        assert part in text
    path.write_text('[[group]]\nname = "a"\nmatch = "site ="\n')
    with pytest.raises(FleetFileError, match=r"groups\[0\].match: at character 7: expects a value, not the end"):
        read(path, "f1")


def test_lookups_that_reload(folder: Path) -> None:
    """Change no document; their mistakes are those of the file, and a group names none of them."""
    table = '[[lookup]]\nname = "staff"\nevery = "1h"\nkey = ["user"]\npath = "staff.csv"'
    plain = next_desired(file_of(folder, 'bundle = "1.vbundle"'), "f1", None, None, NOW)
    assert next_desired(file_of(folder, 'bundle = "1.vbundle"', table), "f1", plain, None, NOW) is None
    with pytest.raises(FleetFileError) as caught:
        file_of(folder, 'lookups = { staff = "staff.vlookup" }', table, "evry = 7", table.replace("user", "user:x"))
    text = "\n".join(caught.value.mistakes)
    assert "lookup[0].evry: unknown key; did you mean every?" in text
    assert "group[0].lookups.staff: [[lookup]] reloads it" in text
    with pytest.raises(FleetFileError, match=r"lookup\[0\].key: 'x' is no kind of key"):
        file_of(folder, table.replace("user", "user:x"))


def test_desired_against_actual(folder: Path) -> None:
    """Each agent's state follows from its heartbeat: as wanted, behind, with a problem, away, without a fleet."""
    desired = next_desired(file_of(folder, 'bundle = "1.vbundle"'), "f1", None, None, NOW)
    assert desired is not None
    to = bundle(desired).to
    assert to is not None
    good = {
        "desired_serial": 1, "labels": {}, "bundles": {"default": {"sha256": to.sha256}},
        "config": {"overlay": "", "confirmed": True}, "problems": [],
    }  # fmt: skip
    beats = {
        "good": {"actual": good},
        "old": {"actual": {**good, "desired_serial": 0, "bundles": {}}},
        "sick": {"actual": {**good, "problems": ["trust: expired"]}},
        "away": {"state": "lost"},
        "plain": {"state": "running"},
    }
    found = {row.agent_id: (row.state, row.reasons) for row in compare.rows(desired, None, beats)}
    assert found["good"] == (compare.AS_WANTED, ())
    assert found["old"] == (
        compare.BEHIND,
        ("follows desired serial 0, not 1", f"bundle default: runs none, wanted {to.sha256[:12]}"),
    )
    assert found["sick"] == (compare.PROBLEM, ("trust: expired",))
    assert found["away"][0] == compare.AWAY
    assert found["plain"][0] == compare.UNKNOWN
    assert compare.members(desired, beats) == {"all": ["good", "old", "sick"]}
