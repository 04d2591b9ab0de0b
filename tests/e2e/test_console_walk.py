"""An analyst's walk through the console in real Chromium, over a region that is real in all its parts (``walked.py``).

``make pictures`` keeps the screenshots in docs/console; else they go to the test's folder.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.sites import INTRUDER
from tests.console.pages.browser import Visitor, chromium
from tests.console.pages.pictures import palette
from tests.e2e.agent import landed
from tests.e2e.walked import NOISE, NOISY, Edge, Region, region
from tests.waits import DEADLINE, until

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.long, pytest.mark.usefixtures("awake")]
REASON = "case 41: the address that got in"
PICTURES = "VEDETTE_PICTURES"
"""Names the folder in which pictures are kept, small."""
TUNED = "case 42: the deployment is known"
ANOTHER = NOISE.replace("[9]", "[4242]")
"""The noise once more, while the canary has the tuned rule."""
OVER = re.compile("^(done|failed|cancelled|expired|interrupted)$")
"""For what hosts, Spark or the controller do: the machine may be busy."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Region]:
    with region(tmp_path / "region") as found:
        yield found


class Walk(Visitor):
    """A visitor who takes pictures, and for whom the console refuses nothing."""

    def __init__(self, browser: Any, url: str, folder: Path, **how: Any) -> None:
        super().__init__(browser, url, **how)
        self.folder, self.plain = folder, browser.new_page()
        self.page.on("response", self._response)
        folder.mkdir(parents=True, exist_ok=True)

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self.heard.append(f"{response.status}: {response.request.method} {response.url}")

    def picture(self, name: str, at: str = "", height: int = 900) -> None:
        """Of what stands in a window so high, from the element ``at`` on; nothing is wider than it, and nothing was
        wrong."""
        page = self.page
        page.set_viewport_size({**page.viewport_size, "height": height})
        page.evaluate("(at) => at ? document.querySelector(at).scrollIntoView() : scrollTo(0, 0)", at)
        page.mouse.move(0, 0)
        until("the notes to go", lambda: not page.locator("#notes p").count())
        self.well()
        shot = page.screenshot()
        if os.environ.get(PICTURES):
            shot = palette(self.plain, shot)
        (self.folder / f"{name}.png").write_bytes(shot)

    def well(self) -> None:
        assert self.heard == []
        assert self.wide() <= 0

    @property
    def path(self) -> str:
        """Of the page."""
        return str(self.page.url).removeprefix(self.url)

    def text(self, where: str) -> str:
        return str(self.page.locator(where).first.inner_text())

    def until(self, where: str, text: str, seconds: float = DEADLINE) -> None:
        """Until an element shows the text: live, without a click."""
        self.page.locator(where, has_text=text).first.wait_for(timeout=seconds * 1000)

    def ends_well(self) -> None:
        """Until what is tried is over, live."""
        self.page.locator("main .top .state", has_text=OVER).wait_for(timeout=DEADLINE * 1000)
        assert self.text("main .top .state") == "done", self.text("main")

    def click(self, name: str, where: str = "main", role: str = "button") -> None:
        self.page.locator(where).get_by_role(role, name=name, exact=True).first.click()

    def goes(self, to: str) -> None:
        self.page.wait_for_url(re.compile(to))
        self.page.wait_for_load_state("load")


def test_an_analysts_walk(browser: Any, place: Region, tmp_path: Path) -> None:
    """From the one-time login to a tuned rule on the canary: each step is shown, and is so on the hosts."""
    folder = Path(os.environ.get(PICTURES) or tmp_path / "pictures")
    walk = Walk(browser, place.url, folder)
    with said(walk, place):
        logs_in(walk, place)
        campaign = sees_the_campaign(walk)
        alert = fetches_the_lines(walk)
        closes_it(walk, alert)
        tunes_the_rule(walk)
        tries_it(walk)
        proposes_it(walk, place)
        rollout, canary = watches_the_canary(walk, place)
        asks_the_canary(walk, canary)
        ends_the_rollout(walk, place, rollout)
        reads_the_record(walk)
        also_small_and_dark(browser, walk, {"now": "/", "alert": alert, "campaign": campaign})


