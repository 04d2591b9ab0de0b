"""Alerts, byte for byte: what left the host for these events when ``golden_alerts.json`` was written leaves it now."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from tests.life import NOW, Life
from vedette import compile_rules
from vedette.decode.codecs import CODECS, Codecs
from vedette.decode.decoder import record
from vedette.engine.match import Context, Engine
from vedette.model.event import Alert, Chunk, FilePosition, Flag, Frame, LogSource
from vedette.runtime.alerts import events, rows
from vedette.runtime.pipeline import evaluator

GOLDEN = Path(__file__).with_name("golden_alerts.json")

RULES = """
title: Every event
id: 00000000-0000-4000-8000-000000000001
tags: [attack.t1110, attack.credential_access]
logsource: {category: any}
detection:
    a: {message|re: '.'}
    b: {never: x}
    condition: a or not b
fields: [user, src_ip, Image, missing]
level: low
---
title: Root, in some form (ü)
id: 00000000-0000-4000-8000-000000000002
logsource: {product: linux, service: sshd}
detection:
    selection: {user|contains: root}
    keywords: ['for']
    condition: selection or keywords
level: high
---
title: Folded
id: 00000000-0000-4000-8000-000000000003
suppress: {by: [src_ip], for: 5m}
logsource: {product: linux}
detection:
    keywords: ['Failed password']
    condition: keywords
level: medium
---
title: Three failures
id: 00000000-0000-4000-8000-000000000004
correlation:
    type: event_count
    rules: [00000000-0000-4000-8000-000000000003]
    group-by: [src_ip, user]
    timespan: 10m
    condition: {gte: 3}
    generate: true
level: critical
---
title: Values
id: 00000000-0000-4000-8000-000000000005
correlation:
    type: value_count
    rules: [00000000-0000-4000-8000-000000000002]
    group-by: [hostname]
    timespan: 10m
    condition: {gte: 2, field: user}
    generate: true
