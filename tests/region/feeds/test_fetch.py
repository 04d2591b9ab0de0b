"""``lookup fetch`` of a server over TLS and of files: what is read, kept, left out, dropped, and what rules see."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.region.feeds.server import COLLECTION, Server
from tests.waits import DEADLINE
from vedette.cli.main import main
from vedette.lookup.table import Lookup
from vedette.region.feeds import stix
from vedette.region.feeds.fetch import COLUMNS
from vedette.region.feeds.settings import Feed
from vedette.region.feeds.values import KINDS

OBJECTS = f"/api2/collections/{COLLECTION}/objects/"
NEVER = "2199-01-01T00:00:00Z"


def indicator(number: int, pattern: str, **more: Any) -> dict[str, Any]:
    one = {"type": "indicator", "spec_version": "2.1", "id": f"indicator--{number}", "created": "2026-05-01T00:00:00Z",
           "modified": "2026-05-01T00:00:00Z", "valid_from": "2026-05-01T00:00:00Z", "pattern_type": "stix",
           "pattern": pattern}  # fmt: skip
    return {**one, **more}


def ip(number: int, **more: Any) -> dict[str, Any]:
    return {**indicator(number, f"[ipv4-addr:value = '203.0.113.{number}']"), **more}


def bundle(*objects: object) -> bytes:
    return json.dumps({"id": "bundle--1", "objects": objects, "type": "bundle"}).encode()  # type comes last


class Region:
    """A folder with ``feeds.toml`` and the lookups of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lookups = folder, folder / "lookups"
        (folder / "token").write_text("secret\n")

    def feeds(self, *tables: str) -> None:
        (self.folder / "feeds.toml").write_text("".join(f"[[feed]]\n{table}\n" for table in tables))

    def command(self, *options: str) -> Result:
        return CliRunner().invoke(
            main, ["lookup", "fetch", str(self.folder / "feeds.toml"), "-o", str(self.lookups), *options]
        )

    def fetch(self, *options: str, code: int = 0) -> dict[str, Any]:
        done = self.command("--json", *options)
        assert done.exit_code == code, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def get(self, kind: str, value: str) -> dict[str, Any] | None:
        with Lookup.open(self.lookups / f"intel_{kind}.vlookup") as found:
            row = found.get("indicator", value)
            return None if row is None else dict(zip([one.name for one in found.columns], row, strict=True))

    def ips(self) -> list[int]:
        return [n for n in range(1, 20) if self.get("ip", f"203.0.113.{n}") is not None]


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")).running() as server:
        yield server


@pytest.fixture
def server(served: Server) -> Server:
    served.objects, served.files, served.hooks, served.by_next, served.page = [], {}, {}, True, 2
    served.asked.clear()
    return served


def taxii(server: Server, *more: str, path: str = "/taxii2/") -> str:
    return "\n".join(
        ['name = "intel"', 'type = "taxii"', f'url = "{server.url}{path}"', f'ca_file = "{server.ca}"',
         'kinds = ["ip"]', 'token_file = "token"', 'collection = "high"', *more]
    )  # fmt: skip


@pytest.mark.parametrize("by_next", [True, False])
def test_a_collection_page_by_page_and_on(region: Region, server: Server, by_next: bool) -> None:
    """Discovery, API root, collection by its alias; all pages; then only what was added, changed or revoked since."""
    server.by_next = by_next
    server.objects = [(f"2026-05-0{n}T00:00:00.000001Z", ip(n)) for n in range(1, 6)]
    server.objects.append(("2026-05-06T00:00:00Z", {"type": "report", "id": "report--1"}))
    region.feeds(taxii(server))
    first = region.fetch()
    assert first["feeds"][0] | {"read": None} == {
        "name": "intel", "indicators": 5, "read": None, "changed": True, "error": None, "left_out": [],
    }  # fmt: skip
    assert region.ips() == [1, 2, 3, 4, 5]
    pages = [path for path, _ in server.asked if path.startswith(OBJECTS)]
    assert len(pages) == 3
    server.asked.clear()
    again = region.fetch()
    assert (again["feeds"][0]["changed"], again["lookups"][0]["changed"]) == (False, False)
    assert [("added_after=2026-05-05" in path) for path, _ in server.asked if OBJECTS in path] == [True]
    server.objects += [
        ("2026-05-07T00:00:00Z", ip(1, modified="2026-05-07T00:00:00Z", revoked=True)),
        ("2026-05-08T00:00:00Z", ip(2, modified="2026-04-01T00:00:00Z", revoked=True)),  # an earlier version
        ("2026-05-09T00:00:00Z", ip(7, modified="2026-05-07T00:00:00Z", pattern="[ipv4-addr:value = '203.0.113.8']")),
    ]
    changed = region.fetch()
    assert changed["lookups"][0] | {"path": ""} == {
        "path": "", "kind": "ip", "rows": 5, "changed": True, "dropped": {},
    }  # fmt: skip
    assert region.ips() == [2, 3, 4, 5, 8]
    server.objects = server.objects[2:3]
    assert region.fetch("--full")["feeds"][0]["indicators"] == 1
    assert region.ips() == [3]


