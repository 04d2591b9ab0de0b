"""A process that only computes, between two pipes: what it may ask of the kernel, as a table of what is allowed.

``enclose`` gives up all else, for good, and names what is in force:

    limits       memory (RLIMIT_AS), no written file, 64 descriptors, no core dump; no capability that lifts them
    seccomp      the calls of ``ALLOWED``, with the arguments that it names: no process or thread, no socket, no signal
                 to others, files for reading alone, no mode, owner or name changed, no memory beside its own, nobody
                 else's limits, priority and processors. x86_64, aarch64
    landlock     of files those in Python's own folders; no TCP, signal or abstract socket outwards. Linux 5.13
    closed       in place of Landlock: no file at all. Modules are loaded before, when all else is in force
    namespaces   its own users, network and System V IPC, where unprivileged users may have these

``NEEDED`` must be in force, else the process must not run what it was started for. A call that is not allowed fails
with EPERM; one that is newer than this table with ENOSYS, so that libc takes the older one.

seccomp(2), landlock(7), user_namespaces(7), capabilities(7); numbers: asm/unistd_64.h, asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

NEEDED = ("limits", "seccomp")

WHOLE = 0xFFFFFFFF
SELF = -1
"""In place of a value: this process's own number."""
O_ASYNC = 0x2000
_WRITES = 0x3 | 0x40 | 0x200 | O_ASYNC
"""O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_ASYNC; O_TMPFILE needs one of the first two."""


class Condition(NamedTuple):
    """``arguments[argument] & mask == value``, of the lower 32 bits."""

    argument: int
    value: int
    mask: int = WHOLE


class Call(NamedTuple):
    """``x86_64`` and ``aarch64``: its number, -1 where there is none. ``when``: all tests of one of these must hold."""

    name: str
    x86_64: int
    aarch64: int
    when: tuple[tuple[Condition, ...], ...] = ((),)


def _any(argument: int, *values: int) -> tuple[tuple[Condition, ...], ...]:
    return tuple((Condition(argument, value),) for value in values)


ALLOWED: tuple[Call, ...] = (
    # The two pipes, and what files are read with. Writing needs a descriptor that can be written: there is the pipe.
    Call("read", 0, 63), Call("write", 1, 64), Call("readv", 19, 65), Call("writev", 20, 66), Call("pread64", 17, 67),
    Call("lseek", 8, 62), Call("close", 3, 57), Call("fstat", 5, 80),
    # Flags of descriptors. Not: F_SETOWN, F_SETSIG and O_ASYNC, which have the kernel signal the agent; locks, leases
    # and notifications; F_SETPIPE_SZ. F_DUPFD_CLOEXEC is what mmap of a file needs.
    Call("fcntl", 72, 25, (*_any(1, 1, 2, 3, 1030), (Condition(1, 4), Condition(2, 0, O_ASYNC)))),
    # TCGETS and FIOCLEX, FIONCLEX, by which Python knows a terminal and marks descriptors. Not: FIOASYNC, FIOSETOWN.
    Call("ioctl", 16, 29, _any(1, 0x5401, 0x5450, 0x5451)),
    # Memory of its own, within RLIMIT_AS. Not: memfd, shm and other memory that a process is not charged for.
    Call("mmap", 9, 222), Call("munmap", 11, 215), Call("mprotect", 10, 226), Call("mremap", 25, 216),
    Call("brk", 12, 214), Call("madvise", 28, 233),
    # Clocks and chance; waiting, which the parent sees and ends.
    Call("clock_gettime", 228, 113), Call("clock_getres", 229, 114), Call("gettimeofday", 96, 169),
    Call("time", 201, -1), Call("times", 100, 153), Call("getrandom", 318, 278), Call("clock_nanosleep", 230, 115),
    Call("nanosleep", 35, 101), Call("restart_syscall", 219, 128), Call("futex", 202, 98),
    Call("sched_yield", 24, 124),
    # Its own signals, and the one timer that runs while it computes: none lets code run between two calls.
    Call("rt_sigaction", 13, 134), Call("rt_sigprocmask", 14, 135), Call("rt_sigreturn", 15, 139),
    Call("sigaltstack", 131, 132), Call("setitimer", 38, 103, _any(0, 2)), Call("getitimer", 36, 102),
    Call("tgkill", 234, 131, _any(0, SELF)), Call("tkill", 200, 130, _any(0, SELF)),
    # Who and where it is. Not: names of others' processes, users or files.
    Call("getpid", 39, 172), Call("gettid", 186, 178), Call("getppid", 110, 173), Call("getuid", 102, 174),
    Call("geteuid", 107, 175), Call("getgid", 104, 176), Call("getegid", 108, 177), Call("getpgrp", 111, -1),
    Call("getsid", 124, 156, _any(0, 0)), Call("uname", 63, 160), Call("sysinfo", 99, 179),
    Call("getcpu", 309, 168), Call("getrusage", 98, 165), Call("getcwd", 79, 17),
    # Limits, priority and processors of itself alone: limits can only become narrower, the priority only lower.
    Call("prlimit64", 302, 261, _any(0, 0)), Call("getrlimit", 97, 163), Call("setrlimit", 160, 164),
    Call("getpriority", 140, 141, ((Condition(0, 0), Condition(1, 0)),)),
    Call("setpriority", 141, 140, ((Condition(0, 0), Condition(1, 0)),)),
    Call("sched_getaffinity", 204, 123, _any(0, 0)),
    # The end.
    Call("exit_group", 231, 94), Call("exit", 60, 93),
)  # fmt: skip

