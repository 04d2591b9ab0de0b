"""Rule sets in the status for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette.runtime.budgets import amount

RENAMED_SHOWN = 3
"""Rules that are called otherwise than written."""

RULESETS_HEAD = (
    f"{'rule set':<20}{'version':>8}{'rules':>7}{'share':>8}{'µs/event':>10}{'state':>11}{'alerts':>9}{'lag':>9}"
    "  dead, quarantined"
)


def ruleset_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Nothing for one set: the lines about rules say it all."""
    lines = [RULESETS_HEAD] if len(rows) > 1 else []
    for row in rows if lines else ():
        count = row["rules"] + row["correlations"] + row["statements"]
        version = "-" if row["version"] is None else row["version"]
        lines.append(
            f"{row['name']:<20}{version:>8}{count:>7}{row.get('cpu_share', 0):>8.1%}{row.get('us_per_event', 0):>10.3f}"
            f"{amount(row.get('state_bytes', 0), 'bytes'):>11}{row.get('alerts', 0):>9}"
            f"{row.get('lag_events', 0):>9}  {row['dead_count']}, {row.get('quarantined', 0)}"
        )
        if row["error"]:
            lines.append(f"         {row['name']}: last change refused: {row['error']}")
        if (process := row.get("process")) is not None:
            lines.append(_process_line(row["name"], process))
        lines += [
            f"         {row['name']}: {old} runs as {new}" for old, new in [*row["renamed"].items()][:RENAMED_SHOWN]
        ]
    return lines


def _process_line(name: str, process: Mapping[str, Any]) -> str:
    """Of a set in strict isolation."""
    if process["running"]:
        doing = f"process {process['pid']}, {amount(process['private_bytes'], 'bytes')}"
    elif wait := process["starts_again_in"]:
        doing = f"NOT RUNNING, starts again in {wait:g} s"
    else:
        doing = "starting"
    line = (
        f"         {name}: strict: {doing} of {amount(process['max_memory'], 'bytes')}; died {process['deaths']} times"
    )
    if process["last_death"]:
        line += f", last: {process['last_death']}"
    counts = process["inputs"].values()
    stored, judged, backlog = (sum(row[what] for row in counts) for what in ("stored", "judged", "backlog"))
    lost = sum(sum(row["lost"].values()) for row in counts)
    return f"{line}; stored {stored} = evaluated {judged} + backlog {backlog} + lost {lost}"