@pytest.mark.parametrize("by_next", [True, False])
@pytest.mark.parametrize("dated", ["9999-12-31T23:59:59Z", "2150-01-01T00:00:00.000001Z"])
def test_a_server_whose_dates_lie_ahead(region: Region, server: Server, dated: str, by_next: bool) -> None:
    """All its pages are read; the next reading begins at the time of this one, and finds what was added since."""
    server.by_next = by_next
    server.objects = [("2026-05-01T00:00:00Z", ip(1)), ("2026-05-02T00:00:00Z", ip(2)), (dated, ip(3)), (dated, ip(4))]
    region.feeds(taxii(server))
    region.fetch()
    assert region.ips() == [1, 2, 3, 4]
    server.objects.insert(2, ("2100-01-01T00:00:00Z", ip(5)))
    region.fetch()
    assert region.ips() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00Z", "1601-01-01T00:00:00Z", "0001-01-01"])
@pytest.mark.parametrize("until", ["9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "9999-12-31"])
def test_times_that_stand_for_none(region: Region, since: str, until: str) -> None:
    """What says that it has no beginning or no end has none."""
    (region.folder / "own.json").write_bytes(bundle(ip(1, valid_from=since, valid_until=until)))
    region.feeds('name = "own"\ntype = "stix"\npath = "own.json"\nkinds = ["ip"]')
    assert not region.fetch()["feeds"][0]["left_out"]
    row = region.get("ip", "203.0.113.1")
    assert row is not None
    assert (row["valid_from"], row["valid_until"]) == (None, None)


@pytest.mark.parametrize(
    ("path", "hook", "message"),
    [
        (OBJECTS, (401, {}, b""), "HTTP 401: wrong or missing credentials"),
        (OBJECTS, (429, {"Retry-After": "7200"}, b""), "HTTP 429, and asks to wait 7200 s"),
        (OBJECTS, (200, {}, b'{"objects": ['), "not JSON"),
        (OBJECTS, (200, {}, b"[1]"), "expects an object"),
        (OBJECTS, (200, {}, b'{"objects": 7}'), "objects is no list"),
        (OBJECTS, (200, {}, bundle(ip(9))), "lacks X-TAXII-Date-Added-Last"),
        (OBJECTS, (200, {"X-TAXII-Date-Added-Last": "2026-06-01T00:00:00Z"},
                   json.dumps({"more": True, "next": "7", "objects": [ip(9)]}).encode()), "was read already"),
        ("/taxii2/", (200, {}, b"<html>"), "not JSON"),
        ("/taxii2/", (200, {}, b"{}"), "neither a discovery document"),
        ("/taxii2/", (200, {}, b'{"api_roots": ["https://other.example/api/"]}'), "give that as url"),
        ("/taxii2/", (302, {"Location": "http://other.example/"}, b""), "expects https://"),
        ("/taxii2/", (302, {"Location": "http://127.0.0.1:1/"}, b""), "expects https://"),
        ("/taxii2/", (302, {"Location": "/taxii2/"}, b""), "a redirect to nowhere, or more than 5"),
        ("/api2/collections/", (200, {}, b'{"collections": [7]}'), "collection 'high' is none that may be read"),
    ],
)  # fmt: skip
def test_a_feed_that_fails_stays_as_it_was(
    region: Region, server: Server, path: str, hook: tuple[int, dict[str, str], bytes], message: str
) -> None:
    """Whatever the server answers: exit code 1, the reason, the indicators read before, and other feeds are read."""
    server.objects = [("2026-05-01T00:00:00Z", ip(1))]
    (region.folder / "own.json").write_bytes(bundle(ip(2)))
    region.feeds(taxii(server), 'name = "own"\ntype = "stix"\npath = "own.json"\nkinds = ["ip"]')
    region.fetch()
    (region.folder / "own.json").write_bytes(bundle(ip(2), ip(3)))
    server.hooks[path] = lambda: hook
    failed = region.fetch(code=1)
    assert message in failed["feeds"][0]["error"]
    assert (failed["feeds"][0]["indicators"], failed["feeds"][1]["error"]) == (1, None)
    assert region.ips() == [1, 2, 3]
    server.hooks.clear()
    server.objects.append(("2026-05-02T00:00:00Z", ip(4)))
    region.fetch()
    assert region.ips() == [1, 2, 3, 4]


def test_wrong_token_untrusted_server_and_slow_answers(region: Region, server: Server) -> None:
    """Nothing is read without the right token, from a server of an unknown authority, beyond bytes or time."""
    server.files["/big.json"] = b" " * 5000 + bundle()
    server.files["/zip.json"] = gzip.compress(b" " * 5_000_000)
    server.hooks["/zip.json"] = lambda: (200, {"Content-Encoding": "gzip"}, server.files["/zip.json"])
    server.hooks["/slow.json"] = lambda: (200, {"X-Slow": "yes"}, b" " * 1000)
    (region.folder / "wrong").write_text("wrong\n")
    web = 'type = "stix"\nkinds = ["ip"]'
    url, ca = server.url, f'ca_file = "{server.ca}"'
    region.feeds(
        taxii(server).replace('"token"', '"wrong"'),
        f'name = "unknown"\n{web}\nurl = "{url}/big.json"',
        f'name = "big"\n{web}\nurl = "{url}/big.json"\n{ca}\nmax_bytes = 4000',
        f'name = "bomb"\n{web}\nurl = "{url}/zip.json"\n{ca}\nmax_bytes = "1MB"',
        f'name = "slow"\n{web}\nurl = "{url}/slow.json"\n{ca}\ntimeout = "500ms"',
        f'name = "gone"\n{web}\nurl = "{url}/nothing.json"\n{ca}',
        f'name = "file"\n{web}\npath = "nothing.json"',
        f'name = "no_token"\n{web}\nurl = "{url}/big.json"\n{ca}\ntoken_file = "nothing"',
    )
    done = {one["name"]: one["error"] for one in region.fetch(code=1)["feeds"]}
    assert "HTTP 401" in done["intel"]
    assert "certificate verify failed" in done["unknown"]
    assert "more than 4,000 bytes" in done["big"]
    assert "more than 1,000,000 bytes" in done["bomb"]
    assert "not read within 0.5 s" in done["slow"]
    assert "HTTP 401" in done["gone"]
    assert "no such file" in done["file"]
    assert "nothing" in done["no_token"]
    assert server.url not in done["no_token"]
    shown = region.command()
    assert shown.exit_code == 1
    assert "big: not read: https://" in shown.stderr
    assert "nothing is kept of it" in shown.stderr


def test_waits_as_the_server_asks(region: Region, server: Server) -> None:
    """After 429 with Retry-After the page is asked again, and no page is lost."""
    server.objects = [(f"2026-05-0{n}T00:00:00Z", ip(n)) for n in range(1, 5)]
    answers: list[tuple[int, dict[str, str], bytes] | None] = [
        None, (429, {"Retry-After": "0"}, b""), (503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, b""),
    ]  # fmt: skip
    server.hooks[OBJECTS] = lambda: answers.pop(0) if answers else None
    region.feeds(taxii(server, path="/api2/"))
    region.fetch()
    assert region.ips() == [1, 2, 3, 4]
    assert [status for path, status in server.asked if path.startswith(OBJECTS)] == [200, 429, 503, 200]


def test_a_bundle_by_url_when_it_changed(region: Region, server: Server) -> None:
    """A bundle is fetched again only when its ETag is another one; what it no longer has goes; a bad one changes
    nothing; another url begins anew."""
    feed = f'name = "web"\ntype = "stix"\nurl = "{server.url}/b.json"\nca_file = "{server.ca}"\nkinds = ["ip"]'
    server.files["/b.json"] = bundle(ip(1), ip(2))
    region.feeds(feed)
    assert region.fetch()["feeds"][0]["changed"] is True
    assert region.fetch()["feeds"][0]["changed"] is False
    assert [status for _, status in server.asked] == [200, 304]
    for bad in (b"<html>", b"{}", b"[]", bundle(ip(9))[:-30], b'{"type": "bundle", "objects": [{]}', b""):
        server.files["/b.json"] = bad
        assert region.fetch(code=1)["feeds"][0]["error"]
        assert region.ips() == [1, 2]
    server.files["/b.json"] = bundle(ip(2), ip(3))
    assert region.fetch()["lookups"][0]["rows"] == 2
    server.files["/c.json"] = server.files["/b.json"]
    region.feeds(feed.replace("/b.json", "/c.json"))
    assert region.fetch()["feeds"][0]["changed"] is True
    region.feeds(feed.replace('"web"', '"other"').replace("/b.json", "/c.json"))
    assert region.fetch()["feeds"][0]["indicators"] == 2
    assert (region.get("ip", "203.0.113.3") or {})["feed"] == "other"


def test_what_a_lookup_has(region: Region) -> None:
    """One row a value, the newest that holds: what is revoked, expired, early, of little or unknown confidence, or
    older than max_age is dropped by reason; threats come by relationships; what cannot be a value is left out."""
    (region.folder / "a.json").write_bytes(bundle(
        ip(1, confidence=80, name="old", labels=["c2", "c2", "\x1b[31mx"],
           external_references=[{"source_name": "x"}, {"url": "https://intel.example/1"}]),
        ip(2, revoked=True), ip(3, valid_until="2026-05-02T00:00:00Z"), ip(4, valid_from=NEVER),
        ip(5, confidence=10), ip(6), ip(7, confidence=90, modified="2020-05-01T00:00:00Z"),
        indicator(8, "[ipv4-addr:value = '203.0.113.1']", confidence=70, modified="2026-05-02T00:00:00Z", name="new"),
        indicator(9, "[ipv4-addr:value = '10.0.0.1' OR ipv4-addr:value = '198.51.100.0/24']", confidence=60),
        indicator(10, "[file:name = 'x' OR domain-name:value = 'evil[.]example']", confidence=60, name="plain"),
        indicator(11, "rule", pattern_type="yara"), indicator(12, "[ipv4-addr:value = '203.0.113.9'"),
        indicator(13, "[a:b = 'x' AND c:d = 'y']"), indicator(14, "[a:b = 'x' AND c:d = 'z']"),
        ip(15, valid_from="soon"), ip(16, valid_until="2026-05-01T00:00:00Z"), "nonsense", {"id": 7},
        {"type": "indicator", "id": "indicator--17"}, {"type": "identity", "id": "identity--1"},
        {"type": "malware", "id": "malware--1", "modified": "2026-05-01T00:00:00Z", "name": "BadBot"},
        {"type": "tool", "id": "tool--1", "modified": "2026-05-01T00:00:00Z", "name": "Gone", "revoked": True},
        *({"type": "relationship", "id": f"relationship--{n}", "modified": "2026-05-01T00:00:00Z",
           "relationship_type": "indicates", "source_ref": "indicator--10", "target_ref": target}
          for n, target in enumerate(("malware--1", "tool--1", "malware--unknown"))),
    ))  # fmt: skip
    (region.folder / "b.json").write_bytes(bundle(ip(6, modified="2026-04-01T00:00:00Z", name="theirs")))
    region.feeds(
        'name = "a"\ntype = "stix"\npath = "a.json"\nmin_confidence = 50\nmax_age = "1825d"\n'
        'kinds = ["ip", "net", "domain"]',
        'name = "b"\ntype = "stix"\npath = "b.json"\nmin_confidence = 50\nconfidence = 55\nkinds = ["ip"]',
    )
    done = region.fetch()
    made = {one["kind"]: (one["rows"], one["dropped"]) for one in done["lookups"]}
    assert made["net"][0] == made["domain"][0] == 1
    assert made["ip"] == (2, {
        "below min_confidence": 1, "expired": 2, "known from a newer entry": 1, "not yet valid": 1,
        "without confidence": 1,
    })  # fmt: skip
    assert {one["reason"]: one["count"] for one in done["feeds"][0]["left_out"]} == {
        "a pattern of type yara": 1, "a pattern with AND": 2, "an address that is private or local": 1,
        "an indicator whose validity ends before it begins": 1, "an indicator with a bad time of validity": 1,
        "an object without the time of its version": 1, "no lookup for file:name": 1, "not a STIX object": 2,
        "not a STIX pattern": 1,
    }  # fmt: skip
    first = region.get("ip", "203.0.113.1")
    assert first is not None
    ends = first.pop("valid_until")
    assert first == {"indicator": "203.0.113.1", "feed": "a", "confidence": 70, "valid_from": 1777593600000000,
                     "threat": "new", "labels": "", "reference": "indicator--8"}  # fmt: skip
    assert ends == 1777680000000000 + 1825 * 86_400_000_000
    assert (region.get("ip", "203.0.113.6") or {})["threat"] == "theirs"
    assert (region.get("domain", "www.evil.example") or {})["threat"] == "BadBot"
    assert region.get("net", "198.51.100.77") is not None
    assert not (region.lookups / "intel_url.vlookup").exists()


def test_an_entry_with_many_links(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of however many links an entry has, MAX_LINKS are stored and their threats named, once for all its values."""
    from vedette.region.feeds import store

    values, links = 50, store.MAX_LINKS + 20
    steps = 0

    class Counted(sqlite3.Connection):
        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            nonlocal steps
            steps += "group_concat" in sql
            return super().execute(sql, *more)

    class Library:
        def __getattr__(self, name: str) -> Any:
            return getattr(sqlite3, name)

        def connect(self, *args: Any, **more: Any) -> sqlite3.Connection:
            return sqlite3.connect(*args, **more, factory=Counted)

    monkeypatch.setattr(store, "sqlite3", Library())
    pattern = " OR ".join(f"domain-name:value = 'a{n}.example'" for n in range(values))
    (region.folder / "a.json").write_bytes(bundle(
        indicator(1, f"[{pattern}]", name="plain"),
        *({"type": "malware", "id": f"malware--{n}", "modified": "2026-05-01T00:00:00Z", "name": f"m{n:03}"}
          for n in range(links)),
        *({"type": "relationship", "id": f"relationship--{n:03}", "modified": "2026-05-01T00:00:00Z",
           "relationship_type": "indicates", "source_ref": "indicator--1", "target_ref": f"malware--{n}"}
          for n in range(links)),
    ))  # fmt: skip
    region.feeds('name = "a"\ntype = "stix"\npath = "a.json"\nkinds = ["domain"]')
    assert region.fetch()["lookups"][0]["rows"] == values
    threat = ", ".join(f"m{n:03}" for n in range(links))[:512]
    assert {(region.get("domain", f"a{n}.example") or {})["threat"] for n in range(values)} == {threat}
    with closing(sqlite3.connect(region.lookups / ".feeds" / "feeds.sqlite3")) as db:
        assert db.execute("SELECT count(*) FROM link WHERE source <> ''").fetchone() == (store.MAX_LINKS,)
    assert 0 < steps < 10  # not once for each value


def test_ingest_s_table_has_what_the_lookups_have(region: Region) -> None:
    """``intel_feeds.parquet``: kinds as ingest calls them, what holds now, as it was where nothing changed. No feed can
    name an address as the owner's own; a kind for which no feed asks any more is gone."""
    (region.folder / "a.json").write_bytes(bundle(
        ip(1, confidence=80, valid_until=NEVER, name="ExampleBot"), ip(2, name="Scanner "),
        ip(3, valid_until="2026-06-01T00:00:00Z"),
        indicator(4, f"[file:hashes.'SHA-256' = '{'a' * 64}'] OR [domain-name:value = 'evil.example']"),
    ))  # fmt: skip
    feed = 'name = "own"\ntype = "stix"\npath = "a.json"'
    region.feeds(feed)
    region.fetch()
    file = region.lookups / "intel_feeds.parquet"
    rows = {row["value"]: row for row in pq.read_table(file).to_pylist()}
    assert {value: row["kind"] for value, row in rows.items()} == {
        "203.0.113.1": "ip", "203.0.113.2": "ip", "evil.example": "domain", "a" * 64: "hash",
    }  # fmt: skip
    first = rows["203.0.113.1"]
    assert (first["source"], first["threat"], first["score"]) == ("own", "ExampleBot", 80)
    assert (f"{first['valid_from']:%Y-%m-%d}", f"{first['valid_until']:%Y}") == ("2026-05-01", "2199")
    assert rows["203.0.113.2"]["threat"] == "Scanner (own)"
    before = file.stat()
    region.fetch()
    assert file.stat().st_ino == before.st_ino
    region.feeds(f'{feed}\nkinds = ["domain"]')
    region.fetch()
    assert [row["kind"] for row in pq.read_table(file).to_pylist()] == ["domain"]


def test_mistakes_in_the_file(region: Region) -> None:
    """Every mistake is named with its key, and nothing is read."""
    region.feeds(
        'name = "a"\ntype = "stix"\nurl = "http://intel.example/x"\nkinds = ["ipx"]\nmin_confidence = 101',
        'name = "b"\ntype = "taxii"\nurl = "https://me:pw@intel.example/x"\nusername = "x"',
        'name = "b"\ntype = "misp"\nurl = "https://intel.example/"\npath = "x"\nmax_age = "0s"\ncollection = "c"',
    )
    done = region.command()
    assert done.exit_code == 2
    for part in (
        "expects https://", "'ipx' is none", "expects 0 to 100", "no credentials in it",
        "password_file go together", "collection: missing", "either url or path", "max_age: expects more",
        "collection: is of TAXII only",
    ):  # fmt: skip
        assert part in done.stderr
    assert "pw" not in done.stderr.replace("password", "")
    region.feeds('name = ".a"\ntype = "stix"\npath = "x"\nkinds = ["ip"]')
    assert "name: expects" in region.command().stderr
    region.feeds('name = "a"\ntype = "csv"\nurl = "https://x.example/"\nkind = "ip"')
    assert "did you mean kinds?" in region.command().stderr
    (region.folder / "feeds.toml").write_text("[feed\n")
    assert "not valid TOML" in region.command().stderr
    assert not region.lookups.exists()


def test_a_feed_of_which_nobody_foresaw_what_it_says(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is its own: the feed after it is read."""
    monkeypatch.setattr(stix, "bundle", lambda *_: 1 + None)  # type: ignore[operator]  # that is the point
    (region.folder / "bundle.json").write_bytes(bundle(ip(1)))
    address = {"uuid": "a", "type": "ip-dst", "value": "203.0.113.7", "to_ids": True, "timestamp": "1777593600"}
    event = {"Event": {"uuid": "e", "date": "2026-05-01", "Attribute": [address]}}
    (region.folder / "event.json").write_text(json.dumps(event))
    region.feeds('name = "a"\ntype = "stix"\npath = "bundle.json"\nkinds = ["ip"]',
                 'name = "b"\ntype = "misp"\npath = "event.json"\nkinds = ["ip"]')  # fmt: skip
    feeds = region.fetch(code=1)["feeds"]
    assert [(feed["name"], feed["indicators"], (feed["error"] or "")[:9]) for feed in feeds] == [
        ("a", 0, "TypeError"), ("b", 1, ""),
    ]  # fmt: skip
    assert region.ips() == [7]


def test_two_at_once_and_a_broken_store(region: Region) -> None:
    """A second run ends at once; a store that is broken, or of another version, is named with what to do."""
    from vedette.region.feeds.store import Store

    (region.folder / "a.json").write_bytes(bundle(ip(1)))
    region.feeds('name = "a"\ntype = "stix"\npath = "a.json"\nkinds = ["ip"]')
    store = Store(region.lookups / ".feeds")
    assert "another fetch is at work" in region.command().stderr
    store.close()
    region.fetch()
    file = region.lookups / ".feeds" / "feeds.sqlite3"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    assert "of another version (9): remove it" in region.command().stderr
    file.write_bytes(b"x" * 8192)
    assert "remove it" in region.command().stderr
    file.unlink()
    region.fetch()
    assert region.ips() == [1]


def test_a_store_that_has_lost_what_a_feed_said(region: Region) -> None:
    """It is that feed's error, with what to do, and the feed after it is read."""
    (region.folder / "a.json").write_bytes(bundle(*(ip(n) for n in range(200))))
    (region.folder / "b.json").write_bytes(bundle(ip(1)))
    region.feeds(*(f'name = "{name}"\ntype = "stix"\npath = "{name}.json"\nkinds = ["ip"]' for name in "ab"))
    region.fetch()
    file = region.lookups / ".feeds" / "feeds.sqlite3"
    whole = file.read_bytes()

    def readable(feed: str) -> bool:
        with closing(sqlite3.connect(file)) as db, suppress(sqlite3.DatabaseError):
            db.execute("SELECT count(*) FROM value WHERE feed = ?", (feed,)).fetchone()
            return True
        return False

    for at in range(4096, len(whole), 4096):
        file.write_bytes(whole[:at] + bytes(4096) + whole[at + 4096 :])
        if readable("b") and not readable("a"):
            break
    (region.folder / "b.json").write_bytes(bundle(ip(250)))
    feeds = region.fetch(code=1)["feeds"]
    reason = "the feeds' store: database disk image is malformed: remove it, and all feeds are read again"
    assert [(feed["name"], feed["error"]) for feed in feeds] == [("a", reason), ("b", None)]
    assert region.get("ip", "203.0.113.250") is not None


def test_rules_ask_the_lookups(region: Region) -> None:
    """Built lookups in ``scan``: a Sigma rule and a temporal join fire on what holds, the join as of the event's time;
    neither on what has expired."""
    (region.folder / "a.json").write_bytes(
        bundle(ip(1, valid_until=NEVER, name="C2"), ip(2, valid_until="2026-06-01T00:00:00Z"))
    )
    region.feeds('name = "a"\ntype = "stix"\npath = "a.json"')
    region.fetch()
    rules, events = region.folder / "rules", region.folder / "events.ndjson"
    rules.mkdir()
    (rules / "ip.yml").write_text(
        "title: Known address\nid: 00000000-0000-4000-8000-000000000001\nlogsource: {product: test}\n"
        "detection: {s: {src_ip|expand: '%intel_ip%'}, condition: s}\nlevel: high\n"
    )
    (rules / "ip.sql").write_text(
        "CREATE TABLE intel_ip (`indicator` STRING, threat STRING, confidence BIGINT)"
        " WITH ('connector' = 'vedette', 'lookup' = 'intel_ip');\n-- title: Known then\n"
        "INSERT INTO alerts SELECT e.src_ip, i.threat, i.confidence\n"
        "FROM events AS e JOIN intel_ip FOR SYSTEM_TIME AS OF e.event_time AS i ON i.`indicator` = e.src_ip;\n"
    )
    events.write_text(
        '{"src_ip": "203.0.113.1", "timestamp": "2026-05-05T10:00:00Z"}\n'
        '{"src_ip": "203.0.113.1", "timestamp": "2026-04-05T10:00:00Z"}\n'
        '{"src_ip": "203.0.113.2", "timestamp": "2026-05-05T10:00:00Z"}\n'
        '{"src_ip": "203.0.113.3", "timestamp": "2026-05-05T10:00:00Z"}\n'
    )
    done = CliRunner().invoke(
        main, ["scan", "--no-cache", "--rules", str(rules), "--lookup", str(region.lookups), str(events)]
    )
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((one["rule_title"], one["line"], one["fields"].get("threat")) for one in found) == [
        ("Known address", 1, None), ("Known address", 2, None), ("Known then", 1, "C2"),
    ]  # fmt: skip


def test_the_page() -> None:
    """Settings, kinds and columns are those that docs/feeds.md names."""
    text = (Path(__file__).parents[3] / "docs" / "feeds.md").read_text()
    rows = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in text.splitlines() if line.startswith("| ")]
    named = set().union(*rows)
    assert named == {field.name for field in fields(Feed)} | {*KINDS} | {column.name for column in COLUMNS}


def test_the_example(tmp_path: Path) -> None:
    """The page's first example prints what stands below it, but for versions."""
    text = (Path(__file__).parents[3] / "docs" / "feeds.md").read_text()
    match = re.search(r"^```sh\n(.*?)^```\n\n```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-eu", "-c", match[1]], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    def plain(output: str) -> list[str]:
        return [re.sub(r"version \w+|-5d3b-4c8e-9a57-5b1a4f0d9a11|-…", "", line) for line in output.splitlines()]

    assert plain(done.stdout) == plain(match[2])