FILES: tuple[Call, ...] = (
    # Modules are found and read; never written, made, renamed or removed, and neither modes, owners nor times set.
    Call("openat", 257, 56, ((Condition(2, 0, _WRITES),),)), Call("open", 2, -1, ((Condition(1, 0, _WRITES),),)),
    Call("getdents64", 217, 61), Call("newfstatat", 262, 79), Call("statx", 332, 291), Call("stat", 4, -1),
    Call("lstat", 6, -1), Call("readlinkat", 267, 78), Call("readlink", 89, -1), Call("faccessat", 269, 48),
    Call("access", 21, -1), Call("faccessat2", 439, 439),
)  # fmt: skip
"""Allowed where Landlock says which files, and until files are closed."""

CLOSING = (Call("prctl", 157, 167, _any(0, 22)),)
"""Another filter, which can only refuse more: while modules are loaded, before files are closed."""

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEWER = 424
"""From here on both have the same numbers, and libc knows what to do without."""
_X32 = 0x40000000

LOADED = (
    "array", "base64", "binascii", "bisect", "calendar", "cmath", "collections", "colorsys", "csv", "dataclasses",
    "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "html", "io",
    "ipaddress", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "struct", "textwrap",
    "time", "typing", "unicodedata", "urllib.parse", "uuid", "zlib", "encodings.idna",
)  # fmt: skip
"""Modules of Python's that are there without a file to be opened, where files are ``closed``."""

_PDEATHSIG, _SET_SECCOMP, _FILTER, _NO_NEW_PRIVS = 1, 22, 2, 38
_NEWUSER, _NEWNET, _NEWIPC = 0x10000000, 0x40000000, 0x08000000
_CAPABILITIES = {"x86_64": (125, 126), "aarch64": (90, 91)}
"""capget, capset."""
_VERSION_3 = 0x20080522
_LANDLOCK = (444, 445, 446)
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3


def enclose(modules: Iterable[str] = ()) -> list[str]:
    """Give up all of it; the names of what is in force. ``modules``: what will be imported, if it is there."""
    libc = ctypes.CDLL(None, use_errno=True)
    in_force = []
    with suppress(OSError):  # a unit's filter of system calls may forbid it
        os.nice(10)
    namespaces = libc.unshare(_NEWUSER | _NEWNET | _NEWIPC) == 0
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _limits(libc):
        in_force.append("limits")
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if landlock := _landlock(libc):
        contained = _seccomp(libc, (*ALLOWED, *FILES))
    elif contained := _seccomp(libc, (*ALLOWED, *FILES, *CLOSING)):
        for name in (*LOADED, *modules):
            with suppress(Exception, SystemExit):  # importing it in a function says why
                importlib.import_module(name)
        contained = _seccomp(libc, ALLOWED)
    in_force += ["seccomp"] * contained
    in_force += ["landlock"] if landlock else ["closed"] * contained
    return in_force + ["namespaces"] * namespaces


