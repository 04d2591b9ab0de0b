"""Recorded events as the real agent evaluates them, cut into recordings.

The events lie beside the checkout (``../shared``): those of recorded attacks (OTRF/Security-Datasets, a sample), those
by which SigmaHQ tries its rules (hands on a keyboard at one lab host), a Linux host on the internet (loghub), failed
logins of many services. One ``vedette run`` with all rules of SigmaHQ and rules/sigma gets them over TCP and lands its
alerts; all here is as they say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import yaml
import zstandard

from bench.send import tcp
from tests.broker import own_port
from tests.differential.material import SHARED
from tests.e2e.agent import RULES, Agent
from tests.spark_jobs.playbooks.world import Rule

DATA = SHARED / "data"
SIGMAHQ = DATA / "sigma-all" / "rules"
OTRF = ("otrf-10k", "otrf-mix-dev", "otrf-runs-dev")
HERE = all(path.exists() for path in (SIGMAHQ, DATA / "windows", DATA / "loghub"))
WINDOWS = 'format = "windows"\nlogsource = { product = "windows" }\ntimezone = "America/New_York"\n'
"""Where the labs' times name no zone, they are of that one."""
LINUX = 'logsource = { product = "linux" }\ntimezone = "UTC"\n'
INPUTS = {"attacks": WINDOWS, "tools": WINDOWS, "linux": LINUX, "logins": LINUX}
PAUSES = {"attacks": timedelta(minutes=10), "tools": timedelta(minutes=90)}
"""What is further apart is of another recording."""
LOUD, LOUDEST = ("medium", "high", "critical"), ("high", "critical")

Row = dict[str, Any]


class Recording(NamedTuple):
    """The alerts of a recording in the order of their events. ``name``: technique and title of the first of its
    loudest alerts, and when it was recorded; ``turn``: which alert says that this is an attack, -1: none does."""

    name: str
    source: str
    rows: list[Row]
    turn: int


class Recorded(NamedTuple):
    """All that was recorded. ``units`` are the alerts of single events that may be everyday, by what they set off;
    ``days`` the alerts of a host on the internet by day; ``rules`` those that went off."""

    attacks: list[Recording]
    units: dict[str, list[list[list[Row]]]]
    days: list[list[Row]]
    rules: dict[str, Rule]


def _events() -> dict[str, list[bytes]]:
    """The lines of each input, each once."""
    recorded: dict[str, bytes] = {}
    for name in OTRF:
        with (DATA / "windows" / f"{name}.ndjson.zst").open("rb") as file:
            for line in zstandard.ZstdDecompressor().stream_reader(file).read().splitlines():
                recorded.setdefault(json.dumps(json.loads(line), sort_keys=True), line)
    cases = json.loads((DATA / "sigma_regression.json").read_text("utf-8"))
    logins = map(json.loads, (DATA / "failed_login_lines.jsonl").read_text("utf-8").splitlines())
    return {
        "attacks": [*recorded.values()],
        "tools": [json.dumps(event).encode() for case in cases for event in case["events"]],
        "linux": (DATA / "loghub" / "Linux_2k.log").read_bytes().splitlines(),
        "logins": [login["line"].encode() for login in logins],
    }


def alerts_of_all(folder: Path) -> Recorded:
    """What a fresh agent in ``folder`` says of all events."""
    ports = {name: own_port() for name in INPUTS}
    inputs = "".join(
        f'[[input]]\ntype = "syslog"\nname = "{name}"\ntcp = "127.0.0.1:{ports[name]}"\n{settings}'
        for name, settings in INPUTS.items()
    )
    agent = Agent(folder, f'[rules]\npaths = ["{SIGMAHQ}", "{RULES}"]\n{inputs}', rules=None)
    agent.up()
    try:
        for name, lines in _events().items():
            assert tcp(("127.0.0.1", ports[name]), b"".join(line + b"\n" for line in lines)).complete
            agent.settled(len(lines), name)
        rows = agent.alerts()
    finally:
        agent.kill()
    return _cut(sorted(rows, key=lambda row: (row["raw_ref"]["offset"], row["rule_id"])))


