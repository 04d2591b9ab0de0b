"""Alerts of agents that redact: what is redacted is in no byte of them, and everything else is as without."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from tests.life import NOW, Life
from vedette import compile_rules
from vedette.config.settings import Config, RedactSettings
from vedette.decode.decoder import record
from vedette.decode.redact import Redaction, Rule
from vedette.engine.match import Context, Engine
from vedette.model.counters import Counters
from vedette.model.event import Alert, Chunk, Entity, LogSource, RawRef
from vedette.plan import lineage
from vedette.response import decide
from vedette.runtime.alerts.redact import AlertRedaction, RowRedaction
from vedette.sinks.formats import cef, json_line

RULES = """
title: Any
id: 00000000-0000-4000-8000-000000000001
logsource: {category: any}
detection: {a: {user|exists: true}, b: {message|re: '.'}, c: {card|exists: true}, condition: a or b or c}
fields: [user, password, card, note, src_ip]
level: low
---
title: Folded
id: 00000000-0000-4000-8000-000000000002
suppress: {by: [user, src_ip], for: 5m}
logsource: {category: any}
detection: {a: {user|exists: true}, condition: a}
level: low
---
title: By account
id: 00000000-0000-4000-8000-000000000003
correlation:
    type: event_count
    rules: [00000000-0000-4000-8000-000000000001]
    group-by: [account]
    aliases: {account: {00000000-0000-4000-8000-000000000001: user}}
    timespan: 10m
    condition: {gte: 2}
    generate: true
