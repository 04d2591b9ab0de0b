"""Whose a raw log is: copies are noticed, restarts and reboots are not taken for one; real files, a root of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.rawlog.samples import lines
from tests.settings import SegmentedLog
from vedette.model.counters import Counters
from vedette.model.event import Cursor
from vedette.rawlog.log import RawLog
from vedette.rawlog.machine import RECORD, bind, copied
from vedette.rawlog.segment import segments

OTHER_FILES = "its files are others than this agent wrote"
UNREADABLE = "the record of its machine cannot be read"


class Host:
    """A root folder with what names a host."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.write("etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4")
        self.write("proc/sys/kernel/random/boot_id", "ba4f554f-3f69-4f1d-9d47-7fb3ff5f8c3e")
        self.write("proc/device-tree/serial-number", "10000000a1b2c3d4\0")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text + "\n")

    def card(self, name: str, address: str, *, assigned: str = "0", device: bool = True) -> None:
        self.write(f"sys/class/net/{name}/address", address)
        self.write(f"sys/class/net/{name}/addr_assign_type", assigned)
        if device:
            (self.root / "sys/class/net" / name / "device").mkdir(exist_ok=True)

    def reboot(self) -> None:
        self.write("proc/sys/kernel/random/boot_id", os.urandom(16).hex())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


@pytest.fixture
def log(tmp_path: Path, host: Host) -> Path:
    """A raw log of ``host``."""
    folder = tmp_path / "raw"
    opened(folder).close()
    bind(folder, host.root)
    return folder


def opened(folder: Path, **options: Any) -> RawLog:
    settings = SegmentedLog(max_bytes=64 << 20, segment_bytes=1 << 20)
    return RawLog.open(folder, settings, Counters(), **options)


def test_what_is_no_copy(log: Path, host: Host) -> None:
    """A restart, a reboot, another name of the folder, and a container that has a machine-id of its own each time."""
    assert copied(log, host.root) == ""
    host.write("etc/machine-id", "0" * 32)
    assert copied(log, host.root) == ""
    bind(log, host.root)
    host.reboot()
    assert copied(log, host.root) == ""
    moved = log.rename(log.with_name("moved"))
    assert copied(moved, host.root) == ""
    shutil.rmtree(host.root)
    assert copied(moved, host.root) == ""  # nothing can be read of the host: nothing is another


def test_no_log_no_copy(tmp_path: Path, host: Host) -> None:
    """A folder that is not there, or is empty, is nobody's; a log that is made is bound to this machine."""
    assert copied(tmp_path / "raw", host.root) == ""
    (tmp_path / "raw").mkdir()
    assert copied(tmp_path / "raw", host.root) == ""
    opened(tmp_path / "raw").close()
    assert copied(tmp_path / "raw") == ""


@pytest.mark.parametrize("command", ["cp -a {log} {copy}", "mkdir {copy} && tar -C {log} -c . | tar -C {copy} -x"])
def test_a_copied_folder(log: Path, host: Host, command: str) -> None:
    """Is noticed, as the record is another file; the folder that was copied stays what it was."""
    copy = log.with_name("copy")
    subprocess.run(command.format(log=log, copy=copy), shell=True, check=True)
    assert copied(copy, host.root) == OTHER_FILES
    assert copied(log, host.root) == ""


@pytest.mark.parametrize("command", ["cp -a {copy}/. {log}", "tar -C {copy} -c . | tar -C {log} -x"])
def test_a_restored_backup(log: Path, host: Host, command: str) -> None:
    """Put back into the folder that it was taken from, after a restart of the agent, it is noticed."""
    copy = log.with_name("copy")
    shutil.copytree(log, copy)
    bind(log, host.root)
    subprocess.run(command.format(log=log, copy=copy), shell=True, check=True)
    assert copied(log, host.root) == OTHER_FILES


