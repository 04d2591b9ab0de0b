"""Receipts that somebody else at the broker forges, with a real agent, a real landing and a real mosquitto."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import traffic
from bench.send import tcp
from tests.broker import Broker
from tests.e2e.agent import Agent, Process, vedette
from tests.region.test_hostile import Wire
from tests.waits import until
from vedette.delivery.receipts import pack_receipt
from vedette.region.sign import keygen, load_key
from vedette.store.store import Store

pytestmark = [pytest.mark.peer, pytest.mark.long]

DOWN = "vedette/v1/f1/edge-1/receipts"
EVENTS = 5_000
WARNING = "receipts are not authenticated"


def agent_of(folder: Path, broker: Broker, more: str = "") -> Agent:
    agent = Agent(folder)
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
        f'[broker]\nurl = "{broker.url}"\n[uplink]\ntype = "mqtt"\nheartbeat = "1s"\nresend_after = "1s"\n{more}'
    )
    return agent


def test_a_forger_empties_no_outbox(broker: Broker, tmp_path: Path) -> None:
    """Over plain MQTT a forger publishes receipts for everything, unsigned, signed by a key of its own, and recorded
    ones: an agent that knows the landing's key keeps each alert until that landing has it."""
    public = keygen(tmp_path / "receipt.key")
    keygen(tmp_path / "forger.key")
    forger = load_key(tmp_path / "forger.key")
    landing = Process(
        tmp_path / "landing.log", "region", "land", "--broker", broker.url, "--landing", tmp_path / "landing",
        "--seconds", "0.2", "--receipt-key", tmp_path / "receipt.key",
    )  # fmt: skip
    agent = agent_of(tmp_path / "a", broker, f'receipt_keys = ["{public}"]\n')
    assert WARNING not in vedette("check", "-c", agent.config).stderr
    events = b"".join(traffic.blocks(61, EVENTS, attack_rate=0.02))
    landing.start()
    try:
        until("the landing", lambda: "broker_connected" in landing.text())
        landing.kill()  # the broker takes alerts for it, so that they are sent
        agent.up()
        tcp(("127.0.0.1", agent.port), events)
        until("all to be judged", lambda: agent.input()["judged"] == EVENTS)
        made = agent.status()["alerts"]["made"]
        assert made
        until("all to be sent", lambda: agent.status()["totals"]["alerts_sent"] >= made)
        with Store.open(agent.data / "store", readonly=True) as store:
            number = store.account().log_id
        with Wire(broker, "forger") as wire:
            for key in (None, forger):
                wire.publish(DOWN, pack_receipt(number, [(0, 1 << 62)], DOWN, key))
                wire.publish(DOWN, pack_receipt(number, [(1, made)], DOWN, key))
            until("refusals", lambda: agent.status()["totals"].get("receipts_refused") == 4)
            assert agent.status()["alerts"]["in_outbox"] == made
            assert agent.status()["uplink"]["receipts"] == "signed"
            landing.start()
            agent.settled(EVENTS)
        status = agent.status()
        assert status["alerts"]["receipted"] == made
        assert WARNING not in agent.text()
        assert WARNING not in vedette("status", "-c", agent.config).stdout
    finally:
        agent.kill()
        landing.kill()
    assert len(agent.alerts(tmp_path / "landing")) == made


def test_receipts_that_anybody_can_forge(broker: Broker, tmp_path: Path) -> None:
    """Over plain MQTT without a key ``check``, the log of agent and landing, and ``status`` warn."""
    agent = agent_of(tmp_path / "a", broker)
    landing = Process(
        tmp_path / "landing.log", "region", "land", "--broker", broker.url, "--landing", tmp_path / "landing"
    )
    checked = vedette("check", "-c", agent.config)
    assert f"uplink: warning: {WARNING}" in checked.stderr
    assert "uplink.receipt_keys" in checked.stderr
    agent.up()
    landing.start()
    try:
        assert agent.said("receipts_unauthenticated")[0]["level"] == "warning"
        assert f"WARNING  {WARNING}" in vedette("status", "-c", agent.config).stdout
        until("the landing's warning", lambda: "receipts_unauthenticated" in landing.text())
    finally:
        agent.kill()
        landing.kill()
