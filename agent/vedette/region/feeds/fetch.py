"""All feeds of a file into the store, then one lookup for each kind of indicator from what holds now, and all of them
as one Parquet file for the region's ingest.

A feed that cannot be read leaves what was read of it before, and is named. A lookup has one row for a value: the newest
version among those that are left once what has expired, is not yet valid, of a kind or confidence that its feed's
settings do not ask for is dropped. One whose rows did not change is not written again: no need to publish it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from vedette.lookup.batch import Batch, Key
from vedette.lookup.build import Built, build
from vedette.lookup.layout import Column
from vedette.lookup.table import Lookup
from vedette.region.feeds import misp, parquet, stix
from vedette.region.feeds.entry import MAX_TEXT, Found, LeftOut
from vedette.region.feeds.settings import Feed
from vedette.region.feeds.store import Row, State, Store
from vedette.region.feeds.taxii import Collection
from vedette.region.feeds.values import KINDS
from vedette.region.feeds.web import Failed, Web

COLUMNS = (
    Column("indicator", "text"), Column("feed", "text"), Column("confidence", "int"), Column("valid_from", "time"),
    Column("valid_until", "time"), Column("threat", "text"), Column("labels", "text"), Column("reference", "text"),
)  # fmt: skip
VALID = ("valid_from", "valid_until")
_BATCH = 8192
_JSON = "application/json, */*;q=0.5"


class Read(NamedTuple):
    """Of one feed. ``error``: why it could not be read now; what is kept then is of ``read`` (0: nothing)."""

    name: str
    indicators: int
    read: int
    changed: bool
    left: LeftOut
    error: str = ""


class Made(NamedTuple):
    """Of one lookup; ``built`` is None where it is as it was. ``dropped``: by reason."""

    path: Path
    kind: str
    rows: int
    dropped: Counter[str]
    built: Built | None


def fetch(feed: Feed, store: Store, now: int, *, full: bool = False) -> Read:
    """Read one feed; ``full``: anew, whatever is known of it."""
    left = LeftOut()
    before = read_at = 0
    try:
        with store.transaction():
            before = store.count(feed.name)
            read_at = store.read_at(feed.name)
            state = State() if full else store.state(feed.name, feed.source)
            if not state.read:
                store.forget(feed.name)
            after = _Reading(feed, store, left, now).read(state)
            if (count := store.count(feed.name)) > feed.max_indicators:
                raise Failed(f"{count:,} indicators, more than {feed.max_indicators:,} (max_indicators)")
            store.note(feed.name, feed.source, after._replace(read=now))
    except Exception as error:  # whatever a feed says, and where the store has lost what it said, the next one is read
        why = str(error) if isinstance(error, OSError | ValueError) else repr(error)
        return Read(feed.name, before, read_at, False, left, " ".join(why.split()))
    return Read(feed.name, count, now, after is not state, left)


class _Reading:
    """One reading of one feed, inside of a transaction."""

    def __init__(self, feed: Feed, store: Store, left: LeftOut, now: int) -> None:
        self._feed, self._store, self._left, self._now = feed, store, left, now
        self._oldest = 0 if feed.max_age is None else now - round(feed.max_age * 1_000_000)
        self._taken = 0
        self._lacking = False  # whether an event of a manifest could not be read, so that it is to be asked for again

    def read(self, state: State) -> State:
        """Raises OSError and ValueError."""
        if self._feed.path is not None:
            self._of_path(self._feed.path)
            return State()
        with Web(self._feed) as web:
            if self._feed.type == "taxii":
                collection = Collection(self._feed, web, state.cursor, self._now)
                self._put(collection.read(self._left))
                same = collection.cursor == state.cursor and state.read
                return state if same else State(cursor=collection.cursor)
            return self._of_url(web, state)

    def _of_url(self, web: Web, state: State) -> State:
        url = self._feed.url
        folder = self._feed.type == "misp" and url.endswith(("/", f"/{misp.MANIFEST}"))
        first = url + misp.MANIFEST if url.endswith("/") and folder else url
        answer = web.get(first, _JSON, {"etag": state.etag, "last-modified": state.changed} if state.read else None)
        if answer.body is None:
            return state
        with answer.body as body:
            if folder:
                base = first.removesuffix(misp.MANIFEST)
                self._folder(misp.manifest(body, self._left), lambda uuid: self._event(web, f"{base}{uuid}.json"))
            else:
                self._whole([body])
        if self._lacking:
            return State()
        return State(etag=answer.headers.get("etag", ""), changed=answer.headers.get("last-modified", ""))

    def _event(self, web: Web, url: str) -> IO[bytes]:
        body = web.get(url, _JSON).body
        assert body is not None  # nothing was said to be known
        return body

    def _of_path(self, path: Path) -> None:
        if path.is_dir() and self._feed.type == "misp" and (path / misp.MANIFEST).is_file():
            with self._opened(path / misp.MANIFEST) as file:
                listed = misp.manifest(file, self._left)
            self._folder(listed, lambda uuid: self._opened(path / f"{uuid}.json"))
            return
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise Failed(f"{path}: no file that ends in .json")
        self._whole(map(self._opened, files))

    def _opened(self, path: Path) -> IO[bytes]:
        if not path.is_file():
            raise FileNotFoundError(2, "no such file", str(path))
        self._taken += path.stat().st_size
        if self._taken > self._feed.max_bytes:
            raise Failed(f"{path}: more than {self._feed.max_bytes:,} bytes (max_bytes)")
        return path.open("rb")

    def _whole(self, files: Iterable[IO[bytes]]) -> None:
        """All that the feed has: what was there before goes."""
        self._store.forget(self._feed.name)
        for file in files:
            with file:
                reader = misp.export if self._feed.type == "misp" else stix.bundle
                self._put(reader(file, self._left))

    def _folder(self, listed: list[misp.Listed], opened: Callable[[str], IO[bytes]]) -> None:
        """A MISP feed folder: events that changed are read, those that are no longer listed go."""
        name = self._feed.name
        stored = self._store.parts(name)
        wanted = {event.uuid: event.changed for event in listed if event.changed >= self._oldest}
        for uuid in stored.keys() - wanted.keys():
            self._store.drop_part(name, uuid)
        for uuid, changed in wanted.items():
            if stored.get(uuid) == changed:
                continue
            try:
                file = opened(uuid)
            except OSError as error:
                if isinstance(error, FileNotFoundError) or (isinstance(error, Failed) and error.status in (404, 410)):
                    self._left.add("an event of the manifest that is not there", uuid)
                    self._lacking = True
                    continue
                raise
            with file:
                try:
                    entries = list(misp.export(file, self._left))
                except ValueError as error:
                    self._left.add(f"an event that cannot be read ({error})"[:120], uuid)
                    self._lacking = True
                    continue
            self._store.drop_part(name, uuid)
            self._put(entries, uuid)
            self._store.add_part(name, uuid, changed)

    def _put(self, objects: Iterable[Found], part: str = "") -> None:
        most = self._feed.max_indicators * 2
        for number, entry in enumerate(objects):
            if number > most:
                raise Failed(f"more than {most:,} objects: twice max_indicators")
            self._store.put(self._feed.name, entry, part)


def lookups(feeds: list[Feed], store: Store, folder: Path, prefix: str, now: int) -> Iterator[Made]:
    """Build what changed, and ``PREFIXfeeds.parquet`` of all; a kind for which no feed asks gives none. Raises OSError
    and ValueError."""
    folder.mkdir(parents=True, exist_ok=True)
    every = folder / f"{prefix}feeds.parquet"
    asked, same = list[str](), True
    by_name = {feed.name: feed for feed in feeds}
    with store.transaction():
        store.keep_only(by_name)
    for kind, key in KINDS.items():
        if not any(kind in feed.kinds or not feed.kinds for feed in feeds):
            continue
        asked.append(kind)
        path = folder / f"{prefix}{kind}.vlookup"
        dropped: Counter[str] = Counter()
        digest, rows = hashlib.sha256(repr((COLUMNS, key)).encode()), 0
        for row in _held(store.rows(kind), by_name, kind, now, dropped):
            digest.update(repr(row).encode())
            rows += 1
        if store.built(path.name) == digest.hexdigest() and _whole(path, rows):
            yield Made(path, kind, rows, dropped, None)
            continue
        same = False
        held = _held(store.rows(kind), by_name, kind, now, Counter())
        built = build(
            path, COLUMNS, [Key(("indicator",), key)], _batches(held), created=now, source=f"feeds: {kind}",
            valid=VALID,
        )  # fmt: skip
        with store.transaction():
            store.note_built(path.name, digest.hexdigest(), built.version)
        yield Made(path, kind, rows, dropped, built)
    if not same or parquet.kinds_in(every) != asked:
        parquet.write(every, {kind: _held(store.rows(kind), by_name, kind, now, Counter()) for kind in asked})


def _whole(path: Path, rows: int) -> bool:
    try:
        with Lookup.open(path, native=False) as lookup:
            return len(lookup) == rows
    except (OSError, ValueError):
        return False


def _held(
    rows: Iterable[Row], feeds: dict[str, Feed], kind: str, now: int, dropped: Counter[str]
) -> Iterator[tuple[Any, ...]]:
    """One row a value, as COLUMNS have it."""
    last = None
    for row in rows:
        feed = feeds[row.feed]
        confidence = feed.confidence if row.confidence is None else row.confidence
        until = row.until
        if feed.max_age is not None:
            ends = min(row.modified, now) + round(feed.max_age * 1_000_000)
            until = ends if until is None else min(until, ends)
        reason = ""
        if feed.kinds and kind not in feed.kinds:
            continue
        if until is not None and until <= now:
            reason = "expired"
        elif row.since is not None and row.since > now:
            reason = "not yet valid"
        elif feed.min_confidence and confidence is None:
            reason = "without confidence"
        elif confidence is not None and confidence < feed.min_confidence:
            reason = "below min_confidence"
        elif row.value == last:
            reason = "known from a newer entry"
        if reason:
            dropped[reason] += 1
            continue
        last = row.value
        yield row.value, row.feed, confidence, row.since, until, row.threat[:MAX_TEXT], row.labels, row.reference


def _batches(rows: Iterator[tuple[Any, ...]]) -> Iterator[Batch]:
    at = 1
    while some := list(islice(rows, _BATCH)):
        yield Batch(list(zip(*some, strict=True)), range(at, at + len(some)))
        at += len(some)
