"""The made-up fleet, and its alerts as files of the landing: numbers in, Arrow and Parquet out.

``simulate`` decides what happens; here is what it looks like. Alerts come as numpy columns of equal length (``Alerts``)
and leave as rows of the landed schema, built column by column, because rows one by one would take hours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.common.attack import TACTICS
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import LANDED_ALERT, LANDED_STATUS, SCHEMA_VERSION

Numbers = npt.NDArray[np.int64]
Alerts = dict[str, Numbers]
"""``number`` (identity), ``parent`` (of a fold, else -1), ``time`` (of the event, UTC microseconds), ``detected``,
``received``, ``site``, ``host``, ``agent``, ``seq``, ``rule``, ``count``, and for each of ``KINDS`` the index of its
text in ``World.texts``, -1 for none."""

KINDS = ("ip", "user", "hash", "user_agent")
FIELDS = {"ip": "src_ip", "user": "user", "hash": "sha256", "user_agent": "user_agent"}
AGENTS = 5
"""Agents of a site; hosts are dealt out among them."""

HOUR, DAY = 3_600_000_000, 86_400_000_000
"""Microseconds."""

LEVELS = ("low", "medium", "high", "critical")
SILENT_RULES = 15
"""Rules that are deployed and never fire."""

_PLACES = (
    ("Europe/Vienna", 1, "AT", 48.2, 16.4),
    ("Europe/London", 0, "GB", 51.5, -0.1),
    ("America/New_York", -5, "US", 40.7, -74.0),
    ("America/Sao_Paulo", -3, "BR", -23.5, -46.6),
    ("Asia/Singapore", 8, "SG", 1.35, 103.8),
    ("Asia/Kolkata", 5, "IN", 19.1, 72.9),
    ("Australia/Brisbane", 10, "AU", -27.5, 153.0),
    ("America/Los_Angeles", -8, "US", 34.0, -118.2),
)
"""Time zone, its whole hours from UTC, country, latitude, longitude."""

_COMMON = {
    "user": ("root", "admin", "administrator", "backup", "oracle", "ubuntu", "svc-monitor"),
    "user_agent": tuple(f"Mozilla/5.0 (common browser {n})" for n in range(30)),
    "hash": tuple(f"{n:064x}" for n in range(0xC0FFEE, 0xC0FFEE + 20)),
}
"""Texts that are at every site."""

PRIVATE = 2000
"""Private addresses; each is another machine at each site."""
OWN = {"ip": 600, "user": 60, "hash": 300, "user_agent": 10}
"""Texts that a site has for itself."""


class World:
    """The fleet: sites, rules, and every text that an entity can have."""

    def __init__(self, sites: int, rules: int, hosts: int, roaming: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 0])
        self.sites, self.rules, self.hosts, self.seed = sites, rules, hosts, seed
        self.site_names = [f"site-{n:03d}" for n in range(sites)]
        self.fleets = [f"fleet-{'abcdefgh'[n % 4]}" for n in range(sites)]
        self.zone = rng.integers(0, len(_PLACES), sites)
        self.offset_hours = np.array([_PLACES[zone][1] for zone in self.zone])
        self.rhythm = rng.choice(3, rules, p=(0.5, 0.35, 0.15))
        """Of each rule: 0 office hours, 1 all day, 2 night."""
        self.tactic = rng.permutation(np.arange(rules) % len(TACTICS))
        self.level = rng.choice(4, rules, p=(0.35, 0.4, 0.2, 0.05))
        self.shape = np.where(self.tactic <= 2, rng.choice((0, 1), rules), rng.choice((0, 2, 3), rules))
        """Entities of a rule's alerts: 0 address and user, 1 address and user agent, 2 user and hash, 3 address."""
        self.rule_ids = [f"{seed:08x}-0000-4000-8000-{n:012x}" for n in range(rules + SILENT_RULES)]
        self.titles = [f"{TACTICS[t].replace('-', ' ').title()} pattern {n}" for n, t in enumerate(self.tactic)]
        self.techniques = [f"T{1000 + 37 * n % 600}{f'.{n % 3 + 1:03d}' if n % 2 else ''}" for n in range(rules)]
        self.new_rules: list[int] = []
        """Rules that appear in the middle; nothing else is planted with them."""
        self.texts: dict[str, list[str]] = {
            "ip": [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(PRIVATE)],
            "user": list(_COMMON["user"]),
            "hash": list(_COMMON["hash"]),
            "user_agent": list(_COMMON["user_agent"]),
        }
        self.common = {kind: len(texts) for kind, texts in self.texts.items()}
        for site in range(sites):
            self.texts["ip"] += [_address(site * OWN["ip"] + n) for n in range(OWN["ip"])]
            self.texts["user"] += [f"user{n}.{self.site_names[site]}" for n in range(OWN["user"])]
            self.texts["hash"] += [_hex(seed, site * OWN["hash"] + n) for n in range(OWN["hash"])]
            self.texts["user_agent"] += [f"tool-{site}-{n}/1.0" for n in range(OWN["user_agent"])]
        self.roaming = (len(self.texts["ip"]), roaming)
        """First index and number of the addresses that turn up anywhere."""
        self.texts["ip"] += [_address(sites * OWN["ip"] + n) for n in range(roaming)]
        self._next = sites * OWN["ip"] + roaming

    def new(self, kind: str) -> int:
        """A text that no alert has had: its index."""
        number = self._next
        self._next += 1
        texts = {"ip": _address(number), "user": f"contractor{number}", "hash": _hex(self.seed + 1, number),
                "user_agent": f"python-kit/{number}"}  # fmt: skip
        self.texts[kind].append(texts[kind])
        return len(self.texts[kind]) - 1

    def own(self, kind: str, rng: np.random.Generator, sites: Numbers) -> Numbers:
        """For each of ``sites`` one of its own texts."""
        return self.common[kind] + sites * OWN[kind] + rng.integers(0, OWN[kind], sites.size)

    def entities(self, rng: np.random.Generator, sites: Numbers, rules: Numbers) -> Alerts:
        """Ordinary entities of alerts: by the rule's shape, mostly the site's own."""
        count, shape = sites.size, self.shape[rules]
        draw = rng.random(count)
        first, number = self.roaming
        ip = np.where(draw < 0.4, rng.integers(0, PRIVATE, count), self.own("ip", rng, sites))
        ip = np.where(draw > 0.97, first + rng.integers(0, number, count), ip)
        entities = {"ip": np.where(shape != 2, ip, -1)}
        for kind, share, shapes in (("user", 0.3, (0, 2)), ("hash", 0.3, (2,)), ("user_agent", 0.9, (1,))):
            common = rng.random(count) < share
            text = np.where(common, rng.integers(0, self.common[kind], count), self.own(kind, rng, sites))
            entities[kind] = np.where(np.isin(shape, shapes), text, -1)
        return entities

    def place(self, site: int) -> str:
        return f"{self.fleets[site]}/{self.site_names[site]}"

    def agent(self, number: int) -> str:
        return f"{self.site_names[number // AGENTS]}-agent-{number % AGENTS}"


