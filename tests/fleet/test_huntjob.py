"""A hunt as operators ask for it: what the reply holds, and what becomes of it when anything is killed or cancelled."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.asking import NOW as ASKED
from tests.fleet.asking import asked, signed, spooled
from tests.rawlog.samples import NOW
from tests.runtime.test_hunt import INPUTS, SECOND, counts, hunt, order, store, streams
from tests.waits import eventually, until
from vedette.config.settings import AgentSettings, Config, RedactSettings
from vedette.engine.artifact import Artifact
from vedette.fleet import huntjob
from vedette.fleet.hunt import packed
from vedette.fleet.job import Job, Kind, Limits, Services, Stopped
from vedette.fleet.kinds import KINDS
from vedette.fleet.replies import records
from vedette.inputs.settings import FileInput
from vedette.model.event import LogSource
from vedette.plan.plan import Plan
from vedette.rules import build

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("awake")]
RULES = Path(__file__).parents[2] / "rules" / "sigma"
LIMITS = Limits(8 << 20, 600.0, 1.0, 1)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build.from_rules(build.load([RULES]))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent's folder with a raw log."""
    folder = tmp_path_factory.mktemp("data")
    store(folder / "raw", streams(20_000))
    return folder


def body(plan: Plan, **fields: Any) -> dict[str, Any]:
    data = base64.b64encode(packed(Artifact.without_databases(plan).to_bytes())).decode()
    return {"since": NOW, "until": NOW + 10**6 * SECOND, "first": 20, "plan": data, **fields}


class Host:
    """Works on one request, in as many lives as it takes."""

    def __init__(self, data: Path, spool: Path, asks: Mapping[str, Any], **limits: float) -> None:
        inputs = tuple(
            FileInput(name, codec, "UTC", LogSource(), paths=(f"/{name}",)) for name, codec in INPUTS.items()
        )
        redact = (RedactSettings(expressions=("secret[0-9]+",)),)
        self.config = replace(Config(), agent=AgentSettings(data_dir=data), input=inputs, redact=redact)
        self.kind = Kind("hunt", "analyst", huntjob.validate, huntjob.run, LIMITS.__class__(
            LIMITS.bytes, limits.get("seconds", LIMITS.seconds), limits.get("cpu", LIMITS.cpu), 1))  # fmt: skip
        self.request, self.spool = asked("hunt", "ann", body=dict(asks)), spool
        self.job: Job | None = None

    async def live(self) -> tuple[str, str]:
        async def command(name: str, **words: object) -> object:
            raise AssertionError(name)

        spool = spooled(self.spool, lambda: ASKED)
        held = spool.held.get(self.request.id) or spool.take(self.request, signed(self.request))
        self.job = Job(held, self.kind.limits, Services(lambda: self.config, command), lambda: None)
        return await self.job.run(self.kind)

    def spooled_rows(self) -> list[Mapping[str, Any]]:
        held = spooled(self.spool, lambda: ASKED).held[self.request.id]
        return [row for number in range(held.parts) for row in records(held.kept(number).part)]

    @property
    def folder(self) -> Path:
        return self.config.agent.fleet_dir / "hunts" / self.request.id

    def process(self) -> int:
        """The hunt's process; 0: there is none."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if str(self.folder).encode() in words and huntjob.MODULE.encode() in words:
                return int(path.parent.name)
        return 0


def without(rows: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """But for progress, and what differs from run to run."""
    left = [{**row} for row in rows if row["type"] != "progress"]
    for row in left:
        row.pop("seconds", None)
        row.pop("cpu", None)
    return left


@pytest.fixture(scope="module")
def whole(data: Path, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    host = Host(data, tmp_path_factory.mktemp("spool"), body(plan))
    assert asyncio.run(host.live()) == ("done", "")
    assert not host.folder.exists()
    return without(host.spooled_rows())


def test_the_reply(whole: list[dict[str, Any]], data: Path, plan: Plan, tmp_path: Path) -> None:
    """The first matches, each rule's count, and the end: what the process found."""
    folder = order(tmp_path / "hunt", plan, data / "raw")
    report = hunt(folder)
    kinds = [row["type"] for row in whole]
    assert kinds == ["match"] * len(report["first"]) + ["rule"] * len(report["rules"]) + ["end"]
    assert {row["id"]: row["count"] for row in whole if row["type"] == "rule"} == counts(report)
    end = whole[-1]
    assert (end["state"], end["events"], end["matches"]) == ("done", report["events"], report["matches"])
    named = {socket.gethostname() if host == "unknown" else host: n for host, n in report["hosts"].items()}
    assert end["hosts"] == named  # a file is of the host itself


