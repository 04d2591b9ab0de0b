"""The specification's own correlation examples, on events that show their meaning; offline, and as rule tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vedette import compile_rules, correlate, evaluate
from vedette.cli.main import main
from vedette.engine.match import Engine
from vedette.rules.authoring import cases
from vedette.rules.selftest import Sequence, check, from_row

LOGINS = """
title: Multiple failed logins followed by a successful login
id: b180ead8-d58f-40b2-ae54-c8940995b9b6
correlation:
  type: temporal_ordered
  rules: [multiple_failed_login, successful_login]
  group-by: [User]
  timespan: 10m
level: high
---
title: Multiple failed logins
id: a8418a5a-5fc4-46b5-b23b-6c73beb19d41
name: multiple_failed_login
correlation:
  type: event_count
  rules: [failed_login]
  group-by: [User]
  timespan: 10m
  condition: {gte: 10}
---
title: Single failed login
name: failed_login
logsource: {product: windows, service: security}
detection: {selection: {EventID: [529, 4625]}, condition: selection}
---
title: Successful login
name: successful_login
logsource: {product: windows, service: security}
detection: {selection: {EventID: [528, 4624]}, condition: selection}
"""

ALIASES = """
title: internal error
name: internal_error
logsource: {category: web}
detection: {selection: {http.response.status_code: 500}, condition: selection}
---
title: new connection
name: new_network_connection
logsource: {category: net}
detection: {selection: {event.category: network, event.outcome: success}, condition: selection}
---
title: error then connection
correlation:
  type: temporal
  rules: [internal_error, new_network_connection]
  group-by: [internal_ip, remote_ip]
  timespan: 10s
  aliases:
    internal_ip: {internal_error: destination.ip, new_network_connection: source.ip}
    remote_ip: {internal_error: source.ip, new_network_connection: destination.ip}
