"""Scenario ``peers``: the same lines and equivalent patterns through other programs, CPU time per event side by side.

rsyslog stores every line and writes one line per match, as the agent does, fed over TCP on its core. grep reads the
file and says only that some pattern matches. Patterns: 60 % substrings, 40 % regular expressions in
two forms, ignoring case, half of their words from the traffic, and a few that do occur. Those with one word more match
the message; the others do not match at all, so that every program has the same matches. A peer that is not installed is
named.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench import rules, send
from bench.drive import SEED, Bench, Wrong, stream_run
from bench.usage import cpu_seconds
from tests.broker import own_port

OCCURRING = ("Connection closed by authenticating", "logrotate.service")
"""Substrings of messages that the traffic holds, in about one percent of the lines together."""


class Pattern(NamedTuple):
    text: str
    regex: bool


def patterns(count: int, sample: Sequence[bytes]) -> list[Pattern]:
    """``count`` patterns; a function of the arguments."""
    rng = Random(f"peers {SEED}")
    maker = rules.Maker(rng, rules.Vocabulary(sample))
    chosen = [Pattern(text, False) for text in OCCURRING]
    while len(chosen) < count:
        word = maker.rare(len(chosen) % 2 == 0)
        kind = len(chosen) % 5
        if re.search(r"""["'\\]""", word):
            continue
        escaped = re.sub(r"([.+*?()\[\]{}|^$/-])", r"\\\1", word) if kind > 2 else word
        if kind < 3:
            chosen.append(Pattern(word, False))
        elif kind == 3:
            chosen.append(Pattern(rf"{escaped}[ ]+-[a-z]+[ ]+", True))
        else:
            chosen.append(Pattern(rf"(curl|wget)[ ]+[^ ]*{escaped}", True))
    return chosen[:count]


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _vedette(bench: Bench, folder: Path, stream: Path, lines: int, chosen: Sequence[Pattern]) -> tuple[float, int]:
    rng = Random(f"peers rules {SEED}")
    texts = []
    for i, pattern in enumerate(chosen):
        selection = {"message|re|i" if pattern.regex else "message|contains": pattern.text}
        texts.append(rules.rule(rng, f"Pattern {i}", {"s": selection, "condition": "s"}))
    rules.write(folder / "rules", texts)
    figures = stream_run(bench, f"peers{len(chosen)}", bench.bundle(folder / "rules"), stream, lines)
    return figures["us_per_event"], figures["alerts"]


def _rsyslog(bench: Bench, folder: Path, stream: Path, lines: int, chosen: Sequence[Pattern]) -> tuple[float, int]:
    """CPU time between ready and at rest: an idle server has written out what it holds."""
    port, raw, hits = own_port(), folder / "raw.log", folder / "hits.log"
    tests = []
    for i, (text, regex) in enumerate(chosen):
        quoted = text.replace("\\", "\\\\")
        test = f're_match_i($msg, "{quoted}")' if regex else f'$msg contains_i "{text}"'
        tests.append(f'if {test} then {{ set $.rule = "{i}"; call hit }}')
    (folder / "rsyslog.conf").write_text(
        f"""global(workDirectory="{folder}" maxMessageSize="64k")
module(load="imptcp")
template(name="raw" type="string" string="%rawmsg%\\n")
template(name="hit" type="string" string="%$.rule% %rawmsg%\\n")
ruleset(name="hit") {{ action(type="omfile" file="{hits}" template="hit" ioBufferSize="64k" flushOnTXEnd="off") }}
ruleset(name="main") {{
action(type="omfile" file="{raw}" template="raw" ioBufferSize="64k" flushOnTXEnd="off")
{chr(10).join(tests)}
}}
input(type="imptcp" port="{port}" address="127.0.0.1" ruleset="main")
"""
    )
    pin = ["taskset", "-c", str(bench.core)] if bench.core is not None else []
    command = [*pin, _program("rsyslogd"), "-n", "-f", str(folder / "rsyslog.conf"), "-i", str(folder / "pid")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        send.wait_for(("127.0.0.1", port), 60)
        time.sleep(1)
        before = cpu_seconds(process.pid)
        send.tcp(("127.0.0.1", port), stream.read_bytes())
        deadline, last, used = time.monotonic() + 300, -1.0, 0.0
        while used - last >= 0.01 and time.monotonic() < deadline:
            time.sleep(1)
            last, used = used, cpu_seconds(process.pid)
    finally:
        process.terminate()
        process.wait(10)
    if _lines(raw) != lines:
        raise Wrong(f"rsyslogd stored {_lines(raw)} of {lines} lines")
    return (used - before) / lines * 1e6, _lines(hits)


def _grep(bench: Bench, folder: Path, stream: Path, lines: int, chosen: Sequence[Pattern]) -> tuple[float, int]:
    """Lines that match count once, however many patterns do."""
    file, out = folder / "patterns", folder / "out"
    special = re.compile(r"([.+*?()\[\]{}|^$\\])")
    file.write_text("".join((text if regex else special.sub(r"\\\1", text)) + "\n" for text, regex in chosen))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with out.open("wb") as sink:
        command = [_program("grep"), "-E", "-i", "-f", str(file), str(stream)]
        subprocess.run(command, check=False, stdout=sink, env={"LC_ALL": "C"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / lines * 1e6, _lines(out)


def _program(name: str) -> str:
    """Raises FileNotFoundError."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        raise FileNotFoundError(f"{name} is not installed")
    return path


PEERS = {"vedette": _vedette, "rsyslogd": _rsyslog, "grep": _grep}
LINES = {10: 200_000, 100: 50_000, 1000: 10_000}
"""That rsyslogd gets; the others get 400,000."""


def run(bench: Bench) -> dict[str, Any]:
    sample = bench.stream(rules.SAMPLE).read_bytes().splitlines()
    rows, missing = [], []
    for name, peer in PEERS.items():
        row: dict[str, Any] = {"µs of CPU an event": name}
        for count in LINES if not bench.quick else (10,):
            lines = bench.size(LINES[count] if name == "rsyslogd" else 400_000, 20_000)
            folder, chosen = bench.fresh(f"{name}{count}"), patterns(count, sample)
            try:
                row[f"{count:,} patterns"], hits = peer(bench, folder, bench.stream(lines), lines, chosen)
            except FileNotFoundError as error:
                missing.append(str(error))
                break
            bench.say(f"  {row}, {hits / lines:.2%} of the lines")
        else:
            rows.append(row)
    return {"tables": [rows], "said": f"Not measured: {', '.join(missing)}." if missing else ""}
