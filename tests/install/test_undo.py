"""What fails or is interrupted leaves the host as it was: on a host of stand-ins, see ``stubbed``."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, call
from tests.install.stubbed import RELEASE_KEY, Stubbed
from tests.readers import reader_of

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]

CURRENT = "/opt/vedette/current"
PREVIOUS = "/opt/vedette/previous"


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release 1 is installed and runs. To be copied."""
    host = Stubbed(tmp_path_factory.mktemp("first"))
    done = host.run(host.release("1"))
    assert done.code == 0, done.text
    assert host.state("vedette.service")
    host.calls()
    return host.folder


@pytest.fixture
def host(first: Path, tmp_path: Path) -> Stubbed:
    """A host on which release 1 is installed and runs."""
    shutil.copytree(first, tmp_path / "host", symlinks=True)
    return Stubbed(tmp_path / "host")


@pytest.mark.long
def test_another_address_that_cannot_be_opened(host: Stubbed) -> None:
    """Moved to an address that this host does not have: every file is as before, the key that was given, too, and the
    agent takes syslog where it did."""
    before = host.files()
    config = host.config.read_text()
    host.config.write_text(config.replace("127.0.0.1:514", "10.9.9.9:514"))
    key = "ed25519:" + "B" * 43 + "="
    done = host.run(host.release("2"), "--listen", "10.9.9.9:514", "--release-key", key)
    host.config.write_text(config)
    assert done.code == 32, done.text
    assert "the sockets for 10.9.9.9:514 cannot be opened" in done.text
    assert "does not name 127.0.0.1:514, where the sockets are again" in done.text
    assert "runs again" in done.text
    assert host.files() == before
    assert host.state("vedette-udp.socket") == host.state("vedette-tcp.socket") == "127.0.0.1:514"
    assert host.state("vedette.service")


@pytest.mark.long
def test_an_address_that_the_configuration_does_not_name(host: Stubbed) -> None:
    """--listen with a vedette.toml that names another address is refused before anything is done, as the agent would
    find no socket there; written there first, it moves, and may be given again."""
    before = host.files()
    done = host.run(CURRENT, "--listen", "127.0.0.2:514")
    assert done.code == 2, done.text
    assert "does not name 127.0.0.2:514" in done.text
    assert host.files() == before
    assert host.calls() == ["--version"]
    host.config.write_text(host.config.read_text().replace("127.0.0.1:514", "127.0.0.2:514"))
    for _ in range(2):
        done = host.run(CURRENT, "--listen", "127.0.0.2:514")
        assert done.code == 0, done.text
        assert host.state("vedette-udp.socket") == host.state("vedette-tcp.socket") == "127.0.0.2:514"
        assert host.state("vedette.service")


@pytest.fixture
def dying(host: Stubbed) -> Stubbed:
    """Release 2 was installed over release 1, is watched, and has begun to crash."""
    assert host.run(host.release("2")).code == 0
    assert "before=releases/1-" in (host.prefix / "watch").read_text()
    (host.folder / "run/state/vedette.service").unlink()
    (host.folder / "run/state/crashing").touch()
    host.calls()
    return host


def test_the_watch_goes_back(dying: Stubbed) -> None:
    """A release that crashes goes after its third crash, and the one before runs."""
    good = dying.previous()
    done = dying.run(PREVIOUS, "--watch")
    assert done.code == 0, done.text
    assert "started again 3 times and away for 6 s, 6 s after the upgrade" in done.text  # each question is a crash more
    assert "runs again" in done.text
    assert dying.releases() == {dying.current()} == {good}
    assert (dying.previous(), (dying.prefix / "watch").exists()) == ("", False)
    assert dying.state("vedette.service")


@pytest.mark.long
@pytest.mark.parametrize("fault", ["fail", "kill"])
def test_the_watch_is_interrupted(dying: Stubbed, fault: str) -> None:
    """Going back stops halfway, as the disk is full or the host goes down: the release that is gone back to is never
    deleted, not by the watch at the next boot, either."""
    good = dying.previous()
    (dying.folder / "run" / fault / "daemon-reload").write_text("KILL")
    dying.run(PREVIOUS, "--watch")
    assert dying.current() == good
    assert (dying.state("vedette.service") != "") == (fault == "fail")
    (dying.folder / "run" / fault / "daemon-reload").unlink()
    dying.run(CURRENT, "--watch")
    assert dying.current() == good
    assert good in dying.releases()


