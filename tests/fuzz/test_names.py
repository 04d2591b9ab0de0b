"""Names and paths from outside, at every place of agent and region that takes one: bundles, documents, requests,
announcements, settings, the landing, enrolment, evidence, archives, feeds, decoders. None leads out of its folder.

``VEDETTE_DEEP=N`` draws N instead of 100. The console: ``test_names_console.py``; commands: ``test_names_commands.py``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.findings.proposals import file_name
from tests.bundle.conftest import Author
from tests.bundle.test_install import folder as bundle_folder
from tests.bundle.test_manifest import MANIFEST
from tests.deep import examples
from tests.delivery.kit import alert
from tests.fleet.test_documents import WHOLE
from tests.fuzz.outside import Box, names, refusal
from vedette.archive.archiver import _row
from vedette.archive.index import Row
from vedette.archive.stores import FolderStore
from vedette.bundle.manifest import Manifest
from vedette.bundle.seal import seal
from vedette.config.read import parse
from vedette.decode.declared import declared
from vedette.delivery.envelope import encode, pack_batch
from vedette.delivery.topics import parse as parse_topic
from vedette.fleet import enrolment, releases
from vedette.fleet.documents import canonical, read_desired
from vedette.fleet.requests import Refused, Request
from vedette.fleet.requests import read as read_request
from vedette.lookup.build import Key, build
from vedette.lookup.layout import Column
from vedette.lookup.offer import Announcement
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.region import fleetfile
from vedette.region.enroll import Region
from vedette.region.evidence import manifest_of
from vedette.region.feeds import misp
from vedette.region.feeds.entry import LeftOut
from vedette.region.feeds.settings import Feed
from vedette.region.land import Landing, LandingSettings, _taken_apart
from vedette.region.requests import find
from vedette.system.within import is_name, is_path, within

SETTINGS = """
[agent]
id = "X"
site = "X"
fleet = "X"
data_dir = "{folder}/data"
[bundles]
channel = "X"
[[ruleset]]
name = "X"
channel = "X"
[[enrich]]
lookup = "X"
entity = "ip"
[[input]]
type = "file"
name = "X"
format = "X"
paths = ["/nowhere"]
[[sink]]
type = "webhook"
name = "X"
url = "https://sink.example"
[plugins]
allow = ["X"]
[response]
table = "X"
"""
"""Each X is one name."""
FLEET_TOML = """
[[group]]
name = "X"
match = "all"
bundle = "X"
config = "X"
release = "X"
[group.lookups]
"X" = "X"
"""
RELEASE = releases.Release("0.1.0", {"x86_64": releases.Archive("0" * 64, 1, ("0" * 64,), "a" * 16)})
ENROLMENT = enrolment.Request("0" * 32, "0" * 16, "plants", "web-1", "csr", "0" * 64, "0.1.0", 1)
ROW = Row(
    "00000000-00000000000000000000-" + "0" * 32 + ".seg", "verified", 1, "0" * 64, 1, 1, 1, 1, 1, 1, 1, "0" * 64, (), ""
)


def replaced(text: str, number: int, name: str) -> str:
    """``text`` with one X of a TOML as the drawn name, the others as a plain one."""
    parts = text.split("X")
    at = number % (len(parts) - 1)
    try:
        written = json.dumps(name, ensure_ascii=False)[1:-1].encode().decode()
    except UnicodeEncodeError:
        written = "\\uFFFD"
    between = [written if i == at else "x" for i in range(len(parts) - 1)]
    return "".join(part + name for part, name in zip(parts, [*between, ""], strict=True))


def leaves(value: Any) -> Iterator[Callable[[str], None]]:
    """Ways to put a name in place of each text of a document, keys too."""
    if isinstance(value, dict):
        for key in list(value):
            yield from leaves(value[key])
            if isinstance(value[key], str):
                yield lambda name, key=key: value.__setitem__(key, name)
            yield lambda name, key=key: value.__setitem__(name, value.pop(key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from leaves(item)
            if isinstance(item, str):
                yield lambda name, at=at: value.__setitem__(at, name)


def bent(data: bytes, number: int, name: str) -> bytes:
    """A JSON document with the name in one place of it."""
    document = json.loads(data)
    places = list(leaves(document))
    places[number % len(places)](name)
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"


class Places:
    """Each public method is a place, which takes a drawn name, and a number that says where in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._author = Author(folder / "author.pem")
        self._bundles = bundle_folder(folder / "bundles", [self._author.public])
        asked = Request(
            "plants", "ask", "ann", 1 << 50, 1 << 51, {"x": "y"}, ("web-1",), None, "case 17", *["0" * 32] * 2
        )
        self._asked = asked.signed(self._author.key)
        for name in ("requests", "archive", "fleet", "evidence"):
            (folder / name).mkdir()

    def a_path(self, name: str, number: int) -> None:
        place = within(self._folder, name)
        assert is_path(name)
        assert place.resolve().is_relative_to(self._folder.resolve())

    def a_name(self, name: str, number: int) -> None:
        assert not is_name(name) or (Path(name).name == name and not name.startswith("."))

    def part_of_a_bundle(self, name: str, number: int) -> object:
        data = self._author.bundle(2, **{("sources", "databases")[number % 2]: {name: b"title: a rule\n"}})
        return self._bundles.install(data, lambda bundle: bundle.plan)

    def manifest(self, name: str, number: int) -> object:
        return Manifest.from_bytes(bent(MANIFEST.to_bytes(), number, name))

    def seal_of_a_bundle(self, name: str, number: int) -> object:
        return seal(b"x", self._author.key, *(("f1", name) if number % 2 else (name, "stable")))

    def topic(self, name: str, number: int) -> None:
        topic = parse_topic("/".join(["vedette/v1", *((name, "a1") if number % 2 else ("f1", name)), "alerts"]))
        assert is_name(topic.fleet)
        assert is_name(topic.agent_id)

    def landed_alert(self, name: str, number: int) -> None:
        row = msgpack.unpackb(encode(alert(1)))
        row[("alert_id", "agent_id", "fleet", "site", "rule_id")[number % 5]] = name
        payload = pack_batch("ab" * 16, [msgpack.packb(row)])
        agent = name if number % 3 == 0 else "a1"
        landing = Landing(LandingSettings(MqttSettings("mqtt://127.0.0.1:1"), self._folder / "landing"))
        batch = landing._decode([_taken_apart(Message(f"vedette/v1/f1/{agent}/alerts", payload, 1, False, False, 1))])
        for landed in batch.rows["alerts"]:
            assert is_name(landed["alert_id"])
            assert is_name(landed["agent_id"])

    def evidence_of_an_alert(self, name: str, number: int) -> None:
        place = manifest_of(self._folder / "evidence", name, "0" * 32)
        assert place.parent.parent == self._folder / "evidence"

    def member(self, name: str, number: int) -> object:
        with Region.open(self._folder / "region") as region:
            return (
                lambda: region.enroll(name, role="agent", fleet="plants"),
                lambda: region.enroll("web-1", role="agent", fleet=name),
                lambda: region.member(name),
                lambda: region.revoke(name),
                lambda: region.consent(name),
            )[number % 5]()

    def token(self, name: str, number: int) -> object:
        return enrolment.parse_token(f"v1:{name}:{'0' * 16}:{'A' * 43}")

    def enrolment(self, name: str, number: int) -> None:
        body = enrolment.frame(enrolment.REQUEST, ENROLMENT, b"key").partition(b"\n")[2]
        changed = bent(body, number, name)
        signed = enrolment._mac(enrolment.REQUEST, changed, b"key").encode() + b"\n" + changed
        assert is_name(enrolment.read_request(signed, b"key").name, 64)

    def request(self, name: str, number: int) -> object:
        envelope = json.loads(bent(self._asked, number, name))
        request, _ = read_request(canonical(envelope))
        assert is_name(request.fleet)
        assert is_name(request.operator)
        return request

    def kept_request(self, name: str, number: int) -> object:
        return find(self._folder / "requests", name)

    def desired(self, name: str, number: int) -> object:
        return read_desired(bent(WHOLE.to_bytes(), number, name), "plants")

    def release(self, name: str, number: int) -> object:
        return releases.read(bent(RELEASE.to_bytes(), number, name))

    def fleet_file(self, name: str, number: int) -> object:
        path = self._folder / "fleet" / "fleet.toml"
        path.write_text(replaced(FLEET_TOML, number, name))
        return fleetfile.read(path, "plants")

    def settings(self, name: str, number: int) -> None:
        config = parse(replaced(SETTINGS, number, name).replace("{folder}", str(self._folder)))
        agent, data = config.agent, self._folder / "data"
        for ruleset in config.rulesets:
            assert agent.bundle_dir(ruleset.name).resolve().is_relative_to(data.resolve())
        for own in (agent.id, agent.site, agent.fleet, *(item.name for item in (*config.input, *config.sink))):
            assert is_name(own)
        assert all(is_name(lookup.lookup) for lookup in config.enrich)

    def announced_lookup(self, name: str, number: int) -> object:
        row = {"name": "users", "version": "0" * 64, "created": 1, "rows": 1, "size": 1, "offer": "0" * 64}
        return Announcement.from_bytes(bent(json.dumps(row).encode(), number, name))

    def built_lookup(self, name: str, number: int) -> object:
        target = self._folder / "built.vlookup"
        return build(target, [Column("ip", "text")], [Key(("ip",), "exact")], [], created=1, name=name or ".")

    def archive(self, name: str, number: int) -> object:
        store = FolderStore(self._folder / "archive")
        key = f"a1/{ROW.segment}.json"
        store.put(key, [bent(ROW.encode(), 1 if number % 2 else number, name)])
        row = _row(store, key)
        assert Path(row.segment).name == row.segment
        return row

    def feed(self, name: str, number: int) -> None:
        mistakes = list(Feed(name, "misp", path=self._folder).mistakes())
        assert mistakes or is_name(name, 64)
        listing = json.dumps({name: {"timestamp": "1"}}).encode()
        for event in misp.manifest(io.BytesIO(listing), LeftOut()):
            assert is_name(event.uuid)

    def decoder(self, name: str, number: int) -> None:
        assert is_name(declared({"name": name, "regex": "(?P<a>x)", "starts": "x"}).name)

    def proposed_filter(self, name: str, number: int) -> None:
        file = file_name(name)
        assert Path(file).name == file
        assert len(file.encode()) <= 200


