"""The filter of system calls allows what its table says on each machine, and nothing else."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.system import sandbox
from vedette.system.sandbox import ALLOWED, FILES, O_ASYNC, Call, filter_for

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PID = 4242
MACHINES = pytest.mark.parametrize("machine", [*ARCHITECTURES])
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+)\s+(\d+)\n"),
    "aarch64": ("/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+)\s+(\d+)\n"),
}


def answer(machine: str, number: int, *arguments: int, files: bool = True, architecture: int | None = None) -> int:
    """What the kernel would return: seccomp's part of BPF, by seccomp(2)."""
    program = [*struct.iter_unpack("HBBI", filter_for(machine, (*ALLOWED, *(FILES if files else ())), PID))]
    given = [one & (1 << 64) - 1 for one in (*arguments, *(0,) * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *given)
    at, value = 0, 0
    while True:
        code, yes, no, operand = program[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                value &= operand
            case 0x15:
                at += yes if value == operand else no
            case 0x35:
                at += yes if value >= operand else no
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"an instruction that no filter has: {code:#x}")


def number(machine: str, name: str) -> int:
    (found,) = [getattr(one, machine) for one in (*ALLOWED, *FILES) if one.name == name]
    return int(found)


def numbers(machine: str, calls: tuple[Call, ...]) -> Iterator[int]:
    return (at for at in (getattr(one, machine) for one in calls) if at >= 0)


@MACHINES
@pytest.mark.parametrize("files", [True, False])
def test_what_is_not_in_the_table_is_refused(machine: str, files: bool) -> None:
    """Of all numbers; the newer ones as if the kernel did not know them. Without Landlock no file can be opened."""
    table = {*numbers(machine, ALLOWED), *(numbers(machine, FILES) if files else ())}
    for at in range(600):
        if at not in table:
            assert answer(machine, at, files=files) == (EPERM if at < 424 else ENOSYS), at
    plain = {at for one in ALLOWED if one.when == ((),) for at in numbers(machine, (one,))}
    assert all(answer(machine, at, 1, 2, 3, 4, 5, 6, files=files) == ALLOW for at in plain)


@MACHINES
def test_another_architecture(machine: str) -> None:
    """Numbers mean other calls there: the process ends. Those of x32 are refused."""
    assert answer(machine, 1, architecture=0x40000003) == KILL
    assert answer(machine, 0x40000000 | 1) == EPERM


@MACHINES
@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("fcntl", [(3, 1), (3, 2, 1), (3, 3), (3, 4, 0x800), (3, 1030, 3)],
         [(3, 4, O_ASYNC), (3, 4, O_ASYNC | 1), (3, 8, 1), (3, 10, 9), (3, 15), (3, 1031), (3, 1024), (3, 6), (3, 0)]),
        ("ioctl", [(3, 0x5401), (3, 0x5451), (3, 0x5450)], [(3, 0x5452), (3, 0x8901), (3, 0x5412)]),
        ("openat", [(-100, 0, 0), (-100, 0, 0o2200000)],
         [(-100, 0, 1), (-100, 0, 2), (-100, 0, 0o100), (-100, 0, 0o1000), (-100, 0, O_ASYNC), (-100, 0, 0o20200002)]),
        ("prlimit64", [(0, 7, 0, 0)], [(1, 7), (PID, 7), (PID + 1, 7)]),
        ("setitimer", [(2,)], [(0,), (1,)]),
        ("tgkill", [(PID, PID, 6)], [(PID + 1, PID, 6), (0, PID, 6), (-1, PID, 6)]),
        ("tkill", [(PID, 6)], [(1, 6), (-1, 6)]),
        ("setpriority", [(0, 0, 19)], [(0, PID, 19), (1, 0, 19), (2, 0, 19)]),
        ("getpriority", [(0, 0)], [(0, 1), (1, 0), (2, 0)]),
        ("sched_getaffinity", [(0, 8)], [(1, 8)]),
        ("getsid", [(0,)], [(1,)]),
    ],
)  # fmt: skip
def test_arguments(machine: str, name: str, allowed: list[tuple[int, ...]], refused: list[tuple[int, ...]]) -> None:
    """Only what concerns the process itself, and nothing that has the kernel signal another."""
    at = number(machine, name)
    assert [one for one in allowed if answer(machine, at, *one) != ALLOW] == []
    assert [one for one in refused if answer(machine, at, *one) != EPERM] == []


@given(
    st.sampled_from([*ARCHITECTURES]),
    st.sampled_from([*ALLOWED, *FILES]),
    st.lists(st.integers(0, 1 << 16), min_size=6, max_size=6),
)
def test_the_program_is_the_table(machine: str, call: Call, arguments: list[int]) -> None:
    """Whatever the arguments, the filter says what the tests of the table say one by one."""
    at = getattr(call, machine)
    if at < 0:
        return
    holds = any(
        all(arguments[one.argument] & one.mask == (PID if one.value == sandbox.SELF else one.value) for one in tests)
        for tests in call.when
    )
    assert answer(machine, at, *arguments) == (ALLOW if holds else EPERM)


@MACHINES
def test_numbers_are_those_of_the_kernel(machine: str) -> None:
    """By the headers of this host, where it has them."""
    path, expression = HEADERS[machine]
    if not Path(path).exists():
        pytest.skip("the headers are not installed")
    known = {name: int(found) for name, found in re.findall(expression, Path(path).read_text("ascii"))}
    if "fstatat" in known:
        known["newfstatat"] = known["fstatat"]
    assert {one.name: getattr(one, machine) for one in (*ALLOWED, *FILES)} == {
        one.name: known.get(one.name, -1) for one in (*ALLOWED, *FILES)
    }


def test_no_call_twice() -> None:
    """A second row of one call would never be looked at."""
    for machine in ARCHITECTURES:
        found = [*numbers(machine, (*ALLOWED, *FILES))]
        assert len(found) == len(set(found))


@pytest.mark.parametrize(("version", "size"), [(1, 8), (2, 8), (3, 8), (4, 16), (5, 16), (6, 24), (7, 24)])
def test_landlock_handles_all_that_a_kernel_has(version: int, size: int) -> None:
    """From version 4 on TCP, from 6 on signals and abstract sockets; a kernel refuses what it does not know."""
    attributes = sandbox._landlock_attributes(version)
    assert len(attributes) == size
    files, *rest = struct.unpack(f"{size // 8}Q", attributes)
    assert files.bit_count() == {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    assert rest == [3, 3][: size // 8 - 1]
