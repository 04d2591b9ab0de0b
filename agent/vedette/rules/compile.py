"""``python -m vedette.rules.compile PLAN OUT``: the databases of a plan, compiled in a process of its own.

The agent runs this when several rule sets are merged into one plan. OUT is the compiled rule set (``Artifact``). Exit
code 2 and a message: it failed. It needs no rule front-end, so bundles are served as well.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vedette.engine.artifact import Artifact
from vedette.plan.plan import Plan
from vedette.system.durable import write_whole


def main(arguments: Sequence[str]) -> int:
    plan_path, out = map(Path, arguments)
    try:
        write_whole(out, Artifact.of(Plan.from_bytes(plan_path.read_bytes())).to_bytes())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
