"""Rule sets that ask the same delivered lookup, with alerts enriched by it: new versions of sets and of the lookup at
the same moment, over kills."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker, running
from tests.e2e.agent import KILLS, Agent, chance, landed, reborn, vedette
from tests.e2e.test_landing import Landing
from tests.e2e.test_lookups import OTHER, RULE, Region, in_use, version
from tests.e2e.test_rulesets import sets
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]

ENRICH = '[[enrich]]\nlookup = "users"\nfield = "user"\ncolumns = ["owner"]\n'
IN_REGION = RULE.replace("000000000077", "000000000079")


class Center(Region):
    """A region that publishes, beside lookups, bundles of the set ``region``, whose rule asks ``users``."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder)
        self.broker = broker

    def bundle(self, number: int, table: Path) -> Path:
        """Version ``number``, whose alerts are titled ``Known in version NUMBER``."""
        rules, path = self.folder / f"rules-{number}", self.folder / f"region-{number}.vbundle"
        rules.mkdir()
        (rules / "rule.yml").write_text(IN_REGION.replace("Known asset", f"Known in version {number}"))
        shutil.copy(table, self.folder / "users.vlookup")
        vedette("bundle", "build", rules, "-o", path, "--version", number, "--name", "region", "--lookup",
                self.folder / "users.vlookup", "--apart", "users")  # fmt: skip
        vedette("bundle", "sign", path, "--key", self.key, "--fleet", "f1", "--channel", "region")
        return path

    def push(self, *paths: Path) -> None:
        """All at the same moment."""
        with ThreadPoolExecutor(len(paths)) as pool:
            for done in [pool.submit(self.publish, path, self.broker.url) for path in paths]:
                done.result()


@pytest.fixture
def center(tmp_path: Path) -> Iterator[Center]:
    with running(tmp_path / "broker", durable=True, verbose=False) as broker:
        yield Center(tmp_path / "region", broker)


@pytest.fixture
def landing(tmp_path: Path, center: Center) -> Iterator[Landing]:
    made = Landing(tmp_path / "landing", center.broker)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def agent(tmp_path: Path, center: Center, landing: Landing) -> Iterator[Agent]:
    """Its first set is a folder whose rule asks ``users``, its second one the region's, by the broker."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "rule.yml").write_text(RULE)
    (own / "other.yml").write_text(OTHER)
    made = Agent(tmp_path / "a", rules=own)
    made.configure(settings(made, center))
    yield made
    made.kill()


def settings(agent: Agent, center: Center) -> str:
    source = (
        f'[[input]]\nname = "in"\ntype = "syslog"\nformat = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
        f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{agent.folder / "in.log"}"]\nformat = "syslog"\n'
        'logsource = { product = "linux" }\n'
    )
    return (
        f'{source}[bundles]\ntrusted_keys = ["{center.public}"]\n[[ruleset]]\nname = "region"\n'
        f'[broker]\nurl = "{center.broker.url}"\n[uplink]\ntype = "mqtt"\n{ENRICH}'
    )


def until_in_use(agent: Agent, number: int, table: Path) -> None:
    until(
        f"version {number} of the set, and its lookup",
        lambda: agent.alive() and sets(agent)["region"]["version"] == number and in_use(agent) == version(table),
    )


def healthy(agent: Agent) -> dict[str, Any]:
    """The status, once nothing in it says that something was refused."""

    def check() -> dict[str, Any] | None:
        status = agent.status()
        errors = [status["rules"]["error"], *(row["error"] for row in status["rulesets"])]
        return None if any(errors) or status["lookups"]["refused"] or status["lookups"]["incoming"] else status

    found: dict[str, Any] = until("a status without errors", check)
    return found


def test_killed_while_sets_and_their_lookup_change(agent: Agent, center: Center, landing: Landing) -> None:
    """Killed at random under new versions of both and a flow of logins: each login gives the alert of each set once,
    wherever it is seen again; with the columns of a version of the lookup, or flagged that it was not there."""
    rng = chance()
    file, lines = agent.folder / "in.log", 0
    file.touch()
    tables: list[Path] = []

    def logins(count: int) -> None:
        nonlocal lines
        for _ in range(count):
            with file.open("a") as out:
                for _ in range(5):
                    lines += 1
                    out.write(
                        f"<38>Nov 20 10:00:00 web1 sshd[{lines}]: Accepted password for alice from 192.0.2.1 port 22"
                        " ssh2 lookup-marker plain-marker\n"
                    )
            time.sleep(0.01)

    agent.up()
    logins(20)  # before there is any lookup
    until("the first logins", lambda: agent.input("file")["judged"] == lines)
    bare, asked = lines, 0
    for number in range(1, KILLS + 1):
        tables.append(center.table("users", [("alice", f"owner {number}"), ("carol", "x")]))
        bundle = center.bundle(number, tables[-1])
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(center.push, tables[-1], bundle), pool.submit(logins, 60)]
            time.sleep(rng.uniform(0.0, 2.5))
            agent.kill()
            reborn(agent, rng)
            agent.ready()
            for one in work:
                one.result()
        until_in_use(agent, number, tables[-1])
        until("the rule of the first set", lambda: agent.status()["rules"]["running"] == 3)
        asked = asked or lines
        logins(10)
    healthy(agent)
    agent.settled(lines, name="file")
    assert agent.input("file")["dropped"] == {}
    assert len(agent.stored("file")) == lines
    seen: dict[str, Any] = {}
    for row in landed(landing.folder):
        content = (row["rule_id"], row["rule_title"], row["flags"], sorted(dict(row["fields"]).items()))
        assert seen.setdefault(row["alert_id"], content) == content  # one that is sent twice is the same one
    owners = {f"users@{version(table)[:12]}": f"owner {n}" for n, table in enumerate(tables, 1)}
    rows = agent.alerts(landing.folder)
    by_rule: dict[str, set[int]] = {}
    for row in rows:
        fields = dict(row["fields"])
        offsets = by_rule.setdefault(row["rule_id"][-2:], set())
        assert row["raw_ref"]["offset"] not in offsets
        offsets.add(row["raw_ref"]["offset"])
        if "users.lookup" in fields:
            assert fields["users.owner"] == owners[fields["users.lookup"]]
            assert not row["flags"]
        else:
            assert "enrichment_missing" in row["flags"]
            assert row["rule_id"].endswith("78")
    plain = sorted(by_rule["78"])
    assert len(plain) == lines
    assert sum("enrichment_missing" in (row["flags"] or ()) for row in rows) >= bare
    for asking in ("77", "79"):  # from the first version of lookup and set on, every login
        assert sorted(by_rule[asking]) == plain[-len(by_rule[asking]) :]
        assert len(by_rule[asking]) >= lines - asked
