"""Documents by their classes: what is refused, with its place and what is expected there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct, field

from tests.differences import walk
from vedette.system import documents
from vedette.system.documents import Count, Misfit, Name, Sha256, Time, unique


class Colour(StrEnum):
    RED = "red"


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    size: Annotated[int, Meta(ge=0, le=9, description="0 to 9")] = 0
    from_: Sha256 | None = field(default=None, name="from")


class Whole(Struct, frozen=True):
    parts: Annotated[tuple[Part, ...], Meta(max_length=2, description="at most 2 parts")]
    by_name: Mapping[Name, Part] = {}
    pair: tuple[Count, str] = (0, "")
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] = "a"
    any: bool | float = 0.0
    data: bytes = b""
    time: Time = 0

    def __post_init__(self) -> None:
        unique((part.name for part in self.parts), "parts")
        if self.kind == "b":
            raise ValueError("b is for nobody")


@walk(
    ("bend", "reason"),
    [
        ({"parts": None}, "parts: expects at most 2 parts, not None"),
        ({"parts": [{"name": "a"}] * 3}, "parts: expects at most 2 parts, not a list of 3"),
        ({"parts": [{}]}, "parts[0].name: expects letters, digits, '.', '_' or '-', not None"),
        ({"parts": [{"name": "a\n"}]}, "parts[0].name: expects letters, digits, '.', '_' or '-', not 'a\\n'"),
        ({"parts": [7]}, "parts[0]: expects an object, not 7"),
        ({"parts": [{"name": "a", "size": True}]}, "parts[0].size: expects 0 to 9, not True"),
        ({"parts": [{"name": "a", "sise": 1}]}, "parts[0]: sise: unknown key; known: name, size, from"),
        ({"parts": [{"name": "a", "from": "x"}]}, "parts[0].from: expects 64 lower-case hex digits, not 'x'"),
        ({"parts": [{"name": "a"}] * 2}, "parts[1]: the name 'a' is used twice"),
        ({"by_name": {"../x": {"name": "a"}}}, "by_name.../x: expects letters, digits, '.', '_' or '-', not '../x'"),
        ({"by_name": {"x": {"name": "a", "size": 10}}}, "by_name.x.size: expects 0 to 9, not 10"),
        ({"parts": {"a": 1}}, "parts: expects at most 2 parts, not an object"),
        ({"kind": {"a": 1}}, "kind: expects one of a, b, not an object"),
        ({b"x": 1, "y": 2}, "b'x': unknown key; known: parts, by_name, pair, colour, kind, any, data, time"),
        ({"pair": [1]}, "pair: expects a list of 2, not a list of 1"),
        ({"pair": [1.0, ""]}, "pair[0]: expects a whole number from 0, not 1.0"),
        ({"pair": [1, {}]}, "pair[1]: expects a text, not an object"),
        ({"colour": "blue"}, "colour: expects one of red, not 'blue'"),
        ({"kind": "c"}, "kind: expects one of a, b, not 'c'"),
        ({"kind": "b"}, "b is for nobody"),
        ({"any": "1"}, "any: expects true or false or a number, not '1'"),
        ({"data": "?"}, "data: expects Base64, not '?'"),
        ({"time": "noon"}, "time: expects a time such as \"2026-11-22T00:00:00Z\", not 'noon'"),
    ],
)
def test_refused(bend: dict[Any, Any], reason: str) -> None:
    """The first thing that does not fit is named by its place, what is expected and what is there."""
    with pytest.raises(ValueError, match=r".") as caught:
        documents.read(Whole, {"parts": [], **bend})
    assert str(caught.value) == reason


def test_read() -> None:
    """What fits is read as its class, and unknown fields are passed over where the class lets them."""
    row = {"parts": [{"name": "a", "from": "0" * 64}], "time": "1970-01-01T00:00:01Z", "data": "eA==", "more": 1}
    assert documents.read(Whole, row) == Whole((Part("a", 0, "0" * 64),), time=1_000_000, data=b"x")


def test_where_and_what_is_raised() -> None:
    """The caller says where the value stands, and what is to be raised."""
    with pytest.raises(Misfit, match=r"^key: part\.size: expects 0 to 9, not -1$"):
        documents.read(Part, {"name": "a", "size": -1}, "part", refused=lambda text: Misfit("key", text))  # type: ignore[arg-type]


@walk(
    ("data", "reason"),
    [
        (b"[]", "expects a JSON object"),
        (b"{", "not JSON"),
        (b'{"format": 2}', "format 2: this agent knows 1: upgrade the agent"),
        (b'{"format": {"a": 1}}', "format an object: this agent knows 1"),
        (b'{"format": 1}' + b" " * 30, "43 bytes, at most 40"),
        (b'{"format": 1, "a": ' + b"[" * 40, "not JSON|at most"),
    ],
)
def test_what_cannot_be_opened(data: bytes, reason: str) -> None:
    """Another format, another form, more bytes than it may have."""
    with pytest.raises(ValueError, match=reason):
        documents.opened(data, 40, 1)
