"""The real agent under one stream, killed at random and started again, an input a row: what was acknowledged is in the
raw log, once unless it came again and says so, and alerts are what the rules make of the raw log."""

from __future__ import annotations

import glob
import http.client
import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from shutil import copy
from typing import Any, ClassVar

import pytest

from bench import traffic
from bench.send import mqtt
from tests.broker import running
from tests.certificates import Authority
from tests.e2e.agent import KILLS, RULES, Agent, assert_as_scanned, chance, few, hand_over, marked, reborn, say, split
from tests.inputs.intake import rsyslogd
from tests.inputs.journald import journald
from tests.spark_jobs import kafka
from tests.waits import DEADLINE, until
from vedette.decode.decoder import record

BATCH = 1000
"""Lines of RELP written at a time."""
RECORDS = 50
"""Of a request by HTTP."""
EVENTS = 24_000
"""Of several lines each, in rotated files."""
ENTRIES = 6_000
"""Of the journal."""
LINUX = 'format = "syslog"\nlogsource = { product = "linux" }\n'
RULE = """title: Found
id: 0b0dbd0a-5a3e-4d7c-8f43-0a5ed6d5a001
logsource: {{product: linux}}
detection:
    found: {}
    condition: found
"""


class Feed:
    """An agent, whose input is named ``in``, and who sends to it, a part between two kills."""

    part: int
    """Events of a part, at least."""
    ordered = True
    constants: ClassVar[dict[str, object]] = {}

    def __init__(self, folder: Path, stack: ExitStack, rng: Random) -> None:
        self.folder, self.stack, self.rng = folder, stack, rng
        self.acknowledged: list[Any] = []
        """What names each event that must be stored, in the order of sending."""
        (folder / "rules").mkdir()
        self.agent = Agent(folder / "a", rules=self.rules(folder / "rules"), **self.constants)
        self.agent.configure(f'[[input]]\nname = "in"\n{self.settings()}')

    def rules(self, folder: Path) -> Path:
        """The folder with the agent's rules."""
        return few(folder)

    def settings(self) -> str:
        """The rest of the input's table, and others."""
        raise NotImplementedError

    def opened(self) -> None:
        """Wait until the input takes what is sent."""

    def send(self, number: int) -> None:
        """A part, over about a second, or until the agent dies."""
        raise NotImplementedError

    def midway(self, work: Future[Any], before: int) -> None:
        """Wait for a moment for a kill, within a part; ``before``: what was stored when it began."""
        self.agent.midway(work, before + self.rng.randrange(self.part))

    def dead(self, number: int) -> None:
        """What happens while the agent is dead."""

    def born(self) -> None:
        """What happens right after its start."""

    def whole(self) -> dict[str, Any]:
        """The status once all that was acknowledged is stored."""
        return self.agent.settled(len(self.acknowledged))

    def key(self, raw: bytes) -> Any:
        """What names a stored event."""
        return raw

    def stored(self) -> list[Any]:
        return [self.key(event.raw) for event in self.agent.stored()]

    def beyond(self, extra: Counter[Any]) -> bool:
        """Whether these may be stored besides what was acknowledged."""
        return not extra

    def alerts(self) -> int:
        """How many there are; they are checked."""
        return assert_as_scanned(self.agent)

    def check(self, status: dict[str, Any]) -> str:
        """The promises, on what the agent has left; returns what to print."""
        stored = self.stored()
        missing, extra = Counter(self.acknowledged) - Counter(stored), Counter(stored) - Counter(self.acknowledged)
        assert not missing, [missing.total(), *list(missing)[:3]]
        assert self.beyond(extra), [extra.total(), *list(extra)[:3]]
        assert stored == self.acknowledged or not self.ordered
        counts = status["inputs"]["in"]
        assert counts["received"] == counts["stored"] + sum(counts["dropped"].values())
        assert counts["judged"] == counts["stored"]
        assert set(counts["dropped"]) <= ({"duplicate"} if not self.ordered else set())
        assert not counts["lost"]
        alerts = self.alerts()
        assert alerts == status["alerts"]["made"] == status["alerts"]["receipted"]
        events = f"{len(self.acknowledged)} events, none missing, {extra.total()} more"
        return f"{events}, {counts['dropped']}; {alerts} alerts"


