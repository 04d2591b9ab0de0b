"""Hostile deeds of functions in Python, each with what ends it: ``python -m tests.udf.deeds`` does them all,
``python -m tests.udf.deeds NAME …`` on a host whose kernel does not know these calls (of ``LACKING``).

It runs them one after the other in a real worker, as the agent does, and is itself the victim: after each it looks at
itself and at its files. It prints, a line of JSON each, ``[name, mechanism, why it failed, what changed in the
victim]``. A deed that comes to its end was not prevented, and ``why it failed`` is empty.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vedette.plan.query import Module, Modules, Type
from vedette.stream.userfunctions import Broken, Spec
from vedette.udf.host import Host, Limits

FILTER, LANDLOCK, LIMITS, HOST = "seccomp", "landlock", "limits", "host"
"""What ends a deed: the list of calls; Landlock; a limit of the process; the parent, which sees what its child does."""

NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "arch_prctl": (158, -1), "bpf": (321, 280),
    "cachestat": (451, 451), "capset": (126, 91), "chdir": (80, 49), "clock_settime": (227, 112), "clone": (56, 220),
    "clone3": (435, 435), "copy_file_range": (326, 285), "delete_module": (176, 106), "dup": (32, 23), "dup3": (292,
    24), "epoll_create1": (291, 20), "eventfd2": (290, 19), "execve": (59, 221), "execveat": (322, 281), "fallocate":
    (285, 47), "fanotify_init": (300, 262), "fchdir": (81, 50), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "fchownat": (260, 54), "finit_module": (313, 273), "fork": (57, -1), "fsopen": (430, 430), "futex_waitv": (449,
    449), "getxattr": (191, 8), "init_module": (175, 105), "inotify_init1": (294, 26), "io_setup": (206, 0),
    "io_uring_setup": (425, 425), "ioperm": (173, -1), "iopl": (172, -1), "ioprio_get": (252, 31), "ioprio_set": (251,
    30), "kcmp": (312, 272), "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129),
    "landlock_create_ruleset": (444, 444), "lookup_dcookie": (212, 18), "mbind": (237, 235), "membarrier": (324, 283),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "migrate_pages": (256, 238), "mincore": (27, 232),
    "mknodat": (259, 33), "mlockall": (151, 230), "modify_ldt": (154, -1), "mount_setattr": (442, 442), "move_mount":
    (429, 429), "move_pages": (279, 239), "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "openat2": (437, 437), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pipe2": (293, 59), "pivot_root": (155, 41), "pkey_alloc": (330, 289), "prctl": (157, 167), "process_madvise":
    (440, 440), "process_mrelease": (448, 448), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "remap_file_pages": (216, 234), "renameat2": (316, 276),
    "request_key": (249, 218), "rseq": (334, 293), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "sched_getaffinity": (204, 123), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "sched_setparam":
    (142, 118), "sched_setscheduler": (144, 119), "seccomp": (317, 277), "semget": (64, 190), "set_mempolicy": (238,
    237), "set_robust_list": (273, 99), "set_tid_address": (218, 96), "setdomainname": (171, 162), "setgroups": (116,
    159), "setns": (308, 268), "setresgid": (119, 149), "setresuid": (117, 147), "setsid": (112, 157), "setxattr":
    (188, 5), "shmget": (29, 194), "signalfd4": (289, 74), "splice": (275, 76), "swapon": (167, 224),
    "sync_file_range": (277, 84), "syslog": (103, 116), "tee": (276, 77), "tgkill": (234, 131), "timer_create": (222,
    107), "timerfd_create": (283, 85), "tkill": (200, 130), "umask": (95, 166), "umount2": (166, 39), "userfaultfd":
    (323, 282), "utimensat": (280, 88), "vfork": (58, -1), "vhangup": (153, 58), "vmsplice": (278, 75)
}  # fmt: skip
"""Calls for which libc has no function: on x86_64, on aarch64; -1 where there is none."""

PRELUDE = """
import ctypes, json, mmap, msgpack, os, resource, signal, socket, struct, subprocess, threading, time
from pyflink.table.udf import udf

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.shmat.restype = ctypes.c_void_p
NULL = ctypes.c_void_p(None)
sent = signal.SIGUSR1

