"""What each kind of input says of itself: works, also when quiet; waiting; failing, and why, until that is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from tests.broker import Broker, own_port
from tests.inputs.intake import Bin, agent, listening
from tests.inputs.test_journalaccess import NOBODY
from tests.inputs.test_plugin import Plugin, raises, rests
from tests.mqtt.kit import QUICK
from tests.settings import PolledFiles
from tests.waits import eventually
from vedette.config.read import parse
from vedette.inputs.base import Running
from vedette.inputs.condition import OPENING, WORKS, State
from vedette.inputs.follow import JournalFollower
from vedette.inputs.multicast import AuditListener
from vedette.inputs.plugin import PluginInput, PluginRun
from vedette.inputs.settings import AuditInput, FileInput, InputSettings, JournalInput, MqttInput
from vedette.inputs.subscribe import MqttSubscription
from vedette.inputs.tail import FileTail
from vedette.model.counters import Counters
from vedette.mqtt.settings import MqttSettings
from vedette.system.plugins import Entry, settings_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


@asynccontextmanager
async def opened(transport: Running) -> AsyncIterator[Running]:
    assert transport.condition == OPENING
    task = asyncio.create_task(transport.run())
    try:
        yield transport
    finally:
        await transport.stop()
        await task


async def failing(transport: Running, reason: str) -> None:
    """Wait until it fails with a reason that begins so."""
    await eventually(reason, lambda: transport.condition.state is State.FAILING)
    assert transport.condition.reason.startswith(reason), transport.condition


async def working(transport: Running) -> None:
    await eventually("an input that works", lambda: transport.condition == WORKS)


def tail(*paths: Path, **settings: Any) -> FileTail:
    wanted = PolledFiles("f", paths=tuple(map(str, paths)), poll=0.01, **settings)
    return FileTail(wanted, agent(Bin(), Counters()))


@contextmanager
def reached() -> Iterator[Path]:
    """A folder that other users reach. Another pytest that begins closes the one that ``tmp_path`` is in."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def public() -> Iterator[Path]:
    with reached() as folder:
        yield folder


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def foreseen(settings: InputSettings) -> str:
    """What a process of another user foresees."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):  # pragma: no cover
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, ": ".join(settings.foreseen()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading, encoding="utf-8") as file:
        return file.read()


async def test_files(tmp_path: Path) -> None:
    """A pattern that matches nothing waits, and so does a path without a file; with a file, quiet or not, it works,
    whatever other paths lack. A folder in place of a file is a fault."""
    pattern, path = tmp_path / "*.log", tmp_path / "there" / "auth"
    async with opened(tail(pattern, path)) as transport:
        await eventually("a look", lambda: transport.condition != OPENING)
        reasons = f"{pattern}: no file matches yet; {path}: No such file or directory"
        assert transport.condition == (State.WAITING, reasons)
        (tmp_path / "a.log").touch()
        await working(transport)
    assert FileInput("f", paths=(str(pattern), str(path))).foreseen() == WORKS
    assert FileInput("f", paths=(str(path),)).foreseen() == (State.WAITING, f"{path}: No such file or directory")
    async with opened(tail(tmp_path)) as transport:
        await failing(transport, f"{tmp_path}: it is not a regular file")


async def test_a_pattern_that_matches_no_regular_file(tmp_path: Path) -> None:
    """A pipe or a socket alone is a fault, as by its own path, also seen beforehand; beside a file it is none."""
    folder, pattern = tmp_path / "logs", tmp_path / "logs" / "*"
    (folder / "old").mkdir(parents=True)
    settings = FileInput("f", paths=(str(pattern),))
    assert settings.foreseen().state is State.WAITING
    os.mkfifo(folder / "app.log")
    async with opened(tail(pattern)) as transport:
        await failing(transport, f"{pattern}: what it matches are no regular files")
        assert settings.foreseen() == transport.condition
        (folder / "other.log").touch()
        await working(transport)
    assert settings.foreseen() == WORKS


@pytest.mark.parametrize("made", ["loop", "long", "nowhere", "beyond", "folder"])
async def test_what_holds_no_lines(made: str, tmp_path: Path) -> None:
    """What anybody may put where a glob looks, and that holds no lines, is no fault: links that lead in a circle, too
    far or nowhere, and a folder, whatever their names. As a path of the configuration the first two are."""
    folder = os.fsencode(tmp_path / "logs")
    os.mkdir(folder)
    (tmp_path / "file").touch()
    for name in (b"a.log", b"\xff.log"):
        path = os.path.join(folder, name)
        target = {"loop": name, "long": b"x" * 300, "nowhere": b"none", "beyond": b"../file/x", "folder": b""}[made]
        os.symlink(target, path) if target else os.mkdir(path)
    pattern, path = tmp_path / "logs" / "*.log", tmp_path / "logs" / "a.log"
    settings = FileInput("f", paths=(str(pattern),))
    async with opened(tail(pattern)) as transport:
        await eventually("a look", lambda: transport.condition != OPENING)
        assert transport.condition.state is State.WAITING
        assert settings.foreseen() == transport.condition
        (tmp_path / "logs" / "other.log").touch()
        await working(transport)
    wrong = made in ("loop", "long", "folder")
    assert FileInput("f", paths=(str(path),)).foreseen().state is (State.FAILING if wrong else State.WAITING)
    if made == "loop":  # so does the folder where a glob begins
        assert FileInput("f", paths=(f"{path}/*.log",)).foreseen().state is State.FAILING


async def test_a_name_that_no_position_can_have(tmp_path: Path) -> None:
    """A file whose name is not UTF-8 is not read, and that is said."""
    with open(os.path.join(os.fsencode(tmp_path), b"\xff.log"), "wb"):
        pass
    async with opened(tail(tmp_path / "*.log")) as transport:
        await failing(transport, f"{tmp_path}/\\udcff.log: its name is not UTF-8")


async def test_a_condition_names_a_few_paths(tmp_path: Path) -> None:
    async with opened(tail(*(tmp_path / f"{number}" for number in range(9)))) as transport:
        await eventually("a look", lambda: transport.condition != OPENING)
        assert transport.condition.reason.count(str(tmp_path)) == 3
        assert transport.condition.reason.endswith("; and 6 more")


@as_root
@pytest.mark.parametrize("closed", ["a.log", "."])
async def test_what_another_user_may_not_read(closed: str, public: Path) -> None:
    """A file, or the folder of a pattern, that is closed to the agent: failing, also beside files that it reads, and
    seen beforehand; once it is opened, it works."""
    folder = public / "logs"
    folder.mkdir(mode=0o755)
    (folder / "a.log").touch()
    (public / "other").touch()
    (folder / closed).chmod(0)
    wanted = (folder / "*.log", public / "other")
    path = folder / "*.log" if closed == "." else folder / closed
    assert foreseen(FileInput("f", paths=tuple(map(str, wanted)))) == f"failing: {path}: Permission denied"
    async with opened(tail(*wanted)) as transport:
        with as_nobody():
            await failing(transport, f"{path}: Permission denied")
        await working(transport)


@pytest.mark.peer
async def test_a_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without journalctl in PATH it fails; with it a journal in which nothing is written works."""
    if shutil.which("journalctl") is None:
        pytest.skip("no journalctl here")
    settings, path = JournalInput("j", directory=str(tmp_path)), os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert settings.foreseen().state is State.FAILING
    async with opened(JournalFollower(settings, agent(Bin(), Counters()), backoff=(0.01, 0.02))) as transport:
        await failing(transport, "there is no journalctl")
        monkeypatch.setenv("PATH", path)
        await working(transport)
    assert settings.foreseen() == WORKS


