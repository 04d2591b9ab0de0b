"""A made-up fleet, its alerts, and the truth about what was planted in them: ``python -m bench.simulate``.

Into ``OUT/landing`` go files as the landing writes them, in the order of ``received_at``; into ``OUT/lookups`` what the
region knows of hosts, sites and indicators; into ``OUT/truth.json`` what a job should find, and what it should not. The
same settings give the same bytes. Nothing here needs Spark.

**Ordinary days.** Each rule has a weight, each site another; a rule runs at some sites only, with a rhythm of its own
over the hours of the week in the site's time zone. Alerts are Poisson counts by site, rule and hour. Their entities are
mostly the site's own: private addresses, staff, local noise; some names are at every site (``root``, common browsers).

**Planted, to be found**: campaigns (one address, user, hash or user agent at many sites, in the order of an attack),
bursts (a rule at a site far above its usual hour), silences (a site without any alert while its agents still report),
rules that appear in the middle, agents that lose alerts (gaps in ``seq``).

**Decoys, not to be found**: scanners that touch most sites every day, the shared address of a fleet's own proxy, a red
team whose addresses are in ``intel`` as an exercise.

**The landing's own troubles**: copies (most within minutes, some after days), agents offline for days whose alerts land
late, events older than their receipt, half of all alerts at one site (``skew``), folds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.simulated import (
    AGENTS,
    DAY,
    HOUR,
    KINDS,
    Alerts,
    Numbers,
    World,
    write_heartbeats,
    write_landing,
    write_lookups,
    write_rules,
)
from spark_jobs.common.attack import TACTICS

Rates = npt.NDArray[np.float64]
MINUTE = 60_000_000
"""Microseconds, as ``HOUR`` and ``DAY``."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make."""

    alerts: int = 100_000
    """About how many different alerts; the planted ones come on top."""
    days: int = 14
    start: date = date(2026, 11, 2)
    seed: int = 1
    sites: int = 40
    rules: int = 120
    hosts: int = 50
    """At each site."""
    campaigns: int = 12
    bursts: int = 8
    silences: int = 3
    new_rules: int = 2
    scanners: int = 4
    red_teams: int = 2
    duplicates: float = 0.03
    late: float = 0.05
    """Share of events that are received 10 to 30 minutes after they happened."""
    folds: float = 0.05
    offline: int = 3
    """Agents that are cut off for one to four days."""
    lossy: int = 2
    skew: float = 0.0
    """Share of all ordinary alerts that the first site makes; 0: as its weight says."""
    rows_per_file: int = 20_000

    @property
    def first(self) -> int:
        """UTC microseconds of the first day's beginning."""
        return int(datetime(self.start.year, self.start.month, self.start.day, tzinfo=UTC).timestamp()) * 1_000_000

    @property
    def end(self) -> int:
        return self.first + self.days * DAY


@dataclass(slots=True)
class Truth:
    """What was planted; times are UTC microseconds, sites ``FLEET/SITE``."""

    plan: dict[str, Any]
    alerts: int = 0
    """Different alerts, folds included."""
    folds: int = 0
    matches: int = 0
    rows: int = 0
    """Landed rows, copies included."""
    by_day: dict[str, int] = field(default_factory=dict)
    """Matches by day of event time."""
    campaigns: list[dict[str, Any]] = field(default_factory=list)
    decoys: list[dict[str, Any]] = field(default_factory=list)
    bursts: list[dict[str, Any]] = field(default_factory=list)
    silences: list[dict[str, Any]] = field(default_factory=list)
    new_rules: list[dict[str, Any]] = field(default_factory=list)
    offline: list[dict[str, Any]] = field(default_factory=list)
    lossy: list[dict[str, Any]] = field(default_factory=list)
    silent_rules: list[str] = field(default_factory=list)
    """Deployed, and never fired."""


