"""A third made-up region, of which every alert is a real one: what the real agent says of recorded events.

``recordings`` has the agent evaluate them, ``cast`` gives hosts, people and addresses the names of a site, here it is
said when and where. Sites, hosts, people and hours are those of ``playbooks``.

* A recording of which the rules say that it is an attack is played as one, at one to three sites, with its own pauses.
  Its class is the technique of the first of its loudest alerts. Two of three recordings are played in a region, three
  of four of these in the last week.
* Everyday are single recorded events, also of attacks, by rules whose authors say what else sets them off: by site and
  host with heavy tails (``background``), at the hours of people, also where attacks are played. What a host on the
  internet recorded goes on by day at each such host.
* Decoys: an administrator's tools every day at many sites, two own scanners.

What is not real: how often a rule goes off in an everyday; that of an intrusion there are minutes, or an hour of
somebody who tries rules; that a text keeps its old times, and an everyday what it ran; that all is of Windows or SSH.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.spark_jobs.playbooks.attacks import weigh
from tests.spark_jobs.playbooks.background import Everyday
from tests.spark_jobs.playbooks.world import Attack, Author, Decoy, Entity, Happening, Site, Size, Truth
from tests.spark_jobs.replayed.cast import Cast, able, main_host, role_of
from tests.spark_jobs.replayed.recordings import LOUD, Recorded, Recording, Row

__all__ = ["SIZE", "make"]

SIZE = Size(alerts=60_000)
SCANNED = 0.2
"""Of all alerts the share that is of the internet's scanners."""
OFTEN = {"informational": 1.0, "low": 0.3, "medium": 0.1, "high": 0.02, "critical": 0.001}
"""Alerts of an everyday rule at a host, relatively, by level."""
AS_SAID = ("kind", "rule_digest", "source", "logsource", "fields", "entities", "raw", "count", "flags")
"""Columns that are as the agent said, but for names."""
SCANNER = "10.250.0.17"
HALF_A_DAY = timedelta(hours=12)
EXPOSED = ("linux", "web", "gateway")


class Player(Author):
    """Plays recorded alerts in a made-up region."""

    def __init__(self, recorded: Recorded, seed: int, size: Size) -> None:
        super().__init__(seed, size)
        self.recorded = recorded
        self.played: list[tuple[Row, int]] = []
        """Of each that happened the alert, and where its event lies in the log."""
        self._events = 0
        self.exposed = [
            (site, host) for site in self.sites for role in EXPOSED for host in site.hosts.get(role, ())[:2]
        ]
        """Hosts that the internet reaches."""

    def play(self, rows: Sequence[Row], hours: float, cast: Cast, label: str = "") -> list[int]:
        """Write alerts from hour ``hours`` on, with their own pauses; their numbers."""
        offsets: dict[int, int] = {}
        numbers = []
        for row in rows:
            when = hours + (row["event_time"] - rows[0]["event_time"]) / timedelta(hours=1)
            if not 0 <= when < self.hours:
                continue
            alert, offset = cast.renamed(row), row["raw_ref"]["offset"]
            self._events += offset not in offsets
            names = tuple((entity["kind"], entity["value"]) for entity in alert["entities"])
            rule = self.recorded.rules[row["rule_id"]]
            numbers.append(len(self.happened))
            self.happened.append(Happening(when, cast.site.number, alert["host"], rule, names))
            self.played.append((alert, offsets.setdefault(offset, 4096 * self._events)))
        if label:
            self.labels[label] += numbers
        return numbers

    def _row(self, number: int, received: float, seqs: dict[str, int]) -> dict[str, Any]:
        base = super()._row(number, received, seqs)
        alert, offset = self.played[number]
        shift = base["event_time"] - alert["event_time"]
        spans = {key: alert[key] and alert[key] + shift for key in ("first_time", "last_time")}
        where = {**base["raw_ref"], "offset": offset, "length": alert["raw_ref"]["length"]}
        return base | {key: alert[key] for key in AS_SAID} | spans | {"raw_ref": where}

    def named(self, label: str) -> Counter[Entity]:
        """Whom the alerts of ``label`` name, each how often."""
        return Counter(entity for number in self.labels[label] for entity in self.happened[number].names)


