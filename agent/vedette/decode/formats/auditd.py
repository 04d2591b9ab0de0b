"""The Linux audit log: one record, or all records of one event, as fields.

    [node=HOST ]type=TYPE msg=audit(SECONDS.MILLIS:SERIAL): NAME=VALUE …

as auditd writes it, also behind a syslog header (audispd), from the kernel (``audit: type=1400 audit(…)``, TYPE as a
number) and enriched (after an ASCII 29, which rsyslog writes as ``#035``, the kernel's numbers once more as names:
``SYSCALL=execve AUID="alice"``). systemd's journal forwards a record as ``TYPE NAME=VALUE …`` of the program ``audit``.
A message of user space is quoted once more (``msg='op=login acct="root" …'``); its pairs are fields like the others.

Records of one event share ``SECONDS.MILLIS:SERIAL``. A text of several lines is one event: a name that occurs again
makes a list (``type``: SYSCALL, EXECVE, PATH …). ``HEAD`` of a record, ``ends`` of its TYPE and ``engine/join.py``
bring them together.

A value that a process chose is quoted when it is plain and else written as upper-case hex. Such values (``_UNTRUSTED``,
the arguments ``a0`` … of EXECVE, also in parts ``a1[0]``) are decoded; in ``proctitle`` the NULs between arguments
become blanks; a rule's several keys, which an ASCII 1 parts, become a list. An event with such a value is found by a
guard (``GIVES``), because no literal finds it. ``SYSCALL``, where the record is not enriched, and a TYPE given as a
number are looked up: see ``base.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import tzinfo
from functools import lru_cache

from vedette.decode.formats.base import Field, Fields, Format, Gives, Provenance, Seen, named, renamed, source
from vedette.decode.syslog import add

STARTS = (
    rb"(?:\[ *\d{1,10}\.\d{1,9}\] )?(?:audit: )?(?:node=\S{1,255} )?"
    rb"type=[A-Z0-9_\[\]]{1,40} (?:msg=)?audit\(\d{1,12}\.\d{1,6}:\d{1,20}\)"
)
_RECORD = re.compile(
    r"(?:node=(?P<node>\S{1,255}) )?type=(?P<type>[A-Z0-9_\[\]]{1,40}) "
    r"(?:msg=)?audit\((?P<id>\d{1,12}\.\d{1,6}:\d{1,20})\):? ?(?P<body>[^\n]*)"
)
HEAD = re.compile(
    rb"(?:\[ *\d{1,10}\.\d{1,9}\] )?(?:audit: )?(?:node=(\S{1,255}) )?"
    rb"type=([A-Z0-9_\[\]]{1,40}) (?:msg=)?(audit\(\d{1,12}\.\d{1,6}:\d{1,20}\))"
)
"""``STARTS`` with its parts: node, TYPE, id."""
LATER = re.compile(rb"\n(?:node=\S{1,255} )?type=([A-Z0-9_\[\]]{1,40}) (?:msg=)?audit\(")
"""The TYPE of a record that is not the first in its text."""
_FORWARDED = re.compile(r"(?:(?:type=)?(?P<type>[A-Z][A-Z0-9_]{1,39}) )?(?P<body>[^\n]*=[^\n]*)")
_BY_NUMBER = re.compile(r"(?:UNKNOWN\[|AUDIT)?(\d{4})\]?")
_ENDS = re.compile(
    rb"PROCTITLE|EOE|KERNEL|USER(?:_.+)?|(?:ACCT|CRED|CRYPTO|DAEMON|GRP|RESP|ROLE|SERVICE|SYSTEM|VIRT)_.+"
    rb"|(?:ADD|DEL)_(?:USER|GROUP)|SOFTWARE_UPDATE|1320|1327|1[12]\d\d|2\d\d\d"
)
_PAIR = re.compile(
    r"""(?:^|(?<=[\s'({,\x1d])|(?<=#035))([A-Za-z_][\w-]{0,63}(?:\[\d{1,4}\])?)="""
    r"""(?:"([^"\n]*+)"|((?:[^\s'"\x1d#]++|#(?!035[A-Z]))*))"""
)
_HEX = re.compile(r"(?:[0-9A-F]{2})+")
_ARGUMENT = re.compile(r"(a\d{1,4})(?:\[\d{1,4}\])?")

_UNTRUSTED = frozenset(
    ("proctitle", "cmd", "comm", "exe", "name", "cwd", "key", "acct", "path", "ocomm", "dir", "file", "data", "vm")
)
_NO_VALUE = frozenset({"", "?", "(null)", "(none)", "(unknown)", '"?"'})

MAX_PAIRS = 1024
"""Pairs of one event that are fields; what follows is in ``message`` alone."""


@lru_cache(256)
def ends(kind: bytes) -> bool:
    """Whether no record of the same event follows one of this TYPE.

    The kernel writes PROCTITLE last and then, where it is logged at all, EOE. Messages of user space (1100 to 1299, and
    from 2100 on) stand alone. Of all others (linux/audit.h) that is not known.
    """
    return _ENDS.fullmatch(kind) is not None


def _plain(value: str) -> str | None:
    """The text of upper-case hex; None when it is none."""
    if not _HEX.fullmatch(value):
        return None
    return bytes.fromhex(value).decode("utf-8", "replace")


def read(message: str) -> Fields:
    """The fields of all records in ``message``."""
    fields: Fields = {}
    left = MAX_PAIRS
    for record in _RECORD.finditer(message):
        fields["audit_id"] = record["id"]
        if record["node"]:
            fields["node"] = record["node"]
        left = _read_record(fields, record, left)
    if not fields and (forwarded := _FORWARDED.match(message)):
        _read_record(fields, forwarded, left)
    if "SYSCALL" not in fields and isinstance(number := fields.get("syscall"), str):
        arch = fields.get("arch")
        name = _SYSCALLS.get(arch, {}).get(number) if isinstance(arch, str) else None
        if name is not None:
            fields["SYSCALL"] = name
    for name, generic in _GENERIC.items():
        if isinstance(value := fields.get(name), str) and value not in _NO_VALUE:
            fields.setdefault(generic, value)
    return fields


def _read_record(fields: Fields, record: re.Match[str], left: int) -> int:
    kind = record["type"] or ""
    if number := _BY_NUMBER.fullmatch(kind):
        kind = TYPES.get(number[1], kind)
    if kind:
        add(fields, "type", kind)
    parts: dict[str, list[tuple[str, bool]]] = {}
    for pair in _PAIR.finditer(record["body"]):
        if left <= 0:
            break
        left -= 1
        name, quoted, bare = pair.groups()
        argument = _ARGUMENT.fullmatch(name) if kind == "EXECVE" else None
        if argument is not None:
            parts.setdefault(argument[1], []).append((bare or quoted or "", quoted is None))
            continue
        value = bare or quoted or ""
        if quoted is None and name in _UNTRUSTED and (text := _plain(value)) is not None:
            value = text.replace("\0", " ") if name == "proctitle" else text
        if name == "hostname":
            name = "rhost"  # the peer's; ``hostname`` is where the event happened
        elif name == "msg" and not value:
            continue  # the quote around a message of user space
        if not (name in ("rhost", "addr") and value in _NO_VALUE):
            for part in value.split("\x01") if name == "key" else (value,):
                add(fields, name, part)
    for name, pieces in parts.items():
        joined = "".join(text for text, _ in pieces)
        decoded = _plain(joined) if all(bare for _, bare in pieces) else None
        add(fields, name, joined if decoded is None else decoded)
    return left


_GENERIC = {"acct": "user", "addr": "src_ip", "node": "hostname"}

_HEX_GUARD = b"=(?-i:[0-9A-F]{6})"
_NUMBERED_TYPE = rb"(?:type=(?:UNKNOWN\[)?|AUDIT)[12][0-9]{3}\]? "
GIVES = Gives(
    "`type=T msg=audit(…)`, also behind `node=`, `audit:` or a syslog header",
    (
        *(Field(name, (name,), guard=name.encode() + _HEX_GUARD) for name in sorted(_UNTRUSTED)),
        Field("a<n>", ("a<n>",), guard=rb" a[0-9]{1,4}(?:=(?-i:[0-9A-F]{6})|\[0)"),
        Field("type", guard=_NUMBERED_TYPE),
        Field("user", ("acct",), guard=b"acct" + _HEX_GUARD),
        Field("SYSCALL", how=Provenance.SYNTHETIC),
        *named(["audit_id"]),
        *renamed({"addr": "src_ip", "hostname": "rhost", "node": "hostname"}, how=Provenance.VERBATIM),
    ),
    Provenance.VERBATIM,
)


def _time(fields: Seen, zone: tzinfo | None) -> int | None:
    seconds, _, rest = str(fields.get("audit_id", "")).partition(".")
    millis = rest.partition(":")[0]
    return int(seconds) * 1_000_000 + int(millis[:6].ljust(6, "0")) if seconds.isdigit() and millis else None


FORMAT = Format("auditd", STARTS, read, GIVES, source("linux", services="auditd"), time_of=_time)

TYPES: Mapping[str, str] = {
    str(first + i): name
    for first, names in (
        (1005, "USER LOGIN"),
        (
            1100,
            "USER_AUTH USER_ACCT USER_MGMT CRED_ACQ CRED_DISP USER_START USER_END USER_AVC USER_CHAUTHTOK "
            "USER_ERR CRED_REFR USYS_CONFIG USER_LOGIN USER_LOGOUT ADD_USER DEL_USER ADD_GROUP DEL_GROUP "
            "DAC_CHECK CHGRP_ID TEST TRUSTED_APP USER_SELINUX_ERR USER_CMD USER_TTY CHUSER_ID GRP_AUTH "
            "SYSTEM_BOOT SYSTEM_SHUTDOWN SYSTEM_RUNLEVEL SERVICE_START SERVICE_STOP GRP_MGMT "
            "GRP_CHAUTHTOK MAC_CHECK ACCT_LOCK ACCT_UNLOCK USER_DEVICE SOFTWARE_UPDATE",
        ),
        (1300, "SYSCALL"),
        (1302, "PATH IPC SOCKETCALL CONFIG_CHANGE SOCKADDR CWD"),
        (1309, "EXECVE"),
        (
            1311,
            "IPC_SET_PERM MQ_OPEN MQ_SENDRECV MQ_NOTIFY MQ_GETSETATTR KERNEL_OTHER FD_PAIR OBJ_PID TTY "
            "EOE BPRM_FCAPS CAPSET MMAP NETFILTER_PKT NETFILTER_CFG SECCOMP PROCTITLE FEATURE_CHANGE "
            "REPLACE KERN_MODULE FANOTIFY TIME_INJOFFSET TIME_ADJNTPVAL BPF EVENT_LISTENER URINGOP "
            "OPENAT2 DM_CTRL DM_EVENT",
        ),
        (1400, "AVC SELINUX_ERR AVC_PATH MAC_POLICY_LOAD MAC_STATUS MAC_CONFIG_CHANGE"),
        (1700, "ANOM_PROMISCUOUS ANOM_ABEND ANOM_LINK"),
        (
            1800,
            "INTEGRITY_DATA INTEGRITY_METADATA INTEGRITY_STATUS INTEGRITY_HASH INTEGRITY_PCR INTEGRITY_RULE",
        ),
        (2000, "KERNEL"),
    )
    for i, name in enumerate(names.split())
}
"""Record types by the numbers that the kernel has for them (linux/audit.h); it may print these."""


def _numbers(text: str) -> dict[str, str]:
    return {number: name for name, _, number in (word.partition("=") for word in text.split())}


_SYSCALLS: Mapping[str, Mapping[str, str]] = {
    "c000003e": _numbers(
        "open=2 mmap=9 mprotect=10 socket=41 connect=42 accept=43 sendto=44 bind=49 listen=50 clone=56 fork=57 vfork=58"
        " execve=59 kill=62 uname=63 truncate=76 chdir=80 rename=82 mkdir=83 rmdir=84 creat=85 link=86 unlink=87"
        " symlink=88 chmod=90 fchmod=91 chown=92 fchown=93 lchown=94 sysinfo=99 ptrace=101 syslog=103 setuid=105"
        " setgid=106 setreuid=113 setresuid=117 mknod=133 personality=135 chroot=161 settimeofday=164 mount=165"
        " umount2=166 reboot=169 sethostname=170 init_module=175 delete_module=176 setxattr=188 clock_settime=227"
        " kexec_load=246 openat=257 mkdirat=258 mknodat=259 fchownat=260 unlinkat=263 renameat=264 linkat=265"
        " symlinkat=266 fchmodat=268 unshare=272 accept4=288 setns=308 process_vm_readv=310 process_vm_writev=311"
        " finit_module=313 renameat2=316 memfd_create=319 kexec_file_load=320 bpf=321 execveat=322"
    ),
    "c00000b7": _numbers(
        "setxattr=5 mknodat=33 mkdirat=34 unlinkat=35 symlinkat=36 linkat=37 renameat=38 umount2=39 mount=40"
        " truncate=45 chdir=49 chroot=51 fchmod=52 fchmodat=53 fchownat=54 fchown=55 openat=56 personality=92"
        " unshare=97 kexec_load=104 init_module=105 delete_module=106 clock_settime=112 syslog=116 ptrace=117 kill=129"
        " reboot=142 setgid=144 setreuid=145 setuid=146 setresuid=147 uname=160 sethostname=161 settimeofday=170"
        " sysinfo=179 socket=198 bind=200 listen=201 accept=202 connect=203 sendto=206 clone=220 execve=221 mmap=222"
        " mprotect=226 accept4=242 setns=268 process_vm_readv=270 process_vm_writev=271 finit_module=273 renameat2=276"
        " memfd_create=279 bpf=280 execveat=281 kexec_file_load=294"
    ),
}
"""Names that rules ask for, by architecture (x86-64, aarch64) and number."""