class Again(Feed):
    """Who sends again what was not acknowledged: such an event is stored once, or is marked."""

    ordered = False

    def beyond(self, extra: Counter[Any]) -> bool:
        again = Counter(map(self.key, marked(self.agent.data / "raw").elements()))
        return extra <= again

    def whole(self) -> dict[str, Any]:
        until("what was acknowledged", lambda: self.agent.alive() and not {*self.acknowledged} - {*self.stored()})
        return self.agent.settled()


class Traffic(Feed):
    lines = 1_000 * KILLS
    attacks = 0.05

    def __init__(self, folder: Path, stack: ExitStack, rng: Random) -> None:
        super().__init__(folder, stack, rng)
        self.parts = split(b"".join(traffic.blocks(12, self.lines, attack_rate=self.attacks)), KILLS + 1)
        self.part = self.lines // (KILLS + 1)


class Tcp(Traffic):
    """Acknowledges nothing: of each part a beginning is stored, the rest is the transport's loss."""

    constants: ClassVar[dict[str, object]] = {"segment_bytes": 64 << 10}
    handed = end = 0

    def settings(self) -> str:
        return f'type = "syslog"\ntcp = "127.0.0.1:{self.agent.port}"\n'

    def send(self, number: int) -> None:
        sent = hand_over(self.agent.port, self.parts[number], 2.0 * self.part)
        assert sent.complete or number < KILLS
        self.handed += sent.lines

    def dead(self, number: int) -> None:
        events = self.agent.stored(since=self.end)
        self.end = events[-1].end if events else self.end
        stored = [event.raw for event in events]
        assert stored == self.parts[number].splitlines()[: len(stored)]
        self.acknowledged += stored

    def whole(self) -> dict[str, Any]:
        status = self.agent.settled(len(self.acknowledged) + self.parts[KILLS].count(b"\n"))
        self.dead(KILLS)
        return status

    def check(self, status: dict[str, Any]) -> str:
        lost = self.handed - len(self.acknowledged)
        return f"{super().check(status)}; {self.handed} of {self.lines} lines handed over, {lost} lost in transport"


class Mqtt(Again, Traffic):
    def settings(self) -> str:
        self.broker = self.stack.enter_context(running(self.folder / "broker"))
        return f'type = "mqtt"\ntopics = ["plant/#"]\n{LINUX}[broker]\nurl = "{self.broker.url}"\n'

    def opened(self) -> None:
        until("the subscription", lambda: self.agent.alive() and "plant/#" in self.broker.log())

    def send(self, number: int) -> None:
        place = ("127.0.0.1", self.broker.port)
        assert mqtt(place, self.parts[number], topic="plant/press/log", rate=2 * self.part).complete
        self.acknowledged += self.parts[number].splitlines()