def addresses(rows: Sequence[Row]) -> list[str]:
    """The recorded addresses, each once."""
    named = (entity for row in rows for entity in row["entities"])
    return list(dict.fromkeys(entity["value"] for entity in named if entity["kind"] == "ip"))


def _attacks(player: Player) -> list[Attack]:
    draw, recordings = player.draw, player.recorded.attacks
    chosen = draw.sample(recordings, round(len(recordings) * 2 / 3))
    week, taken = player.hours - 7 * 24, set[int]()
    attacks = []
    for number, recording in enumerate(chosen):
        role = role_of(main_host(recording.rows))
        homes = [site for site in player.sites if able(site, role)]
        sites = draw.sample(homes, draw.choice((1, 1, 1, 2, 3)))
        sites[0] = draw.choice([site for site in homes if site.number not in taken and site not in sites] or sites)
        taken.add(sites[0].number)
        begin = draw.uniform(72, week - 12) if number % 4 == 3 else draw.uniform(week + 6, player.hours - 30)
        attacks.append(_attack(player, recording, sites, begin))
    return attacks


def _attack(player: Player, recording: Recording, sites: Sequence[Site], begin: float) -> Attack:
    label, hours, turn = f"attack {recording.name}", begin, begin
    shared: dict[str, str] = {}
    people: set[str] = set()
    for site in sites:
        host = player.draw.choice(able(site, role_of(main_host(recording.rows))))
        cast = Cast(player, site, recording.rows, host, shared=shared)
        numbers = player.play(recording.rows, hours, cast, label)
        turn = player.happened[numbers[recording.turn]].hours if hours == begin else turn
        people |= cast.people
        hours += player.log_uniform(0.3, 8)
    alerts, named = [player.happened[number] for number in player.labels[label]], player.named(label)
    own = {
        (kind, value)
        for kind, value in named
        if (kind == "user" and value.rpartition("\\")[2] in people) or value in shared.values()
    }
    inner = {value for kind, value in named if kind == "ip" and value.startswith(("10.", "192.168."))}
    return Attack(
        recording.name, recording.source, player.ids(player.labels[label]), player.at(min(a.hours for a in alerts)),
        player.at(turn), player.at(max(a.hours for a in alerts)), own,
        {value for kind, value in named if kind == "host"}, {site.place for site in sites},
        {a.rule.title for a in alerts}, inner, set(),
    )  # fmt: skip


def _decoys(player: Player) -> list[Decoy]:
    draw, days = player.draw, player.size.days
    entities: dict[str, set[Entity]] = {}
    tools = [
        kind[0]
        for kind in player.recorded.units["windows"]
        if kind[0][0]["source"] == "tools" and any(row["level"] in LOUD for row in kind[0])
    ]
    tools, name = draw.sample(tools, 3), "administrator's tools every day"
    admin = f"adm-{draw.choice(player.sites[0].people)}"
    for site in [site for site in player.sites if able(site, "server") and draw.random() < 0.7]:
        for unit in tools:
            cast = Cast(player, site, unit, draw.choice(able(site, "server")[:2]), user=admin)
            for day in range(days):
                player.play(unit, 24 * day + 9 - site.zone + draw.random(), cast, name)
    entities[name] = {entity for entity in player.named(name) if entity[1].endswith(admin)}
    probes = [unit for kind in player.recorded.units["linux"] for unit in kind if "src_ip" in dict(unit[0]["fields"])]
    for name, scanner, nights in (
        ("own scanner", SCANNER, [2, 6, 9, 12]),
        ("scanner that intel does not name", player.address(), list(range(0, days, 3))),
    ):
        for night in nights:
            for site, host in player.exposed:
                unit = draw.choice(probes)
                cast = Cast(player, site, unit, host, shared=dict.fromkeys(addresses(unit), scanner))
                player.play(unit, 24 * night + 1 + 3 * draw.random(), cast, name)
        entities[name] = {("ip", scanner)}
    return [
        Decoy(name, player.ids(player.labels[name]), own,
              {player.sites[player.happened[number].site].place for number in player.labels[name]}, set())
        for name, own in entities.items()
    ]  # fmt: skip