level: high
"""

HEAD = b"<38>Nov 21 02:4%d:0%d %b %b: "
SYSLOG = (
    *(
        HEAD % (i, i, b"web1", b"sshd[4242]") + b"Failed password for root from 203.0.113.9 port 4000 ssh2"
        for i in range(5)
    ),
    HEAD % (1, 1, b"web1", b"sshd[1]") + b"Failed password for invalid user a b from 2001:DB8::1 port 4000 ssh2",
    HEAD % (1, 1, b"10.0.0.7", b"sshd[1]") + b"Accepted publickey for alice from ::ffff:198.51.100.7 port 1 ssh2",
    HEAD % (1, 1, b"WEB1.Example.", b"sudo") + b"  bob : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/usr/bin/curl "
    b"http://bob:pw@Evil.Example.com:8080/x https://[2001:db8::2]/y ftp://198.51.100.9/z for",
    HEAD % (1, 2, b"web1", b"CRON[12]") + b"(root) CMD (/usr/bin/wget -q http://198.51.100.66/a.sh)",
    HEAD % (1, 2, b"web1", b"su") + b"FAILED SU (to root) eve on pts/1",
    HEAD % (1, 3, b"fw", b"kernel") + b"[ 1.5] [UFW BLOCK] IN=eth0 OUT= SRC=198.51.100.20 DST=192.0.2.1 LEN=40 "
    b"PROTO=TCP SPT=1 DPT=22 user=root",
    HEAD % (1, 3, b"web1", b"nginx") + b'203.0.113.50 - frank [21/Nov/2026:02:41:00 +0000] "GET /?q=1 HTTP/1.1" 404 1 '
    b'"http://ref.example/" "Mozilla/5.0 (X11) sqlmap"',
    HEAD
    % (1, 4, b"web1", b"app")
    + b"login failed for user 'mallory' from 203.0.113.77 (rhost=203.0.113.78) ip=010.1.2.3 "
    b'client=198.51.100.1:8080 host=- user="N/A" src=300.1.1.1 dst=1.2.3.4 sha256=' + b"aB" * 32,
    HEAD % (1, 4, b"web1", b"app") + b"message repeated 3 times: [ for root from 203.0.113.9]",
    b'<165>1 2026-11-21T02:40:00.123456+01:00 db1 app 77 ID47 [ex@1 user="r\\"oot" src_ip="192.0.2.7"] for',
    b"<13>1 2026-11-21T03:41:14Z web1 app - - - for the future",
    b"<13>Nov 21 02:40:00 h1 CEF:0|V|P|1|100|worm|10|src=10.0.0.1 dst=2.1.2.2 spt=1232 duser=root shost=PC1 msg=for",
    b"<187>12: fw1: Nov 21 02:40:00: %SEC-6-IPACCESSLOGP: list 1 denied tcp 10.1.1.1(1) -> 10.2.2.2(2), 1 packet for",
    b"<13>Nov 21 02:40:00 web1 app: " + "Größe für Ünïcödé ".encode() * 200,
    b"<13>Nov 21 02:40:00 web1 app: bad \xff\xfe bytes \x01 for root",
    b"<13>Nov 21 02:40:00 web1 app: " + b" ".join(b"ip%d=10.0.%d.%d" % (i, i, i) for i in range(80)) + b" for",
    b"<13>Nov 21 02:40:00 web1 app: @cee: " + b'{"user": "carol", "src": {"ip": ["10.0.0.1", "::1", "x", 7]}, "n": 1}',
    b"no header at all for root",
    b"",
)
JSON: tuple[Any, ...] = (
    {
        "EventID": 1,
        "Computer": "PC7.corp",
        "Image": "C:\\Windows\\cmd.exe",
        "CommandLine": "cmd for http://a.example/b",
        "Hashes": "SHA1=" + "a" * 40 + ",MD5=" + "B" * 32 + ",IMPHASH=" + "c" * 32,
        "User": "CORP\\root",
        "UtcTime": "2026-11-21 02:40:00.5",
    },
    {"Event": {"System": {"Computer": "PC8", "EventID": 4624}, "EventData": {"IpAddress": "fe80::1%eth0"}}},
    {
        "source": {"ip": "192.0.2.1", "user": {"name": "root"}},
        "destination": [{"ip": "192.0.2.2"}, {"ip": "192.0.2.3"}],
        "url": {"original": "https://x.example/", "domain": "X.example."},
        "user_agent": {"original": "curl"},
        "device": {"id": 77},
        "flag": True,
        "none": None,
        "pi": 3.5,
        "client_id": "dev-1",
        "query": "[2001:DB8::5]",
    },
    {"ips": [f"10.0.0.{i}" for i in range(50)], "src_ip": [f"10.1.0.{i}" for i in range(50)], "user": ["a", ["b"]]},
    {
        "user": "x" * 300,
        "host": "y" * 300,
        "src_ip": "\n",
        "dns_query": "a..b",
        "cmdline": "wget ftp://h/" + "z" * 3000,
        "message": "for root \ud800"[:-1] + "\u2028",
    },
    [{"user": "root"}],
    "for root",
)


def chunks() -> list[Chunk]:
    lines = Chunk("in", "auto", NOW, b"".join(line + b"\n" for line in SYSLOG), marks=((0, int(Flag.CUT | Flag.DUP)),))
    documents = [json.dumps(one).encode() for one in JSON]
    ends = array("I")
    for one in documents:
        ends.append(len(one) + (ends[-1] if ends else 0))
    topics = tuple(f"plant/line{i}/sensor" for i in range(len(documents)))
    mqtt = Chunk("mqtt", "mqtt", NOW + 1_000_000, b"".join(documents), ends, topics, array("H", range(len(documents))))
    bare = Chunk("peer", "auto", NOW + 2_000_000, b"".join(one + b"\n" for one in documents), origins=("192.0.2.99",))
    after = b"<38>Nov 21 02:52:00 web1 sshd[1]: Failed password for root from 203.0.113.9 port 1 ssh2\n"
    late = Chunk("in", "auto", NOW + 700_000_000, after)
    return [lines, mqtt, bare, late]


def begun(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> Life:
    """With a log of a fixed name."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "ab" * size)
    life = begin(Engine(compile_rules(text=RULES), route=False))
    life.context.input_contexts["mqtt"] = Context(UTC, LogSource("windows"), "gateway")
    return life


