"""A fleet over a real mosquitto with TLS and access list: real agents follow what two operators have signed."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.publish
import pytest
from paho.mqtt.client import MQTTv5

from tests.broker import Broker
from tests.e2e.agent import Agent, few, up, vedette
from tests.waits import until
from vedette.fleet.audit import Audit, verify
from vedette.region.repository import Repository
from vedette.region.sign import load_key

pytestmark = [pytest.mark.peer, pytest.mark.long]
UNDO = 10
"""Seconds; no more than a busy host takes to be connected again would undo what is good."""
FLEET = "plants"


class Host(Agent):
    """An agent of the fleet, at a site."""

    def __init__(self, folder: Path, centre: Centre, name: str, site: str) -> None:
        self.name, self.site, self.centre = name, site, centre
        super().__init__(folder, rules=None)

    def configure(self, settings: str) -> None:
        member = self.centre.enroll(self.name, "--fleet", FLEET, "--broker", self.centre.broker.url)
        self.config.write_text(
            f'[agent]\nid = "{self.name}"\nsite = "{self.site}"\nfleet = "{FLEET}"\ndata_dir = "{self.data}"\n'
            f'[broker]\nurl = "{self.centre.broker.url}"\nca_file = "{member}/region-ca.pem"\n'
            f'cert_file = "{member}/agent.pem"\nkey_file = "{member}/agent.key"\n'
            f'[uplink]\ntype = "mqtt"\nheartbeat = "1s"\n[bundles]\ntrusted_keys = ["{self.centre.author}"]\n'
            f'[fleet]\nroot = "{self.centre.trust}/tuf/1.root.json"\nundo_after = "{UNDO}s"\n'
            f'locked = ["raw_log.max_age"]\n[log]\nformat = "json"\n'
        )

    def actual(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["actual"]
        return found

    def bundle(self) -> int:
        """The version that is loaded; 0: none."""
        return int(self.actual()["bundles"].get("default", {"version": 0})["version"])

    def wait(self, what: str, check: Any) -> None:
        """Until ``check`` of the actual state holds; the agent may be starting."""

        def now() -> bool:
            self.alive()
            try:
                return bool(check(self.actual()))
            except (ConnectionError, KeyError):
                return False

        try:
            until(f"{self.name}: {what}", now)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.actual(), indent=1)}\n{self.text()[-3000:]}") from None

    def recorded(self) -> list[str]:
        """Events of its audit record, whose chain holds."""
        path = self.data / "fleet" / "audit.jsonl"
        assert verify(path)[1] is None
        return [row["event"] for row in Audit(path).lines()]


class Centre:
    """The region's folder, the broker, the operators' keys and the fleet's files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.trust, self.keys = folder, folder / "trust", folder / "keys"
        self.toml, self.members = folder / "fleet.toml", folder / "region"
        (folder / "bundles").mkdir(parents=True)
        (folder / "overlays").mkdir()
        host = self.enroll("broker", "--role", "broker", "--host", "127.0.0.1")
        self.operator = self.enroll("ops", "--role", "operator")
        self.broker = Broker(
            folder / "broker",
            durable=True,
            tls=(host / "region-ca.pem", host / "agent.pem", host / "agent.key"),
            extra=["require_certificate true", "use_identity_as_username true", "allow_anonymous false",
                   f"acl_file {self.members}/mosquitto.acl"],
        )  # fmt: skip
        made = vedette("bundle", "keygen", folder / "author.pem").stdout
        self.author = next(word for word in made.split() if word.startswith("ed25519:"))
        vedette(
            "fleet", "init", FLEET, "--trust", self.trust, "--keys", self.keys, "--root-key", "alice", "--root-key",
            "bob", "--targets-key", "carol", "--targets-key", "dave", "--targets-key", "erin",
        )  # fmt: skip

    def enroll(self, name: str, *how: str) -> Path:
        vedette("member", "enroll", name, "--folder", self.members, *how)
        return self.members / "members" / name

    @property
    def at_broker(self) -> list[str]:
        member = self.operator
        return [
            "--broker", self.broker.url, "--ca-file", f"{member}/region-ca.pem",
            "--cert-file", f"{member}/agent.pem", "--key-file", f"{member}/agent.key",
        ]  # fmt: skip

    def bundle(self, version: int) -> str:
        """A signed bundle, named by its path in ``fleet.toml``."""
        path = self.folder / "bundles" / f"{version}.vbundle"
        if not path.exists():
            vedette("bundle", "build", few(self.folder / "rules"), "-o", path, "--version", version)
            vedette("bundle", "sign", path, "--key", self.folder / "author.pem", "--fleet", FLEET)
        return f"bundles/{version}.vbundle"

    def overlay(self, name: str, text: str) -> str:
        (self.folder / "overlays" / f"{name}.toml").write_text(text)
        return f"overlays/{name}.toml"

    def write(self, **vienna: str) -> None:
        """``fleet.toml``: a group for the site vienna with these settings, one for all others without."""
        lines = [f'{key} = "{value}"' for key, value in vienna.items()]
        self.toml.write_text(
            "\n".join(['[[group]]', 'name = "vienna"', 'match = "site = vienna"', *lines, '[[group]]',
                       'name = "rest"', 'match = "all"'])
        )  # fmt: skip

    def publish(self, **vienna: str) -> None:
        """``write``, in force."""
        self.write(**vienna)
        self.put_in_force()

    def put_in_force(self, *, carried: bool = False) -> None:
        """What ``fleet.toml`` says, as two operators do; published at the broker, unless it is to be carried."""
        vedette("fleet", "plan", self.toml, "--trust", self.trust)
        for name in ("carol", "dave"):
            vedette("fleet", "sign", "--trust", self.trust, "--key", self.keys / f"{name}.pem")
        vedette("fleet", "apply", "--trust", self.trust, *([] if carried else self.at_broker))

    def retain(self, name: str, data: bytes) -> None:
        """What somebody who may write at the broker puts in place of a file of metadata."""
        member = self.operator
        tls = {"ca_certs": f"{member}/region-ca.pem", "certfile": f"{member}/agent.pem",
               "keyfile": f"{member}/agent.key", "tls_version": ssl.PROTOCOL_TLS_CLIENT}  # fmt: skip
        paho.mqtt.publish.single(
            f"vedette/v1/{FLEET}/tuf/{name}", data, qos=1, retain=True, hostname="127.0.0.1", port=self.broker.port,
            tls=tls, protocol=MQTTv5, client_id="mallory",
        )  # fmt: skip


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    made = Centre(tmp_path / "centre")
    yield made
    made.broker.kill()


