"""The package of examples/rocketmq in the real agent, against a real broker: messages come in, alerts go out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import own_port
from tests.e2e.agent import ROOT, Agent
from tests.waits import DEADLINE, until

BUILT = ROOT / "build" / "rocketmq"
TOPICS = ("logs", "alerts")
RULE = """title: Badge at the gate
id: 6a1f0000-0000-4000-8000-000000000138
logsource: {product: gates}
detection: {one: {badge: 7}, condition: one}
level: high
"""
SENDER = """
import sys
from vedette_rocketmq import Target
target = Target({"endpoints": sys.argv[1], "topic": "logs", "tls": False})
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    while target.send([{"alert_id": str(number), "badge": number % 20}])[0].verdict.name != "TAKEN":
        pass
target.close()
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.peer,
    pytest.mark.skipif(not (BUILT / "site").exists(), reason="no RocketMQ in build/rocketmq: run tools/rocketmq.sh"),
]


class Broker:
    """A name server, and a broker with its proxy, each a JVM; they end with ``kill``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self.port, self._names = folder, own_port(), f"127.0.0.1:{own_port()}"
        (folder / "names.conf").write_text(f"listenPort={self._names.rpartition(':')[2]}\nkvConfigPath={folder}/kv\n")
        (folder / "broker.conf").write_text(
            f"namesrvAddr={self._names}\nbrokerIP1=127.0.0.1\nlistenPort={own_port()}\nhaListenPort={own_port()}\n"
            f"storePathRootDir={folder}/store\nmappedFileSizeCommitLog=16777216\nmappedFileSizeConsumeQueue=300000\n"
            "maxIndexNum=200000\nmaxHashSlotNum=50000\ndiskMaxUsedSpaceRatio=99\n"
        )
        proxy = {"grpcServerPort": self.port, "remotingListenPort": own_port(), "namesrvAddr": self._names}
        (folder / "proxy.json").write_text(json.dumps({"rocketMQClusterName": "DefaultCluster", **proxy}))
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def endpoints(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _java(self, main: str, *arguments: object) -> subprocess.Popen[bytes]:
        options = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={self._folder}")
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                ["java", *options, "-cp", f"{BUILT}/jars/*", f"org.apache.rocketmq.{main}", *map(str, arguments)],
                env={**os.environ, "ROCKETMQ_HOME": str(self._folder)}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def start(self) -> None:
        """Until it has TOPICS, and a group of the same name for each."""
        self._processes.append(self._java("namesrv.NamesrvStartup", "-c", self._folder / "names.conf"))
        files = ("-bc", self._folder / "broker.conf", "-pc", self._folder / "proxy.json")
        self._processes.append(self._java("proxy.ProxyStartup", "-pm", "local", *files))
        until("the broker", lambda: b"rocketmq-proxy startup successfully" in (self._folder / "log").read_bytes())
        for topic in TOPICS:
            self._until("updateTopic", "-t", topic, "topicName=")
            self._until("updateSubGroup", "-g", topic, "groupName=")

    def _until(self, command: str, option: str, name: str, says: str) -> None:
        """Ask until a topic or a group is there; ``says``: before its name."""

        def asked() -> bool:
            arguments = (command, "-n", self._names, "-c", "DefaultCluster", option, name)
            self._java("tools.command.MQAdminStartup", *arguments).wait(DEADLINE)
            return f"{says}{name}".encode() in (self._folder / "log").read_bytes()

        until(name, asked)

    def kill(self) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Not started yet."""
    broker = Broker(tmp_path / "broker")
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin as pip installs it, and what it needs; no home directory, as a service has none."""
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", ROOT / "examples" / "rocketmq", source], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
         "--no-build-isolation", "--target", tmp_path / "site", source],
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path / "site", BUILT / "site", ROOT / "agent"))))
    monkeypatch.setenv("HOME", "/dev/null")


@pytest.mark.usefixtures("packages")
def test_messages_and_alerts(broker: Broker, tmp_path: Path) -> None:
    """An agent that starts before its broker has every message that was sent, over a kill in the middle; the alerts
    that it sends are messages, which another input reads, and no fault of the plugin is counted."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "gate.yml").write_text(RULE)
    endpoints = f'endpoints = "{broker.endpoints}", tls = false'
    agent = Agent(
        tmp_path / "a",
        f'[[input]]\ntype = "rocketmq"\nname = "in"\nformat = "json"\nlogsource = {{ product = "gates" }}\n'
        f'options = {{ {endpoints}, topics = ["logs"], group = "logs", invisible = 10 }}\n'
        f'[[input]]\ntype = "rocketmq"\nname = "back"\nformat = "json"\nlogsource = {{ product = "none" }}\n'
        f'options = {{ {endpoints}, topics = ["alerts"], group = "alerts", invisible = 10 }}\n'
        f'[[sink]]\ntype = "rocketmq"\nname = "out"\noptions = {{ {endpoints}, topic = "alerts" }}\n'
        '[plugins]\nallow = ["vedette-rocketmq"]\n',
        rules=tmp_path / "rules",
    )

    def send(begin: int, end: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SENDER, broker.endpoints, str(begin), str(end)])

    def ids(name: str) -> set[str]:
        return {json.loads(event.raw)["alert_id"] for event in agent.stored(name)}

    try:
        agent.up()
        broker.start()
        sender = send(0, 300)
        until("some of them", lambda: len(ids("in")) > 50)
        agent.kill()
        agent.up()
        assert sender.wait(DEADLINE) == 0
        assert send(300, 400).wait(DEADLINE) == 0
        until("all that was sent", lambda: ids("in") == {str(number) for number in range(400)})
        agent.settled()
        alerts = {alert["alert_id"] for alert in agent.alerts()}
        assert len(alerts) >= 20
        until("the alerts", lambda: ids("back") == alerts)
        assert not agent.said("plugin_failed", all=True)
    finally:
        agent.kill()
