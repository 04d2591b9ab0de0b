"""``make fuzz SECONDS=60``: atheris, guided by coverage, on every target of ``targets.py``, each in its own process.

``python -m tests.fuzz --seconds 60 [NAME…]`` shares the seconds among the targets. What makes one fail is written to
``build/fuzz/NAME-crash-…``; ``python -m tests.fuzz --reproduce NAME FILE`` runs it again. Exit code 1 when one failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"
MAX_LEN = 16 << 10
RSS_MB = 1024
TIMEOUT = 10
"""Seconds for one input, and megabytes for the process: beyond them libFuzzer reports it as a failure."""


def child(name: str, arguments: Sequence[str]) -> None:
    """One target under libFuzzer; does not return."""
    import atheris

    with atheris.instrument_imports(include=["vedette"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]

    def one(data: bytes) -> None:
        target.run(data)

    atheris.Setup([name, *arguments], one)
    atheris.Fuzz()


def fuzz(name: str, seeds: Sequence[bytes], seconds: int) -> bool:
    """True when nothing was found."""
    corpus = FOUND / f"{name}-corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(seeds):
        (corpus / f"seed-{i}").write_bytes(seed)
    options = (f"-max_total_time={seconds}", f"-max_len={MAX_LEN}", f"-rss_limit_mb={RSS_MB}", f"-timeout={TIMEOUT}")
    command = [sys.executable, "-m", "tests.fuzz", "--child", name, *options]
    command += [f"-artifact_prefix={FOUND}/{name}-", "-print_final_stats=1", str(corpus)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    output = done.stdout + done.stderr
    runs = next((line.split()[-1] for line in output.splitlines() if "number_of_executed_units" in line), "?")
    print(f"{name:<22} {'ok' if not done.returncode else 'FAILED'}  {runs} inputs in {seconds} s", flush=True)
    if done.returncode:
        print(output[-6000:], file=sys.stderr)
    return not done.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    given_all = list(sys.argv[1:] if arguments is None else arguments)
    if given_all[:1] == ["--child"]:
        child(given_all[1], given_all[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="targets; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--reproduce", nargs=2, metavar=("NAME", "FILE"), help="run a target on what was found")
    options = parser.parse_args(given_all)
    from tests.fuzz.targets import TARGETS

    if options.reproduce:
        TARGETS[options.reproduce[0]].run(Path(options.reproduce[1]).read_bytes())
        return 0
    if importlib.util.find_spec("atheris") is None:
        version = ".".join(map(str, sys.version_info[:2]))
        print(f"fuzz: skipped: atheris is not installed for this Python {version}: pip install 'vedette[fuzz]'")
        return 0
    names = options.names or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    seconds = max(1, options.seconds // len(names))
    good = [fuzz(name, TARGETS[name].seeds, seconds) for name in names]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