"""


def scan(tmp_path: Path, rules: str, events: list[dict[str, Any]], *more: str) -> tuple[list[dict[str, Any]], Result]:
    """The correlations' rows, and the command's whole result; each event has its second in ``t``."""
    (tmp_path / "r.yml").write_text(rules)
    (tmp_path / "e.ndjson").write_text("".join(json.dumps(event) + "\n" for event in events))
    command = ["scan", "--rules", str(tmp_path / "r.yml"), "--format", "json", "--time-field", "t", *more]
    done = CliRunner().invoke(main, [*command, str(tmp_path / "e.ndjson")])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row for row in rows if row["kind"] == "correlation"], done


def login(second: int, event_id: int, user: str = "bob") -> dict[str, Any]:
    return {"t": second, "EventID": event_id, "User": user}


def test_failed_logins_followed_by_success(tmp_path: Path) -> None:
    """Ten failures of one user within ten minutes, then a success within ten minutes: at both ends inclusive."""
    failures = [login(60 * i + 60 * (i == 9), 4625) for i in range(10)]  # at 0, 60 … 480 and 600 s
    found, done = scan(tmp_path, LOGINS, [*failures, login(599, 4624, "eve"), login(1200, 4624), login(1201, 4624)])
    assert [(row["line"], row["fields"]) for row in found] == [(12, {"User": "bob", "count": 2})]
    assert found[0]["rule_title"].startswith("Multiple failed logins followed")
    assert done.stdout.count("\n") == 1  # what is only referred to is silent
    assert scan(tmp_path, LOGINS, [*failures, login(1201, 4624)])[0] == []
    failures[9]["t"] = 601
    assert scan(tmp_path, LOGINS, [*failures, login(700, 4624)])[0] == []


def test_the_burst_goes_on(tmp_path: Path) -> None:
    """The failures go on after the tenth: the success is within ten minutes of the last of them that makes ten."""
    failures = [login(60 * i, 4625) for i in range(25)]
    assert [row["line"] for row in scan(tmp_path, LOGINS, [*failures, login(24 * 60 + 590, 4624)])[0]] == [26]


def test_order_is_by_time(tmp_path: Path) -> None:
    """The order of lines does not matter, that of times does."""
    events = [login(100, 4624), *(login(i, 4625) for i in range(10))]
    assert [row["line"] for row in scan(tmp_path, LOGINS, events)[0]] == [1]
    events[0]["t"] = 5
    assert scan(tmp_path, LOGINS, events)[0] == []


@pytest.mark.parametrize(("second", "fires"), [(10, True), (11, False)])
def test_aliases(tmp_path: Path, second: int, fires: bool) -> None:
    """Addresses change sides between the two events; the group is named by the aliases."""
    internal, remote = "192.0.2.1", "198.51.100.7"
    error = {
        "t": 0,
        "http": {"response": {"status_code": 500}},
        "source": {"ip": remote},
        "destination": {"ip": internal},
    }
    opened = {
        "t": second, "event": {"category": "network", "outcome": "success"}, "source": {"ip": internal},
        "destination": {"ip": remote},
    }  # fmt: skip
    turned = {**opened, "source": {"ip": remote}, "destination": {"ip": internal}}
    found, _ = scan(tmp_path, ALIASES, [error, turned, opened])
    expected = [(3, {"internal_ip": internal, "remote_ip": remote, "count": 2})] if fires else []
    assert [(row["line"], row["fields"]) for row in found] == expected


EXAMPLES = [
    ("event_count", "[ComputerName]", "1h", "{gte: 100}", [{"ComputerName": "c"}] * 99, False),
    ("event_count", "[ComputerName]", "1h", "{gte: 100}", [{"ComputerName": "c"}] * 100, True),
    ("event_count", "[ComputerName]", "1h", "{gt: 100, lte: 200}", [{"ComputerName": "c"}] * 101, True),
    ("event_count", "[ComputerName]", "1h", "{gt: 100, lte: 200}", [{"ComputerName": "c"}] * 100, False),
    (
        "value_count", "[ComputerName, WorkstationName]", "1d", "{field: User, gte: 100}",
        [{"ComputerName": "c", "WorkstationName": "w", "User": f"u{i}"} for i in range(100)], True,
    ),
    (
        "value_count", "[ComputerName, WorkstationName]", "1d", "{field: User, gte: 100}",
        [{"ComputerName": "c", "WorkstationName": f"w{i % 2}", "User": f"u{i}"} for i in range(100)], False,
    ),
    ("value_sum", "[SourceIP]", "1h", "{field: n, gt: 1000000}", [{"SourceIP": "a", "n": 500_000}] * 2, False),
    ("value_sum", "[SourceIP]", "1h", "{field: n, gt: 1000000}", [{"SourceIP": "a", "n": 500_001}] * 2, True),
    ("value_avg", "[SourceIP]", "24h", "{field: n, gt: 500}", [{"SourceIP": "a", "n": n} for n in (1, 999)], False),
    ("value_avg", "[SourceIP]", "24h", "{field: n, gt: 500}", [{"SourceIP": "a", "n": n} for n in (2, 999)], True),
    ("value_median", "[]", "24h", "{field: n, eq: 5}", [{"n": n} for n in (1, 9, "5")], True),
    ("value_percentile", "[]", "24h", "{field: n, gte: 90, percentile: 90}", [{"n": n} for n in range(101)], True),
    ("value_percentile", "[]", "24h", "{field: n, gte: 91, percentile: 90}", [{"n": n} for n in range(101)], False),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "by", "span", "condition", "events", "fires"), EXAMPLES)
def test_each_kind(
    tmp_path: Path, kind: str, by: str, span: str, condition: str, events: list[Any], fires: bool
) -> None:
    """The specification's example of each kind, just below and at its limit; all events of one time are one window."""
    rules = (
        "title: A\nname: a\nlogsource: {product: x}\ndetection: {s: {ev: yes1}, condition: s}\n---\n"
        f"title: C\ncorrelation:\n  type: {kind}\n  rules: [a]\n  group-by: {by}\n  timespan: {span}\n"
        f"  condition: {condition}\n"
    )
    found, done = scan(tmp_path, rules, [{**event, "t": 7, "ev": "yes1"} for event in events])
    assert bool(found) == fires
    assert done.exit_code == 0
    if found and kind in ("value_sum", "value_avg", "value_median", "value_percentile"):
        assert kind in found[0]["fields"]


def test_times_without_a_year(tmp_path: Path) -> None:
    """A time field written as in a syslog header: its year comes from the file's own time, as a header's does."""
    events = [{**login(0, 4625), "t": f"Jan  1 00:0{i}:00"} for i in range(10)]
    events.append({**login(0, 4624), "t": "Jan  1 00:10:00"})
    assert len(scan(tmp_path, LOGINS, events)[0]) == 1
    events[-1]["t"] = "Jan  1 00:30:00"
    assert scan(tmp_path, LOGINS, events)[0] == []
    events[-1]["t"] = "Jan 99 00:10:00"
    assert "1 matches, because the field 't' of the event holds no time" in scan(tmp_path, LOGINS, events)[1].stderr


