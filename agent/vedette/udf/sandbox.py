"""What a child that runs user functions gives up before it loads any: processes, the network, files, signals.

``enclose`` does what the kernel permits and says what that was; none of it can be undone. By libc's ``syscall``, as
Python has no call for it:

| | what goes | needs |
|---|---|---|
| limits | new files and writes to files, core dumps, more than 64 descriptors | always |
| ``seccomp`` | starting processes and programs, sockets, signals, other processes | x86_64, aarch64 |
| ``landlock`` | files outside Python's own folders: configuration, keys, events, /proc | Linux 5.13 with Landlock |
| ``namespaces`` | the network, once more | user namespaces of unprivileged users |

prctl(2), seccomp(2), landlock(7), user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys

_NO_NEW_PRIVS, _SET_SECCOMP, _PDEATHSIG = 38, 22, 1
_FILTER = 2
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_THREAD = 0x10000

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS = {
    # clone, clone3; then what is refused
    "x86_64": (56, 435, (
        41, 42, 53, 57, 58, 59, 62, 101, 129, 165, 169, 175, 176, 200, 234, 248, 249, 250, 272, 297, 298, 308, 310, 311,
        313, 321, 322, 323, 424, 425, 434,
    )),
    "aarch64": (220, 435, (
        198, 203, 199, 221, 129, 117, 138, 40, 142, 105, 106, 130, 131, 217, 218, 219, 97, 240, 241, 268, 270, 271, 273,
        280, 281, 282, 424, 425, 434,
    )),
}  # fmt: skip
"""socket connect socketpair (fork vfork) execve kill ptrace rt_sigqueueinfo mount reboot init_module delete_module
tkill tgkill add_key request_key keyctl unshare rt_tgsigqueueinfo perf_event_open setns process_vm_readv
process_vm_writev finit_module bpf execveat userfaultfd pidfd_send_signal io_uring_setup pidfd_open."""

_LANDLOCK = (444, 445, 446)
_READ = 1 << 2 | 1 << 3
"""LANDLOCK_ACCESS_FS_READ_FILE, READ_DIR."""


def enclose() -> list[str]:
    """Give up all of it; the names of what the kernel permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for limit, most in (
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        resource.setrlimit(limit, (most, most))
    os.nice(10)
    steps = {"namespaces": _namespaces, "landlock": _landlock, "seccomp": _seccomp}
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    held = ["limits", *(name for name, step in steps.items() if step(libc))]
    if "seccomp" not in held:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    return held


def _namespaces(libc: ctypes.CDLL) -> bool:
    return bool(libc.unshare(_NEWUSER | _NEWNET) == 0)


def _seccomp(libc: ctypes.CDLL) -> bool:
    machine = platform.machine()
    if machine not in _CALLS or sys.maxsize < 1 << 32:
        return False
    program = _program(_ARCHITECTURE[machine], *_CALLS[machine])
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(header), 0, 0) == 0)


def _program(architecture: int, clone: int, clone3: int, refused: tuple[int, ...]) -> bytes:
    """A filter of struct sock_filter: load a word of struct seccomp_data (0: the call, 4: the architecture, 16: the
    first argument), compare, jump, return."""
    load, equal, above, has, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, no, not_there = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    steps: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (give, 0, 0, 0x80000000),  # another architecture's numbers: the process ends
        (load, 0, 0, 0),
        (above, 0, 1, 0x40000000),  # x32
        (give, 0, 0, no),
        (equal, 0, 1, clone3),  # its flags are in memory: libc asks clone instead
        (give, 0, 0, not_there),
    ]
    for number in refused:
        steps += [(equal, 0, 1, number), (give, 0, 0, no)]
    steps += [
        (equal, 0, 3, clone),
        (load, 0, 0, 16),
        (has, 1, 0, _THREAD),
        (give, 0, 0, no),
        (give, 0, 0, allow),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _landlock(libc: ctypes.CDLL) -> bool:
    create, add, restrict = _LANDLOCK
    version = libc.syscall(create, None, 0, 1)
    if version < 1:
        return False
    handled = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    if 3 <= version < 5:
        handled = (1 << 15) - 1
    rules = libc.syscall(create, ctypes.create_string_buffer(struct.pack("Q", handled)), 8, 0)
    if rules < 0:
        return False
    folders = {*sys.path, sys.prefix + "/lib", sys.base_prefix + "/lib", "/lib", "/lib64", "/usr/lib", "/usr/lib64",
               "/usr/share/zoneinfo", "/dev/urandom", "/dev/null", "/etc/ld.so.cache"}  # fmt: skip
    for folder in folders:
        try:
            descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        access = _READ if os.path.isdir(folder) else 1 << 2
        libc.syscall(add, rules, 1, ctypes.create_string_buffer(struct.pack("<Qi", access, descriptor)), 0)
        os.close(descriptor)
    done = libc.syscall(restrict, rules, 0) == 0
    os.close(rules)
    return bool(done)