@pytest.fixture
def hosts(centre: Centre, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two started agents, at vienna and at linz."""
    vienna, linz = (Host(tmp_path / site, centre, f"{site}-1", site) for site in ("vienna", "linz"))
    centre.broker.start()
    with up(vienna, linz):
        yield vienna, linz


def test_a_week(centre: Centre, hosts: tuple[Host, Host]) -> None:
    """A bundle reaches its group only. An overlay that cuts the uplink is undone and not taken again; a good one is
    confirmed, but for what is locked; tampered metadata are refused and reported, and nothing changes."""
    vienna, linz = hosts
    centre.publish(bundle=centre.bundle(1))
    for host in hosts:
        host.wait("the documents", lambda actual: actual["desired_serial"] == 1)
    vienna.wait("bundle 1", lambda actual: vienna.bundle() == 1)
    assert (linz.bundle(), linz.actual()["group"], vienna.actual()["group"]) == (0, "rest", "vienna")

    good = vienna.actual()["config"]["digest"]
    cut = centre.overlay("cut", '[broker]\nurl = "mqtts://127.0.0.1:1"\n')
    centre.publish(bundle=centre.bundle(1), config=cut)
    vienna.wait("the overlay to be undone", lambda actual: actual["config"]["undone"])
    until("its uplink", lambda: vienna.status()["uplink"]["connected"])
    assert vienna.actual()["config"]["digest"] == good
    vedette("fleet", "apply", "--trust", centre.trust, *centre.at_broker)
    seen = Repository(centre.trust).version("timestamp")
    vienna.wait("the documents once more", lambda actual: actual["metadata"]["timestamp"] >= seen)
    assert vienna.recorded().count("overlay_applied") == 1
    shown = until(
        "the status at the centre",
        lambda: (
            (done := vedette("fleet", "status", "--trust", centre.trust, *centre.at_broker, code=None)).returncode
            and done
        ),
    )
    assert "not connected to its region" in shown.stdout
    assert "vienna-1" in shown.stdout
    assert "rest: 1 of 1 as wanted" in shown.stdout

    works = centre.overlay("works", '[log]\nlevel = "debug"\n[raw_log]\nmax_age = "1d"\n')
    centre.publish(bundle=centre.bundle(1), config=works)
    vienna.wait("a confirmed overlay", lambda actual: actual["config"]["overlay"] and actual["config"]["confirmed"])
    assert vienna.actual()["config"]["ignored"] == ["raw_log.max_age"]
    assert vienna.actual()["problems"] == []
    assert vienna.recorded()[-2:] == ["overlay_applied", "overlay_confirmed"]

    before = vienna.actual()
    path = centre.trust / "tuf" / "timestamp.json"
    forged = json.loads(path.read_bytes())
    forged["signed"]["version"] += 5
    centre.retain("timestamp.json", json.dumps(forged).encode())
    vienna.wait("the refusal", lambda actual: actual["problems"])
    assert vienna.said("fleet_refused")[-1]["kind"] == "signatures"
    assert vienna.recorded()[-1] == "metadata_refused"
    assert {**vienna.actual(), "problems": [], "audit": 0} == {**before, "audit": 0}
    vedette("fleet", "apply", "--trust", centre.trust, *centre.at_broker)
    vienna.wait("trust again", lambda actual: not actual["problems"])

    centre.publish(bundle=centre.bundle(1))
    vienna.wait("no overlay", lambda actual: not actual["config"]["overlay"] and actual["config"]["confirmed"])
    assert vienna.actual()["config"]["digest"] == good
    assert linz.recorded().count("overlay_applied") == 0
    assert verify(centre.trust / "audit.jsonl")[1] is None


def test_attacks_on_the_documents(centre: Centre, tmp_path: Path) -> None:
    """Who may write at the broker, and has one of three signing keys and all online keys, an old timestamp, or the
    documents of another fleet: each is refused and recorded by its kind, and nothing changes. New online keys end
    what the thief had published by them."""
    host = Host(tmp_path / "vienna", centre, "vienna-1", "vienna")
    centre.broker.start()
    try:
        host.start()
        host.ready()
        centre.publish(bundle=centre.bundle(1))
        old = (centre.trust / "tuf" / "timestamp.json").read_bytes()
        host.wait("bundle 1", lambda actual: host.bundle() == 1)
        centre.publish(bundle=centre.bundle(2))
        host.wait("bundle 2", lambda actual: host.bundle() == 2)
        kept = host.actual()
        stolen = centre.folder / "stolen"
        shutil.copytree(centre.trust, stolen)
        _signed_by_one(stolen, centre.keys / "carol.pem")
        vedette("fleet", "init", "ships", "--trust", centre.folder / "ships", "--keys", centre.folder / "k",
                "--root-key", "zoe", "--targets-key", "yves")  # fmt: skip
        attacks = [
            ("rollback", {"timestamp.json": old}),
            ("signatures", {path.name: path.read_bytes() for path in (centre.folder / "ships" / "tuf").iterdir()}),
            ("signatures", {path.name: path.read_bytes() for path in (stolen / "tuf").iterdir()}),
        ]
        for number, (kind, files) in enumerate(attacks, 1):
            for name in sorted(files, key=lambda name: name == "timestamp.json"):
                centre.retain(name, files[name])
            host.wait(f"refusal {number}", lambda actual: any(one.startswith("trust") for one in actual["problems"]))
            path = host.data / "fleet" / "audit.jsonl"
            refused = [row["kind"] for row in Audit(path).lines() if row["event"] == "metadata_refused"]
            assert (len(refused), refused[-1]) == (number, kind)
            assert {**host.actual(), "problems": [], "audit": 0} == {**kept, "problems": [], "audit": 0}
            if files.keys() > {"4.targets.json"}:  # the thief's timestamp is newer: other online keys end it
                vedette("fleet", "rotate", "--trust", centre.trust, "--online", "timestamp", "--online", "snapshot")
                for name in ("alice", "bob"):
                    vedette("fleet", "sign", "--trust", centre.trust, "--key", centre.keys / f"{name}.pem")
            vedette("fleet", "apply", "--trust", centre.trust, *centre.at_broker)
            host.wait("trust again", lambda actual: not actual["problems"])
        assert verify(host.data / "fleet" / "audit.jsonl")[1] is None
    finally:
        host.kill()


def _signed_by_one(folder: Path, key: Path) -> None:
    """A publication of targets that need two signatures and have one."""
    repository = Repository(folder)
    desired, before = repository.desired(), repository.newest("targets")
    assert desired is not None
    assert before is not None
    before.signed.version += 1
    before.signed.targets.pop("desired.json")
    (folder / "staged" / "targets.json").write_bytes(before.to_bytes())
    assert repository.sign(load_key(key)) == ["targets"]
    version = before.signed.version
    (folder / "staged" / "targets.json").rename(folder / "tuf" / f"{version}.targets.json")
    assert repository.commit()