def _limits(libc: ctypes.CDLL) -> bool:
    """Limits that no capability lifts again."""
    try:
        for limit, most in (
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, 64),
        ):
            resource.setrlimit(limit, (most, most))
    except (OSError, ValueError):
        return False
    return _powerless(libc) and resource.getrlimit(resource.RLIMIT_AS)[1] != resource.RLIM_INFINITY


def _powerless(libc: ctypes.CDLL) -> bool:
    """Without capabilities now, or from the beginning: a unit that grants none may forbid to give them up."""
    get, put = _CAPABILITIES.get(platform.machine(), (-1, -1))
    header, sets = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0)), ctypes.create_string_buffer(24)
    if libc.syscall(put, header, sets) == 0:
        return True
    if libc.syscall(get, header, sets) != 0:
        return False
    _, permitted, _, _, further, _ = struct.unpack("=6I", sets.raw)
    return not permitted and not further


def _seccomp(libc: ctypes.CDLL, calls: Iterable[Call]) -> bool:
    machine = platform.machine()
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        return False
    program = filter_for(machine, calls, os.getpid())
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(header), 0, 0) == 0)


def filter_for(machine: str, calls: Iterable[Call], pid: int) -> bytes:
    """The filter that allows these, as an array of struct sock_filter over struct seccomp_data: the call at 0, the
    architecture at 4, arguments from 16 on, eight bytes each."""
    load, equal, above, mask, give = 0x20, 0x15, 0x35, 0x54, 0x06
    allow, refuse, lacks = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    steps: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, _ARCHITECTURES[machine]),
        (give, 0, 0, 0x80000000),  # another architecture's numbers: the process ends
        (load, 0, 0, 0),
        (above, 0, 1, _X32),
        (give, 0, 0, refuse),
    ]
    for call in calls:
        number: int = getattr(call, machine)
        if number < 0:
            continue
        block: list[tuple[int, int, int, int]] = []
        for tests in call.when:
            test: list[tuple[int, int, int, int]] = []
            for argument, value, bits in tests:
                test += [(load, 0, 0, 16 + 8 * argument), (mask, 0, 0, bits)]
                test.append((equal, 0, 0, pid if value == SELF else value))  # its way out is filled in below
            test.append((give, 0, 0, allow))
            block += [
                (code, 0, len(test) - at - 1, value) if code == equal else (code, yes, no, value)
                for at, (code, yes, no, value) in enumerate(test)
            ]
        if call.when != ((),):
            block.append((give, 0, 0, refuse))
        steps += [(equal, 0, len(block), number), *block]
    steps += [(above, 0, 1, _NEWER), (give, 0, 0, lacks), (give, 0, 0, refuse)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _landlock(libc: ctypes.CDLL) -> bool:
    create, add, restrict = _LANDLOCK
    version = libc.syscall(create, None, 0, 1)
    if version < 1:
        return False
    attributes = _landlock_attributes(version)
    rules = libc.syscall(create, ctypes.create_string_buffer(attributes), len(attributes), 0)
    if rules < 0:
        return False
    for folder in _readable():
        try:
            descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        access = _READ_FILE | (_READ_DIR if os.path.isdir(folder) else 0)
        libc.syscall(add, rules, 1, ctypes.create_string_buffer(struct.pack("<Qi", access, descriptor)), 0)
        os.close(descriptor)
    done = libc.syscall(restrict, rules, 0) == 0
    os.close(rules)
    return bool(done)


def _landlock_attributes(version: int) -> bytes:
    """struct landlock_ruleset_attr of all that this version handles: what no rule gives is refused."""
    files = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    tcp, outwards = 0b11, 0b11  # bind, connect; abstract Unix sockets, signals
    parts = [files, *([tcp] if version >= 4 else []), *([outwards] if version >= 6 else [])]
    return struct.pack(f"{len(parts)}Q", *parts)


def _readable() -> Iterator[str]:
    yield from sys.path
    for prefix in {sys.prefix, sys.base_prefix}:
        yield prefix + "/lib"
    yield from ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")
    yield from ("/dev/urandom", "/dev/null", "/etc/ld.so.cache")
