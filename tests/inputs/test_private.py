"""No file input reads what is the agent's own, whoever asks for it and under whatever name."""

from __future__ import annotations

import asyncio
import gzip
import os
from functools import partial
from pathlib import Path

from tests.inputs.intake import Bin, agent
from tests.settings import PolledFiles
from tests.waits import eventually
from vedette.config.private import is_private
from vedette.config.settings import AgentSettings, ArchiveSettings, Config, UplinkSettings
from vedette.inputs.condition import WORKS
from vedette.inputs.files import PRIVATE
from vedette.inputs.plugin import PluginInput
from vedette.inputs.settings import FileInput
from vedette.inputs.tail import FileTail
from vedette.model.counters import Counters
from vedette.sinks.settings import FileSink, WebhookSink
from vedette.system.plugins import Entry, settings_of


async def test_the_agents_own_files_are_no_logs(tmp_path: Path) -> None:
    """Neither its data nor a key that a setting names, through no link and no former name; logs beside it are read."""
    data, logs = tmp_path / "data", tmp_path / "logs"
    for folder in (data / "identity", logs):
        folder.mkdir(parents=True)
    token, secret = tmp_path / "token", b"secret\n" * 300
    for path in (token, data / "redact.key", data / "identity" / "agent.key", logs / "app.log.1"):
        path.write_bytes(secret)
    (data / "old.log.1.gz").write_bytes(gzip.compress(secret))
    (data / "old.log").write_bytes(secret)
    (logs / "link.log").symlink_to(data / "identity" / "agent.key")
    (logs / "data").symlink_to(data)
    os.link(data / "redact.key", logs / "hard.log")
    os.link(data / "old.log", logs / "segment.log")
    (logs / "first.log").write_bytes(b"of two names\n")
    os.link(logs / "first.log", tmp_path / "backup")
    (logs / "app.log.1").unlink()
    os.link(token, logs / "app.log.1")
    (logs / "app.log").write_bytes(b"public\n")
    config = Config(
        agent=AgentSettings(id="a1", data_dir=logs / "data"),
        sink=(WebhookSink("hook", url="https://sink.example", token_file=token),),
    )
    paths = (f"{data}/**", f"{tmp_path}/token", f"{logs}/*.log", f"{logs}/data/old.log")
    private = partial(is_private, config, None)
    bin = Bin()
    tail = FileTail(PolledFiles("f", paths=paths, poll=0.01), agent(bin, Counters(), private=private))
    task = asyncio.create_task(tail.run())
    await eventually("both lines of logs", lambda: len(bin.events) == 2)
    await eventually("a condition", lambda: tail.condition != WORKS and tail.condition.state == "failing")
    await tail.stop()
    await task
    assert set(bin.events) == {b"public", b"of two names"}
    assert PRIVATE in tail.condition.reason
    foreseen = FileInput("f", paths=paths).foreseen(private)
    assert (foreseen.state, PRIVATE in foreseen.reason) == ("failing", True)
    assert FileInput("f", paths=(f"{logs}/segment.log",)).foreseen(private).state == "failing"
    assert FileInput("f", paths=(f"{logs}/app.log", f"{logs}/first.log")).foreseen(private) == WORKS


def test_the_configuration_and_what_plugins_are_given(tmp_path: Path) -> None:
    """The file of settings, which may hold a plugin's password, and a file that an option names as a secret, at any
    depth; another of its options may name a log."""
    file, password, log = (tmp_path / name for name in ("vedette.toml", "password", "app.log"))
    for path in (file, password, log):
        path.write_text("secret")
    options = {"path": str(log), "key": "\0", "servers": [{"password_file": str(password)}]}
    plugin = settings_of(PluginInput, Entry("inputs", "acme", "1", "one", "tests.inputs.test_plugin:Plugin"))
    private = partial(is_private, Config(input=(plugin("p", options=options),)), file)
    answers = {path.name: FileInput("f", paths=(str(path),)).foreseen(private).reason for path in (file, password, log)}
    assert answers == {"vedette.toml": f"{file}: {PRIVATE}", "password": f"{password}: {PRIVATE}", "app.log": ""}


def test_the_alerts_that_it_writes(tmp_path: Path) -> None:
    """Neither a sink's file, also rotated, linked or with its folder a link, nor the folder of a directory uplink, nor
    the agent's own of the archive: each would make alerts of its alerts. A log beside them, and one whose name only
    begins like the sink's, is read."""
    logs, landing = tmp_path / "logs", tmp_path / "landing"
    archived, shared = tmp_path / "archive" / "a1" / "part.seg", tmp_path / "archive" / "app.log"
    for folder in (logs, landing / "alerts", archived.parent):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(logs)
    alerts, linked, landed = logs / "alerts.log", logs / "b.log", landing / "alerts" / "part.log"
    rotated, other, beside = logs / "alerts.log.2", logs / "alerts.log.web.log", logs / "app.log"
    dated = logs / "alerts.log-20261129"
    for path in (alerts, landed, rotated, dated, other, beside, archived, shared):
        path.write_text("failed password\n")
    os.link(alerts, linked)
    config = Config(
        agent=AgentSettings(id="a1", data_dir=tmp_path / "data"),
        archive=ArchiveSettings(str(tmp_path / "archive")),
        uplink=UplinkSettings(path=landing),
        sink=(FileSink("alerts", path=tmp_path / "link" / "alerts.log"),),
    )
    private = partial(is_private, config, None)
    for path in (alerts, rotated, dated, linked, landed, archived):
        foreseen = FileInput("f", paths=(str(path),)).foreseen(private)
        assert (foreseen.state, foreseen.reason) == ("failing", f"{path}: {PRIVATE}")
    for path in (other, beside, shared):
        assert FileInput("f", paths=(str(path),)).foreseen(private) == WORKS
