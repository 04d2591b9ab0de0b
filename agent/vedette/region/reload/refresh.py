"""Lookups from their sources, when they are due: read, build, sign; then publish what the broker does not announce.

In FOLDER lie ``NAME.vlookup``, signed, which is in force; ``before/NAME.vlookup``, for deltas; and ``reload.json``: by
which marks a source is known to be the same, and how old each lookup is. What cannot be read, built or published leaves
all as it was, and the next run tries again. Killed anywhere, run it again. ``reload.json`` is a cache: without it all
is read anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from msgspec.structs import replace

from vedette.delivery.topics import lookup_topic, steer_topic
from vedette.lookup.layout import LookupRefused
from vedette.lookup.names import SUFFIX
from vedette.lookup.offer import Announcement
from vedette.lookup.sign import sign
from vedette.lookup.table import Lookup
from vedette.mqtt.settings import MqttSettings
from vedette.region.announce import retained
from vedette.region.feeds.web import Failed, shown
from vedette.region.lookups import publish_lookup
from vedette.region.publish import connected
from vedette.region.reload.health import Entry, packed
from vedette.region.reload.settings import Table
from vedette.region.reload.sources import Content, bounded, fetch
from vedette.region.sign import public_text
from vedette.system import documents, foreign
from vedette.system.durable import write_whole
from vedette.system.folders import locked

STATE = "reload.json"


class Mark(Struct, frozen=True):
    """Of one lookup. ``meaning``: what it was built by; ``digest``, ``etag``, ``changed``: of its source's content;
    ``tried``: when that was asked for; ``since``: when it was last in order (UTC microseconds)."""

    meaning: str = ""
    digest: str = ""
    etag: str = ""
    changed: str = ""
    tried: int = 0
    since: int = 0
    error: str = ""


class Outcome(NamedTuple):
    """``state``: "built", "unchanged", "not due" or "failed"; ``error``: why it is not in order, also before this run;
    ``trouble``: the same once that has lasted too long."""

    name: str
    state: str
    rows: int
    version: str
    published: bool
    since: int
    error: str
    trouble: str


class Refresher:
    """One process at a time in ``folder``. Raises OSError."""

    def __init__(self, folder: Path, key: Ed25519PrivateKey, fleet: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = locked(folder, "another refresh is at work")
        self._folder, self._key, self._fleet = folder, key, fleet
        self._by = f"\n{fleet}\n{public_text(key)}"
        self._marks: dict[str, Mark] = {}
        with suppress(FileNotFoundError, ValueError):
            self._marks = documents.read(dict[str, Mark], foreign.read((folder / STATE).read_bytes()))

    def close(self) -> None:
        os.close(self._lock)

    async def run(
        self, tables: Sequence[Table], broker: MqttSettings | None, now: int, *, only: Collection[str] = (),
        at_once: bool = False, fewer: Collection[str] = (),
    ) -> list[Outcome]:  # fmt: skip
        """Refresh those that are due at ``now`` (UTC microseconds), of ``only`` these names, ``at_once`` whether due or
        not; publish what ``broker`` lacks. ``fewer``: names of those that may lose rows beyond ``least``. Raises
        OSError where folder or broker fail."""
        states = {}
        for table in tables:
            if not only or table.name in only:
                states[table.name] = self._refresh(table, now, at_once, table.name in fewer)
        published: set[str] = set()
        try:
            if broker is not None:
                published = await self._publish(tables, broker)
        except OSError as error:
            for table in tables:
                self._fail(table.name, f"not published: {error}")
            raise
        finally:
            self._in_order(tables, now)
        entries = [self._entry(table) for table in tables]
        if broker is not None:
            async with connected(broker) as (client, _):
                await client.publish(steer_topic(self._fleet, "lookups"), packed(entries), retain=True)
        return [
            Outcome(entry.name, states.get(entry.name, "not due"), entry.rows, self._held(entry.name)[1],
                    entry.name in published, entry.since, entry.error, entry.trouble(now))
            for entry in entries
        ]  # fmt: skip

    def _refresh(self, table: Table, now: int, at_once: bool, fewer: bool) -> str:
        mark = self._marks.get(table.name, Mark(since=now))
        meaning = hashlib.sha256((table.meaning + self._by).encode()).hexdigest()
        rows, _ = self._held(table.name)
        same = mark.meaning == meaning and self._path(table.name).exists()
        next_one = mark.tried + round(table.every * 1_000_000)
        if same and not mark.error and not at_once and mark.tried <= now < next_one:
            return "not due"
        last = mark if same else Mark(since=mark.since)
        self._marks[table.name] = replace(mark, tried=now, error="")
        work = self._folder / ".work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            with bounded(table):
                content = fetch(table, work, last.etag, last.changed)
                if content is None:
                    content = Content(work, last.digest, {}, last.etag, last.changed)
                changed = content.digest != last.digest
                if changed:
                    self._build(table, content, now, 0 if fewer else max(1, rows * table.least if same else 0))
        except Exception as error:  # whatever a source makes a library raise: the other lookups are refreshed
            source = shown(table.url) if table.url else str(table.path or table.database)
            said = str(error) if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {error}"
            self._fail(table.name, said.replace(str(work / f"{table.name}{table.suffix}"), source))
            return "failed"
        finally:
            shutil.rmtree(work, ignore_errors=True)
        marks = content.etag[:1000], content.changed[:1000]
        self._marks[table.name] = Mark(meaning, content.digest, *marks, now, mark.since)
        return "built" if changed else "unchanged"

    def _build(self, table: Table, content: Content, now: int, least: float) -> None:
        """Put the lookup of ``content`` in force, if it has at least so many rows. Raises OSError and ValueError."""
        path, new = self._path(table.name), content.path.with_name(f"new{SUFFIX}")
        built = table.recipe(content.types).build(
            content.path, new, name=table.name, created=now, previous=path, max_rows=table.max_rows
        )
        if built.rows < least:
            there = self._held(table.name)[0]
            raise Failed(f"{built.rows:,} rows, {there:,} before, at least {ceil(least):,} expected (least)")
        if path.exists():
            before = self._before(table.name)
            before.parent.mkdir(exist_ok=True)
            before.unlink(missing_ok=True)
            os.link(path, before)
        sign(new, path, self._key, self._fleet, table.channel)

    async def _publish(self, tables: Sequence[Table], broker: MqttSettings) -> set[str]:
        """Publish what the broker announces in no or another version; which. Raises OSError where it fails."""
        announced = _versions(await retained(broker, [lookup_topic(self._fleet, "+", "+")]))
        published = set()
        for table in tables:
            path, (_, version) = self._path(table.name), self._held(table.name)
            there = announced.get(lookup_topic(self._fleet, table.channel, table.name))
            if not version or version == there:
                continue
            before = self._before(table.name)
            try:
                await publish_lookup(broker, path, previous=before if _of(before)[1] == there else None)
                published.add(table.name)
            except ValueError as error:
                self._fail(table.name, f"not published: {error}")
        return published

    def _fail(self, name: str, error: str) -> None:
        mark = self._marks.get(name, Mark())
        self._marks[name] = replace(mark, error=mark.error or " ".join(error.split())[: foreign.MAX_TEXT])

    def _in_order(self, tables: Sequence[Table], now: int) -> None:
        """Note how old each lookup is. Raises OSError."""
        for table in tables:
            mark = self._marks.get(table.name, Mark(tried=0, since=now))
            since = mark.tried if not mark.error and mark.tried else mark.since
            self._marks[table.name] = replace(mark, since=min(since, now))
        self._marks = {table.name: self._marks[table.name] for table in tables}
        write_whole(self._folder / STATE, msgspec.json.encode(self._marks))

    def _entry(self, table: Table) -> Entry:
        mark = self._marks[table.name]
        return Entry(table.name, mark.since, table.old_after, self._held(table.name)[0], mark.error)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"

    def _before(self, name: str) -> Path:
        return self._folder / "before" / f"{name}{SUFFIX}"

    def _held(self, name: str) -> tuple[int, str]:
        return _of(self._path(name))


def _of(path: Path) -> tuple[int, str]:
    """Rows and version of a lookup's file; 0 and empty without one that can be read."""
    try:
        with Lookup.open(path, native=False) as lookup:
            return len(lookup), lookup.version
    except (OSError, LookupRefused):
        return 0, ""


def _versions(announcements: Mapping[str, bytes]) -> dict[str, str]:
    versions = {}
    for topic, data in announcements.items():
        try:
            versions[topic] = Announcement.from_bytes(data).version
        except LookupRefused:
            continue  # it is published again
    return versions
