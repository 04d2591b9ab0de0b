"""The harness: what the figures are made of, and what makes it refuse one. Nothing here looks at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench import drive, fast, harness, peers, windows
from bench.sampler import Sampler


def test_totals_add_up_inputs() -> None:
    """Counters of all inputs are summed and stand beside the agent's own."""
    counts = {"received": 5, "stored": 4, "judged": 3, "bytes_in": 70, "cut": 0, "dropped": {"kernel": 1}, "lost": {}}
    status = {"inputs": {"a": counts, "b": counts}, "totals": {"alerts_made": 2}}
    expected = Counter(received=10, stored=8, judged=6, bytes_in=140, alerts_made=2, dropped=2, lost=0)
    assert drive.totals(status) == expected


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"received": 5, "stored": 5, "judged": 4}, "judged 4"),
        ({"received": 6, "stored": 6, "judged": 6}, "received 6"),
    ],
)
def test_a_wrong_account_gives_no_figure(counts: dict[str, int], said: str) -> None:
    """Not all that was sent was judged, or more came: the run is refused, with the figures."""
    status = {
        "inputs": {"a": {**counts, "bytes_in": 1, "dropped": {}, "lost": {}}},
        "totals": {},
        "identity_broken": [],
    }
    with pytest.raises(drive.Wrong, match=said):
        drive.account(status, Counter(), 5)
    with pytest.raises(drive.Wrong, match=r"does not add up: .*no"):
        drive.account({**status, "identity_broken": ["no"]}, Counter(), 5)


def test_middle_run() -> None:
    """The run shown is the one with the median, beside the values of all."""
    runs = [{"n": n} for n in (5, 1, 3)]
    assert drive.middle(runs, "n") == {"n": 3, "runs": [5, 1, 3]}
    assert drive.middle(runs[:2], "n") == {"n": 1, "runs": [5, 1]}


def test_one_run_of_the_real_agent(tmp_path: Path) -> None:
    """A small run: every event judged, alerts those of scan, all figures there; other alerts are refused."""
    bench = drive.Bench(tmp_path, quick=True)
    bundle, stream, kept = bench.bundle(bench.rules(30, 0.2, alert_share=0.05)), bench.stream(3000), list[Path]()
    figures = drive.stream_run(bench, "run", bundle, stream, 3000, keep=kept.append)
    assert figures["events"] == 3000
    assert figures["alerts_equal"] == figures["alerts"] > 30
    lines = stream.read_bytes()
    with pytest.raises(drive.Wrong, match="missing"):
        drive.compare(bundle, kept[0] / "alerts-landing", lines + lines, "syslog", drive.LINUX)
    assert 0 < figures["candidates_share"] < 0.3
    assert figures["peak_rss_mb"] >= figures["rss_mb"] > 0
    assert json.dumps(figures)


def test_unknown_scenarios_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names there are."""
    with pytest.raises(SystemExit):
        harness.main(["throughput", "nonsense"])
    assert "no scenario nonsense; known: throughput" in capsys.readouterr().err


def test_windows_events_are_of_the_size_that_is_told() -> None:
    """JSON of 0.5 to 3 KB, the same for the same seed."""
    events = list(windows.events(1, 300))
    assert events == list(windows.events(1, 300))
    assert all(400 < len(line) < 3500 for line in events)
    assert 2000 < sum(map(len, events)) / 300 < 2800
    assert {json.loads(line)["winlog"]["event_id"] for line in events} >= {1, 3, 7}


def test_peers_get_as_many_patterns_as_asked() -> None:
    """The patterns are a function of count and sample, and none needs quoting."""
    sample = [b"<13>Nov 21 06:00:00 web1 program: some ordinary words here %d" % i for i in range(200)]
    patterns = peers.patterns(20, sample)
    assert patterns == peers.patterns(20, sample)
    assert len(patterns) == 20
    assert not any(set(one.text) & set("\"'") for one in patterns)


def test_fast_datagrams_arrive_whole() -> None:
    """Each line is a datagram of its own, all are sent equally often, and as many as is said."""
    import socket

    lines = [b"one", b"two", b"three", b"%d" % 10**9]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        sender = fast.Datagrams(receiver.getsockname(), lines)
        sent = 0
        while sent < 3 * len(lines):  # on a busy machine the time is over before the first is due
            sent += sender.send(4000, 0.02)
        sender.close()
        got = Counter(receiver.recv(100) for _ in range(sent))
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(100)
    assert set(got) == set(lines)
    assert max(got.values()) - min(got.values()) <= 1


def test_sampler_finds_the_busy_line() -> None:
    """Most samples of a busy loop fall into the function that loops."""
    code = (
        "from bench.sampler import Sampler\n"
        "def busy():\n    return sum(i * i for i in range(3_000_000))\n"
        "s = Sampler(); s.start(); busy(); s.stop(); print(s.report())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment, text=True)
    assert "busy.<locals>.<genexpr>" in done.stdout
    assert Sampler().report().startswith("0 samples")
