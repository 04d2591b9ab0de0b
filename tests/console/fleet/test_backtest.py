"""Backtests by a real child, over raw logs of two agents, within a time; cancelled, failed, interrupted, refused."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.console.fleet.kit import ADMIN, VIENNA, VIEWER
from tests.fleet.kit import FLEET
from tests.settings import SegmentedLog
from tests.waits import eventually, pauses
from vedette.model.counters import Counters
from vedette.model.event import Chunk
from vedette.rawlog.log import RawLog
from vedette_console.fleet import backtest
from vedette_console.fleet.backtest import Backtests, link, logged_agents
from vedette_console.fleet.live import Beat, Live
from vedette_console.fleet.models import RuleFile
from vedette_console.fleet.models_asked import BacktestOrder
from vedette_console.settings import Settings
from vedette_console.web import Problem

HOUR = 3_600_000_000
NOW = 1_795_176_000_000_000
"""2026-11-20, 12:00:00."""
RULE = """title: Needle
id: 5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a01
logsource: {product: linux}
detection: {k: [needle], condition: k}
level: high
"""
AGENTS = {"vienna-1": "vienna", "linz-1": "linz"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten hours of two agents, an hour a segment; a needle in each."""
    folder = tmp_path_factory.mktemp("export")
    for agent in AGENTS:
        clock, settings = [NOW - 10 * HOUR], SegmentedLog(segment_bytes=256)
        log = RawLog.open(folder / agent / "raw", settings, Counters(), clock=partial(clock.__getitem__, 0))
        for hour in range(10):
            time = clock[0] = NOW - (10 - hour) * HOUR
            lines = [b"<38>Nov 20 02:00:00 web1 app[7]: line %d of hour %d" % (n, hour) for n in range(200)]
            lines[100] += b" with a needle <b>"
            data = b"".join(line + b"\n" for line in lines)
            ends = array("I")
            for line in lines:
                ends.append((ends[-1] if ends else 0) + len(line) + 1)
            log.append(Chunk("in", "syslog", time, data, ends))
            log.sync()
        log.close()
    return folder


@pytest.fixture
def settings(tmp_path: Path, source: Path) -> Settings:
    return Settings("", work=tmp_path / "work", backtest_sources=(str(source),))


def live() -> Live:
    """Has heard both agents."""
    heard = Live(None, FLEET, lambda topic: None)
    for agent, site in AGENTS.items():
        heard._beats[FLEET, agent] = Beat(FLEET, agent, site)
    return heard


def order(**more: Any) -> BacktestOrder:
    rule = RuleFile(path="linux/needle.yml", text=RULE)
    return BacktestOrder(**{"rules": [rule], "since": "2026-11-20T06:30:00Z", "until": "2026-11-20T10:30:00Z",
                            "route": False, **more})  # fmt: skip


async def ended(desk: Backtests, id: str) -> Any:
    for pause in pauses():
        page = desk.backtest(ADMIN, id)
        if page.backtest.state not in ("queued", "running"):
            return page
        await asyncio.sleep(pause)
    raise AssertionError(page)


def test_which_segments(source: Path, tmp_path: Path) -> None:
    """Those that may hold something of the time, of the agents that are named."""
    assert logged_agents(source) == ["linz-1", "vienna-1"]
    assert logged_agents(source / "none") == []
    every = link(source, tmp_path / "a", AGENTS, 0, NOW)
    some = link(source, tmp_path / "b", ["linz-1"], NOW - 3 * HOUR, NOW)
    assert 0 < some.segments < every.segments / 2
    assert some.bytes > 0
    assert {path.parent.relative_to(tmp_path / "b") for path in (tmp_path / "b").rglob("*.seg")} == {Path("linz-1/raw")}
    assert link(source, tmp_path / "c", AGENTS, 0, NOW - 20 * HOUR).segments == 0


