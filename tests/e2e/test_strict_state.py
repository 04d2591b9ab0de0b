"""What a strict set remembers and how it comes back: folded alerts, functions in Python, a store that is made again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import msgpack
import pytest

from bench.send import tcp
from tests.e2e.agent import Agent, vedette
from tests.e2e.test_correlation import line
from tests.e2e.test_functions import ALLOW, MODULE, STATEMENTS, sql
from tests.e2e.test_rules import mark, rule
from tests.e2e.test_rulesets import THRICE, sets
from tests.e2e.test_strict import configured, evaluated, process, running
from tests.waits import until
from vedette.store.store import OfSet, Store

pytestmark = [pytest.mark.peer, pytest.mark.long]


def counted(agent: Agent) -> Counter[str]:
    """The matches of each rule: alerts that left at once, and those that the records of folded ones count. On a busy
    machine six seconds of folding may end before the sixth match, so that the rest has an alert and a record, too."""
    found = Counter[str]()
    for row in agent.alerts():
        found[row["rule_title"]] += row["count"] if row["kind"] == "fold" else 1
    return found


def test_folds(tmp_path: Path) -> None:
    """Repeated alerts of a strict set are folded: the first leaves at once, and the record, which a kill of the process
    and one of the agent do not touch, counts all the others and names the first."""
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    configured(agent, rule(tmp_path / "site", "site", 3).parent, more='[[suppress]]\nby = ["host"]\nfor = "6s"\n')
    agent.up()
    try:
        running(agent)
        for number in range(6):
            mark(agent, "site")
            mark(agent, "own")
            until("both lines", lambda number=number: agent.input()["stored"] == 2 * number + 2)
            evaluated(agent)
            if number == 2:
                os.kill(running(agent)["pid"], signal.SIGKILL)
                until("its death", lambda: process(agent)["deaths"] == 1)
                running(agent)
            if number == 3:
                agent.kill()
                agent.up()
                running(agent)
        until("all to be counted", lambda: counted(agent) == {"Marker own": 6, "Marker site": 6})
        rows = agent.alerts()
    finally:
        agent.kill()
    folds, first = ([row for row in rows if (row["kind"] == "fold") == fold] for fold in (True, False))
    assert {row["rule_title"] for row in folds} == {"Marker own", "Marker site"}
    assert {row["parent_id"] for row in folds} <= {row["alert_id"] for row in first}
    by_rule = {title: [row for row in rows if row["rule_title"] == title] for title in ("Marker own", "Marker site")}
    assert {row["bundle"] for row in by_rule["Marker site"]} == {"site"}


def test_functions(tmp_path: Path) -> None:
    """Statements of a strict set call functions in Python: over kills of its process and of the child, values, rows and
    accumulators are those of ``scan``; no child is left behind."""
    site, file = tmp_path / "site", tmp_path / "door.json"
    (site / "functions").mkdir(parents=True)
    (site / "functions" / "own.py").write_text(MODULE)
    (site / "door.sql").write_text(sql(STATEMENTS))
    file.touch()
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{file}"]\nformat = "json"\n'
        f'logsource = {{ product = "door" }}\n{ALLOW}'
        f'[[ruleset]]\nname = "site"\npaths = ["{site}"]\nisolation = "strict"\n'
    )
    agent.up()
    second, pids = 0.0, set[int]()

    def children() -> list[int]:
        """The processes that run functions for the set's process."""
        parent, found = process(agent)["pid"], []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent and b"vedette.udf.worker" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except (OSError, ValueError):
                continue
        return found

    try:
        assert sets(agent)["site"]["statements"] == len(STATEMENTS)
        running(agent)
        for kill in range(3):
            with file.open("ab") as out:
                for number in range(300):
                    second += 1 + number % 2
                    out.write(line(second, ("fail", "open")[number % 5 == 0], f"10.0.{number % 2 * 10}.{number % 12}",
                                   number % 4))  # fmt: skip
            found = until("a child", children)
            pids.update(found)
            for pid in (found, [running(agent)["pid"]], [])[kill]:
                os.kill(pid, signal.SIGKILL)
        with file.open("ab") as out:
            out.write(line(second + 3600, "other", "x") + line(second + 7200, "other", "y"))
        done = vedette("scan", "--functions", "--rules", site, "--format", "json", file).stdout
        wanted = Counter(
            (row["rule_title"], json.dumps(row["fields"], sort_keys=True))
            for row in map(json.loads, done.splitlines())
            if dict(row["fields"]).get("src") != "y"  # its windows end with the file
        )

        def titled() -> Counter[tuple[str, str]]:
            return Counter(
                (row["rule_title"], json.dumps(dict(row["fields"]), sort_keys=True)) for row in agent.alerts()
            )

        until("the alerts", lambda: sum(titled().values()) >= sum(wanted.values()))
        evaluated(agent)
        assert titled() == wanted
        assert process(agent)["quarantined"] == []
        pids.update(children())
        assert agent.stop() == 0
    finally:
        agent.kill()
    assert {title for title, _ in wanted} == {*STATEMENTS}
    until("the end of the children", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_functions_that_are_not_allowed(tmp_path: Path) -> None:
    """Without [functions] allow the set's statements that call them do not run, its line says how many, and its rules
    run."""
    site = rule(tmp_path / "site", "site", 3).parent
    (site / "functions").mkdir()
    (site / "functions" / "own.py").write_text(MODULE)
    (site / "door.sql").write_text(sql(STATEMENTS))
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    configured(agent, site)
    agent.up()
    try:
        running(agent)
        mark(agent, "site")
        until("the alert", lambda: [row["rule_title"] for row in agent.alerts()] == ["Marker site"])
        row = sets(agent)["site"]
        assert row["dead_count"] == len(STATEMENTS), row
    finally:
        agent.kill()


def test_store_made_again(tmp_path: Path) -> None:
    """The store is gone: the set goes on where it was settled, makes its alerts again under the same ids and loses no
    event, its account adds up, and its correlation counts from there on."""
    path = rule(tmp_path / "site", "site", 3)
    path.write_text(path.read_text() + THRICE.format(word="site", number=4, of=3) + "generate: true\n")
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent, segment_bytes=4 << 10)
    configured(agent, tmp_path / "site")
    agent.up()
    try:
        running(agent)
        for number in range(40):
            word = ("own", "site")[number % 2]
            tcp(("127.0.0.1", agent.port), f"<13>Nov 20 10:00:00 web1 app: marker-{word} {'x' * 300}\n".encode())
        agent.settled()
        before, account = {row["alert_id"]: row for row in agent.alerts()}, evaluated(agent)
        assert account["judged"] == 40
        agent.kill()
        shutil.rmtree(agent.data / "store")
        agent.up()
        assert agent.said("store_rebuilt")
        running(agent)
        assert evaluated(agent) == account
        for _ in range(3):
            mark(agent, "site")
        until("later alerts", lambda: len([one for one in agent.alerts() if one["alert_id"] not in before]) >= 3)
        agent.settled()
        account = evaluated(agent)
        rows = agent.alerts()
    finally:
        agent.kill()
    assert (account["stored"], account["judged"], account["lost"]) == (43, 43, {})
    again = {row["alert_id"]: row for row in rows}
    for title in ("Marker own", "Marker site"):
        assert {one for one in before if before[one]["rule_title"] == title} <= {*again}, title
    assert len([row for row in again.values() if row["rule_title"] == "Marker site"]) == 23


