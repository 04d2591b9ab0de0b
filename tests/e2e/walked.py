"""A small region that is real in all its parts, with its console: for the analyst's walk (``test_console_walk.py``).

Four agents at four sites run a bundle that two operators signed. An intruder visits three of the sites; at all of them
a deployment replaces its crontab so often that one rule makes most of the noise, and once somebody replaces another's.
The alerts land, the Spark jobs run once over them, and ``vedette region console`` shows it all. It holds the keys of
the bundle's author and of one signer; the other's stays outside.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo.sites import SITES as DEMO
from demo.sites import intrusion, located
from tests.broker import own_port
from tests.e2e.agent import ROOT, RULES, Process, landed, up, vedette
from tests.e2e.test_fleet import FLEET, Centre, Host
from tests.meanwhile import meanwhile
from tests.spark_jobs.conftest import SETTINGS
from tests.waits import until
from vedette.fleet.audit import Audit, verify

SITES = {site: minutes for site, *_, minutes in DEMO if site != "athens"}
"""Site to minutes until the intruder comes, None for never."""
LINUX = ("sshd_*", "sudo_root*", "sudo_wrong*", "reverse_shell*", "account_created*", "crontab_changed*")
"""Of the starter rules, beside all for web servers."""
NOISY = "66748baa-29fc-4b82-836c-bf66a3c73b72"
"""Crontab Replaced."""
NOISE = "crontab[9]: (deploy) REPLACE (deploy)"
"""The line that makes the noise, without its head."""
ODD = "crontab[9]: (alice) REPLACE (www-data)"
"""What the rule is for: once, at dublin."""
HOURS, EVERY = 30, 20
"""For so many hours, in which midnight falls, the noise has gone on, each so many minutes."""
OPERATOR = "ann"

RINGS = """
[[ring]]
name = "canary"
agents = 1
soak = "45s"

[[ring]]
name = "all"
percent = 100
soak = "2s"

[gates]
baseline = "3s"
silence = "120s"
alerts_floor = 600
"""
FLEET_TOML = """
[[operator]]
name = "{operator}"
key = "{key}"
roles = ["viewer", "analyst", "operator"]
expires = "2099-01-01T00:00:00Z"

[[group]]
name = "everyone"
match = "all"
bundle = "{bundle}"
"""

INPUTS = """
[[input]]
name = "auth"
type = "file"
paths = ["{folder}/auth.log"]
format = "syslog"
timezone = "UTC"
from_start = true
logsource = {{ product = "linux" }}

[[input]]
name = "web"
type = "file"
paths = ["{folder}/access.log"]
format = "access"
from_start = true
"""


class Edge(Host):
    """An agent that reads the log of logins and of a web server, whose owner allows all that operators may ask."""

    def configure(self, settings: str) -> None:
        super().configure(settings)
        self.auth, self.access = self.folder / "auth.log", self.folder / "access.log"
        allowed = '[fleet]\nallow = ["ask", "do", "evidence", "hunt"]\n'
        text = self.config.read_text().replace("[fleet]\n", allowed, 1)
        self.config.write_text(text + INPUTS.format(folder=self.folder))

    def past(self, now: datetime) -> int:
        """Write what was logged until ``now``; how many events that is."""
        start, minutes = now - timedelta(hours=1), SITES[self.site]
        auth, web = ([], []) if minutes is None else intrusion(self.site, start + timedelta(minutes=minutes))
        noise = [
            f"<78>{now - timedelta(minutes=n * EVERY):%b %d %H:%M:%S} app1.{self.site} {NOISE}"
            for n in range(HOURS * 60 // EVERY, 0, -1)
        ]
        if self.site == "dublin":
            noise.append(f"<78>{start + timedelta(minutes=25):%b %d %H:%M:%S} web1.{self.site} {ODD}")
        usual = [f"<38>{start + timedelta(minutes=n):%b %d %H:%M:%S} web1.{self.site} cron[7]: job {n} is done"
                 for n in range(60)]  # fmt: skip
        lines = sorted([*noise, *usual, *auth], key=lambda line: _moment(line, now))
        asked = [
            f"192.0.2.{n % 50 + 1} - - [{start + timedelta(minutes=n):%d/%b/%Y:%H:%M:%S} +0000] "
            f'"GET /shop?id={n} HTTP/1.1" 200 512 "-" "Mozilla/5.0"'
            for n in range(60)
        ]
        self.auth.write_text("\n".join(lines) + "\n")
        self.access.write_text("\n".join([*asked, *web]) + "\n")
        return len(lines) + len(asked) + len(web)

    def recorded_requests(self) -> list[dict[str, Any]]:
        """What the owner's record, whose chain holds, has of requests."""
        path = self.data / "fleet" / "audit.jsonl"
        assert verify(path)[1] is None
        return [row for row in Audit(path).lines() if row["event"].startswith("request_")]

    def logged(self, text: str) -> None:
        with self.auth.open("a") as file:
            file.write(f"<78>{datetime.now(UTC):%b %d %H:%M:%S} app1.{self.site} {text}\n")


