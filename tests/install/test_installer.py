"""The installer's Python by itself: what it writes, records and watches. What it does to a host: ``test_undo.py``,
``test_staged.py``, ``test_second.py``, ``test_life.py``."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from installer.addons import read
from installer.changes import Changes
from installer.configuration import files_for_journal, with_value
from installer.host import PID, Failed, Report, facts, point, run
from installer.installation import Installation
from installer.watch import Watched, answer

from tests.install.conftest import ROOT
from tests.readers import reader_of
from tests.waits import DEADLINE, until
from vedette.region.polyglot import addon

pytestmark = pytest.mark.install

TEMPLATE = (ROOT / "packaging/vedette.toml").read_text("utf-8")
RUNNER = ROOT / "tests/install/runner.py"
AGENT = """#!/bin/sh
echo "$0 $*" >>{folder}/lives
trap 'echo hung up >>{folder}/lives' HUP
trap 'exit 7' TERM
while :; do sleep 0.1; done
"""


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    """Release 2 is in force, and was installed over release 1; their agents write into the folder ``lives``."""
    prefix, config_dir, data_dir = tmp_path / "opt", tmp_path / "etc", tmp_path / "data"
    for id in ("1", "2"):
        program = prefix / "releases" / id / "bin/vedette"
        program.parent.mkdir(parents=True)
        program.write_text(AGENT.format(folder=tmp_path))
        program.chmod(0o755)
    (prefix / "current").symlink_to("releases/2")
    (prefix / "previous").symlink_to("releases/1")
    (data_dir / "upgrade").mkdir(parents=True)
    rows = {"prefix": prefix, "config_dir": config_dir, "data_dir": data_dir, "listen": "[::1]:1514", "systemd": "no"}
    (prefix / "installed").write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    return Installation.recorded(prefix)


def test_a_setting_of_a_table() -> None:
    """The line of the key in its own table, commented out or not, and no other line."""
    template = '[a]\n#url = "x"\n#[[b]]\n#url = "y"\n[c]\nurl = "z"\nurls = 1\n'
    assert with_value(template, "a", "url", "new") == template.replace('#url = "x"', 'url = "new"')
    assert with_value(template, "c", "url", "new") == template.replace('url = "z"', 'url = "new"')
    assert with_value(template, "d", "url", "new") == template
    shipped = tomllib.loads(with_value(TEMPLATE, "broker", "url", "mqtts://r:1"))
    assert shipped["broker"]["url"] == "mqtts://r:1"


def test_a_host_without_a_journal() -> None:
    """The input of the journal goes, and one of syslog's files comes; all else stays."""
    kinds = {row["type"] for row in tomllib.loads(TEMPLATE)["input"]}
    changed = tomllib.loads(files_for_journal(TEMPLATE))
    assert {row["type"] for row in changed["input"]} == kinds - {"journal"} | {"file"}
    assert changed.keys() == tomllib.loads(TEMPLATE).keys()


def test_paths_of_the_installation(place: Installation) -> None:
    """Each default is replaced, once."""
    text = place.render("/opt/vedette/current /etc/vedette/x /var/lib/vedette 127.0.0.1:514 127.0.0.1:5140")
    assert text == f"{place.prefix}/current {place.config_dir}/x {place.data_dir} [::1]:1514 [::1]:15140"


def test_a_copy_of_an_installation(place: Installation, tmp_path: Path) -> None:
    """It names the folders of the original, and is refused; behind a link it is the original."""
    (tmp_path / "link").symlink_to(place.prefix)
    assert Installation.recorded(tmp_path / "link").prefix == place.prefix
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/installed").write_bytes((place.prefix / "installed").read_bytes())
    with pytest.raises(Failed, match="copied or moved"):
        Installation.recorded(tmp_path / "copy")


