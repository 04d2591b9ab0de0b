"""Random statements against a real Flink: ``python -m tests.differential.fresh --flink PYTHON --minutes 30``.

Each round makes a file of vectors from the next seed (``generate.py``), has Flink fill in its rows (``flink.py write``)
and replays it as ``test_sql.py`` does. A difference is printed with its seed and statement; ``--keep DIR`` keeps the
files. What is refused here and not by Flink is counted by its reason. Exit status 1 on any difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential import test_sql
from tests.differential.flink import remaining, written
from tests.differential.generate import Generator
from vedette.stream.values import numbers

FLINK = Path(__file__).with_name("flink.py")


def replayed(case: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Of each statement and expression its text, an outcome ("same", "refused", "differs", "accepted") and details."""
    for one in case.get("statements", ()):
        yield one["sql"], *outcome(case, one, one["sql"])
    for one in case.get("expressions", ()):
        sql = f"SELECT {one['sql']} AS e FROM {case['tables'][0]['name']}"
        columns = {} if "type" not in one else {"columns": [["e", one["type"]]]}
        rows = {} if "values" not in one else {"rows": [[value] for value in one["values"]]}
        yield one["sql"], *outcome(case, {**one, **columns, **rows}, sql)


def outcome(case: dict[str, Any], one: dict[str, Any], sql: str) -> tuple[str, str]:
    final = one.get("ours") == "final" and "rows" in one
    flink_refuses = "refused" in one or (one.get("updates") and not final)
    try:
        with test_sql.opened(case) as vectors:
            columns, rows, failed = test_sql.rows_of(vectors, sql)
    except test_sql.Refused as error:
        if flink_refuses:
            return "same", "refused by both"
        return "refused", str(error)
    if flink_refuses:
        return "accepted", str(one.get("refused", "its result is updated"))
    if "dies" in one:
        return ("same", "dies") if failed else ("differs", f"no row failed, Flink: {one['dies']}")
    if failed:
        return "differs", f"{failed} rows failed"
    types = [str(of) for _, of in columns], [test_sql.type_text(of) for _, of in one["columns"]]
    if types[0] != types[1]:
        return "differs", f"types {types[0]}, Flink's {types[1]}"
    left = [
        [value and numbers.single(value) if of == "FLOAT" else value for value, of in zip(row, types[1], strict=True)]
        for row in (remaining(one["rows"]) if final and one.get("updates") else one["rows"])
    ]
    extra = []
    for row in rows:
        ours = [test_sql.plain(value, of) for value, (_, of) in zip(row[1:], columns, strict=True)]
        match = next((other for other in left if test_sql.same(ours, other)), None)
        if match is None:
            extra.append(ours)
        else:
            left.remove(match)
    if extra or left:
        return "differs", f"ours {extra[:3]} ({len(extra)}), Flink's {left[:3]} ({len(left)})"
    return "same", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flink", default="build/flink/bin/python", help="a Python that has apache-flink")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--files", type=int, default=6, help="files in a round: one of each stream")
    parser.add_argument("--keep", type=Path, help="a folder for the files")
    parser.add_argument("--replay", type=Path, nargs="+", help="files that Flink has filled in, in place of new ones")
    options = parser.parse_args()
    totals = Totals()
    if options.replay:
        totals.add(options.replay)
    deadline, seed = time.monotonic() + options.minutes * 60, options.seed
    while not options.replay and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for _ in range(options.files):
                files.append((options.keep or Path(folder)) / f"fresh-{seed}.json")
                files[-1].write_text(written(Generator(seed).vectors()), "utf-8")
                seed += 1
            done = subprocess.run([options.flink, FLINK, "write", *files], check=False, capture_output=True, text=True)
            if done.returncode:
                sys.stderr.write(done.stderr[-3000:])
                return 2
            totals.add(files)
    return totals.shown()


class Totals:
    """Outcomes of all that was replayed."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def add(self, files: list[Path]) -> None:
        for file in files:
            for sql, outcome, details in replayed(json.loads(file.read_text("utf-8"))):
                self._found[outcome] += 1
                if outcome == "refused":
                    self._refused[details] += 1
                elif outcome != "same":
                    print(f"{outcome} {file.stem}: {sql}\n    {details}", flush=True)
        print(f"-- {files[-1].stem}: {dict(self._found)}", flush=True)

    def shown(self) -> int:
        """Print what was refused here, and why; the exit status."""
        for reason, times in self._refused.most_common(40):
            print(f"{times:5} refused here: {reason}")
        return 1 if self._found["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
