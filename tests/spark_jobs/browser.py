"""A real headless Chromium, driven over the pipe of its DevTools protocol: what a page says, shows and asks for.

Needs no library: a message is a line of JSON that ends in a zero byte, on file descriptors 3 and 4 of the browser.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

SECONDS = 120.0
"""Any answer is there by then, on a busy machine too."""


class Browser:
    """One browser with one tab; a context manager."""

    def __init__(self) -> None:
        assert CHROMIUM, "no Chromium: tools/packages.sh installs it"
        self._folder = tempfile.TemporaryDirectory(prefix="vedette-browser-")
        reads, self._out = os.pipe()
        self._in, writes = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (reads, writes)]
        arguments = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
        self._pid = os.posix_spawn(CHROMIUM, arguments, os.environ, file_actions=actions, setsid=True)
        for fd in (reads, writes, null, *high):
            os.close(fd)
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        """What the tab reported since ``open``."""
        targets = self._call("Target.getTargets", session=None)["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self._call("Target.attachToTarget", {"targetId": page, "flatten": True}, None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, AssertionError):
            self._call("Browser.close", session=None)
        with suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in)
        os.close(self._out)
        with suppress(OSError):
            self._folder.cleanup()

    def open(self, file: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show ``file`` in a window of this size; what it reports is in ``events``."""
        phone = width < 600
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self._call("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", {"features": scheme})
        self.events.clear()
        self._call("Page.navigate", {"url": file.resolve().as_uri()})
        self._until("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release ``key`` (its name, as in ``KeyboardEvent.key``)."""
        codes = {"Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        one = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "text": "\r" if key == "Enter" else ""}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", {"type": kind, **one})

    def errors(self) -> list[str]:
        """What a person would see red in the console, and exceptions that nobody caught."""
        lines = []
        for event in self.events:
            of = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                lines.append(
                    of["exceptionDetails"].get("exception", {}).get("description", of["exceptionDetails"]["text"])
                )
            elif event["method"] == "Log.entryAdded" and of["entry"]["level"] in ("error", "warning"):
                lines.append(of["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning", "assert"):
                lines.append(" ".join(str(one.get("value", one.get("description"))) for one in of["args"]))
        return lines

    def asked(self) -> list[str]:
        """The addresses that the page asked for, itself left out."""
        urls = [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]
        return urls[1:]

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of the window, or of the ``whole`` page."""
        answer = self._call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        return base64.b64decode(answer["data"])

    def _call(self, method: str, params: dict[str, Any] | None = None, session: str | None = "") -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session or self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        limit = time.monotonic() + SECONDS
        while True:
            answer = self._next(limit, method)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _until(self, event: str) -> None:
        limit = time.monotonic() + SECONDS
        while not any(one["method"] == event for one in self.events):
            self._next(limit, event)

    def _next(self, limit: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, limit - time.monotonic()))
            assert ready, f"no answer to {what} in {SECONDS:.0f} s"
            data = os.read(self._in, 1 << 20)
            assert data, f"the browser ended during {what}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message
