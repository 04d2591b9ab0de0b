"""Lookups that only the rules of a strict set ask: swapped under it, refused, rolled back and removed as those of a
merged set."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, vedette
from tests.e2e.test_lookups import RULE, Region, alerted, in_use, log_in, refused, version
from tests.e2e.test_rules import rule
from tests.e2e.test_strict import process, running
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region(tmp_path / "region")


@pytest.fixture
def agent(tmp_path: Path, region: Region) -> Iterator[Agent]:
    for name in ("site", "drop"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "asks.yml").write_text(RULE)
    made = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    made.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\nformat = "syslog"\ntcp = "127.0.0.1:{made.port}"\n'
        f'[bundles]\ntrusted_keys = ["{region.public}"]\n[lookups]\nfolder = "{tmp_path / "drop"}"\n'
        f'[[ruleset]]\nname = "site"\npaths = ["{tmp_path / "site"}"]\nisolation = "strict"\n'
    )
    yield made
    made.kill()


def dropped(tmp_path: Path, table: Path) -> str:
    partial = tmp_path / "new"
    shutil.copy(table, partial)
    partial.replace(tmp_path / "drop" / table.name)
    return version(table)


def until_installed(agent: Agent, wanted: str) -> None:
    """The lookup is installed, and the set's process has it."""
    until("the lookup", lambda: in_use(agent) == wanted)
    running(agent)


def finds(agent: Agent, *users: str) -> None:
    """Whose logins alone have made alerts so far."""
    log_in(agent, "alice", "bob", "carol")
    until("the alerts", lambda: len(alerted(agent)) >= len(users))
    agent.settled()
    until("the set", lambda: not agent.status()["rulesets"][1]["lag_events"])
    assert alerted(agent) == [*users]


def test_swap(tmp_path: Path, agent: Agent, region: Region) -> None:
    """Each new version is what its rules ask, without a death; one without the key that they ask is refused with the
    reason, a rollback is followed, and a lookup that they ask is not removed."""
    first = region.table("users", [("alice", "one")])
    agent.up()
    until_installed(agent, dropped(tmp_path, first))
    finds(agent, "alice")
    until_installed(agent, dropped(tmp_path, region.table("users", [("bob", "two"), ("carol", "two")])))
    finds(agent, "alice", "bob", "carol")
    dropped(tmp_path, region.table("users", [("alice", "three")], "name owner", "name:nocase"))
    until("the refusal", lambda: "its rules ask the lookup users" in refused(agent))
    finds(agent, "alice", "bob", "carol", "bob", "carol")
    vedette("lookup", "rollback", "users", "-c", agent.config)
    until_installed(agent, version(first))
    finds(agent, "alice", "bob", "carol", "bob", "carol", "alice")
    assert "rules ask the lookup users" in vedette("lookup", "remove", "users", "-c", agent.config, code=2).stderr
    assert process(agent)["deaths"] == 0
    (tmp_path / "site" / "asks.yml").unlink()
    rule(tmp_path / "site", "site", 3)
    until("the other rules", lambda: agent.status()["rulesets"][1]["origin"] and agent.said("rules_loaded"))
    agent.kill()
    agent.up()
    assert vedette("lookup", "remove", "users", "-c", agent.config).stdout == "users: removed\n"
