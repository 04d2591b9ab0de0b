"""A signed bundle of 100 statements, pushed over a real broker to an agent while lines flow: changed, rolled back, and
with a statement that fails."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker, running
from tests.e2e.agent import Agent, vedette
from tests.e2e.test_correlation import line
from tests.e2e.test_statements import TABLE
from tests.meanwhile import meanwhile
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]

NUMBER, CHANGED = 100, 77
SLOW = "a" * 60 + "b"
"""What the pattern of ``FAILING`` takes too long on."""
FAILING = "SELECT src, ts FROM door WHERE REGEXP(ev, '^(a|aa)+$')"


def identity(number: int) -> str:
    return f"6a1f0000-0000-4000-8000-{number:012}"


def fails(number: int, also: str = "") -> str:
    """Half of them share what they count, the others have a condition of their own."""
    own = f" AND door <> {1000 + number}" if number >= NUMBER // 2 else ""
    return f"""SELECT src, window_start, window_end, COUNT(*) AS fails
        FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' HOUR))
        WHERE ev = 'fail'{own}{also} GROUP BY window_start, window_end, src HAVING COUNT(*) >= {number % 5}"""


def written(statements: Mapping[int, str]) -> str:
    return TABLE + "".join(
        f"\n-- title: Statement {number}\n-- id: {identity(number)}\n-- level: high\nINSERT INTO alerts {query};\n"
        for number, query in statements.items()
    )


def titled(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((row["rule_title"], json.dumps(row["fields"], sort_keys=True)) for row in rows)


class Pushed:
    """An agent on one JSON file, with the bundles that ``push`` publishes."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker, self.file, self._key = folder, broker, folder / "door.json", folder / "region.pem"
        self.file.touch()
        public = vedette("bundle", "keygen", self._key).stdout.strip()
        self.agent = Agent(folder / "a", rules=None)
        self.agent.configure(
            f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{self.file}"]\nformat = "json"\n'
            f'logsource = {{ product = "door" }}\n[bundles]\ntrusted_keys = ["{public}"]\n'
            f'[broker]\nurl = "{broker.url}"\n[uplink]\ntype = "mqtt"\n'
        )
        self._adding = threading.Lock()

    def push(self, version: int, statements: Mapping[int, str]) -> None:
        """Publish, and wait until they run."""
        rules, bundle = self.folder / f"{version}.sql", self.folder / f"{version}.vbundle"
        rules.write_text(written(statements))
        vedette("bundle", "build", rules, "-o", bundle, "--version", version, "--name", "rules")
        self.publish(bundle)
        self.runs(version)

    def publish(self, bundle: Path) -> None:
        vedette("bundle", "sign", bundle, "--key", self._key, "--fleet", "f1", "--channel", "stable")
        vedette("region", "publish", bundle, "--broker", self.broker.url)

    def runs(self, version: int) -> None:
        until(f"version {version}", lambda: self.agent.status()["bundle"] == f"rules-{version}")
        assert self.agent.status()["rules"]["statements"] == NUMBER

    def add(self, *lines: bytes) -> None:
        with self._adding, self.file.open("ab") as file:
            file.write(b"".join(lines))

    def settled(self) -> None:
        """Until all lines so far are evaluated; the alerts of all wait for a landing."""
        lines = self.file.read_bytes().count(b"\n")
        until("all lines to be evaluated", lambda: self.agent.alive() and self.agent.input()["judged"] >= lines)

    def started_empty(self) -> list[str]:
        found: list[str] = self.agent.status()["correlation_state"]["started_empty"]
        return found

    def titled_alerts(self) -> Counter[tuple[str, str]]:
        """Title and fields of each alert."""
        rows = vedette("alerts", "-c", self.agent.config, "--json", "-n", 10_000).stdout.splitlines()
        return titled(map(json.loads, rows))

    def flowing(self) -> AbstractContextManager[None]:
        """Lines that no statement counts go on coming, all within a few seconds of the events' time."""
        return meanwhile(lambda number: self.add(line(10 + number % 1000 / 1000, "other", "flow")), 0.01)


@pytest.fixture
def pushed(tmp_path: Path) -> Iterator[Pushed]:
    with running(tmp_path / "broker") as broker:
        made = Pushed(tmp_path, broker)
        made.agent.up()
        try:
            yield made
        finally:
            made.agent.kill()


def test_an_update_and_a_rollback(pushed: Pushed) -> None:
    """What has not changed counts on over both; what has begins empty, each time, and the status says which."""
    first = {number: fails(number) for number in range(NUMBER)}
    with pushed.flowing():
        pushed.push(1, first)
        pushed.add(*(line(11, "fail", "a", door) for door in range(2)))
        pushed.settled()
        pushed.push(2, first | {CHANGED: fails(CHANGED, " AND door >= 0")})
        assert pushed.started_empty() == [identity(CHANGED)]
        pushed.add(*(line(11, "fail", "a", door) for door in range(3)))
        pushed.settled()
        vedette("bundle", "rollback", "-c", pushed.agent.config)
        pushed.runs(1)
        assert pushed.started_empty() == [identity(CHANGED)]
        pushed.add(*(line(11, "fail", "a", door) for door in range(4)))
        pushed.settled()
    pushed.add(line(7200, "other", "b"))
    until("the rows", lambda: pushed.titled_alerts().total() >= NUMBER)
    pushed.settled()
    given = pushed.titled_alerts()
    found = {title: json.loads(fields)["fails"] for title, fields in given}
    assert given.total() == len(found) == NUMBER
    assert found == {f"Statement {number}": "4" if number == CHANGED else "9" for number in range(NUMBER)}
    assert pushed.agent.input()["dropped"] == {}