def assert_golden(life: Life) -> None:
    """What these events leave in the outbox."""
    found, golden = [data for _, data in life.outbox.pending(0, 10_000)], json.loads(GOLDEN.read_bytes())
    assert [msgpack.unpackb(data) for data in found] == golden
    assert found == [msgpack.packb(row) for row in golden]


@pytest.mark.parametrize(
    ("together", "step"), [(1, 0.0), (7, 0.0), (evaluator.TOGETHER, 0.0), (evaluator.TOGETHER, evaluator.STEP_SECONDS)]
)
def test_alerts_are_the_golden_ones(
    together: int, step: float, begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every envelope equals the one on file, byte for byte: ids, order of keys, bounds, entities, folds; however many
    are made together, and wherever evaluation gives way."""
    monkeypatch.setattr(evaluator, "TOGETHER", together)
    monkeypatch.setattr(evaluator, "STEP_SECONDS", step)
    monkeypatch.setattr("vedette.runtime.alerts.alerts.AHEAD_SECONDS", step)
    life = begun(begin, monkeypatch)
    life.give(*chunks())
    assert_golden(life.live())


@pytest.mark.parametrize("turns", [1, 10, 30])
def test_a_kill_between(turns: int, begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """After a commit at any place and a kill at a later one, the next life makes what is missing, and nothing else."""
    monkeypatch.setattr(evaluator, "STEP_SECONDS", 0.0)
    killed = begun(begin, monkeypatch)
    killed.give(*chunks())

    async def work() -> None:
        progress, task = killed.context.progress, asyncio.create_task(killed.pipeline.evaluator.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        while not progress.evaluated:
            await asyncio.sleep(0)
        await killed.pipeline.checkpointer.commit()
        cursor = killed.store.load().cursor
        assert cursor is not None
        assert cursor.offset > 0
        further = 0
        while further < turns or progress.evaluated <= cursor.offset:
            await asyncio.sleep(0)
            further += 1
        task.cancel()

    asyncio.run(work())
    life = begun(begin, monkeypatch)
    assert_golden(life.live())


def stated(
    begin: Callable[..., Life], tmp_path: Path, sql: str, *events: dict[str, Any], apart: bool = False
) -> list[Alert]:
    """The alerts of a file of SQL; ``apart``: each event in a chunk of its own."""
    (tmp_path / "rule.sql").write_text(sql)
    plan = compile_rules(tmp_path / "rule.sql")
    assert not plan.refused
    life = begin(Engine(plan, route=False))
    lines = [json.dumps(one).encode() + b"\n" for one in events]
    for data in lines if apart else [b"".join(lines)]:
        life.give(Chunk("in", "json", NOW, data))
    return life.live().alerts()


@pytest.mark.parametrize("apart", [False, True])
def test_equal_rows_of_several_windows_are_alerts_of_their_own(
    begin: Callable[..., Life], tmp_path: Path, apart: bool
) -> None:
    """Whatever ends at once, and also where the windows are of one part of UNION ALL only."""
    hop = "GROUP BY a, HOP(event_time, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"
    sql = f"""
    INSERT INTO alerts SELECT a, COUNT(*) AS n FROM events WHERE a IS NOT NULL {hop} UNION ALL
        SELECT a, COUNT(DISTINCT b) AS n FROM events WHERE a IS NOT NULL {hop} UNION ALL
        SELECT a, CAST(1 AS BIGINT) AS n FROM events WHERE a = '0';
    """
    times = [f"2026-11-21T02:{second // 60:02}:{second % 60:02}Z" for second in range(0, 300, 10)]
    found = stated(
        begin, tmp_path, sql, *({"a": str(n), "b": "x", "ts": ts} for n, ts in enumerate(times)), apart=apart
    )
    assert len({alert.alert_id for alert in found}) == len(found)
    assert [dict(alert.fields) for alert in found].count({"a": "0", "n": "1"}) == 5


def test_rows_of_one_event_are_alerts_of_their_own(begin: Callable[..., Life], tmp_path: Path) -> None:
    """Equal or not, each row has an id."""
    sql = """
    INSERT INTO alerts SELECT a AS x FROM events WHERE a IS NOT NULL UNION ALL
        SELECT b AS x FROM events WHERE b IS NOT NULL;
    INSERT INTO alerts SELECT a, COUNT(*) AS n FROM events
        WHERE a IS NOT NULL GROUP BY a, HOP(event_time, INTERVAL '30' SECOND, INTERVAL '1' MINUTE);
    INSERT INTO alerts SELECT e.a FROM events e CROSS JOIN UNNEST(ARRAY['u', 'v']) AS t(x) WHERE e.a IS NOT NULL;
    """
    first, second = "2026-11-21T02:00:00Z", "2026-11-21T02:10:00Z"
    events = {"a": "1", "b": "1", "ts": first}, {"a": "1", "b": "2", "ts": first}, {"a": "2", "ts": second}
    found = stated(begin, tmp_path, sql, *events)
    assert len({alert.alert_id for alert in found}) == len(found) == 13
    assert [dict(alert.fields) for alert in found].count({"a": "1", "n": "2"}) == 2


def test_a_value_that_no_alert_can_show_costs_no_other_its_alert(begin: Callable[..., Life], tmp_path: Path) -> None:
    """Times beyond the calendar, half a character."""
    sql = """
    INSERT INTO alerts SELECT TIMESTAMP '2026-01-01 00:00:00' + INTERVAL '9000' YEAR AS t FROM events WHERE n = '0';
    INSERT INTO alerts SELECT JSON_VALUE(j, '$') AS t FROM events WHERE j IS NOT NULL;
    INSERT INTO alerts SELECT CAST(n AS BIGINT) AS window_start, CAST(n AS BIGINT) + 5 AS window_end, n AS t
        FROM events WHERE n IS NOT NULL;
    """
    found = stated(
        begin, tmp_path, sql, {"n": "253402300800000", "j": '"\\ud800"'}, {"n": "9223372036854775807"}, {"n": "0"}
    )
    texts = sorted(one.fields.get("t", "") for one in found)
    assert texts == ["0", "11026-01-01T00:00:00", "253402300800000", "9223372036854775807", "?"]
    assert all(one.first_time is None for one in found)


FILTERS = """
CREATE TABLE logins (message STRING, program STRING, pid INT, src_ip STRING,
    `at` TIMESTAMP_LTZ(3) METADATA FROM 'event_time', sender STRING METADATA FROM 'host',
    received TIMESTAMP_LTZ(3) METADATA FROM 'received_at', whole STRING METADATA FROM 'raw')
    WITH ('connector' = 'vedette');
-- title: Plain
INSERT INTO alerts SELECT message FROM events WHERE message LIKE 'Failed%' {twice};
-- title: With what an alert says
-- entities: who=user
INSERT INTO alerts SELECT 'High' AS level, CONCAT('Of ', program) AS title, 'attack.t1110, x' AS tags, pid AS `count`,
    CONCAT('u', src_ip) AS who, `at`, sender, received, whole FROM logins WHERE message LIKE '%for root%' {twice};
-- title: Folded
-- suppress: by src_ip for 5m
INSERT INTO alerts SELECT src_ip, program FROM logins WHERE message LIKE 'Failed%' AND pid > 3 {twice};
-- title: One that fails
INSERT INTO alerts SELECT CAST(program AS INT) AS n FROM logins WHERE message LIKE 'Failed%' {twice};
"""


@pytest.mark.parametrize("way", ["lines", "JSON", "JSON without the kernel"])
def test_filters_give_the_alerts_that_rows_in_the_network_give(tmp_path: Path, way: str) -> None:
    """Made from their events at once, without a row that waits; beside each, the same by way of UNION ALL, whose rows
    do wait."""
    sender = b"<38>Nov 21 02:41:%02d web%d %s[%d]: %s for %s from 203.0.113.%d port 1 ssh2\n"
    lines = [
        sender % (n % 60, n % 3, b"sshd" if n % 7 else b"42", n % 11, b"Failed password" if n % 4 else b"Accepted",
                  b"root" if n % 5 else b"http://h/x", n % 9)
        for n in range(200)
    ]  # fmt: skip
    codec = "syslog"
    if way != "lines":
        codec = "json"
        read = [record(line, "syslog", received_at=NOW) for line in lines]
        times = [f"2026-11-21T02:41:{n % 60:02}Z" for n in range(200)]
        objects = [{**one.fields(), "host": one.host, "time": at} for one, at in zip(read, times, strict=True)]
        lines = [json.dumps(one).encode() + b"\n" for one in objects]
    found: list[list[Alert]] = []
    for name, twice in (("once", ""), ("twice", "UNION ALL SELECT {same} WHERE FALSE")):
        (tmp_path / name).mkdir()
        texts = FILTERS.split(";\n")
        for number, text in enumerate(texts):
            same = text.partition("SELECT")[2].partition("WHERE")[0]
            texts[number] = text.replace("{twice}", twice.replace("{same}", same))
        (tmp_path / name / "rule.sql").write_text(";\n".join(texts))
        plan = compile_rules(tmp_path / name / "rule.sql")
        assert not plan.refused
        life = Life(tmp_path / name, Engine(plan, route=False, kernel="without" not in way))
        for at in range(0, 200, 50):
            life.give(Chunk("in", codec, NOW, b"".join(lines[at : at + 50])))
        found.append(life.live().alerts())
        statements = life.pipeline.state.statements
        assert {statements.filters(rule) for rule in plan.scans} == {name == "once"}
        assert sum(one["failed"] for one in statements.status()["statements"]) == 129
        found[-1].sort(key=lambda alert: (alert.rule_title, alert.raw_ref.offset))
        life.end()
    once, twice_over = found
    assert len({alert.alert_id for alert in once}) == len(once) > 300
    assert 0 < sum(alert.rule_title == "Folded" for alert in once) < 50
    but = ("alert_id", "parent_id", "rule_id", "rule_digest", "seq", "raw_ref", "detected_at", "entities", "bundle")

    def row(alert: Alert) -> dict[str, Any]:
        told = {name: value for name, value in asdict(alert).items() if name not in but}
        return {**told, "entities": set(alert.entities), "offset": alert.raw_ref.offset}

    assert list(map(row, once)) == list(map(row, twice_over))


@pytest.mark.parametrize("kept_bytes", [rows.KEPT_BYTES, 0])
def test_rows_of_a_window_that_ended_have_their_events(
    begin: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """Each alert has the newest event behind its row, whichever chunk it came in, and whether events that are read
    back are kept or not."""
    monkeypatch.setattr(rows, "KEPT_BYTES", kept_bytes)
    window = "GROUP BY a, TUMBLE(event_time, INTERVAL '1' MINUTE)"
    sql = "".join(
        f"INSERT INTO alerts SELECT a, MAX(b) AS newest, {n} AS n FROM events WHERE a IS NOT NULL {window};\n"
        for n in range(3)
    )
    given = [{"a": str(n % 7), "b": f"{n:02}", "ts": f"2026-11-21T02:00:{n:02}Z"} for n in range(20)]
    found = stated(begin, tmp_path, sql, *given, {"ts": "2026-11-21T02:10:00Z", "a": "end"}, apart=True)
    assert len(found) == 3 * 7
    assert all(json.loads(alert.raw)["b"] == alert.fields["newest"] for alert in found)
    assert {alert.fields["newest"] for alert in found} == {f"{n:02}" for n in range(13, 20)}


@pytest.mark.parametrize("kernel", [True, False])
def test_alerts_of_events_taken_together(begin: Callable[..., Life], tmp_path: Path, kernel: bool) -> None:
    """The native kernel makes rows of many events at once; each alert is about the event that completed its row."""
    sql = """
    CREATE TABLE readings (device STRING, `value` DOUBLE, n BIGINT, ts TIMESTAMP_LTZ(3),
        WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'vedette');
    INSERT INTO alerts SELECT device, n FROM readings WHERE `value` > 7;
    INSERT INTO alerts SELECT device, MAX(n) AS newest, SUM(`value`) AS total FROM TABLE(
        TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, device;
    """
    (tmp_path / "rule.sql").write_text(sql)
    begun_at = (NOW // 10_000_000 - 60) * 10_000  # milliseconds, where a window begins
    events: list[dict[str, Any]] = [
        {"ts": begun_at + 100 * n, "device": f"d{n % 3}", "value": n % 10 + 0.5 if n % 50 else "none", "n": n}
        for n in range(600)
    ]
    engine = Engine(compile_rules(tmp_path / "rule.sql"), route=False, kernel=kernel)
    life = begin(engine)
    for start in range(0, len(events), 200):
        lines = [json.dumps(one).encode() + b"\n" for one in events[start : start + 200]]
        life.give(Chunk("in", "json", NOW, b"".join(lines)))
    alerts = life.live().alerts()
    assert engine.tally.events == engine.tally.candidates == len(events)
    single = [one for one in alerts if "n" in one.fields]
    high = [one for one in events if one["value"] != "none" and one["value"] > 7]
    assert sorted(int(one.fields["n"]) for one in single) == [one["n"] for one in high]
    ended: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for one in events[:500]:  # the last ten seconds have not ended
        ended.setdefault((one["ts"] // 10_000, one["device"]), []).append(one)
    totals = Counter(
        (str(group[-1]["n"]), str(sum(one["value"] for one in group if one["value"] != "none")))
        for group in ended.values()
    )
    assert Counter((one.fields["newest"], one.fields["total"]) for one in alerts if one not in single) == totals
    for one in alerts:
        event = json.loads(one.raw)
        assert event["device"] == one.fields["device"]
        assert str(event["n"]) == one.fields.get("n", one.fields.get("newest"))
        assert one.event_time == event["ts"] * 1000


@pytest.mark.parametrize("kernel", [True, False])
def test_no_partition_of_kafka_makes_another_late(begin: Callable[..., Life], tmp_path: Path, kernel: bool) -> None:
    """Minutes of one partition come before those of the other: the windows of both are whole."""
    (tmp_path / "rule.sql").write_text("""
    CREATE TABLE readings (door STRING, ts TIMESTAMP_LTZ(3),
        WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'vedette');
    INSERT INTO alerts SELECT door, COUNT(*) AS n FROM TABLE(
        TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, door;
    """)
    life = begin(Engine(compile_rules(tmp_path / "rule.sql"), route=False, kernel=kernel))
    begun_at = (NOW // 60_000_000 - 10) * 60
    for seconds in range(1), range(1, 182):
        for partition in range(2):
            events = [{"ts": (begun_at + second) * 1000, "door": f"d{partition}"} for second in seconds]
            data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
            life.give(Chunk("in", "json", NOW, data, file=FilePosition("kafka:in:g:logs", partition, "", 1)))
    counts = Counter((alert.fields["door"], alert.fields["n"]) for alert in life.live().alerts())
    assert counts == {("d0", "60"): 3, ("d1", "60"): 3}


def test_an_event_is_read_back_once_for_alerts_made_together() -> None:
    """The raw log is asked once for a frame, and once for an event that it does not hold any more."""
    lines = [b'{"a": 1}\n', b'{"a": 2}\n', b'{"a": 3}\n']
    frames = [Frame(100, Chunk("in", "json", NOW, b"".join(lines))), Frame(200, Chunk("in", "json", NOW, lines[0]))]
    asked = []

    class Log:
        def frames(self, start: int, *, count_lost: bool) -> Any:
            asked.append(start)
            return (one for one in frames if start < one.offset + len(one.chunk.data))

    reread = rows.Reread(events.Events(SimpleNamespace(input_contexts={}, raw_log=Log()), Codecs(CODECS)))  # type: ignore[arg-type] # all it asks for
    read = [reread.logged(offset, NOW) for offset in (109, 100, 200, 118, 109, 50, 200, 50)]
    assert [one.record.text for one in read] == [
        '{"a": 2}', '{"a": 1}', '{"a": 1}', '{"a": 3}', '{"a": 2}', "", '{"a": 1}', "",
    ]  # fmt: skip
    assert asked == [109, 200, 50]
