"""Formats of a table: what they give, what is wrong with a table, and their bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differences import walk
from vedette.decode import declared as made_of
from vedette.decode import grok
from vedette.decode.bounded import QUARANTINE_AFTER
from vedette.decode.declared import Declared, declared, from_text
from vedette.decode.decoder import ABSENT, record
from vedette.decode.formats.base import Provenance
from vedette.model.times import iso_time

GATE = {
    "name": "gate",
    "starts": "GATE",
    "regex": r"(?P<g>GATE\d+) (?P<way>IN|OUT)(?: (?P<badge>\w+))?",
    "rename": {"g": "gate.name"},
    "map": {"way": {"IN": "entry"}},
    "set": {"vendor": "acme"},
    "logsource": {"product": "acme", "service": "gates"},
}


def fields(table: dict[str, Any] | Declared, text: str) -> dict[str, Any]:
    one = table if isinstance(table, Declared) else declared(table)
    return dict(record(text.encode(), one.codec).fields())


def test_a_pattern() -> None:
    """Groups are fields, under their other names; values are translated, and fixed ones added."""
    found = fields(GATE, "GATE3 IN 00A1F1\n")
    assert found == {
        "gate.name": "GATE3", "way": "entry", "badge": "00A1F1", "vendor": "acme", "message": "GATE3 IN 00A1F1",
    }  # fmt: skip
    assert fields(GATE, "GATE3 OUT")["way"] == "OUT"
    assert "badge" not in fields(GATE, "GATE3 OUT")


def test_behind_a_header() -> None:
    """The message of a syslog line is read; the header's fields stay the header's."""
    event = record(b"<13>Feb  1 10:00:00 host app: GATE3 IN", declared(GATE).codec)
    assert (event.get("gate.name"), event.get("hostname"), event.get("program")) == ("GATE3", "host", "app")
    assert (event.source.products, "gates" in event.source.services) == ({"acme"}, True)


def test_none_of_the_format() -> None:
    """What does not begin so, or does not fit, has no field of the format; the first is not of its log source."""
    for text in ("DOOR3 IN", "GATE IN"):
        assert fields(GATE, text) == {"message": text}
    assert record(b"DOOR3 IN", declared(GATE).codec).source.products == frozenset()


def test_provenance() -> None:
    """It is derived: what is cut out is verbatim, what is translated or fixed is synthetic."""
    row = declared(GATE).codec.row
    assert row is not None
    assert {one.name: one.how for one in row.gives.fields} == {
        "gate.name": Provenance.VERBATIM, "badge": Provenance.VERBATIM,
        "way": Provenance.SYNTHETIC, "vendor": Provenance.SYNTHETIC,
    }  # fmt: skip


def test_grok() -> None:
    """Patterns by name, the table's own among them; fields may have dots."""
    table = {
        "name": "fw",
        "grok": ["%{IP:source.ip} -> %{IP:dst_ip}:%{PORT:dst_port} %{ACT:action}", "%{GREEDYDATA:rest}"],
        "patterns": {"ACT": "%{VERB}|denied", "VERB": r"\w+ped"},
    }
    assert fields(table, "2001:db8::1 -> 10.0.0.1:443 dropped") == {
        "source.ip": "2001:db8::1", "dst_ip": "10.0.0.1", "dst_port": "443", "action": "dropped",
        "message": "2001:db8::1 -> 10.0.0.1:443 dropped",
    }  # fmt: skip
    assert fields(table, "else")["rest"] == "else"