def _address(number: int) -> str:
    """The ``number``-th public address, spread over the space so that neighbours are not neighbours."""
    mixed = (number * 2_654_435_761 + 97) % (1 << 24)
    return f"{(45, 91, 185, 193)[number % 4]}.{mixed >> 16}.{mixed >> 8 & 255}.{mixed & 255}"


def _hex(seed: int, number: int) -> str:
    words = [int(_mix(np.array([number], np.uint64), seed * 4 + part)[0]) for part in range(4)]
    return "".join(f"{word:016x}" for word in words)


def _mix(numbers: npt.NDArray[np.uint64], salt: int) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function: different numbers stay different."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 % (1 << 64))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def alert_ids(numbers: Numbers, seed: int) -> pa.Array:
    """32 hex digits for each number, null for -1."""
    halves = [_mix(numbers.astype(np.uint64), seed * 4 + part).astype(">u8") for part in (2, 3)]
    data = np.stack(halves, axis=1).view(np.uint8).reshape(len(numbers), 16)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.stack((digits[data >> 4], digits[data & 15]), axis=2).reshape(len(numbers), 32)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 32
    ids = pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))
    return pc.if_else(pa.array(numbers >= 0), ids, pa.scalar(None, pa.string()))


class Rows:
    """Alerts of a ``World`` as Arrow tables of the landed schema."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._schema = arrow_schema(LANDED_ALERT)
        rules = range(world.rules)
        self._rule = {
            "rule_id": pa.array(world.rule_ids[: world.rules]),
            "rule_title": pa.array(world.titles),
            "rule_digest": pa.array([f"{n:016x}" for n in rules]),
            "level": pa.array([LEVELS[n] for n in world.level]),
            "tags": pa.array([rule_tags(world, n) for n in rules], pa.list_(pa.string())),
        }
        self._texts = {kind: pa.array(texts) for kind, texts in world.texts.items()}
        self._sites, self._fleets = pa.array(world.site_names), pa.array(world.fleets)
        self._agents = pa.array([world.agent(n) for n in range(world.sites * AGENTS)])
        self._topics = pa.array(
            [f"vedette/v1/{world.fleets[n // AGENTS]}/{world.agent(n)}/alerts" for n in range(world.sites * AGENTS)]
        )
        self._hosts = pa.array([f"h{h:03d}.{site}" for site in world.site_names for h in range(world.hosts)])

    def table(self, alerts: Alerts) -> pa.Table:
        """``alerts`` in full."""
        world, count = self._world, alerts["number"].size
        fold = alerts["parent"] >= 0
        rule = {name: values.take(pa.array(alerts["rule"])) for name, values in self._rule.items()}
        site = pa.array(alerts["site"])
        texts = {kind: self._texts[kind].take(_index(alerts[kind])) for kind in KINDS}
        host = self._hosts.take(pa.array(alerts["site"] * world.hosts + alerts["host"]))
        agent = self._agents.take(pa.array(alerts["agent"]))
        fields = _pairs([(FIELDS[kind], texts[kind]) for kind in KINDS])
        entities = _pairs([*texts.items(), ("host", host)])
        words = [texts[kind].fill_null("-") for kind in KINDS]
        raw = pc.binary_join_element_wise(
            "<38>Nov 20 12:00:00", host, "app[4711]:", rule["rule_title"], *words, "status=denied", " "
        )
        columns: dict[str, pa.Array] = {
            "schema_version": pa.array(np.full(count, SCHEMA_VERSION, np.int32)),
            "alert_id": alert_ids(alerts["number"], world.seed),
            "parent_id": alert_ids(alerts["parent"], world.seed),
            "seq": pa.array(alerts["seq"]),
            "kind": pc.if_else(pa.array(fold), "fold", "detection"),
            **rule,
            "agent_id": agent,
            "site": self._sites.take(site),
            "fleet": self._fleets.take(site),
            "host": host,
            "event_time": _time(alerts["time"]),
            "detected_at": _time(alerts["detected"]),
            "received_date": pc.strftime(_time(alerts["detected"]), "%Y-%m-%d"),
            "source": _same("syslog", count),
            "logsource": pa.StructArray.from_arrays(
                [_same("linux", count), pa.nulls(count, pa.string()), pa.nulls(count, pa.string())],
                names=["product", "category", "service"],
            ),
            "fields": pa.MapArray.from_arrays(fields[0], fields[1], fields[2]),
            "entities": pa.ListArray.from_arrays(
                entities[0], pa.StructArray.from_arrays(entities[1:], names=["kind", "value"])
            ),
            "raw": pc.if_else(pa.array(fold), "", raw),
            "raw_ref": pa.StructArray.from_arrays(
                [agent, pa.array(alerts["seq"] * 180), pa.array(np.full(count, 170, np.int32))],
                names=["log_id", "offset", "length"],
            ),
            "count": pa.array(alerts["count"]),
            "first_time": pc.if_else(pa.array(fold), _time(alerts["time"] - 60_000_000), pa.scalar(None, _TIME)),
            "last_time": pc.if_else(pa.array(fold), _time(alerts["time"]), pa.scalar(None, _TIME)),
            "bundle": _same("simulated-1", count),
            "received_at": _time(alerts["received"]),
            "ingest": pa.StructArray.from_arrays(
                [_same("simulated", count), self._topics.take(pa.array(alerts["agent"]))],
                names=["collector_id", "topic"],
            ),
            "stated_site": pa.nulls(count, pa.string()),
        }
        for name in ("contributing", "flags", "group_by"):
            columns[name] = _empty(self._schema.field(name).type, count)
        return pa.Table.from_arrays(
            [columns[field.name].cast(field.type) for field in self._schema], schema=self._schema
        )


_TIME = pa.timestamp("us", tz="UTC")


def _time(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(_TIME)


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _index(numbers: Numbers) -> pa.Array:
    """Indices for ``take``; null for -1."""
    return pa.array(numbers, mask=numbers < 0)


def _empty(kind: pa.DataType, count: int) -> pa.Array:
    offsets = pa.array(np.zeros(count + 1, np.int32))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string()))
    return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type))


def _pairs(columns: Sequence[tuple[str, pa.Array]]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Offsets, names and values of lists with one (name, value) for each column that is not null in the row."""
    there = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for _, column in columns], axis=1)
    offsets = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int32)
    rows, which = np.nonzero(there)
    names = pa.array([name for name, _ in columns]).take(pa.array(which))
    starts = np.cumsum([0, *(len(column) for _, column in columns)])
    together = pa.concat_arrays([column for _, column in columns])
    return pa.array(offsets), names, together.take(pa.array(starts[which] + rows))