PLACES = [name for name in vars(Places) if not name.startswith("_")]


def test_no_name_leads_out(box: Box) -> None:
    """Whatever the name, and wherever it stands: refused by an error of the place's own, or taken within its folder."""
    places = Places(box.folder)

    @examples(100)
    @given(names(box), st.sampled_from(PLACES), st.integers(0, 99))
    def tried(name: str, place: str, number: int) -> None:
        what = f"{place} {number}: {name!r}"
        with box.closed(what):
            refusal(what, lambda: getattr(places, place)(name, number), Refused, LookupError)

    tried()


def test_the_box_sees_what_leaves_it(box: Box) -> None:
    """Reading, writing, making and deleting outside are seen, by a link too."""
    above = box.folder.parent
    with box.closed("inside"):
        (box.folder / "new").write_text("x")
    for what, doing in (
        ("read", lambda: (above / "canary").read_text()),
        ("write", lambda: (above / "canary.yml").write_text("x")),
        ("make", lambda: (box.folder / "out" / "new").write_text("x")),
        ("list", lambda: list(above.iterdir())),
        ("delete", lambda: (box.folder / "out" / "canary").unlink()),
    ):
        with pytest.raises(AssertionError, match=what), box.closed(what):
            doing()
    with pytest.raises(AssertionError):
        refusal("shown", (box.folder.parent / "canary").read_text)


def test_two_rules_two_files() -> None:
    """Filters of rules whose ids have other signs, or are long, share no file."""
    ids = ["a.b", "a:b", "a/b", "a_b", "é", "x" * 500, "x" * 501, "", ".."]
    ids += [file_name(id).removeprefix("filter-").removesuffix(".yml") for id in ids if "/" in id or ":" in id]
    assert len({file_name(id) for id in ids}) == len(ids)
    assert file_name("5b7e1c1a-6d0e") == "filter-5b7e1c1a-6d0e.yml"
