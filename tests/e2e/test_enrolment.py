"""Hosts become members by a token: a real mosquitto over TLS, the real enroller, real agents."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from tests.broker import Broker, own_port
from tests.e2e.agent import Agent, Process, chance, few, vedette
from tests.waits import until
from vedette.fleet.audit import Audit, verify
from vedette.region.enroll import Region

pytestmark = pytest.mark.peer


class Centre:
    """A region's folder, its broker with both listeners, and its enroller."""

    def __init__(self, folder: Path) -> None:
        self.region, self.folder = folder / "region", folder
        self.broker = Broker(folder / "broker")
        self.broker.url = self.broker.url.replace("mqtt:", "mqtts:")
        self.enrolment = own_port()
        with Region.open(self.region) as region:
            region.broker = self.broker.url
            region.enroll("broker", role="broker", hosts=["127.0.0.1"])
            region.enroll("enroller", role="enroller")
            region.enroll("land-1", role="landing")
        home = self.region / "members" / "broker"
        tls = (f"cafile {home}/region-ca.pem", f"certfile {home}/agent.pem", f"keyfile {home}/agent.key")
        text = self.broker.config.read_text().replace("allow_anonymous true\n", "")
        lines = (
            *tls,
            "require_certificate true",
            "use_identity_as_username true",
            "use_username_as_clientid true",
            f"crlfile {self.region}/crl.pem",
            "allow_anonymous false",
            f"acl_file {self.region}/mosquitto.acl",
            f"password_file {self.region}/mosquitto.passwd",
            f"pid_file {folder}/broker.pid",
            "clientid_prefixes vedette-",
            f"listener {self.enrolment} 127.0.0.1",
            *tls,
        )
        self.broker.config.write_text(text + "\n".join(lines) + "\n")
        self.broker.start()
        reload = folder / "reload.sh"
        reload.write_text(f"#!/bin/sh\nkill -HUP $(cat {folder}/broker.pid)\n")
        reload.chmod(0o755)
        mine = self.region / "members" / "enroller"
        self.enroller = Process(
            folder / "enroller.log", "region", "enroller", "--folder", self.region, "--broker", self.broker.url,
            "--ca-file", mine / "region-ca.pem", "--cert-file", mine / "agent.pem", "--key-file", mine / "agent.key",
            "--client-id", "vedette-enroller", "--reload", reload, "--root", self._trust(),
        )  # fmt: skip
        self.enroller.start()
        self.agents: list[Agent] = []

    def _trust(self) -> Path:
        """The root of trust of the fleet "plants", whose keys are made here."""
        trust = self.folder / "trust"
        vedette(
            "fleet", "init", "plants", "--trust", trust, "--keys", self.folder / "keys", "--root-key", "alice",
            "--targets-key", "carol",
        )  # fmt: skip
        (root,) = (trust / "tuf").glob("*.root.json")
        return root

    def token(self, *options: object) -> str:
        made = vedette("region", "token", "create", "--folder", self.region, "--fleet", "plants", *options)
        return made.stdout.strip()

    def agent(self, name: str, token: str, folder: str = "") -> Agent:
        """An agent that knows nothing of its region but the broker's address and a token."""
        made = Agent(self.folder / (folder or name), rules=few(self.folder / "rules"))
        (made.folder / "token").write_text(token + "\n")
        made.config.write_text(
            f'[agent]\nid = "{name}"\ndata_dir = "{made.data}"\n[rules]\npaths = ["{made.rules}"]\n'
            f'[enrolment]\ntoken_file = "{made.folder}/token"\nurl = "mqtts://127.0.0.1:{self.enrolment}"\n'
            f'[broker]\nurl = "{self.broker.url}"\n[uplink]\ntype = "mqtt"\n[log]\nformat = "json"\n'
        )
        self.agents.append(made)
        return made

    def audit(self, event: str) -> list[dict[str, Any]]:
        """The lines of the audit record with this name; its chain is whole."""
        record = self.region / "audit.jsonl"
        assert verify(record)[1] is None
        return [line for line in Audit(record).lines() if line["event"] == event]

    def stop(self) -> None:
        for agent in self.agents:
            agent.kill()
        self.enroller.kill()
        self.broker.kill()


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    made = Centre(tmp_path)
    yield made
    made.stop()