def _cut(rows: Sequence[Row]) -> Recorded:
    by: dict[str, list[Row]] = {name: [row for row in rows if row["source"] == name] for name in INPUTS}
    recordings = [*_recordings(by["attacks"], "OTRF/Security-Datasets"), *_recordings(by["tools"], "SigmaHQ's tests")]
    plausible = _plausible({row["rule_id"] for row in rows})
    units: dict[str, dict[str, list[list[Row]]]] = {"windows": {}, "linux": {}}
    for event in _by_event(row for row in rows if row["source"] != "linux"):
        if all(row["level"] not in LOUD or row["rule_id"] in plausible for row in event):
            product = "linux" if event[0]["source"] == "logins" else "windows"
            units[product].setdefault(" ".join(row["rule_id"] for row in event), []).append(event)
    days: dict[str, list[Row]] = {}
    for row in by["linux"]:
        days.setdefault(f"{row['event_time']:%m-%d}", []).append(row)
    return Recorded(
        [recording for recording in recordings if recording.turn >= 0],
        {product: list(kinds.values()) for product, kinds in units.items()},
        list(days.values()),
        {row["rule_id"]: _rule(row) for row in rows},
    )


def _rule(row: Row) -> Rule:
    where = [row["logsource"][part] or "" if row["logsource"] else "" for part in ("product", "category", "service")]
    return Rule(row["rule_id"], row["rule_title"], row["level"], tuple(row["tags"]), *where)


def _recordings(rows: Sequence[Row], source: str) -> list[Recording]:
    """Cut where nothing happened for long; at SigmaHQ's also by host, since each is somebody's own lab."""
    parts: list[list[Row]] = []
    lab = ""
    for row in sorted(rows, key=lambda row: (row["host"] if row["source"] == "tools" else "", row["event_time"])):
        last, lab = lab, row["host"] if row["source"] == "tools" else ""
        if parts and lab == last and row["event_time"] - parts[-1][-1]["event_time"] <= PAUSES[row["source"]]:
            parts[-1].append(row)
        else:
            parts.append([row])
    return [_recording(part, source) for part in parts]


def _recording(rows: list[Row], source: str) -> Recording:
    """It tells of an attack when at least two rules from medium up say so, one of them high, and it has more than one
    event: of less nobody could tell. The first that is high is its turn."""
    loudest = min(range(len(rows)), key=lambda n: (rows[n]["level"] not in LOUDEST, n))
    row = rows[loudest]
    tags = [tag[7:].upper() for each in (row, *rows) for tag in each["tags"] if re.match(r"attack\.t\d", tag)]
    loud = {each["rule_id"] for each in rows if each["level"] in LOUD}
    tells = len(loud) > 1 and len(_by_event(rows)) > 1
    name = f"{(*tags, 'no technique')[0]} {row['rule_title']}, {row['event_time']:%Y-%m-%d %H:%M}"
    return Recording(name, source, rows, loudest if tells and row["level"] in LOUDEST else -1)


def _by_event(rows: Iterable[Row]) -> list[list[Row]]:
    events: dict[int, list[Row]] = {}
    for row in rows:
        events.setdefault(row["raw_ref"]["offset"], []).append(row)
    return list(events.values())


def _plausible(ids: set[str]) -> set[str]:
    """The rules of ``ids`` that may go off in an everyday: their authors say by what; and they are not loud about
    stolen credentials or an attacker's tool, which nobody shrugs off."""
    plausible = set()
    for path in (*SIGMAHQ.rglob("*.yml"), *RULES.rglob("*.yml")):
        text = path.read_text("utf-8")
        if ids.isdisjoint(re.findall(r"^id: *(\S+)", text, re.M)):
            continue
        for rule in yaml.safe_load_all(text):
            reasons = [str(reason).lower() for reason in rule.get("falsepositives") or ()]
            named = any(not reason.startswith(("unknown", "unlikely", "none")) for reason in reasons)
            dire = "attack.credential-access" in rule.get("tags", ()) or "hacktool" in rule["title"].lower()
            if named and not (rule.get("level") in LOUDEST and dire):
                plausible.add(rule["id"])
    return plausible
