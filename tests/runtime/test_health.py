"""Why an agent is not OK: each thing that keeps it from its work is a reason, and nothing else is."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.differences import walk
from vedette.runtime.agent.health import headline, problems

WELL: dict[str, Any] = {
    "input_states": [
        {"name": "in", "state": "works", "reason": ""},
        {"name": "web", "state": "waiting", "reason": "no file matches yet"},
    ],
    "config": {"error": None},
    "rules": {
        "error": None,
        "quarantined_count": 0,
        "quarantined": [],
        "formats": [{"name": "shop", "missing": False, "quarantined": False}],
    },
    "rulesets": [
        {"name": "default", "refused": 0, "dead": ["b.yml:1: waits (B)"]},
        {
            "name": "own",
            "refused": 0,
            "dead": [],
            "quarantined": 0,
            "lag_seconds": 299.0,
            "process": {"starts_again_in": 0, "last_death": "killed", "without_plugins": []},
        },
    ],
    "lag_seconds": 12.5,
    "identity_broken": [],
    "disk": {"failing": {}},
    "raw_log": {"full": False, "damaged": 0},
    "uplink": {"type": "mqtt", "broker": "mqtts://b", "connected": True},
    "budgets": {"outbox": {"reached": False}},
    "sinks": [{"name": "hook", "failing": False, "error": None}],
    "row_sinks": [{"name": "lake", "failing": False, "error": None}],
    "statement_state": {"for_sinks": [{"title": "Readings", "sink": "lake"}]},
    "plugins": [{"plugin": "acme:one", "kind": "sinks", "used": "sink s", "quarantined": False, "error": "once"}],
    "archive": {"failing": False, "error": None},
    "response": None,
    "membership": {"problem": None},
    "actual": {"problems": []},
}

FAULTS: dict[str, tuple[str, Any]] = {
    "input in: port taken": ("input_states.0", {"name": "in", "state": "failing", "reason": "port taken"}),
    "the last reload was refused: log.level": ("config.error", "log.level"),
    "the last change of rules was refused: bad": ("rules.error", "bad"),
    "sink lake: no disk": ("row_sinks.0", {"name": "lake", "failing": True, "error": "no disk"}),
    "the statement Readings makes no rows: no sink pond takes any": ("statement_state.for_sinks.0.sink", "pond"),
    "no rule set has the format shop": ("rules.formats.0.missing", True),
    "the format shop is in quarantine": ("rules.formats.0.quarantined", True),
    "2 rules of rule set default do not run: a.yml:3: is bad (A)": (
        "rulesets.0",
        {"name": "default", "refused": 2, "dead": ["a.yml:3: is bad (A)", "a.yml:9: is bad (C)", "b.yml:1: waits (B)"]},
    ),
    "the process of rule set own does not run: killed": ("rulesets.1.process.starts_again_in", 2.5),
    "2 rules or formats of rule set own in quarantine": ("rulesets.1.quarantined", 2),
    "rule set own does without the plugin acme:one 1, which killed its process again and again": (
        "rulesets.1.process.without_plugins",
        ["acme:one 1"],
    ),
    "evaluation is 25 minutes behind": ("lag_seconds", 1500.0),
    "evaluation of rule set own is 10 minutes behind": ("rulesets.1.lag_seconds", 600.0),
    "in: received 3 != stored 2": ("identity_broken", ["in: received 3 != stored 2"]),
    "disk: sync: No space left": ("disk.failing", {"sync": {"reason": "No space left"}}),
    "the raw log is full: inputs wait": ("raw_log.full", True),
    "2 places in the raw log cannot be read": ("raw_log.damaged", 2),
    "the uplink is not connected to mqtts://b": ("uplink.connected", False),
    "the uplink to mqtts://b was connected again and again: taken over": ("uplink.reason", "taken over"),
    "mqtts://b refuses vedette/v1/f/a/alerts: not authorised": (
        "uplink.refused",
        {"vedette/v1/f/a/alerts": "not authorised"},
    ),
    "alerts have waited 21 minutes for a receipt: does a landing run?": ("uplink.unanswered", 1290),
    "alerts cannot be written into /landing: denied": (
        "uplink",
        {"type": "directory", "folder": "/landing", "connected": False, "reason": "denied"},
    ),
    "the outbox is full: events wait to be evaluated": ("budgets.outbox.reached", True),
    "sink hook: refused": ("sinks.0", {"name": "hook", "failing": True, "error": "refused"}),
    "the plugin acme:one of sink s is in quarantine": ("plugins.0.quarantined", True),
    "archive: denied": ("archive", {"failing": True, "error": "denied"}),
    "response: nft": ("response", {"problem": "nft"}),
    "membership: expired": ("membership.problem", "expired"),
    "fleet: no such bundle": ("actual.problems", ["no such bundle"]),
}


def changed(place: str, value: Any) -> dict[str, Any]:
    status = deepcopy(WELL)
    *way, last = place.split(".")
    part: Any = status
    for step in way:
        part = part[int(step) if step.isdigit() else step]
    part[int(last) if last.isdigit() else last] = value
    return status


def test_a_quiet_agent_is_well() -> None:
    """An input that waits for its file, a plugin that failed once, an agent without fleet, archive and response."""
    assert problems(WELL) == []
    optional = ("archive", "response", "membership", "actual")
    assert problems({name: part for name, part in WELL.items() if name not in optional}) == []
    assert headline([]) == "OK"


@walk("reason", [*FAULTS])
def test_each_fault_is_a_reason(reason: str) -> None:
    assert problems(changed(*FAULTS[reason])) == [reason]


def test_all_reasons_are_named() -> None:
    status = changed("config.error", "a")
    status["rules"].update(quarantined_count=3, quarantined=[{"title": "Slow"}])
    assert headline(problems(status)) == "NOT OK: the last reload was refused: a; 3 rules in quarantine: Slow, …"