@pytest.mark.parametrize("unit", [1, 1000, 1_000_000, 1_000_000_000])
@pytest.mark.parametrize("begin", [0, 1_790_000_000])
def test_time_fields(tmp_path: Path, unit: int, begin: int) -> None:
    """Numbers since 1970 in whatever unit, RFC 3339, nested; what holds no time is told."""
    base = begin * unit if begin else 0
    step = unit if begin else 1
    events = [{**login(0, 4625), "t": base + 60 * step * i} for i in range(10)]
    events.append({**login(0, 4624), "t": base + 700 * step})
    assert len(scan(tmp_path, LOGINS, events)[0]) == 1
    for event in events:
        event["x"] = {"y": f"2026-11-21T10:{int(event['t'] - base) // step // 60:02}:00+01:00"}
    assert len(scan(tmp_path, LOGINS, events, "--time-field", "x.y")[0]) == 1
    found, done = scan(tmp_path, LOGINS, events, "--time-field", "none")
    assert found == []
    assert "11 matches, because the field 'none' of the event holds no time" in done.stderr


@pytest.mark.parametrize(
    "written",
    [
        "2025-01-01T10:00:{:02}Z", "2025-01-01T10:00:{:02}.000000Z", "2025-01-01T10:00:{:02}.000000000Z",
        "2025-01-01T11:00:{:02}+01:00", "2025-01-01T05:30:{:02}-0430", "2025-01-01 10:00:{:02}",
        "2025-01-01T10:00:{:02}",
        " 2025-01-01 10:00:{:02} UTC", "2025/01/01 10:00:{:02}", "01/Jan/2025:10:00:{:02} +0000",
        "Wed, 01 Jan 2025 10:00:{:02} GMT", "20250101T1000{:02}Z", "17357256{:02}", "17357256{:02}.5",
        "17357256{:02}000",
    ],
)  # fmt: skip
def test_times_as_they_are_written(tmp_path: Path, written: str) -> None:
    """Every way in which logs write a time; all of one spelling are right to the second."""
    events = [{**login(0, 4625), "t": written.format(i)} for i in range(10)]
    found, done = scan(tmp_path, LOGINS.replace("timespan: 10m\n  condition", "timespan: 9s\n  condition"), [
        *events, {**login(0, 4624), "t": written.format(59)}
    ])  # fmt: skip
    assert [row["line"] for row in found] == [11]
    assert "not correlated" not in done.stderr
    found, _ = scan(tmp_path, LOGINS.replace("timespan: 10m\n  condition", "timespan: 8s\n  condition"), [
        *events, {**login(0, 4624), "t": written.format(59)}
    ])  # fmt: skip
    assert found == []


SSH = """
title: Failed
name: failed
logsource: {product: linux, service: sshd}
detection: {s: {message|contains: Failed password}, condition: s}
---
title: Many
correlation: {type: event_count, rules: [failed], group-by: [src_ip], timespan: 5m, condition: {gte: 3}}
"""


@pytest.mark.parametrize("field", ["", "timestamp", "@timestamp"])
def test_syslog_lines_have_the_time_of_their_header(tmp_path: Path, field: str) -> None:
    """Whatever the field is called, where an event has none; also without a year, over New Year."""
    (tmp_path / "r.yml").write_text(SSH)
    for stamps, lines in (
        (["Dec 31 23:58:00", "Dec 31 23:59:00", "Jan  1 00:02:59"], [3]),
        (["Dec 31 23:58:00", "Dec 31 23:59:00", "Jan  1 00:03:01"], []),
    ):
        text = "".join(f"<38>{at} web1 sshd[7]: Failed password for x from 192.0.2.1 port 22 ssh2\n" for at in stamps)
        (tmp_path / "log").write_text(text)
        command = ["scan", "--rules", str(tmp_path / "r.yml"), "--time-field", field, str(tmp_path / "log")]
        rows = [json.loads(row) for row in CliRunner().invoke(main, command).stdout.splitlines()]
        assert [row["line"] for row in rows] == lines