def test_another_machine(log: Path, host: Host) -> None:
    """The same files after another boot: another machine-id or board is noticed, and named; what could be read only
    once says nothing."""
    host.reboot()
    host.write("etc/machine-id", "0" * 32)
    assert copied(log, host.root) == "the machine is another, by its machine-id"
    host.write("proc/device-tree/serial-number", "10000000ffffffff")
    assert copied(log, host.root) == "the machine is another, by its machine-id, board"
    (host.root / "etc/machine-id").unlink()
    assert copied(log, host.root) == "the machine is another, by its board"
    (host.root / "proc/device-tree/serial-number").write_text("uninitialized\n")
    assert copied(log, host.root) == ""


def test_another_network_card(log: Path, host: Host) -> None:
    """After another boot a clone with the same machine-id is noticed by the address that its hypervisor gave it; a
    further card is none, nor what a container, a bridge or a random address has."""
    host.write("proc/device-tree/serial-number", "0")  # says nothing
    bind(log, host.root)
    host.card("eth0", "52:54:00:00:00:01")
    host.reboot()
    assert copied(log, host.root) == ""  # a record of a release before
    bind(log, host.root)
    host.reboot()
    host.card("eth1", "00:00:00:00:00:07")
    host.card("wlan0", "52:54:00:00:00:08", assigned="1")
    host.card("docker0", "52:54:00:00:00:09", device=False)
    host.card("ib0", "80:00:02:08:fe:80:00:00:00:00:00:00:f4:52:14:03:00:7b:cb:a1")
    assert copied(log, host.root) == ""
    bind(log, host.root)
    host.reboot()
    host.card("eth0", "52:54:00:00:00:02")
    assert copied(log, host.root) == ""
    host.card("eth1", "00:00:00:00:00:03")
    assert copied(log, host.root) == "the machine is another, by its network"
    shutil.rmtree(host.root / "sys/class/net/eth0")
    shutil.rmtree(host.root / "sys/class/net/eth1")
    assert copied(log, host.root) == ""


def test_a_card_of_a_board_with_a_number(log: Path, host: Host) -> None:
    """May be replaced: the number says which machine it is."""
    host.card("eth0", "52:54:00:00:00:01")
    bind(log, host.root)
    host.reboot()
    host.card("eth0", "52:54:00:00:00:02")
    assert copied(log, host.root) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_a_record_that_this_user_may_not_read(log: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is an error that names it: it does not say that the log is this machine's."""
    log.parent.chmod(0o755)
    log.chmod(0o755)
    (log / RECORD).chmod(0o600)
    monkeypatch.chdir(log.parent)  # those above are root's alone
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match=f"{log.name}/{RECORD}"):
            copied(Path(log.name), host.root)
    finally:
        os.seteuid(0)


def test_another_disk(log: Path, host: Host) -> None:
    """After another boot the disk's own number tells its copy, the partition's from the disk above it."""
    device = log.stat().st_dev
    if not os.major(device):
        pytest.skip("the temporary folder is on no disk")
    block = f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    host.write("sys/devices/sda/serial", "vol-0001")
    (host.root / "sys/devices/sda/sda1").mkdir()
    (host.root / block).parent.mkdir(parents=True)
    (host.root / block).symlink_to(host.root / "sys/devices/sda/sda1")
    bind(log, host.root)
    host.reboot()
    assert copied(log, host.root) == ""
    host.write("sys/devices/sda/serial", "vol-0002")
    assert copied(log, host.root) == "the machine is another, by its disk"


@pytest.mark.parametrize(("kind", "reason"), [("vfat", ""), ("fuse.x", ""), ("ext4", "its files are others")])
def test_file_systems_that_number_files_anew(log: Path, host: Host, kind: str, reason: str) -> None:
    """At each mount: there another number is no copy, and what the machine is decides alone."""
    device = log.stat().st_dev
    mount = f"36 35 {os.major(device)}:{os.minor(device)} / /data rw,noatime master:1 - {kind} /dev/sdb1 rw\n"
    host.write("proc/self/mountinfo", mount)
    bind(log, host.root)
    (log / "other").write_bytes((log / RECORD).read_bytes())
    (log / "other").rename(log / RECORD)
    assert copied(log, host.root).startswith(reason)
    assert bool(copied(log, host.root)) is bool(reason)