def simulate(plan: Plan, out: Path) -> Truth:
    """Write landing, lookups and truth for ``plan`` into the folder ``out``; the truth."""
    rng = np.random.default_rng([plan.seed, 1])
    world = World(plan.sites, plan.rules, plan.hosts, max(2000, plan.alerts // 200), plan.seed)
    truth = Truth({name: str(value) if isinstance(value, date) else value for name, value in asdict(plan).items()})
    rates = _rates(plan, world, rng)
    _new_rules(plan, world, rng, rates, truth)
    silences = _silences(plan, world, rng, rates, truth)
    loud = np.setdiff1d(np.arange(plan.sites), [site for site, _, _ in silences])
    planted = [*_campaigns(plan, world, rng, loud, truth), *_red_teams(plan, world, rng, loud, truth)]
    planted += [*_scanners(plan, world, rng, truth), *_proxies(plan, world, rng, truth)]
    planted += _bursts(plan, world, rng, rates, loud, truth)
    offline = _offline(plan, world, rng, loud, truth)
    lost = _lossy(plan, world, rng, truth)
    landing = out / "landing"
    days = _landed(plan, world, _days(plan, world, rates, silences, _concat(planted), truth), offline, lost)
    truth.rows = write_landing(landing, days, world, plan.rows_per_file)
    write_heartbeats(landing, world, plan.first, plan.days, offline, lost)
    truth.silent_rules = write_rules(landing, world, plan.first)
    exercise = [decoy["value"] for decoy in truth.decoys if decoy["reason"] == "red team"]
    write_lookups(
        out / "lookups",
        world,
        exercise,
        [campaign["value"] for campaign in truth.campaigns[::2] if campaign["kind"] == "ip"],
    )
    (out / "truth.json").write_text(json.dumps(asdict(truth), indent=1) + "\n")
    return truth


# Ordinary days ---------------------------------------------------------------------------------------------------


def _rates(plan: Plan, world: World, rng: np.random.Generator) -> Rates:
    """Expected alerts by day, site, rule and hour (UTC), their sum about ``plan.alerts``."""
    sites = rng.permutation(1.0 / np.arange(1, plan.sites + 1) ** 0.6)
    rules = 1.0 / np.arange(1, plan.rules + 1) ** 1.1
    runs = rng.random((plan.sites, plan.rules)) < 0.4
    runs[:, : plan.rules // 10] = True
    weight = runs * sites[:, None] * rules * rng.lognormal(0, 0.4, (plan.sites, plan.rules))
    if plan.skew:
        weight[0] *= weight[1:].sum() * plan.skew / (1 - plan.skew) / weight[0].sum()
    local = (np.arange(24)[None, :] + world.offset_hours[:, None]) % 24
    office = np.exp(-0.5 * ((local - 13) / 3.5) ** 2) + 0.08
    night = np.exp(-0.5 * (((local + 10) % 24 - 12) / 2) ** 2) + 0.05
    rhythms = np.stack([shape / shape.mean(1, keepdims=True) for shape in (office, np.ones_like(office), night)])
    by_hour = weight[:, :, None] * rhythms[world.rhythm].transpose(1, 0, 2)
    weekend = np.array([(plan.start + timedelta(days=day)).weekday() >= 5 for day in range(plan.days)])
    scale = np.where(weekend[:, None] & (world.rhythm == 0)[None, :], 0.25, 1.0)
    rates: Rates = by_hour[None] * scale[:, None, :, None]
    rates *= plan.alerts / rates.sum()
    return rates


def _days(
    plan: Plan, world: World, rates: Rates, silences: Sequence[tuple[int, int, int]], planted: Alerts, truth: Truth
) -> Iterator[Alerts]:
    """Each day's alerts with identities, folds among them."""
    number = 0
    for day in range(plan.days):
        rng = np.random.default_rng([plan.seed, 2, day])
        start = plan.first + day * DAY
        counts = rng.poisson(rates[day])
        cells = np.repeat(np.arange(counts.size), counts.ravel())
        site, rule, hour = np.unravel_index(cells, counts.shape)
        alerts = _alerts(world, rng, start + hour * HOUR + rng.integers(0, HOUR, cells.size), site, rule)
        alerts = _concat([alerts, _where(planted, (planted["time"] >= start) & (planted["time"] < start + DAY))])
        for quiet, since, until in silences:
            alerts = _where(alerts, (alerts["site"] != quiet) | (alerts["time"] < since) | (alerts["time"] >= until))
        size = alerts["time"].size
        alerts |= {"number": number + np.arange(size), "parent": np.full(size, -1), "count": np.ones(size, np.int64)}
        folds = _where(alerts, rng.random(size) < plan.folds)
        folded = folds["time"].size
        folds["parent"], folds["number"] = folds["number"], number + size + np.arange(folded)
        folds["count"] = rng.geometric(0.1, folded)
        folds["time"] = folds["time"] + rng.integers(5 * MINUTE, 15 * MINUTE, folded)
        alerts = _concat([alerts, folds])
        number += size + folded
        truth.alerts += size + folded
        truth.folds += folded
        truth.matches += int(alerts["count"].sum())
        dates, inverse = np.unique(alerts["time"] // DAY, return_inverse=True)
        for date_number, matches in zip(dates, np.bincount(inverse, alerts["count"]), strict=True):
            name = _text(int(date_number) * DAY)[:10]
            truth.by_day[name] = truth.by_day.get(name, 0) + int(matches)
        yield alerts


def _alerts(world: World, rng: np.random.Generator, time: Numbers, site: Numbers, rule: Numbers) -> Alerts:
    """Ordinary alerts at these times, sites and rules."""
    host = np.minimum(rng.geometric(0.08, time.size), world.hosts) - 1
    return {"time": time, "site": site, "rule": rule, "host": host, **world.entities(rng, site, rule)}


def _concat(parts: Sequence[Alerts]) -> Alerts:
    names = parts[0].keys() if parts else ("time", "site", "rule", "host", *KINDS)
    return {name: np.concatenate([np.zeros(0, np.int64), *(part[name] for part in parts)]) for name in names}


def _where(alerts: Alerts, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Alerts:
    return {name: column[chosen] for name, column in alerts.items()}


# The way to the landing ------------------------------------------------------------------------------------------


def _landed(
    plan: Plan, world: World, days: Iterator[Alerts], offline: Sequence[tuple[int, int, int]], lost: Mapping[int, int]
) -> Iterator[tuple[int, Alerts]]:
    """Alerts by when they are received, a day at a time: with copies, and what comes days late."""
    seqs = np.ones(plan.sites * AGENTS, np.int64)
    waiting: list[Alerts] = []
    end = plan.first
    for day, alerts in enumerate(days):
        rng = np.random.default_rng([plan.seed, 3, day])
        end += DAY
        size = alerts["time"].size
        late = rng.random(size) < plan.late
        alerts["detected"] = alerts["time"] + rng.integers(1_000_000, 3_000_000, size)
        alerts["detected"] += np.where(late, rng.integers(10 * MINUTE, 30 * MINUTE, size), 0)
        alerts["agent"] = alerts["site"] * AGENTS + alerts["host"] % AGENTS
        _number(alerts, seqs)
        if day == plan.days // 2:
            for agent, missing in lost.items():
                seqs[agent] += missing
        alerts["received"] = alerts["detected"] + rng.integers(1_000_000, 9_000_000, size)
        for agent, since, until in offline:
            cut = (alerts["agent"] == agent) & (alerts["detected"] >= since) & (alerts["detected"] < until)
            alerts["received"] = np.where(cut, until + rng.integers(0, 10 * MINUTE, size), alerts["received"])
        copies = _where(alerts, rng.random(size) < plan.duplicates)
        kind, count = rng.random(copies["time"].size), copies["time"].size
        delay = np.where(kind < 0.9, rng.integers(1_000_000, 2 * MINUTE, count), rng.integers(0, 3 * HOUR, count))
        copies["received"] = copies["received"] + np.where(kind > 0.99, rng.integers(DAY, 3 * DAY, count), delay)
        together = _concat([*waiting, alerts, copies])
        now = together["received"] < end
        yield end, _where(together, now)
        waiting = [_where(together, ~now)]
    while waiting and waiting[0]["time"].size:
        end += DAY
        now = waiting[0]["received"] < end
        yield end, _where(waiting[0], now)
        waiting = [_where(waiting[0], ~now)]


def _number(alerts: Alerts, seqs: Numbers) -> None:
    """Give each alert its agent's next ``seq``, in the order of detection."""
    order = np.lexsort((alerts["number"], alerts["detected"], alerts["agent"]))
    agents = alerts["agent"][order]
    first = np.concatenate(([0], np.flatnonzero(np.diff(agents)) + 1)) if agents.size else np.zeros(0, np.int64)
    counts = np.diff(np.append(first, agents.size))
    place = np.arange(agents.size) - np.repeat(first, counts)
    alerts["seq"] = np.empty(agents.size, np.int64)
    alerts["seq"][order] = seqs[agents] + place
    seqs[agents[first]] += counts


# What is planted -------------------------------------------------------------------------------------------------


def _steps(
    plan: Plan, world: World, rng: np.random.Generator, kind: str, sites: Numbers, start: int, hours: float
) -> tuple[Alerts, dict[str, Any]]:
    """One entity's way through ``sites`` along the tactics, within ``hours``; its alerts and what it did."""
    entity = world.new(kind)
    shapes = {"ip": (0, 1, 3), "user": (0, 2), "hash": (2,), "user_agent": (1,)}[kind]
    fitting, grave = np.isin(world.shape, shapes), world.level >= 1
    # Of few rules none may be both; then one that fits will do, or any.
    every = np.ones_like(fitting)
    choices = (np.setdiff1d(np.flatnonzero(those), world.new_rules) for those in (fitting & grave, fitting, every))
    usable = next(pool for pool in choices if pool.size)
    usable = usable[np.argsort(world.tactic[usable], kind="stable")]
    rows: list[tuple[int, int, int]] = []
    arrivals = np.sort(rng.uniform(0, 0.75, sites.size)) * hours * HOUR
    for site, arrival in zip(sites, arrivals, strict=True):
        chosen = np.sort(rng.choice(usable.size, min(usable.size, int(rng.integers(2, 6))), replace=False))
        at = start + int(arrival)
        for rule in usable[chosen]:
            for _ in range(int(rng.integers(1, 4))):
                rows.append((at, int(site), int(rule)))
                at += int(rng.integers(5_000_000, int(hours * HOUR * 0.25 / 15)))
    time, site, rule = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    alerts = _alerts(world, rng, time, site, rule)
    alerts[kind] = np.full(time.size, entity)
    tactics = sorted({int(world.tactic[r]) for r in rule})
    return alerts, {
        "kind": kind,
        "value": world.texts[kind][entity],
        "sites": sorted({world.place(int(s)) for s in site}),
        "rules": sorted({world.rule_ids[int(r)] for r in rule}),
        "tactics": [TACTICS[t] for t in tactics],
        "first": int(time.min()),
        "last": int(time.max()),
        "alerts": int(time.size),
    }


def _campaigns(plan: Plan, world: World, rng: np.random.Generator, loud: Numbers, truth: Truth) -> Iterator[Alerts]:
    for number in range(plan.campaigns):
        kind = KINDS[(0, 0, 1, 2, 0, 3)[number % 6]]
        many = min(loud.size, int(rng.integers(4, min(12, max(5, plan.sites // 2)) + 1)))
        hours = float(rng.uniform(1, 20))
        start = int(rng.integers(plan.first, plan.end - int(hours * HOUR) - HOUR))
        alerts, said = _steps(plan, world, rng, kind, rng.choice(loud, many, replace=False), start, hours)
        truth.campaigns.append(said)
        yield alerts


def _red_teams(plan: Plan, world: World, rng: np.random.Generator, loud: Numbers, truth: Truth) -> Iterator[Alerts]:
    for _ in range(plan.red_teams):
        many = min(loud.size, int(rng.integers(4, 9)))
        start = int(rng.integers(plan.first, plan.end - 7 * HOUR))
        alerts, said = _steps(plan, world, rng, "ip", rng.choice(loud, many, replace=False), start, 6)
        truth.decoys.append({**said, "reason": "red team"})
        yield alerts


def _scanners(plan: Plan, world: World, rng: np.random.Generator, truth: Truth) -> Iterator[Alerts]:
    rules = np.setdiff1d(np.flatnonzero((world.tactic <= 2) & np.isin(world.shape, (0, 1, 3))), world.new_rules)
    for _ in range(plan.scanners):
        entity = world.new("ip")
        visits = rng.random((plan.days, plan.sites)) < 0.85
        day, site = np.nonzero(visits)
        amount = rng.integers(1, 4, day.size)
        day, site = np.repeat(day, amount), np.repeat(site, amount)
        time = plan.first + day * DAY + rng.integers(0, DAY, day.size)
        alerts = _alerts(world, rng, time, site, rng.choice(rules, day.size))
        alerts["ip"] = np.full(day.size, entity)
        truth.decoys.append({"kind": "ip", "value": world.texts["ip"][entity], "reason": "scanner"})
        yield alerts


def _proxies(plan: Plan, world: World, rng: np.random.Generator, truth: Truth) -> Iterator[Alerts]:
    """Each fleet's staff come from one address: any rule, at all its sites, in office hours, every day."""
    rules = np.setdiff1d(np.flatnonzero(np.isin(world.shape, (0, 1))), world.new_rules)
    for fleet in sorted(set(world.fleets)):
        entity = world.new("ip")
        sites = np.array([n for n, name in enumerate(world.fleets) if name == fleet])
        day, place = np.nonzero(np.ones((plan.days, sites.size)))
        day, place = np.repeat(day, 6), np.repeat(place, 6)
        time = plan.first + day * DAY + 7 * HOUR + rng.integers(0, 11 * HOUR, day.size)
        alerts = _alerts(world, rng, time, sites[place], rng.choice(rules, day.size))
        alerts["ip"] = np.full(day.size, entity)
        truth.decoys.append({"kind": "ip", "value": world.texts["ip"][entity], "reason": "shared address"})
        yield alerts


def _later(plan: Plan) -> int:
    """From when on a job has seen enough ordinary days to tell."""
    return plan.first + int(plan.days * 0.6) * DAY


def _new_rules(plan: Plan, world: World, rng: np.random.Generator, rates: Rates, truth: Truth) -> None:
    busy = np.argsort(-rates.sum(axis=(0, 1, 3)))[: plan.rules // 2]
    for rule in rng.choice(busy, min(plan.new_rules, busy.size), replace=False):
        day = int(rng.integers((_later(plan) - plan.first) // DAY, plan.days))
        rates[:day, :, rule] = 0
        world.new_rules.append(int(rule))
        truth.new_rules.append({"rule_id": world.rule_ids[int(rule)], "first": plan.first + day * DAY})


def _silences(
    plan: Plan, world: World, rng: np.random.Generator, rates: Rates, truth: Truth
) -> list[tuple[int, int, int]]:
    hourly = rates.sum(axis=2)
    silences: list[tuple[int, int, int]] = []
    for site in rng.permutation(plan.sites):
        if len(silences) == plan.silences:
            break
        hours = int(rng.integers(24, 49))
        start = _later(plan) + int(rng.integers(0, max(1, (plan.end - _later(plan)) // HOUR - hours))) * HOUR
        first = (start - plan.first) // HOUR
        expected = float(hourly[:, site].reshape(-1)[first : first + hours].sum())
        if expected < 8 * hours or start + hours * HOUR > plan.end:
            continue
        silences.append((int(site), start, start + hours * HOUR))
        truth.silences.append(
            {"site": world.place(int(site)), "start": start, "end": start + hours * HOUR, "expected": round(expected)}
        )
    return silences


def _bursts(
    plan: Plan, world: World, rng: np.random.Generator, rates: Rates, loud: Numbers, truth: Truth
) -> list[Alerts]:
    bursts = []
    for _ in range(plan.bursts):
        site = int(rng.choice(loud))
        rule = int(rng.choice(np.flatnonzero(rates[:, site].sum(axis=(0, 2)) > 0)))
        hours = int(rng.integers(1, 5))
        start = _later(plan) + int(rng.integers(0, (plan.end - _later(plan)) // HOUR - hours)) * HOUR
        usual = float(rates[:, site, rule].max())
        count = int(hours * max(60, 12 * usual))
        time = start + rng.integers(0, hours * HOUR, count)
        bursts.append(_alerts(world, rng, time, np.full(count, site), np.full(count, rule)))
        truth.bursts.append(
            {"site": world.place(site), "rule_id": world.rule_ids[rule], "start": start, "end": start + hours * HOUR,
             "alerts": count, "usual": round(usual, 2)}
        )  # fmt: skip
    return bursts


def _offline(
    plan: Plan, world: World, rng: np.random.Generator, loud: Numbers, truth: Truth
) -> list[tuple[int, int, int]]:
    """Agents that are cut off, none of them at a site that falls silent."""
    agents = [n for n in range(plan.sites * AGENTS) if n // AGENTS in loud]
    gaps = []
    for agent in rng.choice(agents, min(plan.offline, len(agents)), replace=False):
        since = int(rng.integers(plan.first, plan.end - DAY // 2))
        until = since + int(rng.integers(DAY, 4 * DAY))
        gaps.append((int(agent), since, until))
        truth.offline.append({"agent_id": world.agent(int(agent)), "since": since, "until": until})
    return gaps


def _lossy(plan: Plan, world: World, rng: np.random.Generator, truth: Truth) -> dict[int, int]:
    lost = {}
    for agent in rng.choice(plan.sites * AGENTS, min(plan.lossy, plan.sites), replace=False):
        lost[int(agent)] = int(rng.integers(20, 200))
        truth.lossy.append({"agent_id": world.agent(int(agent)), "missing": lost[int(agent)]})
    return lost


def _text(time: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).isoformat()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="must not hold a landing yet")
    for setting in fields(Plan):
        kind: Callable[[str], object] = (
            date.fromisoformat if isinstance(setting.default, date) else type(setting.default)
        )
        name = f"--{setting.name.replace('_', '-')}"
        parser.add_argument(name, type=kind, default=setting.default, metavar="N", help=f"default: {setting.default}")
    said = vars(parser.parse_args(arguments))
    out = said.pop("out")
    if (out / "landing").exists():
        parser.error(f"{out}/landing: is there already; name another folder, or delete it")
    truth = simulate(Plan(**said), out)
    print(f"{truth.rows} rows of {truth.alerts} alerts, {truth.matches} matches; {out}/truth.json says what is in them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