def checked(result):
    if result in (-1, 2 ** 64 - 1):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def c(name, *args):
    return checked(getattr(libc, name)(*args))

def call(name, *args):
    number = NUMBERS[name][MACHINE]
    if number < 0:
        raise NoSuchCall(name)
    libc.syscall.restype = ctypes.c_long
    return checked(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if type(a) is int else a for a in args)))

class NoSuchCall(Exception): ...

def frame(answer):
    data = answer if isinstance(answer, bytes) else msgpack.packb(answer)
    os.write(4, struct.pack('<I', len(data)) + data)
    time.sleep(3600)

def forged(number):
    frame(msgpack.packb(['ok', [msgpack.ExtType(1, number.encode())], []]))

def box(size=64):
    return ctypes.create_string_buffer(size)

@udf(result_type="BIGINT")
def g(n, context):
    if n < 0:
        return n
    victim = json.loads(context)
    exec(DEEDS[n], {**globals(), **victim, "victim": victim})
    return 1
"""

DEEDS: tuple[tuple[str, str, str], ...] = (
    # --- signals to the agent, its threads, its group, everybody
    ("kill", FILTER, "os.kill(parent, sent)"),
    ("kill of the group", FILTER, "os.kill(-group, sent)"),
    ("kill of everybody", FILTER, "os.kill(-1, 0)"),
    ("tgkill", FILTER, "call('tgkill', parent, parent, int(sent))"),
    ("tkill", FILTER, "call('tkill', parent, int(sent))"),
    ("rt_sigqueueinfo", FILTER, "call('rt_sigqueueinfo', parent, int(sent), box(128))"),
    ("rt_tgsigqueueinfo", FILTER, "call('rt_tgsigqueueinfo', parent, parent, int(sent), box(128))"),
    ("sigqueue", FILTER, "c('sigqueue', parent, int(sent), NULL)"),
    ("pidfd_open", FILTER, "call('pidfd_open', parent, 0)"),
    ("pidfd_send_signal", FILTER, "call('pidfd_send_signal', 3, int(sent), NULL, 0)"),
    ("pidfd_getfd", FILTER, "call('pidfd_getfd', 3, 0, 0)"),
    # --- signals by the kernel, through the pipes that it shares with the agent
    ("F_SETOWN of the request pipe", FILTER, "c('fcntl', 3, 8, parent)"),
    ("F_SETOWN of the answer pipe", FILTER, "c('fcntl', 4, 8, parent)"),
    ("F_SETOWN_EX", FILTER, "c('fcntl', 4, 15, struct.pack('ii', 1, parent))"),
    ("F_SETSIG", FILTER, "c('fcntl', 4, 10, int(sent))"),
    ("F_SETFL with O_ASYNC", FILTER, "c('fcntl', 4, 4, 0o20000 | os.O_WRONLY)"),
    ("FIOSETOWN", FILTER, "c('ioctl', 4, 0x8901, struct.pack('i', parent))"),
    ("FIOASYNC", FILTER, "c('ioctl', 4, 0x5452, struct.pack('i', 1))"),
    ("all of these at once", FILTER, """
for fd in (3, 4):
    libc.fcntl(fd, 8, parent), libc.fcntl(fd, 10, int(sent))
    flags = libc.fcntl(fd, 3)
    if libc.fcntl(fd, 4, flags | 0o20000) == 0:
        os.write(4, bytes(1))
