"""Lookups that come by themselves: published in blocks over a real broker, or put into a folder, and swapped under
running rules."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import paho.mqtt.publish
import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from bench.send import tcp
from tests.broker import Broker, running
from tests.e2e.agent import Agent, vedette
from tests.e2e.faults import tmpfs
from tests.e2e.mqttproxy import Relay
from tests.waits import until
from vedette.lookup.batch import Batch, Key
from vedette.lookup.build import build
from vedette.lookup.delta import packed
from vedette.lookup.layout import FORMAT, Column
from vedette.lookup.offer import Announcement, Offer
from vedette.lookup.sign import head_for, head_of, opened, sign
from vedette.lookup.table import Lookup
from vedette.region.sign import keygen, load_key

pytestmark = pytest.mark.peer

RULE = """\
title: Known asset
id: 6a1f0000-0000-4000-8000-000000000077
status: test
logsource:
    product: linux
detection:
    known:
        user|expand: '%users%'
    marked:
        - 'lookup-marker'
    condition: known and marked
level: low
"""
OTHER = """\
title: Plain marker
id: 6a1f0000-0000-4000-8000-000000000078
status: test
logsource:
    product: linux
detection:
    marked:
        - 'plain-marker'
    condition: marked
level: low
"""
SETTINGS = """
[[input]]
name = "in"
type = "syslog"
format = "syslog"
tcp = "127.0.0.1:{port}"
[bundles]
trusted_keys = ["{key}"]
"""
UPLINK = '[uplink]\ntype = "mqtt"\n[broker]\nurl = "{url}"\n'


class Region:
    """Keys, tables and bundles of a fleet, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.key = folder, folder / "region.pem"
        self.public = keygen(self.key)
        self._built = time.time_ns() // 1000

    def table(
        self, name: str, rows: list[tuple[Any, ...]], columns: str = "user owner", key: str = "user:nocase",
        fleet: str = "f1",
    ) -> Path:  # fmt: skip
        """A signed lookup ``NAME-N.vlookup`` of ``rows``, built after those before; returns its path."""
        self._built += 1_000_000
        named = [Column(one, kind or "text") for one, _, kind in (part.partition(":") for part in columns.split())]
        path = self.folder / f"{name}-{self._built}.vlookup"
        previous = max(self.folder.glob(f"{name}-*.vlookup"), default=None)
        values = [[row[number] for row in rows] for number in range(len(named))]
        build(path, named, [Key.parse(key)], [Batch(values, range(2, 2 + len(rows)))], created=self._built, name=name,
              previous=previous)  # fmt: skip
        sign(path, path, load_key(self.key), fleet, "stable" if fleet else "")
        return path

    def noise(self, name: str, megabytes: int, seed: int = 1, changed: float = 0.0) -> Path:
        """A table whose file has about so many megabytes; ``changed``: the share of rows that differ from the others'
        of this seed."""
        draw, other = random.Random(seed), random.Random(seed + 1000 + round(changed * 1e6))
        rows = []
        for number in range(megabytes * 4300):
            note = draw.randbytes(220).hex()
            rows.append((f"user{number:07d}", other.randbytes(220).hex() if other.random() < changed else note))
        return self.table(name, rows)

    def publish(self, path: Path, url: str, *more: object) -> str:
        return vedette("region", "publish", path, "--broker", url, *more).stdout


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Region:
    return Region(tmp_path_factory.mktemp("region"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "broker", durable=True, verbose=False) as started:
        yield started


def agent_of(tmp_path: Path, region: Region, more: str = "", rules: str = RULE) -> Agent:
    folder = tmp_path / "rules"
    folder.mkdir(exist_ok=True)
    (folder / "rule.yml").write_text(rules)
    (folder / "other.yml").write_text(OTHER)  # one that runs without the lookup
    made = Agent(tmp_path / "a", rules=folder, rules_poll=0.2)
    made.configure(SETTINGS.format(port=made.port, key=region.public) + more)
    return made


@pytest.fixture
def agent(tmp_path: Path, region: Region) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(more: str = "", rules: str = RULE) -> Agent:
        made.append(agent_of(tmp_path, region, more, rules))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def incoming(agent: Agent) -> dict[str, Any]:
    found = agent.status()["lookups"]["incoming"]
    return found[0] if found else {}


def in_use(agent: Agent, name: str = "users") -> str:
    """The version of a lookup that rules may ask; empty when there is none."""
    agent.alive()
    return next((one["version"] for one in agent.status()["lookups"]["in_use"] if one["name"] == name), "")


def version(path: Path) -> str:
    found: str = json.loads(vedette("lookup", "show", path, "--json").stdout)["version"]
    return found


def refused(agent: Agent) -> str:
    agent.alive()
    return " ".join(one["reason"] for one in agent.status()["lookups"]["refused"])


def log_in(agent: Agent, *users: str) -> None:
    lines = "".join(
        f"<38>Nov 20 10:00:00 web1 sshd[1]: Accepted password for {user} from 192.0.2.1 port 22 ssh2 lookup-marker\n"
        for user in users
    )
    tcp(("127.0.0.1", agent.port), lines.encode())


def alerted(agent: Agent) -> list[str]:
    """The users of the alerts, in the log's order."""
    rows = sorted(agent.alerts(), key=lambda row: row["raw_ref"]["offset"])
    return [dict(row["fields"])["user"] for row in rows]


def retained(broker: Broker) -> dict[str, bytes]:
    """Every retained message, by topic."""
    found: dict[str, bytes] = {}
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    subscribed: list[object] = []
    client.on_message = lambda _client, _data, message: found.update({message.topic: bytes(message.payload)})
    client.on_subscribe = lambda *answer: subscribed.append(answer)
    client.connect("127.0.0.1", broker.port)
    client.subscribe("vedette/v1/f1/bundles/#", qos=0)
    until("the broker to answer", lambda: not client.loop(0.1) and subscribed)
    client.publish(last := "vedette/v1/f1/bundles/last", qos=0)  # it comes behind all that is retained
    until("the last message", lambda: not client.loop(0.1) and last in found)
    client.disconnect()
    del found[last]
    return found


@pytest.mark.long
def test_fifty_megabytes_over_a_link_that_is_cut(
    broker: Broker, agent: Callable[..., Agent], region: Region, tmp_path: Path
) -> None:
    """A lookup of 50 MB arrives though the link is cut and the agent and the broker are killed under way; no block that
    has come is fetched again. A new version with 1 % changed rows takes a small share of that; it is in use at once,
    and its blobs replace those of the old one at the broker."""
    first, second = region.noise("users", 50), region.noise("users", 50, changed=0.01)
    size = first.stat().st_size
    assert size > 45 << 20
    region.publish(first, broker.url)
    relay = Relay(broker.port)
    one = agent('[lookups]\nmax_rate = "8MiB"\n' + UPLINK.format(url=relay.url))
    one.up()
    blocks = until(
        "the first blocks", lambda: one.alive() and incoming(one).get("have", 0) > 5 and incoming(one)["blocks"]
    )
    relay.cut()
    until("more after the cut", lambda: incoming(one)["have"] > 12)
    one.kill()
    one.up()
    kept = until("what was kept", lambda: incoming(one).get("resumed", 0))
    assert kept >= 12
    until("more after the kill", lambda: incoming(one)["have"] > kept + 4)
    broker.kill()
    until("the outage", lambda: one.alive() and not one.status()["uplink"]["connected"])
    broker.start()
    until("the first version", lambda: in_use(one) == version(first))
    relay.cut()
    totals = one.status()["totals"]
    assert totals["lookup_blocks"] >= blocks - kept  # counted since the last commit before the kill, at least

    said = region.publish(second, broker.url, "--previous", first)
    before = one.status()["totals"]["lookup_bytes"]
    until("the second version", lambda: in_use(one) == version(second))
    share = (one.status()["totals"]["lookup_bytes"] - before) / size
    assert 0 < share < 0.08, said
    held = retained(broker)
    offer = Offer.from_bytes(held[_blob(orjson.loads(held["vedette/v1/f1/bundles/stable/lookups/users"])["offer"])])
    assert {topic for topic in held if "/blobs/" in topic} == {
        _blob(orjson.loads(held["vedette/v1/f1/bundles/stable/lookups/users"])["offer"]), *map(_blob, offer.blobs())
    }  # fmt: skip
    files = list((one.data / "lookups" / "users").glob("*-*.vlookup"))
    assert len(files) == 2
    assert vedette("lookup", "list", "-c", one.config).stdout.count("users version") == 1
    assert not list((one.data / "lookups" / ".incoming").iterdir())


def _blob(digest: str) -> str:
    return f"vedette/v1/f1/bundles/stable/blobs/{digest}"


def put(broker: Broker, topic: str, payload: bytes) -> None:
    paho.mqtt.publish.single(
        topic, payload, qos=1, retain=True, hostname="127.0.0.1", port=broker.port, protocol=MQTTv5
    )


@pytest.mark.long
def test_a_block_that_was_tampered_with(broker: Broker, agent: Callable[..., Agent], region: Region) -> None:
    """Another block under a listed digest, and a block whose offer names it though it is not what was signed, are
    refused by number; so is an offer that another key signed. The version in use goes on making alerts."""
    good = region.table("users", [("alice", "it")])
    region.publish(good, broker.url)
    one = agent(UPLINK.format(url=broker.url))
    one.up()
    until("the first version", lambda: in_use(one) == version(good))

    second = region.table("users", [("alice", "it"), ("bob", "ot")])
    region.publish(second, broker.url)  # then its only block is exchanged, under the digest that the offer names
    until("the second version", lambda: in_use(one) == version(second))
    third = region.table("users", [("mallory", "it")])
    offer, announced = _forged(region, third, b"users\0not a frame")
    put(broker, _blob(hashlib.sha256(b"users\0not a frame").hexdigest()), b"users\0something else")
    put(broker, _blob(hashlib.sha256(offer).hexdigest()), offer)
    put(broker, "vedette/v1/f1/bundles/stable/lookups/users", announced)
    until("the refusal", lambda: "is not what its digest says" in refused(one))
    put(broker, _blob(hashlib.sha256(b"users\0not a frame").hexdigest()), b"users\0not a frame")
    put(broker, "vedette/v1/f1/bundles/stable/lookups/users", announced)
    until("the refusal", lambda: "cannot be unpacked" in refused(one))

    wrong = packed("users", bytes(third.stat().st_size - len(Offer.from_bytes(offer).head)))
    offer, announced = _forged(region, third, wrong)
    put(broker, _blob(hashlib.sha256(wrong).hexdigest()), wrong)
    put(broker, _blob(hashlib.sha256(offer).hexdigest()), offer)
    put(broker, "vedette/v1/f1/bundles/stable/lookups/users", announced)
    until("the refusal", lambda: "block 0 is not the one that was signed" in refused(one))

    keygen(other := region.folder / f"other-{time.time_ns()}.pem")
    sign(third, third, load_key(other), "f1", "stable")
    region.publish(third, broker.url)
    until("the refusal", lambda: "not among bundles.trusted_keys" in refused(one))
    assert in_use(one) == version(second)
    log_in(one, "bob", "mallory")
    until("the alert", lambda: alerted(one) or one.status()["alerts"]["made"])
    assert one.status()["alerts"]["made"] == 1


def _forged(region: Region, path: Path, blob: bytes) -> tuple[bytes, bytes]:
    """An offer of ``path`` whose blocks are all ``blob``, and its announcement."""
    with path.open("rb") as source:
        signed = opened(head_of(source), None)
    offer = Offer(signed.head, hashlib.sha256(blob).digest() * len(signed), "", {}).to_bytes()
    said = Announcement(
        signed.name, signed.version, signed.created, signed.rows, signed.size, hashlib.sha256(offer).hexdigest()
    )
    return offer, said.to_bytes()


@pytest.mark.long
def test_swapped_under_running_rules(agent: Callable[..., Agent], region: Region, tmp_path: Path) -> None:
    """A hundred versions in a host's folder while events come: each event is stored and evaluated, an event that was
    seen before gets the new version's answer and columns, and no mapping of an old version stays."""
    drop = tmp_path / "drop"
    drop.mkdir()
    one = agent(f'[lookups]\nfolder = "{drop}"\n[[enrich]]\nlookup = "users"\nfield = "user"\ncolumns = ["owner"]\n')
    one.up()
    log_in(one, "alice", "bob")
    sent = 2
    for number in range(100):
        user = ("alice", "bob")[number % 2]
        path = region.table("users", [(user, f"owner {number}")], fleet="")
        wanted = version_of(path)
        path.rename(drop / "users.vlookup")
        until(f"version {number}", lambda wanted=wanted: in_use(one) == wanted)
        log_in(one, "alice", "bob")
        sent += 2
        until("the events", lambda sent=sent: one.input()["judged"] == sent)
    status = one.settled(sent)
    assert alerted(one) == ["alice", "bob"] * 50
    rows = sorted(one.alerts(), key=lambda row: row["raw_ref"]["offset"])
    assert [dict(row["fields"])["users.owner"] for row in rows] == [f"owner {number}" for number in range(100)]
    assert one.input() | {"bytes_in": 0} == {
        "received": sent, "stored": sent, "judged": sent, "bytes_in": 0, "cut": 0, "dropped": {}, "lost": {}
    }  # fmt: skip
    assert status["totals"]["lookups_installed"] == 100
    assert one.process is not None
    maps = Path(f"/proc/{one.process.pid}/maps").read_text()
    mapped = {line.split()[-1] for line in maps.splitlines() if ".vlookup" in line and "(deleted)" not in line}
    assert len(mapped) <= 2, mapped
    assert maps.count(".vlookup (deleted)") <= 2, maps


def version_of(path: Path) -> str:
    with path.open("rb") as source:
        return opened(head_of(source), None).version


@pytest.mark.long
def test_what_is_refused_from_a_folder(agent: Callable[..., Agent], region: Region, tmp_path: Path) -> None:
    """A file that is cut off, foreign, of a newer format, unsigned, changed, for another fleet, older, or without the
    key that the rules ask is refused with what to do; the version in use goes on making alerts. Rolled back to the
    version before, the one that was current is refused, too."""
    drop = tmp_path / "drop"
    drop.mkdir()
    first = region.table("users", [("alice", "it")])
    older = first.read_bytes()
    (drop / "users.vlookup").write_bytes(older)
    one = agent(f'[lookups]\nfolder = "{drop}"\n')
    one.up()
    until("the first version", lambda: in_use(one) == version_of(first))
    second = region.table("users", [("alice", "it"), ("carol", "ot")])
    (drop / "users.vlookup").write_bytes(second.read_bytes())
    until("the second version", lambda: in_use(one) == version_of(second))
    good = region.table("users", [("mallory", "it")]).read_bytes()
    head = opened_head(good)
    changed = bytearray(good)
    changed[-20] ^= 1
    newer = bytearray(good[head:])
    newer[8] = 9
    (plain := tmp_path / "plain.vlookup").write_bytes(good)
    with Lookup.open(plain) as found:
        newer = bytearray(head_for(found, BytesIO(newer), 0, load_key(region.key), "f1", "stable")) + newer
    other = region.table("users", [("mallory",)], "name", "name").read_bytes()
    bad = {
        "cut": (good[:-30], "bytes and not the"),
        "cut within its head": (good[: head - 10], "cut off"),
        "foreign": (b"PK\3\4 something else", "not signed: sign it with `vedette lookup sign`"),
        "unsigned": (good[head:], "not signed: sign it with `vedette lookup sign`"),
        "changed": (bytes(changed), "was damaged or changed after signing: copy it again"),
        "of another fleet": (
            region.table("users", [("m", "it")], fleet="f2").read_bytes(),
            "this agent is of fleet f1",
        ),
        "of a newer format": (bytes(newer), f"its format 9 is newer than {FORMAT}: upgrade the agent"),
        "older": (older, "built before the installed version: build it again"),
        "without the key": (other, "its rules ask the lookup users by user"),
    }
    for name, (data, wanted) in bad.items():
        (drop / "users.vlookup").write_bytes(data)
        until(f"the refusal of what is {name}", lambda wanted=wanted: wanted in refused(one))
        assert in_use(one) == version_of(second)
    log_in(one, "carol", "mallory")
    until("the alert", lambda: one.status()["alerts"]["made"] == 1)

    assert "is current" in vedette("lookup", "rollback", "users", "-c", one.config).stdout
    until("the version before", lambda: in_use(one) == version_of(first))
    log_in(one, "carol", "alice")
    until("the other alert", lambda: one.status()["alerts"]["made"] == 2)
    (drop / "users.vlookup").write_bytes(second.read_bytes())
    until("the refusal", lambda: "was rolled back on this agent: build it again" in refused(one))
    one.kill()
    one.up()
    until("the version before, after a restart", lambda: in_use(one) == version_of(first))
    assert vedette("lookup", "rollback", "users", "-c", one.config, code=2)


def opened_head(data: bytes) -> int:
    """Bytes before the lookup itself in a signed file."""
    return data.index(b"VDLOOKUP")


@pytest.mark.long
def test_a_disk_that_is_full(broker: Broker, agent: Callable[..., Agent], region: Region) -> None:
    """A lookup for which the disk has no room is late, with how much it needs; it comes once there is room."""
    path = region.noise("users", 12)
    region.publish(path, broker.url)
    one = agent(UPLINK.format(url=broker.url))
    with tmpfs(one.data / "lookups", "40m") as disk:
        hold = disk / "held"
        hold.write_bytes(bytes(24 << 20))
        one.up()
        until("the delay", lambda: "are free: free some; it is tried again" in refused(one))
        assert not in_use(one)
        assert one.said("lookup_delayed")
        hold.unlink()
        until("the lookup", lambda: in_use(one) == version_of(path))
        assert not refused(one)
        one.kill()


def test_apart_from_the_bundle(broker: Broker, agent: Callable[..., Agent], region: Region, tmp_path: Path) -> None:
    """A bundle whose rules ask a lookup that has not come is refused by name; when the lookup comes both are in use,
    also after a kill. A version that lacks what the rules ask is refused; one that does not is in use without another
    bundle, and what was evaluated before is asked again."""
    # Over 3 s: two lives of an agent; bundle and lookups are built, published and validated.
    first = region.table("users", [("alice", "it")])
    (rules := tmp_path / "written").mkdir()
    (rules / "rule.yml").write_text(RULE)
    bundle = tmp_path / "rules.vbundle"
    shutil.copy(first, tmp_path / "users.vlookup")
    vedette("bundle", "build", rules, "-o", bundle, "--version", 1, "--lookup", tmp_path / "users.vlookup", "--apart",
            "users")  # fmt: skip
    vedette("bundle", "sign", bundle, "--key", region.key, "--fleet", "f1")
    one = Agent(tmp_path / "b", rules=None)
    uplink = UPLINK.format(url=broker.url)
    one.configure(SETTINGS.format(port=one.port, key=region.public) + uplink)
    try:
        one.up()
        region.publish(bundle, broker.url)
        until("the refusal", lambda: "the lookup users, which is not there" in (one.status()["rules"]["error"] or ""))
        region.publish(first, broker.url)
        until("lookup and bundle", lambda: in_use(one) == version_of(first) and one.status()["rules"]["running"] == 1)
        log_in(one, "alice", "bob")
        until("the alert", lambda: one.status()["alerts"]["made"] == 1)
        one.kill()
        one.up()
        assert one.status()["rules"]["running"] == 1
        assert in_use(one) == version_of(first)
        region.publish(region.table("users", [("bob", 1)], "name n:int", "name"), broker.url)
        until("the refusal", lambda: "its rules ask the lookup users by user" in refused(one))
        second = region.table("users", [("bob", "ot")])
        region.publish(second, broker.url)
        until("the second version", lambda: in_use(one) == version_of(second))
        assert one.status()["rules"]["error"] is None
        log_in(one, "alice", "bob")
        until("the alert", lambda: one.status()["alerts"]["made"] == 2)
        assert one.status()["rules"]["running"] == 1
    finally:
        one.kill()


@pytest.mark.long
def test_withdrawn_and_removed(broker: Broker, agent: Callable[..., Agent], region: Region) -> None:
    """Off the channel nobody fetches it, and who has it keeps it; on a host it goes once no rule asks it, and stays
    away over a restart."""
    path = region.table("users", [("alice", "it")])
    region.publish(path, broker.url)
    one = agent(UPLINK.format(url=broker.url)).up()
    until("the lookup", lambda: in_use(one) == version(path))
    options = "--fleet", "f1", "--channel", "stable", "--broker", broker.url
    assert vedette("region", "withdraw", "--lookup", "users", *options).stdout.startswith("withdrawn: users, 1 blocks")
    assert "rules ask the lookup users" in vedette("lookup", "remove", "users", "-c", one.config, code=2).stderr
    assert "no lookup other" in vedette("lookup", "remove", "other", "-c", one.config, code=2).stderr
    one.kill()
    one.up()
    assert in_use(one) == version(path)
    assert one.rules is not None
    (one.rules / "rule.yml").unlink()
    until("rules without it", lambda: one.status()["rules"]["running"] == 1)
    assert vedette("lookup", "remove", "users", "-c", one.config).stdout == "users: removed\n"
    assert not in_use(one)
    one.kill()
    one.up()
    until("the uplink", lambda: one.status()["uplink"]["connected"])
    assert not in_use(one)


def test_reloaded_from_its_source(broker: Broker, agent: Callable[..., Agent], region: Region, tmp_path: Path) -> None:
    """What `lookup refresh` makes of a file that changes reaches the agent, and nothing of it while it fails."""
    source, tables, made = tmp_path / "users.csv", tmp_path / "lookups.toml", tmp_path / "lookups"
    tables.write_text('[[lookup]]\nname = "users"\nevery = "1h"\nkey = ["user:nocase"]\npath = "users.csv"\n')
    refresh = ("lookup", "refresh", tables, "-o", made, "--key", region.key, "--fleet", "f1", "--broker", broker.url)
    one = agent(UPLINK.format(url=broker.url)).up()
    versions = []
    for users in ("alice", "alice\nbob"):
        source.write_text(f"user\n{users}\n")
        assert ", published" in vedette(*refresh, "--now").stdout
        versions.append(version(made / "users.vlookup"))
        until("the lookup", lambda: in_use(one) == versions[-1])
    source.unlink()
    assert "No such file" in vedette(*refresh, "--now", code=1).stderr
    assert in_use(one) == versions[-1] != versions[0]