def test_state_that_cannot_be_read(tmp_path: Path) -> None:
    """After a version that writes its state otherwise, the set's correlations start empty, not with a part of what they
    remembered; its cursor stays."""
    path = rule(tmp_path / "site", "site", 3)
    path.write_text(path.read_text() + THRICE.format(word="site", number=4, of=3) + "generate: true\n")
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    configured(agent, tmp_path / "site")
    agent.up()
    try:
        running(agent)
        for count in (1, 2):
            mark(agent, "site")
            until("its alert", lambda count=count: len(agent.alerts()) == count)
        evaluated(agent)
        assert agent.stop() == 0
        with Store.open(agent.data / "store") as store:
            form, log_id, *rest = msgpack.unpackb([*store.of_set("site").parts()][-1])
            saved = store.load()
            part = OfSet("site", msgpack.packb([form + 1, log_id, *rest]), False, False)
            store.commit(saved.cursor, saved.counters, [], [], sets=[part])
        agent.up()
        running(agent)
        assert agent.said("state_lost")
        for count in (3, 4, 5):
            mark(agent, "site")
            until("its alert", lambda count=count: len(agent.alerts()) >= count)
            if count == 4:
                evaluated(agent)
                assert "Three of site" not in {row["rule_title"] for row in agent.alerts()}
        until("the correlation", lambda: "Three of site" in {row["rule_title"] for row in agent.alerts()})
        assert evaluated(agent)["judged"] == 5
    finally:
        agent.kill()
