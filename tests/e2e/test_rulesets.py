"""Several rule sets side by side on one agent: each comes, goes and fails by itself, the others go on as they were."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.send import tcp
from tests.broker import Broker, running
from tests.e2e.agent import Agent, vedette
from tests.e2e.faults import Faults
from tests.e2e.test_rules import Stream, mark, rule
from tests.waits import until

pytestmark = pytest.mark.peer

THRICE = """\
---
title: Three of {word}
id: 6a1f0000-0000-4000-8000-{number:012}
correlation:
    type: event_count
    rules:
        - 6a1f0000-0000-4000-8000-{of:012}
    timespan: 10m
    condition:
        gte: 3
level: high
"""
SQL = """\
-- title: SQL of the site
-- id: 6a1f0000-0000-4000-8000-000000000077
INSERT INTO alerts SELECT program, message FROM events WHERE message LIKE '%marker-sql%';
"""


class Region:
    """A key, and signed bundles of rules that find ``marker-WORD``."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        self.key = folder / "region.pem"
        self.public = vedette("bundle", "keygen", self.key).stdout.strip()

    def bundle(self, version: int, *words: str, channel: str = "region", key: Path | None = None) -> Path:
        rules = self.folder / f"{channel}{version}"
        for number, word in enumerate(words):
            rule(rules, word, 100 + number)
        return self.built(version, rules, channel, key)

    def built(self, version: int, rules: Path, channel: str = "region", key: Path | None = None) -> Path:
        """A bundle of the rules in a folder."""
        path = self.folder / f"{channel}{version}.vbundle"
        vedette("bundle", "build", rules, "-o", path, "--version", version, "--name", channel)
        vedette("bundle", "sign", path, "--key", key or self.key, "--fleet", "f1", "--channel", channel)
        return path

    def publish(self, path: Path) -> None:
        vedette("region", "publish", path, "--broker", self.broker.url)


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    with running(tmp_path / "broker") as broker:
        yield Region(tmp_path, broker)


@pytest.fixture
def agent(tmp_path: Path, region: Region) -> Iterator[Agent]:
    """An agent whose first set is a folder with a rule and a correlation over it; the region's comes by the broker; the
    site's is a folder with a rule, a statement and the rule of the first set once more."""
    path = rule(tmp_path / "own", "own", 1)
    path.write_text(path.read_text() + THRICE.format(word="own", number=2, of=1))
    rule(tmp_path / "site", "site", 3)
    (tmp_path / "site" / "site.sql").write_text(SQL)
    made = Agent(tmp_path / "a", rules=tmp_path / "own")
    made.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{made.port}"\n'
        f'[bundles]\ntrusted_keys = ["{region.public}"]\n'
        f'[[ruleset]]\nname = "region"\n[[ruleset]]\nname = "site"\npaths = ["{tmp_path / "site"}"]\n'
        f'[broker]\nurl = "{region.broker.url}"\n[uplink]\ntype = "mqtt"\n'
    )
    yield made
    made.kill()


def sets(agent: Agent) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in agent.status()["rulesets"]}


def version(agent: Agent, wanted: int) -> None:
    until(f"version {wanted} of the region's set", lambda: sets(agent)["region"]["version"] == wanted)


def json_alerts(agent: Agent) -> list[dict[str, Any]]:
    """In order."""
    return [*map(json.loads, vedette("alerts", "-c", agent.config, "--json", "-n", 1000).stdout.splitlines())]


def alerts(agent: Agent) -> list[tuple[str, str | None]]:
    """Title and bundle of each, in order."""
    return [(row["rule_title"], row["bundle"]) for row in json_alerts(agent)]


