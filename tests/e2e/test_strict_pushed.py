"""Bundles of a strict set: pushed, rolled back, withdrawn, with lookups, while lines flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker import running
from tests.e2e.agent import Agent, vedette
from tests.e2e.test_rules import Stream, mark, rule
from tests.e2e.test_rulesets import THRICE, Region, alerts, sets, version
from tests.e2e.test_strict import evaluated, process
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    with running(tmp_path / "broker") as broker:
        yield Region(tmp_path, broker)


def built(region: Region, number: int, *words: str) -> Path:
    """Rules for ``words``, and a correlation over ``one`` that all versions have."""
    rules = region.folder / f"rules{number}"
    path = rule(rules, "one", 100)
    path.write_text(path.read_text() + THRICE.format(word="one", number=200, of=100) + "generate: true\n")
    for at, word in enumerate(words):
        rule(rules, word, 101 + at)
    return region.built(number, rules)


def changed(agent: Agent, number: int, change: Callable[[], object]) -> None:
    """Until a process has version ``number`` of the set, and the one before is gone."""
    starts = process(agent, "region")["starts"]
    change()
    version(agent, number)
    until("another process", lambda: process(agent, "region")["starts"] > starts)


def test_push(tmp_path: Path, region: Region) -> None:
    """A push, a bad bundle, a rollback and a withdrawal change the strict set alone; a correlation that all versions
    have counts over the changes; a rule of the same id and another meaning has an id of its own."""
    own = rule(tmp_path / "own", "own", 1)
    same = own.read_text().replace("000000000001", "000000000101").replace("Marker own", "Taken")
    (tmp_path / "own" / "same.yml").write_text(same.replace("marker-own", "marker-taken"))
    agent = Agent(tmp_path / "a", rules=tmp_path / "own")
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
        f'[bundles]\ntrusted_keys = ["{region.public}"]\n[[ruleset]]\nname = "region"\nisolation = "strict"\n'
        f'[broker]\nurl = "{region.broker.url}"\n[uplink]\ntype = "mqtt"\n'
    )
    first, second = built(region, 1), built(region, 2, "two")
    agent.up()
    until("the first process", lambda: process(agent, "region")["running"])
    try:
        with Stream(agent.port):
            changed(agent, 1, lambda: region.publish(first))
            mark(agent, "one")
            until("an alert", lambda: ("Marker one", "region/region-1") in alerts(agent))
            changed(agent, 2, lambda: region.publish(second))
            mark(agent, "one")
            mark(agent, "two")
            until("its alert", lambda: ("Marker two", "region/region-2") in alerts(agent))
            assert sets(agent)["region"]["renamed"] == {
                "6a1f0000-0000-4000-8000-000000000101": "6a1f0000-0000-4000-8000-000000000101@region"
            }
            mark(agent, "one")
            until("the third", lambda: ("Three of one", "region/region-2") in alerts(agent))
            changed(agent, 1, lambda: vedette("bundle", "rollback", "-c", agent.config, "--set", "region"))
            mark(agent, "two")  # no rule of any set
            mark(agent, "one")
            until("of the first", lambda: alerts(agent).count(("Marker one", "region/region-1")) == 2)
            mark(agent, "own")
            until("the other set's", lambda: ("Marker own", None) in alerts(agent))
            options = ("--key", region.key, "--fleet", "f1", "--channel", "region")
            publish = ("region", "withdraw", "--broker", region.broker.url, *options)
            changed(agent, 3, lambda: vedette(*publish))
            row = sets(agent)["region"]
            assert [row[name] for name in ("rules", "correlations", "error", "bundle")] == [0, 0, None, "withdrawn-3"]
            mark(agent, "one")  # no rule any more
            mark(agent, "own")
            until("the other set's second", lambda: alerts(agent).count(("Marker own", None)) == 2)
        account = evaluated(agent, "region")  # which goes on, without rules
        assert account["stored"] == account["judged"] + sum(account["lost"].values())
        assert [title for title, _ in alerts(agent)].count("Marker one") == 4
        assert process(agent, "region")["deaths"] == 0
        assert alerts(agent).count(("Marker two", "region/region-2")) == 1
        assert alerts(agent).count(("Three of one", "region/region-2")) == 1
    finally:
        agent.kill()