def joined(agent: Agent) -> bool:
    return agent.alive() and bool(agent.said("broker_connected")) and agent.status()["uplink"]["connected"]


def test_an_agent_enrols_and_renews(centre: Centre) -> None:
    """The key is made on the host and the broker takes the certificate; nobody's retry makes a second member; a renewal
    changes key and certificate while the agent runs, and needs no token."""
    # Over 3 s: three lives of an agent, of which two ask the enroller.
    first = centre.agent("web-1", centre.token("--labels", "site=vienna,os=debian"))
    first.start()
    until("the agent to join", lambda: joined(first))
    assert [line["name"] for line in centre.audit("enrolled")].count("web-1") == 1
    with Region.open(centre.region) as region:
        known = region.member("web-1")
        assert (known.fleet, known.labels) == ("plants", {"site": "vienna", "os": "debian"})
        assert not (centre.region / "members/web-1/agent.key").exists()
    status = first.status()
    assert (status["fleet"], status["membership"]["enrolled"]) == ("plants", True)
    until("the agent to follow its fleet", lambda: "actual" in first.status())
    assert first.status()["actual"]["labels"].items() >= {"site": "vienna", "os": "debian"}.items()

    first.stop()
    (first.folder / "token").unlink()
    identity = first.data / "identity"
    before = (identity / "agent.key").read_bytes()
    _due(centre, first)
    first.start()
    until("the renewal", lambda: first.alive() and (identity / "agent.key").read_bytes() != before)
    first.kill()
    first.start()
    until("the agent to join again", lambda: joined(first))
    assert len(centre.audit("renewed")) >= 1


def _due(centre: Centre, agent: Agent) -> None:
    """As if two thirds of the certificate's life were over: another one for its key, from 80 days ago."""
    with Region.open(centre.region) as region:
        member = region.member(agent.config.parent.name)
        held = x509.load_pem_x509_certificate(region.certificate(member.name))
        key = held.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        old = datetime.now(UTC) - timedelta(days=80)
        by = next(one for one in (region.authorities.newest, *region.authorities.former) if _by(held, one.certificate))
        certificate = by.issue(member.name, key, old, 90).public_bytes(Encoding.PEM)
    (agent.data / "identity" / "agent.pem").write_bytes(certificate)


@pytest.mark.long
def test_what_a_token_does_not_allow(centre: Centre) -> None:
    """A leaked token enrols no name that is enrolled, nobody beyond its uses, and nobody when it is revoked or expired;
    each refusal is in the audit record and in the agent's log, and the agent goes on without a region."""
    token = centre.token("--uses", 1)
    good = centre.agent("web-1", token)
    good.start()
    until("the agent to join", lambda: joined(good))

    wide = centre.token("--uses", 50)
    thief = centre.agent("web-1", wide, folder="thief")
    late = centre.agent("web-2", token)
    forged = centre.agent("web-3", wide[:-4] + ("AAAA" if wide[-4:] != "AAAA" else "BBBB"))
    revoked_token = centre.token("--uses", 5)
    vedette("region", "token", "revoke", revoked_token.split(":")[2], "--folder", centre.region)
    revoked = centre.agent("web-4", revoked_token)
    expired_token, made = centre.token("--expires", "1s"), time.time()
    until("its time to be over", lambda: time.time() > made + 1)
    expired = centre.agent("web-5", expired_token)
    for agent in (thief, late, forged, revoked, expired):
        agent.start()

    def said(agent: Agent, text: str) -> bool:
        return agent.alive() and any(text in line["reason"] for line in agent.said("enrolment_failed"))

    until("the thief's refusal", lambda: said(thief, "enrolled with another key"))
    until("a used-up token's refusal", lambda: said(late, "used up"))
    until("a revoked token's refusal", lambda: said(revoked, "revoked"))
    until("an expired token's refusal", lambda: said(expired, "expired"))
    until(
        "an unknown secret in the audit",
        lambda: any("not written" in x["reason"] for x in centre.audit("enrolment_refused")),
    )
    assert not (forged.data / "identity" / "agent.pem").exists()
    assert [line["name"] for line in centre.audit("enrolled")] == ["web-1"]
    assert joined(good)
    for agent in (thief, late, forged, revoked, expired):
        agent.stop()

    # The disk of web-1 was replaced: with an operator's consent it enrols again, and the earlier key is refused.
    vedette("member", "allow", "web-1", "--folder", centre.region)
    again = centre.agent("web-1", wide, folder="again")
    again.start()
    until("the new disk to join", lambda: joined(again))
    with Region.open(centre.region) as region:
        assert len(region.member("web-1").revoked) == 1


