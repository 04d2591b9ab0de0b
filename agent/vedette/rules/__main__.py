"""``python -m vedette.rules OUT PATH… [--pipeline=FILE…] [--lookup=FILE…] [--functions=BYTES]``: rule files to a
built rule set, in a process of its own. ``--functions``: user functions are allowed, with so much memory.

The agent starts this when its rule directory changes, so that seconds of parsing and compiling neither stall its loop
nor stay in its memory. A sample of traffic on standard input (raw lines, may be empty) guides the choice of literals.
Prints one JSON line ``{"rules", "refused", "digest"}``. Exit code 2 and a message when the rules are why nothing could
be built, 1 when the host is: another try may come to a verdict.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from vedette.engine.artifact import Artifact
from vedette.rules.build import build
from vedette.system.durable import write_whole
from vedette.udf.host import Host, Limits


def main(arguments: Sequence[str]) -> int:
    named: dict[str, list[Path]] = {"--pipeline": [], "--lookup": [], "--functions": []}
    paths: list[Path] = []
    for argument in arguments:
        option, _, value = argument.partition("=")
        named.get(option, paths).append(Path(value if option in named else argument))
    out, *paths = paths
    try:
        sample = sys.stdin.buffer.read()
        memory = [int(str(size)) for size in named["--functions"]]
        functions = Host(Limits(memory=memory[0])) if memory else None
        try:
            plan = build(
                paths, sample=sample, pipelines=named["--pipeline"], lookups=named["--lookup"], functions=functions
            )
        finally:
            if functions is not None:
                functions.close()
        if not plan.rules:
            reasons = "; ".join(map(str, plan.refused[:3])) or "no rule file found"
            raise ValueError(f"no rule can run: {reasons}")
        write_whole(out, Artifact.of(plan).to_bytes())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ValueError) else 1
    sys.stdout.buffer.write(
        orjson.dumps({"rules": len(plan.rules), "refused": len(plan.refused), "digest": plan.digest}) + b"\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
