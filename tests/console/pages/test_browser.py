"""The pages in real Chromium: an attacker's alerts on each, accessibility, keyboard, live parts, acts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.console import kit
from tests.console.kit import Console
from tests.console.pages import region
from tests.console.pages.browser import WAIT, Tab, axe, chromium
from tests.console.pages.pictures import COLOURS, palette, pixels
from tests.console.pages.places import PAGES, places

pytestmark = pytest.mark.peer
Open = Callable[..., Tab]
LOOK = 3000
"""Milliseconds between two looks of live.js."""
HEARD = """EventSource = class extends EventSource {
  constructor(...how) { super(...how); this.addEventListener("jobs", () => { document.body.dataset.heard = "jobs"; }); }
};"""
"""The page says when it has heard of a job."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Any) -> Iterator[Open]:
    """Opens tabs, which are closed with the test."""
    opened: list[Tab] = []

    def open(console: Console, **how: Any) -> Tab:
        opened.append(Tab(browser, console, **how))
        return opened[-1]

    yield open
    for tab_ in opened:
        tab_.close()


@pytest.fixture(scope="session")
def script(request: pytest.FixtureRequest) -> str:
    return axe(Path(request.config.cache.mkdir("axe")))


def of_part(request: Any, part: str) -> bool:
    """Whether htmx asks for this part of the page."""
    return bool(request.headers.get("hx-target") == part)


@contextmanager
def renewed(page: Any, part: str) -> Iterator[None]:
    """What is done within has the page ask for this part again: it is swapped in, and settled."""
    script = "if (event.detail.elt.id === part) document.body.dataset.settled = part;"
    page.evaluate(f"(part) => document.body.addEventListener('htmx:afterSettle', (event) => {{ {script} }})", part)
    yield
    page.locator(f"body[data-settled={part}]").wait_for()


LOUD = (
    "now", "alerts", "alert", "campaign", "entity", "agent", "roll-out", "rule", "filter", "hunt", "audit", "settings",
)  # fmt: skip
"""Pages that show most of an attacker's texts, and all scripts; one of each kind."""


