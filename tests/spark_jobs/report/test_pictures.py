"""The report as docs/analyst.md and docs/analytics.md show it: a made-up week of 60 sites, in real Chromium.

``make pictures`` keeps the pictures in docs; else they go to the test's folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.simulate import Plan, simulate
from tests.console.pages.browser import chromium
from tests.console.pages.pictures import palette
from tests.spark_jobs.conftest import run

pytestmark = [pytest.mark.spark, pytest.mark.long]
FLEET = Plan(alerts=60_000, days=14, start=date(2026, 11, 9), seed=7, sites=60)
"""The second week is shown; the first says what is usual."""
LAST = "2026-11-22"
SHOWN: dict[str, dict[str, Any]] = {
    "report": {"viewport": {"width": 1400, "height": 950}, "color_scheme": "light"},
    "report-dark": {"viewport": {"width": 1400, "height": 950}, "color_scheme": "dark"},
    "report-phone": {"viewport": {"width": 400, "height": 850}, "color_scheme": "light"},
    "report-campaign": {"viewport": {"width": 1400, "height": 950}, "color_scheme": "light"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """There before Spark has worked for minutes."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(browser: Any, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the jobs made of the week."""
    folder = tmp_path_factory.mktemp("week")
    simulate(FLEET, folder)
    lookups, rules = f"--lookups={folder}/lookups", f"--rules={folder}/landing/rules"
    for job in (
        ["ingest", f"--landing={folder}/landing", lookups],
        ["campaigns", "--days=14", f"--date={LAST}", lookups],
        ["baselines", "--days=7", "--weeks=1", f"--date={LAST}", lookups],
        ["risk", f"--date={LAST}", lookups],
        ["noise", "--days=7", f"--date={LAST}"],
        ["coverage", rules, "--days=7", f"--date={LAST}"],
        ["report", "--days=7", f"--date={LAST}", f"--html={folder}/report.html"],
    ):
        run(spark, *job, f"--tables={folder}/tables")
    return folder / "report.html"


def test_by_day_by_night_on_a_phone_and_a_campaign_opened(browser: Any, page: Path, tmp_path: Path) -> None:
    """Nothing is wider than the window, and the browser's console says nothing."""
    plain, taken = browser.new_page(), dict[str, bytes]()
    for name, window in SHOWN.items():
        shown, heard = browser.new_page(**window), list[str]()
        shown.on("console", lambda said, heard=heard: heard.append(said.text))
        shown.on("pageerror", lambda error, heard=heard: heard.append(str(error)))
        shown.goto(page.as_uri())
        if name == "report-campaign":
            shown.locator(".first a[href^='#campaign-']").first.click()
            shown.locator("details.item[open]").first.wait_for()
        assert shown.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        taken[name] = palette(plain, shown.screenshot())
        assert heard == []
    for name, picture in taken.items():
        (Path(os.environ.get("VEDETTE_PICTURES") or tmp_path) / f"{name}.png").write_bytes(picture)