@walk(
    ("name", "yes", "no"),
    [
        ("IP", ("10.0.0.1", "::1", "fe80::1%eth0"), ("x", "10.0.0")),
        ("NUMBER", ("1", "-1.5", ".5"), ("x",)),
        ("TIMESTAMP_ISO8601", ("2026-02-01T10:00:00.5Z", "2026-02-01 10:00:00+01:00"), ("10:00",)),
        ("HTTPDATE", ("10/Oct/2025:13:55:36 +0000",), ("10 Oct",)),
        ("SYSLOGTIMESTAMP", ("Feb  1 10:00:00",), ("1 Feb",)),
        ("MAC", ("00:11:22:aa:bb:cc", "0011.22aa.bbcc"), ("00:11",)),
        ("UUID", ("6a1f0000-0000-4000-8000-000000000087",), ("6a1f",)),
        ("QS", ('"a \\" b"', "'x'"), ('"a',)),
        ("EMAILADDRESS", ("a.b@c.de",), ("a.b",)),
        ("URI", ("https://a/b?c",), ("/a",)),
        ("PATH", ("/a/b", r"C:\a"), ("a",)),
    ],
)
def test_patterns(name: str, yes: tuple[str, ...], no: tuple[str, ...]) -> None:
    """A pattern of the table takes what its name says."""
    one = declared({"name": "x", "header": "none", "grok": f"%{{{name}:it}}$"})
    for text in yes:
        assert fields(one, text).get("it") == text
    for text in no:
        assert "it" not in fields(one, text)


def test_every_pattern_compiles() -> None:
    """All names of the table can be used."""
    for name in grok.PATTERNS:
        declared({"name": "x", "grok": f"%{{{name}:it}}"})


@pytest.mark.parametrize(
    ("own", "text", "expected"),
    [
        ({}, "a=1 b=x,y c", {"a": "1", "b": "x,y"}),
        ({}, 'a="1 2" b=\'3\' c="4', {"a": "1 2", "b": "3", "c": '"4'}),
        ({"pairs": ";", "is": ":"}, "a: 1 ;junk; b:2;a:3", {"a": ["1", "3"], "b": "2"}),
        ({"pairs": "||", "is": "=>"}, "junk||k=>v||", {"k": "v"}),
        ({"quotes": ""}, 'a="1 b=2', {"a": '"1', "b": "2"}),
        ({"pairs": "\t"}, "a=1 2\tb==", {"a": "1 2", "b": "="}),
        ({}, "=", {}),
        ({}, "", {}),
    ],
)
def test_pairs(own: dict[str, str], text: str, expected: dict[str, Any]) -> None:
    """Keys and values as they stand between the separators."""
    found = fields({"name": "x", "key_value": own}, text)
    del found["message"]
    assert found == expected


def test_json() -> None:
    """Paths of a JSON object are further fields; its own go before them."""
    table = {
        "name": "x", "json": True, "rename": {"src.addr": "src_ip", "items.n": "n", "w": "when", "gone": "a"},
        "set": {"vendor": "acme"}, "time": {"field": "when"}, "logsource": {"category": "c"},
    }  # fmt: skip
    text = '{"src": {"addr": "10.0.0.1"}, "items": [{"n": 1}, {"n": 2}], "w": "2026-02-01T10:00:00Z", "vendor": "own"}'
    event = record(text.encode(), declared(table).codec)
    assert (event.get("src_ip"), event.get("n"), event.get("vendor"), event.get("a")) == (
        "10.0.0.1", [1, 2], "own", ABSENT,
    )  # fmt: skip
    assert event.event_time == iso_time("2026-02-01T10:00:00Z")
    behind = declared({**table, "header": "syslog"})
    assert record(b"<13>Feb  1 10:00:00 h a: " + text.encode(), behind.codec).get("src_ip") == "10.0.0.1"


@pytest.mark.parametrize(
    ("form", "text", "time"),
    [
        (None, "2026-02-01T10:00:00Z", "2026-02-01T10:00:00Z"),
        ("%d.%m.%Y %H:%M:%S", "01.02.2026 10:00:00", "2026-02-01T10:00:00Z"),
        ("%d/%m/%y %H:%M %z", "01/02/26 10:00 +0200", "2026-02-01T08:00:00Z"),
        ("%d.%m.%Y", "32.02.2026", None),
    ],
)
def test_times(form: str | None, text: str, time: str | None) -> None:
    """When it happened, by a field."""
    own = {"field": "t"} if form is None else {"field": "t", "format": form}
    event = record(text.encode(), declared({"name": "x", "header": "none", "regex": "(?P<t>.+)", "time": own}).codec)
    assert event.event_time == (None if time is None else iso_time(time))


