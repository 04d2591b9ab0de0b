"""The whole path on one machine: logs in, alerts out, a rule pushed while it runs, Spark at the end.

Starts a real mosquitto, the landing and the agent, all on loopback and in ``build/demo``; plays a mixed stream with
attacks planted in it (``bench.traffic``) over syslog TCP, a tailed web access log and MQTT, and a few lines by the
host's own ``logger``; publishes a bundle with one more rule while the stream runs; evaluates a rule in SQL with a
lookup of a million addresses over the same syslog lines; then runs the Spark jobs over what landed, and shows alerts,
the region's report and the agent's own account. Ends with exit code 1 when the account does not add up or an expected
alert is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from demo import stage
from demo.stage import ROOT, VEDETTE, command, running, say
from tests.broker import Broker, own_port

WORK = ROOT / "build" / "demo"
LINES = 60_000
RATE = 6000
"""Lines, and lines per second, of the syslog stream."""

PUSHED = """\
title: Demo Beacon Text In Syslog
id: 3b8f2a6e-6a6b-4a0c-9b57-0d7f5f0f6d11
status: test
description: Finds the marker that the demo logs after it has pushed this rule.
author: Vedette
date: 2026-11-21
logsource:
    product: linux
detection:
    keywords:
        - 'demo-beacon-after-push'
    condition: keywords
falsepositives:
    - Running the demo
level: low
"""

KNOWN = """\
CREATE TABLE reputation (ip STRING, kind STRING) WITH ('connector' = 'vedette', 'lookup' = 'reputation');

CREATE VIEW known AS
SELECT e.src_ip, r.kind, e.event_time
FROM events AS e
JOIN reputation FOR SYSTEM_TIME AS OF e.event_time AS r ON r.ip = e.src_ip
WHERE e.message LIKE 'Failed password for %';

