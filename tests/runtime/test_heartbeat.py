"""The status as it goes to the region."""

from __future__ import annotations

from typing import Any

import orjson

from vedette.delivery.envelope import MAX_MESSAGE, status_row
from vedette.region.steer import vitals
from vedette.runtime.agent.heartbeat import HEARTBEAT_BYTES, LISTED, TEXT, heartbeat

NO_RULES = {"dead": [], "dead_count": 0, "waiting": {}, "undecided": {}, "quarantined": [], "quarantined_count": 0}


def status(**more: Any) -> dict[str, Any]:
    """Of an agent without rules."""
    return {
        "agent_id": "a1",
        "time": 60_000_000,
        "started_at": 1,
        "seq_high": 7,
        "lag_seconds": 0.5,
        "problems": [],
        "input_states": [{"name": "in", "state": "works", "reason": ""}],
        "inputs": {"in": {"received": 9, "stored": 8, "judged": 7, "dropped": {"framing": 1}, "lost": {}}},
        "totals": {"undecided": 3},
        "alerts": {"made": 5, "in_outbox": 2, "lost": 1},
        "rules": {"running": 9_000, "alerts": {"r1": 5}, **NO_RULES},
        "rulesets": [],
        "lookups": {"in_use": [], "incoming": [], "refused": []},
        "correlation_state": {"groups": 3, "started_empty": [], "correlations": []},
        "statement_state": {"bytes": 5, "statements": [], "without_functions": [], "for_sinks": []},
        "budgets": {"memory": {"unit": "bytes", "used": 77, "max": 99, "reached": False, "action": "none"}},
        "process": {"cpu_seconds": 1.5, "crashes": 0},
        "actual": {"labels": {"site": "s1"}, "problems": ["p" * 300] * 20},
        **more,
    }


def sent(of: dict[str, Any]) -> dict[str, Any]:
    row = status_row(heartbeat(of), fleet="f1", agent_id="a1", received_at=0, collector_id="c", topic="t")
    found: dict[str, Any] = orjson.loads(row["payload"])
    return found


