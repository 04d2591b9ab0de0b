"""Intrusions as others have published them, each a table of steps.

A step says by which rules (one drawn for each alert), where, who is named, how many alerts a host, how long after the
step before it began (hours), over how many hours; ``every`` makes them regular. With ``turn`` n its n-th alert is where
somebody who reads every alert says that this is an attack: what comes before could be anything.

Where: ``server`` is a host of that role at the site where it began, ``server*5`` five of them, ``server@8`` at each of
eight sites, ``+server`` another host than before. Who: ``ip`` an address of the attacker's, ``ips`` of many, ``net``
random ones of a /64; ``user`` a person whose account was taken, ``admin`` an administrator's, ``victims`` anybody's;
``new`` an account that the attacker made; ``inner`` the private address of the host where it began; ``hash``,
``domain``, ``ua``, ``device`` his; a digit behind it tells two apart.
"""

from __future__ import annotations

from collections import Counter

from tests.spark_jobs.playbooks.catalogue import PLAYBOOKS, Place, Playbook, Step
from tests.spark_jobs.playbooks.world import Attack, Author, Decoy, Entity, Outage, Site

LOUD = ("medium", "high", "critical")
AGENTS = (
    "python-requests/2.31.0 (x)",
    "Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.0)",
    "curl/7.58-static",
    "-/1.0",
)


class Intruder:
    """One intrusion as it goes on."""

    def __init__(self, author: Author, playbook: Playbook, sites: list[Site]) -> None:
        self.author, self.draw, self.playbook, self.sites = author, author.draw, playbook, sites
        self.names: dict[str, Entity] = {}
        self.hosts: dict[tuple[int, str], list[str]] = {}
        self.jitter = [self.draw.random() / 2 for _ in range(100)]
        self.pool = [author.address() for _ in range(60)]
        self.network = (
            f"2a{self.draw.randrange(16, 256):02x}:{self.draw.randrange(4096):x}:{self.draw.randrange(4096):x}:1:"
        )
        self.turn: float | None = None

    def play(self, begin: float) -> Attack | None:
        """Write it from hour ``begin`` on; None where its turn lies behind the end."""
        author, hours, label = self.author, begin, f"attack {self.playbook.name}"
        for step in self.playbook.steps:
            hours += author.log_uniform(*step.after)
            self._step(step, hours, label)
        if self.playbook.silent:
            self._fall_silent(hours)
        numbers = author.labels[label]
        alerts = [author.happened[number] for number in numbers]
        if self.turn is None or self.turn > author.hours - 2 or not alerts:
            return None
        named = {entity for alert in alerts for entity in alert.names}
        inner = {value for kind, value in named if kind == "ip" and value.startswith(("10.", "192.168."))}
        return Attack(
            self.playbook.name, self.playbook.source, author.ids(numbers), author.at(min(a.hours for a in alerts)),
            author.at(self.turn), author.at(max(a.hours for a in alerts)), named & self._own, {a.host for a in alerts},
            {author.sites[a.site].place for a in alerts}, {a.rule.title for a in alerts}, inner, set(),
        )  # fmt: skip

    def _step(self, step: Step, hours: float, label: str) -> None:
        author, draw, where = self.author, self.draw, step.place
        targets = [(site, host) for site in self.sites[: where.sites] for host in self._chosen(site, where)]
        written = []
        for number, (site, host) in enumerate(targets):
            # Hosts come one after the other, each with its alerts close together; one host has the whole time.
            begin = hours + step.over * (number + self.jitter[number]) / len(targets)
            span = step.over / len(targets) if len(targets) > 1 else step.over
            amount = round(span / step.every) if step.every else max(1, round(author.log_uniform(*step.times)))
            for n in range(amount):
                regular = begin + step.every * (n + draw.uniform(-0.03, 0.03))
                when = regular if step.every else begin + span * draw.random() ** 1.5
                written.append((when, site, host))
        for n, (when, site, host) in enumerate(sorted(written, key=lambda alert: alert[0]), 1):
            title = draw.choice(step.rules.split(" | "))
            author.add(when, site, host, title, [self._entity(role, host) for role in step.who.split()], label)
            if n == min(step.turn or 0, len(written)) and step.turn is not None:
                self.turn = when

    def _chosen(self, site: Site, where: Place) -> list[str]:
        hosts = site.hosts.get(where.role) or [host for _, host in site.every]
        before = self.hosts.setdefault((site.number, where.role), [])
        fresh = [host for host in hosts if host not in before]
        wanted = where.hosts if where.another else max(0, where.hosts - len(before))
        taken = self.draw.sample(fresh, min(wanted, len(fresh)))
        before += taken
        return taken or before[-1:] if where.another else before[: where.hosts]

    @property
    def _own(self) -> set[Entity]:
        return {*self.names.values(), *(("ip", address) for address in self.pool)}

    def _entity(self, role: str, host: str) -> Entity:
        """Who plays ``role``; the same in all steps, but those that change with each alert."""
        author, home = self.author, self.sites[0]
        if role == "ips":
            return "ip", self.draw.choice(self.pool)
        if role == "victims":
            return "user", self.draw.choice(home.people)
        if role == "local":
            return "user", ("SYSTEM", "root")["linux" in host or "plc" in host]
        if role in self.names:
            return self.names[role]
        kind = role.rstrip("0123456789")
        match kind:
            case "ip":
                entity = "ip", author.address()
            case "net":
                entity = "ip", author.address(self.network)
                self.names[f"net {entity[1]}"] = entity
                return entity
            case "inner":
                return "ip", author.inner(next(iter(self.hosts.values()))[0])
            case "user":
                entity = "user", self.draw.choice(home.people)
            case "admin":
                entity = "user", f"adm-{self.draw.choice(home.people)}"
            case "service":
                entity = "user", author.account(home, self.draw.choice(("deploy", "build", "sql", "web")))
            case "new":
                entity = (
                    "user",
                    self.draw.choice(("helpdesk", "support", "backup", "svc_update")) + str(self.draw.randint(10, 99)),
                )
            case "hash":
                entity = "hash", author.digest()
            case "domain":
                entity = "domain", author.domain()
            case "ua":
                entity = "user_agent", f"{self.draw.choice(AGENTS)} {self.draw.getrandbits(24):06x}"
            case "device":
                entity = "device", f"SN-{self.draw.getrandbits(32):08X}"
            case _:
                raise ValueError(f"nobody plays {role}")
        self.names[role] = entity
        return entity

    def _fall_silent(self, hours: float) -> None:
        author, home = self.author, self.sites[0]
        author.outages.append(Outage(home.place, author.at(hours + 0.5), author.at(author.hours), heard=False))


