"""Operators ask real agents over a real mosquitto with TLS and access list; thieves and forgers get nothing."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import orjson
import paho.mqtt.publish
import pytest
import zstandard
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from paho.mqtt.client import MQTTv5

from tests.e2e.agent import KILLS, VEDETTE, chance, up, vedette
from tests.e2e.test_fleet import FLEET, Centre, Host
from tests.waits import DEADLINE, until
from vedette.fleet.audit import Audit, verify
from vedette.fleet.replies import Part, Signer, pack, packed
from vedette.fleet.requests import Request
from vedette.region.requests import moment
from vedette.region.sign import load_key

pytestmark = [pytest.mark.peer, pytest.mark.long]
EVENTS = 3000
LONG = f"{DEADLINE:.0f}s"
"""For an answer that comes."""
ROLES = {"vera": ["viewer"], "ann": ["viewer", "analyst"], "otto": ["operator", "viewer"], "past": ["viewer"]}


class Asked(Host):
    """A host of the fleet with a syslog input, whose owner allows ``allow`` and redacts passwords."""

    allow = ("ask", "evidence", "hunt")

    def configure(self, settings: str) -> None:
        super().configure(settings)
        owner = f"[[redact]]\nexpressions = ['(?i)password=\\S+']\n[fleet]\nallow = {json.dumps([*self.allow])}\n"
        text = self.config.read_text().replace("[fleet]\n", owner, 1)
        self.config.write_text(f'[[input]]\ntype = "syslog"\nname = "in"\ntcp = "127.0.0.1:{self.port}"\n' + text)

    def fed(self, count: int = EVENTS) -> None:
        """Events with a password each, all of them in the raw log."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            for i in range(count):
                connection.sendall(b"<38>Nov 22 10:00:00 web9 app[7]: event %06d password=s3cret%d\n" % (i, i))
        until("the events", lambda: self.input()["stored"] >= count)

    @property
    def record(self) -> list[dict[str, Any]]:
        """The owner's record, whose chain holds."""
        path = self.data / "fleet" / "audit.jsonl"
        assert verify(path)[1] is None
        return [*Audit(path).lines()]

    def refusals(self) -> list[str]:
        return [row["refused"] for row in self.record if row["event"] == "request_refused"]


class Generous(Asked):
    allow = ("ask", "do")


