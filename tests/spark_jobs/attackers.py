"""A region that is made up for the evaluation: what lands of it, and the truth about it.

This module knows the landing's columns and nothing of the program: it imports nothing of ``spark_jobs``, ``vedette`` or
``bench`` (``test_evaluation.py`` holds that), so what it takes for an attack is nobody's threshold. Each seed draws
other sites, hours and amounts. The last of ``DAYS`` days ends at ``END``; what is planted lies in the last fortnight.

**Attacks**: fast and slow ways through the sites, accounts with a daily past that are stolen, a worm, accounts that do
a little by another rule each day at one site, rules that appear, bursts of 45 alerts, sites that fall silent while
their agents report and while they do not. **Decoys**: scanners of a day and of every day, the address of a company,
a patching, roll-outs of browsers and of agents, a red team, a monitoring account, and everyone's ordinary alerts.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

END = datetime(2026, 11, 21, tzinfo=UTC)
DAYS, SITES, BUSY = 28, 20, 4
"""``BUSY`` sites have so many alerts that their silence says something."""
START = END - timedelta(days=DAYS)
HOURS = 24 * DAYS
LATE = HOURS - 14 * 24
WEEK = HOURS - 7 * 24

STAGES = ("reconnaissance", "initial-access", "execution", "persistence", "credential-access", "discovery",
          "lateral-movement", "command-and-control", "exfiltration")  # fmt: skip
LEVELS = ("low", "medium", "high")

Names = list[tuple[str, str]]
Entity = tuple[str, str]

_TIME = pa.timestamp("us", tz="UTC")
_PAIR = pa.struct([("kind", pa.string()), ("value", pa.string())])
ALERT = pa.schema([
    ("schema_version", pa.int32()), ("alert_id", pa.string()), ("seq", pa.int64()), ("kind", pa.string()),
    ("rule_id", pa.string()), ("rule_title", pa.string()), ("level", pa.string()), ("tags", pa.list_(pa.string())),
    ("agent_id", pa.string()), ("site", pa.string()), ("fleet", pa.string()), ("host", pa.string()),
    ("event_time", _TIME), ("detected_at", _TIME), ("received_at", _TIME), ("received_date", pa.string()),
    ("entities", pa.list_(_PAIR)), ("raw", pa.string()), ("count", pa.int64()),
    ("raw_ref", pa.struct([("log_id", pa.string()), ("offset", pa.int64()), ("length", pa.int32())])),
])  # fmt: skip
BEAT = pa.schema([
    ("agent_id", pa.string()), ("fleet", pa.string()), ("site", pa.string()), ("state", pa.string()),
    ("version", pa.string()), ("payload", pa.string()), ("received_at", _TIME),
])  # fmt: skip


class Rule(NamedTuple):
    """A rule, known by what it is about."""

    stage: str
    level: str
    number: int = 0

    @property
    def id(self) -> str:
        return f"{self.stage}.{self.level}.{self.number}"


class Happening(NamedTuple):
    """An alert: when, in hours since ``START``, where, by which rule, and whom it names."""

    hours: float
    site: int
    host: str
    rule: Rule
    names: Names


class Span(NamedTuple):
    """Something unusual at a site: a burst of ``rule``, or a silence (no rule) in which agents were ``heard``."""

    site: str
    rule: str
    begin: datetime
    end: datetime
    heard: bool = True


class Truth(NamedTuple):
    """What was planted. An attack is the set of its entities; ``creeping`` are those at one site."""

    attacks: list[set[Entity]]
    creeping: list[Entity]
    rules: set[str]
    bursts: list[Span]
    silences: list[Span]
    struck: set[str]
    """Sites (``f/SITE``) and hosts that an attack went over."""


def site_name(number: int) -> str:
    return f"s{number:02}"


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


class Author:
    """Writes what happens in a region."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.happened: list[Happening] = []
        self.truth = Truth([], [], set(), [], [], set())
        self._mark = f"{seed:05d}"
        # Each site has rules of its own that alert there all the time.
        every = [Rule(stage, level, n) for stage in STAGES for level in LEVELS for n in range(4)]
        self._usual = [
            self.draw.sample([one for one in every if one.level != "high"], 14)
            + self.draw.sample([one for one in every if one.level == "high"], 3)
            for _ in range(SITES)
        ]

    # -- parts

    def add(self, hours: float, site: int, rule: Rule, names: Names, host: str = "") -> None:
        if 0 <= hours < HOURS:
            self.happened.append(Happening(hours, site, host or self.host(site), rule, names))

    def host(self, site: int) -> str:
        return f"h{self.draw.randrange(8)}-{site_name(site)}"

    def some(self, number: int, among: Sequence[int] = range(SITES)) -> list[int]:
        return self.draw.sample(list(among), number)

    def strike(self, names: Names, begin: float, hours: float, sites: int, level: str) -> None:
        """Along the stages at each of some sites, from one to the next."""
        draw = self.draw
        for number, site in enumerate(self.some(sites)):
            arrived, host = begin + number * hours / sites, self.host(site)
            self.truth.struck.update({f"f/{site_name(site)}", host})
            for n, stage in enumerate(sorted(draw.sample(range(1, len(STAGES)), 4))):
                rule = Rule(STAGES[stage], level if n else "medium", draw.randrange(4))
                for _ in range(draw.randrange(1, 4)):
                    self.add(arrived + n * hours / sites / 5 + draw.random() / 30, site, rule, names, host)
        self.truth.attacks.append(set(names))

    def daily(self, names: Names, sites: Iterable[int], rules: Sequence[Rule], share: float = 1.0) -> None:
        for day in range(DAYS):
            for site in sites:
                for rule in rules:
                    if self.draw.random() < share:
                        self.add(24 * day + 7 + 10 * self.draw.random(), site, rule, names)

    # -- what is planted

    def attacks(self) -> None:
        draw, mark = self.draw, self._mark
        for n in range(4):
            who: Names = [("ip", f"198.51.100.{n}"), ("user", f"taken{n}{mark}"), ("user_agent", f"kit/{n}.{mark}")]
            hours, level = draw.uniform(1, 20), draw.choice(("high", "critical"))
            self.strike(who[: draw.randrange(1, 4)], draw.uniform(WEEK, HOURS - 21), hours, draw.randrange(4, 9), level)
        for n in range(3):  # stolen, with a daily past at home
            clerk: Names = [("user", f"clerk{n}{mark}")]
            self.daily(clerk, [draw.randrange(SITES)], [Rule("privilege-escalation", "low")], 0.8)
            self.strike(clerk, draw.uniform(WEEK, HOURS - 13), draw.uniform(2, 12), 4, "critical")
        for n in range(2):  # slow: a site each half day
            name, step, begin = ("user", f"slow{n}{mark}"), draw.uniform(10, 13), draw.uniform(LATE, LATE + 40)
            for number, site in enumerate(self.some(18)):
                host = self.host(site)
                self.add(begin + number * step, site, Rule("lateral-movement", "high", n), [name], host)
                self.truth.struck.update({f"f/{site_name(site)}", host})
            self.truth.attacks.append({name})
        self.strike(
            [("hash", hashlib.sha256(mark.encode()).hexdigest())], draw.uniform(WEEK, HOURS - 2), 0.8, 10, "high"
        )
        for n in range(3):  # slow and low, at one site
            creeper, home = ("user", f"creeper{n}{mark}"), draw.randrange(SITES)
            rules = [Rule(stage, level, 3) for stage in STAGES for level in ("low", "medium")]
            for day, rule in enumerate(draw.sample(rules, 13)):
                self.add(LATE + 24 * day + draw.uniform(7, 18), home, rule, [creeper], f"h0-{site_name(home)}")
            self.truth.creeping.append(creeper)
            self.truth.struck.update({f"f/{site_name(home)}", f"h0-{site_name(home)}"})

    def changes(self) -> None:
        """New rules, bursts, and who falls silent."""
        draw = self.draw
        for n, level in enumerate(("high", draw.choice(LEVELS))):
            rule, begin = Rule(draw.choice(STAGES), level, 70 + n), draw.uniform(WEEK + 12, HOURS - 30)
            for _ in range(draw.randrange(20, 200)):
                self.add(begin + 28 * draw.random(), draw.randrange(SITES), rule, [self.person(draw.randrange(SITES))])
            self.truth.rules.add(rule.id)
        for _ in range(4):
            site, begin = draw.randrange(SITES), draw.uniform(WEEK + 2, HOURS - 3)
            rule = draw.choice([one for one in self._usual[site] if one.level != "high"])
            minutes = draw.uniform(5, 50)
            for _ in range(45):
                self.add(begin + minutes / 60 * draw.random(), site, rule, [self.person(site)])
            self.truth.bursts.append(Span(f"f/{site_name(site)}", rule.id, at(begin), at(begin + minutes / 60)))
        sites = {span.site for span in self.truth.bursts}
        calm = [n for n in range(BUSY) if f"f/{site_name(n)}" not in sites] or list(range(BUSY))
        for n, site in enumerate(self.some(min(2, len(calm)), calm)):
            day = WEEK // 24 + draw.randrange(1, 5)
            begin = 24 * day + draw.uniform(0, 12)
            end = begin + draw.uniform(20, 30)
            self.happened = [one for one in self.happened if one.site != site or not begin <= one.hours < end]
            self.truth.silences.append(Span(f"f/{site_name(site)}", "", at(begin), at(end), heard=not n))

    # -- what only looks like it

    def person(self, site: int) -> Entity:
        return "user", f"user{self.draw.randrange(60)}.{site}"

    def decoys(self) -> None:
        draw, everywhere = self.draw, range(SITES)
        for n in range(5):  # scanners of a day
            begin, rules = draw.uniform(LATE, HOURS - 20), [Rule(stage, "high", n % 4) for stage in STAGES[:2]]
            for site in self.some(draw.randrange(12, 20)):
                for rule in rules:
                    self.add(begin + 20 * draw.random(), site, rule, [("ip", f"203.0.113.{n}")])
        self.daily([("ip", "203.0.113.99")], everywhere, [Rule(stage, "high", 1) for stage in STAGES[:2]], 0.7)
        shared = [Rule(stage, level) for stage in STAGES[1:7] for level in ("medium", "high")]
        self.daily([("ip", "192.0.2.1")], range(SITES - 8, SITES), shared, 0.15)  # the address of a company
        watch = [Rule("discovery", "medium", 2), Rule("execution", "medium", 2)]
        self.daily([("user", "svc-monitor")], everywhere, watch, 0.9)
        for n, kind in enumerate(("user_agent", "user_agent", "hash")):  # browsers and agents rolled out
            begin, name = draw.uniform(LATE, HOURS - 7), (kind, f"release-{n}.{self._mark}")
            for site in everywhere:
                self.add(begin + 6 * draw.random(), site, Rule("execution", "medium", n), [name])
        begin = draw.uniform(LATE, HOURS - 9)
        for site in everywhere:  # a patching by an administrator
            for stage in STAGES[2:7]:
                self.add(begin + 8 * draw.random(), site, Rule(stage, "low"), [("user", "patcher")])
        for n in range(2):  # a red team, which the lookup names
            attacks, struck = len(self.truth.attacks), set(self.truth.struck)
            self.strike([("ip", f"192.0.2.{9 + n}")], draw.uniform(WEEK, HOURS - 9), 6, 5, "critical")
            del self.truth.attacks[attacks:]
            self.truth.struck.intersection_update(struck)

    def ordinary(self) -> None:
        """Everyone else: some at any hour at the quiet sites, more by day at the busy ones. On the first day each rule
        was tried once somewhere."""
        draw = self.draw
        for stage in STAGES:
            for level in (*LEVELS, "critical"):
                for number in range(4):
                    self.add(draw.uniform(8, 18), draw.randrange(SITES), Rule(stage, level, number), [])
        for site in range(SITES):
            weights = [
                3.0 if one.level == "low" else 2.0 if one.level == "medium" else 0.7 for one in self._usual[site]
            ]
            for day in range(DAYS):
                for _ in range(draw.randrange(90, 110) if site < BUSY else draw.randrange(12, 24)):
                    rule, hour = draw.choices(self._usual[site], weights)[0], 24 * draw.random()
                    if site < BUSY and draw.random() < 0.3:
                        hour = draw.uniform(7, 18)
                    names: Names = [self.person(site)]
                    if draw.random() < 0.4:
                        names.append(("ip", f"100.{draw.randrange(64, 128)}.{site}.{draw.randrange(250)}"))
                    self.add(24 * day + hour, site, rule, names)

    def write(self) -> None:
        self.ordinary()
        self.attacks()
        self.decoys()
        self.changes()


