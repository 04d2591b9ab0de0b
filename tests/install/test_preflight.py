"""What a run needs of its host is looked at before anything is written, and who reads its output may go away: on a host
of stand-ins, see ``stubbed``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.install.conftest import ROOT
from tests.install.stubbed import RELEASE_KEY, TOOLS, Stubbed

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]

SCRIPT = (ROOT / "install.sh").read_text("utf-8")
CURRENT = "/opt/vedette/current"
PROGRAMS = {name for line in re.findall(r"(?m)^ +needs ([a-z0-9 ]+)$", SCRIPT) for name in line.split()}
"""What install.sh says that it needs, beyond what needs systemd."""
READ_ONLY = ("/opt", "/etc/systemd/system", "/var/log", "/var/lib", "/srv/bin")
OUTPUT_IS_GONE = "mkfifo /srv/pipe; : </srv/pipe & exec >/srv/pipe 2>&1; wait"


@pytest.fixture
def host(tmp_path: Path) -> Stubbed:
    """Nothing is installed; releases 1 and 2 are there."""
    host = Stubbed(tmp_path)
    for version in ("1", "2"):
        host.release(version)
    return host


def only(host: Stubbed, *without: str) -> str:
    """What makes PATH a folder of the programs that install.sh names, without some of them, and of stand-ins."""
    folder = host.folder / "srv/only"
    folder.mkdir(exist_ok=True)
    for name in PROGRAMS | {"sh"}:
        (folder / name).unlink(missing_ok=True)
        if name not in {*without, *TOOLS}:
            (folder / name).symlink_to(
                next(path for path in (f"/usr/bin/{name}", f"/bin/{name}") if Path(path).exists())
            )
    return "mount -t tmpfs none /usr/sbin; PATH=/srv/only"


def test_the_programs_that_it_names_are_all(host: Stubbed) -> None:
    """With these and no others an installation lives through its whole life."""
    first = only(host)
    for release, *options in (
        ("/srv/1",),
        ("/srv/2", "--upgrade"),
        (CURRENT, "--rollback"),
        (CURRENT, "--uninstall", "--purge"),
    ):
        done = host.run(release, *options, first=first)
        assert done.code == 0, done.text
        assert "not found" not in done.text
    assert host.files() == {}


@pytest.mark.long
def test_a_program_is_missing(host: Stubbed) -> None:
    """Each is named, with exit code 10, and nothing is written."""
    assert len(PROGRAMS) > 25
    for name in sorted(PROGRAMS - {"printf"} - TOOLS.keys()):
        done = host.run("/srv/1", first=only(host, name))
        assert f"the program '{name}' is needed and not there" in done.text
        assert done.code == 10, done.text
    for name in ("useradd", "stat", "getent"):
        path = host.folder / "srv/bin" / name
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        done = host.run("/srv/1", first=only(host, name))
        assert (done.code, f"'{name}'" in done.text) == (10, True), done.text
        if text:
            host.tool(name, text)
    assert host.files() == {}


def test_a_path_without_sbin(host: Stubbed) -> None:
    """`su` gives root the PATH of an ordinary user: programs for users are found all the same."""
    (host.folder / "srv/sbin").mkdir()
    for name in ("groupadd", "useradd", "userdel"):
        (host.folder / "srv/bin" / name).rename(host.folder / "srv/sbin" / name)
    done = host.run("/srv/1", first="mount --bind /srv/sbin /usr/sbin; PATH=/usr/bin:/bin")
    assert done.code == 0, done.text
    assert (host.folder / "run/users").exists()


def test_usr_is_read_only(host: Stubbed) -> None:
    """Where /usr/local/bin cannot be written to the command is below the prefix, and goes with it."""
    read_only = "mount -o remount,bind,ro /usr/local/bin"
    done = host.run("/srv/1", first=read_only)
    assert done.code == 0, done.text
    assert "command /opt/vedette/bin/vedette" in done.text
    assert host.state("vedette.service")
    assert (host.prefix / "bin/vedette").readlink() == Path(f"{CURRENT}/bin/vedette")
    done = host.run(CURRENT, "--uninstall", "--purge", first=read_only)
    assert done.code == 0, done.text
    assert host.files() == {}


@pytest.mark.long
def test_usr_has_become_read_only(host: Stubbed) -> None:
    """A link that cannot be removed any more is said, and all else is removed."""
    assert host.run("/srv/1").code == 0
    done = host.run(CURRENT, "--uninstall", "--purge", first="mount -o remount,bind,ro /usr/local/bin")
    assert done.code == 0, done.text
    assert "/usr/local/bin/vedette cannot be removed" in done.text
    assert host.files().keys() == {"usr/local/bin/vedette"}


@pytest.mark.parametrize(
    ("folder", "options"),
    [
        ("/opt", ()),
        ("/etc/systemd/system", ()),
        ("/var/log", ()),
        ("/var/lib", ()),
        ("/etc/vedette", ()),
        ("/srv/bin", ("--log", "/srv/bin/log")),
        ("/srv/no-temporary-folder", ("--release-key", RELEASE_KEY)),
    ],
)
def test_a_folder_that_cannot_be_written_to(host: Stubbed, folder: str, options: tuple[str, ...]) -> None:
    """It is named beforehand: read-only, or a file in its place; for temporary files, one that is not there."""
    if folder == "/etc/vedette":
        (host.folder / "etc/vedette").touch()
    before = host.files()
    host.tool("openssl", "#!/bin/sh\necho -rawin\n")
    first = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}" if folder in READ_ONLY else ":"
    done = host.run("/srv/1", *options, first=f"{first}; export TMPDIR=/srv/no-temporary-folder")
    assert done.code == 17, done.text
    assert f"{folder} cannot be written to" in done.text
    assert host.files() == before
    assert not (host.folder / "run/users").exists()


def test_read_only_for_busybox(host: Stubbed) -> None:
    """Its shell lets root write anywhere: the file system is looked at."""
    if (busybox := shutil.which("busybox")) is None:
        pytest.skip("no busybox here")
    (host.folder / "srv/bin/sh").symlink_to(busybox)
    before = host.files()
    done = host.run("/srv/1", first="mount -o remount,bind,ro /opt")
    assert done.code == 17, done.text
    assert "/opt cannot be written to" in done.text
    assert host.files() == before
    done = host.run("/srv/1", first="mount -o remount,bind,ro /usr/local/bin")
    assert done.code == 0, done.text
    assert "command /opt/vedette/bin/vedette" in done.text


@pytest.mark.long
def test_the_prefix_has_become_read_only(host: Stubbed) -> None:
    """Neither a rollback nor a removal begins there."""
    assert host.run("/srv/1").code == host.run("/srv/2").code == 0
    before = host.files()
    for options in (("--rollback",), ("--uninstall", "--purge")):
        done = host.run(CURRENT, *options, first="mount -o remount,bind,ro /opt")
        assert done.code == 17, done.text
        assert "/opt/vedette cannot be written to" in done.text
    assert host.files() == before
    assert host.state("vedette.service")


@pytest.mark.parametrize(
    ("tool", "text", "code", "words"),
    [
        ("df", "echo none", 10, "does not say how much is free"),
        ("df", "echo 'my disk 1 100 50 -7 101% /a 5'", 13, "0 KiB free"),
        ("df", "echo 'my disk 1 99999999 5 99999999 6% /a b'", 0, "installed"),
        ("systemctl", '[ "$1" != --version ] || exit 0\n. /srv/systemctl', 10, "gives no version"),
        pytest.param(
            "systemctl",
            '[ "$1" != show ] || { echo "$3=[not set]"; exit 0; }\n. /srv/systemctl',
            32,
            "did not come up",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_number_that_is_none(host: Stubbed, tool: str, text: str, code: int, words: str) -> None:
    """What a program gives in the place of a number is not reckoned with."""
    (host.folder / "srv/systemctl").write_text(TOOLS["systemctl"])
    host.tool(tool, f"#!/bin/sh\n{text}\n")
    done = host.run("/srv/1")
    assert done.code == code, done.text
    assert words in done.text
    assert "number" not in done.text.replace("numbers", "")
    assert bool(host.files()) == (code == 0)


def test_a_release_without_its_size(host: Stubbed) -> None:
    """RELEASE is damaged when it gives no number."""
    text = (host.folder / "srv/1/RELEASE").read_bytes().replace(b"unpacked_kib=100", b"unpacked_kib=much")
    done = host.run(host.release("3", {"RELEASE": text}))
    assert done.code == 20, done.text
    assert "RELEASE is damaged" in done.text
    assert host.files() == {}


@pytest.mark.parametrize("signal", [":", pytest.param("trap '' PIPE", marks=pytest.mark.long)])
def test_nobody_reads_the_output(host: Stubbed, signal: str) -> None:
    """`install.sh | head`: whether SIGPIPE ends a program or is ignored, a run comes to its end, and one that fails is
    undone."""
    first = f"{signal}; {OUTPUT_IS_GONE}"
    done = host.run("/srv/1", first=first)
    assert done.code == 0
    assert host.state("vedette.service")
    before = host.files()
    host.breaks("2")
    (host.folder / "srv/pipe").unlink()
    assert host.run("/srv/2", first=first).code == 32
    assert host.files() == before
    assert host.state("vedette.service")
    assert host.run(CURRENT, "--uninstall", "--purge", first="exec >&- 2>&-").code == 0
    assert host.files() == {}


def test_an_older_release(host: Stubbed) -> None:
    """--upgrade takes no release that is older than the installed one, unless that is asked for; of one version it
    takes any build."""
    for version in ("1.10.0", "1.9.0", "1.10.0rc1"):
        host.release(version)
    assert host.run("/srv/1.10.0").code == 0
    before = host.files()
    for version in ("1.9.0", "1.10.0rc1", "1"):
        done = host.run(f"/srv/{version}", "--upgrade")
        assert done.code == 43, done.text
        assert f"{version} is older than the installed 1.10.0" in done.text
    assert host.files() == before
    host.release("1.10.0", {"vedette.toml": b"# another build\n"})
    assert host.run("/srv/1.10.0", "--upgrade").code == 0
    assert host.run("/srv/1.9.0", "--upgrade", "--allow-downgrade").code == 0
    assert host.current().startswith("releases/1.9.0-")
    assert host.run("/srv/1.10.0", "--upgrade").code == 0
    assert host.run("/srv/1", "--allow-downgrade").code == 2