def of_many_rules(count: int = 1_000, text: str = "t" * 1_000) -> dict[str, Any]:
    """Each list of it as long as rules can make it."""
    faults, waiting = [f"{i}: {text}" for i in range(100)], [f"w{i}: {text}" for i in range(100)]
    idle = {"groups": 0, "fired": 0, "late": 0, "ungrouped": 0}
    reason = {"title": text, "reason": text}
    renamed = {f"{i}": f"{i}@own" for i in range(50)}
    lookups = [{"name": f"l{i}", "reason": text} for i in range(200)]
    return status(
        rules={
            **NO_RULES, "running": count, "alerts": {f"r{i}": 5 for i in range(20)}, "dead": faults + waiting,
            "dead_count": 100 + count, "waiting": {f"/iot/{i}": count // 10 for i in range(10)},
            "undecided": {f"u{i}": i for i in range(count)}, "quarantined": [reason] * 200, "quarantined_count": count,
        },
        rulesets=[
            {"name": "default", "dead": [*faults[:30], *waiting[:20]], "dead_count": count, "renamed": {}},
            {"name": "own", "dead": [f"own {text}"], "dead_count": 1, "renamed": renamed},
        ],
        lookups=dict.fromkeys(("in_use", "incoming", "refused"), lookups),
        correlation_state={
            "groups": 3, "started_empty": [text] * count,
            "correlations": [{"rule_id": f"c{i}", "title": text, **idle, "groups": i % 999} for i in range(count)],
        },
        statement_state={
            "bytes": 5, "statements": [{"rule_id": f"s{i}", "title": text, "bytes": i} for i in range(count)],
            "without_functions": [{"rule_id": "f", "title": text}] * count,
            "for_sinks": [],
        },
    )  # fmt: skip


def test_what_rules_list_is_sent_in_brief() -> None:
    """However many rules there are: of each list the rows that say most, and how many it has."""
    whole = of_many_rules()
    found = sent(whole)
    rules, state, sql = found["rules"], found["correlation_state"], found["statement_state"]
    assert len(heartbeat(whole)) < 32_000 < len(orjson.dumps(whole)) / 100
    assert [one[:3] for one in rules["dead"]] == ["0: ", "1: ", "2: ", "3: ", "4: "]  # none that only waits
    assert (len(rules["dead"][0]), rules["dead_count"]) == (TEXT, 1_100)
    assert (len(rules["waiting"]), rules["waiting_count"]) == (LISTED, 10)
    assert rules["undecided"] == {f"u{i}": i for i in range(999, 994, -1)}
    assert (rules["undecided_count"], len(rules["quarantined"]), rules["quarantined_count"]) == (1_000, LISTED, 1_000)
    assert [len(one["dead"]) for one in found["rulesets"]] == [0, 1]  # each reason once
    assert [len(one["renamed"]) for one in found["rulesets"]] == [0, LISTED]
    assert [one["groups"] for one in state["correlations"]] == [998, 997, 996, 995, 994]
    assert (state["groups"], state["correlations_count"], state["started_empty_count"]) == (3, 998, 1_000)
    assert [one["rule_id"] for one in sql["statements"]] == ["s999", "s998", "s997", "s996", "s995"]
    assert (sql["bytes"], sql["statements_count"], sql["without_functions_count"]) == (5, 1_000, 1_000)
    assert (len(found["lookups"]["refused"]), found["lookups"]["refused_count"]) == (LISTED, 200)


def test_rules_that_only_wait_are_counted_not_named() -> None:
    """So is a correlation that has seen nothing."""
    rules = {**NO_RULES, "dead": ["a", "b"], "dead_count": 2, "waiting": {"/iot/mqtt": 2}, "alerts": {}}
    row = {"rule_id": "c", "title": "t", "groups": 0, "fired": 0, "late": 0, "ungrouped": 0}
    state = {"groups": 0, "started_empty": [], "correlations": [row, {**row, "ungrouped": 1}]}
    set_row = {"name": "default", "dead": ["a", "b"], "dead_count": 2, "renamed": {}}
    found = sent(status(rules=rules, rulesets=[set_row], correlation_state=state))
    assert (found["rules"]["dead"], found["rules"]["waiting"]) == ([], {"/iot/mqtt": 2})
    assert found["rulesets"] == [{**set_row, "dead": []}]
    assert found["correlation_state"] == {
        "groups": 0,
        "started_empty": [],
        "correlations": [{"rule_id": "c", "groups": 0, "fired": 0, "late": 0, "ungrouped": 1}],
    }


def test_what_the_region_reads_is_sent_whole() -> None:
    """The figures of the gates, the account of each input, what the agent has in force, and the alerts by rule."""
    whole = of_many_rules()
    found = sent(whole)
    for name in ("inputs", "totals", "alerts", "process", "actual", "lag_seconds", "seq_high", "time"):
        assert found[name] == whole[name]
    assert found["rules"]["alerts"] == whole["rules"]["alerts"]
    assert vitals.read(found) == vitals.read(whole) is not None
    assert vitals.read(found).quarantined == 1_000  # type: ignore[union-attr]  # the line above: it is one


def test_each_input_is_sent_with_its_state() -> None:
    """However many there are; what is wrong as the other lists, with its number."""
    states = [{"name": f"i{number}", "state": "failing", "reason": "r" * 300} for number in range(9)]
    found = sent(status(input_states=states, problems=[f"input i{number}" for number in range(9)]))
    assert [row["name"] for row in found["input_states"]] == [f"i{number}" for number in range(9)]
    assert {len(row["reason"]) for row in found["input_states"]} == {TEXT}
    assert (len(found["problems"]), found["problems_count"]) == (LISTED, 9)


def test_the_action_of_a_budget_is_sent_while_it_is_under_way() -> None:
    row = {"unit": "bytes", "used": 1, "max": 1, "action": "wait"}
    found = sent(status(budgets={"a": {**row, "reached": True}, "memory": {**row, "reached": False}}))["budgets"]
    assert found["a"] == {**row, "reached": True}
    assert found["memory"] == {"used": 1, "max": 1, "reached": False}


def test_a_heartbeat_is_bounded() -> None:
    """One that is longer than the region reads has no lists."""
    assert HEARTBEAT_BYTES == MAX_MESSAGE
    row = {"dead": [], "dead_count": 0, "renamed": {"a": "a@site"}, "process": {"inputs": {"i" * 900: {}}}}
    state = {
        "groups": 3,
        "started_empty": ["t"],
        "correlations": [{"groups": 1, "fired": 0, "late": 0, "ungrouped": 0}],
    }
    whole = status(rulesets=[{"name": f"s{i}", **row} for i in range(1_200)], correlation_state=state)
    assert len(orjson.dumps(whole)) > HEARTBEAT_BYTES > len(heartbeat(whole))
    found = sent(whole)
    assert found["rulesets"][3] == {"name": "s3", "dead": [], "dead_count": 0, "renamed": {}}
    assert found["correlation_state"] == {
        "groups": 3, "started_empty": [], "started_empty_count": 1, "correlations": [], "correlations_count": 1,
    }  # fmt: skip