@contextmanager
def said(walk: Walk, place: Region) -> Iterator[None]:
    """Where it fails: what the page and the console's log say."""
    try:
        yield
    except BaseException:
        sys.stdout.write(f"{walk.page.url}\n{walk.heard}\n{walk.page.locator('main').inner_text()[:4000]}\n")
        sys.stdout.write(place.console.text()[-4000:])
        raise


def logs_in(walk: Walk, place: Region) -> None:
    walk.page.goto(place.login)
    walk.click("Log in")
    walk.goes("/$")
    walk.page.locator(".live[data-state=live]").wait_for()
    first = walk.page.locator("#now ol.first li").first
    assert INTRUDER in first.inner_text()
    assert "3 sites" in first.inner_text()
    walk.picture("01-now")
    first.locator("a").click()
    walk.goes("/campaigns/.+")


def sees_the_campaign(walk: Walk) -> str:
    """Its path."""
    campaign = walk.path
    assert INTRUDER in walk.text("h1")
    for site in ("vienna", "lisbon", "dublin"):
        assert walk.page.locator("#steps-h ~ div td", has_text=f"plants/{site}").count()
    assert walk.page.locator("main", has_text="plants/oslo").count() == 0
    assert walk.page.locator(".story li").count() > 1
    walk.picture("02-campaign")
    walk.page.locator("#samples a.cover", has_text="Reverse Shell").first.click()
    walk.goes("/alerts/.+")
    return campaign


def fetches_the_lines(walk: Walk) -> str:
    """By one click and a reason, from the real agent; the alert's path."""
    alert = walk.path
    assert f"/dev/tcp/{INTRUDER}/4444" in walk.text("#raw")
    assert walk.page.locator("#raw mark").count()
    assert walk.page.locator("ol.lines").count() == 0
    walk.picture("03-alert")
    walk.page.get_by_label("Why you need them").fill(REASON)
    walk.page.get_by_label("Lines before and after").fill("4")
    walk.click("Fetch the lines")
    walk.until("ol.lines li.hit", f"/dev/tcp/{INTRUDER}/4444")
    lines = walk.page.locator("ol.lines li").all_inner_texts()
    assert any("Accepted password for root" in line for line in lines), lines
    assert len(lines) == 9
    walk.until("#evidence .state", "done")
    assert REASON in walk.text("#evidence")
    walk.picture("04-evidence", "#evidence")
    return alert


def closes_it(walk: Walk, alert: str) -> None:
    """The alert, then the campaign, which *Now* names no more."""
    walk.page.locator("#t-state").select_option("true-positive")
    walk.page.locator("#t-reason").fill(REASON)
    with walk.page.expect_navigation():
        walk.click("Decide")
    assert "true-positive · closed" in walk.text("aside section")
    assert REASON in walk.text("aside section")
    walk.picture("05-closed")
    walk.page.goto(walk.url)
    walk.page.locator("#now ol.first a", has_text=INTRUDER).first.click()
    walk.goes("/campaigns/.+")
    walk.page.locator("#t-state").select_option("true-positive")
    walk.page.locator("#t-reason").fill(REASON)
    with walk.page.expect_navigation():
        walk.click("Decide")
    assert "true-positive" in walk.text("aside section")
    walk.page.goto(walk.url)
    walk.page.locator("#now ol.first", has_text=INTRUDER).wait_for(state="detached")
    walk.page.goto(walk.url + alert)
    walk.until("aside section", "true-positive")