level: high
"""
SQL = """
CREATE TABLE logins (`user` STRING, src_ip STRING, password STRING, line STRING METADATA FROM 'raw',
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time', WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
-- title: Plain
INSERT INTO alerts SELECT UPPER(`user`) AS who, src_ip, CONCAT('login of ', `user`) AS title,
    CONCAT('u.', `user`) AS tags, SUBSTRING(password FROM 2 FOR 5) AS part, line FROM logins WHERE `user` IS NOT NULL;
-- title: By window
INSERT INTO alerts SELECT src_ip, MAX(password) AS newest, COUNT(*) AS n, COUNT(DISTINCT `user`) AS users FROM logins
    WHERE `user` IS NOT NULL GROUP BY src_ip, TUMBLE(ts, INTERVAL '1' MINUTE);
"""
REDACT = (
    RedactSettings("hash", fields=("user",)),
    RedactSettings("mask", fields=("passw*",), kinds=("ip",)),
    RedactSettings("drop", patterns=("card",)),
)
WINDOWS = (
    '<Event xmlns="http://schemas.microsoft.com/win/2004/08/events/event"><System><Provider Name="P"/>'
    "<EventID>4624</EventID><Computer>PC1</Computer></System><EventData>"
    '<Data Name="user">{user}</Data><Data Name="password">{password}</Data><Data Name="src_ip">{ip}</Data>'
    '<Data Name="note">{note}</Data><Data Name="card">{card}</Data></EventData></Event>'
)
FORMATS: dict[str, Callable[[dict[str, str]], str]] = {
    "JSON": json.dumps,
    "JSON as written": lambda one: json.dumps(one, ensure_ascii=False),
    "syslog with JSON": lambda one: "<38>Nov 21 02:41:00 web1 app: " + json.dumps(one),
    "pairs": lambda one: (
        "<38>Nov 21 02:41:00 web1 app: "
        + " ".join('{}="{}"'.format(k, v.replace("\\", "\\\\").replace('"', '\\"')) for k, v in one.items())
    ),
    "XML": lambda one: WINDOWS.format(
        **{name: escape(text, {'"': "&quot;"}) for name, text in {**one, "ip": one["src_ip"]}.items()}
    ),
    "CEF": lambda one: (
        "CEF:0|V|P|1|100|login|3|"
        + " ".join("{}={}".format(k, v.replace("\\", "\\\\").replace("=", "\\=")) for k, v in one.items())
    ),
    "sshd": lambda one: (
        f"<38>Nov 21 02:41:00 web1 sshd[1]: Failed password for {one['user']} from {one['src_ip']} port 1 ssh2"
    ),
}


def drawn(rng: random.Random) -> dict[str, str]:
    """Fields of one event: three secrets each its own, which also stand in a note."""
    letters = "abcdefghijkmnpqrstuvwxyz"
    odd = "".join(rng.sample("\"'\\&<>%=é漢/", 3)) if rng.random() < 0.5 else ""
    user = "".join(rng.choices(letters, k=9)) + odd + rng.choice(letters)
    password = "".join(rng.choices(letters + "0123456789", k=12)) + odd[:1] + "x"
    card = "4" + "".join(rng.choices("0123456789", k=14))
    card += next(d for d in "0123456789" if _luhn(card + d))
    note = rng.choice(["nothing", f"login of {user}!", f"{user.upper()} paid by {card}", f"pw={password};"])
    return {"user": user, "password": password, "src_ip": f"10.{rng.randrange(1, 255)}.77.{rng.randrange(100, 255)}",
            "note": note, "card": card}  # fmt: skip


def _luhn(digits: str) -> bool:
    twice = [int(d) * (2 if i % 2 else 1) for i, d in enumerate(reversed(digits))]
    return sum(n - 9 if n > 9 else n for n in twice) % 10 == 0


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "rules.sql").write_text(SQL)
    made = compile_rules(tmp_path / "rules.yml", tmp_path / "rules.sql")
    assert not made.refused
    return made


def lived(folder: Path, plan: Any, events: list[str], **settings: Any) -> tuple[list[Alert], list[bytes], Life]:
    life = Life(folder, Engine(plan, route=False), **settings)
    life.context.input_contexts["in"] = Context(UTC, LogSource(), None)
    for i in range(0, len(events), 3):
        life.give(Chunk("in", "auto", NOW + i, b"".join(one.encode() + b"\n" for one in events[i : i + 3])))
    late = "".join(one.replace("02:41:00", "02:56:14") + "\n" for one in dict.fromkeys(events))
    life.give(Chunk("in", "auto", NOW + 900_000_000, late.encode()))
    life.live()
    made = life.alerts(), [data for _, data in life.outbox.pending(0, 10_000)], life
    life.end()
    return made


@pytest.mark.parametrize("name", FORMATS)
def test_no_secret_in_any_byte(name: str, plan: Any, tmp_path: Path) -> None:
    """Drawn events in each format, each twice, to detections, folds, a correlation under another name and a statement
    that makes titles, tags and columns of secrets: none is in an envelope, nor in what sinks make of it."""
    rng = random.Random(name)
    events = [drawn(rng) for _ in range(15)]
    if name == "sshd":
        for one in events:
            one["user"] = "".join(c for c in one["user"] if c.isalnum() and c.isascii())
    texts = [FORMATS[name](one) for one in events for _ in range(2)]
    alerts, sent, life = lived(tmp_path / "redacted", plan, texts, redact=REDACT)
    assert {one.kind for one in alerts} == {"detection", "correlation", "fold"}
    rows = [json_line(_row(data)).lower() + cef(_row(data), "1").lower() for data in sent]
    for one in events:
        secrets = [one["user"], one["src_ip"], *([one["password"], one["card"]] if name != "sshd" else [])]
        if name == "CEF":
            secrets.remove(one["password"])  # of a value with a blank or an equals sign its own parser takes a part
        for secret in secrets:
            plain = secret.lower().encode()
            escaped = json.dumps(secret).strip('"').lower().encode()
            for data, row in zip(sent, rows, strict=True):
                assert plain not in data.lower(), (secret, data)
                assert escaped not in data.lower(), (secret, data)
                assert plain not in row
                assert escaped not in row
    assert life.counters.totals["alerts_redacted"] >= len(events)
    assert all("redacted" in one.flags for one in alerts if one.rule_title != "Any" or "user" in one.fields)


def _row(data: bytes) -> Any:
    from vedette.delivery.envelope import decode_row

    return decode_row(data)


def test_what_stays(plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, counts and folds are those of an agent that does not redact; hashes join where values did."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "ab" * size)  # logs of the same name
    rng = random.Random(3)
    texts = [json.dumps(one) for one in (drawn(rng) for _ in range(6)) for _ in range(3)]
    plain, _, _ = lived(tmp_path / "plain", plan, texts)
    hidden, _, _ = lived(tmp_path / "hidden", plan, texts, redact=REDACT)
    by_id = {one.alert_id: one for one in hidden}
    assert len(plain) == len(hidden) == len(by_id) > 30

    def unredacted(one: Alert) -> tuple[Any, ...]:
        return one.rule_id, one.parent_id, one.kind, one.count, one.event_time, one.raw_ref, one.contributing

    users: dict[str, str] = {}
    for before in plain:
        after = by_id[before.alert_id]
        assert unredacted(before) == unredacted(after)
        for name in ("user", "account"):
            if name in before.fields and name in after.fields:
                users.setdefault(before.fields[name].lower(), after.fields[name])
                assert after.fields[name] == users[before.fields[name].lower()]
    assert len(users) == len(set(users.values())) == 6
    (one, *_) = [one for one in hidden if one.rule_title == "By account"]
    assert one.group_by["account"].startswith("hash:")
    assert "redacted:account" in one.flags
    assert "redacted:raw" in one.flags


def test_what_fails_does_not_leave(plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert at which redaction itself raises leaves without all that came of its event, flagged and counted; so
    does a text at which a pattern takes too long."""
    slow = (RedactSettings(expressions=(r"(?:z|zz)+$",)),)
    alerts, sent, life = lived(
        tmp_path / "slow", plan, [json.dumps({"user": "bob", "note": "z" * 60 + "b"})], redact=slow
    )
    assert all(b"zzzb" not in data for data in sent)  # letters that no id has
    assert {"redacted", "redaction_failed"} <= set(alerts[0].flags)
    assert life.counters.totals["redactions_failed"] > 0

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("vedette.decode.redact.Redaction.case", fail)
    alerts, sent, life = lived(tmp_path / "raises", plan, [json.dumps(drawn(random.Random(1)))], redact=REDACT)
    assert alerts
    for one in alerts:
        assert (one.fields, one.entities, one.raw, one.group_by, one.host) == ({}, (), "", {}, None)
        assert {"redacted", "redaction_failed"} <= set(one.flags)
    assert life.counters.totals["redactions_failed"] == len(alerts)


def test_nothing_to_redact(plan: Any, tmp_path: Path) -> None:
    """Alerts in which nothing is found are as they were, without a flag."""
    alerts, _, life = lived(tmp_path / "data", plan, [json.dumps({"user": "bob", "note": "fine"})], redact=REDACT[2:])
    one, _ = [one for one in alerts if one.fields == {"user": "bob", "note": "fine"}]
    assert not [flag for flag in one.flags if flag.startswith("redact")]
    assert life.counters.totals["alerts_redacted"] == 0


def test_where_columns_come_from(plan: Any) -> None:
    """By expressions; a count says nothing of what was counted."""
    one, windowed = plan.statements
    found = lineage.of_statement(one)
    assert {name: set(found[name]) for name in ("who", "src_ip", "title", "part")} == {
        "who": {"user"}, "src_ip": {"src_ip"}, "title": {"user"}, "part": {"password"},
    }  # fmt: skip
    assert [*found["line"]] == ["\0text"]
    found = lineage.of_statement(windowed)
    assert {name: set(fields) for name, fields in found.items() if name} == {
        "src_ip": {"src_ip"}, "newest": {"password"}, "n": set(), "users": set(),
    }  # fmt: skip
    (relation,) = plan.correlations
    assert lineage.of_correlation(relation) == {"account": {"user"}}


def test_rows_of_a_hunt(plan: Any) -> None:
    """Columns by what they are made of, the fields of an event by all that it has, hosts by their kind."""
    rows = RowRedaction(Redaction([Rule("mask", ("user",), ("host",))]), plan)
    statement, rule = plan.statements[0], plan.rules[0]
    given = {"rule_id": statement.id, "rule_title": "login of alice", "fields": {"who": "ALICE", "src_ip": "10.0.0.1"}}
    assert rows.row(given, None) == {
        "rule_id": statement.id, "rule_title": "login of [redacted]",
        "fields": {"who": "[redacted]", "src_ip": "10.0.0.1"},
    }  # fmt: skip
    event = record(b'{"user": "alice", "note": "of Alice"}', "json")
    given = {"rule_id": rule.id, "rule_title": rule.title, "fields": {"note": "of Alice"}}
    assert rows.row(given, event) == {**given, "fields": {"note": "of [redacted]"}}
    assert rows.host("web1") == "[redacted]"


def test_local_response_does_not_see_a_redacted_address(plan: Any) -> None:
    """The alert says so, and asks for no block."""
    config = Config(redact=(RedactSettings(kinds=("ip",)),))
    alert = Alert(
        alert_id="a", seq=1, rule_id=plan.rules[0].id, rule_title="Any", rule_digest="", level="low", agent_id="a",
        site="s", fleet="f", event_time=1, detected_at=1, received_date="2026-11-21", source="in", raw="from 10.0.0.9",
        raw_ref=RawRef("b", 0, 1), entities=(Entity("ip", "10.0.0.9"),), flags=(decide.FLAG,),
        fields={decide.TEXT: "block 10.0.0.9 for 60 s", decide.ADDRESS: "10.0.0.9"},
    )  # fmt: skip
    made = AlertRedaction(config, plan, Counters()).of(alert, None, lambda what, error: None)
    assert made.fields == {decide.TEXT: "nothing blocked: the address is redacted"}
    assert "10.0.0.9" not in str(made)