@pytest.mark.long
def test_a_watch_that_was_left_behind(host: Stubbed) -> None:
    """A watch whose release to go back to is the one that runs ends at once, though the agent is away."""
    (host.prefix / "watch").write_text(f"seconds=300\nbefore={host.current()}\n")
    (host.folder / "run/state/vedette.service").rename(host.folder / "run/state/crashing")
    done = host.run(CURRENT, "--watch")
    assert done.code == 0, done.text
    assert host.releases() == {host.current()}
    assert not (host.prefix / "watch").exists()
    assert "--no-block restart vedette" not in host.calls()


@pytest.mark.long
def test_a_slow_stop_hides_nothing(host: Stubbed) -> None:
    """While the old process is still ending and answers, that is not taken for the new release coming up."""
    before, process = host.current(), host.state("vedette.service")
    (host.folder / "run/slow").write_text("8")
    host.breaks("2")
    done = host.run(host.release("2"))
    assert done.code == 32, done.text
    assert f"release {before.removeprefix('releases/')} runs again" in done.text
    assert host.current() == before
    assert host.state("vedette.service") not in ("", process)
    process = host.state("vedette.service")
    assert host.run(host.release("3")).code == 0
    assert host.state("vedette.service") not in ("", process), "install.sh ends when the new process is there"


@pytest.mark.long
def test_power_is_lost_after_the_switch(host: Stubbed) -> None:
    """An upgrade that is cut off once `current` has moved, and run again, keeps the release before it."""
    good = host.current()
    (host.folder / "run/kill/restart").write_text("KILL")
    assert host.run(host.release("2")).code != 0
    assert host.current() != good
    (host.folder / "run/kill/restart").unlink()
    done = host.run("/srv/2", "--force-restart")
    assert done.code == 0, done.text
    assert host.previous() == good
    assert host.releases() == {good, host.current()}


def test_power_is_lost_before_the_switch(host: Stubbed) -> None:
    """Cut off before `current` has moved, there is no release before the one that runs, and --rollback says so."""
    (host.prefix / "previous").symlink_to(host.current())
    done = host.run(CURRENT, "--rollback")
    assert done.code == 41, done.text
    assert "no release before" in done.text


def test_a_refused_release_leaves_the_one_before_in_place(host: Stubbed) -> None:
    """After an upgrade that was undone, --rollback leads where it did."""
    assert host.run(host.release("2")).code == 0
    before = host.files()
    host.breaks("3")
    assert host.run(host.release("3")).code == 32
    assert host.previous().startswith("releases/1-")
    assert host.files() == before


@pytest.mark.long
@pytest.mark.parametrize("fault", ["does not come up", "interrupted"])
def test_a_rollback_that_fails(host: Stubbed, fault: str) -> None:
    """--rollback to what does not come up, or stopped halfway: both links and the units are as before, and the agent
    runs."""
    unit = (ROOT / "packaging/vedette.service").read_bytes() + b"# of release 2\n"
    assert host.run(host.release("2", {"vedette.service": unit}), "--grace", "0").code == 0
    before = host.files()
    if fault == "interrupted":
        (host.folder / "run/kill/daemon-reload").write_text("TERM")
    else:
        host.breaks("1")
    done = host.run(CURRENT, "--rollback")
    assert done.code == (1 if fault == "interrupted" else 32), done.text
    assert f"release {host.current().removeprefix('releases/')} runs again" in done.text
    assert host.files() == before
    assert host.state("vedette.service")


@pytest.mark.long
def test_a_folder_of_somebody_else(host: Stubbed) -> None:
    """A data folder with other things in it is not handed to the agent's user: refused before anything is done. One
    that is marked as ours, or a disk of its own with nothing on it, is."""
    data = host.folder / "var/photos"
    (data / "lost+found").mkdir(parents=True)
    assert host.run("/srv/1", "--data-dir", "/var/photos").code == 0
    assert "chown vedette:vedette /var/photos" in host.calls()
    (data / "1.jpg").touch()
    before = host.files()
    done = host.run("/srv/1", "--data-dir", "/var/photos")
    assert done.code == 2, done.text
    assert "/var/photos holds files" in done.text
    assert "--data-dir" in done.text
    assert host.files() == before
    assert not [call for call in host.calls() if "chown" in call]
    (data / ".vedette").touch()
    assert host.run("/srv/1", "--data-dir", "/var/photos").code == 0
    assert "chown -hR vedette:vedette /var/photos" in host.calls()


def access(*folders: Path) -> list[int]:
    return [folder.stat().st_mode & 0o7777 for folder in folders]