def tunes_the_rule(walk: Walk) -> None:
    """The filter that the job proposes, made narrower by hand."""
    page = walk.page
    page.goto(walk.url + "/rules?show=noise")
    assert "Crontab Replaced" in walk.text("tbody tr")
    assert "user deploy" in walk.text("tbody tr")
    walk.picture("06-noise")
    page.locator("tbody tr a.cover").first.click()
    walk.goes(f"/rules/{NOISY}")
    walk.click("Try the filter", role="link")
    walk.goes("/rules/new.+")
    assert page.locator("#path").input_value() == "linux/crontab_changed.yml"
    assert NOISE in page.locator("#event").input_value()
    walk.click("Explain")
    walk.until("#explained", "It does not match.")
    text = page.locator("#text").input_value()
    proposed = '        "detail": "deploy"\n'
    assert proposed in text
    page.locator("#text").fill(text.replace(proposed, f'{proposed}        "user|frob": "deploy"\n'))
    walk.until("#lint .problem", "It does not run yet.")
    page.locator("#text").fill(text.replace(proposed, f'{proposed}        "user": "deploy"\n'))
    walk.until("#lint .said", "It runs: 1 rule, 1 filter.")
    event = page.locator("#event").input_value()
    page.locator("#event").fill(event.replace("(deploy) REPLACE", "(mallory) REPLACE"))
    walk.click("Explain")
    walk.until("#explained", "It matches.")
    tests = page.locator("#tests").input_value()
    page.locator("#tests").fill(f'{tests}- no_match: "{event}"\n')
    walk.click("Run the tests")
    walk.until("#tested", "5 test events, 0 sequences: all as they should be.")
    walk.picture("07-editor", height=1120)


def tries_it(walk: Walk) -> None:
    """On what was exported, and on what the hosts have stored: the one replacement that is odd is still found."""
    page = walk.page
    editor = page.url
    page.get_by_label("Since").fill("3d")
    page.locator("#try-reason").fill(TUNED)
    walk.click("Backtest")
    walk.goes("/backtests/.+")
    walk.ends_well()
    assert {"matches": "1", "agents": "4"}.items() <= sums(walk).items()
    assert "www-data" in walk.text("section:has(#matches-h)")
    walk.picture("08-backtest")
    page.goto(editor)
    page.get_by_label("Since").fill("3d")
    page.locator("#try-reason").fill(TUNED)
    walk.click("Hunt on the hosts")
    walk.goes("/hunts/.+")
    walk.ends_well()
    assert page.locator("section:has(#agents-h) tbody .state", has_text="done").count() == 4
    assert {"matches": "1", "done": "4"}.items() <= sums(walk).items()
    assert "www-data" in walk.text("section:has(#matches-h)")
    walk.picture("09-hunt")
    page.goto(editor)


def sums(walk: Walk) -> dict[str, str]:
    """Of a hunt, a backtest or a roll-out."""
    return {one.locator("dt").inner_text(): one.locator("dd").inner_text()
            for one in walk.page.locator("dl.sums > div").all()}  # fmt: skip


def proposes_it(walk: Walk, place: Region) -> None:
    """Built and signed by the console; the signature that lacks is given by the commands that it shows."""
    page = walk.page
    assert '"user": "deploy"' in page.locator("#text").input_value()
    page.locator("#reason").fill(TUNED)
    walk.click("Build and propose")
    walk.until("#proposed .said", "staged")
    walk.picture("10-proposed", "section:has(#proposed)")
    commands = walk.text("#proposed pre")
    assert [line.split()[:3] for line in commands.splitlines()] == [
        ["vedette", "fleet", "sign"],
        ["vedette", "fleet", "apply"],
    ]
    page.goto(walk.url + "/rollouts")
    assert "signed by carol, 1 signature missing" in walk.text("section:has(#staged-h)")
    place.by_the_page(commands, "dave")
    walk.until("#list td .state", "rolling")
    page.locator("#list tbody tr", has_text="rolling").locator("a.cover").click()
    walk.goes("/rollouts/.+")


