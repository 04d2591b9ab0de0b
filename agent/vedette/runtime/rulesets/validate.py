"""Validation of a bundle: it compiles, and its self-tests pass. First as a dry run in an isolated subprocess.

A signature tells who made a bundle, not that it is harmless: one whose plan takes for ever, takes all memory or crashes
the pattern library must not take the agent with it. So a bundle that arrives goes through ``dry_run`` before the agent
itself loads it: bounded in time and memory, the first to be killed when memory runs out, and whatever ends that process
early is a refusal with a reason.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from vedette.bundle.seal import MAX_BUNDLE
from vedette.bundle.trust import Bundle, inspect
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.lookup.installed import delivered, mapped
from vedette.lookup.sets import carried, chosen
from vedette.rules.selftest import check, from_row
from vedette.stream.opening import opened
from vedette.system import child

DRY_RUN_SECONDS = 120.0
DRY_RUN_BYTES = 1 << 30
"""Address space of the dry run; thousands of rules take about 300 MiB of it."""


def validate(bundle: Bundle, folder: Path | None = None, *, whole: bool = False) -> Engine:
    """Compile a verified bundle and run its self-test; raises ValueError when it does not work.

    ``folder``: of the lookups installed on this host. ``whole``: with what is else loaded or compiled when the first
    event needs it."""
    engine, others = loaded(bundle, folder)
    opened(engine.plan)  # what cannot run is refused
    if whole:
        engine.evaluator.load()
    elsewhere = engine.plan.asking(others)
    failures = check(engine, (case for case in map(from_row, bundle.tests) if case.rule_id not in elsewhere))
    if failures:
        raise ValueError(f"{len(failures)} of {len(bundle.tests)} self-tests fail, first {failures[0]}")
    return engine


def loaded(bundle: Bundle, folder: Path | None) -> tuple[Engine, frozenset[str]]:
    """A verified bundle's engine, and the names of the lookups that it does not have from the bundle: its tests were
    written against other rows than they may have. Raises ValueError."""
    own = carried(bundle.parts)
    others = [] if folder is None else [group for group in delivered(folder) if group]
    artifact = Artifact(bundle.plan, bundle.databases, bundle.manifest.hyperscan)
    lookups = chosen(artifact.read_plan(), own, *others) if others else own
    return artifact.engine(lookups), frozenset(name for name, lookup in lookups.items() if own.get(name) is not lookup)


def dry_run(data: bytes, folder: Path | None = None) -> None:
    """``validate`` the verified bundle ``data`` in an isolated subprocess. Blocks; raises ValueError with its verdict
    or with how the process ended, and OSError when none can be started."""
    where = () if folder is None else (str(folder),)
    memory = DRY_RUN_BYTES + (0 if folder is None else 2 * mapped(folder))
    ended = child.run(__name__, *where, data=data, seconds=DRY_RUN_SECONDS, memory=memory)
    if ended.code is None:
        raise ValueError(f"its dry run took longer than {DRY_RUN_SECONDS:g} s and was stopped")
    if ended.code < 0:
        raise ValueError(f"its dry run was killed by {signal.Signals(-ended.code).name}")
    if ended.code:
        raise ValueError(ended.complaint or f"its dry run ended with code {ended.code}")


def main() -> int:
    """The subprocess: the bundle on standard input; the verdict is the last line of standard error."""
    try:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
        validate(inspect(sys.stdin.buffer.read(MAX_BUNDLE + 1)), folder, whole=True)
    except MemoryError:
        sys.stderr.write(f"its dry run needs more than {DRY_RUN_BYTES} bytes of memory\n")
        return 2
    except Exception as error:  # whatever a plan makes fail, it is the verdict
        sys.stderr.write(f"{str(error) or type(error).__name__}\n".replace("\n", " ").strip() + "\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