def test_a_record_that_is_none(log: Path, host: Host) -> None:
    """Emptied, it makes the log a copy, as an operator may want; so does one that cannot be read. A log without one is
    of a release before."""
    for garbage in (b"", b"{", b"[]", b'{"boot":1}', b'{"boot":"","facts":[],"device":0,"file":[]}', b"\xff" * 99):
        (log / RECORD).write_bytes(garbage)
        assert copied(log, host.root) == UNREADABLE
    (log / RECORD).unlink()
    assert copied(log, host.root) == ""


def test_the_record_holds_no_machine_id(log: Path, host: Host) -> None:
    """What names the host is there as hashes alone, and for nobody else to read."""
    text = (log / RECORD).read_text()
    assert "3d1219c7" not in text
    assert "a1b2c3d4" not in text
    assert orjson.loads(text)["facts"].keys() >= {"machine-id", "board"}
    assert (log / RECORD).stat().st_mode & 0o007 == 0


def test_a_new_log_beside_the_old_one(log: Path) -> None:
    """Has an id of its own and the next generation, is this machine's, and what was stored before is still read."""
    with_events = opened(log)
    with_events.append(lines(b"one", b"two"))
    before = with_events.log_id
    with_events.close()
    (log / RECORD).write_bytes(b"")
    renewed = opened(log, renew=copied(log))
    assert renewed.recovery.new_log
    assert renewed.recovery.reason == UNREADABLE
    assert (renewed.log_id == before, renewed.end, renewed.events) == (False, 0, 0)
    renewed.append(lines(b"three"))
    renewed.close()
    assert copied(log) == ""
    assert [part.log_id for part in segments(log)] == [before, renewed.log_id]
    again = opened(log, committed=Cursor(before, 8))
    assert again.log_id == renewed.log_id
    assert again.end == 6
    again.close()


VOLUMES = """
import subprocess, sys
from pathlib import Path
from tests.rawlog.test_machine import opened
from vedette.rawlog.machine import copied

folder = Path(sys.argv[1])
first, second = folder / "first", folder / "second"
for path in (first, second):
    path.mkdir()
run = lambda *command: subprocess.run([*map(str, command)], check=True)
run("mount", "-o", "loop", folder / "volume", first)
opened(first / "raw").close()
print(copied(first / "raw"))
run("umount", first)
run("cp", folder / "volume", folder / "snapshot")
run("mount", "-o", "loop", folder / "volume", first)
run("mount", "-o", "loop", folder / "snapshot", second)
one, other = (path / "raw" / "machine" for path in (first, second))
assert one.stat().st_ino == other.stat().st_ino and one.read_bytes() == other.read_bytes()
print(sorted(copied(path / "raw") for path in (first, second)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_snapshot_of_a_volume_beside_it(tmp_path: Path) -> None:
    """Block by block the same, on one host in one boot: of two that are mounted one at least is on another device."""
    volume = tmp_path / "volume"
    with volume.open("wb") as file:
        file.truncate(16 << 20)
    if subprocess.run(["mkfs.ext4", "-q", str(volume)], capture_output=True, check=False).returncode:
        pytest.skip("mkfs.ext4 is not there")
    command = ["unshare", "-m", sys.executable, "-c", VOLUMES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    if "mount" in done.stderr and "Error" not in done.stdout and not done.stdout:
        pytest.skip(f"no volume can be mounted here: {done.stderr.splitlines()[-1]}")
    first, both = done.stdout.splitlines()
    assert first == ""
    assert "its device is another" in both, done.stderr
