"""MISP's events, as exports and as a feed folder on disk and behind TLS: attributes to indicators, and what changed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.region.feeds.server import Server
from tests.region.feeds.test_fetch import Region, region, served, server  # fixtures
from vedette.region.feeds import misp
from vedette.region.feeds.entry import Entry, LeftOut

__all__ = ["region", "served", "server"]
MAY, JUNE = 1_777_593_600, 1_780_272_000


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def attribute(number: int, kind: str, value: object, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid(number), "type": kind, "value": value, "to_ids": True, "timestamp": str(MAY), **more}


def event(number: int, *attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    about = {"uuid": uuid(number), "info": f"Event {number}", "date": "2026-05-01", "timestamp": str(MAY)}
    return {"Event": {**about, "Attribute": list(attributes), **more}}


def read(document: object) -> tuple[list[Entry], dict[str, int]]:
    left = LeftOut()
    found = list(misp.export(io.BytesIO(json.dumps(document).encode()), left))
    return found, {reason: count for reason, (count, _) in left.reasons.items()}


@pytest.mark.parametrize("objects", [5, "x", {"Attribute": []}, [5], [{"Attribute": 5}], None])
def test_objects_that_are_none(objects: object) -> None:
    """Whatever stands where an event's objects do, its attributes are read."""
    found, left = read(event(1, attribute(1, "domain", "a.example"), Object=objects, Tag=[{"name": ["x"]}, 5]))
    assert [one.values for one in found] == [(("domain", "a.example"),)]
    assert left == {}


def test_attributes() -> None:
    """Those for detection, of event and objects, in all their parts; times, confidence, labels of the event, too."""
    one = event(
        1,
        attribute(2, "ip-dst|port", "203.0.113[.]7|443", first_seen="2026-05-03T00:00:00.000000+00:00",
                  last_seen="2026-05-05T00:00:00+00:00", Tag=[{"name": 'misp:confidence-level="fairly-confident"'}]),
        attribute(3, "domain|ip", "evil.example|203.0.113.8"),
        attribute(4, "filename|sha1", "a|b.exe|" + "a" * 40), attribute(5, "url", "hxxp://evil.example/a|b"),
        attribute(6, "ip-src", "203.0.113.9", to_ids=False), attribute(7, "ip-src", "203.0.113.10", deleted=True),
        attribute(8, "comment", "text"), attribute(9, "ip-src", "10.0.0.1"), attribute(10, "md5", 7),
        attribute(11, "ip-src", "203.0.113.11", timestamp=str(JUNE), Sighting=[
            {"type": "0", "date_sighting": str(MAY)}, {"type": "2", "date_sighting": str(JUNE)}]),
        attribute(12, "ip-src", "203.0.113.12", Sighting=[
            {"type": "2", "date_sighting": str(MAY)}, {"type": "0", "date_sighting": str(JUNE)}]),
        Tag=[{"name": "tlp:green"}, {"name": 'misp:confidence-level="completely-confident"'}],
        Object=[{"name": "file", "Attribute": [attribute(13, "sha256", "AB" * 32)]}, 7],
    )  # fmt: skip
    found, left = read(one)
    assert {entry.id[-2:]: entry.values for entry in found} == {
        "02": (("ip", "203.0.113.7"),), "03": (("domain", "evil.example"), ("ip", "203.0.113.8")),
        "05": (("url", "http://evil.example/a|b"),), "11": (("ip", "203.0.113.11"),),
        "12": (("ip", "203.0.113.12"),), "13": (("sha256", "ab" * 32),),
    }  # fmt: skip
    first, last = found[0], next(entry for entry in found if entry.id == uuid(11))
    assert (first.since, first.modified) == ((MAY + 2 * 86400) * 10**6, (MAY + 4 * 86400) * 10**6)
    assert (first.confidence, first.threat, first.reference) == (50, "Event 1", f"misp:{uuid(1)}")
    assert first.labels.startswith('misp:confidence-level="fairly-confident", tlp:green')
    assert (last.since, last.until, last.confidence) == (MAY * 10**6, JUNE * 10**6, 100)
    assert next(entry.until for entry in found if entry.id == uuid(12)) is None
    assert left == {
        "no lookup for attributes of type comment": 1, "an address that is private or local": 1,
        "no text for a value": 1, "not 40 hex digits for sha1": 1,
    }  # fmt: skip


