"""Whose a raw log is: a copy of its folder is noticed at start, so that no two agents go on with one log.

A log_id and an offset name one event; with the agent's id and a rule they make an alert's id. Two hosts that went on
with copies of one log would make the same ids of different events, and the region would drop what came second. So the
folder holds a record, the file ``machine``, which each start writes again; where there is none the log is of a release
before, and is taken for this machine's. The folder is a **copy** when

1. the record cannot be read, since it is empty, say;
2. the record is another file than it was written as (inode and generation, a number that the file system draws for
   each file): the folder was copied, or restored from a backup. File systems that renumber files at each mount
   (FAT, exFAT, SMB, FUSE) are not asked;
3. in one boot of the host (boot_id) the file's device is another: a snapshot of its volume, mounted beside it. Devices
   with the major number 0 (NFS, overlay, btrfs) are numbered by mount and not compared;
4. after another boot some fact of FACTS, of the disk or of the network is another; only what could be read both times
   is compared. Of network cards one address in common is enough, so that further cards come and go; where a board
   has a number that can be read, they are not asked, and may be replaced.

So a restart, a reboot, and within one boot a container with a machine-id of its own over the same volume make no copy.
A disk in another machine does, though its first host may be gone: that costs no event (``runtime/agent/copied.py``). A
snapshot that is put back in its place looks like the original: who does that empties the record (docs/install.md).

Facts are kept as hashes: a machine-id is nobody else's (machine-id(5)).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from vedette.rawlog.segment import segments
from vedette.system.durable import sync_path

RECORD = "machine"
BOOT_ID = "proc/sys/kernel/random/boot_id"
FACTS = {
    "machine-id": ("etc/machine-id", "var/lib/dbus/machine-id"),
    "product": ("sys/class/dmi/id/product_uuid",),  # for root alone
    "board": ("proc/device-tree/serial-number",),
}
"""The first of these files that can be read and is not empty."""
DISK = ("serial", "wwid", "device/serial", "device/wwid", "device/cid")
"""Below a disk's folder in /sys, and for a partition below the one above it."""
CARDS = 16
"""Addresses of network cards; the smallest."""
LEAST = 4
"""Characters of a fact: some hosts have "None" or "0" there."""
_GETVERSION = 0x80087601  # FS_IOC_GETVERSION, ioctl_iflags(2)
MOUNTS = "proc/self/mountinfo"
FLEETING = ("vfat", "msdos", "exfat", "cifs", "smb3", "9p", "fuse")
"""What types of file systems begin with whose inode numbers last as long as a mount."""
ROOT = Path("/")


def copied(folder: Path, root: Path = ROOT) -> str:
    """Why the log in ``folder`` is a copy; empty: it is this machine's, or there is none. Raises OSError.

    ``root``: where /etc, /proc and /sys are.
    """
    if not folder.is_dir() or not segments(folder):
        return ""
    try:
        descriptor = os.open(folder / RECORD, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        try:
            noted = orjson.loads(file.read(1 << 16))
            before = {name: noted[name] for name in ("boot", "facts", "device", "file")}
            facts = {str(name): str(value) for name, value in before["facts"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return "the record of its machine cannot be read"
        now = _identity(file.fileno(), root)
    if before["file"] and now["file"] and before["file"] != now["file"]:
        return "its files are others than this agent wrote"
    if before["boot"] == now["boot"] != "":
        return "" if before["device"] == now["device"] else "its device is another"
    others = [name for name, value in facts.items() if _differ(value, now["facts"].get(name, value))]
    return f"the machine is another, by its {', '.join(others)}" if others else ""


def _differ(before: str, now: str) -> bool:
    return set(before.split()).isdisjoint(now.split())


def bind(folder: Path, root: Path = ROOT) -> None:
    """Write the record: the log in ``folder`` is this machine's. Raises OSError."""
    temporary = folder / f".{RECORD}.tmp"
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(_identity(descriptor, root)))
        file.flush()
        os.fsync(descriptor)
    temporary.rename(folder / RECORD)
    sync_path(folder)


def _identity(descriptor: int, root: Path) -> Mapping[str, Any]:
    """What a record says of this host and of the open file."""
    stat, generation = os.fstat(descriptor), bytearray(8)
    with suppress(OSError):  # not every file system has them
        fcntl.ioctl(descriptor, _GETVERSION, generation)
    disk = os.major(stat.st_dev) != 0
    facts = {name: [_first(root / path for path in paths)] for name, paths in FACTS.items()}
    if len(facts["board"][0]) < LEAST:
        facts["network"] = _addresses(root)
    if disk:
        block = root / f"sys/dev/block/{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}"
        facts["disk"] = [_first(folder / path for folder in (block, block / "..") for path in DISK)]
    return {
        "boot": _first([root / BOOT_ID]),
        "facts": {
            name: " ".join(blake2b(value.encode(), digest_size=16, person=b"vedette").hexdigest() for value in texts)
            for name, values in facts.items()
            if (texts := [value for value in values if len(value) >= LEAST])
        },
        "device": stat.st_dev if disk else 0,
        "file": [stat.st_ino, int.from_bytes(generation, "little")] if _inodes_last(stat.st_dev, root) else [],
    }


def _inodes_last(device: int, root: Path) -> bool:
    try:
        lines = (root / MOUNTS).read_text(errors="replace").splitlines()
    except OSError:
        return True
    number = f"{os.major(device)}:{os.minor(device)}"
    types = [line.rpartition(" - ")[2] for line in lines if line.split()[2:3] == [number]]
    return not any(type_.startswith(FLEETING) for type_ in types)


def _addresses(root: Path) -> list[str]:
    """Of Ethernet cards, as their makers or the hypervisor gave them. What no device is behind has none: a container's
    end of a pair, a bridge, a tunnel; nor has what was set or drawn (``addr_assign_type``, sysfs-class-net)."""
    cards: list[Path] = []
    with suppress(OSError):
        cards += [path.parent for path in (root / "sys/class/net").glob("*/device")]
    lasting = [_first([card / "address"]) for card in cards if _first([card / "addr_assign_type"]) == "0"]
    return sorted({address for address in lasting if len(address) == len("00:00:00:00:00:00")})[:CARDS]


def _first(paths: Iterator[Path] | list[Path]) -> str:
    for path in paths:
        with suppress(OSError, UnicodeDecodeError):
            if (text := path.read_text().strip("\0 \n")) and text != "uninitialized":
                return text
    return ""
