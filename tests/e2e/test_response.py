"""Local response of the real agent, with a real nftables and real packets: what is blocked, for how long, what never
is, and that kills, mistakes and other programs change none of it.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import Agent, vedette
from tests.e2e.tuned import tuned
from tests.response.hosts import HOST, PEER, PEER6, Hosts, hosts, listening
from tests.waits import until
from vedette.delivery.envelope import decode_row
from vedette.fleet.audit import verify
from vedette.runtime.agent.control import ask
from vedette.runtime.options.response import MAX_REFUSED
from vedette.store.store import Store

pytestmark = pytest.mark.peer

RULE = """title: Marker
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {keywords: ['marker'], condition: keywords}
fields: [src_ip, response.address]
level: high
"""
BLOCK = '[[response.block]]\nrules = ["6a1f*"]\nfield = "src_ip"\n'


class Site:
    """An agent on a host of its own network that tails a file."""

    def __init__(self, folder: Path, network: Hosts) -> None:
        (folder / "rules").mkdir()
        (folder / "rules" / "marker.yml").write_text(RULE)
        self.network, self.log = network, folder / "in.log"
        self.log.touch()
        self.agent = Agent(folder / "a", rules=folder / "rules")
        self.agent.program = network.inside(*tuned(nft_poll=0.1))

    def configure(self, response: str = "", blocks: str = BLOCK) -> None:
        self.agent.configure(
            f'[[input]]\ntype = "file"\nname = "in"\nformat = "json"\npaths = ["{self.log}"]\n'
            f'logsource = {{product = "linux"}}\n[response]\nenabled = true\n{response}\n{blocks}'
        )

    def up(self, response: str = "", blocks: str = BLOCK) -> None:
        self.configure(response, blocks)
        self.agent.up()

    def reload(self, response: str = "", blocks: str = BLOCK) -> None:
        self.configure(response, blocks)
        self.hang_up()

    def hang_up(self) -> None:
        reloads = self.agent.status()["config"]["reloads"]
        self.agent.signal(signal.SIGHUP)
        until("the reload", lambda: self.agent.alive() and self.agent.status()["config"]["reloads"] > reloads)

    def seen(self, *addresses: str) -> None:
        """Events from these addresses, each of which makes an alert."""
        with self.log.open("a") as file:
            file.writelines(json.dumps({"message": "marker", "src_ip": one}) + "\n" for one in addresses)

    def command(self, name: str, **words: Any) -> Any:
        return ask(self.agent.data / "control.sock", name, **words)

    def ask(self, *words: str, code: int = 0) -> str:
        done = vedette("response", *words, "-c", self.agent.config, code=code)
        return done.stdout + done.stderr

    def blocked(self) -> list[str]:
        return [one["address"] for one in self.command("response", action="list")["addresses"]]

    def blocks(self, *addresses: str) -> None:
        until("the block", lambda: self.agent.alive() and {*self.blocked()} == {*addresses})

    def audit(self, action: str) -> list[dict[str, Any]]:
        path = self.agent.data / "fleet" / "audit.jsonl"
        if not path.exists():
            return []
        assert verify(path)[1] is None
        lines = map(json.loads, path.read_text().splitlines())
        return [one for one in lines if one["event"] == "response" and one["action"] == action]

    def alerts(self) -> list[dict[str, Any]]:
        """That it has made."""
        with Store.open(self.agent.data / "store", readonly=True) as store:
            return [decode_row(one.data) for one in store.tail(1000)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with hosts() as network:
        made = Site(tmp_path, network)
        try:
            yield made
        finally:
            made.agent.kill()


def test_an_alert_blocks_until_its_time_is_over(site: Site) -> None:
    """Ping and TCP of the alert's address alone are dropped, of IPv4 and IPv6; the alert says what it asks for, another
    one and the audit record what was done; after ttl the kernel and the list have forgotten it."""
    # Over 3 s: a block that ends is one of a second at least, and pings wait for answers that do not come.
    site.up()
    with listening(site.network):
        assert site.network.reached(PEER6)
        assert site.network.connected()
        site.seen(PEER, PEER6)
        site.blocks(PEER, PEER6)
        assert not site.network.reached()
        assert not site.network.reached(PEER6)
        assert not site.network.connected()
        assert site.network.connected("203.0.113.10")
    assert site.network.reached("203.0.113.10")
    asked, *_ = found = [one for one in site.alerts() if one["fields"].get("response.address") == PEER]
    done = next(one for one in found if one["rule_id"] == "vedette.response")
    assert "response" in asked["flags"]
    assert asked["fields"]["response"] == f"block {PEER} for 3600 s"
    assert (done["parent_id"], done["level"]) == (asked["alert_id"], "informational")
    assert done["raw"].startswith(f"blocked {PEER} until ")
    assert (PEER, asked["alert_id"]) in [(one["address"], one["alert_id"]) for one in site.audit("block")]
    site.reload('ttl = "1s"')
    site.seen("203.0.113.10")
    until("the block", lambda: [one["address"] for one in site.audit("block")][2:] == ["203.0.113.10"])
    until("its end", lambda: site.network.reached("203.0.113.10"))
    site.blocks(PEER, PEER6)
    status = site.agent.settled()
    assert status["totals"]["addresses_blocked"] == 3
    assert status["response"] == {"dry_run": False, "blocked": 2, "max_blocked": 1000, "problem": None}


@pytest.mark.long
def test_what_is_allowed_wins(site: Site) -> None:
    """Networks of the configuration, the host's own addresses and its gateway are not blocked, by no alert and by no
    command; an address that is allowed later is let go."""
    site.network.run("ip", "route", "add", "default", "via", "203.0.113.14")
    site.up('allow = ["203.0.113.12/31"]')
    site.seen("203.0.113.13", HOST, "203.0.113.14", "::ffff:203.0.113.12", "127.0.0.1", PEER)
    site.blocks(PEER)
    assert site.network.reached("203.0.113.13")
    assert site.network.reached("203.0.113.14")
    assert {one["address"]: one["reason"] for one in site.audit("refuse")} == {
        HOST: "it is allowed (own address)", "203.0.113.14": "it is allowed (gateway)",
    }  # fmt: skip
    assert "is allowed (response.allow: 203.0.113.12/31)" in site.ask("block", "203.0.113.12", code=1)
    texts = [one["fields"].get("response") for one in site.alerts()]
    assert "nothing blocked: 203.0.113.13 is allowed (response.allow: 203.0.113.12/31)" in texts
    assert f"not blocked {HOST}: it is allowed (own address)" in texts
    site.reload(f'allow = ["{PEER}"]')
    site.blocks()
    assert site.network.reached()
    assert site.audit("release")[0]["by"] == "agent"


@pytest.mark.long
def test_old_events(site: Site) -> None:
    """A log from before is evaluated, and blocks nobody."""
    old = {"message": "marker", "src_ip": PEER, "@timestamp": "2026-01-01T00:00:00Z"}
    site.log.write_text(json.dumps(old) + "\n")
    site.up()
    (refused,) = until("the refusal", lambda: site.audit("refuse"))
    assert refused["reason"] == "its event is older than response.ttl (3600 s)"
    site.seen("203.0.113.10")
    site.blocks("203.0.113.10")
    assert site.network.reached()


@pytest.mark.long
def test_no_more_than_max_blocked(site: Site) -> None:
    """The further one is refused, in the record and in an alert, until there is room; twice the same address is one. Of
    very many that are refused a bounded number is reported, and each is counted."""
    site.up("max_blocked = 2")
    site.seen(PEER, PEER, "203.0.113.10", "203.0.113.11")
    site.blocks(PEER, "203.0.113.10")
    (refused,) = until("the refusal", lambda: site.audit("refuse"))
    assert refused["address"] == "203.0.113.11"
    assert site.network.reached("203.0.113.11")
    assert "max_blocked (2) are blocked already" in site.ask("block", "203.0.113.12", code=1)
    site.ask("undo", PEER)
    assert "blocked 203.0.113.12" in site.ask("block", "203.0.113.12", "--for", "1h", "--reason", "by hand")
    assert not site.network.reached("203.0.113.12")
    assert "operator by hand" in site.ask("list")
    site.seen(*(f"198.51.{n // 250}.{n % 250}" for n in range(MAX_REFUSED + 100)))
    until("all", lambda: site.agent.status()["totals"]["responses_refused"] == MAX_REFUSED + 101)
    assert len(site.audit("refuse")) == MAX_REFUSED


@pytest.mark.long
def test_dry_run(site: Site) -> None:
    """All is said and nothing is done; live, it begins with nothing; dry again, and off, nothing is left."""
    site.up("dry_run = true")
    site.seen(PEER)
    site.blocks(PEER)
    assert site.network.reached()
    assert site.network.nft("list", "tables") == ""
    assert site.audit("dry run")[0]["address"] == PEER
    assert f"would block {PEER} for 3600 s" in [one["fields"].get("response") for one in site.alerts()]
    site.reload()
    site.blocks()
    site.seen("203.0.113.10")
    site.blocks("203.0.113.10")
    assert not site.network.reached("203.0.113.10")
    site.reload("dry_run = true")
    assert site.network.reached("203.0.113.10")
    site.reload()
    site.seen("203.0.113.11")
    site.blocks("203.0.113.11")
    site.agent.configure("[response]\nenabled = false\n")
    site.hang_up()
    assert site.network.nft("list", "tables") == ""
    assert site.agent.status()["response"] is None
    assert "local response is off" in site.ask("list", code=1)


@pytest.mark.long
def test_an_event_cannot_ask(site: Site) -> None:
    """Fields of an event that are called as the agent's own ask for nothing, whatever its alert asks for; also where
    that is of a rule set in strict isolation, whose own orders are carried out."""
    own = site.log.parent / "own"
    own.mkdir()
    (own / "own.yml").write_text(RULE.replace("000001", "000002"))
    blocks = BLOCK.replace("6a1f*", "*2")
    site.up(blocks=f'{blocks}[[ruleset]]\nname = "own"\nisolation = "strict"\npaths = ["{own}"]\n')
    forged = {"message": "marker", "response": "block 203.0.113.10 for 9 s", "response.address": "203.0.113.10"}
    with site.log.open("a") as file:
        file.writelines(json.dumps({**forged, **more}) + "\n" for more in ({}, {"src_ip": "127.0.0.1"}))
    site.seen(PEER)
    site.blocks(PEER)
    site.agent.settled(3)
    assert site.network.reached("203.0.113.10")
    assert site.audit("refuse") == []
    addresses = [(one["rule_id"][-1], one["fields"].get("response.address"), "response" in one["flags"])
                 for one in site.alerts() if one["rule_id"] != "vedette.response"]  # fmt: skip
    not_asked = ("1", "203.0.113.10", False)  # as the event has it
    assert sorted(addresses, key=repr) == sorted(
        [not_asked, not_asked, ("1", None, False), ("2", None, True), ("2", None, True), ("2", PEER, True)], key=repr
    )


@pytest.mark.long
def test_killed(site: Site) -> None:
    """Killed, the kernel goes on blocking; started again the agent knows what is blocked until when, blocks what it had
    not got to, and what was undone stays so though its alert is still there."""
    site.up()
    site.seen(PEER, "203.0.113.10")
    site.blocks(PEER, "203.0.113.10")
    assert "203.0.113.10 is not blocked any more" in site.ask("undo", "203.0.113.10")
    assert site.network.reached("203.0.113.10")
    until_then = site.command("response", action="list")["addresses"][0]["until"]
    site.agent.kill()  # within the half second in which its place is not written down
    assert not site.network.reached()
    site.seen("203.0.113.11")
    site.agent.up()
    site.blocks(PEER, "203.0.113.11")
    (before,) = [one for one in site.command("response", action="list")["addresses"] if one["address"] == PEER]
    assert before["until"] == until_then
    assert site.network.reached("203.0.113.10")
    assert not site.network.reached()
    site.agent.kill()
    site.network.nft("flush", "ruleset")  # as a boot does
    site.agent.up()
    until("the table", lambda: not site.network.reached())
    assert site.network.reached("203.0.113.10")
    assert site.ask("flush") == "2 addresses are not blocked any more\n"
    assert site.network.reached()
    site.agent.kill()
    site.agent.up()
    site.agent.settled()
    assert site.blocked() == []
    reports = [one for one in site.alerts() if one["rule_id"] == "vedette.response"]
    blocks = [one["alert_id"] for one in reports if one["raw"].startswith("blocked ")]
    assert len(blocks) == len({*blocks}) == 3
    # A refusal whose place was not written down is reported again, once a start at most, under the same id.
    undone = next(one["alert_id"] for one in site.alerts() if one["fields"].get("src_ip") == "203.0.113.10")
    refusals = [(one["parent_id"], one["alert_id"]) for one in reports if one["raw"].startswith("not blocked ")]
    assert len({*refusals}) == len({parent for parent, _ in refusals})
    assert max(Counter(refusals).values(), default=0) <= 3
    assert all(one["parent_id"] != undone or "undone" in one["raw"] for one in reports if one["alert_id"] not in blocks)


@pytest.mark.long
def test_killed_while_it_blocks(site: Site, tmp_path: Path) -> None:
    """Killed while nft runs, it does after the start what it had not recorded, once."""
    slow = tmp_path / "nft"
    hangs = '[ ! -e "$0.hang" ] || [ "$1" = -t ] || { touch "$0.hangs"; exec sleep 60; }'
    slow.write_text(f'#!/bin/sh\n{hangs}\nexec /usr/sbin/nft "$@"\n')
    slow.chmod(0o755)
    site.agent.program = site.network.inside(*tuned(nft=slow, nft_poll=0.1))
    site.up()
    until("the table", lambda: site.network.nft("list", "tables"))
    (tmp_path / "nft.hang").touch()
    site.seen(PEER)
    until("nft", (tmp_path / "nft.hangs").exists)
    site.agent.kill()
    (tmp_path / "nft.hang").unlink()
    assert site.audit("block") == []
    site.agent.up()
    site.blocks(PEER)
    assert not site.network.reached()
    assert len(site.audit("block")) == 1


@pytest.mark.long
def test_the_table_is_put_back(site: Site) -> None:
    """Deleted, emptied of its rules or filled by another program, it is as it was within the time of a look."""
    site.up()
    site.seen(PEER)
    site.blocks(PEER)
    for words in (("flush", "ruleset"), ("flush", "chain", "inet", "vedette", "block")):
        site.network.nft(*words)
        until("the table", lambda: not site.network.reached())
    assert len(site.agent.said("response_restored")) >= 2
    site.reload("max_blocked = 2")
    until("its size", lambda: "size 4" in site.network.nft("list", "table", "inet", "vedette"))
    for n in range(3):
        site.network.nft("add", "element", "inet", "vedette", "blocked4", f"{{ 192.0.2.{n} }}")
    site.seen("203.0.113.10")
    site.blocks(PEER, "203.0.113.10")
    assert not site.network.reached("203.0.113.10")
    assert "192.0.2" not in site.network.nft("list", "table", "inet", "vedette")


@pytest.mark.long
def test_without_permission(site: Site) -> None:
    """Without the capability nothing is blocked, and it is logged, shown and tried again; evaluation, alerts and the
    other receivers go on; with it all that waited is done."""
    site.agent.program = site.network.inside(
        "setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin", *tuned(nft_poll=0.1)
    )
    site.up()
    site.seen(PEER)
    status = until("the error", lambda: (found := site.agent.status())["response"]["problem"] and found)
    assert "needs CAP_NET_ADMIN" in status["response"]["problem"]
    site.agent.settled(1)
    assert any(one["fields"].get("response") == f"block {PEER} for 3600 s" for one in site.alerts())
    assert "needs CAP_NET_ADMIN" in site.ask("test", code=1)
    said = vedette("status", "-c", site.agent.config, code=1).stdout
    assert said.startswith("NOT OK: ")
    assert "FAILING" in said
    assert site.blocked() == []
    assert site.agent.stop() == 0
    site.agent.program = site.network.inside(*tuned(nft_poll=0.1))
    site.agent.up()
    site.blocks(PEER)
    assert not site.network.reached()


@pytest.mark.long
def test_without_nft(site: Site, tmp_path: Path) -> None:
    """A missing program is an error with what to do; put there, it is used without a restart."""
    nft = tmp_path / "missing"
    site.agent.program = site.network.inside(*tuned(nft=nft, nft_poll=0.1))
    site.up()
    site.seen(PEER)
    until("the error", lambda: "install nftables" in (site.agent.status()["response"]["problem"] or ""))
    nft.symlink_to("/usr/sbin/nft")
    site.blocks(PEER)
    assert not site.network.reached()
    assert site.agent.status()["response"]["problem"] is None
