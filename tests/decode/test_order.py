"""The order of a JSON object's names means nothing: of any make or declared format, written in any order, an event has
the same fields. Plugins that decode read texts."""

from __future__ import annotations

import json
from itertools import permutations
from random import Random
from typing import Any

from tests.deep import DEEP
from tests.differences import walk
from tests.engine.structures import GIVEN, TEMPLATES, Draw
from vedette.decode.aliases import ALIASES
from vedette.decode.declared import declared
from vedette.decode.decoder import ABSENT, Record, from_mapping, heads, record
from vedette.decode.formats.table import SHAPES, shape_of
from vedette.decode.values import from_json

EXAMPLES = DEEP or 1000

CONFLICTS: tuple[dict[str, Any], ...] = (
    {"winlog.channel": "$channel", "winlog.log_name": "$channel", "winlog.event_data.Image": "$path",
     "winlog.user_data.Image": "$path", "winlog.event_data.EventID": "$id", "winlog.event_id": "$id"},
    {"winlog.event_data.Image": "$path", "winlog.user_data.Image": "$path", "winlog.log_name": "$channel"},
    {"winlog.event_data.EventID": "$id", "winlog.user_data.Channel": "$channel", "winlog.source_name": "$provider"},
    {"winlog": {"log_name": "$channel", "user_data": {"Image": "$path", "Channel": "$channel", "a": "$text"}}},
    {"event_data": {"Image": "$path", "Data": [{"@Name": "Image", "#text": "$text"}]}, "user_data": {"Image": "$path"}},
    {"Event": {"UserData": {"Image": "$path", "Data": {"Name": "Image", "Value": "$text"}}}, "channel": "$channel"},
    {"System": {"EventID": "$id", "Channel": "$channel"}, "EventData": {"EventID": "$id", "EventType": "CreateKey"},
     "UserData": {"b": {"Channel": "$channel", "a": "$text"}, "a": {"a": "$text", "c": {"a": "$path"}}}},
    {"data": {"win": {"system": {"eventID": "$id", "channel": "$channel"}, "eventdata": {"image": "$path"},
                      "b": {"a": "$text"}, "a": {"a": "$path"}}}, "LogName": "$channel", "Id": "$id"},
    {"event_id": {"id": "$id"}, "channel": "$channel", "event_data": {"data": [{"Image": "$path"}, {"": "$text"}]},
     "provider": {"name": "$provider"}, "param1": "$text", "param2": "$text", "StringInserts": ["$text"]},
    {"source.ip": "$ip", "source": {"ip": "$ip"}, "src_ip": "$ip", "user.name": "$text", "user": {"name": "$text"}},
)  # fmt: skip
"""Further places of names that the templates have."""


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both, also what lies within."""
    both = one | other
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict) and isinstance(other[name], dict):
            both[name] = merged(one[name], other[name])
    return both


def filled(draw: Draw, template: Any) -> Any:
    if isinstance(template, dict):
        return {name: filled(draw, inner) for name, inner in template.items() if draw.random.random() < 0.9}
    if isinstance(template, list):
        return [filled(draw, inner) for inner in template]
    return draw.random.choice((1, 4688)) if template == "$id" and draw.random.random() < 0.4 else draw.text(template)


def shuffled(random: Random, value: Any) -> Any:
    """``value`` with the names of every object in another order."""
    if isinstance(value, list):
        return [shuffled(random, item) for item in value]
    if not isinstance(value, dict):
        return value
    members = [(name, shuffled(random, inner)) for name, inner in value.items()]
    random.shuffle(members)
    return dict(members)


def says(event: Record) -> tuple[Any, ...]:
    """What depends on an event, but for its text."""
    fields = {name: value for name, value in event.fields().items() if name != "message"}
    return fields, event.source, event.host, event.event_time, sorted(event.keywords())


DECLARED = declared(
    {
        "name": "own", "json": True, "rename": {"a": "x", "n.x": "x", "user.name": "y", "user": "y", "src_ip": "z"},
        "set": {"made": "1"}, "time": {"field": "@timestamp"}, "logsource": {"product": "p"},
    }
).codec  # fmt: skip


def test_an_event_of_any_make_in_any_order() -> None:
    """Fields, log source, host, time and what keywords search, by itself, as the message of a syslog line and in a
    declared format."""
    makes: set[str] = set()
    for seed in range(EXAMPLES):
        draw = Draw(seed)
        random, template = draw.random, {}
        for part in random.sample(TEMPLATES + CONFLICTS + CONFLICTS, random.choice((1, 2, 2, 3))):
            template = merged(template, part)
        event = filled(draw, template)
        texts = [json.dumps(each).encode() for each in (event, shuffled(random, event))]
        makes.update(make.name for make in (shape_of(event),) if make is not None)
        line = b"<38>Nov 20 10:00:00 web1 app[12]: "
        for head, codec in ((b"", "auto"), (b"", "windows"), (b"", DECLARED), (line, "syslog")):
            one, other = (says(record(head + text, codec)) for text in texts)
            assert one == other, (seed, codec, *texts)
    assert makes == SHAPES.keys()


def test_a_field_has_a_head() -> None:
    """What an object has no head of it has not, whatever gives its fields."""
    present = 0
    for seed in range(EXAMPLES):
        draw = Draw(seed)
        structure = draw.structure()
        text = structure.event().encode("utf-8", "surrogatepass")
        value = from_json(text)
        assert isinstance(value, dict)
        if not value or "MESSAGE" in value:  # the journal's message is read as text
            continue
        for codec in ("auto", "windows", "zeek", DECLARED):
            event = record(text, codec)
            names = event.fields().keys()
            for field in {*structure.names, *GIVEN, *ALIASES}:
                if event.get(field) is not ABSENT:
                    present += 1
                    assert not heads(field).isdisjoint(names), (seed, codec, field, text)
    assert present > 10 * EXAMPLES


@walk(
    ("event", "wanted"),
    [
        ({"winlog.channel": "c", "winlog.event_data.x": "1", "winlog.user_data.x": "2"}, {"x": "2"}),
        ({"winlog": {"event_data": {"x": "1"}, "user_data": {"x": "2"}}}, {"x": "2"}),
        ({"Event": {"System": {"EventID": 1}, "EventData": {"x": "1"}, "UserData": {"x": "2"}}}, {"x": "2"}),
        ({"winlog.event_id": 1, "winlog.event_data.EventID": 2}, {"EventID": 1}),
        ({"winlog": {"event_id": 1, "event_data": {"EventID": 2}}}, {"EventID": 1}),
        ({"winlog": {"event_data": {"EventID": 2}}}, {"EventID": 2}),
        ({"System": {"EventID": 1}, "UserData": {"b": {"x": "1"}, "a": {"x": "2", "c": {"x": "3"}}}}, {"x": "1"}),
        ({"winlog.channel": "a", "winlog.log_name": "b"}, {"Channel": "a"}),
        ({"winlog": {"channel": "a", "log_name": "b"}}, {"Channel": "a"}),
        ({"winlog.channel": "b", "winlog": {"channel": "a"}}, {"Channel": "a"}),
        ({"event_data": {"x": "1", "Data": [{"@Name": "x", "#text": "2"}]}}, {"x": "1"}),
        ({"winlog.channel": "a", "winlog.event_data.x": "1", "x": "0"}, {"x": "0"}),
        ({"winlog.channel": "a", "winlog.event_data.x": {"#text": "1"}, "y": "2"}, {"x": "1", "y": "2"}),
    ],
)
def test_the_place_of_a_windows_events_name_that_wins(event: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The same of nested and of dotted names: the head before data, of data the user's, names of their own first."""
    for order in permutations(event):
        for turned in (False, True):
            written = {name: reversed_names(event[name]) if turned else event[name] for name in order}
            found = from_mapping(written)
            assert {name: found.get(name) for name in wanted} == wanted, written


def test_a_name_that_occurs_twice() -> None:
    """The last counts, also where bytes that are no UTF-8 make another reader read it."""
    for written in (
        b'{"a":"1","b":"%s","a":"2"}',
        b'{"a":"1","b":"%s","\\u0061":"2"}',
        b'{"b":"%s","a":{"x":1},"a":"2"}',
    ):
        for text in (b"x", b"\xff"):
            assert record(written % text, "json").get("a") == "2"


def reversed_names(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: reversed_names(inner) for name, inner in reversed(value.items())}
