"""Debian's Chromium, and axe-core. Where one is missing the test is skipped, with the reason."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.console.kit import Console
from tests.waits import until
from vedette_console.security.identity import cookie_name

CHROMIUM = "/usr/bin/chromium"
AXE = "axe-core@4.14.1"
BAD = ("serious", "critical")
WAIT = 30_000
"""Milliseconds that a page has for something to happen: the machine may be busy."""
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
"""Until two frames have been drawn."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's synchronous API."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def axe(folder: Path) -> str:
    """The script of axe-core, fetched from npm once and kept in ``folder``."""
    script = folder / AXE / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is missing, by which axe-core is fetched: apt-get install npm")
        script.parent.mkdir(parents=True, exist_ok=True)
        got = subprocess.run([npm, "pack", AXE], cwd=script.parent, capture_output=True, text=True, check=False)
        if got.returncode:
            pytest.skip(f"npm cannot fetch {AXE}: {got.stderr[-300:]}")
        with tarfile.open(next(script.parent.glob("*.tgz"))) as packed:
            file = packed.extractfile("package/axe.min.js")
            assert file is not None
            script.write_bytes(file.read())
    return script.read_text("utf-8")


class Visitor:
    """A page of a browser at a console's address, and ``heard``: whatever a page must not do."""

    def __init__(
        self, browser: Any, url: str, *, width: int = 1400, height: int = 900, dark: bool = False, state: Any = None
    ) -> None:
        """``state``: of another one's context, whose session goes on."""
        self.url, self.heard = url, list[str]()
        self._context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            timezone_id="Europe/Vienna",
            storage_state=state,
        )
        self._context.add_init_script(
            "addEventListener('securitypolicyviolation',"
            "(e) => console.error('CSP ' + e.violatedDirective + ' ' + e.blockedURI));"
        )
        self.page = self._context.new_page()
        self.page.set_default_timeout(WAIT)
        self.page.on("dialog", self._dialog)
        self.page.on("pageerror", lambda error: self.heard.append(f"error: {error}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.awaited = set[Any]()
        """Requests that are under way, but for the stream of events."""
        self.page.on("requestfinished", self._over)
        self.page.on("requestfailed", self._over)

    def close(self) -> None:
        self._context.close()

    def go(self, path: str) -> Any:
        """Open a page of the console."""
        self.heard.clear()
        return self.page.goto(self.url + path, wait_until="load")

    def settled(self) -> None:
        """Wait until all that the page asks for has come and is drawn, and its scripts have said what they say."""

        def still() -> bool:
            before = not self.awaited
            self.page.evaluate(DRAWN)
            return before and not self.awaited

        until("what the page asks for", still)

    def wide(self) -> int:
        """Pixels that the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def findings(self, script: str) -> list[str]:
        """What axe-core holds to be serious."""
        session = self._context.new_cdp_session(self.page)
        answer = session.send(
            "Runtime.evaluate",
            {
                "expression": f"{script};axe.run(document,{{resultTypes:['violations']}}).then((found)=>JSON.stringify("
                "found.violations.map((v)=>[v.impact,v.id,v.nodes.length,v.nodes[0].html.slice(0,200)])))",
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        return [str(message) for message in json.loads(answer["result"]["value"]) if message[0] in BAD]

    def _dialog(self, dialog: Any) -> None:
        self.heard.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.heard.append(f"console: {message.text[:300]}")

    def _request(self, request: Any) -> None:
        if request.resource_type != "eventsource":
            self.awaited.add(request)
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.heard.append(f"request: {request.url[:200]}")

    def _over(self, request: Any) -> None:
        self.awaited.discard(request)


class Tab(Visitor):
    """A visitor who is logged in at a console of this process, in Vienna's time."""

    def __init__(self, browser: Any, console: Console, *, name: str = "root", **how: Any) -> None:
        super().__init__(browser, console.url, **how)
        cookie = console.store.sessions.start(name)
        self._context.add_cookies(
            [
                {"name": key, "value": value, "url": console.url}
                for key, value in ((cookie_name(console.settings), cookie), ("tz", "Europe/Vienna"))
            ]
        )
