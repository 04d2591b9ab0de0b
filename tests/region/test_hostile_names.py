"""Names from outside at the region: agents, fleets, groups, alerts. None is a way out of the folder that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.delivery.kit import alert
from tests.fleet.asking import AGENT, FLEET, KEYS, Authority
from tests.fleet.kit import desired, group
from vedette.bundle.seal import key_text
from vedette.delivery.envelope import encode, pack_batch
from vedette.fleet.certificates import new_key, signing_request
from vedette.fleet.documents import Change, DocumentRefused, Target, read_desired
from vedette.fleet.enrolment import REQUEST, EnrolmentRefused, frame, new_token, parse_token, read_request
from vedette.fleet.enrolment import Request as Enrolment
from vedette.fleet.operators import read_operator
from vedette.fleet.replies import Part, pack, packed
from vedette.fleet.requests import Refused, Request, read
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.region import evidence
from vedette.region.enroll import Region
from vedette.region.land import Landing, LandingSettings, _taken_apart
from vedette.region.members import Member
from vedette.region.requests import Collection, find, moment

AUTHORITY = Authority()
NAMES = ("..", ".", "...", ".agent", "", "a/b", "../a", "a\0", "a\n", "ä", "x" * 200)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def request(agents: tuple[str, ...] = (AGENT,), **more: Any) -> Request:
    now = moment()
    known = {"operator": "ann", "body": {"ref": {"log_id": "0" * 32, "offset": 0, "length": 9}, "around": 3}, **more}
    return Request(FLEET, "evidence", known["operator"], now, now + 3_600_000_000, known["body"], agents, None, "case")


# --- enrolment


@pytest.mark.parametrize("name", NAMES)
def test_no_such_member_enrols(tmp_path: Path, name: str) -> None:
    """By hand, with a token, by a renewal, or as a fleet: nothing is written for it."""
    with Region.open(tmp_path / "region") as region:
        region.broker = "mqtts://region.example"
        region.enroll("web-1")
        region.members[name] = Member(name, key="ab" * 32)  # who got in before
        before = files(tmp_path)
        public = new_key().public_key()
        for attempt in (
            lambda: region.enroll(name),
            lambda: region.enroll("web-2", fleet=name),
            lambda: region.admit(name, public, fleet="default", labels={}),
            lambda: region.admit("web-3", public, fleet=name, labels={}),
            lambda: region.renew(name, public, days=9),
        ):
            with pytest.raises(ValueError, match="expects 1 to 64 letters"):
                attempt()
        assert files(tmp_path) == before


@pytest.mark.parametrize("name", NAMES)
def test_no_such_name_in_a_request_to_enrol(name: str) -> None:
    """It is refused where it is read, and so is a token for such a fleet."""
    token = new_token("plants")
    asked = Enrolment("0" * 32, token.id, "plants", name, signing_request("web-1", new_key()))
    with pytest.raises(EnrolmentRefused, match="name"):
        read_request(frame(REQUEST, asked, token.secret), token.secret)
    with pytest.raises(EnrolmentRefused, match="not a token"):
        parse_token(new_token(name).text())


# --- the landing


def landed(folder: Path, topic: str, *alerts: bytes) -> dict[str, list[dict[str, Any]]]:
    """The rows of a message."""
    service = Landing(LandingSettings(MqttSettings("mqtt://region.example"), folder))
    return service._decode([_taken_apart(Message(topic, pack_batch("log", alerts), 1, False, False, 1))]).rows


@pytest.mark.parametrize("id", [*NAMES, "a-1", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n", "../" * 10 + "ab"])
def test_an_alert_has_an_id_of_hex_digits(tmp_path: Path, id: str) -> None:
    """Another one is a dead letter with its reason, and its neighbours land."""
    rows = landed(tmp_path, "vedette/v1/f1/a1/alerts", encode(alert(1)), encode(alert(2, alert_id=id)))
    assert [row["seq"] for row in rows["alerts"]] == [1]
    assert ["alert_id" in row["reason"] for row in rows["bad"]] == [True]


@pytest.mark.parametrize("name", ["..", ".", ".agent"])
def test_no_such_agent_lands(tmp_path: Path, name: str) -> None:
    """Neither an agent nor a fleet of such a name."""
    for fleet, agent in (("f1", name), (name, "a1")):
        rows = landed(tmp_path, f"vedette/v1/{fleet}/{agent}/alerts", encode(alert(1, fleet=fleet, agent_id=agent)))
        assert not rows["alerts"]
        assert len(rows["bad"]) == 1


# --- requests and their replies


@pytest.mark.parametrize("name", NAMES)
def test_no_request_to_such_an_agent(tmp_path: Path, name: str) -> None:
    """Neither made, nor read, nor answered."""
    with pytest.raises(ValueError, match="no agent id"):
        Collection.begin(tmp_path / "requests", request((name,)), KEYS["ann"], [name], AUTHORITY.pem)
    hostile = [request(operator=name), *([] if name == ".agent" else [request((name,))])]  # as ".controller" has one
    for one in hostile:
        with pytest.raises(Refused):
            read(one.signed(KEYS["ann"]))
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["alert", "carry", "cancel.json", "agents.json", "request.json", "console.json"])
def test_an_agent_named_like_a_file_of_the_request(tmp_path: Path, name: str) -> None:
    """Its reply is kept like others, and the request says nothing that it did not say before."""
    made = Collection.begin(tmp_path, request((name, AGENT)), KEYS["ann"], [name, AGENT], AUTHORITY.pem)
    part = Part(0, packed(b'{"n":1}\n'), 8, True, "done")
    for agent in (name, AGENT):
        assert made.take(agent, pack(made.request.id, part, AUTHORITY.agent(agent)))
    again = Collection(find(tmp_path, made.request.id), AUTHORITY.pem)
    assert [[*again.records(agent)] for agent in (name, AGENT)] == [[{"n": 1}]] * 2
    assert not again.cancelled
    assert again.alert == ""
    assert not (made.folder / "carry").exists()


@pytest.mark.parametrize("id", NAMES)
def test_no_evidence_of_such_an_alert(tmp_path: Path, id: str) -> None:
    """Nothing is stored, in the folder or out of it."""
    made = Collection.begin(tmp_path / "requests", request(), KEYS["ann"], [AGENT], AUTHORITY.pem)
    made.take(AGENT, pack(made.request.id, Part(0, packed(b'{"n":1}\n'), 8, True, "done"), AUTHORITY.agent()))
    before = files(tmp_path)
    with pytest.raises(ValueError, match="no alert id"):
        evidence.store(tmp_path / "evidence", id, made, AGENT)
    assert files(tmp_path) == before


# --- signed documents


@pytest.mark.parametrize("name", NAMES)
def test_no_such_name_in_a_document(name: str) -> None:
    """A set of rules is a folder on hosts, a lookup and a group are names of files: refused though it is signed."""
    change = Change("c1", Target("bundles/x.vbundle", "0" * 64, 1))
    hostile = [group(name), group("all", bundles={name: change}), group("all", lookups={name: change}),
               group("all", config=Change(name, change.to))]  # fmt: skip
    for one in hostile:
        with pytest.raises(DocumentRefused):
            read_desired(desired(1, one).to_bytes(), FLEET)
    key = key_text(Ed25519PrivateKey.generate().public_key())
    with pytest.raises(ValueError, match="name"):
        read_operator({"name": name, "key": key, "roles": ["viewer"], "expires": "2099-01-01T00:00:00Z"}, "operator[0]")


@pytest.mark.parametrize("path", ["..", "../x", "a/../x", "/x", "a//x", "./x", "a/.", "", "a\0", "a\n", "x" * 300])
def test_no_such_target_in_a_document(path: str) -> None:
    """A target's path is one below a folder."""
    data = desired(1, group("all", config=Change("c1", Target("PATH", "0" * 64, 1)))).to_bytes()
    with pytest.raises(DocumentRefused, match="target"):
        read_desired(data.replace(b'"PATH"', json.dumps(path).encode()), FLEET)
