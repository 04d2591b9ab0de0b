"""A collection of a TAXII 2.1 server, read on from where the last complete reading ended.

``url`` is the discovery document, an API root, or the collection itself (``…/collections/ID/``). Objects come in pages,
ordered by the date on which the server added them (section 3.4): the next page by ``next``, or, where a server gives
none, by ``added_after`` with the last date of the page. The date of the last page (``X-TAXII-Date-Added-Last``) is the
cursor for the next reading. A page that does not lead on ends the reading with an error, and the cursor stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode, urljoin

from vedette.lookup.gather import is_open
from vedette.model.times import iso_time
from vedette.region.feeds.entry import Found, LeftOut, plain
from vedette.region.feeds.settings import Feed
from vedette.region.feeds.stix import MAX_OBJECT, TYPES, objects
from vedette.region.feeds.web import Answer, Failed, Web, shown
from vedette.system import foreign

ACCEPT = "application/taxii+json;version=2.1"
MAX_PAGES = 100_000
LIMIT = 1000
"""Objects that a page is asked to have; servers may give fewer."""


class Collection:
    """``cursor``: where this reading begins, and then the next; ``now``: UTC microseconds."""

    def __init__(self, feed: Feed, web: Web, cursor: str, now: int) -> None:
        self._feed, self._web = feed, web
        self._now = now
        self._last = cursor
        self.pages = 0

    @property
    def cursor(self) -> str:
        """Of the time of this reading at most: what a server dates later would hide all that it adds until then."""
        time = iso_time(self._last)
        later = is_open(self._last) if time is None else time > self._now
        return f"{datetime.fromtimestamp(self._now / 1_000_000, UTC):%Y-%m-%dT%H:%M:%S.%fZ}" if later else self._last

    def read(self, left: LeftOut) -> Iterator[Found]:
        """Raises OSError and ValueError."""
        url = self._objects()
        after, following, asked = self.cursor, "", set[tuple[str, str]]()
        while True:
            if (after, following) in asked or self.pages == MAX_PAGES:
                raise ValueError(f"{shown(url)}: page {self.pages} leads to a page that was read already")
            asked.add((after, following))
            query = {"limit": str(LIMIT), "match[type]": ",".join(TYPES)}
            query |= {"added_after": after} if after else {}
            query |= {"next": following} if following else {}
            answer = self._web.get(f"{url}?{urlencode(query)}", ACCEPT)
            page = envelope(answer, url)
            self.pages += 1
            rows = page.get("objects", [])
            if not isinstance(rows, list):
                raise ValueError(f"{shown(url)}: page {self.pages}: objects is no list")
            yield from objects(rows, left)
            last = answer.headers.get("x-taxii-date-added-last", "")
            if rows and not last:
                raise ValueError(f"{shown(url)}: page {self.pages} lacks X-TAXII-Date-Added-Last")
            self._last = last or self._last
            if page.get("more") is not True:
                return
            stated = page.get("next")
            following = stated if isinstance(stated, str) else ""
            if not following:
                after = self._last

    def _objects(self) -> str:
        """The URL of the collection's objects."""
        url = self._feed.url if self._feed.url.endswith("/") else self._feed.url + "/"
        if url.endswith("/objects/"):
            return url
        if "/collections/" in url:
            return urljoin(url, "objects/")
        document = envelope(self._web.get(url, ACCEPT), url)
        roots = document.get("api_roots")
        if isinstance(document.get("versions"), list):
            roots = [url]
        if not isinstance(roots, list) or not all(isinstance(root, str) for root in roots):
            raise ValueError(f"{shown(url)}: neither a discovery document nor an API root of TAXII 2.1")
        collections: list[dict[str, Any]] = []
        for root in roots[:100]:
            root = str(urljoin(url, root if root.endswith("/") else root + "/"))
            if root.partition("/")[0] != url.partition("/")[0] or root.split("/")[2] != url.split("/")[2]:
                raise ValueError(f"{shown(url)}: its API root is at {shown(root)}: give that as url")
            there = envelope(self._web.get(urljoin(root, "collections/"), ACCEPT), root).get("collections", [])
            for row in there if isinstance(there, list) else []:
                if isinstance(row, dict) and row.get("can_read") is True and isinstance(row.get("id"), str):
                    collections.append(row)
                    if self._feed.collection in (row["id"], row.get("alias"), row.get("title")):
                        return str(urljoin(root, f"collections/{quote(row['id'], safe='')}/objects/"))
        names = ", ".join(plain(collection.get("title"))[:60] or collection["id"] for collection in collections[:20])
        raise ValueError(f"collection {self._feed.collection!r} is none that may be read; there are: {names or 'none'}")


def envelope(answer: Answer, url: str) -> dict[str, Any]:
    """The object of a TAXII answer. Raises OSError and ValueError."""
    if answer.body is None:
        raise Failed(f"{shown(url)}: HTTP 304 for a document that was never read")
    with answer.body as body:
        data = body.read(MAX_OBJECT + 1)
    if len(data) > MAX_OBJECT:
        raise ValueError(f"{shown(url)}: a page of more than {MAX_OBJECT >> 20} MiB")
    try:
        document: object = foreign.read(data or b"{}", cut=True)
    except ValueError as error:
        raise ValueError(f"{shown(url)}: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{shown(url)}: expects an object of JSON")
    return document
