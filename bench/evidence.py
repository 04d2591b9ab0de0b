"""What evidence costs live work: ``python -m bench.evidence``.

By turns without and with requests for evidence, probes in a steady stream of lines are timed from the sender's socket
to the outbox (``latency.py``). The requests are answered one after the other; each looks for a pattern that no line
has in all that the agent has stored, so it reads, unpacks and searches without a pause but for those of its share of a
core. It is the agent's own thread that does it, under the agent's own limits.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.agent import directory_uplink, syslog_input
from bench.drive import Bench, Run, running
from bench.latency import _collected, _fork, _probe, _send, _spread, _started, _watch_outbox, by_turns
from tests import broker
from tests.fleet.asking import KEYS, OPERATORS, Authority
from tests.fleet.kit import Centre, desired
from vedette.fleet.audit import Audit
from vedette.fleet.requests import Request
from vedette.region.repository import copied
from vedette.runtime.control import ask
from vedette.system.wallclock import utc_now

ASKED = 60
"""Requests, so that one always runs."""
FLEET = "default"
HOUR = 3_600_000_000


class Site:
    """A fleet of one agent without a connection to it, and its operator."""

    def __init__(self, folder: Path) -> None:
        self.centre = Centre(folder / "centre", fleet=FLEET)
        known = {name: replace(one, expires=utc_now() + 24 * HOUR) for name, one in OPERATORS.by_name.items()}
        repository = self.centre.repository
        repository.stage_desired(desired(1, fleet=FLEET), {}, replace(OPERATORS, fleet=FLEET, by_name=known))
        for key in self.centre.operators[:2]:
            repository.sign(key)
        repository.commit()
        signer = Authority().agent("bench", fleet=FLEET)
        self._key, self._certificate = folder / "agent.key", folder / "agent.pem"
        self._key.touch(0o600)
        self._key.write_bytes(signer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self._certificate.write_bytes(signer.certificate)

    def settings(self, landing: Path) -> str:
        root = self.centre.folder / "tuf" / "1.root.json"
        return (
            f'[broker]\nurl = "mqtts://127.0.0.1:1"\ncert_file = "{self._certificate}"\nkey_file = "{self._key}"\n'
            f'[fleet]\nroot = "{root}"\n{directory_uplink(landing)}'
        )

    def ask(self, run: Run) -> None:
        """Requests that come at once, by file, and are answered one after the other."""
        data, now = run.folder / "data", utc_now() // 1_000_000 * 1_000_000
        carried = data / "fleet" / "carried"
        copied(self.centre.repository, carried)
        (carried / "requests").mkdir()
        body = {"since": 0, "until": now + HOUR, "pattern": "nothing [a-f]{7} like this", "limit": 10}
        for _ in range(ASKED):
            request = Request(FLEET, "evidence", "ann", now, now + HOUR, body, ("bench",))
            (carried / "requests" / f"{request.id}.json").write_bytes(request.signed(KEYS["ann"]))
        ask(data / "control.sock", "carried", seconds=60)
        time.sleep(1)


def finished(data: Path) -> int:
    record = data / "fleet" / "audit.jsonl"
    return sum(row["event"] == "request_finished" for row in Audit(record).lines()) if record.exists() else 0


def one(bench: Bench, rate: int, site: Site, *, asked: bool) -> tuple[dict[str, float], int]:
    """The spread of one run in milliseconds, and how many requests were answered meanwhile."""
    seconds, ahead = bench.size(20, 8), bench.size(10, 6)
    bundle = bench.bundle(bench.rules(bench.size(3000, 300), 0.01), _probe(bench))
    lines = bench.stream(20_000).read_bytes().splitlines(keepends=True) * max(1, rate // 20_000)
    port = broker.own_port()
    name = f"evidence-{rate}-{asked}"
    uplink = site.settings(bench.folder / name / "landing")
    with running(bench, name, syslog_input(port), bundle, port=port, uplink=uplink) as run:

        def stream(seconds: int) -> None:
            sender = _fork.Process(target=_send, args=(port, lines, rate, seconds), daemon=True)
            sender.start()
            sender.join(seconds + 30)

        stream(ahead)  # something to look through
        time.sleep(1)
        watcher = _started(_watch_outbox, run.folder / "data" / "store")
        time.sleep(0.5)
        if asked:
            site.ask(run)
        before = finished(run.folder / "data")
        stream(seconds)
        answered = finished(run.folder / "data") - before
        time.sleep(1)
        (outbox,) = _collected([watcher])
    return _spread(outbox), answered


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--undisturbed", action="store_true", help="root: with priority over the machine's other work")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench, site = Bench(folder, core=0, quick=given.quick, undisturbed=given.undisturbed), Site(folder)

        def turn(asked: bool) -> tuple[dict[str, float], str]:
            found, answered = one(bench, given.rate, site, asked=asked)
            return found, f" ({answered} requests answered)" if asked else ""

        by_turns("evidence", turn, given)


if __name__ == "__main__":
    main()
