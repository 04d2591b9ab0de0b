"""Whatever a function does on purpose, the agent, its files and its host are afterwards as they were before."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.udf.deeds import DEEDS, FILTER, HOST, LANDLOCK, LIMITS

ROOT = Path(__file__).parents[2]
NOBODY = 1234
"""A user who owns nothing."""
REFUSED = re.compile(r"Errno (1|13|38)\]")
"""EPERM of the filter, EACCES of Landlock, ENOSYS for what is newer than the filter."""


def done(*lacking: str, user: int | None = None) -> list[tuple[str, str, str, dict[str, object]]]:
    """All deeds in a real worker: name, what should end each, why it failed, what it changed."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.udf.deeds", *lacking], cwd=ROOT, user=user, group=user,
        extra_groups=None if user is None else [], capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT / "agent")},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    return [(name, by, why, changed) for name, by, why, changed in map(json.loads, found.stdout.splitlines())]


def not_prevented(rows: Sequence[tuple[str, str, str, dict[str, object]]]) -> list[str]:
    """Deeds that came to their end, changed something, or ended by something else than they should."""
    wrong = []
    for name, by, why, changed in rows:
        if "NoSuchCall" in why:
            continue
        if not why or changed or (by in (FILTER, LANDLOCK) and not REFUSED.search(why)) or "ended 5 times" in why:
            wrong.append(f"{name}: {why or 'it was done'} {changed or ''}")
    return wrong


ALL = "limits, seccomp, landlock, namespaces"
LEAST = "limits, seccomp, closed"
UNIT = ("landlock", "namespaces", "priority", "capabilities")
"""What the unit of systemd refuses the agent on Debian 12, which has no capabilities to give up."""


@pytest.mark.parametrize(
    ("user", "lacking", "in_force"),
    [  # some 6 s each, of real processes that are killed
        (NOBODY, (), ALL),
        pytest.param(NOBODY, UNIT, LEAST, marks=pytest.mark.long),
        pytest.param(None, (), ALL, marks=pytest.mark.long),
        pytest.param(None, UNIT[:-1], LEAST, marks=pytest.mark.long),
    ],
)
def test_no_deed_succeeds(user: int | None, lacking: tuple[str, ...], in_force: str) -> None:
    """As a plain user and as root, with all that the kernel has and with what it must have: each of 120 deeds and more
    fails by what should end it, the worker is there for the next row, and the agent and its host are as before."""
    if user is not None and os.getuid() != 0:
        user = None
    needed = [Path(sys.prefix), Path(sys.base_prefix), ROOT]
    if user is not None and not all(
        os.stat(part).st_mode & 1 for folder in needed for part in (folder, *folder.parents)
    ):
        pytest.skip("other users do not reach this folder, or this Python")
    *rows, (_, _, granted, _) = done(*lacking, user=user)
    measures = {*granted.split(", ")}
    assert measures <= {*in_force.split(", ")} | ({"closed"} if "landlock" not in measures else set())
    assert "seccomp" in granted
    assert len(rows) == len(DEEDS) >= 120
    assert not_prevented(rows) == []


@pytest.mark.parametrize(
    ("lacking", "named"),
    [(("seccomp",), "seccomp"), (("limits",), "limits"), (("capabilities", "namespaces"), "limits")],
)
def test_a_host_that_cannot_contain_functions_runs_none(lacking: tuple[str, ...], named: str) -> None:
    """Where the kernel does not grant what is needed, no row reaches a function, and the reason is said. Root that
    keeps its capabilities could lift every limit."""
    if "capabilities" in lacking and os.getuid() != 0:
        pytest.skip("only root has capabilities to give up")
    ((name, _, why, _),) = done(*lacking)
    assert name == "refused"
    assert why == f"functions are refused on this host: it does not grant {named}"


def test_the_page_counts_the_deeds() -> None:
    """docs/functions.md has for each mechanism as many deeds as there are."""
    counted = Counter(by for _, by, _ in DEEDS)
    text = (ROOT / "docs/functions.md").read_text("utf-8")
    for mechanism in (FILTER, LANDLOCK, LIMITS, HOST):
        assert f"| `{mechanism}` | {counted[mechanism]} |" in text