-- title: Failed Logins from a Known Address
-- level: high
INSERT INTO alerts
SELECT src_ip, kind, window_start, window_end, COUNT(*) AS failures
FROM TABLE(TUMBLE(TABLE known, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, src_ip, kind
HAVING COUNT(*) >= 3;
"""
ADDRESSES = 1_000_000
KINDS = ("scanner", "botnet", "proxy")

CONFIG = """\
[agent]
id = "edge-demo-1"
site = "vienna"
fleet = "demo"
data_dir = "{work}/data"

[[input]]
name = "syslog"
type = "syslog"
tcp = "127.0.0.1:{syslog}"
udp = "127.0.0.1:{syslog}"

[[input]]
name = "web"
type = "file"
paths = ["{work}/access.log"]
format = "access"

[broker]
url = "{broker}"
[[input]]
name = "plant"
type = "mqtt"
topics = ["plant/#"]

[bundles]
channel = "stable"
trusted_keys = ["{key}"]

[uplink]
type = "mqtt"
heartbeat = "5s"

[log]
level = "warning"
"""


def until(what: str, check: Callable[[], Any]) -> Any:
    return stage.until(what, check, WORK)


def status() -> dict[str, Any]:
    return stage.status(WORK / "vedette.toml")


def bundle(rules: Path, version: int, key: Path) -> Path:
    """A signed bundle of the rules in a folder, its prefilter chosen by a sample of ordinary traffic."""
    path, sample = WORK / f"rules-{version}.vbundle", WORK / "sample.log"
    if not sample.exists():
        command(sys.executable, "-m", "bench.traffic", "--count", 20_000, "--seed", 3, "--out", sample)
    output = command(
        VEDETTE, "bundle", "build", rules, "-o", path, "--version", version, "--name", "demo", "--sample", sample
    )
    print(output.replace(f"{ROOT}/", ""), end="")
    command(VEDETTE, "bundle", "sign", path, "--key", key, "--fleet", "demo")
    return path


def traffic() -> None:
    """The streams, as files: syslog, web access log, device telemetry."""
    for kind, name, count in (("syslog", "lines.log", LINES), ("access", "web.log", 5000), ("mqtt-json", "mqtt", 2000)):
        command(
            sys.executable, "-m", "bench.traffic", "--count", count, "--seed", 7, "--attacks", 0.004, "--kind", kind,
            "--start", "now", "--out", WORK / name, "--truth", WORK / f"{name}.truth",
        )  # fmt: skip


def reputation(path: Path) -> None:
    """A table of addresses, those of the traffic's attackers among them."""
    listed = [f"{network}.{host}" for network in ("203.0.113", "198.51.100") for host in range(256)]
    others = (f"{n >> 16 & 63 | 128}.{n >> 14 & 255}.{n >> 7 & 255}.{n & 127}" for n in range(ADDRESSES - len(listed)))
    with path.open("w") as table:
        table.write("ip,kind\n")
        table.writelines(f"{ip},{KINDS[i % len(KINDS)]}\n" for i, ip in enumerate(chain(listed, others)))


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    with ExitStack() as stack:
        say("A broker, a signing key, and the starter rules as a signed bundle")
        broker = Broker(WORK / "broker")
        broker.start()
        stack.callback(broker.stop)
        key = WORK / "region.pem"
        public = command(VEDETTE, "bundle", "keygen", key).strip()
        first = bundle(ROOT / "rules" / "sigma", 1, key)
        publish = (VEDETTE, "region", "publish", "--broker", broker.url)
        print(command(*publish, first, "--landing", WORK / "landing").splitlines()[-1].replace(f"{ROOT}/", ""))

        say("The region's landing, and an agent with three inputs: syslog, a web access log, MQTT telemetry")
        syslog = own_port()
        (WORK / "vedette.toml").write_text(CONFIG.format(work=WORK, syslog=syslog, broker=broker.url, key=public))
        (WORK / "access.log").touch()
        stack.enter_context(
            running(WORK / "landing.log", VEDETTE, "region", "land", "--broker", broker.url, "--landing",
                    WORK / "landing", "--seconds", 1)
        )  # fmt: skip
        stack.enter_context(running(WORK / "agent.log", VEDETTE, "run", "-c", WORK / "vedette.toml"))
        until("the agent to run bundle demo-1", lambda: status().get("bundle") == "demo-1")
        print(command(VEDETTE, "status", "-c", WORK / "vedette.toml").split("\n")[3])

        say(f"{LINES:,} syslog lines, 5,000 web requests and 2,000 device messages, with attacks among them")
        traffic()
        send = (sys.executable, "-m", "bench.traffic", "send")
        with running(
            WORK / "send.log", *send, "--tcp", f"127.0.0.1:{syslog}", "--file", WORK / "lines.log", "--rate", RATE
        ) as tcp:
            with (WORK / "access.log").open("ab") as log:
                log.write((WORK / "web.log").read_bytes())
            print(
                "mqtt ", command(*send, "--mqtt", broker.url.removeprefix("mqtt://"), "--file", WORK / "mqtt"), end=""
            )
            marker = ("logger", "--rfc3164", "-n", "127.0.0.1", "-P", str(syslog), "-T", "-t", "sshd")
            command(*marker, "Failed password for invalid user admin from 203.0.113.77 port 4242 ssh2")

            say("A rule pushed while the stream runs: build, sign, publish; the agent verifies, tries and switches")
            rules = WORK / "rules"
            shutil.copytree(ROOT / "rules" / "sigma", rules)
            (rules / "demo_beacon.yml").write_text(PUSHED)
            second = bundle(rules, 2, key)
            print(command(*publish, second, "--landing", WORK / "landing").splitlines()[-1].replace(f"{ROOT}/", ""))
            until("the agent to run bundle demo-2", lambda: status().get("bundle") == "demo-2")
            print(f"the agent runs demo-2; the stream is {'still running' if tcp.poll() is None else 'over'}")
            command(*marker, "demo-beacon-after-push: only the pushed rule knows this")
            tcp.wait()
        sent = json.loads((WORK / "send.log").read_text())
        print("tcp  ", json.dumps(sent))

        say("All events evaluated, every alert receipted by the region")
        expected = LINES + 2 + 5000 + 2000

        def settled() -> dict[str, Any] | None:
            now = status()
            judged = sum(counts["judged"] for counts in now["inputs"].values()) if now else 0
            return now if now and judged >= expected and not now["alerts"]["in_outbox"] else None

        last = until("all events evaluated and all alerts receipted", settled)
        alerts = command(VEDETTE, "alerts", "-c", WORK / "vedette.toml", "-n", 10_000)
        print("\n".join(line[:150] for line in _one_of_each(alerts)))
        if "Demo Beacon Text In Syslog" not in alerts:
            sys.exit("the pushed rule made no alert")

        say(f"A rule in SQL and a lookup of {ADDRESSES:,} addresses, over the same syslog lines")
        reputation(WORK / "reputation.csv")
        lookup, rule = WORK / "reputation.vlookup", WORK / "known.sql"
        rule.write_text(KNOWN)
        output = command(VEDETTE, "lookup", "build", WORK / "reputation.csv", "-o", lookup, "--key", "ip:ip")
        print(output.replace(f"{ROOT}/", ""), end="")
        rows = command(VEDETTE, "scan", "--rules", rule, "--lookup", lookup, WORK / "lines.log").splitlines()
        if not rows:
            sys.exit("the rule in SQL found nothing")
        print(f"{len(rows)} rows, the last: {json.dumps(json.loads(rows[-1])['fields'])}")

        say("Spark: each alert once into the tables, counted by rule, site, entity and host; then a report")
        quiet = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        tables, page = WORK / "tables", WORK / "report.html"
        job = (sys.executable, "-m", "spark_jobs")
        master = ("--master", "local[2]")
        print(command(*job, "ingest", "--landing", WORK / "landing", "--tables", tables, *master, env=quiet), end="")
        print(command(*job, "report", "--tables", tables, "--days", 2, "--html", page, env=quiet))

        say("The agent's own account")
        print(command(VEDETTE, "status", "-c", WORK / "vedette.toml"), end="")
        total_in = sum(counts["bytes_in"] for counts in last["inputs"].values())
        sent_bytes = last["totals"]["bytes_sent"]
        print(
            f"{total_in:,} bytes of logs stayed here, {sent_bytes:,} bytes of alerts left: {sent_bytes / total_in:.1%}"
        )
    seconds = time.monotonic() - began
    say(f"Done in {seconds:.0f} s. The page: {page.relative_to(ROOT)}; all the rest: {WORK.relative_to(ROOT)}")


def _one_of_each(alerts: str) -> list[str]:
    """The first alert line of every rule."""
    seen: dict[str, str] = {}
    for line in alerts.splitlines():
        seen.setdefault(line.split(": ", 1)[0].split(maxsplit=4)[-1], line)
    return list(seen.values())


if __name__ == "__main__":
    main()
