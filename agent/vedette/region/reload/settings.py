"""``[[lookup]]`` tables, in ``fleet.toml`` or a file of their own: which source becomes which lookup, and how often
(``docs/lookups.md``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import SplitResult, urlsplit

from vedette.bundle.seal import public_key
from vedette.config.read import ConfigError
from vedette.config.tables import tables, tables_in
from vedette.lookup.batch import Key
from vedette.lookup.layout import NAME, TYPES
from vedette.lookup.recipe import Recipe
from vedette.lookup.source import SUFFIXES
from vedette.model.settings import Name, Options, Seconds, Share, Size
from vedette.region.feeds.settings import Remote, beside, is_loopback, twice, web_mistakes

MAX_TABLES = 1000
FLEET = ("fleet", "ring", "gates", "group", "operator")
"""What ``fleet.toml`` has besides."""
PORTS = {"postgresql": 5432, "mysql": 3306}
"""By kind of database its ordinary port."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Remote):
    """A table ``[[lookup]]``. Exactly one of ``url``, ``path`` and ``database`` is its source."""

    elsewhere: ClassVar[bool] = False

    name: Name
    every: Seconds
    key: tuple[str, ...]
    database: str = ""
    query: str = ""
    format: Literal["", "csv", "tsv", "jsonl", "parquet"] = ""
    signed_by: tuple[str, ...] = ()
    signature: str = ""
    sha256: tuple[str, ...] = ()
    unsigned: bool = False
    types: Options = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    duplicates: Literal["refuse", "keep", "first"] = "refuse"
    channel: Name = "stable"
    max_bytes: Size = 256 << 20
    max_rows: int = 1_000_000
    least: Share = 0.5
    stale_after: Seconds | None = None

    @property
    def suffix(self) -> str:
        """Of a file of this form; empty: neither said nor shown by the source's name."""
        if self.format or self.database:
            return f".{self.format or 'jsonl'}"
        name = Path(_split(self.url).path) if self.path is None else self.path
        return name.suffix.lower() if name.suffix.lower() in SUFFIXES else ""

    @property
    def old_after(self) -> int:
        """After how many microseconds without a good reading it is not in order."""
        return round((3 * self.every if self.stale_after is None else self.stale_after) * 1_000_000)

    @property
    def meaning(self) -> str:
        """What the lookup's rows come from and become: with another one they are read and rebuilt."""
        return repr((self.url, self.path, self.database, self.username, self.query, self.suffix, self.signed_by,
                     self.signature, self.sha256, self.key, sorted(self.types.items()), self.columns, self.valid,
                     self.duplicates, self.channel))  # fmt: skip

    def recipe(self, types: Mapping[str, str]) -> Recipe:
        """``types``: of the source's columns. Raises ValueError."""
        valid = (self.valid[0], self.valid[1]) if self.valid else None
        of_source = {name: kind for name, kind in types.items() if not self.columns or name in self.columns}
        keys = tuple(Key.parse(key) for key in self.key)
        return Recipe(keys, {**of_source, **self.types}, self.columns, valid, self.duplicates)

    def mistakes(self) -> Iterator[str]:
        """Each begins with ``.KEY: `` or ``: ``."""
        if not NAME.fullmatch(self.name):
            yield ".name: expects letters, digits, '_', '-' or '.', none of the last two first"
        if (bool(self.url), self.path is not None, bool(self.database)).count(True) != 1:
            yield ": expects one of url, path and database"
        yield from self.access_mistakes()
        yield from self._database_mistakes()
        if self.url and not (self.signed_by or self.sha256 or self.unsigned):
            yield ": url needs signed_by or sha256; unsigned = true believes whoever has its TLS certificate"
        if not self.url and (self.signed_by or self.sha256 or self.signature or self.unsigned or self.proxy):
            yield ": signed_by, signature, sha256, unsigned and proxy go with url"
        if self.signature and self.url and not self._beside(self.signature):
            yield ".signature: expects the scheme, host and port of url, which the credentials are for"
        for key in self.signed_by:
            try:
                public_key(key)
            except ValueError as error:
                yield f".signed_by: {error}"
        if not all(map(_SHA256.fullmatch, self.sha256)):
            yield ".sha256: expects digests of 64 lower-case hex digits"
        if not self.suffix:
            yield f".format: missing: the source's name ends in none of {', '.join(SUFFIXES)}"
        if not self.key:
            yield ".key: expects at least one, as ip:ip"
        for key in self.key:
            try:
                Key.parse(key)
            except ValueError as error:
                yield f".key: {error}"
        for column, kind in self.types.items():
            if kind not in TYPES:
                yield f".types.{column}: expects one of {', '.join(TYPES)}, not {kind!r}"
        if len(self.valid) not in (0, 2):
            yield ".valid: expects two columns"
        for key, value in (("every", self.every), ("max_rows", self.max_rows), ("stale_after", self.stale_after)):
            if value is not None and value <= 0:
                yield f".{key}: expects more than 0"

    def _beside(self, url: str) -> bool:
        """Whether ``url`` has the origin of the table's own."""
        return not list(web_mistakes(url)) and urlsplit(url)[:2] == _split(self.url)[:2]

    def _database_mistakes(self) -> Iterator[str]:
        if bool(self.database) != bool(self.query):
            yield ": database and query go together"
        if not self.database:
            return
        parts = _split(self.database)
        try:
            good = parts.scheme in PORTS and parts.hostname and parts.path[1:] and (parts.port or 1) > 0
        except ValueError:  # of a port
            good = False
        if not good or "@" in self.database or parts.query:
            yield ".database: expects postgresql://HOST/DATABASE or mysql://HOST/DATABASE; username and password_file"
        if self.token_file is not None or not self.username:
            yield ".username: missing: the user of the database, with password_file"

    def server(self) -> tuple[SplitResult, bool]:
        """Of the database, and whether its certificate has to be checked: always, but for this host."""
        parts = urlsplit(self.database)
        return parts, self.ca_file is not None or not is_loopback(parts.hostname or "")


def _split(url: str) -> SplitResult:
    """Its parts; none of one that has no form."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def read(path: Path) -> list[Table]:
    """The tables of the file ``path``; paths in it are relative to its folder. Raises ConfigError."""
    rows = tables(path, "lookup", Table, FLEET)
    if wrong := mistakes(rows):
        raise ConfigError(path, wrong)
    return [beside(path, table) for table in rows]


def of_document(document: Mapping[str, Any]) -> tuple[set[str], list[str]]:
    """The names of a document's tables, and what is wrong with them."""
    rows, wrong = tables_in(document, "lookup", Table)
    return {table.name for table in rows}, wrong or mistakes(rows)


def mistakes(rows: list[Table]) -> list[str]:
    """What is wrong with tables that were read."""
    wrong = [f"lookup[{i}]{mistake}" for i, table in enumerate(rows) for mistake in table.mistakes()]
    if len(rows) > MAX_TABLES:
        wrong.append(f"lookup: {len(rows)} tables, at most {MAX_TABLES}")
    return wrong + twice("lookup", [table.name for table in rows])