def test_changes_are_undone(tmp_path: Path) -> None:
    """A file and a link that were replaced have their contents, mode and target again; what was new is gone."""
    plain, link, fresh = tmp_path / "plain", tmp_path / "link", tmp_path / "fresh"
    plain.write_text("before")
    plain.chmod(0o600)
    link.symlink_to("before")
    before = sorted(tmp_path.iterdir())
    changes = Changes()
    for path in (plain, link, fresh):
        changes.keep(path)
        path.unlink(missing_ok=True)
        path.mkdir() if path == fresh else path.write_text("after")
    changes.put_back()
    changes.take_away()
    changes.forget()
    assert sorted(tmp_path.iterdir()) == before
    assert (plain.read_text(), plain.stat().st_mode & 0o777, os.readlink(link)) == ("before", 0o600, "before")


@pytest.mark.parametrize("length", [0, 2000, 4096, 5000, 1 << 20])
def test_parts_of_an_add_on(tmp_path: Path, length: int) -> None:
    """They are where the file says; of one that ends earlier they are shorter, or empty."""
    parts = {"ADDON": b"addon=archive\n", "ADDON.sig": b"signature", "payload.tar.gz": bytes(9000)}
    path = tmp_path / "archive.zip"
    data = addon(path.name, "vedette", parts)
    path.write_bytes(data[:length])
    members = read(path)
    assert all(parts[name].startswith(part) for name, part in members.items())
    assert (members == parts) == (length >= len(data))


def test_the_verdict_counts_for_its_release(place: Installation) -> None:
    """Only what the watched release says of itself, and only when it is asked; the answer repeats the request."""
    verdict = place.data_dir / "upgrade/verdict"
    verdict.write_text("id=2\nverdict=unfit\nreason=no uplink\n")
    assert Watched("2", "releases/1", 60, True).verdict(place) == ("unfit", "no uplink")
    assert Watched("2", "releases/1", 60, False).verdict(place) == ("", "")
    assert Watched("3", "releases/1", 60, True).verdict(place) == ("", "")
    (place.data_dir / "upgrade/request").write_text("id=2\nnonce=0a/../b\n")
    answer(place, "2", "back", reason="two\nlines")
    rows = facts(place.data_dir / "upgrade/answer")
    assert rows == {"id": "2", "nonce": "0ab", "state": "back", "code": "0", "reason": "two lines"}