@walk(
    ("change", "mistake"),
    [
        ({"name": "Gate"}, "name: expects a-z, then up to 63"),
        ({"json": True}, "expects one of regex, grok, key_value, json, not regex and json"),
        ({"regexp": "x"}, "regexp: unknown key; known: name, description"),
        ({"regex": "(?P<a>"}, "regex: missing )"),
        ({"regex": ["x", 1]}, "regex[1]: expects a text, not 1"),
        ({"regex": "x" * 20000}, "regex: longer than 16384 characters"),
        ({"regex": "(?P<hostname>x)", "rename": {}}, "field 'hostname': is a name that the agent gives"),
        ({"regex": "(?P<message>x)", "rename": {}}, "field 'message': is a name that the agent gives"),
        ({"set": {"topic_level_3": "x"}}, "field 'topic_level_3': is a name that the agent gives"),
        ({"rename": {"none": "x"}}, "rename.none: no group has this name"),
        ({"header": "rfc5424"}, 'header: expects "syslog" or "none"'),
        ({"rename": ["g"]}, "rename: expects a table of texts"),
        ({"map": {"way": "x"}}, "map: expects tables of texts by field"),
        ({"starts": [""]}, "starts: expects a text, or a list of texts"),
        ({"logsource": {"vendor": "x"}}, "logsource.vendor: unknown key; known: product, category, service"),
        ({"time": "x"}, 'time: expects {field = "…"}'),
        ({"time": {"field": "x", "format": "%H:%M"}}, "time.format: expects a date of strptime with a year"),
        ({"examples": [{"text": "x"}]}, "examples[0]: expects message"),
        ({"set": {"x": "y" * 300000}}, "more than 262144 bytes"),
    ],
)
def test_mistakes(change: dict[str, Any], mistake: str) -> None:
    """Each is reported with its key."""
    with pytest.raises(ValueError, match=r".") as caught:
        declared({**GATE, **change})
    assert any(line.startswith(mistake) for line in str(caught.value).splitlines()), caught.value


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("%{NOPE:x}", "grok: %{NOPE:x}: there is no pattern NOPE"),
        ("%{INT:x:int}", "grok: %{INT:x:int}: values are texts: leave out :int"),
        ("%{A}", "grok: patterns name each other more than 16 deep"),
        ("%{B}", "grok: longer than 16384 characters with all that it names"),
    ],
)
def test_mistakes_of_grok(text: str, mistake: str) -> None:
    """Names that are not there, types, patterns without end."""
    own = {"A": "%{A}", "B": "%{C}" * 200, "C": "x" * 200}
    with pytest.raises(ValueError, match=r".") as caught:
        declared({"name": "x", "grok": text, "patterns": own})
    assert str(caught.value) == mistake


def test_a_pattern_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes too long gives nothing, and after some times the format reads no more; another one does."""
    monkeypatch.setattr(made_of, "TIMEOUT", 0.005)
    slow = declared({"name": "slow", "regex": r"(?P<x>(?:a|aa)+)+[xy]\d"})
    text = "a" * 60 + "x!"
    for count in range(1, QUARANTINE_AFTER + 1):
        assert fields(slow, text) == {"message": text}
        assert slow.guard.overruns == count
    assert slow.guard.quarantined
    assert "x" not in fields(slow, "ax1")
    assert slow.guard.overruns == QUARANTINE_AFTER
    assert not declared(GATE).guard.quarantined


def test_its_text() -> None:
    """A format is what its table says, wherever that is written."""
    one, other = declared(GATE, "a.toml"), declared(dict(reversed(GATE.items())), "b.toml")
    assert one == other == from_text(one.text)
    assert one != declared({**GATE, "starts": "G"})