class Operators(Centre):
    """The centre, and the operators' keys."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ROLES:
            vedette("bundle", "keygen", folder / f"{name}.pem")
        self.analyst = self.enroll("analyst", "--role", "analyst", "--fleet", FLEET)
        self.requests, self.evidence = folder / "requests", folder / "evidence"

    def write(self, **vienna: str) -> None:
        super().write(**vienna)
        self.toml.write_text(f"{self.toml.read_text()}\n{self.operators()}")

    def operators(self) -> str:
        """Their tables of ``fleet.toml``."""
        rows = []
        for name, roles in ROLES.items():
            key = vedette("bundle", "public", self.folder / f"{name}.pem").stdout.strip()
            ends = "2020-01-01T00:00:00Z" if name == "past" else "2099-01-01T00:00:00Z"
            rows.append(
                f'[[operator]]\nname = "{name}"\nkey = "{key}"\nroles = {json.dumps(roles)}\nexpires = {ends}\n'
            )
        return "\n".join(rows)

    def introduce(self, *hosts: Asked) -> None:
        """The operators are made known to them."""
        self.publish()
        for host in hosts:
            host.wait("the operators", lambda actual: actual["metadata"].get("targets", 0) >= 2)

    def options(self, who: str, *, wait: str = LONG) -> list[object]:
        member = self.analyst
        return [
            "--broker", self.broker.url, "--ca-file", member / "region-ca.pem", "--cert-file", member / "agent.pem",
            "--key-file", member / "agent.key", "--key", self.folder / f"{who}.pem", "--trust", self.trust,
            "--requests", self.requests, "--wait", wait,
        ]  # fmt: skip

    def fleet(
        self, who: str, *words: object, wait: str = LONG, code: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        return vedette("fleet", *words, *self.options(who, wait=wait), code=code)

    def offline(self, who: str, *words: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Without a broker."""
        ca, key = self.analyst / "region-ca.pem", self.folder / f"{who}.pem"
        given = ("--ca-file", ca, "--key", key, "--trust", self.trust, "--requests", self.requests)
        return vedette("fleet", *words, "--offline", *given, code=code)

    def request(self, who: str, kind: str = "ask", **fields: Any) -> Request:
        now = moment()
        known = {
            "body": {"question": "versions"},
            "agents": ("vienna-1",),
            "created": now,
            "expires": now + 600_000_000,
        }
        return Request(fields.pop("fleet", FLEET), kind, who, **{**known, **fields})

    def post(self, topic: str, data: bytes, member: Path | None = None) -> None:
        """What somebody with the certificate of ``member`` (an analyst's) puts on a topic."""
        member = member or self.analyst
        tls = {"ca_certs": f"{member}/region-ca.pem", "certfile": f"{member}/agent.pem",
               "keyfile": f"{member}/agent.key", "tls_version": ssl.PROTOCOL_TLS_CLIENT}  # fmt: skip
        paho.mqtt.publish.single(
            f"vedette/v1/{FLEET}/{topic}", data, qos=1, hostname="127.0.0.1", port=self.broker.port, tls=tls,
            protocol=MQTTv5, client_id=f"mallory-{time.monotonic_ns()}",
        )  # fmt: skip

    @property
    def record(self) -> list[dict[str, Any]]:
        path = self.requests / "audit.jsonl"
        assert verify(path)[1] is None
        return [*Audit(path).lines()]


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Operators]:
    made = Operators(tmp_path / "centre")
    yield made
    made.broker.kill()


@pytest.fixture
def hosts(centre: Operators, tmp_path: Path) -> Iterator[tuple[Asked, Generous]]:
    """Two agents that know the operators."""
    vienna = Asked(tmp_path / "vienna", centre, "vienna-1", "vienna")
    linz = Generous(tmp_path / "linz", centre, "linz-1", "linz")
    centre.broker.start()
    with up(vienna, linz):
        centre.introduce(vienna, linz)
        yield vienna, linz


def test_questions_and_commands(centre: Operators, hosts: tuple[Asked, Generous]) -> None:
    """Every question is answered by both; what the owner does not allow is refused and said; who does not answer is
    listed; both records have it."""
    vienna, linz = hosts
    shown = centre.fleet("vera", "ask", "versions", "--group", "all").stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["agent", "linz-1", "vienna-1"]
    for question in ("status", "rules", "disk"):
        done = centre.fleet("vera", "ask", question, "--group", "site = vienna", "--json")
        row = json.loads(done.stdout)
        assert (row["agent_id"], row["state"], row["whole"]) == ("vienna-1", "done", True)
        assert row["records"] or question == "rules"
    assert "no rule of the id" in centre.fleet("vera", "ask", "explain", "nope", "--agent", "vienna-1", code=1).stderr
    vienna.kill()
    shown = centre.fleet("vera", "ask", "disk", "--agent", "linz-1", "--agent", "vienna-1", wait="4s", code=1)
    assert "vienna-1: no answer" in shown.stderr
    assert "linz-1" in shown.stdout
    vienna.up()
    late = until("the late answer", lambda: _fetched(centre, "vera"))
    assert "vienna-1  done" in late

    refused = centre.fleet("otto", "do", "reload", "--agent", "vienna-1", code=1)
    assert "refused: not allowed: the owner of this host does not allow do" in refused.stderr
    assert vienna.refusals() == ["not allowed"]
    done = centre.fleet("otto", "do", "reload", "--agent", "linz-1")
    assert done.stdout.startswith("linz-1: reloads 1")
    assert "released 0" in centre.fleet("otto", "do", "release-quarantine", "--agent", "linz-1").stdout
    assert linz.status()["config"]["reloads"] == 1
    lacks = centre.fleet("vera", "do", "reload", "--agent", "linz-1", code=1)
    assert "lacks the role operator" in lacks.stderr
    received = [row for row in linz.record if row["event"] == "request_received" and row["kind"] == "do"]
    assert [(row["operator"], row["body"]) for row in received] == [
        ("otto", {"action": "reload"}), ("otto", {"action": "release-quarantine"}),
    ]  # fmt: skip
    events = [row["event"] for row in linz.record if row.get("request") == received[0]["request"]]
    assert events == ["request_received", "request_started", "request_finished", "request_fetched"]
    assert {row["event"] for row in centre.record} >= {"request_made", "reply_whole", "request_collected"}
    assert not [*(linz.data / "fleet" / "requests").glob("*/*.part")]