def _moment(line: str, now: datetime) -> datetime:
    """Of a line of syslog, which names no year."""
    moment = datetime.strptime(f"{now.year} {line[4:19]}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
    return moment if moment <= now else moment.replace(year=now.year - 1)


class Region(Centre):
    """The centre, its agents, and the console's address once it runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.landing, self.tables, self.rules = folder / "landing", folder / "tables", folder / "rules"
        self.controller = Process(folder / "steer.log", "region", "steer", self.trust, *self.at_broker)
        lander = self.enroll("land-1", "--role", "landing")
        self.lander = Process(folder / "land.log", "region", "land", "--landing", self.landing, "--seconds", "1",
                              *self._at_broker(lander))  # fmt: skip
        printed = vedette("bundle", "keygen", folder / f"{OPERATOR}.pem").stdout
        self.key = next(word for word in printed.split() if word.startswith("ed25519:"))
        self.agents = [Edge(folder / site, self, f"{site}-1", site) for site in SITES]
        self.console = Process(folder / "console.log")
        self.url = self.login = ""

    def _at_broker(self, member: Path) -> list[str]:
        return ["--broker", self.broker.url, "--ca-file", f"{member}/region-ca.pem", "--cert-file",
                f"{member}/agent.pem", "--key-file", f"{member}/agent.key"]  # fmt: skip

    def first_bundle(self) -> str:
        """Of some starter rules with their tests, signed."""
        shutil.copytree(RULES / "web", self.rules / "web")
        (self.rules / "linux").mkdir()
        for pattern in LINUX:
            for path in (RULES / "linux").glob(f"{pattern}.yml"):
                shutil.copy(path, self.rules / "linux")
        name = "bundles/rules-1.vbundle"
        vedette("bundle", "build", self.rules, "-o", self.folder / name, "--version", 1)
        vedette("bundle", "sign", self.folder / name, "--key", self.folder / "author.pem", "--fleet", FLEET)
        return name

    def desire(self, bundle: str) -> None:
        """As two operators do: all agents run the bundle, and what comes next goes through rings."""
        text = FLEET_TOML.format(operator=OPERATOR, key=self.key, bundle=bundle)
        self.toml.write_text(text)
        self.put_in_force()
        for agent in self.agents:
            agent.wait("the first bundle", lambda actual, agent=agent: agent.bundle() == 1)
        until("its roll-out to be over", lambda: self.controller.alive() and self.state().get("state") == "done")
        self.toml.write_text(RINGS + text)
        self.put_in_force()

    def by_the_page(self, commands: str, signer: str) -> None:
        """Run the commands that the console shows: in the region's folder, with the signer's key and their certificate
        at the broker."""
        for line in commands.splitlines():
            words = line.removeprefix("vedette ").replace("YOUR.pem", f"keys/{signer}.pem").split()
            if "--broker" in words:
                words += self.at_broker[2:]
            done = subprocess.run([sys.executable, "-m", "vedette", *words], cwd=self.folder, capture_output=True,
                                  text=True, check=False)  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

    def jobs(self) -> None:
        """The jobs of Spark that find something, once."""
        lookups = located(self.folder / "lookups", FLEET)
        tuned = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        words = ("all", "--landing", self.landing, "--tables", self.tables, "--lookups", lookups, "--rules", self.rules,
                 "--skip", "maintain", "--skip", "report", "--master", "local[2]", *tuned)  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "spark_jobs", *map(str, words)], cwd=ROOT, capture_output=True,
                              text=True, check=False, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"

    def exported(self) -> Path:
        """The raw logs of all agents, copied as an owner hands them out for backtests."""
        for agent in self.agents:
            shutil.copytree(agent.data / "raw", self.folder / "export" / agent.name)
        return self.folder / "export"

    def serve(self) -> None:
        """Start the console; sets ``url`` and ``login``, the link by which the first admin logs in."""
        folder, member = self.folder, self.operator
        self.console = Process(
            folder / "console.log", "region", "console", "--database", f"sqlite:{folder}/console.db", "--listen",
            f"127.0.0.1:{own_port()}", "--tables", self.tables, "--landing", self.landing, "--reports",
            folder / "reports", "--trust", self.trust, "--fleet-file", self.toml, "--requests", folder / "requests",
            "--evidence", folder / "evidence", "--operator", OPERATOR, "--operator-key", folder / f"{OPERATOR}.pem",
            "--author-key", folder / "author.pem", "--signer-key", self.keys / "carol.pem", "--rules", self.rules,
            "--authorities", f"{member}/region-ca.pem", "--backtest-source", folder / "export", *self.at_broker,
        )  # fmt: skip
        self.console.environment = {
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1", "PATH": f"{self._awake()}:{os.environ['PATH']}",
        }  # fmt: skip
        self.console.start()
        said = until("the console to print its first login", lambda: self.console.alive() and self._said())
        self.url, self.login = said

    def _awake(self) -> Path:
        """A folder with a ``nice`` that is none: backtests give way to all else, so beside other tests on a busy
        machine they may get no time for minutes (as hunts: ``hunts_awake``)."""
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "nice").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
        (folder / "nice").chmod(0o755)
        return folder

    def _said(self) -> tuple[str, str] | None:
        text = self.console.text()
        url, link = re.search(r"^console +(\S+)$", text, re.M), re.search(r"^first login.*: (\S+)$", text, re.M)
        return (url[1], link[1]) if url and link else None

    def evaluated(self, events: int) -> bool:
        """Whether the agents have evaluated so many events, and all alerts have landed."""
        said = [agent.status() for agent in self.agents]
        done = sum(one["judged"] for row in said for one in row["inputs"].values())
        return done >= events and not any(row["backlog"] or row["alerts"]["in_outbox"] for row in said)

    def state(self) -> dict[str, Any]:
        """What the controller says of the newest change; empty: nothing yet."""
        shown = vedette("fleet", "rollout", "show", "--json", "--trust", self.trust, *self.at_broker, code=None)
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        return rows[-1] if rows else {}


@contextmanager
def region(folder: Path) -> Iterator[Region]:
    """It at work, with a past of ``HOURS``; all of it ends with the block."""
    opened = Region(folder)
    with ExitStack() as stack:
        stack.callback(opened.broker.kill)
        opened.broker.start()
        bundle = opened.first_bundle()
        for process in (opened.lander, opened.controller):
            stack.callback(process.kill)
            process.start()
        stack.enter_context(up(*opened.agents))
        opened.desire(bundle)
        now = datetime.now(UTC)
        events = sum(agent.past(now) for agent in opened.agents)
        until("all events evaluated and all alerts sent", lambda: opened.evaluated(events))
        until("the intruder's last alert to land",
              lambda: any("Reverse Shell" in (row["rule_title"] or "") for row in landed(opened.landing)))  # fmt: skip
        opened.jobs()
        opened.exported()
        stack.enter_context(meanwhile(lambda n: opened.agents[n % len(SITES)].logged(f"cron[7]: job {n} is done")))
        stack.callback(lambda: opened.console.kill())
        opened.serve()
        yield opened
