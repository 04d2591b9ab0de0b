"""A made-up region: sites with hosts, agents and people, and the author who writes what happens there.

Nothing here knows the program: the form of an alert is docs/alert.md's. Hours count from ``start``.
One ``random.Random`` draws everything, in one order, so a seed gives the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tests.spark_jobs.attackers import ALERT as LEAST
from tests.spark_jobs.attackers import BEAT, END, land

Entity = tuple[str, str]
TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
ALERT = pa.schema([
    *LEAST, ("parent_id", pa.string()), ("rule_digest", pa.string()), ("source", pa.string()), ("fields", _TEXTS),
    ("logsource", pa.struct([("product", pa.string()), ("category", pa.string()), ("service", pa.string())])),
    ("first_time", TIME), ("last_time", TIME), ("bundle", pa.string()), ("flags", pa.list_(pa.string())),
])  # fmt: skip

LAYOUT: dict[str, tuple[float, dict[str, tuple[int, int]]]] = {
    "plant": (0.5, {"ews": (1, 3), "plc": (2, 6), "workstation": (4, 14), "server": (1, 3), "linux": (1, 4),
                    "gateway": (1, 1)}),
    "office": (0.3, {"workstation": (10, 40), "server": (2, 6), "dc": (1, 2), "web": (1, 2), "linux": (1, 3),
                     "gateway": (1, 2), "mail": (0, 1)}),
    "centre": (0.12, {"server": (6, 16), "dc": (2, 3), "web": (3, 8), "linux": (8, 24), "db": (2, 6), "mail": (1, 2),
                      "gateway": (2, 3), "k8s": (3, 8), "ci": (1, 2), "esxi": (2, 6), "cloud": (1, 1),
                      "workstation": (6, 16)}),
    "cloud": (0.08, {"cloud": (1, 1), "k8s": (3, 8), "linux": (4, 10), "web": (2, 4), "ci": (1, 2),
                     "gateway": (1, 1)}),
}  # fmt: skip
"""Kinds of sites: their share, and of each role of hosts how many."""
WINDOWS = ("ews", "workstation", "server", "dc", "mail", "db")
ZONES = (-5, 0, 1, 1, 1, 2, 8)
"""Hours before UTC's noon at which a site has its own."""
FORENAMES = ("ada", "ben", "cleo", "dana", "egon", "finn", "gita", "hana", "ivo", "jana", "karl", "lena", "mara",
             "nils", "olga", "paul", "rosa", "sven", "tina", "uwe", "vera")  # fmt: skip
SURNAMES = ("adler", "bauer", "conti", "dvorak", "egger", "fuchs", "gruber", "horak", "ivanov", "jansen", "kovac",
            "lang", "moser", "novak", "orban", "petek", "riedl")  # fmt: skip


class Rule(NamedTuple):
    """A rule as its authors published it."""

    id: str
    title: str
    level: str
    tags: tuple[str, ...]
    product: str
    category: str
    service: str


def _read_rules() -> dict[str, Rule]:
    with (Path(__file__).parent / "rules.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            Rule(key, title, level, tuple(tags.split()), product, category, service)
            for key, title, level, tags, product, category, service in csv.reader(file)
        ]
    return {rule.title: rule for rule in rows}


RULES = _read_rules()
"""By title: SigmaHQ's (Detection Rule License 1.1, by its authors), and those of rules/sigma."""


class Site(NamedTuple):
    """A site: its hosts by role, the people who work there, and how many hours it is ahead of UTC."""

    number: int
    name: str
    kind: str
    hosts: dict[str, list[str]]
    people: list[str]
    zone: int
    agents: int

    @property
    def fleet(self) -> str:
        return "works" if self.kind == "plant" else "offices"

    @property
    def place(self) -> str:
        return f"{self.fleet}/{self.name}"

    @property
    def every(self) -> list[tuple[str, str]]:
        """Each host with its role."""
        return [(role, host) for role, hosts in self.hosts.items() for host in hosts]


class Happening(NamedTuple):
    """An alert: when it happened and was detected (hours), where, by which rule, whom it names; of a fold its parent's
    number, how many it adds, and over how many hours."""

    hours: float
    site: int
    host: str
    rule: Rule
    names: tuple[Entity, ...]
    parent: int = -1
    matches: int = 1
    span: float = 0.0


class Attack(NamedTuple):
    """What was planted. ``own`` are entities of the attacker, accounts that were taken among them; ``hosts`` are those
    that tell of it (``attacks.weigh``). From ``moment`` on somebody who saw all alerts would say so."""

    name: str
    source: str
    alerts: set[str]
    begin: datetime
    moment: datetime
    end: datetime
    own: set[Entity]
    hosts: set[str]
    sites: set[str]
    rules: set[str]
    inner: set[str]
    """Private addresses that it came from; at other sites they are other machines."""
    marks: set[str]
    """Titles, as ``rules``, that next to nothing else sets off."""


class Decoy(NamedTuple):
    """What looks like an attack and is none; ``marks`` are titles that next to nothing else sets off."""

    name: str
    alerts: set[str]
    entities: set[Entity]
    sites: set[str]
    marks: set[str]