@pytest.mark.long
@pytest.mark.spark
async def test_a_backtest(settings: Settings) -> None:
    """Counts by rule, host and hour, of that time alone; who may at one site gets that one's; what it did is told after
    a restart; rules that do not run end it with their reason."""
    news: list[str] = []
    desk = Backtests(settings, live(), news.append)
    every = await desk.begin(ADMIN, order())
    mine = await desk.begin(VIENNA, order())
    page = await ended(desk, every.backtest.id)
    assert page.backtest.state == "done", page
    assert [(rule.title, rule.level, rule.kind, rule.matches, rule.agents) for rule in page.rules] == [
        ("Needle", "high", "detection", 8, 2),
    ]  # fmt: skip
    assert [(host.agent, host.site, host.matches) for host in page.hosts] == [
        ("linz-1", "linz", 4),
        ("vienna-1", "vienna", 4),
    ]
    assert page.matches_count == 8
    assert "needle <b>" in page.matches[0].fields["raw"]
    assert page.events >= 1600
    assert sum(hour.matches for hour in page.by_hour) == 8
    assert page.backtest.seconds > 0
    assert news
    page = await ended(desk, mine.backtest.id)
    assert {host.agent for host in page.hosts} == {"vienna-1"}
    with pytest.raises(Problem) as refused:
        desk.backtest(VIENNA, every.backtest.id)
    assert refused.value.status == 404
    bad = await desk.begin(ADMIN, order(rules=[RuleFile(path="bad.yml", text="title: x\ndetection: 7\n")]))
    page = await ended(desk, bad.backtest.id)
    assert page.backtest.state == "failed"
    assert "no rule runs" in page.backtest.why
    assert page.not_run
    again = Backtests(settings, live(), news.append)
    await again.start()
    assert again.backtest(ADMIN, every.backtest.id).matches_count == 8
    assert len(again.listed(ADMIN, 0, 10).items) == 3


async def test_ends(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled, it is over at once with all that it started; a console that ends says so afterwards. None keeps its
    links to the logs. Who has OWN waiting is refused, another is not."""
    monkeypatch.setattr(backtest, "OWN", 2)
    desk = Backtests(settings, live(), lambda id: None)
    first, second = await desk.begin(ADMIN, order()), await desk.begin(ADMIN, order())
    assert second.backtest.state == "queued"
    with pytest.raises(Problem, match="too many backtests"):
        await desk.begin(ADMIN, order())
    await desk.begin(VIENNA, order())
    await eventually("links", lambda: [*settings.work_folder.glob("backtests/*/logs")])
    page = await desk.cancel(ADMIN, first.backtest.id)
    assert page.backtest.state == "cancelled"
    assert not page.backtest.may_cancel
    await desk.stop()
    again = Backtests(settings, live(), lambda id: None)
    await again.start()
    page = again.backtest(ADMIN, second.backtest.id)
    assert page.backtest.state == "interrupted"
    assert [*settings.work_folder.glob("backtests/*/logs")] == []
    assert "ended" in page.backtest.why
    assert page.texts == order().rules
    for job in settings.work_folder.glob("backtests/*/job.json"):  # every one of them is at hand in the console
        assert b"logsource" not in job.read_bytes()
    with pytest.raises(Problem) as refused:
        await again.cancel(ADMIN, second.backtest.id)
    assert refused.value.status == 409


async def test_one_that_ends_as_nobody_foresaw(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has failed, with its reason, and does not wait for a restart."""
    monkeypatch.setattr(backtest, "link", lambda *_: {}["luck"])
    desk = Backtests(settings, live(), lambda id: None)
    page = await ended(desk, (await desk.begin(ADMIN, order())).backtest.id)
    assert (page.backtest.state, page.backtest.why) == ("failed", "'luck'")


async def test_what_is_refused(settings: Settings, tmp_path: Path) -> None:
    """No source, another's, no log, a time that is none, a role that may not."""
    for who, options, more, status in (
        (ADMIN, replace(settings, backtest_sources=()), {}, 503), (ADMIN, settings, {"source": "other"}, 422),
        (ADMIN, replace(settings, backtest_sources=(str(tmp_path / "none"),)), {}, 409), (VIEWER, settings, {}, 403),
        (ADMIN, settings, {"since": "soon"}, 422),
    ):  # fmt: skip
        with pytest.raises(Problem) as refused:
            await Backtests(options, live(), lambda id: None).begin(who, order(**more))
        assert refused.value.status == status
    desk = Backtests(settings, live(), lambda id: None)
    page = await ended(
        desk, (await desk.begin(ADMIN, order(until="2020-01-01T00:00:00Z", since="2019-01-01T00:00:00Z"))).backtest.id
    )
    assert page.backtest.state == "failed"
    assert "no raw log of that time" in page.backtest.why
    for id in ("../x", "0" * 16):
        with pytest.raises(Problem):
            desk.backtest(ADMIN, id)