def test_one_that_fails(pushed: Pushed) -> None:
    """It goes into quarantine, and the alerts of the 99 others are those that ``scan`` gives without it."""
    others = {number: fails(number) for number in range(NUMBER) if number != CHANGED}
    with pushed.flowing():
        pushed.push(1, others | {CHANGED: FAILING})
        pushed.add(*(line(11, "fail", f"10.0.0.{n % 9}", n % 4) for n in range(30)))
        pushed.add(*(line(11 + n / 10, SLOW, "slow") for n in range(15)))
        (told,) = until("the quarantine", lambda: pushed.agent.status()["rules"]["quarantined"])
        pushed.add(*(line(12, "fail", f"10.0.0.{n % 7}", n % 4) for n in range(30)))
    pushed.add(line(7200, "other", "b"))
    rules = pushed.folder / "others.sql"
    rules.write_text(written(others))
    scanned = vedette("scan", "--rules", rules, "--product", "door", "--format", "json", pushed.file).stdout
    expected = titled(map(json.loads, scanned.splitlines()))
    until("the rows", lambda: pushed.titled_alerts().total() >= expected.total())
    pushed.settled()
    assert (told["rule_id"], told["title"]) == (identity(CHANGED), f"Statement {CHANGED}")
    assert "a regular expression took longer" in told["reason"]
    assert pushed.titled_alerts() == expected
    assert {title for title, _ in expected} == {f"Statement {number}" for number in others}


MODULES = {
    "kept": "twice = udf(lambda n: n * 2, result_type=DataTypes.INT())\n",
    "changed": "scaled = udf(lambda n: n * {factor}, result_type=DataTypes.INT())\n",
}
FUNCTIONS = """
CREATE TEMPORARY FUNCTION twice AS 'kept.twice' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION scaled AS 'changed.scaled' LANGUAGE PYTHON;
"""


def summed(number: int, name: str) -> str:
    return f"""
-- title: {name}
-- id: {identity(number)}
INSERT INTO alerts SELECT src, COUNT(*) AS fails, SUM({name}(door)) AS doors
FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' HOUR))
WHERE ev = 'fail' GROUP BY window_start, window_end, src;
"""


def push_functions(pushed: Pushed, version: int, factor: int) -> None:
    rules, bundle = pushed.folder / f"rules-{version}", pushed.folder / f"functions-{version}.vbundle"
    (rules / "functions").mkdir(parents=True)
    (rules / "door.sql").write_text(TABLE + FUNCTIONS + summed(1, "twice") + summed(2, "scaled"))
    head = "from pyflink.table import DataTypes\nfrom pyflink.table.udf import udf\n"
    for name, text in MODULES.items():
        (rules / "functions" / f"{name}.py").write_text(head + text.format(factor=factor))
    vedette("bundle", "build", "--functions", rules, "-o", bundle, "--version", version, "--name", "rules", "--strict")
    pushed.publish(bundle)
    until(f"version {version}", lambda: pushed.agent.status()["bundle"] == f"rules-{version}")


def test_a_function_that_changes(pushed: Pushed) -> None:
    """A push with other code of one function, while lines flow: the statement that calls it begins empty, one that
    calls another module counts on. Rolled back, the earlier code runs, from the beginning. Each row is of one code."""
    pushed.agent.config.write_text(pushed.agent.config.read_text() + "[functions]\nallow = true\n")
    pushed.agent.kill()
    pushed.agent.up()
    with pushed.flowing():
        push_functions(pushed, 1, factor=10)
        pushed.add(*(line(11, "fail", "a", 1) for _ in range(2)))
        pushed.settled()
        push_functions(pushed, 2, factor=1000)
        assert pushed.started_empty() == [identity(2)]
        pushed.add(*(line(11, "fail", "a", 1) for _ in range(3)))
        pushed.settled()
        vedette("bundle", "rollback", "-c", pushed.agent.config)
        until("the rollback", lambda: pushed.agent.status()["bundle"] == "rules-1")
        assert pushed.started_empty() == [identity(2)]
        pushed.add(*(line(11, "fail", "a", 1) for _ in range(4)))
        pushed.settled()
    pushed.add(line(7200, "other", "x"), line(7300, "other", "x"))
    pushed.settled()
    until("the end of the hour", lambda: len(pushed.titled_alerts()) == 2)
    rows = {title: json.loads(fields) for title, fields in pushed.titled_alerts()}
    status = pushed.agent.status()["statement_state"]
    assert rows["twice"] == {"src": "a", "fails": "9", "doors": "18"}
    assert rows["scaled"] == {"src": "a", "fails": "4", "doors": "40"}
    assert not any(one["failed"] for one in status["statements"])
    assert status["functions"]["processes"] == 2