@pytest.mark.long
def test_enroller_and_broker_killed(centre: Centre) -> None:
    """Whatever is killed, an agent that waits becomes a member once, and the record is whole."""
    centre.enroller.kill()
    token = centre.token("--uses", 3)
    agents = [centre.agent(f"web-{number}", token) for number in range(3)]
    for agent in agents:
        agent.start()
    rng = chance()
    for _ in range(3):
        centre.enroller.start()
        time.sleep(rng.uniform(0.2, 1.5))
        centre.enroller.kill()
    centre.broker.restart()
    agents[0].kill()
    agents[0].start()
    centre.enroller.start()
    for agent in agents:
        until("the agent to join", lambda agent=agent: joined(agent))
    names = [line["name"] for line in centre.audit("enrolled")]
    assert set(names) == {"web-0", "web-1", "web-2"}
    with Region.open(centre.region) as region:
        for agent in agents:
            held = (agent.data / "identity" / "agent.pem").read_bytes()
            assert held == region.certificate(agent.folder.name)


@pytest.mark.long
def test_the_authority_changes(centre: Centre) -> None:
    """Two authorities overlap: agents learn of the new one from the enroller, renew under it, and the former one
    retires only when nobody needs it."""
    agent = centre.agent("web-1", centre.token())
    agent.start()
    until("the agent to join", lambda: joined(agent))
    centre.enroller.stop()
    vedette("member", "authority", "rotate", "--folder", centre.region)
    assert (
        "signed by a former authority"
        in vedette("member", "authority", "retire", "--folder", centre.region, code=2).stderr
    )
    centre.broker.restart()
    centre.enroller.start()
    trusted = agent.data / "identity" / "region-ca.pem"
    until("both authorities", lambda: agent.alive() and trusted.read_text().count("BEGIN CERT") == 2)
    agent.stop()
    _due(centre, agent)
    agent.start()
    until("a certificate by the new one", lambda: agent.alive() and _signed(centre, agent))
    for name in ("enroller", "land-1", "broker"):
        vedette("member", "renew", name, "--folder", centre.region)
    centre.enroller.stop()
    vedette("member", "authority", "retire", "--folder", centre.region)
    centre.broker.restart()
    centre.enroller.start()
    until("the new authority alone", lambda: agent.alive() and trusted.read_text().count("BEGIN CERT") == 1)
    agent.kill()
    agent.start()
    until("the agent to join again", lambda: joined(agent))


def _signed(centre: Centre, agent: Agent) -> bool:
    newest = x509.load_pem_x509_certificate((centre.region / "ca.pem").read_bytes())
    return _by(x509.load_pem_x509_certificate((agent.data / "identity" / "agent.pem").read_bytes()), newest)


def _by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    return certificate.issuer == authority.subject
