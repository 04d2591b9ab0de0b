"""Hosts that do not fit, or stop fitting: each has its exit code, and nothing is half done."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, Place, Variant, alone, call
from vedette.config import read as config
from vedette.fleet.enrolment import new_token

pytestmark = pytest.mark.install

INSTALL = 'exec sh "$1" --no-systemd --prefix "$2/opt" --config-dir "$2/etc" --data-dir "$2/data"'


def test_a_full_disk_in_the_middle(zip_file: Path, place: Place) -> None:
    """Room enough by the bytes, but no inodes left halfway: exit code 13, and the disk is as empty as before."""
    done = call(
        *alone(), "sh", "-c",
        'mount -t tmpfs -o size=300m,nr_inodes=400 none "$2" || exit 99\n'
        f'( {INSTALL} ); code=$?; echo "left: $(find "$2" -type f | wc -l) $(find "$2" -name "*.log")"; exit $code',
        "sh", zip_file, place.folder,
    )  # fmt: skip
    assert done.code == 13, done.text
    assert "unpacking failed" in done.text
    assert "No space left" in done.text
    assert "left: 1 " in done.text
    assert "install.log" in done.text


def test_too_small_a_disk(zip_file: Path, place: Place) -> None:
    """Not enough bytes: refused before the first one is written, with both figures."""
    done = call(
        *alone(), "sh", "-c", f'mount -t tmpfs -o size=50m none "$2" || exit 99\n{INSTALL}',
        "sh", zip_file, place.folder,
    )  # fmt: skip
    assert done.code == 13, done.text
    assert "51200 KiB free" in done.text


def test_a_read_only_prefix(zip_file: Path, place: Place) -> None:
    """A read-only file system is named, and what to do."""
    done = call(
        *alone(), "sh", "-c",
        f'mount --bind "$2" "$2" && mount -o remount,ro,bind "$2" || exit 99\n{INSTALL}', "sh", zip_file, place.folder,
    )  # fmt: skip
    assert done.code == 17, done.text
    assert "--prefix" in done.text


def test_too_little_memory(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """Less than 128 MiB available: refused."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  262144 kB\nMemFree:  1000 kB\nMemAvailable:  65536 kB\n")
    done = call(
        *alone(), "sh", "-c", f'mount --bind "$3" /proc/meminfo || exit 99\n{INSTALL}',
        "sh", zip_file, place.folder, meminfo,
    )  # fmt: skip
    assert done.code == 14, done.text
    assert "65536 KiB" in done.text
    assert list(place.folder.iterdir()) == []


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use(zip_file: Path, kind: socket.SocketKind) -> None:
    """A port that another program holds, by TCP or UDP, is told before anything is done."""
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            sock.listen(1)
        port = sock.getsockname()[1]
        done = call("sh", zip_file, "--dry-run", "--listen", f"127.0.0.1:{port}")
        assert done.code == 15, done.text
        assert str(port) in done.text
    if not Path("/run/systemd/system").exists():
        done = call("sh", zip_file, "--dry-run", "--listen", f"127.0.0.1:{port}")
        assert done.code == 0, done.text


def test_not_root(zip_file: Path) -> None:
    """Without root rights the way out is said."""
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if command and shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    copied = Path("/tmp") / f"vedette-test-{os.getpid()}.zip"
    shutil.copyfile(zip_file, copied)
    try:
        done = call(*command, "sh", copied)
    finally:
        copied.unlink()
    assert done.code == 10, done.text
    assert "--no-systemd" in done.text


