"""Whether the suite notices faults: each fault of ``tools/faults/*.toml`` is planted in a project, and the tests
nearest to it run.

    python -m tools.mutants check                          each fault's place is there, once, and its tests are
    python -m tools.mutants run OUT.json [NAME ...]        plant and run; goes on with what OUT.json has not
    python -m tools.mutants table BEFORE.json [AFTER.json] the result as a table of docs/decisions

A fault is a table with ``path``, ``old`` (a text that stands there once), ``new`` (what it becomes) and ``tests``. It
is planted in place: ``--project`` is a clone with an environment of its own (``make environment``) and nothing
uncommitted. ``--marks`` chooses tests, by default the quick ones. A fault is noticed when a test fails or does not end;
a test that fails without the fault as well is reported, and notices nothing.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FAULTS = ROOT / "tools" / "faults"
LONGEST = 900
"""Seconds for the tests of a fault."""
LARGEST = 2 << 30
"""Bytes of a file: what a fault makes the project write is bounded."""


class Fault(NamedTuple):
    name: str
    room: str
    """The name of its file in ``tools/faults``."""
    path: str
    old: str
    new: str
    tests: list[str]


def faults() -> Iterator[Fault]:
    for file in sorted(FAULTS.glob("*.toml")):
        for name, row in tomllib.loads(file.read_text()).items():
            yield Fault(name, file.stem, **row)


def mistakes(project: Path) -> list[str]:
    """What keeps faults from being planted, a line each."""
    lines = []
    for fault in faults():
        file = project / fault.path
        times = file.read_text().count(fault.old) if file.is_file() else 0
        if times != 1:
            lines.append(f"{fault.name}: its old text stands {times} times in {fault.path}")
        lines += [
            f"{fault.name}: there is no {test}"
            for test in fault.tests
            if not (project / test.partition("::")[0]).exists()
        ]
    return lines


def run(project: Path, tests: list[str], marks: str) -> tuple[str, list[str]]:
    """How the tests end (``passed``, ``failed``, ``hangs``, ``none``), and which failed."""
    command = [".venv/bin/pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marks, *tests]
    limit = (LARGEST, LARGEST)
    try:
        done = subprocess.run(
            command,
            cwd=project,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )
    except subprocess.TimeoutExpired:
        return "hangs", []
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?\]|\S+)(?: - .*)?$", done.stdout, re.MULTILINE)
    ends = {0: "passed", 5: "none"}
    return ends.get(done.returncode, "failed"), failed


def plant(project: Path, fault: Fault, marks: str) -> dict[str, Any]:
    """One fault's row; the project is as it was afterwards."""
    file = project / fault.path
    text = file.read_text()
    try:
        file.write_text(text.replace(fault.old, fault.new))
        end, failed = run(project, fault.tests, marks) if build(project, fault) else ("does not compile", [])
    finally:
        file.write_text(text)
        build(project, fault)
    if end == "failed":
        sound, _ = run(project, failed or fault.tests, marks)
        if sound != "passed":
            end = "fails without it"
    return {"room": fault.room, "end": end, "by": failed}


def build(project: Path, fault: Fault) -> bool:
    """Whether the kernel is that of the sources."""
    if fault.path.startswith("agent/kernel/"):
        for command in ("make environment", "sh tools/kernel.sh current"):
            if subprocess.run(command.split(), cwd=project, capture_output=True, check=False).returncode:
                return False
    return True


def run_all(options: Namespace) -> int:
    project = options.project.resolve()
    if subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, check=True).stdout:
        sys.exit(f"{project}: something is not committed, and a fault is planted in place")
    rows = json.loads(options.out.read_text()) if options.out.exists() else {}
    for fault in faults():
        if fault.name not in rows and (not options.names or fault.name in options.names):
            rows[fault.name] = plant(project, fault, options.marks)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
            sys.stdout.write(f"{fault.name}: {rows[fault.name]['end']} {' '.join(rows[fault.name]['by'])}\n")
            sys.stdout.flush()
    return 0


NOTICED = {"failed", "hangs"}


def table(options: Namespace) -> int:
    """Faults by room, how many are noticed, and the names of those that are not."""
    runs = [json.loads(path.read_text()) for path in options.results]
    planted = Counter(fault.room for fault in faults())
    lines = ["| room | planted | " + " | ".join(f"noticed in {path.stem}" for path in options.results) + " |"]
    lines.append("|---" * (2 + len(runs)) + "|")
    for room, number in planted.items():
        noticed = [sum(row["room"] == room and row["end"] in NOTICED for row in rows.values()) for rows in runs]
        lines.append(f"| {room} | {number} | " + " | ".join(map(str, noticed)) + " |")
    if len(runs) == 2:
        before, after = ({name for name, row in rows.items() if row["end"] in NOTICED} for rows in runs)
        lines += ["", f"Noticed before {len(before)}, of these again {len(before & after)}; lost: "]
        lines[-1] += ", ".join(sorted(before - after)) or "none"
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def check(options: Namespace) -> int:
    lines = mistakes(options.project)
    sys.stdout.write("".join(f"{line}\n" for line in lines) + f"{len([*faults()])} faults, {len(lines)} mistakes\n")
    return bool(lines)


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--project", type=Path, default=ROOT)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("check").set_defaults(act=check)
    run = commands.add_parser("run")
    run.add_argument("--marks", default="not long")
    run.add_argument("out", type=Path)
    run.add_argument("names", nargs="*")
    run.set_defaults(act=run_all)
    two = commands.add_parser("table")
    two.add_argument("results", type=Path, nargs="+")
    two.set_defaults(act=table)
    options = parser.parse_args()
    return int(options.act(options))


if __name__ == "__main__":
    sys.exit(main())
