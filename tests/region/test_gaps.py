"""What the region is missing: gaps in seq, found in what landings wrote."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import lmdb
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bench import traffic
from bench.send import tcp
from tests.broker import running
from tests.e2e.agent import Agent, Process, few
from tests.waits import until
from vedette.cli.main import main
from vedette.delivery.envelope import status_row
from vedette.delivery.landing import LandingFolder
from vedette.delivery.receipts import ranges
from vedette.region.gaps import Run, between, find

NOW = 1_795_228_874_000_000
MINUTE = 60_000_000


def test_gaps_between_runs() -> None:
    """What lies between two runs is missing, or on its way while it is new; doubles and order do not matter."""
    runs = [Run(1, 10, 5), Run(15, 20, 6), Run(15, 18, 7), Run(30, 30, 99), Run(4, 10, 98)]
    assert between(runs, settled=50) == (1, 30, 17, 4, 9, ((11, 14), (21, 29)))
    assert between([Run(7, 7, 1)], settled=50) == (7, 7, 1, 0, 0, ())


@given(st.sets(st.integers(1, 60), min_size=1), st.randoms())
def test_as_by_hand(seqs: set[int], rng: Random) -> None:
    """However the numbers are cut into runs, shuffled and doubled: what is not among them, between the least and the
    greatest, is missing."""
    runs = []
    for first, last in ranges(list(seqs)):
        while first <= last:
            to = rng.randint(first, last)
            runs += [Run(first, to, rng.randint(1, 9))] * rng.randint(1, 2)
            first = to + 1
    rng.shuffle(runs)
    absent = set(range(min(seqs), max(seqs))) - seqs
    first, last, landed, missing, on_the_way, gaps = between(runs, settled=10)
    assert (first, last, landed, missing, on_the_way) == (min(seqs), max(seqs), len(seqs), len(absent), 0)
    assert list(gaps) == ranges(list(absent))[:20]
    assert between(runs, settled=0)[3:5] == (0, len(absent))


def beat(folder: LandingFolder, at: int, seq_high: int, waiting: int) -> None:
    payload = json.dumps({"state": "running", "seq_high": seq_high, "alerts": {"in_outbox": waiting}}).encode()
    row = status_row(payload, fleet="f1", agent_id="a1", received_at=at, collector_id="c", topic="t")
    folder.write("status", [row], at)


def test_what_came_last_is_told_by_the_heartbeat(tmp_path: Path) -> None:
    """Alerts beyond the last that landed are missing when the agent says that they left its outbox, and not before."""
    folder = LandingFolder(tmp_path, "x")
    row = {"agent_id": "a1", "fleet": "f1", "log_id": "n1", "first": 1, "last": 90}
    folder.write("seqs", [row], NOW - 60 * MINUTE)
    beat(folder, NOW - 50 * MINUTE, 100, 10)
    assert [(one.missing, one.unlanded) for one in find(tmp_path, NOW)] == [(0, 0)]
    beat(folder, NOW - 40 * MINUTE, 100, 4)
    assert [(one.missing, one.unlanded) for one in find(tmp_path, NOW)] == [(6, 6)]
    beat(folder, NOW - 5 * MINUTE, 100, 0)  # too new to tell
    assert [one.missing for one in find(tmp_path, NOW)] == [0]


def test_a_heartbeat_tells_of_the_newest_numbering(tmp_path: Path) -> None:
    """An agent whose store was lost begins its numbers again: its heartbeat says nothing that the old ones lack."""
    folder = LandingFolder(tmp_path, "x")
    for log_id, first, last, ago in (("n1", 1, 90, 60), ("n2", 200, 210, 50)):
        row = {"agent_id": "a1", "fleet": "f1", "log_id": log_id, "first": first, "last": last}
        folder.write("seqs", [row], NOW - ago * MINUTE)
    beat(folder, NOW - 40 * MINUTE, 212, 0)
    missing = {numbering.log_id: numbering.missing for numbering in find(tmp_path, NOW)}
    assert missing == {"n1": 0, "n2": 2}


@pytest.mark.parametrize("waiting", ["1e999", "null", "[" * 1000 + "]" * 1000])
def test_a_heartbeat_that_makes_no_sense(waiting: str, tmp_path: Path) -> None:
    """What an agent says of its outbox ends no status of the region, whatever it is."""
    folder = LandingFolder(tmp_path, "x")
    folder.write("seqs", [{"agent_id": "a1", "fleet": "f1", "log_id": "n1", "first": 1, "last": 90}], NOW - 60 * MINUTE)
    beat(folder, NOW - 50 * MINUTE, 100, 10)
    payload = '{"seq_high": 100, "alerts": {"in_outbox": %s}}' % waiting  # noqa: UP031
    row = {**status_row(b"{}", fleet="f1", agent_id="a1", received_at=0, collector_id="c", topic="t"), "seq_high": 100}
    folder.write("status", [{**row, "payload": payload}], NOW - 40 * MINUTE)
    assert [(one.landed, one.missing) for one in find(tmp_path, NOW)] == [(90, 0)]


@pytest.mark.peer
def test_an_agent_that_lost_alerts(tmp_path: Path) -> None:
    """Three alerts vanish from a real agent's outbox while the region is away: the agent's own account says so, and
    when the rest has landed, by two landings that share them, the region names their numbers and no others."""
    landing = tmp_path / "landing"
    with running(tmp_path / "broker") as broker:
        agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
        agent.configure(
            f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
            f'[broker]\nurl = "{broker.url}"\n[uplink]\ntype = "mqtt"\nheartbeat = "1s"\nresend_after = "1s"\n'
        )
        agent.up()
        tcp(("127.0.0.1", agent.port), b"".join(traffic.blocks(61, 4_000, attack_rate=0.1)))
        until("all to be judged", lambda: agent.input()["judged"] == 4_000)
        made = agent.status()["alerts"]["made"]
        assert made > 100
        agent.stop()
        with lmdb.open(str(agent.data / "store"), max_dbs=8) as env, env.begin(write=True) as txn:
            for seq in (40, 41, 77):
                assert txn.delete(seq.to_bytes(8, "big"), db=env.open_db(b"outbox", txn))
        landings = [
            Process(
                tmp_path / f"{name}.log", "region", "land", "--broker", broker.url, "--landing", landing,
                "--client-id", name, "--seconds", "0.2",
            )
            for name in ("one", "two")
        ]  # fmt: skip
        try:
            for one in landings:
                one.start()
            until("landings", lambda: all("broker_connected" in one.text() for one in landings))
            agent.up()
            until("the rest", lambda: agent.alive() and not agent.status()["alerts"]["in_outbox"])
            assert "alerts: made" in agent.status()["identity_broken"][0]
            arguments = ["region", "status", "--landing", str(landing), "--settle", "0"]
            done = CliRunner().invoke(main, [*arguments, "--json"])
            (told,) = map(json.loads, done.stdout.splitlines())
            assert (done.exit_code, told["missing"], told["gaps"]) == (1, 3, [[40, 41], [77, 77]])
            assert (told["first"], told["last"], told["landed"]) == (1, made, made - 3)
            shown = CliRunner().invoke(main, arguments).stdout
            assert "gap 40-41" in shown
            assert CliRunner().invoke(main, arguments[:-2]).exit_code == 0  # within 15 minutes it may be on its way
        finally:
            agent.kill()
            for one in landings:
                one.kill()
    assert CliRunner().invoke(main, ["region", "status", "--landing", str(tmp_path / "none")]).exit_code == 2