def rule_tags(world: World, number: int) -> list[str]:
    tactic = TACTICS[world.tactic[number]].replace("-", "_")
    return [f"attack.{tactic}", f"attack.{world.techniques[number].lower()}"]


def write_landing(landing: Path, days: Iterator[tuple[int, Alerts]], world: World, rows_per_file: int) -> int:
    """Write ``alerts`` of the landing from (end of day, alerts received before it); how many rows."""
    rows, written, number = Rows(world), 0, 0
    for _, alerts in days:
        order = np.argsort(alerts["received"], kind="stable")
        for first in range(0, order.size, rows_per_file):
            part = {name: column[order[first : first + rows_per_file]] for name, column in alerts.items()}
            _write(landing / "alerts", int(part["received"][-1]), number, rows.table(part))
            number += 1
            written += part["number"].size
    return written


def _write(folder: Path, at: int, number: int, table: pa.Table) -> None:
    moment = datetime.fromtimestamp(at / 1e6, UTC)
    hour = folder / f"dt={moment:%Y-%m-%d}" / f"hh={moment:%H}"
    hour.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, hour / f"{number:026d}.parquet", compression="zstd")


def write_heartbeats(
    landing: Path, world: World, first: int, days: int, offline: Sequence[tuple[int, int, int]], lost: Mapping[int, int]
) -> None:
    """One heartbeat an hour of each agent that is not ``offline`` (agent, since, until); ``lost`` by agent."""
    for day in range(days):
        rows = []
        for hour in range(24):
            at = first + day * DAY + hour * HOUR + 30_000_000
            for agent in range(world.sites * AGENTS):
                if any(silent == agent and since <= at < until for silent, since, until in offline):
                    continue
                rows.append(_beat(world, agent, at, day * 24 + hour + 1, lost.get(agent, 0)))
        _write(
            landing / "status", first + day * DAY + HOUR, day, pa.Table.from_pylist(rows, arrow_schema(LANDED_STATUS))
        )


