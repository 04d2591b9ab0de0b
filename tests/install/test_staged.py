"""What root does with a release that the agent has fetched, and who looks after it: on a host of stand-ins, see
``stubbed``. What is believed of the agent's folder: ``test_take.py``; the whole way: ``test_fleet_upgrade.py``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.install.conftest import sha256
from tests.install.stubbed import VEDETTED, Stubbed

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]

CURRENT = "/opt/vedette/current"
TAKES = VEDETTED.replace(
    b"exit 0\n",
    b"""case $6 in */take.py)
    if [ -e /run/taken ]; then cat /run/taken >&2; exit $(cat /run/taken.code); fi
    cp /srv/2/* "$8" && cat /srv/request >"$8/request" ;;
esac
exit 0
""",
)
PROGRAM = {"runtime/bin/vedetted": TAKES + b"#" * 256, "runtime/interpreter": b"%d 256 ld.so\n" % len(TAKES)}


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release 1 is installed and runs. To be copied."""
    host = Stubbed(tmp_path_factory.mktemp("first"))
    done = host.run(host.release("1", PROGRAM))
    assert done.code == 0, done.text
    host.calls()
    return host.folder


@pytest.fixture
def host(first: Path, tmp_path: Path) -> Stubbed:
    """Its agent has fetched release 2, and asks for it."""
    shutil.copytree(first, tmp_path / "host", symlinks=True)
    host = Stubbed(tmp_path / "host")
    host.release("2", PROGRAM)
    id = f"2-{sha256((host.folder / 'srv/2/SHA256SUMS').read_bytes())[:12]}"
    upgrade = host.folder / "var/lib/vedette/upgrade"
    upgrade.mkdir()
    (upgrade / "request").write_text(f"id={id}\nnonce=00000000000000aa\nzip={id}.zip\nsha256=x\nwithin=4\n")
    (host.folder / "srv/request").write_text(f"id={id}\nwithin=4\n")
    return host


def wanted(host: Stubbed) -> str:
    return (host.folder / "srv/request").read_text().splitlines()[0].removeprefix("id=")


def answer(host: Stubbed) -> dict[str, str]:
    lines = (host.folder / "run/vedette-upgrade/answer").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def verdict(host: Stubbed, text: str) -> None:
    (host.folder / "var/lib/vedette/upgrade/verdict").write_text(f"id={wanted(host)}\nverdict={text}\n")


def watch(host: Stubbed) -> None:
    """As vedette-watch.service does."""
    done = host.run("/opt/vedette/previous", "--watch")
    assert done.code == 0, done.text


def staged(host: Stubbed) -> None:
    done = host.run(CURRENT, "--staged")
    assert done.code == 0, done.text


def test_installed_and_confirmed(host: Stubbed) -> None:
    """It is watched by the release before from before the switch, until it has confirmed itself."""
    before = host.current()
    staged(host)
    assert host.current() == f"releases/{wanted(host)}"
    assert (answer(host)["state"], answer(host)["nonce"]) == ("installed", "00000000000000aa")
    assert host.previous() == before
    assert "/opt/vedette/previous/install.sh --watch" in (host.units / "vedette-watch.service").read_text()
    calls = host.calls()
    assert calls.index("start vedette-watch") < calls.index("--no-block restart vedette")
    verdict(host, "confirmed")
    watch(host)
    assert answer(host)["state"] == "confirmed"
    assert not (host.prefix / "watch").exists()
    assert (host.current(), host.previous()) == (f"releases/{wanted(host)}", before)


@pytest.mark.long
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("unfit\nreason=no uplink", "it says: no uplink"),
        ("", "it did not confirm itself within 4 s"),
        ("confirmed\nid=another", ""),
    ],
)
def test_not_confirmed(host: Stubbed, said: str, reason: str) -> None:
    """What says that it is unfit, or nothing, goes; a verdict counts for the release that it names."""
    before = host.current()
    staged(host)
    if reason:
        verdict(host, said)
    else:
        (host.folder / "var/lib/vedette/upgrade/verdict").write_text("id=other\nverdict=confirmed\n")
    watch(host)
    assert host.current() == before
    assert host.releases() == {before}
    assert answer(host)["state"] == "back"
    assert reason in answer(host)["reason"]
    assert host.state("vedette.service")


@pytest.mark.long
@pytest.mark.parametrize("code", [13, 1])
def test_not_taken(host: Stubbed, code: int) -> None:
    """What is not what it should be, or has no room, changes nothing; the answer tells the two apart."""
    (host.folder / "run/taken").write_text("refused: for this reason\n")
    (host.folder / "run/taken.code").write_text(str(code))
    before = host.files()
    staged(host)
    assert answer(host)["state"] == "refused"
    assert (answer(host)["code"], answer(host)["reason"]) == ("13" if code == 13 else "21", "refused: for this reason")
    assert {name: data for name, data in host.files().items() if not name.endswith("-install.log")} == before
    assert host.state("vedette.service")


@pytest.mark.long
def test_it_does_not_come_up(host: Stubbed) -> None:
    """The release before runs again at once, and no watch is left."""
    before = host.current()
    host.breaks("2")
    staged(host)
    assert (host.current(), answer(host)["state"], answer(host)["code"]) == (before, "refused", "32")
    assert "did not come up" in answer(host)["reason"]
    assert not (host.prefix / "watch").exists()


def test_killed_after_the_switch(host: Stubbed) -> None:
    """The watch goes on without the one that installs: what never confirms itself is gone back from."""
    before = host.current()
    (host.folder / "run/kill/restart").write_text("KILL")
    host.run(CURRENT, "--staged")
    assert host.current() != before
    assert (host.prefix / "watch").exists()
    (host.folder / "run/kill/restart").unlink()
    watch(host)
    assert host.current() == before
    assert host.state("vedette.service")