def _everyday(player: Player, alerts: int) -> None:
    draw, everyday = player.draw, Everyday(player)
    rates = []
    for kind in player.recorded.units["windows"]:
        often = min(OFTEN[row["level"]] for row in kind[0]) * draw.lognormvariate(0, 1)
        share, role = draw.uniform(0.2, 1), role_of(main_host(kind[0]))
        for site in player.sites:
            if draw.random() < share:
                loud = draw.lognormvariate(-0.5, 1.2)
                rates += [
                    (often * loud * draw.lognormvariate(-0.4, 0.9), site, host, kind) for host in able(site, role)
                ]
    scale = alerts * (1 - SCANNED) / sum(rate * len(kind[0]) for rate, _, _, kind in rates)
    for rate, site, host, kind in rates:
        casts: dict[int, Cast] = {}
        user = draw.choice(site.people) if draw.random() < 0.8 else ""
        for _ in range(player.poisson(rate * scale)):
            which = draw.randrange(len(kind))
            if which not in casts:
                casts[which] = Cast(player, site, kind[which], host, user=user)
            player.play(kind[which], everyday.when(site, people=True), casts[which])
    _internet(player, round(alerts * SCANNED))


def _internet(player: Player, alerts: int) -> None:
    """Half of the scanners come again and again; each exposed host has a recorded day every day, and more."""
    draw, again, before = player.draw, [player.address() for _ in range(60)], len(player.happened)

    def play(rows: Sequence[Row], hours: float, site: Site, host: str) -> None:
        shared = {address: draw.choice(again) for address in addresses(rows) if draw.random() < 0.5}
        player.play(rows, hours, Cast(player, site, rows, host, shared=shared))

    for day in range(player.size.days):
        for site, host in player.exposed:
            rows = draw.choice(player.recorded.days)
            play(rows, 24 * day + rows[0]["event_time"].hour + 3 * draw.random(), site, host)
    while len(player.happened) - before < alerts:
        unit = draw.choice(draw.choice(player.recorded.units["linux"]))
        play(unit, draw.uniform(0, player.hours), *draw.choice(player.exposed))


def _weighed(player: Player, attacks: list[Attack], decoys: list[Decoy]) -> tuple[list[Attack], list[Decoy]]:
    """What only an attack names is its own as well. A host tells of an attack of minutes when at least a third of what
    it has from medium up in that day is the attack's."""
    total = Counter(entity for alert in player.happened for entity in alert.names)
    wide = []
    for attack in attacks:
        mine = player.named(f"attack {attack.name}")
        only = {entity for entity, times in mine.items() if entity[0] != "host" and times == total[entity]}
        wide.append(
            attack._replace(own=attack.own | only, begin=attack.begin - HALF_A_DAY, end=attack.end + HALF_A_DAY)
        )
    weighed, decoys = weigh(player, wide, decoys)
    return [new._replace(begin=old.begin, end=old.end) for old, new in zip(attacks, weighed, strict=True)], decoys


def make(recorded: Recorded, folder: Path, seed: int, size: Size = SIZE) -> Truth:
    """Write ``folder/landing`` and ``folder/lookups``; what was planted. The same of all three give the same bytes."""
    player = Player(recorded, seed, size)
    attacks, decoys = _attacks(player), _decoys(player)
    _everyday(player, size.alerts - len(player.happened))
    landed = player.write(folder, [("ip", SCANNER, "scanner")])
    attacks, decoys = _weighed(player, attacks, decoys)
    rules = {rule.id: rule.title for rule in recorded.rules.values()}
    return Truth(seed, player.start, player.at(player.hours), attacks, decoys, [], landed, rules)