def _rows(happened: Iterable[Happening]) -> list[dict[str, Any]]:
    rows = []
    for number, one in enumerate(sorted(happened)):
        when, site = at(one.hours), site_name(one.site)
        rows.append({
            "schema_version": 1, "alert_id": hashlib.md5(f"{number}".encode()).hexdigest(), "seq": number,
            "kind": "detection", "rule_id": one.rule.id, "rule_title": f"Rule {one.rule.id}", "level": one.rule.level,
            "tags": [f"attack.{one.rule.stage.replace('-', '_')}"], "agent_id": f"edge-{site}", "site": site,
            "fleet": "f", "host": one.host, "event_time": when, "detected_at": when + timedelta(seconds=1),
            "received_at": when + timedelta(seconds=4), "received_date": f"{when + timedelta(seconds=1):%Y-%m-%d}",
            "entities": [{"kind": kind, "value": value} for kind, value in one.names], "raw": f"event {number}",
            "count": 1, "raw_ref": {"log_id": f"log-{site}", "offset": 100 * number, "length": 80},
        })  # fmt: skip
    return rows


def _beats(truth: Truth) -> list[dict[str, Any]]:
    """A heartbeat of each site's agent each hour of the last nine days, but of those that are down."""
    down = [span for span in truth.silences if not span.heard]
    rows = []
    for hour in range(HOURS - 9 * 24, HOURS):
        for number in range(SITES):
            when, site = at(hour + 0.99), site_name(number)
            if not any(span.site == f"f/{site}" and span.begin <= when < span.end for span in down):
                rows.append({
                    "agent_id": f"edge-{site}", "fleet": "f", "site": site, "state": "running", "version": "0.1.0",
                    "payload": json.dumps({"state": "running"}), "received_at": when,
                })  # fmt: skip
    return rows


def land(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """A file a day, by the hour of its first row's receipt."""
    days = defaultdict(list)
    for row in rows:
        days[f"{row['received_at']:%Y-%m-%d}"].append(row)
    for number, (day, some) in enumerate(sorted(days.items())):
        place = folder / f"dt={day}" / f"hh={some[0]['received_at']:%H}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(some, schema), place / f"{number:026}.parquet")


def make(folder: Path, seed: int) -> Truth:
    """Write ``folder/landing`` and ``folder/lookups``; what was planted."""
    author = Author(seed)
    author.write()
    land(folder / "landing" / "alerts", _rows(author.happened), ALERT)
    land(folder / "landing" / "status", _beats(author.truth), BEAT)
    lookups = folder / "lookups"
    lookups.mkdir(parents=True)
    (lookups / "intel.csv").write_text(
        "kind,value,threat\n" + "".join(f"ip,192.0.2.{9 + n},exercise\n" for n in (0, 1))
    )
    return author.truth
