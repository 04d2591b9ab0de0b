"""GET over TLS for one feed or table, bounded by its ``timeout`` and ``max_bytes`` over all requests together.

* A redirect is followed ``MAX_REDIRECTS`` times, never away from TLS, and to another origin without credentials, where
  at all (``Remote.elsewhere``).
* 429, 502, 503 and 504 are asked again, after ``Retry-After`` where the server says it, while the time lasts.
* A body goes to a temporary file; bytes count after decompression. When the time is over the connection is shut down.

Raises OSError: ``Failed`` with the reason, without the query of a URL, which may hold a key.
"""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Mapping
from threading import Timer
from typing import IO, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import urllib3

from vedette.region.feeds.settings import Remote, web_mistakes
from vedette.sinks.base import secret
from vedette.system.https import Connections, reason, retry_after
from vedette.system.trouble import Backoff

MAX_REDIRECTS = 5
MAX_TRIES = 5
STALL = 60.0
"""Seconds in which a server has to send something."""
_IN_MEMORY = 1 << 20
_CHUNK = 1 << 16


class Failed(OSError):
    """It cannot be read now; ``status`` is that of the server's answer, where that is why."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Answer(NamedTuple):
    """``body`` is None when nothing has changed (304)."""

    body: IO[bytes] | None
    headers: Mapping[str, str]


class Web:
    """A context manager: closes connections at its end."""

    def __init__(self, feed: Remote) -> None:
        self._feed = feed
        self._until = time.monotonic() + feed.timeout
        self._bytes = feed.max_bytes
        self._connections = Connections()
        self._manager: urllib3.PoolManager | None = None
        self._alarm = Timer(feed.timeout, self._connections.shut_down)
        self._alarm.daemon = True

    def __enter__(self) -> Web:
        feed = self._feed
        self._authorization = authorization(feed)
        self._manager = self._connections.manager(feed.proxy, feed.ca_file, feed.cert_file, feed.key_file, num_pools=4)
        self._alarm.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._alarm.cancel()
        if self._manager is not None:
            self._manager.clear()

    def get(self, url: str, accept: str, validators: Mapping[str, str] | None = None) -> Answer:
        """``validators``: ``ETag`` and ``Last-Modified`` of what is there."""
        headers = {"Accept": accept, "Accept-Encoding": "gzip", "User-Agent": "vedette"}
        if validators and validators.get("etag"):
            headers["If-None-Match"] = validators["etag"]
        if validators and validators.get("last-modified"):
            headers["If-Modified-Since"] = validators["last-modified"]
        if self._authorization:
            headers["Authorization"] = self._authorization
        asked, redirects, tries, backoff = url, 0, 0, Backoff()
        while True:
            reply = self._ask(asked, headers)
            if reply.status in (301, 302, 303, 307, 308):
                redirects += 1
                asked = self._followed(asked, reply.headers.get("Location"), redirects, headers)
                continue
            if reply.status in (429, 502, 503, 504):
                tries += 1
                self._wait(asked, reply, tries, backoff)
                continue
            if reply.status == 304 and validators:
                return Answer(None, lower(reply.headers))
            if reply.status != 200:
                more = {401: ": wrong or missing credentials", 403: ": these credentials may not read it"}
                raise Failed(f"{shown(asked)}: HTTP {reply.status}{more.get(reply.status, '')}", reply.status)
            return Answer(self._spooled(asked, reply), lower(reply.headers))

    def _ask(self, url: str, headers: Mapping[str, str]) -> Any:
        left = self._left(url)
        assert self._manager is not None
        try:
            return self._manager.request(
                "GET", url, headers=headers, redirect=False, retries=False, preload_content=False,
                timeout=urllib3.Timeout(connect=min(left, 20.0), read=min(left, STALL)),
            )  # fmt: skip
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._left(url)
            raise Failed(f"{shown(url)}: {reason(error)}") from None

    def _left(self, url: str) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise Failed(f"{shown(url)}: not read within {self._feed.timeout:g} s (timeout)")
        return left

    def _followed(self, url: str, location: str | None, redirects: int, headers: dict[str, str]) -> str:
        target = urljoin(url, location or "")
        if not location or redirects > MAX_REDIRECTS:
            raise Failed(f"{shown(url)}: a redirect to nowhere, or more than {MAX_REDIRECTS}")
        mistakes = list(web_mistakes(target))
        if urlsplit(target)[:2] != urlsplit(url)[:2]:
            if not target.startswith("https:"):
                mistakes = mistakes or ["expects https://"]
            elif not self._feed.elsewhere:
                mistakes = mistakes or ["expects the same host"]
            headers.pop("Authorization", None)
        if mistakes:
            raise Failed(f"{shown(url)}: redirects to {shown(target)}: {mistakes[0]}")
        return target

    def _wait(self, url: str, reply: Any, tries: int, backoff: Backoff) -> None:
        reply.close()
        wait = retry_after(reply.headers.get("Retry-After"))
        wait = backoff.failed() if wait is None else wait
        if tries == MAX_TRIES or wait >= self._left(url):
            asked = f", and asks to wait {wait:.0f} s" if reply.headers.get("Retry-After") else ""
            raise Failed(f"{shown(url)}: HTTP {reply.status}{asked}")
        time.sleep(wait)

    def _spooled(self, url: str, reply: Any) -> IO[bytes]:
        body: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # the caller closes it
        try:
            while data := reply.read1(_CHUNK, decode_content=True):
                self._left(url)
                self._bytes -= len(data)
                if self._bytes < 0:
                    raise Failed(f"{shown(url)}: more than {self._feed.max_bytes:,} bytes (max_bytes)")
                body.write(data)
            reply.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            body.close()
            reply.close()
            if isinstance(error, Failed):
                raise
            self._left(url)
            raise Failed(f"{shown(url)}: {reason(error)}") from None
        body.seek(0)
        return body


def authorization(feed: Remote) -> str:
    """The header: a password's, or the token's; MISP takes its key as it is, others ``Bearer``."""
    if feed.password_file is not None:
        pair = f"{feed.username}:{secret(feed.password_file)}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    if feed.token_file is None:
        return ""
    token = secret(feed.token_file)
    return token if feed.bare_token or " " in token else f"Bearer {token}"


def lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
