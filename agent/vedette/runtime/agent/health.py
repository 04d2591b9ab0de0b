"""What is wrong with a running agent, from its status: why the first line of ``vedette status`` is ``NOT OK``.

A problem keeps the agent, now, from taking in, evaluating, keeping or handing on what its owner asks for. A quiet input
is none, nor one whose file is not there yet, a rule that waits for an input, or what is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vedette.inputs.condition import BEHIND_SECONDS

TEXT = 200
"""Characters of why a rule does not run."""


def problems(status: Mapping[str, Any]) -> list[str]:
    """In words, a line each; empty: the agent is well."""
    return [*_inputs(status), *_rules(status), *_behind(status), *_disk(status), *_outward(status)]


def headline(reasons: list[str]) -> str:
    return f"NOT OK: {'; '.join(reasons)}" if reasons else "OK"


def _inputs(status: Mapping[str, Any]) -> Iterator[str]:
    for row in status["input_states"]:
        if row["state"] == "failing":
            yield f"input {row['name']}: {row['reason']}"
    if error := status["config"]["error"]:
        yield f"the last reload was refused: {error}"


def _rules(status: Mapping[str, Any]) -> Iterator[str]:
    rules = status["rules"]
    if rules["error"]:
        yield f"the last change of rules was refused: {rules['error']}"
    if rows := rules["quarantined"]:
        count = rules["quarantined_count"]
        yield f"{count} rules in quarantine: {rows[0]['title']}{', …' if count > 1 else ''}"
    for row in rules["formats"]:
        if row["missing"]:
            yield f"no rule set has the format {row['name']}"
        elif row["quarantined"]:
            yield f"the format {row['name']} is in quarantine"
    for row in status["rulesets"]:
        if count := row["refused"]:
            yield f"{count} rules of rule set {row['name']} do not run: {row['dead'][0]:.{TEXT}}"
        if (process := row.get("process")) is None:
            continue
        if process["starts_again_in"]:
            yield f"the process of rule set {row['name']} does not run: {process['last_death']}"
        if count := row["quarantined"]:
            yield f"{count} rules or formats of rule set {row['name']} in quarantine"
        for part in process["without_plugins"]:
            yield f"rule set {row['name']} does without the plugin {part}, which killed its process again and again"


def _disk(status: Mapping[str, Any]) -> Iterator[str]:
    yield from status["identity_broken"]
    for part, row in status["disk"]["failing"].items():
        yield f"disk: {part}: {row['reason']}"
    log = status["raw_log"]
    if log["full"]:
        yield "the raw log is full: inputs wait"
    if log["damaged"]:
        yield f"{log['damaged']} places in the raw log cannot be read"


def _behind(status: Mapping[str, Any]) -> Iterator[str]:
    if status["lag_seconds"] > BEHIND_SECONDS:
        yield f"evaluation is {status['lag_seconds'] / 60:.0f} minutes behind"
    for row in status["rulesets"]:
        if row.get("process") and row["lag_seconds"] > BEHIND_SECONDS:
            yield f"evaluation of rule set {row['name']} is {row['lag_seconds'] / 60:.0f} minutes behind"


def _outward(status: Mapping[str, Any]) -> Iterator[str]:
    uplink = status["uplink"]
    why = f": {uplink['reason']}" if uplink.get("reason") else ""
    if uplink.get("connected") is False and "folder" in uplink:
        yield f"alerts cannot be written into {uplink['folder']}{why}"
    elif uplink.get("connected") is False:
        yield f"the uplink is not connected to {uplink['broker']}{why}"
    elif why:
        yield f"the uplink to {uplink['broker']} was connected again and again{why}"
    for topic, reason in uplink.get("refused", {}).items():
        yield f"{uplink['broker']} refuses {topic}: {reason}"
    if seconds := uplink.get("unanswered"):
        yield f"alerts have waited {seconds // 60} minutes for a receipt: does a landing run?"
    if status["budgets"]["outbox"]["reached"]:
        yield "the outbox is full: events wait to be evaluated"
    for row in status["statement_state"]["for_sinks"]:
        if all(sink["name"] != row["sink"] for sink in status["row_sinks"]):
            yield f"the statement {row['title']} makes no rows: no sink {row['sink']} takes any"
    for row in (*status["sinks"], *status["row_sinks"]):
        if row["failing"]:
            yield f"sink {row['name']}: {row['error']}"
    for row in status["plugins"]:
        if row["quarantined"] and row["kind"] != "inputs":
            yield f"the plugin {row['plugin']} of {row['used']} is in quarantine"
    if (archive := status.get("archive")) and archive["failing"]:
        yield f"archive: {archive['error']}"
    if (response := status.get("response")) and response["problem"]:
        yield f"response: {response['problem']}"
    if problem := status.get("membership", {}).get("problem"):
        yield f"membership: {problem}"
    for problem in status.get("actual", {}).get("problems", ()):
        yield f"fleet: {problem}"
