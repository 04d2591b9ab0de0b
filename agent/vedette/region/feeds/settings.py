"""The file of feeds: ``[[feed]]`` tables, every mistake reported at once with its key (``docs/feeds.md``); and what
everything has that is read over HTTPS or from a file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypeVar
from urllib.parse import urlsplit

from vedette.config.read import ConfigError
from vedette.config.tables import tables
from vedette.model.settings import Name, Seconds, Size
from vedette.region.feeds.values import KINDS
from vedette.sinks.settings import tls_mistakes, url_mistakes

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


R = TypeVar("R", bound="Remote")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """What is read by ``url``, or from the file or folder ``path``."""

    elsewhere: ClassVar[bool] = True
    """Whether a redirect may lead to another origin."""

    url: str = ""
    path: Path | None = None
    token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    proxy: str = ""
    timeout: Seconds = 600.0
    max_bytes: Size = 1 << 30

    @property
    def bare_token(self) -> bool:
        """Whether the server takes a token without the word ``Bearer``."""
        return False

    def access_mistakes(self) -> Iterator[str]:
        """Of the keys above; each begins with ``.KEY: `` or ``: ``."""
        if self.url:
            yield from (f".url: {mistake}" for mistake in web_mistakes(self.url))
        if bool(self.username) != (self.password_file is not None):
            yield ": username and password_file go together"
        if self.username and self.token_file is not None:
            yield ": either token_file or username, not both"
        yield from tls_mistakes(self.cert_file, self.key_file, self.proxy)
        for key, most in (("timeout", self.timeout), ("max_bytes", self.max_bytes)):
            if most <= 0:
                yield f".{key}: expects more than 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed(Remote):
    """A table ``[[feed]]``."""

    name: Name
    type: Literal["stix", "taxii", "misp"]
    collection: str = ""
    kinds: tuple[str, ...] = ()
    confidence: int | None = None
    min_confidence: int = 0
    max_age: Seconds | None = None
    max_indicators: int = 1_000_000

    @property
    def bare_token(self) -> bool:
        return self.type == "misp"

    @property
    def source(self) -> str:
        """What the kept state belongs to: with another one the feed is read anew."""
        return "\n".join((self.type, self.url, str(self.path or ""), self.collection))

    def mistakes(self) -> Iterator[str]:
        """Each begins with ``.KEY: `` or ``: ``."""
        if not _NAME.fullmatch(self.name):
            yield ".name: expects 1 to 64 letters, digits, '.', '_' or '-', no dot first"
        if bool(self.url) == (self.path is not None):
            yield ": expects either url or path"
        if self.type == "taxii" and self.path is not None:
            yield ".path: a TAXII collection has a url"
        if self.type == "taxii" and self.url and not self.collection and "/collections/" not in self.url:
            yield ".collection: missing: its id, alias or title"
        if bool(self.collection) and self.type != "taxii":
            yield ".collection: is of TAXII only"
        yield from self.access_mistakes()
        for kind in self.kinds:
            if kind not in KINDS:
                yield f".kinds: {kind!r} is none; expects some of {', '.join(KINDS)}"
        for key, value in (("confidence", self.confidence), ("min_confidence", self.min_confidence)):
            if value is not None and not 0 <= value <= 100:
                yield f".{key}: expects 0 to 100, not {value}"
        for key, most in (("max_age", self.max_age), ("max_indicators", self.max_indicators)):
            if most is not None and most <= 0:
                yield f".{key}: expects more than 0"


def web_mistakes(url: str) -> Iterator[str]:
    """TLS, but for a server of this host; no credentials where logs would show them."""
    wrong = list(url_mistakes(url))
    yield from wrong
    if wrong:
        return
    parts = urlsplit(url)
    if "@" in parts.netloc:
        yield "expects no credentials in it: username and password_file, or token_file"
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        yield "expects https:// (http:// only to this host)"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read(path: Path) -> list[Feed]:
    """The feeds of the file ``path``; paths in it are relative to its folder. Raises ConfigError."""
    feeds = tables(path, "feed", Feed)
    mistakes = [f"feed[{i}]{mistake}" for i, feed in enumerate(feeds) for mistake in feed.mistakes()]
    mistakes += twice("feed", [feed.name for feed in feeds])
    if mistakes:
        raise ConfigError(path, mistakes)
    return [beside(path, feed) for feed in feeds]


def twice(table: str, names: list[str]) -> list[str]:
    """A mistake for each name that several tables have."""
    return [f"{table}: two are called {name}" for name in sorted({name for name in names if names.count(name) > 1})]


def beside(path: Path, remote: R) -> R:
    """``remote`` with its paths relative to the folder of the file ``path``."""
    files = ("path", "token_file", "password_file", "ca_file", "cert_file", "key_file")
    return replace(remote, **{key: path.parent / file for key in files if (file := getattr(remote, key)) is not None})