def plan(author: Author, fraction: int, of: int) -> list[Attack]:
    """Play those of the playbooks whose number leaves ``fraction`` when divided by ``of``: three of four such that they
    become attacks in the last week. No two begin at the same site."""
    draw, taken = author.draw, {o.site for o in author.outages}
    attacks = []
    chosen = [playbook for number, playbook in enumerate(PLAYBOOKS) if number % of == fraction]
    draw.shuffle(chosen)
    for number, playbook in enumerate(chosen):
        wanted = [step.place for step in playbook.steps]
        roles = {where.role for where in wanted}
        able = [site for site in author.sites if roles <= {role for role, hosts in site.hosts.items() if hosts}]
        homes = [site for site in able if site.place not in taken] or able
        home = draw.choice(homes)
        others = [site for site in able if site is not home and site.place not in taken]
        others = draw.sample(others, len(others))
        week = author.hours - 7 * 24
        turn = draw.uniform(72, week - 12) if number % 4 == 3 else draw.uniform(week + 6, author.hours - 14)
        sites = [home, *others]
        taken.add(home.place)
        earliest = 20.0 + max(24.0, *author.begins.values(), 0.0)
        about, most = playbook.lead
        begin = max(earliest, min(turn - about, author.hours - 3 - most))
        attack = Intruder(author, playbook, sites).play(begin)
        if attack is not None:
            attacks.append(attack)
    return attacks


def weigh(author: Author, attacks: list[Attack], decoys: list[Decoy]) -> tuple[list[Attack], list[Decoy]]:
    """Leave to each attack the hosts that tell of it: in its time at least a third of their alerts from medium up are
    its own. What marks attacks and decoys is known now that all has happened."""
    total = Counter(alert.rule.title for alert in author.happened)
    loud = [
        (author.at(alert.hours), value, number)
        for number, alert in enumerate(author.happened)
        if alert.rule.level in LOUD
        for kind, value in alert.names
        if kind == "host"
    ]
    weighed = []
    for attack in attacks:
        label = f"attack {attack.name}"
        during = Counter(host for when, host, _ in loud if attack.begin <= when <= attack.end)
        mine = {*author.labels[label]}
        own = Counter(host for _, host, number in loud if number in mine)
        hosts = {host for host in attack.hosts if own[host] and 3 * own[host] >= during[host]}
        weighed.append(attack._replace(hosts=hosts, marks=author.marks(label, total)))
    return weighed, [decoy._replace(marks=author.marks(decoy.name, total)) for decoy in decoys]