def _fetched(centre: Operators, who: str) -> str:
    newest = max(centre.requests.glob("*/request.json"), key=lambda path: path.stat().st_mtime).parent.name
    done = centre.fleet(who, "fetch", newest, wait="3s", code=None)
    return done.stdout if done.returncode == 0 else ""


def test_evidence(centre: Operators, hosts: tuple[Asked, Generous], tmp_path: Path) -> None:
    """The lines around an alert come with redaction applied, also when the agent is killed in the middle of the reply,
    again and again; they are stored beside the alert with who asked and why; an owner who says no is obeyed."""
    vienna, _ = hosts
    vienna.fed()
    stored = vienna.stored()
    middle = stored[EVENTS // 2]
    ref = {"log_id": vienna.status()["raw_log"]["log_id"], "offset": middle.offset, "length": len(middle.raw)}
    alert = tmp_path / "alert.json"
    alert.write_bytes(orjson.dumps({"alert_id": "a-17", "agent_id": "vienna-1", "raw_ref": ref}))
    words = ("evidence", "a-17", "--alerts", alert, "--around", 5, "--evidence", centre.evidence, "--reason", "case 17")
    shown = centre.fleet("ann", *words).stdout.splitlines()
    assert [line for line in shown if line.startswith(">")] == [shown[5]]
    assert f"event {EVENTS // 2:06} [redacted]" in shown[5]
    assert len(shown) == 11
    assert "s3cret" not in "\n".join(shown)
    [path] = (centre.evidence / "a-17").glob("*.manifest.json")
    manifest = json.loads(path.read_text())
    assert (manifest["operator"], manifest["reason"], manifest["records"], manifest["whole"]) == (
        "ann", "case 17", 11, True,
    )  # fmt: skip
    row = next(row for row in vienna.record if row["event"] == "request_received")
    assert (row["operator"], row["reason"], row["body"]["around"]) == ("ann", "case 17", 5)
    no = centre.fleet("vera", *words, code=1)
    assert "lacks the role analyst" in no.stderr

    words = (
        "evidence",
        "a-17",
        "--alerts",
        alert,
        "--around",
        EVENTS,
        "--evidence",
        centre.evidence,
        "--reason",
        "all",
    )
    command = [*VEDETTE, "fleet", *map(str, words), *map(str, centre.options("ann"))]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        asking = subprocess.Popen(command, stdout=out, stderr=err)
    rng = chance()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.2, 1.5))
        vienna.kill()
        vienna.start()
    assert asking.wait(DEADLINE) == 0, (tmp_path / "err").read_text() + vienna.text()[-3000:]
    lines = (tmp_path / "out").read_text().splitlines()
    assert [line.partition("event ")[2][:6] for line in lines if "event " in line and "(" not in line[:1]] == [
        f"{i:06}" for i in range(EVENTS)
    ]
    paths = (centre.evidence / "a-17").glob("*.jsonl.zst")
    newest = max(paths, key=lambda path: path.stat().st_mtime)
    data = zstandard.ZstdDecompressor().stream_reader(newest.read_bytes(), read_across_frames=True).read()
    assert b"s3cret" not in data
    assert sum(b'"raw"' in line for line in data.splitlines()) == EVENTS

    found = centre.fleet(
        "ann", "evidence", "--agent", "vienna-1", "--from", "2026-01-01", "--to", "2099-01-01", "--pattern",
        "event 00004[0-3]", "--evidence", centre.evidence, "--reason", "case 17",
    ).stdout.splitlines()  # fmt: skip
    assert [line.partition("event ")[2] for line in found] == [f"00004{i} [redacted]" for i in range(4)]
    shown = vedette("fleet", "audit", vienna.data / "fleet" / "audit.jsonl", "--show").stdout
    assert 'operator=ann kind=evidence reason="case 17" body={' in shown

    gone = {**ref, "log_id": "0" * 32}
    alert.write_bytes(orjson.dumps({"alert_id": "a-18", "agent_id": "vienna-1", "raw_ref": gone}))
    words = ("evidence", "a-18", "--alerts", alert, "--evidence", centre.evidence, "--reason", "case 18")
    assert "retention may have deleted it" in centre.fleet("ann", *words, code=1).stderr
    alert.write_bytes(orjson.dumps({"alert_id": "a-19", "agent_id": "linz-1", "raw_ref": ref}))
    words = ("evidence", "a-19", "--alerts", alert, "--evidence", centre.evidence, "--reason", "case 19")
    assert "the owner of this host does not allow evidence" in centre.fleet("ann", *words, code=1).stderr