def test_another_programs_folder_of_configuration(tmp_path: Path) -> None:
    """It keeps owner and mode, with a warning, at the next run too. One that is empty, marked or the default is the
    agent's, with the certificates that were put there before."""
    host = Stubbed(tmp_path)
    other, own, default = (host.folder / "etc" / name for name in ("nginx", "own", "vedette"))
    for folder, name in ((other, "nginx.conf"), (own, ".vedette"), (default, "ca.pem")):
        folder.mkdir()
        (folder / name).touch()
        folder.chmod(0o2755)
    for expected in (True, False):
        done = host.run(host.release("1"), "--config-dir", "/etc/nginx")
        assert done.code == 0, done.text
        assert ("/etc/nginx holds other files: it keeps its owner and mode" in done.text) == expected
        assert access(other) == [0o2755]
        assert not [call for call in host.calls() if "/etc/nginx" in call.split()]
    for folder in (own, default):
        assert host.run("/srv/1", "--config-dir", f"/etc/{folder.name}").code == 0
        assert access(folder) == [0o750]
        assert f"chown :vedette /etc/{folder.name}" in host.calls()


def test_folders_after_an_installation_that_failed(tmp_path: Path) -> None:
    """Folders that were there before have their modes again, and no mark."""
    host = Stubbed(tmp_path)
    folders = host.folder / "etc/vedette", host.folder / "var/empty"
    for folder in folders:
        folder.mkdir()
        folder.chmod(0o2755)
    (folders[0] / "ca.pem").touch()
    host.breaks("1")
    assert host.run(host.release("1"), "--data-dir", "/var/empty").code == 32
    assert access(*folders) == [0o2755, 0o2755]
    assert [[path.name for path in folder.iterdir()] for folder in folders] == [["ca.pem"], []]


@pytest.mark.parametrize("options", [(), ("--uninstall",), ("--rollback",)])
@pytest.mark.parametrize("lock", [Path.touch, Path.mkdir])
def test_another_programs_releases(tmp_path: Path, options: tuple[str, ...], lock: Callable[[Path], None]) -> None:
    """A prefix below which another program keeps releases is refused, and nothing of them is deleted."""
    host = Stubbed(tmp_path)
    (host.folder / "srv/app/releases/7").mkdir(parents=True)
    (host.folder / "srv/app/current").symlink_to("releases/7")
    lock(host.folder / "srv/app/.lock")  # of that program, too
    done = host.run(host.release("1"), "--prefix", "/srv/app", *options)
    assert done.code == 2, done.text
    assert "/srv/app holds releases of another program" in done.text
    assert sorted(path.name for path in (host.folder / "srv/app").rglob("*")) == [".lock", "7", "current", "releases"]


def test_another_programs_link(tmp_path: Path) -> None:
    """Also one to a disk that is not mounted yet."""
    host = Stubbed(tmp_path)
    (host.folder / "srv/app").mkdir()
    (host.folder / "srv/app/current").symlink_to("/mnt/none/releases/7")
    done = host.run(host.release("1"), "--prefix", "/srv/app")
    assert (done.code, "holds releases of another program" in done.text) == (2, True), done.text
    assert (host.folder / "srv/app/current").readlink() == Path("/mnt/none/releases/7")


def test_a_dry_run_by_an_ordinary_user() -> None:
    """--dry-run needs no rights: who may not write anywhere is told what would be done. Without systemd, where it is
    that user who is to install, places that cannot be written to are refused."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is its user's alone
        host = Stubbed(Path(folder))
        Path(folder).chmod(0o755)
        release = folder + host.release("1")
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        tools = f"PATH={folder}/srv/bin:{os.environ['PATH']}"
        command = ["env", tools, *nobody, "sh", f"{release}/install.sh", "--dry-run", "--listen", "127.0.0.1:47514"]
        done = call(*command)
        assert done.code == 0, done.text
        assert "user vedette and unit" in done.text
        assert "nothing was done" in done.text
        assert call(*command, "--no-systemd").code == 17


def test_while_another_run_is_at_work(host: Stubbed) -> None:
    """Whatever files are deleted under it, a second run gives way. Who may only look into the program's folder, as
    everybody on the host may, holds no run up."""
    release = host.release("2")
    lock = os.open(host.prefix / ".lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for path in host.prefix.glob(".*"):
        if path.is_file():
            path.unlink()
    done = host.run(release)
    assert (done.code, "another run of install.sh is at work" in done.text) == (40, True), done.text
    os.close(lock)
    with reader_of(host.prefix):
        done = host.run(release)
    assert done.code == 0, done.text


@pytest.mark.long
def test_another_run_has_just_ended(host: Stubbed) -> None:
    """What another run changed between this one's first look and its lock is seen, and nothing is done."""
    assert host.run(host.release("2")).code == 0
    running, good, before = host.current(), host.previous(), host.files()
    host.tool("flock", f'#!/bin/sh\nln -sfn {good} /opt/vedette/current\nexec /usr/bin/flock "$@"\n')
    for option in ("--upgrade", "--rollback", "--uninstall"):
        (host.prefix / "current").unlink()
        (host.prefix / "current").symlink_to(running)
        done = host.run("/srv/2", option)
        assert done.code == 40, done.text
        assert "another run" in done.text
    assert host.current() == good
    assert host.files() | {"opt/vedette/current": ""} == before | {"opt/vedette/current": ""}