@as_root
async def test_a_journal_that_may_not_be_read(public: Path) -> None:
    """Seen beforehand, with what to do."""
    folder = public / "journal"
    folder.mkdir(mode=0o700)
    answer = foreseen(JournalInput("j", directory=str(folder)))
    assert answer.startswith(("failing: there is no journalctl", f"failing: {folder} is not readable for uid {NOBODY}"))


@as_root
async def test_audit_without_the_right() -> None:
    """Who may not read the audit log fails, with what is missing."""
    with as_nobody():
        async with opened(AuditListener(AuditInput("a"), agent(Bin(), Counters()), backoff=(0.01, 0.02))) as transport:
            await eventually("a refusal", lambda: transport.condition.state is State.FAILING)
            assert transport.condition.reason


@pytest.mark.peer
async def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    """Failing with its address while nobody listens there; works once it is up; failing again when it has gone."""
    broker = Broker(tmp_path)
    settings = MqttInput("m", broker=MqttSettings(broker.url), topics=("t/#",))
    subscription = MqttSubscription(settings, agent(Bin(), Counters()), backoff=QUICK)
    async with opened(subscription) as transport:
        await failing(transport, f"{broker.url}: ")
        broker.start()
        try:
            await working(transport)
        finally:
            broker.kill()
        await failing(transport, f"{broker.url}: ")