raise PermissionError(1, 'all refused')
"""),
    ("F_NOTIFY", FILTER, "c('fcntl', os.open(os.path.dirname(os.__file__), 0), 1026, 0x80000001)"),
    ("F_SETLEASE", FILTER, "c('fcntl', os.open(os.__file__, 0), 1024, 0)"),
    ("F_SETLK of a file of Python", FILTER, "c('fcntl', os.open(os.__file__, 0), 6, bytes(32))"),
    ("flock of a file of Python", FILTER, "c('flock', os.open(os.__file__, 0), 2)"),
    ("F_SETPIPE_SZ", FILTER, "c('fcntl', 4, 1031, 1 << 20)"),
    ("F_DUPFD", FILTER, "c('fcntl', 4, 0, 20)"),
    ("dup2", FILTER, "os.dup2(4, 0)"),
    # --- code that runs between two calls
    ("a timer of the clock", FILTER, "signal.setitimer(signal.ITIMER_REAL, 0.01)"),
    ("a virtual timer", FILTER, "signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)"),
    ("alarm", FILTER, "libc.alarm(1)\ncall('timer_create', 1, NULL, box())"),
    ("a timer at the agent", FILTER, "call('timer_create', 1, struct.pack('qiii', 0, int(sent), 4, parent), box())"),
    ("timerfd_create", FILTER, "call('timerfd_create', 1, 0)"),
    ("a thread", FILTER, """
try:
    threading.Thread(target=print).start()
except RuntimeError as error:
    raise PermissionError(1, str(error))
