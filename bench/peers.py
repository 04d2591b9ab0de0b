"""Scenario ``peers``: the same lines and equivalent patterns through other programs, CPU time per event side by side.

rsyslog stores every line and writes one line per match, as the agent does, fed over TCP on its core. grep reads the
file and says only that some pattern matches. Patterns: 60 % substrings, 40 % regular expressions in
two forms, ignoring case, half of their words from the traffic, and a few that do occur. Those with one word more match
the message; the others do not match at all, so that every program has the same matches. A peer that is not installed is
listed with its apt package.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench import rules, send
from bench.drive import SEED, Bench, Wrong, stream_run
from tests.broker import own_port

PACKAGES = {"rsyslogd": "rsyslog", "grep": "grep"}
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


def _cpu(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _served(
    bench: Bench, command: list[str], port: int, stream: Path, lines: int, raw: Path, hits: Path
) -> dict[str, Any]:
    """A server under its own name: CPU between ready and "all lines stored"."""
    pin = ["taskset", "-c", str(bench.core)] if bench.core is not None else []
    process = subprocess.Popen([*pin, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        send.wait_for(("127.0.0.1", port), 60)
        time.sleep(1)
        before = _cpu(process.pid)
        send.tcp(("127.0.0.1", port), stream.read_bytes())
        deadline, last = time.monotonic() + 300, -1.0
        while time.monotonic() < deadline:  # at rest: an idle server writes out what it holds
            time.sleep(1)
            used = _cpu(process.pid)
            if used - last < 0.01:
                break
            last = used
        used = _cpu(process.pid) - before
    finally:
        process.terminate()
        process.wait(10)
    if _lines(raw) != lines:
        raise Wrong(f"{command[0]} stored {_lines(raw)} of {lines} lines")
    return {"us_per_event": round(used / lines * 1e6, 3), "matches": _lines(hits)}


def _rsyslog(bench: Bench, folder: Path, stream: Path, lines: int, chosen: Sequence[Pattern]) -> dict[str, Any]:
    port, raw, hits = own_port(), folder / "raw.log", folder / "hits.log"
    tests = "\n".join(
        (
            f'if re_match_i($msg, "{_quoted(pattern.text)}") then '
            if pattern.regex
            else f'if $msg contains_i "{pattern.text}" then '
        )
        + f'{{ set $.rule = "{i}"; call hit }}'
        for i, pattern in enumerate(chosen)
    )
    (folder / "rsyslog.conf").write_text(
        f"""global(workDirectory="{folder}" maxMessageSize="64k")
module(load="imptcp")
template(name="raw" type="string" string="%rawmsg%\\n")
template(name="hit" type="string" string="%$.rule% %rawmsg%\\n")
ruleset(name="hit") {{ action(type="omfile" file="{hits}" template="hit" ioBufferSize="64k" flushOnTXEnd="off") }}
ruleset(name="main") {{
action(type="omfile" file="{raw}" template="raw" ioBufferSize="64k" flushOnTXEnd="off")
{tests}
}}
input(type="imptcp" port="{port}" address="127.0.0.1" ruleset="main")
"""
    )
    command = [_program("rsyslogd"), "-n", "-f", str(folder / "rsyslog.conf"), "-i", str(folder / "pid")]
    return _served(bench, command, port, stream, lines, raw, hits)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\")


def _ran(command: list[str], lines: int, **options: Any) -> float:
    """Microseconds of CPU a line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / lines * 1e6, 3)


def _grep(bench: Bench, folder: Path, stream: Path, lines: int, chosen: Sequence[Pattern]) -> dict[str, Any]:
    file = folder / "patterns"
    escaped = (
        pattern.text if pattern.regex else re.sub(r"([.+*?()\[\]{}|^$\\])", r"\\\1", pattern.text) for pattern in chosen
    )
    file.write_text("\n".join(escaped) + "\n")
    out = folder / "out"
    with out.open("wb") as sink:
        command = [_program("grep"), "-E", "-i", "-f", str(file), str(stream)]
        took = _ran(command, lines, stdout=sink, env={"LC_ALL": "C"})
    return {"us_per_event": took, "lines_matched": _lines(out)}


def _program(name: str) -> str:
    """Raises FileNotFoundError."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        raise FileNotFoundError(name)
    return path


def _vedette(bench: Bench, folder: Path, stream: Path, lines: int, chosen: Sequence[Pattern]) -> dict[str, Any]:
    rng = Random(f"peers rules {SEED}")
    texts = [
        rules.rule(
            rng,
            f"Pattern {i}",
            {"s": {"message|re|i" if pattern.regex else "message|contains": pattern.text}, "condition": "s"},
        )
        for i, pattern in enumerate(chosen)
    ]
    rules.write(folder / "rules", texts)
    figures = stream_run(bench, f"peers{len(chosen)}", bench.bundle(folder / "rules"), stream, lines)
    return {
        "us_per_event": figures["us_per_event"],
        "matches": figures["alerts"],
        "peak_rss_mb": figures["peak_rss_mb"],
    }


Peer = Callable[[Bench, Path, Path, int, Sequence[Pattern]], dict[str, Any]]
PEERS: dict[str, Peer] = {
    "vedette": _vedette,
    "rsyslogd": _rsyslog,
    "grep": _grep,
}
LINES = {10: 200_000, 100: 50_000, 1000: 10_000}


def run(bench: Bench) -> dict[str, Any]:
    sample = bench.stream(rules.SAMPLE).read_bytes().splitlines()
    rows, missing = [], []
    for name, peer in PEERS.items():
        if name != "vedette":
            try:
                _program(name)
            except FileNotFoundError:
                missing.append({"peer": name, "package": PACKAGES[name]})
                bench.say(f"  {name} is not installed: apt-get install {PACKAGES[name]}")
                continue
        for count in LINES if not bench.quick else (10,):
            fast = name in ("vedette", "grep")
            lines = bench.size(400_000 if fast else LINES[count], 20_000)
            figures = peer(bench, bench.fresh(f"{name}{count}"), bench.stream(lines), lines, patterns(count, sample))
            bench.say(f"  {name}, {count} patterns: {figures}")
            share = (figures.get("matches") or figures.get("lines_matched", 0)) / lines
            rows.append({"peer": name, "patterns": count, "lines": lines, "match_share": round(share, 5), **figures})
    return {"rows": rows, "missing": missing}