class Outage(NamedTuple):
    """A site without alerts; ``heard``: its agents go on to send heartbeats."""

    site: str
    begin: datetime
    end: datetime
    heard: bool


class Truth(NamedTuple):
    """All that was planted, from ``start`` until before ``end``."""

    seed: int
    start: datetime
    end: datetime
    attacks: list[Attack]
    decoys: list[Decoy]
    outages: list[Outage]
    alerts: int
    rules: dict[str, str]
    """Titles of the rules that may go off, by id."""


class Size(NamedTuple):
    """How large a region is; ``alerts`` is about how many there will be."""

    sites: int = 60
    days: int = 14
    alerts: int = 300_000


class Author:
    """Writes what happens in a region."""

    def __init__(self, seed: int, size: Size) -> None:
        self.seed, self.size = seed, size
        self.draw = random.Random(seed)
        self.hours = 24.0 * size.days
        self.start = END - timedelta(days=size.days)
        self.happened: list[Happening] = []
        self.labels: dict[str, list[int]] = defaultdict(list)
        self.outages: list[Outage] = []
        self.skewed: dict[str, float] = {}
        """Hosts whose clock is wrong, by how many hours."""
        self.late: dict[int, float] = {}
        """Sites whose alerts come in batches, every so many hours."""
        self.begins: dict[int, float] = {}
        """Sites that are not there from the beginning."""
        self._addresses: set[str] = set()
        self.people: set[str] = set()
        self.sites = [self._site(number) for number in range(size.sites)]

    def _site(self, number: int) -> Site:
        kinds = [kind for kind, (share, _) in LAYOUT.items() for _ in range(max(2, round(share * self.size.sites)))]
        kind = kinds[number] if number < len(kinds) else "plant"
        name = f"{kind}-{number:02}"
        large = self.draw.lognormvariate(0, 0.5)
        hosts = {}
        for role, (low, high) in LAYOUT[kind][1].items():
            amount = min(4 * high, max(low, round(self.draw.randint(low, high) * large)))
            hosts[role] = [f"{kind[0]}{number:02}-{role}{n:02}" for n in range(1, amount + 1)]
        people = [self._person() for _ in range(max(6, len(hosts.get("workstation", [])) * 2))]
        return Site(number, name, kind, hosts, people, self.draw.choice(ZONES), 1 + sum(map(len, hosts.values())) // 20)

    def _person(self) -> str:
        while True:
            name = f"{self.draw.choice(FORENAMES)}.{self.draw.choice(SURNAMES)}"
            name += str(self.draw.randint(2, 999)) if name in self.people else ""
            if name not in self.people:
                self.people.add(name)
                return name

    # -- things that are new

    def address(self, network: str = "") -> str:
        """A public address that nothing else has."""
        first = [5, 31, 45, 62, 77, 80, 91, 94, 103, 141, 146, 162, 176, 185, 193, 194, 212]
        while True:
            if network:
                value = network + ":".join(f"{self.draw.randrange(1, 65536):x}" for _ in range(4))
            else:
                value = ".".join(str(n) for n in (self.draw.choice(first), *(self.draw.randint(1, 254) for _ in "abc")))
            if value not in self._addresses:
                self._addresses.add(value)
                return value

    def digest(self) -> str:
        return f"{self.draw.getrandbits(256):064x}"

    def domain(self) -> str:
        middle = "".join(self.draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(9))
        first = self.draw.choice(
            ("cdn", "api", "sync", "update", "static", "mail", "portal", "cloud", "metrics", "edge")
        )
        return f"{first}.{middle}.{self.draw.choice(('com', 'net', 'org', 'io', 'top', 'xyz'))}"

    def inner(self, host: str) -> str:
        """A host's private address; many small sites have the same network."""
        number = int(hashlib.md5(host.encode()).hexdigest()[:6], 16)
        site = int(host[1:3])
        return f"192.168.1.{number % 200 + 10}" if site % 3 else f"10.{site}.{number // 256 % 8}.{number % 250 + 2}"

    def account(self, site: Site, purpose: str) -> str:
        return f"svc-{purpose}-{site.name}"

    def log_uniform(self, low: float, high: float) -> float:
        return low if low >= high else low * (high / low) ** self.draw.random()

    def poisson(self, mean: float) -> int:
        if mean > 40:
            return max(0, round(self.draw.gauss(mean, mean**0.5)))
        left, number = self.draw.expovariate(1), 0
        while left < mean:
            left, number = left + self.draw.expovariate(1), number + 1
        return number

    # -- what happens

    def add(
        self, hours: float, site: Site, host: str, title: str, names: Sequence[Entity] = (), label: str = "",
        again: tuple[int, float] = (0, 0.0),
    ) -> int:  # fmt: skip
        """Write an alert, and a fold of ``again`` more over so many hours; the alert's number, -1 for what is
        outside the time or while the site is dark."""
        outside = not self.begins.get(site.number, 0.0) <= hours < self.hours
        when = self.at(hours)
        if outside or any(o.site == site.place and o.begin <= when < o.end for o in self.outages):
            return -1
        every = tuple(dict.fromkeys([("host", host), *names]))
        number = len(self.happened)
        self.happened.append(Happening(hours, site.number, host, RULES[title], every))
        numbers = [number]
        if again[0] and hours + again[1] < self.hours:
            numbers.append(number + 1)
            self.happened.append(
                Happening(hours + again[1], site.number, host, RULES[title], every, number, again[0], again[1])
            )
        if label:
            self.labels[label] += numbers
        return number

    def at(self, hours: float) -> datetime:
        return self.start + timedelta(seconds=round(3600 * hours, 3))

    def ids(self, numbers: Sequence[int]) -> set[str]:
        return {self.id(number) for number in numbers}

    def id(self, number: int) -> str:
        return hashlib.md5(f"{self.seed}:{number}".encode()).hexdigest()

    def marks(self, label: str, total: Counter[str]) -> set[str]:
        """Titles of whose alerts, ``total`` in all, at least a half are of ``label``."""
        rules = Counter(self.happened[number].rule.title for number in self.labels[label])
        return {title for title, number in rules.items() if 2 * number >= total[title]}

    # -- how it lands

    def rows(self) -> list[dict[str, Any]]:
        """The alerts as they land, in the order of receipt, numbered by each agent."""
        seqs: dict[str, int] = defaultdict(int)
        rows = []
        for number in sorted(range(len(self.happened)), key=lambda number: self.happened[number].hours):
            alert, wait = self.happened[number], self.draw.lognormvariate(1.5, 0.8) / 3600
            if period := self.late.get(alert.site):
                wait += period - alert.hours % period
            rows.append(self._row(number, alert.hours + wait, seqs))
        return sorted((row for row in rows if row["received_at"] < END), key=lambda row: row["received_at"])

    def _row(self, number: int, received: float, seqs: dict[str, int]) -> dict[str, Any]:
        alert, site = self.happened[number], self.sites[self.happened[number].site]
        rule, detected = alert.rule, self.at(alert.hours) + timedelta(seconds=1)
        when = self.at(alert.hours + self.skewed.get(alert.host, 0.0))
        agent = f"edge-{site.name}-{int(hashlib.md5(alert.host.encode()).hexdigest()[:4], 16) % site.agents + 1}"
        seqs[agent] += 1
        fold = alert.parent >= 0
        return {
            "schema_version": 1, "alert_id": self.id(number), "seq": seqs[agent], "kind": "fold" if fold else
            "detection", "parent_id": self.id(alert.parent) if fold else None, "rule_id": rule.id,
            "rule_title": rule.title, "rule_digest": rule.id[:8], "level": rule.level, "tags": list(rule.tags),
            "agent_id": agent, "site": site.name, "fleet": site.fleet, "host": alert.host, "event_time": when,
            "detected_at": detected, "received_at": self.at(received) + timedelta(seconds=2),
            "received_date": f"{detected:%Y-%m-%d}", "source": "syslog" if rule.product == "linux" else "forwarded",
            "logsource": {"product": rule.product or None, "category": rule.category or None,
                          "service": rule.service or None},
            "fields": [(kind, value) for kind, value in alert.names if kind != "host"],
            "entities": [{"kind": kind, "value": value} for kind, value in alert.names],
            "raw": "" if fold else f"{rule.title}: {' '.join(value for _, value in alert.names)}",
            "raw_ref": {"log_id": hashlib.md5(agent.encode()).hexdigest(), "offset": 400 * seqs[agent], "length": 380},
            "count": alert.matches, "first_time": when - timedelta(hours=alert.span) if fold else None,
            "last_time": when if fold else None, "bundle": f"sigma-{1 + (alert.hours > 0.6 * self.hours)}",
            "flags": ["time_jump"] if alert.host in self.skewed else [],
        }  # fmt: skip

    def beats(self) -> Iterator[dict[str, Any]]:
        """A heartbeat of each agent each hour, but of those that are down."""
        down = [outage for outage in self.outages if not outage.heard]
        for hour in range(round(self.hours)):
            when = self.at(hour + 0.99)
            for site in self.sites:
                dark = any(o.site == site.place and o.begin <= when < o.end for o in down)
                if dark or hour < self.begins.get(site.number, 0.0):
                    continue
                for number in range(1, site.agents + 1):
                    yield {
                        "agent_id": f"edge-{site.name}-{number}", "fleet": site.fleet, "site": site.name,
                        "state": "running", "version": "0.1.0", "payload": json.dumps({"state": "running"}),
                        "received_at": when,
                    }  # fmt: skip

    def write(self, folder: Path, intel: Sequence[tuple[str, str, str]]) -> int:
        """Write ``folder/landing`` and ``folder/lookups``; how many alerts have landed."""
        rows = self.rows()
        land(folder / "landing" / "alerts", rows, ALERT)
        land(folder / "landing" / "status", list(self.beats()), BEAT)
        (folder / "lookups").mkdir(parents=True)
        lines = ["kind,value,threat", *map(",".join, intel)]
        (folder / "lookups" / "intel.csv").write_text("\n".join(lines) + "\n", "utf-8")
        return len(rows)