def watches_the_canary(walk: Walk, place: Region) -> tuple[str, Edge]:
    """The tuned rule is on one agent, and silent there alone; the roll-out's path, and that agent."""
    page, rollout = walk.page, walk.path
    page.locator("#o-reason").fill("a look at the canary first")
    walk.click("Pause")
    walk.click("Pause")
    walk.until("#head .state", "paused")
    walk.until(".ring.now", "canary")
    walk.until("section:has(#agents-h) tr", "rules-2")
    until("the canary to take it", lambda: sums(walk).get("taken") == "1")
    walk.page.locator("section:has(#agents-h) .state.warn").first.wait_for(state="detached")
    assert {"have it": "1", "taken": "1", "do not have it": "3"}.items() <= sums(walk).items()
    walk.picture("11-canary")
    [canary] = [agent for agent in place.agents if agent.bundle() == 2]
    others = {agent.name for agent in place.agents if agent.bundle() == 1}
    assert len(others) == 3
    assert canary.name in walk.text("section:has(#agents-h) tr:has-text('rules-2')")
    for agent in place.agents:
        agent.logged(ANOTHER)

    def alerted() -> set[str]:
        return {str(row["agent_id"]) for row in landed(place.landing) if ANOTHER in (row["raw"] or "")}

    until("the alerts of the others", lambda: others <= alerted())
    until("the canary to read it", lambda: any(ANOTHER in one.raw.decode() for one in canary.stored("auth")))
    canary.settled()
    until("its figures to land", lambda: place.evaluated(0))
    assert alerted() == others
    return rollout, canary


def asks_the_canary(walk: Walk, canary: Edge) -> None:
    """A question and an action, each a signed request that the host's own record has."""
    page = walk.page
    page.goto(walk.url + "/fleet")
    assert page.locator("#agents tr[data-row^='plants/']").count() == 4
    walk.picture("12-fleet")
    walk.click(canary.name, role="link")
    walk.goes(f"/fleet/plants/{canary.name}")
    assert "rules-2" in walk.text("#agent")
    page.locator("#question").select_option("rules")
    walk.click("Ask")
    walk.until("#answer", ": done")
    walk.until("#answer", NOISY)
    before = canary.status()["config"]["reloads"]
    page.locator("#do-reason").fill("a look at the canary")
    page.locator("#action").select_option("reload")
    walk.click("Do it")
    walk.click("Do it")
    until("the reload", lambda: canary.status()["config"]["reloads"] > before)
    walk.until("#answer", "reload: done")
    finished = [row for row in canary.recorded_requests() if row["event"] == "request_finished"]
    assert len(finished) >= 3  # the hunt, the question, the action
    walk.picture("13-agent", "section:has(#ask-h)")


def ends_the_rollout(walk: Walk, place: Region, rollout: str) -> None:
    """It goes on, to all."""
    walk.page.goto(walk.url + rollout)
    walk.page.locator("#o-reason").fill("the canary is well")
    walk.click("Resume")
    walk.click("Resume")
    walk.until("#head .state", "done")
    until("all to run it", lambda: {agent.bundle() for agent in place.agents} == {2})
    until("the page to say so", lambda: sums(walk).get("taken") == "4")
    walk.page.locator("section:has(#agents-h) .state.warn").first.wait_for(state="detached")
    walk.picture("14-done")


def reads_the_record(walk: Walk) -> None:
    """The audit log has each act of the walk, and its chain holds."""
    page = walk.page
    page.goto(walk.url + "/audit")
    walk.click("Verify the chain")
    walk.until("#verdict", "rows are as they were written.")
    acts = set(page.locator("#list td.tight").all_inner_texts())
    wanted = {
        "login",
        "evidence",
        "triage",
        "rules.try",
        "hunt",
        "rollout.propose",
        "rollout.pause",
        "rollout.resume",
        "fleet.ask",
    }
    assert wanted <= acts
    walk.picture("15-audit")


def also_small_and_dark(browser: Any, walk: Walk, paths: Mapping[str, str]) -> None:
    """Some of the pages again, on a phone and by night."""
    state = walk.page.context.storage_state()
    for name, how, shown in (("phone", {"width": 400}, ("now", "alert")), ("dark", {"dark": True}, ("campaign",))):
        other = Walk(browser, walk.url, walk.folder, state=state, **how)
        for one in shown:
            other.page.goto(walk.url + paths[one])
            other.picture(f"{one}-{name}")
        other.close()