@pytest.mark.long
def test_killed_and_stopped(whole: list[dict[str, Any]], data: Path, plan: Plan, tmp_path: Path) -> None:
    """Its process killed, the agent stopped in the middle: the reply has each record once, and the same."""
    host = Host(data, tmp_path, body(plan), cpu=0.3)

    async def lives() -> None:
        running = asyncio.create_task(host.live())
        await eventually("a checkpoint", (host.folder / "checkpoint").exists)
        pid = host.process()
        os.kill(pid, signal.SIGKILL)
        await eventually("another process", lambda: host.process() not in (0, pid))
        host.job.stop()
        with pytest.raises(Stopped):
            await running
        assert not host.process()

    asyncio.run(lives())
    assert asyncio.run(host.live()) == ("done", "")
    assert without(host.spooled_rows()) == whole


def test_cancelled(data: Path, plan: Plan, tmp_path: Path) -> None:
    """What was found so far is the reply; neither the process nor its folder is left."""
    host = Host(data, tmp_path, body(plan), cpu=0.05)

    async def life() -> tuple[str, str]:
        running = asyncio.create_task(host.live())
        await eventually("a checkpoint", (host.folder / "checkpoint").exists)
        assert host.job is not None
        host.job.cancel("cancelled by ann")
        return await running

    assert asyncio.run(life()) == ("cancelled", "cancelled by ann")
    until("the end of its process", lambda: not host.process())
    assert not host.folder.exists()
    assert host.spooled_rows()[-1]["type"] == "end"


def test_limits(data: Path, plan: Plan, tmp_path: Path) -> None:
    """Its time: what was found until then is the reply."""
    host = Host(data, tmp_path, body(plan), cpu=0.02, seconds=4.0)
    state, reason = asyncio.run(host.live())
    assert state in ("limited", "failed")
    assert "4 s" in reason
    until("the end of its process", lambda: not host.process())


def test_a_plan_that_cannot_be_used(data: Path, tmp_path: Path) -> None:
    """The reply says why; it is not tried again."""
    asks = {"since": NOW, "until": NOW + 1, "first": 1, "plan": base64.b64encode(packed(b"no plan")).decode()}
    state, reason = asyncio.run(Host(data, tmp_path, asks).live())
    assert state == "failed"
    assert "not a built rule set" in reason


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"since": 1, "until": 2, "first": 1}, {"since": 2, "until": 1, "first": 1, "plan": ""},
        {"since": 1, "until": 2, "first": 10**6, "plan": ""}, {"since": 1, "until": 2, "first": 1, "plan": "%"},
        {"since": 1, "until": 2, "first": 1, "plan": base64.b64encode(b"x").decode()},
        {"since": 1.5, "until": 2, "first": 1, "plan": ""}, {"since": 1, "until": 2, "first": 1, "plan": 1},
    ],
)  # fmt: skip
def test_bodies(wrong: dict[str, Any]) -> None:
    """What cannot be answered is refused before anything is stored."""
    with pytest.raises(ValueError, match=r"."):
        KINDS["hunt"].validate(wrong)


def test_bombs() -> None:
    """A plan that unpacks to more than it may is refused without being unpacked."""
    import zlib

    bomb = base64.b64encode(zlib.compress(bytes(1 << 28), 9)).decode()
    with pytest.raises(ValueError, match="more than"):
        huntjob.validate({"since": 1, "until": 2, "first": 1, "plan": bomb})


def test_what_the_owner_redacts(tmp_path: Path) -> None:
    """Of fields that are shown, too."""
    rules = build.load([])
    build.add(rules, "title: any\nid: 1c1c1c1c-0000-4000-8000-000000000009\nlevel: low\nlogsource: {product: linux}\n"
                     "detection: {s: {message|contains: secret}, condition: s}\n")  # fmt: skip
    line = b"<13>Nov 21 06:00:00 web1 sshd[7]: secret123 given"
    store(tmp_path / "data" / "raw", {"auth": [line] * 40, "web": [], "audit": []})
    host = Host(tmp_path / "data", tmp_path / "spool", body(build.from_rules(rules)))
    assert asyncio.run(host.live()) == ("done", "")
    matches = [row for row in host.spooled_rows() if row["type"] == "match"]
    assert [row["fields"] for row in matches] == [{"message": "[redacted] given"}] * 20