class File(Traffic):
    """Written without regard to lines, rotated in between, also while the agent is dead; under all starter rules."""

    lines = max(10_000, 1_000 * KILLS)
    attacks = 0.004
    slices = 50
    rotations = 0
    rotated = False

    def rules(self, folder: Path) -> Path:
        return RULES

    def settings(self) -> str:
        self.log = self.folder / "logs" / "app.log"
        self.log.parent.mkdir()
        return f'type = "file"\npaths = ["{self.log}"]\n{LINUX}'

    def send(self, number: int) -> None:
        data = self.parts[number]
        size = -(-len(data) // self.slices)
        with self.log.open("ab", buffering=0) as file:
            for start in range(0, len(data), size):
                file.write(data[start : start + size])
                time.sleep(0.9 / self.slices)
        self.acknowledged += data.splitlines()

    def rotate(self) -> bool:
        """In a half of the cases."""
        if chosen := self.rng.random() < 0.5:
            self.rotations += 1
            self.log.rename(self.log.with_name(f"app.log-202611{self.rotations:02}"))
        return chosen

    def dead(self, number: int) -> None:
        self.rotated = self.rotate()

    def born(self) -> None:
        if not self.rotated:
            self.rotate()


class Earlier(Feed):
    """A pod's log with its rotated files, gzip, Zstandard and plain, of events of several lines; one is packed while
    the agent is dead."""

    part = EVENTS // (KILLS + 1)
    names = (*(f"0.log.20261120-00000{i}" for i in range(3)), "0.log")

    def settings(self) -> str:
        self.log = self.folder / "shop_cart-1_0b1c" / "app" / "0.log"
        self.log.parent.mkdir(parents=True)
        size = EVENTS // len(self.names)
        for i, name in enumerate(self.names):
            with self.log.with_name(name).open("w") as file:
                for n in range(size * i, size * (i + 1)):
                    head = f"2026-11-23T10:00:00.{n:06d}Z std{'err' if n % 2 else 'out'}"
                    file.write(f"{head} F 2026 event {n}\n{head} P \tat {self.rng.random()}\n{head} F and on\n")
        subprocess.run(["gzip", "-q", self.log.with_name(self.names[0])], check=True)
        subprocess.run(["zstd", "-q", "--rm", self.log.with_name(self.names[1])], check=True)
        self.acknowledged += range(EVENTS)
        multiline = '{ start = "^2026 ", timeout = "5s" }'
        return f'type = "file"\npaths = ["{self.log}"]\ncontainers = true\nmultiline = {multiline}\n'

    def send(self, number: int) -> None:
        """All of it is there."""

    def midway(self, work: Future[Any], before: int) -> None:
        self.agent.midway(Future(), min(EVENTS, before + self.rng.randrange(self.part)))

    def dead(self, number: int) -> None:
        if number == KILLS // 2:
            subprocess.run(["gzip", "-q", self.log.with_name(self.names[2])], check=True)

    def key(self, raw: bytes) -> int:
        first, second = raw.partition(b"] ")[2].split(b"\n")
        assert second.endswith(b"and on")
        return int(first.split()[-1])

    def alerts(self) -> int:
        return len(self.agent.alerts())


class Http(Feed):
    """OTLP of two senders; more than was answered may be stored. A rule finds it by names of syslog, ECS and OTLP."""

    part = 10 * RECORDS
    ordered = False

    def rules(self, folder: Path) -> Path:
        (folder / "rule.yml").write_text(RULE.format('{user: root, host.name: "web-1", kubernetes.pod.name: shop}'))
        return folder

    def settings(self) -> str:
        return f'type = "http"\ntcp = "127.0.0.1:{self.agent.port}"\nlogsource = {{ product = "linux" }}\n'

    def send(self, number: int) -> None:
        with ThreadPoolExecutor(2) as senders:
            for answered in senders.map(lambda sender: [*self._push(f"{number}.{sender}", number)], range(2)):
                self.acknowledged += answered
        assert number < KILLS or len(self.acknowledged) >= 6 * RECORDS

    def _push(self, name: str, number: int) -> list[str]:
        """Requests until the agent dies, or a few in the end; texts of the records that it has answered."""
        answered: list[str] = []
        connection = http.client.HTTPConnection("127.0.0.1", self.agent.port, timeout=DEADLINE)
        attributes = [
            {"key": key, "value": {"stringValue": value}}
            for key, value in {"host.name": "web-1", "k8s.pod.name": "shop"}.items()
        ]
        with suppress(OSError, http.client.HTTPException):
            for request in range(250 if number < KILLS else 3):
                texts = [f"Failed password for root from {name}.{request}.{i} port 22 ssh2" for i in range(RECORDS)]
                lines = [f"Nov 23 06:16:34 web-1 sshd[42]: {text}" for text in texts]
                logs = {"resource": {"attributes": attributes}, "scopeLogs": [
                    {"logRecords": [{"body": {"stringValue": line}} for line in lines]}
                ]}  # fmt: skip
                body, kind = json.dumps({"resourceLogs": [logs]}), {"Content-Type": "application/json"}
                connection.request("POST", "/v1/logs", body, kind)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200
                answered += texts
                time.sleep(0.05)  # each record makes an alert
        connection.close()
        return answered

    def key(self, raw: bytes) -> Any:
        return json.loads(raw)["MESSAGE"]

    def beyond(self, extra: Counter[Any]) -> bool:
        return not extra.keys() & {*self.acknowledged} and max(extra.values(), default=1) == 1

    def alerts(self) -> int:
        alerts = len(self.agent.alerts())
        assert alerts == len(self.stored())
        return alerts


class Relp(Again):
    """A real rsyslogd, which waits for answers, in the clear."""

    part = BATCH
    written = 0

    def rules(self, folder: Path) -> Path:
        (folder / "rule.yml").write_text(RULE.format("[relp 00 line]"))
        return folder

    def settings(self) -> str:
        listener, action = self.transport()
        (self.folder / "r").mkdir()
        action = (
            f'action(type="omrelp" target="127.0.0.1" port="{self.agent.port}" action.resumeRetryCount="-1"'
            f' action.resumeInterval="1" queue.type="LinkedList" queue.size="1000000"{action})'
        )
        self.log = self.stack.enter_context(rsyslogd(self.folder / "r", action, "omrelp"))
        return f'type = "relp"\n{listener}\n'

    def transport(self) -> tuple[str, str]:
        """What the listener and rsyslog's action say of it."""
        return f'tcp = "127.0.0.1:{self.agent.port}"', ""

    def send(self, number: int) -> None:
        numbers = range(self.written, self.written + BATCH)
        self.written += BATCH
        lines = "".join(f"relp {i % 100:02} line {i}\n" for i in numbers)
        command = ["logger", "-u", str(self.log), "-t", "relp"]
        subprocess.run(command, input=lines, text=True, check=True, timeout=DEADLINE)
        self.acknowledged += numbers

    def midway(self, work: Future[Any], before: int) -> None:
        """What is written comes without its sender. One that was never answered may send its first message twice."""
        self.agent.midway(Future(), before + self.rng.randrange(1, self.part))

    def dead(self, number: int) -> None:
        self.send(number)

    def key(self, raw: bytes) -> int:
        return int(raw.rpartition(b" ")[2])


class RelpTls(Relp):
    """With certificates of both sides."""

    def transport(self) -> tuple[str, str]:
        authority = Authority(self.folder)
        cert, key = authority.issue("agent")
        its_cert, its_key = authority.issue("sender")
        return (
            f'tls = {{ address = "127.0.0.1:{self.agent.port}", cert = "{cert}", key = "{key}",'
            f' client_ca = "{authority.ca}" }}',
            f' tls="on" tls.caCert="{authority.ca}" tls.myCert="{its_cert}" tls.myPrivKey="{its_key}"'
            ' tls.authMode="name" tls.permittedPeer="agent"',
        )


class Journal(Feed):
    """A real journald, which is killed, too, and loses what it had not read; once the host has booted meanwhile."""

    part = ENTRIES // (KILLS + 1)
    attack = "new user: name=x, UID=0, GID=0, home=/root, shell=/bin/sh"

    def rules(self, folder: Path) -> Path:
        copy(RULES / "linux" / "account_with_uid_zero.yml", folder)
        return folder

    def settings(self) -> str:
        self.real = self.stack.enter_context(journald())
        self.enter()
        return 'type = "journal"\n'

    def enter(self) -> None:
        """The next start sees that journal as the host's own, and the boot of that host."""
        self.agent.program = ("nsenter", "-m", "-t", str(self.real.pid), sys.executable, "-m", "vedette")

    def send(self, number: int) -> None:
        for i in range(self.part):
            self.real.log(f"entry {number}.{i}" if i % 7 else f"entry {number}.{i}\n  of two lines", PRIORITY="5")
            if i % 50 == 0:
                time.sleep(40 / self.part)

    def dead(self, number: int) -> None:
        if number == 0 or self.rng.random() < 0.5:
            self.real.kill()
            self.real.start(boot=str(uuid.uuid4()) if number == 0 else "")
            self.enter()

    def whole(self) -> dict[str, Any]:
        self.real.log(self.attack, identifier="useradd")
        self.real.log("last")
        until("journald", lambda: self.real.messages()[-1] == "last")
        self.acknowledged = self.real.messages()
        assert len(self.acknowledged) > ENTRIES // 2
        until("the last", lambda: self.agent.alive() and self.stored()[-1:] == ["last"])
        assert not self.agent.said("journal_gap", all=True)
        return self.agent.settled()

    def stored(self) -> list[Any]:
        events = [record(event.raw, "syslog") for event in self.agent.stored()]
        return [event.get("message") for event in events if event.get("program") == "test"]

    def alerts(self) -> int:
        (alert,) = self.agent.alerts()
        assert self.attack in alert["raw"]
        return 1


class Kafka(Traffic):
    """A topic of one partition, so that ``scan`` sees its order, on which correlations depend."""

    def settings(self) -> str:
        admin = pytest.importorskip("confluent_kafka.admin", reason="pip install 'vedette[kafka]'")
        self.address = self.stack.enter_context(kafka.kafka(self.folder / "broker"))
        client = admin.AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        client.create_topics([admin.NewTopic("logs", 1)])["logs"].result(DEADLINE)
        return f'type = "kafka"\nbrokers = ["{self.address}"]\ntls = false\ntopics = ["logs"]\n{LINUX}'

    def send(self, number: int) -> None:
        from tests.kafka.mocked import send

        lines = self.parts[number].splitlines()
        for start in range(0, len(lines), 50):
            send(self.address, "logs", lines[start : start + 50])
        self.acknowledged += lines


RELP = glob.glob("/usr/lib*/rsyslog/omrelp.so") + glob.glob("/usr/lib*/*/rsyslog/omrelp.so")
LONG = (pytest.mark.long,)
PEER = (*LONG, pytest.mark.peer)
OMRELP = (*PEER, pytest.mark.skipif(not RELP, reason="rsyslog's omrelp is missing: apt-get install rsyslog-relp"))
JARS = (*PEER, pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh"))
MARKS: dict[type[Feed], tuple[pytest.MarkDecorator, ...]] = {
    Tcp: (), Mqtt: (), File: LONG, Earlier: LONG, Http: LONG, Relp: OMRELP, RelpTls: OMRELP, Journal: PEER, Kafka: JARS,
}  # fmt: skip
ROWS = [pytest.param(kind, marks=marks, id=kind.__name__.lower()) for kind, marks in MARKS.items()]


@pytest.mark.parametrize("kind", ROWS)
def test_killed_at_random(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: type[Feed]) -> None:
    """Over KILLS kills; each start may be cut short by another."""
    # Over 3 s: three lives of an agent and more, and a stream that goes on for a second and a half.
    rng = chance()
    with ExitStack() as stack:
        feed = kind(tmp_path, stack, rng)
        agent, sender = feed.agent, stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(agent.kill)
        agent.up()
        feed.opened()
        for number in range(KILLS + 1):
            before = agent.input()["stored"]
            work = sender.submit(feed.send, number)
            if number < KILLS:
                feed.midway(work, before)
                agent.kill()
                work.result()
                feed.dead(number)
                reborn(agent, rng)
                agent.ready()
                feed.born()
            work.result()
        status = feed.whole()
        agent.kill()
        said = feed.check(status)
    say(capsys, f"{kind.__name__.lower()}, {KILLS} kills: {said}")