"""),
    # --- limits, priority and processors of the agent, and its own beyond their bounds
    ("prlimit of the agent", FILTER, "resource.prlimit(parent, resource.RLIMIT_NOFILE, (10, 10))"),
    ("reading the agent's limits", FILTER, "resource.prlimit(parent, resource.RLIMIT_NOFILE)"),
    ("setpriority of the agent", FILTER, "os.setpriority(os.PRIO_PROCESS, parent, 19)"),
    ("setpriority of its group", FILTER, "os.setpriority(os.PRIO_PGRP, group, 19)"),
    ("setpriority of its user", FILTER, "os.setpriority(os.PRIO_USER, os.getuid(), 19)"),
    ("sched_setaffinity of the agent", FILTER, "os.sched_setaffinity(parent, {0})"),
    ("sched_setaffinity of itself", FILTER, "os.sched_setaffinity(0, {0})"),
    ("sched_getaffinity of the agent", FILTER, "os.sched_getaffinity(parent)"),
    ("sched_setscheduler", FILTER, "call('sched_setscheduler', parent, 5, struct.pack('i', 0))"),
    ("sched_setparam", FILTER, "call('sched_setparam', parent, struct.pack('i', 0))"),
    ("sched_setattr", FILTER, "call('sched_setattr', parent, struct.pack('IIQiIQQQ', 48, 3, 0, 19, 0, 0, 0, 0), 0)"),
    ("ioprio_set", FILTER, "call('ioprio_set', 1, parent, 3 << 13)"),
    ("ioprio_get", FILTER, "call('ioprio_get', 1, parent)"),
    ("a higher priority", FILTER, "os.nice(-5)"),
    ("more open files", LIMITS, "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))"),
    ("larger files", LIMITS, "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"),
    ("more memory", LIMITS, "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))"),
    ("mlockall", FILTER, "call('mlockall', 3)"),
    ("migrate_pages of the agent", FILTER, "call('migrate_pages', parent, 0, NULL, NULL)"),
    ("move_pages of the agent", FILTER, "call('move_pages', parent, 0, NULL, NULL, NULL, 0)"),
    ("set_mempolicy", FILTER, "call('set_mempolicy', 0, NULL, 0)"),
    # --- files: of the agent, of the host, new ones
    ("reading a key of the agent", LANDLOCK, "open(file).read()"),
    ("listing the agent's folder", LANDLOCK, "os.listdir(folder)"),
    ("reading /etc/passwd", LANDLOCK, "open('/etc/passwd').read()"),
    ("the agent's environment", LANDLOCK, "open(f'/proc/{parent}/environ').read()"),
    ("the agent's memory", LANDLOCK, "os.open(f'/proc/{parent}/mem', os.O_RDONLY)"),
    ("its own maps", LANDLOCK, "open('/proc/self/maps').read()"),
    ("a descriptor of the agent", LANDLOCK, "os.open(f'/proc/{parent}/fd/0', os.O_RDONLY)"),
    ("listing processes", LANDLOCK, "os.listdir('/proc')"),
    ("open for writing", FILTER, "open(file, 'w')"),
    ("open for appending", FILTER, "open(file, 'ab')"),
    ("open for both", FILTER, "os.open(file, os.O_RDWR)"),
    ("a new file", FILTER, "open(folder + '/new', 'x')"),
    ("a new file in /dev/shm", FILTER, "open('/dev/shm/vedette-deed', 'w')"),
    ("O_TRUNC alone", FILTER, "os.open(file, os.O_RDONLY | os.O_TRUNC)"),
    ("O_CREAT alone", FILTER, "os.open(folder + '/new', os.O_RDONLY | os.O_CREAT)"),
    ("a file without a name", FILTER, "os.open(folder, os.O_TMPFILE | os.O_RDWR)"),
    ("openat2", FILTER, "call('openat2', -100, file.encode(), struct.pack('QQQ', 1, 0, 0), 24)"),
    ("oom_score_adj of the agent", FILTER, "open(f'/proc/{parent}/oom_score_adj', 'w')"),
    ("its own oom_score_adj", FILTER, "open('/proc/self/oom_score_adj', 'w')"),
    ("a setting of the kernel", FILTER, "open('/proc/sys/kernel/core_pattern', 'w')"),
    ("chmod that opens", FILTER, "os.chmod(file, 0o644)"),
    ("chmod that shuts", FILTER, "os.chmod(folder, 0)"),
    ("fchmod of what can be read", FILTER, "os.fchmod(os.open(os.__file__, 0), 0o644)"),
    ("fchmodat", FILTER, "call('fchmodat', -100, file.encode(), 0o666)"),
    ("fchmodat2", FILTER, "call('fchmodat2', -100, file.encode(), 0o666, 0)"),
    ("chown", FILTER, "os.chown(file, os.getuid(), os.getgid())"),
    ("lchown", FILTER, "os.lchown(file, os.getuid(), os.getgid())"),
    ("fchownat", FILTER, "call('fchownat', -100, file.encode(), os.getuid(), os.getgid(), 0)"),
    ("utime", FILTER, "os.utime(file, (1, 1))"),
    ("setxattr", FILTER, "os.setxattr(file, 'user.deed', b'1')"),
    ("getxattr", FILTER, "os.getxattr(file, 'user.deed')"),
    ("truncate", FILTER, "os.truncate(file, 0)"),
    ("unlink", FILTER, "os.unlink(file)"),
    ("rename", FILTER, "os.rename(file, file + '.gone')"),
    ("renameat2", FILTER, "call('renameat2', -100, file.encode(), -100, file.encode() + b'.gone', 0)"),
    ("link", FILTER, "os.link(file, file + '.link')"),
    ("symlink", FILTER, "os.symlink('/', folder + '/link')"),
    ("mkdir", FILTER, "os.mkdir(folder + '/new')"),
    ("rmdir", FILTER, "os.rmdir(folder)"),
    ("mkfifo", FILTER, "os.mkfifo(folder + '/fifo')"),
    ("mknod", FILTER, "call('mknodat', -100, folder.encode() + b'/node', 0o10600, 0)"),
    ("chdir", FILTER, "os.chdir('/')"),
    ("chroot", FILTER, "os.chroot('/')"),
    ("mount", FILTER, "c('mount', b'none', b'/tmp', b'tmpfs', 0, NULL)"),
    ("umount", FILTER, "call('umount2', b'/tmp', 0)"),
    ("fsopen", FILTER, "call('fsopen', b'tmpfs', 0)"),
    ("open_tree", FILTER, "call('open_tree', -100, b'/', 0)"),
    ("pivot_root", FILTER, "call('pivot_root', b'/', b'/')"),
    ("a file by its handle", FILTER, "call('open_by_handle_at', -100, box(), 0)"),
    ("the handle of a file", FILTER, "call('name_to_handle_at', -100, file.encode(), box(), box(), 0)"),
    ("inotify", FILTER, "call('inotify_init1', 0)"),
    ("fanotify", FILTER, "call('fanotify_init', 0, 0)"),
    ("sync of all disks", FILTER, "libc.sync()\nos.fsync(os.open(os.__file__, 0))"),
    ("acct", FILTER, "call('acct', NULL)"),
    ("swapon", FILTER, "call('swapon', b'/none', 0)"),
    ("quotactl", FILTER, "call('quotactl', 0, NULL, 0, NULL)"),
    # --- processes and programs
    ("fork", FILTER, "os.fork()"),
    ("vfork", FILTER, "os.posix_spawn('/bin/true', ['true'], {})"),
    ("clone", FILTER, "call('clone', 17, 0, 0, 0, 0)"),
    ("clone3", FILTER, "call('clone3', struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0), 64)"),
    ("execve", FILTER, "os.execv('/bin/true', ['true'])"),
    ("execveat", FILTER, "call('execveat', -100, b'/bin/true', NULL, NULL, 0)"),
    ("subprocess", FILTER, "subprocess.run(['/bin/true'])"),
    ("os.system", FILTER, "if os.system('true'): raise PermissionError(1, 'system')"),
    ("ptrace of the agent", FILTER, "call('ptrace', 16, parent, 0, 0)"),
    ("ptrace of itself", FILTER, "call('ptrace', 0, 0, 0, 0)"),
    ("process_vm_readv", FILTER, "call('process_vm_readv', parent, NULL, 0, NULL, 0, 0)"),
    ("process_vm_writev", FILTER, "call('process_vm_writev', parent, NULL, 0, NULL, 0, 0)"),
    ("process_madvise", FILTER, "call('process_madvise', 3, NULL, 0, 20, 0)"),
    ("process_mrelease", FILTER, "call('process_mrelease', 3, 0)"),
    ("kcmp", FILTER, "call('kcmp', parent, os.getpid(), 0, 0, 0)"),
    ("setns", FILTER, "call('setns', 3, 0)"),
    ("unshare", FILTER, "c('unshare', 0x10000000)"),
    ("living on without the agent", FILTER, "c('prctl', 1, 0, 0, 0, 0)"),
    ("another name", FILTER, "c('prctl', 15, b'vedette', 0, 0, 0)"),
    ("another filter", FILTER, "call('seccomp', 1, 0, NULL)"),
    ("landlock_create_ruleset", FILTER, "call('landlock_create_ruleset', NULL, 0, 1)"),
    ("another user", FILTER, "call('setresuid', os.getuid(), os.getuid(), os.getuid())"),
    ("another group", FILTER, "call('setresgid', os.getgid(), os.getgid(), os.getgid())"),
    ("setgroups", FILTER, "call('setgroups', 0, NULL)"),
    ("setsid", FILTER, "os.setsid()"),
    ("setpgid", FILTER, "os.setpgid(0, 0)"),
    ("capset", FILTER, "call('capset', struct.pack('=Ii', 0x20080522, 0), bytes(24))"),
    ("personality", FILTER, "call('personality', 0)"),
    ("arch_prctl", FILTER, "call('arch_prctl', 0x1003, box())"),
    ("modify_ldt", FILTER, "call('modify_ldt', 0, box(), 8)"),
    ("iopl", FILTER, "call('iopl', 0)"),
    ("ioperm", FILTER, "call('ioperm', 0, 1, 1)"),
    ("add_key", FILTER, "call('add_key', b'user', b'deed', b'x', 1, -3)"),
    ("keyctl", FILTER, "call('keyctl', 0, -3, 1)"),
    ("bpf", FILTER, "call('bpf', 0, box(), 8)"),
    ("perf_event_open", FILTER, "call('perf_event_open', box(128), 0, -1, -1, 0)"),
    ("userfaultfd", FILTER, "call('userfaultfd', 1)"),
    ("init_module", FILTER, "call('init_module', b'', 0, b'')"),
    ("delete_module", FILTER, "call('delete_module', b'none', 0)"),
    ("kexec_load", FILTER, "call('kexec_load', 0, 0, NULL, 0)"),
    ("adjtimex", FILTER, "call('adjtimex', box(256))"),
    ("clock_settime", FILTER, "time.clock_settime(time.CLOCK_REALTIME, time.time())"),
    ("sethostname", FILTER, "socket.sethostname('deed')"),
    ("the kernel's log", FILTER, "call('syslog', 10, NULL, 0)"),
    ("vhangup", FILTER, "call('vhangup')"),
    ("io_uring_setup", FILTER, "call('io_uring_setup', 1, box(256))"),
    ("io_setup", FILTER, "call('io_setup', 1, box())"),
    # --- the network
    ("a TCP socket", FILTER, "socket.create_connection(('127.0.0.1', port), 1)"),
    ("a UDP socket", FILTER, "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"),
    ("an IPv6 socket", FILTER, "socket.socket(socket.AF_INET6, socket.SOCK_STREAM)"),
    ("a Unix socket", FILTER, "socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)"),
    ("a netlink socket", FILTER, "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    ("a raw socket", FILTER, "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    ("a pair of sockets", FILTER, "socket.socketpair()"),
    # --- memory and objects of the kernel that outlive it, or count to nobody
    ("shmget", FILTER, "c('shmget', 4711, 1 << 20, 0o1600)"),
    ("semget", FILTER, "c('semget', 4711, 1, 0o1600)"),
    ("msgget", FILTER, "c('msgget', 4711, 0o1600)"),
    ("mq_open", FILTER, "call('mq_open', b'deed', os.O_CREAT | os.O_RDWR, 0o600, NULL)"),
    ("memfd_create", FILTER, "call('memfd_create', b'deed', 0)"),
    ("memfd_secret", FILTER, "call('memfd_secret', 0)"),
    ("pipe", FILTER, "os.pipe()"),
    ("eventfd", FILTER, "call('eventfd2', 0, 0)"),
    ("epoll", FILTER, "call('epoll_create1', 0)"),
    ("signalfd", FILTER, "call('signalfd4', -1, box(8), 8, 0)"),
    ("splice", FILTER, "call('splice', 3, NULL, 4, NULL, 1, 0)"),
    ("vmsplice", FILTER, "call('vmsplice', 4, box(), 0, 0)"),
    ("sendfile", FILTER, "os.sendfile(4, os.open(os.__file__, 0), 0, 10)"),
    ("a GiB", LIMITS, "bytearray(1 << 30)"),
    ("a GiB that is shared", LIMITS, "mmap.mmap(-1, 1 << 30)"),
    ("a file of Python mapped for writing", LIMITS, "mmap.mmap(os.open(os.__file__, 0), 4096, mmap.MAP_SHARED, 3)"),
    ("a hundred open files", LIMITS, "files = [open(os.__file__) for _ in range(100)]"),
    # --- what only the parent can end
    ("exit", HOST, "os._exit(3)"),
    ("abort", HOST, "os.abort()"),
    ("a jump to nowhere", HOST, "ctypes.string_at(0)"),
    ("sleep", HOST, "time.sleep(3600)"),
    ("a loop in Python", HOST, "while True: pass"),
    ("a loop in C", HOST, "sum(range(10 ** 12))"),
    ("a loop that hears no signal", HOST, """