def test_attacks_on_a_host(centre: Operators, hosts: tuple[Asked, Generous]) -> None:
    """Replayed, expired, another fleet's, another agent's, forged and lawless commands run nothing, and are recorded;
    an agent's stolen certificate may write no commands at all; a flood leaves a line, and the agent works on."""
    vienna, _ = hosts
    commands = "vienna-1/commands"

    def refused(kind: str, *messages: bytes) -> None:
        before = vienna.refusals().count(kind)
        for message in messages:
            centre.post(commands, message)
        until(f"the refusal: {kind}", lambda: vienna.refusals().count(kind) > before)

    key = {name: load_key(centre.folder / f"{name}.pem") for name in ROLES}
    good = centre.request("vera").signed(key["vera"])
    centre.post(commands, good)
    until("its end", lambda: [row for row in vienna.record if row["event"] == "request_finished"])
    refused("replayed", good)
    refused("operator expired", centre.request("past").signed(key["past"]))
    refused("operator", centre.request("mallory").signed(key["vera"]))
    refused("signature", centre.request("otto", "do", body={"action": "reload"}).signed(key["vera"]))
    refused("fleet", centre.request("vera", fleet="ships").signed(key["vera"]))
    refused("agent", centre.request("vera", agents=("linz-1",)).signed(key["vera"]))
    refused("role", centre.request("vera", "evidence", body={"since": 0, "until": 1}).signed(key["vera"]))
    old = moment() - 7200_000_000
    refused("expired", centre.request("vera", created=old, expires=old + 60_000_000).signed(key["vera"]))
    refused("kind", centre.request("vera", "shell", body={"run": "id"}).signed(key["vera"]))
    refused("body", centre.request("vera", body={"question": "status", "file": "/etc/shadow"}).signed(key["vera"]))
    refused("not allowed", centre.request("otto", "do", body={"action": "reload"}).signed(key["otto"]))
    refused("malformed", b"\x00\xff not a request")
    lines = len(vienna.record)
    for _ in range(300):
        centre.post(commands, b"flood")
    assert len(vienna.record) - lines <= 2
    assert [row["event"] for row in vienna.record].count("request_finished") == 1
    assert vienna.status()["config"]["reloads"] == 0

    stolen = centre.folder / "region" / "members" / "linz-1"
    before = len(vienna.record)
    with contextlib.suppress(Exception):  # paho may report the broker's refusal
        centre.post(commands, centre.request("vera").signed(key["vera"]), stolen)
    assert "vienna-1" in centre.fleet("vera", "ask", "versions", "--agent", "vienna-1").stdout
    made = [row for row in vienna.record[before:] if row["event"] == "request_received"]
    assert len(made) == 1  # that of the line above


