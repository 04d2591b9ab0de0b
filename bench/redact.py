"""``python -m bench.redact``: what redaction costs an alert, in microseconds of CPU, by what is redacted.

Alerts of a syslog line and of a JSON object, decoded before, go through ``AlertRedaction`` as the agent calls it.
Prints one JSON object by rules of ``[[redact]]``; the median of PASSES.
"""

from __future__ import annotations

import json
import statistics
import time

from vedette.config.settings import Config, RedactSettings
from vedette.decode.decoder import Record, record
from vedette.decode.entities import entities
from vedette.decode.secrets import PATTERNS
from vedette.model.counters import Counters
from vedette.model.event import Alert, RawRef
from vedette.plan.ir import as_shown
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.runtime.redact import AlertRedaction

PASSES, ALERTS = 7, 300
EVENTS = {
    "syslog": b"<38>Nov 21 02:41:00 web1 sshd[1]: Failed password for alice from 203.0.113.9 port 4000 ssh2",
    "JSON": json.dumps({
        "EventID": 1, "Computer": "PC7.corp", "User": "CORP\\alice", "Image": "C:\\Windows\\cmd.exe",
        "src_ip": "203.0.113.9", "CommandLine": "cmd /c \"type C:\\Users\\alice\\notes.txt\"",
        "Hashes": "SHA1=" + "a" * 40 + ",MD5=" + "B" * 32,
    }).encode(),
}  # fmt: skip
RULES = {
    "a field": [RedactSettings(fields=("user", "User"))],
    "kinds": [RedactSettings(kinds=("user", "ip"))],
    "card, password": [RedactSettings(patterns=("card", "password"))],
    "an expression": [RedactSettings(expressions=("(?i)ticket-[0-9]{6}",))],
    "every pattern": [RedactSettings(patterns=tuple(PATTERNS))],
}


def alert(event: Record) -> Alert:
    shown = {name: as_shown(event.get(name)) for name in ("user", "User", "src_ip", "CommandLine")}
    return Alert(
        alert_id="a" * 32, seq=1, rule_id="r", rule_title="Title", rule_digest="d", level="low", agent_id="a", site="s",
        fleet="f", event_time=1, detected_at=1, received_date="2026-11-21", source="in", raw=event.text,
        raw_ref=RawRef("b" * 32, 0, 1), host=event.host, entities=entities(event.fields(), event.host),
        fields={name: text for name, text in shown.items() if text is not None},
    )  # fmt: skip


def cost(plan: Plan, rules: list[RedactSettings], event: Record) -> float:
    redaction, given = AlertRedaction(Config(redact=tuple(rules)), plan, Counters()), alert(event)
    passes = []
    for _ in range(PASSES):
        began = time.process_time()
        for _ in range(ALERTS):
            redaction.of(given, event, lambda what, error: None)
        passes.append((time.process_time() - began) / ALERTS * 1e6)
    return round(statistics.median(passes), 1)


def main() -> None:
    plan = build.from_rules(build.load([]))
    found = {
        name: {kind: cost(plan, rules, record(raw, "auto")) for kind, raw in EVENTS.items()}
        for name, rules in RULES.items()
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