for one in range(1, 65):
    try: signal.signal(one, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
"""),
    ("recursion in C", HOST, "call_ = []\nfor _ in range(10 ** 6): call_ = [call_]\nrepr(call_)"),
    ("an answer of its own that is none", HOST, "os.write(4, b'\\xff' * 8)\ntime.sleep(3600)"),
    ("an answer without an end", HOST, "os.write(4, b'\\xff\\xff\\xff\\0')\nwhile True: os.write(4, bytes(65536))"),
    ("a number that takes for ever to compute with", HOST, "forged('1E+999999999')"),
    ("a number of another type", HOST, "forged('1.5')"),
    ("a text for a number", HOST, "frame(['ok', ['text'], []])"),
    ("values for other rows", HOST, "frame(['ok', [1, 2, 3], []])"),
    ("failures of other rows", HOST, "frame(['ok', [1], [[7, 'no', False]]])"),
    ("a failure that is none", HOST, "frame(['ok', [1], [['at', 1, 2, 3]]])"),
    ("an answer of many things", HOST, "frame(b'\\x92\\xa2ok\\xdd\\x00\\x3f\\xff\\xf0' + b'\\x91\\x90' * 0x3ffff0)"),
    ("no more answers", HOST, "os.close(4)"),
    ("the calls of another architecture", HOST, """
if MACHINE: raise NoSuchCall
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex('b825000000bb01000000b90a000000cd80c3'))
ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""),
)  # fmt: skip