def test_without_a_program(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """A host that lacks a program which is needed is told which."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "tail", "head", "wc", "mktemp", "rm", "dirname", "sed", "id", "cat", "grep", "uname", "date"):
        program = shutil.which(name)
        assert program
        (tools / name).symlink_to(program)
    done = call("env", f"PATH={tools}", "sh", zip_file, "--no-systemd", "--prefix", place.prefix)
    assert done.code == 10, done.text
    assert "is needed and not there" in done.text
    assert list(place.folder.iterdir()) == []


def test_without_systemd(zip_file: Path) -> None:
    """Where systemd does not run the other way is said."""
    if os.geteuid() != 0 or Path("/run/systemd/system").exists():
        pytest.skip("needs root on a host without systemd")
    done = call("sh", zip_file)
    assert done.code == 16, done.text
    assert "--no-systemd" in done.text


def test_a_region_that_does_not_answer(zip_file: Path, place: Place) -> None:
    """It installs anyway, and says that alerts wait."""
    done = place.install(zip_file, "--region", "mqtt://127.0.0.1:1")
    assert done.code == 0, done.text
    assert "mqtt://127.0.0.1:1 does not answer" in done.text
    assert "wait in the outbox" in done.text
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = place.install(zip_file, "--region", f"mqtt://127.0.0.1:{server.getsockname()[1]}")
    assert "1 does not answer" in done.text, "the configuration of the first run stays"


def test_a_token(zip_file: Path, place: Place) -> None:
    """The token lies in a file for its owner only, and the agent is set up to enrol by it; one that is none, and one
    without a region, are refused before anything is done."""
    token = new_token("plants").text()
    for options, says in (
        (("--token", token), "--token needs --region"),
        (("--region", "mqtts://127.0.0.1:1", "--token", "v1:plants:short"), "expects v1:FLEET:ID:SECRET"),
        (("--region", "mqtts://127.0.0.1:1", "--token", token + "|e touch x"), "expects v1:FLEET:ID:SECRET"),
    ):
        done = place.install(zip_file, *options)
        assert done.code == 2, done.text
        assert says in done.text
        assert list(place.folder.iterdir()) == []
    done = place.install(zip_file, "--region", "mqtts://127.0.0.1:1", "--token", token)
    assert done.code == 0, done.text
    assert token.rpartition(":")[2] not in done.text
    file = place.config_dir / "token"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (token + "\n", 0o600)
    settings = config.load(place.config)
    assert (settings.enrolment.token_file, settings.agent.fleet, settings.uplink.type) == (file, "plants", "mqtt")
    assert settings.uplink.broker.key_file == place.data_dir / "identity" / "agent.key"


def test_variables(zip_file: Path, place: Place) -> None:
    """Every variable does what the option of its name does; an option wins."""
    done = call(
        "env", "VEDETTE_NO_SYSTEMD=1", f"VEDETTE_PREFIX={place.prefix}", f"VEDETTE_CONFIG_DIR={place.config_dir}",
        f"VEDETTE_DATA_DIR={place.data_dir}", "VEDETTE_REGION=mqtt://127.0.0.1:1", "VEDETTE_LISTEN=127.0.0.1:9514",
        f"VEDETTE_LOG={place.folder}/own.log", "sh", zip_file, "--listen", "127.0.0.1:10514",
    )  # fmt: skip
    assert done.code == 0, done.text
    settings = config.load(place.config)
    assert (settings.uplink.broker.url, settings.agent.data_dir) == ("mqtt://127.0.0.1:1", place.data_dir)
    syslog = settings.input[0]
    assert (syslog.udp, syslog.tcp) == ("127.0.0.1:10514", "127.0.0.1:10514")  # type: ignore[union-attr]
    assert f"installed {place.current()}" in (place.folder / "own.log").read_text()
    head = (ROOT / "install.sh").read_text().split("set -eu")[0]
    named = set(re.findall(r"VEDETTE_[A-Z_]+", head))
    used = set(re.findall(r"\$\{(VEDETTE_[A-Z_]+)", (ROOT / "install.sh").read_text())) - {"VEDETTE_ARCHIVE"}
    assert used == named, "the variables at the top of install.sh are those that it reads"


def test_upgrade_only_and_rollback(zip_file: Path, variant: Variant, place: Place) -> None:
    """--upgrade wants something to upgrade; --rollback goes back, and back again, and says when there is nothing."""
    done = place.install(zip_file, "--upgrade")
    assert done.code == 42
    assert list(place.folder.iterdir()) == []
    assert place.install(zip_file).code == 0
    first = place.current()
    assert place.sh(place.prefix / "current", "--rollback").code == 41
    assert place.install(variant("second", version="2.0.0"), "--upgrade").code == 0
    second = place.current()
    for expected in (first, second):
        done = place.sh(place.prefix / "current", "--rollback", "--dry-run")
        assert done.code == 0
        assert place.current() != expected
        done = place.sh(place.prefix / "current", "--rollback")
        assert done.code == 0, done.text
        assert place.current() == expected
        assert call(place.vedette, "version").code == 0


def test_rolling_back_to_what_does_not_take_the_configuration(zip_file: Path, variant: Variant, place: Place) -> None:
    """A configuration that only the newer release takes keeps it: the older one is asked first."""
    old = b"""#!/bin/sh
if [ "$1" = check ] && grep -q '^# of tomorrow' "$3"; then echo 'tomorrow is unknown' && exit 2; fi
"""
    assert place.install(variant("older", {"bin/vedette": old})).code == 0
    assert place.install(zip_file).code == 0
    before = place.current()
    with place.config.open("a") as file:
        file.write("# of tomorrow\n")
    done = place.sh(place.prefix / "current", "--rollback")
    assert done.code == 31
    assert "tomorrow is unknown" in done.text
    assert place.current() == before


def test_a_failed_first_installation_leaves_nothing(variant: Variant, place: Place) -> None:
    """A release that does not run here: exit code 30, and only the log tells of it."""
    done = place.install(variant("dead", {"bin/vedette": b"#!/bin/sh\necho dead; exit 1\n"}))
    assert done.code == 30
    assert "nothing was installed" in done.text
    assert [path.name for path in place.folder.rglob("*")] == ["opt", "install.log"]
    assert "exit code 30" in (place.prefix / "install.log").read_text()


def test_labels_for_selinux(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """Where SELinux is on, the policy's types are restored on all that was written (stand-ins: there is none here)."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "selinuxenabled").write_text("#!/bin/sh\nexit 0\n")
    (tools / "restorecon").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    done = call("env", f"PATH={tools}:{os.environ['PATH']}", "sh", zip_file, "--no-systemd", "--prefix", place.prefix,
                "--config-dir", place.config_dir, "--data-dir", place.data_dir)  # fmt: skip
    assert done.code == 0, done.text
    assert (tmp_path / "asked").read_text() == f"-R {place.prefix} {place.config_dir} {place.data_dir}\n"


def test_exit_codes_are_documented() -> None:
    """Every exit code of install.sh and of what follows it stands in docs/install.md, and no other."""
    script = (ROOT / "install.sh").read_text()
    installer = "".join(path.read_text() for path in (ROOT / "packaging/installer").glob("*.py"))
    used = {int(code) for code in re.findall(r"\bdie (\d+) ", script)} | {0, 1}
    used |= {int(code) for code in re.findall(r"\bFailed\(\s*(\d+),", installer)}
    page = (ROOT / "docs/install.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == used


def test_options_are_documented() -> None:
    """docs/install.md names every option of install.sh --help."""
    options = set(re.findall(r"--[a-z-]+", (ROOT / "docs/install.md").read_text()))
    assert set(re.findall(r"^  (--[a-z-]+)", call("sh", ROOT / "install.sh", "--help").text, re.MULTILINE)) <= options


def test_shellcheck() -> None:
    """shellcheck finds nothing to say about the scripts that run on hosts."""
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck here")
    done = call("shellcheck", "-s", "sh", ROOT / "install.sh", *(ROOT / "packaging").glob("*.sh"))
    assert done.code == 0, done.text


def test_the_stub_is_plain_sh(zip_file: Path, tmp_path: Path) -> None:
    """And about the script at the start of the zip."""
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck here")
    stub = tmp_path / "stub.sh"
    stub.write_bytes(zip_file.read_bytes()[:4096].rstrip() + b"\n")
    done = call("shellcheck", "-s", "sh", stub)
    assert done.code == 0, done.text


def test_main_is_the_last_line() -> None:
    """install.sh does nothing before its last line, so that a truncated one does nothing at all."""
    lines = (ROOT / "install.sh").read_text().splitlines()
    assert lines[-1] == 'main "$@"'
    cut = "\n".join(lines[:-1])
    done = subprocess.run(["sh", "-c", cut, "sh", "--help"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert sys.platform == "linux"