def test_forms_of_exports() -> None:
    """One event, a list, a search's answer; an empty answer has none; anything else is no export."""
    one = event(1, attribute(2, "ip-src", "203.0.113.7"))
    for document in (one, [one], {"response": [one]}, {"response": one}):
        assert len(read(document)[0]) == 1
    for document in ([], {"response": []}):
        assert read(document) == ([], {})
    for bad in ({}, {"objects": []}, 7, {"Event": []}):
        with pytest.raises(ValueError, match='there is no "Event"'):
            read(bad)
    left = LeftOut()
    strange = {"Event": {"Attribute": [7, {"to_ids": True}], "Object": {"a": 1}, "date": 7}}
    assert list(misp.export(io.BytesIO(json.dumps(strange).encode()), left)) == []
    assert set(left.reasons) == {"an attribute that is no object", "no lookup for attributes of type "}


def manifest(**changed: int) -> bytes:
    return json.dumps({uuid(int(name[1:])): {"timestamp": str(at)} for name, at in changed.items()}).encode()


def test_a_feed_folder(region: Region, tmp_path: Path) -> None:
    """On disk: events of the manifest; one that changed is read again, one no longer listed goes, one that is not
    there or broken is left out and stays as it was, a name that leaves the folder is none."""
    folder = tmp_path / "misp"
    folder.mkdir()
    (tmp_path / "secret.json").write_text(json.dumps(event(9, attribute(9, "ip-src", "203.0.113.9"))))

    def write(listed: bytes, **events: int) -> None:
        (folder / "manifest.json").write_bytes(listed)
        for name, address in events.items():
            number = int(name[1:])
            one = event(number, attribute(100 + number, "ip-src", f"203.0.113.{address}"))
            (folder / f"{uuid(number)}.json").write_text(json.dumps(one))

    region.feeds('name = "m"\ntype = "misp"\npath = "misp"\nkinds = ["ip"]')
    write(manifest(e1=MAY, e2=MAY), e1=1, e2=2)
    region.fetch()
    assert region.ips() == [1, 2]
    write(manifest(e1=MAY, e2=JUNE, e3=MAY), e1=4, e2=5, e3=3)  # e1 has the same timestamp: it is not read
    region.fetch()
    assert region.ips() == [1, 3, 5]
    (folder / f"{uuid(3)}.json").write_text("{")
    bad = json.loads(manifest(e2=JUNE, e3=JUNE, e4=JUNE)) | {"../secret": {"timestamp": str(JUNE)}, uuid(8): 7}
    (folder / "manifest.json").write_text(json.dumps(bad))
    left = region.fetch()["feeds"][0]["left_out"]
    assert sorted(one["reason"].partition(" (")[0] for one in left) == [
        "an entry of the manifest without UUID or timestamp", "an event of the manifest that is not there",
        "an event that cannot be read",
    ]  # fmt: skip
    assert region.ips() == [3, 5]
    (folder / "manifest.json").write_text("[]")
    assert "manifest.json: expects" in region.fetch(code=1)["feeds"][0]["error"]
    assert region.ips() == [3, 5]


def test_a_feed_folder_by_url(region: Region, server: Server) -> None:
    """Over TLS with the key as MISP takes it: the manifest by its ETag, then the events that changed; an event that
    the server has lost is left out, one that it fails to give ends the reading. Old events are not asked."""
    base = "/feed/"
    (region.folder / "token").write_text("abcdef\n")
    region.feeds(
        f'name = "m"\ntype = "misp"\nurl = "{server.url}{base}"\nca_file = "{server.ca}"\nkinds = ["ip"]\n'
        'token_file = "token"\nmax_age = "3650d"'
    )
    server.token = "abcdef"
    server.files[base + "manifest.json"] = manifest(e1=MAY, e2=1_000_000_000, e3=MAY)
    server.files[f"{base}{uuid(1)}.json"] = json.dumps(event(1, attribute(2, "ip-src", "203.0.113.1"))).encode()
    assert [one["reason"] for one in region.fetch()["feeds"][0]["left_out"]] == [
        "an event of the manifest that is not there"
    ]
    server.files[f"{base}{uuid(3)}.json"] = json.dumps(event(3, attribute(4, "ip-src", "203.0.113.3"))).encode()
    region.fetch()
    assert region.fetch()["feeds"][0]["changed"] is False
    assert [f"{path.removeprefix(base)} {status}" for path, status in server.asked] == [
        "manifest.json 200", f"{uuid(1)}.json 200", f"{uuid(3)}.json 404",
        "manifest.json 200", f"{uuid(3)}.json 200", "manifest.json 304",
    ]  # fmt: skip
    server.files[base + "manifest.json"] = manifest(e1=JUNE, e3=MAY)
    server.hooks[f"{base}{uuid(1)}.json"] = lambda: (500, {}, b"")
    assert f"{uuid(1)}.json: HTTP 500" in region.fetch(code=1)["feeds"][0]["error"]
    assert region.ips() == [1, 3]