@pytest.mark.parametrize("kind", ["temporal", "temporal_ordered"])
def test_an_event_that_matches_several_rules(tmp_path: Path, kind: str) -> None:
    """It is looked at once, with all its matches: they are counted together, and are no sequence."""
    rules = "---\n".join(
        f"title: {n}\nname: {n}\nlogsource: {{product: x}}\ndetection: {{s: {{{n}: yes}}, condition: s}}\n"
        for n in "abc"
    )
    rules += f"---\ntitle: C\ncorrelation: {{type: {kind}, rules: [a, b, c], timespan: 1m, condition: {{gte: 2}}}}\n"
    both = {"t": 1, "a": "yes", "b": "yes", "c": "yes"}
    counts = [row["fields"]["count"] for row in scan(tmp_path, rules, [both])[0]]
    assert counts == ([3] if kind == "temporal" else [])
    assert [row["fields"]["count"] for row in scan(tmp_path, rules, [{"t": 0, "a": "yes"}, both])[0]] == [
        3 if kind == "temporal" else 2
    ]


def test_from_python() -> None:
    """``correlate`` gives what ``scan`` prints, of lines and mappings in any order; ``evaluate`` leaves out what is
    only referred to."""
    plan = compile_rules(text=LOGINS)
    events = [login(100, 4624), *(login(i, 4625) for i in range(10))]
    (found,) = correlate(plan, events, time_field="t")
    assert (found.line, found.group, found.firing.count) == (1, {"User": "bob"}, 2)
    assert found.to_row()["rule_id"] == "b180ead8-d58f-40b2-ae54-c8940995b9b6"
    assert list(evaluate(plan, events)) == []


def test_over_several_files(tmp_path: Path) -> None:
    """Files are one timeline; the row names the file of the completing event."""
    (tmp_path / "r.yml").write_text(LOGINS)
    for name, events in (("b", [login(i, 4625) for i in range(10)]), ("a", [login(20, 4624)])):
        (tmp_path / name).write_text("".join(json.dumps(event) + "\n" for event in events))
    files = [str(tmp_path / name) for name in "ab"]
    command = ["scan", "--rules", str(tmp_path / "r.yml"), "--format", "json", "--time-field", "t", *files]
    (row,) = map(json.loads, CliRunner().invoke(main, command).stdout.splitlines())
    assert (row["file"], row["line"]) == (files[0], 1)


TESTS = """
- sequence:
    - {event: {EventID: 4624, User: bob}, at: "2026-11-21T10:05:00Z"}
    - &fail {event: {EventID: 4625, User: bob}, at: 2026-11-21T10:00:00Z}
    - *fail
    - *fail
    - *fail
    - *fail
    - *fail
    - *fail
    - *fail
    - *fail
    - *fail
  expect: 1
- sequence: [*fail]
  expect: 0
- sequence: [*fail, {raw: '{"EventID": 4625, "User": "bob"}', codec: json, at: "2026-11-21T10:00:01Z"}]
  expect: 0
  rule: Multiple failed logins
"""


def test_rule_tests(tmp_path: Path) -> None:
    """Sequences beside a correlation are run; all rules below it count as tested; mistakes have a place."""
    (tmp_path / "logins.yml").write_text(LOGINS.replace(", service: security", ""))
    (tmp_path / "logins.test.yml").write_text(TESTS)
    done = CliRunner().invoke(main, ["rules", "test", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "2 rules, 2 correlations, 0 events, 3 sequences, 0 failures, 0 mistakes" in done.stdout
    (tmp_path / "logins.test.yml").write_text(
        TESTS.replace("expect: 1", "expect: 2").replace("expect: 0", "expect: -1")
    )
    done = CliRunner().invoke(main, ["rules", "test", str(tmp_path)])
    assert done.exit_code == 1
    assert "logins.test.yml:2: should fire 2 times and fires 1 times" in done.stderr
    assert "logins.test.yml:15: expect: how often the correlation fires, not -1" in done.stderr


def test_rule_tests_in_bundles(tmp_path: Path) -> None:
    """A sequence travels as a row, and fails where the correlation does not do what it says."""
    (tmp_path / "logins.yml").write_text(LOGINS.replace(", service: security", ""))
    (tmp_path / "logins.test.yml").write_text(TESTS)
    plan = compile_rules(tmp_path)
    timed, mistakes = cases.sequences(plan)
    assert mistakes == []
    assert [from_row(case.to_row()) for case in timed] == timed
    assert check(Engine(plan), timed) == []
    assert isinstance(wrong := from_row([timed[0].rule_id, 3, timed[0].to_row()[2], "here"]), Sequence)
    assert [str(failure) for failure in check(Engine(plan), [wrong])] == ["here: should fire 3 times and fires 1 times"]
