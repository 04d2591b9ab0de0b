"""Who plays whom: recorded hosts, people, addresses and domains under the names of a site, the same in all texts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.spark_jobs.playbooks.world import WINDOWS, Author, Site
from tests.spark_jobs.replayed.recordings import Row

NOBODY = ("system", "root", "local service", "network service", "administrator", "guest")
"""Accounts that every host has."""
LAB = ("172.16.", "172.17.", "172.18.", "192.168.")
"""Where the hosts of the labs are; whoever attacks them comes from 10.0.0.0/8."""
COLLECTOR = re.compile(r"wec|ip-\d")
SOURCES = {"attacks": "windows", "tools": "windows", "linux": "syslog", "logins": "syslog"}


def role_of(host: str) -> str:
    """What a recorded host is, by its name."""
    if "dc" in host:
        return "dc"
    return "server" if re.match(r"srv|mxs|wec|ip-", host) else "workstation"


def main_host(rows: Sequence[Row]) -> str:
    """The short name of the recorded host that most alerts name."""
    hosts = Counter(name.partition(".")[0] for row in rows for name in _hosts(row))
    return min(hosts, key=lambda host: (bool(COLLECTOR.match(host)), -hosts[host], host), default="")


def able(site: Site, role: str) -> list[str]:
    """The hosts of a site that can play a Windows host of ``role``; else another Windows host."""
    wanted = [role, "mail", "server", "workstation", "ews"] if role == "dc" else [role, *WINDOWS]
    return next((site.hosts[name] for name in wanted if site.hosts.get(name)), [])


def _hosts(row: Row) -> list[str]:
    named = [entity["value"] for entity in row["entities"] if entity["kind"] == "host"]
    return [host.lower() for host in (*named, row["host"] or "") if re.search("[a-z]", host.lower())]


class Cast:
    """New names at ``site`` for what ``rows`` name. The main host is ``host``, the people are drawn, or ``user``.

    ``shared`` are new names that hold at other sites as well: public addresses.
    """

    def __init__(
        self, author: Author, site: Site, rows: Sequence[Row], host: str, user: str = "",
        shared: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._author, self.site, self._host, self._user = author, site, host, user
        self._shared = {} if shared is None else shared
        self.people: set[str] = set()
        """Whose accounts they use."""
        self.names: dict[str, str] = {}
        self._rows: dict[str, Row] = {}
        main = main_host(rows)
        for row in rows:
            linux = SOURCES[row["source"]] == "syslog"
            for full in _hosts(row):
                short, _, domain = full.partition(".")
                self.names.setdefault(short, host if short == main or linux else self._other(short))
                self.names[full] = self.names[short]
                if domain and not COLLECTOR.match(short):
                    self.names.setdefault(domain.partition(".")[0], site.name)
            for sid in re.findall(r"S-1-5-21-[\d-]+", row["raw"]):
                self._account(sid.lower())
            for entity in row["entities"]:
                if entity["kind"] == "user" and not linux:
                    self._account(entity["value"].lower())
                elif entity["kind"] == "ip":
                    self._address(entity["value"], row["source"])
        longest = sorted(self.names, key=lambda name: (-len(name), name))
        # In JSON what follows a line break follows its letter.
        self._pattern = re.compile(
            rf"(?:(?<![\w-])|(?<=\\[rnt]))(?:{'|'.join(map(re.escape, longest)) or '(?!)'})(?![\w-])", re.IGNORECASE
        )

    def _other(self, short: str) -> str:
        """Another host, of its role; what collects the events of others is the same for the whole site."""
        hosts = able(self.site, role_of(short)) or [self._host]
        if COLLECTOR.match(short):
            return hosts[0]
        return self._author.draw.choice([host for host in hosts if host not in self.names.values()] or hosts)

    def _account(self, account: str) -> None:
        domain, _, name = account.rpartition("\\")
        if domain and domain != "nt authority":
            self.names.setdefault(domain, self.site.name)
        if name.startswith("s-1-5-21-"):
            number = int(hashlib.md5(self.site.name.encode()).hexdigest()[:8], 16)
            self.names.setdefault(name, f"S-1-5-21-{number}-1177238915-682003330-{name.rpartition('-')[2]}")
        elif name.endswith("$"):
            self.names.setdefault(name[:-1], self._other(name[:-1]))
        elif name not in NOBODY and not name.startswith("s-1-") and name not in self.names:
            self.names[name] = self._user or self._author.draw.choice(self.site.people)
            self.people.add(self.names[name])

    def _address(self, address: str, source: str) -> None:
        if address.startswith(LAB) or (address.startswith("10.") and source != "attacks"):
            if address not in self.names:
                self.names[address] = self._author.inner(self._author.draw.choice(self.site.every)[1])
        elif ":" not in address and not address.startswith("127."):
            if address not in self._shared:
                self._shared[address] = self._author.address()
            self.names[address] = self._shared[address]

    def renamed(self, row: Row) -> Row:
        """An alert under the new names."""
        if row["alert_id"] not in self._rows:
            source = SOURCES[row["source"]]
            new = {key: self._text(row[key]) for key in ("fields", "entities", "raw")}
            host = self._host if source == "syslog" else self._text(row["host"])
            self._rows[row["alert_id"]] = {**row, **new, "source": source, "host": host}
        return self._rows[row["alert_id"]]

    def _text(self, value: Any) -> Any:
        match value:
            case str():
                return self._pattern.sub(lambda match: self.names[match[0].lower()], value)
            case list():
                return [self._text(each) for each in value]
            case tuple():
                return tuple(self._text(each) for each in value)
            case dict():
                return {key: self._text(each) for key, each in value.items()}
        return value