def _beat(world: World, agent: int, at: int, hours: int, lost: int) -> dict[str, Any]:
    fleet, site, name = world.fleets[agent // AGENTS], world.site_names[agent // AGENTS], world.agent(agent)
    judged = hours * 10_000
    said = {
        "agent_id": name, "fleet": fleet, "site": site, "state": "running", "version": "0.1.0", "time": at,
        "inputs": {"syslog": {"received": judged + lost, "stored": judged, "judged": judged,
                              "dropped": {"kernel": lost} if lost else {}, "lost": {}}},
        "backlog": {}, "lag_seconds": 0, "rules": {"dead_count": 0}, "identity_broken": [],
        "alerts": {"made": hours, "receipted": hours, "in_outbox": 0},
    }  # fmt: skip
    return {
        "agent_id": name, "fleet": fleet, "site": site, "state": "running", "version": "0.1.0",
        "bundle": "simulated-1", "plan_digest": "0" * 16, "seq_high": hours, "payload": json.dumps(said),
        "received_at": at, "ingest": {"collector_id": "simulated", "topic": f"vedette/v1/{fleet}/{name}/status"},
        "stated_site": None,
    }  # fmt: skip


def write_rules(landing: Path, world: World, created: int) -> list[str]:
    """The rule list of the bundle that every agent runs; the ids of its rules that never fire."""
    silent = world.rule_ids[world.rules :]
    rules = [
        {"id": world.rule_ids[n], "title": world.titles[n], "level": LEVELS[world.level[n]],
         "tags": rule_tags(world, n), "logsource": {"product": "linux"}, "state": "running"}
        for n in range(world.rules)
    ]  # fmt: skip
    rules += [
        {"id": rule_id, "title": f"Silent rule {n}", "level": "high", "tags": ["attack.impact", f"attack.t14{n:02d}"],
         "logsource": {"product": "linux"}, "state": "running"}
        for n, rule_id in enumerate(silent)
    ]  # fmt: skip
    (landing / "rules").mkdir(parents=True, exist_ok=True)
    at = datetime.fromtimestamp(created / 1e6, UTC).isoformat()
    document = {"name": "simulated", "version": 1, "created": at, "rules": rules}
    (landing / "rules" / "1.json").write_text(json.dumps(document, indent=1) + "\n")
    return silent


def write_lookups(folder: Path, world: World, exercise: Sequence[str], threats: Sequence[str]) -> None:
    """``assets``, ``sites`` and ``intel``: addresses of the red teams, and of some campaigns."""
    folder.mkdir(parents=True, exist_ok=True)
    assets = [
        {"host": f"h{h:03d}.{site}", "site": site, "owner": f"team-{h % 7}", "role": ("web", "db", "client")[h % 3],
         "environment": "production" if h % 5 else "test", "criticality": 1 + h % 4}
        for site in world.site_names for h in range(world.hosts)
    ]  # fmt: skip
    sites = [
        {"site": name, "fleet": world.fleets[n], "name": name.replace("-", " ").title(),
         "country": _PLACES[world.zone[n]][2], "latitude": _PLACES[world.zone[n]][3] + n % 7 * 0.3,
         "longitude": _PLACES[world.zone[n]][4] + n % 5 * 0.4, "timezone": _PLACES[world.zone[n]][0]}
        for n, name in enumerate(world.site_names)
    ]  # fmt: skip
    intel = [
        *({"kind": "ip", "value": value, "source": "own", "threat": "exercise", "score": 0} for value in exercise),
        *({"kind": "ip", "value": value, "source": "feed", "threat": "attacker", "score": 80} for value in threats),
    ]
    for name, rows in (("assets", assets), ("sites", sites), ("intel", intel)):
        if rows:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet", compression="zstd")