def test_sets_come_and_go_by_themselves(agent: Agent, region: Region, tmp_path: Path) -> None:
    """A set is pushed, refused, rolled back and withdrawn while lines flow; the correlation of another set counts on
    over all that, no line is lost, and each alert says of which set and version it is."""
    # Over 3 s: each of five changes is validated, and all sets are merged, in processes of their own.
    first = region.bundle(1, "one")
    stranger = tmp_path / "stranger.pem"
    vedette("bundle", "keygen", stranger)
    agent.up()
    assert {name: row["version"] for name, row in sets(agent).items()} == {
        "default": None,
        "region": None,
        "site": None,
    }
    with Stream(agent.port) as stream:
        mark(agent, "own")
        region.publish(first)
        version(agent, 1)
        mark(agent, "one")
        mark(agent, "own")
        region.publish(region.bundle(3, "three", key=stranger))
        until("the refusal", lambda: sets(agent)["region"]["error"])
        assert {name: bool(row["error"]) for name, row in sets(agent).items()} == {
            "default": False, "region": True, "site": False,
        }  # fmt: skip
        region.publish(region.bundle(4, "two"))
        version(agent, 4)
        mark(agent, "two")
        mark(agent, "one")  # no rule of any set
        mark(agent, "own")  # the third
        mark(agent, "site")
        mark(agent, "sql")
        shown = vedette("bundle", "rollback", "-c", agent.config, "--set", "region").stdout
        assert "region-1 is current; no other bundle up to version 4" in shown
        version(agent, 1)
        mark(agent, "one")
        options = ("--key", region.key, "--fleet", "f1", "--channel", "region")
        done = vedette("region", "withdraw", "--broker", region.broker.url, *options).stdout
        assert "withdrawn: version 5 of fleet f1, channel region" in done
        version(agent, 5)
        mark(agent, "one")
        mark(agent, "own")
    rows = sets(agent)
    assert [rows["region"][name] for name in ("rules", "error", "bundle")] == [0, None, "withdrawn-5"]
    assert [rows["default"][name] for name in ("rules", "correlations", "statements")] == [1, 1, 0]
    assert [rows["site"][name] for name in ("rules", "correlations", "statements")] == [1, 0, 1]
    sent = stream.sent + 11
    until("all lines to be evaluated", lambda: agent.input()["judged"] == sent)
    assert agent.input()["dropped"] == {}
    made = alerts(agent)
    assert sorted(one for one in made if not one[0].startswith("Three")) == [
        ("Marker one", "region/region-1"), ("Marker one", "region/region-1"), ("Marker site", "site"),
        ("Marker two", "region/region-4"), ("SQL of the site", "site"),
    ]  # fmt: skip
    assert [one for one in made if one[0].startswith("Three")] == [("Three of own", None)]
    assert vedette("status", "-c", agent.config, code=None).stdout.count("region ") >= 1  # no landing runs


POINTS = (
    "before-sync 1 /rulesets/region/bundles/",
    "before-rename 1 /rulesets/region/bundles/",
    "after-rename 2 /rulesets/region/bundles/",
    "before-write 1 /cache/merging.plan",
    "before-read 1 /cache/merged-",
    "before-say 1 rules_loaded",
)
"""Steps of a swap at which the agent is killed: the bundle's file, its links, the merged plan, the switch."""