def test_a_lock_whose_place_is_gone(place: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another run removed between opening and locking is no lock: what stands in its place is taken. Who may only
    look into the folder does not hold it."""
    lock, flock, tries = place.prefix / ".lock", fcntl.flock, list[object]()

    def remove_first(file: int, how: int) -> None:
        tries.append(file)
        if len(tries) == 1:
            lock.rmdir() if lock.is_dir() else lock.unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with place.locked():
        second = os.open(lock, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(second)
    monkeypatch.setattr("installer.installation.LOCK_SECONDS", 1)
    with reader_of(place.prefix), place.locked():
        pass


def test_a_second_signal_leaves_nothing_undone() -> None:
    """Whoever closes a terminal sends two: the run is undone all the same."""
    code = """
import os, signal, time
from pathlib import Path
from types import SimpleNamespace
from installer.host import Report
from installer.main import _changed

class Twice(Report):
    def failed(self, code, text):
        os.kill(os.getpid(), signal.SIGHUP)

def do():
    os.kill(os.getpid(), signal.SIGHUP)
    while True:  # until it comes
        time.sleep(0.01)

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also below nohup
undone = []
run = SimpleNamespace(place=SimpleNamespace(report=Twice(Path(os.devnull))), complete=False, do=do)
run.undo, run.clean = lambda: undone.append("undone"), lambda: undone.append("clean")
print(_changed(run), undone)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "packaging", capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 ['undone', 'clean']\n"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """It has the exit code that a shell gives it, and ends no undo."""
    assert run(tmp_path / "none").code == 127


def test_what_a_killed_run_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """In a container the next run has the same number."""
    (tmp_path / f"current.tmp.{PID}").symlink_to("nowhere")
    point(tmp_path / "current", "releases/1")
    assert os.readlink(tmp_path / "current") == "releases/1"
    (tmp_path / f"current.was.{PID}").symlink_to("nowhere")
    changes = Changes()
    changes.keep(tmp_path / "current")
    point(tmp_path / "current", "releases/2")
    changes.put_back()
    assert os.readlink(tmp_path / "current") == "releases/1"


def test_messages_to_nobody(tmp_path: Path) -> None:
    """Where neither terminal nor log can be written to, a message is no failure."""
    code = (
        f"import sys; sys.path.append({str(ROOT / 'packaging')!r}); from pathlib import Path\n"
        f"from {Report.__module__} import Report; report = Report(Path({str(tmp_path)!r}))\n"
        "report.say('x'); report.warn('y'); report.say('z')"
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([sys.executable, "-c", code], stdout=write_end, stderr=write_end, check=False)
    os.close(write_end)
    assert done.returncode == 0


@pytest.fixture
def supervisor(place: Installation) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Filled by ``supervise``."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(DEADLINE)


def supervise(place: Installation, started: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-X", "utf8", "-I", "-S", "-B", RUNNER, ROOT / "packaging/installer", "supervise"]
    process = subprocess.Popen([*map(str, command), f"prefix={place.prefix}"], stdout=subprocess.DEVNULL)
    started.append(process)
    return process


def lives(place: Installation) -> list[str]:
    path = place.prefix.parent / "lives"
    return path.read_text().splitlines() if path.exists() else []


def test_supervised(place: Installation, supervisor: list[subprocess.Popen[bytes]]) -> None:
    """The agent runs with its configuration, is hung up on, and ends with the supervisor, which has its exit code."""
    process = supervise(place, supervisor)
    until("the agent", lambda: len(lives(place)) == 1)
    assert lives(place)[0].endswith(f"/current/bin/vedette run -c {place.config}")

    def hung_up() -> bool:
        process.send_signal(signal.SIGHUP)  # the first ones may come before the agent has said what to do then
        return "hung up" in lives(place)

    until("SIGHUP", hung_up)
    process.terminate()
    assert process.wait(DEADLINE) == 7


def test_nothing_is_installed(place: Installation, supervisor: list[subprocess.Popen[bytes]]) -> None:
    """The supervisor of a folder without an installation ends with exit code 42."""
    (place.prefix / "installed").unlink()
    assert supervise(place, supervisor).wait(DEADLINE) == 42
    assert not lives(place)


def test_a_release_that_ends_under_its_watch(place: Installation, supervisor: list[subprocess.Popen[bytes]]) -> None:
    """Three times: the release before is in force and runs, the newer one is gone, and the agent has its answer."""
    (place.prefix / "watch").write_text("seconds=600\nbefore=releases/1\nid=2\nconfirm=yes\n")
    (place.prefix / "releases/2/bin/vedette").write_text("#!/bin/sh\nexit 1\n")
    supervise(place, supervisor)
    until("release 1", lambda: len(lives(place)) == 1)
    assert os.readlink(place.prefix / "current") == "releases/1"
    assert [path.name for path in (place.prefix / "releases").iterdir()] == ["1"]
    assert not (place.prefix / "watch").exists()
    rows = facts(place.data_dir / "upgrade/answer")
    assert (rows["state"], rows["reason"]) == ("back", "it ended 3 times before it confirmed itself")


@pytest.mark.parametrize(("verdict", "end"), [("confirmed", "2"), ("unfit", "1")])
def test_the_supervisor_takes_the_verdict(
    place: Installation, supervisor: list[subprocess.Popen[bytes]], verdict: str, end: str
) -> None:
    """A release that confirms itself stays, with its own supervise.sh; one that is unfit goes."""
    (place.prefix / "releases/2/supervise.sh").write_text("# of release 2\n")
    (place.prefix / "watch").write_text("seconds=600\nbefore=releases/1\nid=2\nconfirm=yes\n")
    (place.data_dir / "upgrade/verdict").write_text(f"id=2\nverdict={verdict}\nreason=no uplink\n")
    supervise(place, supervisor)
    state = {"2": "confirmed", "1": "back"}[end]
    until("the answer", lambda: facts(place.data_dir / "upgrade/answer").get("state") == state)
    assert os.readlink(place.prefix / "current") == f"releases/{end}"
    assert not (place.prefix / "watch").exists()
    if end == "2":
        until("its script", (place.prefix / "supervise.sh").exists)
    else:
        until("release 1", lambda: len(lives(place)) == 2)