def sent(centre: Operators) -> int:
    """Who has asked vienna, by the broker's log; each has subscribed to the replies before."""
    came = rf"Received PUBLISH from (\S+) .*'vedette/v1/{FLEET}/vienna-1/commands'"
    return len({*re.findall(came, centre.broker.log())})


def refused_replies(centre: Operators) -> set[tuple[str, str]]:
    return {(row["agent"], row["refused"]) for row in centre.record if row["event"] == "reply_refused"}


def test_attacks_on_the_centre(centre: Operators, hosts: tuple[Asked, Generous], tmp_path: Path) -> None:
    """Forged replies are refused and recorded, and the true one counts: by an agent in another's name, by one that was
    not asked, by a bomb of one whose key was stolen, by a certificate that was revoked."""
    vienna, _ = hosts
    members = centre.folder / "region" / "members"
    vienna.signal(19)  # SIGSTOP: it answers when the forgers have had their say
    command = [*VEDETTE, "fleet", "ask", "versions", "--agent", "vienna-1", *map(str, centre.options("vera"))]
    asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    [path] = until("the request", lambda: [*centre.requests.glob("*/agents.json")])
    id = path.parent.name
    until("the request at the broker", lambda: sent(centre) == 1)

    def signer(name: str, *, agent: str = "") -> Signer:
        key: Any = load_pem_private_key((members / name / "agent.key").read_bytes(), None)
        return Signer(FLEET, agent or name, key, (members / name / "agent.pem").read_bytes())

    lie = packed(b'{"vedette":"9.9.9"}\n')
    part = Part(0, lie, 20, True, "done")
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    # each with the certificate that the broker wants for the topic, so that the centre has to tell
    centre.post("linz-1/replies", pack(id, part, signer("linz-1")), members / "linz-1")
    centre.post("linz-1/replies", pack(id, part, signer("linz-1", agent="vienna-1")), members / "linz-1")
    centre.post("vienna-1/replies", pack(id, part, signer("linz-1", agent="vienna-1")), members / "vienna-1")
    tampered = msgpack.packb({**msgpack.unpackb(pack(id, part, signer("vienna-1"))), "data": packed(b'{"v":1}\n')})
    centre.post("vienna-1/replies", tampered, members / "vienna-1")
    centre.post("vienna-1/replies", b"\xff" * 1000, members / "vienna-1")
    until("their refusals", lambda: len(refused_replies(centre)) == 5)
    vienna.signal(18)
    out, err = asking.communicate(timeout=DEADLINE)
    assert asking.returncode == 0, err
    assert b"9.9.9" not in out
    assert refused_replies(centre) == {
        ("linz-1", "agent"), ("linz-1", "signature"), ("vienna-1", "signature"), ("vienna-1", "digest"),
        ("vienna-1", "malformed"),
    }  # fmt: skip

    vienna.signal(19)
    command[-1] = "15s"  # no answer comes that is taken
    asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until("the second request", lambda: len([*centre.requests.glob("*/agents.json")]) == 2)
    id = next(path.parent.name for path in centre.requests.glob("*/agents.json") if path.parent.name != id)
    until("the request at the broker", lambda: sent(centre) == 2)
    centre.post("vienna-1/replies", pack(id, Part(0, bomb, 20, True, "done"), signer("vienna-1")), members / "vienna-1")
    out, err = asking.communicate(timeout=DEADLINE)
    assert asking.returncode == 1
    assert b"vienna-1: not taken: " in err
    assert ("vienna-1", "bomb") in refused_replies(centre)
    vienna.signal(18)

    saved = tmp_path / "thief"
    shutil.copytree(members / "linz-1", saved)
    vedette("member", "revoke", "linz-1", "--folder", centre.members)
    crl = ("--crl", centre.members / "crl.pem")
    lost = centre.fleet("vera", "ask", "versions", "--agent", "linz-1", *crl, wait="8s", code=1)
    assert "linz-1: no answer" in lost.stderr
    last = [row for row in centre.record if row["event"] == "reply_refused"][-1]
    assert (last["agent"], last["why"]) == ("linz-1", "the certificate was revoked")