async def test_a_subscription_that_is_refused() -> None:
    """Failing with its topic until the broker takes it. (Mosquitto 2.0.11 refuses none.)"""
    settings = MqttInput("m", broker=MqttSettings("mqtt://b"), topics=("t/#",))
    subscription = MqttSubscription(settings, agent(Bin(), Counters()), backoff=QUICK)
    subscription.client.connected.set()
    for reason, reasons in (("Not authorized", ["t/#: Not authorized"]), ("Granted QoS 1", [""])):
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        answer.set_result([ReasonCode(PacketTypes.SUBACK, reason)])
        subscription.client._subscribed(["t/#"], answer)
        assert [subscription.condition.reason] == reasons


async def test_kafka() -> None:
    """As MQTT, over a topic in which nothing is written: that its broker is back is seen without a record."""
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")
    from tests.inputs.consumed import consuming
    from tests.kafka.mocked import mocked

    with mocked() as broker:
        name = broker.create("quiet")
        async with consuming(broker.address, Bin(), Counters(), topics=(name,), group=name) as transport:
            await working(transport)
            broker.down()
            await eventually("an outage", lambda: transport.condition.state is State.FAILING)
            broker.up()
            await working(transport)
    async with consuming(f"127.0.0.1:{own_port()}", Bin(), Counters(), topics=("t",)) as transport:
        await failing(transport, "_")
        assert "refused" in transport.condition.reason


@pytest.mark.alone
async def test_no_descriptor_to_accept_with() -> None:
    """A listener works; while the process has no descriptor left it cannot accept, and says so; then it works again,
    also when the one who wanted to connect has gone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with listening(Bin(), Counters()) as (transport, port):
        assert transport.condition == WORKS
        taken: list[int] = []
        with socket.socket() as peer:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.open(os.devnull, os.O_RDONLY))
                peer.connect(("127.0.0.1", port))
                await failing(transport, "cannot accept: ")
            finally:
                for descriptor in taken:
                    os.close(descriptor)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await working(transport)


async def test_a_plugin() -> None:
    """One that raises is failing, without its words, which may quote an event; one that goes on quietly works."""
    entry = Entry("inputs", "acme", "1", "one", "tests.inputs.test_plugin:Plugin")
    surroundings = agent(Bin(), Counters())
    for steps, end in (([raises, rests], WORKS), ([raises], "the plugin acme:one is in quarantine")):
        Plugin.steps, Plugin.ran = steps, 0
        run = PluginRun(
            settings_of(PluginInput, entry)("x"), entry, surroundings, backoff=(0.001, 0.002), stop_seconds=0.3
        )
        async with opened(run) as transport:
            await eventually(str(end), lambda end=end: end in (transport.condition, transport.condition.reason))


FILES: dict[str, Callable[[Path], str]] = {
    "relp": lambda path: f'tls = {{ address = "127.0.0.1:0", cert = "{path}", key = "{path}" }}',
    "http": lambda path: f'tcp = "127.0.0.1:0"\ntoken_file = "{path}"',
    "mqtt": lambda path: f'topics = ["t"]\n[broker]\nurl = "mqtts://127.0.0.1"\nca_file = "{path}"',
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_settings_name(kind: str, tmp_path: Path) -> None:
    """A certificate, a key or a token file that is missing is seen beforehand."""
    path = tmp_path / "secret"
    text = f'[[input]]\nname = "x"\ntype = "{kind}"\n{FILES[kind](path)}\n[rules]\npaths = ["rules"]\n'
    (settings,) = parse(text).input
    assert settings.foreseen() == (State.FAILING, f"{path}: No such file or directory")
    path.touch()
    assert settings.foreseen() == WORKS