@pytest.mark.long
def test_a_signature_that_cannot_be_checked(tmp_path: Path) -> None:
    """Without base64 that is said, and the archive not called wrong; stopped while OpenSSL checks, no file is left."""
    host = Stubbed(tmp_path)
    host.tool("openssl", "#!/bin/sh\ncase $* in *-help) echo -rawin ;; *) kill -TERM $PPID ;; esac\n")
    key = ("--release-key", RELEASE_KEY)
    done = host.run(host.release("1"), *key, first="mount --bind /dev/null /usr/bin/base64")
    assert done.code == 21, done.text
    assert "cannot be checked here" in done.text
    assert "base64" in done.text
    assert host.run("/srv/1", *key, first="mkdir /srv/tmp; export TMPDIR=/srv/tmp").code == 1
    assert list((host.folder / "srv/tmp").iterdir()) == []
    assert host.files() == {}


@pytest.mark.long
def test_what_a_refused_release_put_beside(host: Stubbed) -> None:
    """The configuration and the certificate that an undone upgrade put beside the operator's are gone, and what lay
    there before is back."""
    assert host.run(host.release("1", site={"agent.pem": b"old", "agent.key": b"k", "vedette.toml": b""})).code == 0
    host.config.with_name("agent.key.new").write_text("an earlier one")
    before = host.files()
    host.breaks("2")
    site = {"agent.pem": b"new", "agent.key": b"l", "vedette.toml": b"[agent]\n"}
    done = host.run(host.release("2", site=site))
    assert done.code == 32, done.text
    assert "agent.pem.new" in done.text
    assert host.files() == before


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("os.chmod", "*/vedette-udp.socket.new*"),
        pytest.param("os.rename", "*/vedette.service.d/50-since-242.conf.new*", marks=pytest.mark.long),
        pytest.param("os.rename", "*/bin/vedette.tmp.*", marks=pytest.mark.long),
        pytest.param("systemctl", "start *", marks=pytest.mark.long),
    ],
)
def test_a_first_installation_is_interrupted(tmp_path: Path, tool: str, arguments: str) -> None:
    """Wherever it stops, nothing of it is left, and a link that had the name of the command leads where it did."""
    host = Stubbed(tmp_path)
    (host.folder / "usr/local/bin/vedette").symlink_to("/srv/another")
    (host.folder / "srv/bin/systemctl").rename(host.folder / "srv/systemctl")
    host.tool("systemctl", '#!/bin/sh\nexec /srv/systemctl "$@"\n')
    if tool.startswith("os."):
        host.fault(tool, arguments, "TERM")
    else:
        real = "/srv/systemctl" if tool == "systemctl" else f"/bin/{tool}"
        pattern = arguments.replace(" ", "?")
        host.tool(tool, f'#!/bin/sh\ncase $* in {pattern}) kill -TERM $PPID; exit 1 ;; esac\nexec {real} "$@"\n')
    assert host.run(host.release("1")).code == 1
    assert host.files() == {"usr/local/bin/vedette": "/srv/another"}
    assert not (host.folder / "run/users").exists()


@pytest.mark.long
def test_a_link_that_cannot_be_moved_back(host: Stubbed) -> None:
    """When not even `current` can be moved back, as the disk is full, the release that it leads to is not deleted."""
    host.breaks("2")
    host.fault("os.symlink", "releases/1-*/current.tmp.*", "FULL")
    done = host.run(host.release("2"))
    assert done.code == 32, done.text
    assert host.current() in host.releases()


def test_what_is_not_ok_is_warned_of(host: Stubbed) -> None:
    """An agent that comes up with an input that does not work stays, and the first line of its status is a warning."""
    (host.folder / "run/wrong").write_text("input syslog: cannot listen")
    done = host.run(host.release("2"))
    assert done.code == 0, done.text
    assert "warning: the agent runs, and is NOT OK: input syslog: cannot listen\n" in done.text
    assert "up since" not in done.text
    (host.folder / "run/wrong").unlink()
    assert "NOT OK" not in host.run(host.release("3")).text