@pytest.mark.long
def test_killed_while_a_set_is_swapped(
    agent: Agent, region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with SIGKILL at any step of a swap of one set, the agent comes back and takes the new version; the
    correlation of another set, whose events lie on both sides of kills, fires at its third event, once."""
    faults = Faults(tmp_path, monkeypatch)
    agent.up()
    total = 0
    for number, point in enumerate(POINTS, 1):
        path = region.bundle(number, f"v{number}")
        if number in (1, 3, 5):
            mark(agent, "own")
            total += 1
            until("the mark to be committed", lambda total=total: agent.input()["judged"] == total)
        faults.set(point)
        region.publish(path)
        until(f"the kill {point}", lambda: not agent.running())
        faults.set()
        agent.up()
        version(agent, number)
        mark(agent, f"v{number}")
        total += 1
        until("the mark to be evaluated", lambda total=total: agent.input()["judged"] == total)
    until("its alert", lambda: len(alerts(agent)) == len(POINTS) + 1)
    made = alerts(agent)
    assert [one for one in made if one[0].startswith("Three")] == [("Three of own", None)]
    assert [one for one in made if one[0].startswith("Marker")] == [
        (f"Marker v{number}", f"region/region-{number}") for number in range(1, len(POINTS) + 1)
    ]


@pytest.mark.long
def test_a_set_is_configured_and_taken_out_while_lines_flow(tmp_path: Path) -> None:
    """A table [[ruleset]] that is added and removed with SIGHUP brings its rules and takes them; the correlation of the
    first set counts on, dead rules are listed by set, and no line is lost."""
    path = rule(tmp_path / "own", "own", 1)
    path.write_text(path.read_text() + THRICE.format(word="own", number=2, of=1))
    dead = rule(tmp_path / "site", "never", 4)
    dead.write_text(dead.read_text().replace("- 'marker-never'", "message|nonsense: x"))
    rule(tmp_path / "site", "site", 3)
    agent = Agent(tmp_path / "a", rules=tmp_path / "own")
    inputs = (
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\nlogsource = {{product = "linux"}}\n'
    )
    site = f'[[ruleset]]\nname = "site"\npaths = ["{tmp_path / "site"}"]\n'
    agent.configure(inputs)
    agent.up()
    try:
        with Stream(agent.port) as stream:
            mark(agent, "own")
            mark(agent, "site")
            agent.configure(inputs + site)
            agent.signal(signal.SIGHUP)
            until("the set to run", lambda: sets(agent).get("site", {}).get("rules") == 1)
            assert {name: row["dead_count"] for name, row in sets(agent).items()} == {"default": 0, "site": 1}
            assert "never.yml" in sets(agent)["site"]["dead"][0]
            mark(agent, "own")
            mark(agent, "site")
            until("its alert", lambda: sets(agent)["site"]["alerts"] == 1)
            agent.configure(inputs)
            agent.signal(signal.SIGHUP)
            until("the set to be gone", lambda: [*sets(agent)] == ["default"])
            mark(agent, "site")
            mark(agent, "own")
        status = agent.settled(stream.sent + 6)
        counts = status["inputs"]["in"]
        assert (counts["stored"], counts["judged"], counts["dropped"]) == (stream.sent + 6, stream.sent + 6, {})
        made = sorted((alert["rule_title"], alert["bundle"]) for alert in agent.alerts())
        assert made == [("Marker site", "site"), ("Three of own", None)]
    finally:
        agent.kill()


SLOW = """\
title: Slow
id: 6a1f0000-0000-4000-8000-000000000050
logsource: {product: linux}
detection: {s: {message|re: 'x(?=a)(a|aa)+$'}, condition: s}
"""
LINE = b"<13>Nov 20 10:00:00 web1 app: marker-site x" + b"a" * 60 + b"!\n"


@pytest.mark.long
def test_quarantine_and_suppression_outlive_the_swaps_of_another_set(
    agent: Agent, region: Region, tmp_path: Path
) -> None:
    """A rule of the site that is in quarantine, and one whose alerts are being folded, stay so while versions of the
    region's set come, one with other rules of the same ids, are rolled back and withdrawn, and over a kill."""
    (tmp_path / "site" / "slow.yml").write_text(SLOW)
    agent.config.write_text(
        agent.config.read_text()
        + '[[suppress]]\nrules = ["6a1f0000-0000-4000-8000-000000000003"]\nby = ["program"]\nfor = "1h"\n'
    )
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        tcp(("127.0.0.1", agent.port), LINE * count)
        sent += count
        until("the lines to be evaluated", lambda: agent.input()["judged"] == sent)

    def unchanged(suppressing: int) -> None:
        status = agent.status()
        (quarantined,) = status["rules"]["quarantined"]
        assert (quarantined["title"], quarantined["events"]) == ("Slow", 10)
        assert status["correlation_state"]["suppressing"] == suppressing

    agent.up()
    send(10)
    unchanged(1)
    for number, words in enumerate((("one",), ("one", "two"), ("three",)), 1):
        path = region.bundle(number, *words)
        if number == 2:  # rules of ids that the site has, too, with other meanings
            rules = tmp_path / "region2"
            rule(rules, "region", 3)
            (rules / "slow.yml").write_text(SLOW.replace("(a|aa)+$", "(a|ab)+c$"))
            path = region.built(2, rules)
        region.publish(path)
        version(agent, number)
        send(10)
        unchanged(1 + (number > 1))
    agent.kill()
    agent.up()
    version(agent, 3)
    send(10)
    assert agent.status()["rules"]["quarantined"][0]["events"] == 10
    vedette("bundle", "rollback", "-c", agent.config, "--set", "region")
    version(agent, 2)
    send(10)
    assert agent.status()["correlation_state"]["suppressing"] == 2
    options = ("--key", region.key, "--fleet", "f1", "--channel", "region")
    vedette("region", "withdraw", "--broker", region.broker.url, *options)
    until("the withdrawal", lambda: sets(agent)["region"]["rules"] == 0)
    send(10)
    assert agent.status()["rules"]["quarantined"][0]["events"] == 10
    made = [(row["rule_id"][-2:], row["rule_title"]) for row in json_alerts(agent)]
    assert made == [("03", "Marker site"), ("te", "Marker site")]  # under ID@site it is folded by itself
    assert agent.status()["correlation_state"]["folded"] == sent - 2
    assert {row["error"] for row in sets(agent).values()} == {None}


WINDOWS = """\
-- title: Shared count
-- id: 6a1f0000-0000-4000-8000-000000000061
INSERT INTO alerts SELECT program, COUNT(*) AS n
  FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' HOUR))
  WHERE message LIKE '%marker-window%' GROUP BY program, window_start, window_end;
"""
ALONE = """\
-- title: Count of the region
-- id: 6a1f0000-0000-4000-8000-000000000062
INSERT INTO alerts SELECT program, COUNT(*) AS n, COUNT(DISTINCT message) AS texts
  FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' HOUR))
  WHERE message LIKE '%marker-window%' GROUP BY program, window_start, window_end;
"""


@pytest.mark.long
def test_withdrawn_while_its_statements_hold_open_windows(agent: Agent, region: Region, tmp_path: Path) -> None:
    """The windows of a set that is withdrawn go with it: no alert of them comes when their time is over, and none of
    its state is left. A statement that the site has alike counts on; pushed again, that of the region starts empty."""
    (tmp_path / "site" / "windows.sql").write_text(WINDOWS)
    rules = tmp_path / "windowed"
    rules.mkdir()
    (rules / "windows.sql").write_text(WINDOWS + ALONE)
    agent.up()
    region.publish(region.built(1, rules))
    version(agent, 1)
    sent = 0

    def at(*times: str) -> None:
        nonlocal sent
        lines = "".join(f"<13>Nov 20 {time} web1 app: marker-window\n" for time in times)
        tcp(("127.0.0.1", agent.port), lines.encode())
        sent += len(times)
        until("the lines to be evaluated", lambda: agent.input()["judged"] == sent)

    def state_bytes() -> dict[str, int]:
        """Bytes of the state of each statement."""
        return {one["title"]: one["bytes"] for one in agent.status()["statement_state"]["statements"]}

    at("10:10:00", "10:20:00")
    before = state_bytes()
    assert before["Shared count"] > 0
    assert before["Count of the region"] > 0
    options = ("--key", region.key, "--fleet", "f1", "--channel", "region")
    vedette("region", "withdraw", "--broker", region.broker.url, *options)
    version(agent, 2)
    assert "Count of the region" not in state_bytes()
    assert state_bytes()["Shared count"] == agent.status()["statement_state"]["bytes"] == before["Shared count"]
    at("10:30:00")
    agent.kill()
    agent.up()
    region.publish(region.built(3, rules))
    version(agent, 3)
    at("10:40:00")
    at("12:00:00", "12:00:05")
    until("the rows", lambda: len(alerts(agent)) == 2)
    assert {(row["rule_title"], row["bundle"], row["fields"]["n"]) for row in json_alerts(agent)} == {
        ("Shared count", "region/region-3, site", "4"), ("Count of the region", "region/region-3", "1"),
    }  # fmt: skip
    assert {row["error"] for row in sets(agent).values()} == {None}