def source() -> str:
    machine = ("x86_64", "aarch64").index(platform.machine())
    texts = [code for _, _, code in DEEDS]
    return f"NUMBERS = {NUMBERS!r}\nMACHINE = {machine}\nDEEDS = {texts!r}\n{PRELUDE}"


LACKING = {
    "landlock": ((444, 444), None),
    "priority": ((141, 140), None),
    "namespaces": ((272, 97), None),
    "capabilities": ((126, 91), None),
    "limits": ((302, 261), None),
    "seccomp": ((157, 167), 22),
}
"""Calls that a kernel or a unit may refuse: the number, and the first argument where only that is refused."""


def forbid(names: Sequence[str]) -> None:
    """Have the kernel refuse calls of ``LACKING`` to this process and its children."""
    machine = ("x86_64", "aarch64").index(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    for name in names:
        numbers, first = LACKING[name]
        steps = [(0x20, 0, 0, 0), (0x15, 0, 3, numbers[machine]), (0x20, 0, 0, 16)]
        steps.append((0x15, 0, 1, first) if first is not None else (0x35, 0, 1, 0))
        steps += [(0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        header = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
        number = (317, 277)[machine]
        assert libc.syscall(number, 1, 0, ctypes.create_string_buffer(header)) == 0


class Victim:
    """This process, as a function might change it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "key.pem"
        self._file.write_text("secret")
        self._file.chmod(0o600)
        self._signals = 0
        for number in (signal.SIGUSR1, signal.SIGIO, signal.SIGURG):
            signal.signal(number, self._signalled)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._libc = ctypes.CDLL(None)

    def _signalled(self, number: int, frame: Any) -> None:
        self._signals += 1

    def context(self) -> str:
        return json.dumps({
            "parent": os.getpid(), "group": os.getpgrp(), "file": str(self._file), "folder": str(self._folder),
            "port": self._listening.getsockname()[1],
        })  # fmt: skip

    def state(self) -> dict[str, Any]:
        number = NUMBERS["ioprio_get"][("x86_64", "aarch64").index(platform.machine())]
        ipc = [Path("/proc/sysvipc", kind).read_text().split().count("4711") for kind in ("shm", "sem", "msg")]
        return {
            "signals": self._signals,
            "limits": [resource.getrlimit(limit) for limit in range(16)],
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "processors": sorted(os.sched_getaffinity(0)),
            "scheduler": os.sched_getscheduler(0),
            "disk": self._libc.syscall(number, 1, 0),
            "mode": [oct(one.stat().st_mode) for one in (self._file, self._folder)],
            "file": self._file.read_text(),
            "folder": sorted(os.listdir(self._folder)),
            "names": os.listxattr(self._file),
            "ipc": ipc,
            "host": socket.gethostname(),
            "much memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 400 << 10,
        }


def say(*row: Any) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main(*lacking: str) -> int:
    forbid(lacking)
    modules = Modules((Module("f", False, source()),))
    spec = Spec(modules.digest, "f.g", "eval", (Type("BIGINT"), Type("STRING")), (Type("BIGINT"),))
    with tempfile.TemporaryDirectory() as folder:
        victim, host = Victim(Path(folder)), Host(Limits(seconds=0.05))
        host.know((modules,))
        if refused := host.refused():
            say("refused", "", refused, {})
            return 0
        context, before = victim.context(), victim.state()
        for number, (name, mechanism, _) in enumerate(DEEDS):
            assert host.call(spec, [(-1, "")]).values == [-1], "it is there for the next row"
            try:
                why = "".join(host.call(spec, [(number, context)]).failed.values())
            except Broken as error:
                why = f"Broken: {error}"
            after = victim.state()
            changed = {key: [before[key], value] for key, value in after.items() if value != before[key]}
            before = after
            say(name, mechanism, why, changed)
        say("in force", "", ", ".join(host.isolation), {})
        host.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