@pytest.mark.parametrize("loud", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_attackers_texts_on_every_page(tab: Open, hostile: Console, loud: bool) -> None:
    """No dialog, no violation of the policy, no error, nothing fetched from elsewhere; fits a phone."""
    # Over 3 s: twelve pages, and all others.
    pages = {name: path for name, path in places(hostile).items() if (name in LOUD) == loud}
    assert len(pages) >= len(LOUD)
    tab_ = tab(hostile, width=400, dark=True)
    for name, path in pages.items():
        tab_.go(path)
        tab_.settled()
        tab_.page.mouse.move(200, 400)
        tab_.settled()
        assert tab_.heard == [], name
        assert tab_.wide() <= 0, name
        assert tab_.page.locator("main script, main img, main iframe, main style").count() == 0, name


def test_accessible(tab: Open, hostile: Console, script: str) -> None:
    """Axe-core has no serious finding on the first page, a list and an alert."""
    # Over 3 s: axe-core looks through each.
    pages = places(hostile)
    tab_ = tab(hostile, width=400, dark=True)
    for name in ("now", "alerts", "alert"):
        tab_.go(pages[name])
        tab_.settled()
        assert tab_.findings(script) == [], name


@pytest.mark.long
def test_accessible_everywhere(tab: Open, hostile: Console, script: str) -> None:
    tab_ = tab(hostile, width=400, dark=True)
    for name, path in places(hostile).items():
        tab_.go(path)
        tab_.settled()
        tab_.page.mouse.move(200, 400)
        tab_.settled()
        assert tab_.findings(script) == [], name


@pytest.mark.long
def test_accessible_on_a_wide_screen(tab: Open, plain: Console, nothing: Console, script: str) -> None:
    """Without serious findings, with an ordinary day's data and with none."""
    for console, pages in ((plain, places(plain)), (nothing, {"now": "/", "alerts": "/alerts", "fleet": "/fleet"})):
        tab_ = tab(console)
        for name, path in pages.items():
            tab_.go(path)
            assert tab_.findings(script) == [], name
            assert tab_.heard == [], name
            assert tab_.wide() <= 0, name
    tab_ = tab(plain)
    tab_.page.context.clear_cookies()
    tab_.go("/login")
    assert tab_.findings(script) == []


def test_by_keyboard_alone(tab: Open, plain: Console) -> None:
    """Search, rows, open, go elsewhere, help: and letters that are typed into a field are text."""
    # Over 3 s: five pages are opened, one after the other.
    tab_ = tab(plain)
    page, keys = tab_.page, tab_.page.keyboard
    tab_.go("/")
    keys.press("g")
    keys.press("a")
    page.wait_for_url("**/alerts")
    keys.press("/")
    keys.type("gn?jlevel:critical")
    assert page.locator("#q").input_value() == "gn?jlevel:critical"
    page.locator("#q").fill("level:critical")
    keys.press("Enter")
    page.wait_for_url("**/alerts?q=level*")
    for _ in range(3):
        keys.press("j")
    keys.press("k")
    chosen = page.locator("tr.on")
    assert chosen.count() == 1
    assert chosen.get_attribute("data-row") == page.locator("#results tr[data-row]").nth(1).get_attribute("data-row")
    keys.press("Enter")
    page.wait_for_url("**/alerts/2**")
    keys.press("t")
    assert page.evaluate("document.activeElement.id") == "t-state"
    keys.press("Escape")
    keys.press("?")
    assert page.locator("#help").is_visible()
    keys.press("Escape")
    assert not page.locator("#help").is_visible()
    keys.press("g")
    keys.press("r")
    page.wait_for_url("**/rules")
    assert tab_.heard == []


def test_completion(tab: Open, plain: Console) -> None:
    """The box completes fields, then values."""
    tab_ = tab(plain)
    tab_.go("/alerts")
    tab_.page.locator("#q").press_sequentially("leve")
    tab_.page.locator("#choices li").first.wait_for()
    for key in ("ArrowDown", "Enter"):
        tab_.page.keyboard.press(key)
    assert tab_.page.locator("#q").input_value() == "level:"
    tab_.page.locator("#choices li", has_text="critical").wait_for()
    assert tab_.page.locator("#q").get_attribute("aria-expanded") == "true"
    tab_.page.keyboard.press("Escape")
    assert not tab_.page.locator("#choices").is_visible()


@pytest.mark.long
def test_completion_of_what_was_typed_before_its_script_came(tab: Open, plain: Console) -> None:
    """On a slow line the choices come with the script, without another key."""
    tab_, requests = tab(plain), list[Any]()
    tab_.page.route("**/complete.js", lambda route: requests.append(route))
    with tab_.page.expect_request("**/complete.js"):
        tab_.go("/alerts")
    tab_.page.locator("#q").press_sequentially("leve")
    requests[0].continue_()
    tab_.page.locator("#choices li").first.wait_for()


def test_news_do_not_touch_what_one_types(tab: Open, plain: Console) -> None:
    """Upon news the list is asked for again, the chosen row stays chosen, the search box stays as it is."""
    tab_ = tab(plain)
    page = tab_.page
    tab_.go("/alerts")
    page.locator(".live[data-state=live]").wait_for()
    page.keyboard.press("j")
    row = page.locator("tr.on").get_attribute("data-row")
    page.locator("#q").press_sequentially("site:vi")
    with renewed(page, "results"):
        plain.publish("alerts", {})
    assert page.locator("#q").input_value() == "site:vi"
    assert page.evaluate("document.activeElement.id") == "q"
    assert page.locator("tr.on").get_attribute("data-row") == row


def test_a_part_that_settles_late_chooses_no_second_row(tab: Open, plain: Console) -> None:
    """Who goes on to the next row between the swap of another part and its end has one row chosen, the next."""
    tab_ = tab(plain)
    page = tab_.page
    tab_.go("/alerts?q=level:critical")
    page.keyboard.press("j")
    first = page.locator("tr.on").get_attribute("data-row")
    detail = "{xhr: {status: 200}, elt: document.body}"
    say = f"name => document.body.dispatchEvent(new CustomEvent(name, {{detail: {detail}}}))"
    page.evaluate(say, "htmx:beforeSwap")
    page.keyboard.press("j")
    page.evaluate(say, "htmx:afterSettle")
    chosen = page.locator("tr.on")
    assert chosen.count() == 1
    assert chosen.get_attribute("data-row") != first


def test_each_live_part_is_asked_for_again(tab: Open, plain: Console) -> None:
    """Of three that one event is about, none is left out."""
    tab_ = tab(plain)
    tab_.go(PAGES["roll-out"])
    tab_.page.locator(".live[data-state=live]").wait_for()
    with ExitStack() as asked:
        for part in ("head", "change", "steer"):
            asked.enter_context(tab_.page.expect_response(lambda answer, part=part: of_part(answer.request, part)))
        plain.publish("rollouts", {})


@pytest.mark.long
def test_now_follows_two_decisions_in_a_row(tab: Open, tmp_path: Path) -> None:
    """Both campaigns leave an open page, though *Now* is made again only now and then."""
    # Over 3 s: tables and a console of its own, whose *Now* is made again only now and then.
    region.write(tmp_path / "tables", region.now(), hostile=False)
    with kit.console(tmp_path) as own:
        tab_ = tab(own)
        client = own.session("root")
        tab_.go("/")
        tab_.page.locator(".live[data-state=live]").wait_for()
        shown = tab_.page.locator("#now ol.first a[href^='/campaigns/']")
        assert shown.count() > 1
        decided = [shown.nth(number).get_attribute("href") for number in range(2)]
        for link in decided:
            finding = link.rpartition("/")[2]
            answer = client.post(
                f"/api/v1/findings/{finding}/triage", json={"state": "true-positive", "reason": "case 41"}
            )
            assert answer.status_code == 200
        for link in decided:
            tab_.page.locator(f"#now a[href='{link}']").wait_for(state="detached")


@pytest.mark.long
def test_a_field_that_was_resized_is_asked_for_again(tab: Open, plain: Console) -> None:
    """A style that the browser gave a field is not written into the new one, which the policy forbids."""
    tab_ = tab(plain)
    page = tab_.page
    tab_.go(places(plain)["alert"])
    page.locator(".live[data-state=live]").wait_for()
    page.evaluate("document.querySelector('#e-reason').style.height = '9rem'")
    with renewed(page, "evidence"):
        plain.publish("jobs", {})
    page.locator("#e-reason:not([style])").wait_for()
    tab_.settled()
    assert tab_.heard == []


@pytest.mark.long
def test_an_act_that_is_refused_says_why_beside_the_field(tab: Open, plain: Console) -> None:
    """And one that is done shows."""
    tab_ = tab(plain)
    page = tab_.page
    tab_.go(places(plain)["alert"])
    form = page.locator("form[data-key=t]")
    form.locator("select").select_option("assigned")
    assert page.locator("#t-assignee").input_value() == "root"
    form.locator("select").select_option("false-positive")
    assert not page.locator("#t-assignee").is_visible()
    form.locator("button").click()
    form.locator(".problem").wait_for()
    assert "reason" in form.locator(".problem").inner_text()
    page.locator("#t-reason").fill("our own scanner")
    with page.expect_navigation():
        form.locator("button").click()
    assert "false-positive" in page.locator("aside").first.inner_text()
    assert "our own scanner" in page.locator("aside").first.inner_text()


@pytest.mark.long
def test_choices_are_kept(tab: Open, plain: Console) -> None:
    """Theme at once, time zone upon a reload; both on the next page, too."""
    tab_ = tab(plain)
    page = tab_.page
    tab_.go("/settings")
    page.locator("#p-theme").select_option("dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"
    with page.expect_navigation():
        page.locator("#p-tz").fill("Asia/Kolkata")
        page.locator("#p-tz").press("Enter")
    tab_.go("/alerts")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert "UTC+05:30" in page.locator(".who").inner_text()
    assert tab_.heard == []


def test_the_editor_keeps_its_draft(tab: Open, plain: Console) -> None:
    """Also of what was written before its script had come; and shows what lint says, with the line."""
    from playwright.sync_api import expect

    tab_ = tab(plain)
    page = tab_.page
    waiting = list[Any]()
    page.route("**/editor.js*", lambda route: waiting.append(route))
    page.route(
        "**/api/v1/rules/lint",
        lambda route: route.fulfill(
            json={
                "runs": False,
                "summary": "",
                "stopped": "",
                "rules": [],
                "problems": [
                    {
                        "severity": "error",
                        "check": "x",
                        "path": "console_rule.yml",
                        "line": 2,
                        "column": 1,
                        "title": "",
                        "message": "<b>no</b> detection",
                        "hint": "write one",
                    }
                ],
            }
        ),
    )
    with page.expect_request("**/editor.js*"):
        tab_.go("/rules/new")
    page.locator("#text").fill("title: mine\nid: 1\n")
    page.unroute("**/editor.js*")
    waiting.pop().continue_()
    page.locator("#lint li").first.wait_for()
    assert "line 2, column 1: <b>no</b> detection" in page.locator("#lint").inner_text()
    page.get_by_role("button", name="Go there").click()
    assert page.evaluate("document.activeElement.selectionStart") == len("title: mine\n")
    tab_.go("/rules/new")
    expect(page.locator("#text")).to_have_value("title: mine\nid: 1\n", timeout=WAIT)
    page.locator("#text").fill("title: mine\nid: 2\n")
    tab_.go("/rules/new")
    expect(page.locator("#text")).to_have_value("title: mine\nid: 2\n", timeout=WAIT)
    assert tab_.heard == []


def test_what_one_types_stays(tab: Open, plain: Console) -> None:
    """News come while a reason is half written and the cursor is elsewhere: it is there until it is sent, however often
    the page looks again; then the part is asked for."""
    tab_, asked = tab(plain), list[Any]()
    page = tab_.page
    page.clock.install()
    page.add_init_script(HEARD)
    tab_.go(places(plain)["alert"])
    page.locator(".live[data-state=live]").wait_for()
    page.locator("#e-reason").fill("case 41")
    page.locator("h1").click()
    page.on("request", lambda request: asked.append(request) if of_part(request, "evidence") else None)
    plain.publish("jobs", {})
    page.locator("body[data-heard]").wait_for()
    for _ in range(3):
        page.clock.fast_forward(LOOK)
    tab_.settled()
    assert asked == []
    assert page.locator("#e-reason").input_value() == "case 41"
    page.locator("form:has(#e-reason)").evaluate("(form) => delete form.dataset.dirty")
    with page.expect_request(lambda request: of_part(request, "evidence")):
        page.clock.fast_forward(LOOK)


@pytest.mark.long
def test_pictures_of_few_colours(browser: Any) -> None:
    """A picture with a palette has the same pixels; where there are more colours, none is far off."""
    page = browser.new_page()
    page.set_content("<body style='background:#f4f5f7'><h1 style='color:#2459a8'>Vedette</h1>")
    shot = page.screenshot()
    assert pixels(page, palette(page, shot)) == pixels(page, shot)
    page.set_content("<body style='background:linear-gradient(90deg, #000, #fff, #f00, #0f0)'>")
    shot = page.screenshot()
    (width, height, first), (*size, second) = pixels(page, shot), pixels(page, palette(page, shot))
    assert [width, height] == size
    assert len(set(zip(*[iter(first)] * 4, strict=True))) > COLOURS
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) < 40
    page.close()
