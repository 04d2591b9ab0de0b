"""What looks like an attack and is none, each with why; and what is none and yet worth a line: a site that is dark.

Vulnerability scanners and a red team, which the lookup ``intel`` names (``scanner``, ``exercise``); a scanner that it
does not; patch night; backups, and a site that begins to make them; a pilot site that joins, and in some regions three
thin days of a pilot before the roll-out; a wrong clock; an administrator on holiday; a monitoring account whose
password has run out; a rule that is noisy since an update; a remote access tool that IT rolls out; new colleagues; a
site that sends twice a day.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.spark_jobs.playbooks.background import Everyday
from tests.spark_jobs.playbooks.world import Author, Decoy, Entity, Outage, Site

SCANNER = ("Path Traversal Exploitation Attempts", "SQL Injection Strings In URI", "Cross Site Scripting Strings",
           "JNDIExploit Pattern", "Suspicious User-Agents Related To Recon Tools")  # fmt: skip


class Decoys:
    """Writes them, beside attacks at other sites."""

    def __init__(self, author: Author, everyday: Everyday, taken: set[str]) -> None:
        self.author, self.draw, self.everyday = author, author.draw, everyday
        self.free = [site for site in author.sites if site.place not in taken]
        self.draw.shuffle(self.free)
        self.intel: list[tuple[str, str, str]] = []
        self.named: dict[str, set[Entity]] = {}
        self.places: dict[str, set[str]] = {}

    def write(self) -> list[Decoy]:
        """All of them."""
        happens: dict[str, Callable[[str], set[Entity]]] = {
            "own vulnerability scanner": self._scanner, "scanner that intel does not name": self._unnamed_scanner,
            "red team": self._red_team, "patch night": self._patch_night, "backups": self._backups,
            "pilot site": self._pilot, "wrong clock": self._wrong_clock, "holiday travel": self._holiday,
            "monitoring fails": self._monitoring, "noisy rule": self._noisy_rule, "tool rolled out": self._roll_out,
            "new colleagues": self._colleagues,
        }  # fmt: skip
        for name, happen in happens.items():
            self.named[name] = happen(name)
        author = self.author
        return [
            Decoy(name, author.ids(author.labels[name]), self.named[name],
                  self.places.get(name, set())
                  | {author.sites[author.happened[number].site].place for number in author.labels[name]}, set())
            for name in happens
        ]  # fmt: skip

    def _site(self, *roles: str) -> Site:
        """One that has not been used yet, while there are some."""
        able = [site for site in (*self.free, *self.author.sites) if all(site.hosts.get(role) for role in roles)]
        self.free = [site for site in self.free if site is not able[0]]
        return able[0]

    def _scan(self, name: str, names: list[Entity], nights: list[float]) -> None:
        for night in nights:
            for site in self.author.sites:
                begin = night + self.draw.random() * 3
                for role, host in site.every:
                    if role in ("web", "gateway", "linux", "mail"):
                        for _ in range(self.draw.randint(2, 7)):
                            title = self.draw.choice(SCANNER) if role == "web" else "Port Scan of a Host"
                            self.author.add(begin + self.draw.random() / 2, site, host, title, names, name)

    def _scanner(self, name: str) -> set[Entity]:
        scanner = "ip", "10.250.0.17"
        self.intel.append((*scanner, "scanner"))
        self._scan(name, [scanner], [22.0 + 24 * day for day in (2, 9, 12)])
        return {scanner}

    def _unnamed_scanner(self, name: str) -> set[Entity]:
        """Twice a week from the beginning, as it has been for years."""
        scanner = "ip", self.author.address()
        self._scan(name, [scanner], [24.0 * day + 2 for day in range(0, self.author.size.days, 3)])
        return {scanner}

    def _red_team(self, name: str) -> set[Entity]:
        team: list[Entity] = [("ip", self.author.address()), ("hash", self.author.digest())]
        self.intel += [(*entity, "exercise") for entity in team]
        steps = (
            "Hack Tool User Agent",
            "Suspicious Encoded PowerShell Command Line",
            "PUA - AdFind Suspicious Execution",
            "Process Memory Dump Via Comsvcs.DLL",
            "Impacket PsExec Execution",
            "CobaltStrike Named Pipe Patterns",
        )
        begin = self.author.hours - 24 * self.draw.uniform(2.5, 5)
        for site in (self._site("server"), self._site("server"), self._site("server")):
            for number, title in enumerate(steps):
                for host in site.hosts["server"][:3]:
                    when = begin + 4 * number + self.draw.random() * 3
                    self.author.add(when, site, host, title, team if number else team[:1], name)
            begin += 5
        return set(team)

    def _patch_night(self, name: str) -> set[Entity]:
        titles = ("Windows Service Terminated With Error", "Important Windows Service Terminated With Error",
                  "Windows Update Error", "Windows Defender Real-Time Protection Failure/Restart",
                  "Stop Windows Service Via Net.EXE", "Scheduled Task Creation Via Schtasks.EXE")  # fmt: skip
        patcher = "user", "svc-patch"
        night = 24.0 * (self.author.size.days - 4) + 1
        for site in self.author.sites:
            for role, host in site.every:
                if role in ("server", "dc", "db", "mail", "workstation") and self.draw.random() < 0.6:
                    for _ in range(self.draw.randint(1, 4)):
                        when = night - site.zone + self.draw.random() * 3
                        self.author.add(when, site, host, self.draw.choice(titles), [patcher], name)
        return {patcher}

    def _backups(self, name: str) -> set[Entity]:
        titles = ("Shadow Copies Creation Using Operating Systems Utilities", "Files Added To An Archive Using Rar.EXE",
                  "Admin User Remote Logon", "Rclone Activity via Proxy")  # fmt: skip
        keeper = "user", "svc-backup"
        for number, site in enumerate(site for site in self.author.sites if site.hosts.get("server")):
            if number % 3:
                continue
            for day in range(8 if number == 3 else 0, self.author.size.days):
                for host in site.hosts["server"][:4]:
                    for title in titles:
                        self.author.add(24 * day + 1 + self.draw.random(), site, host, title, [keeper], name)
        return {keeper}

    def _pilot(self, name: str) -> set[Entity]:
        """A site that joins on the ninth day: all that it has is new there."""
        site = self._site("workstation", "gateway")
        self.author.begins[site.number] = 24.0 * 9 + 8
        self.places[name] = {site.place}
        return set()

    def _wrong_clock(self, name: str) -> set[Entity]:
        site = self._site("linux")
        for _, host in site.every[:3]:
            self.author.skewed[host] = -26.0
        self.places[name] = {site.place}
        return {("host", host) for _, host in site.every[:3]}

    def _holiday(self, name: str) -> set[Entity]:
        site = self._site("cloud")
        who = "user", f"adm-{site.people[0]}"
        hotel = "ip", self.author.address()
        for day in range(self.author.size.days - 6, self.author.size.days - 1):
            for title in ("New Country", "Atypical Travel", "Sign-ins by Unknown Devices")[: 3 if day % 2 else 1]:
                when = 24 * day + self.draw.uniform(7, 20)
                self.author.add(when, site, site.hosts["cloud"][0], title, [who, hotel], name)
        return {who, hotel}

    def _monitoring(self, name: str) -> set[Entity]:
        """Its password ran out: it fails at forty sites, every ten minutes for a morning."""
        who, probe = ("user", "svc-monitoring"), ("ip", "10.250.0.40")
        begin = 24.0 * (self.author.size.days - 3) + 6
        for site in self.draw.sample(self.author.sites, min(40, 2 * len(self.author.sites) // 3)):
            for host in site.hosts["linux"][:2] if site.hosts.get("linux") else site.hosts["gateway"][:1]:
                for turn in range(20):
                    when = begin + turn / 6 + self.draw.random() / 60
                    self.author.add(when, site, host, "SSH Login Failed", [who, probe], name)
        return {who, probe}

    def _noisy_rule(self, name: str) -> set[Entity]:
        title = "Suspicious Network Connection to IP Lookup Service APIs"
        for site in self.author.sites:
            for role, host in site.every:
                if role in ("workstation", "server"):
                    for _ in range(self.author.poisson(3.0)):
                        when = self.author.hours * 0.6 + self.draw.random() * self.author.hours * 0.4
                        owner = "user", self.draw.choice(site.people)
                        self.author.add(when, site, host, title, [owner, ("domain", "api.ipify.org")], name)
        return {("domain", "api.ipify.org")}

    def _roll_out(self, name: str) -> set[Entity]:
        who, tool = ("user", "svc-softwarecenter"), ("hash", self.author.digest())
        begin = self.author.hours - 24 * 5 + 9
        titles = ("Remote Access Tool - ScreenConnect Installation Execution", "Remote Access Tool Services Have Been "
                  "Installed - System")  # fmt: skip
        for number, site in enumerate(self.draw.sample(self.author.sites, min(15, len(self.author.sites)))):
            for role, host in site.every:
                if role == "workstation" and self.draw.random() < 0.7:
                    when = begin + 5 * number + self.draw.random() * 4
                    self.author.add(when, site, host, self.draw.choice(titles), [who, tool], name)
        return {who, tool}

    def _colleagues(self, name: str) -> set[Entity]:
        site = self._site("dc")
        admin = "user", f"adm-{site.people[1]}"
        people: list[Entity] = [("user", f"{site.people[n]}-new") for n in range(6)]
        for person in people:
            for title in ("New User Created Via Net.EXE", "A Member Was Added to a Security-Enabled Global Group"):
                when = self.author.hours - 24 * 3.4 + self.draw.random() * 2
                self.author.add(when, site, site.hosts["dc"][0], title, [admin, person], name)
        return {admin, *people}


def outages(author: Author) -> None:
    """A plant whose line is cut until the end, an office whose inputs have died while its agent runs, and one that was
    dark for eight hours; the last sends its alerts twice a day."""
    plants = [site for site in author.sites if site.kind == "plant"]
    offices = [site for site in author.sites if site.kind == "office"]
    cut, late = author.draw.sample(plants, 2)
    dead, short = author.draw.sample(offices, 2)
    end = author.hours
    for site, begin, until, heard in (
        (cut, end - author.draw.uniform(20, 60), end, False),
        (dead, end - author.draw.uniform(30, 70), end, True),
        (short, end - 100, end - 92, False),
    ):
        author.outages.append(Outage(site.place, author.at(begin), author.at(until), heard))
    author.late[late.number] = 12.0
