"""What decoders declare of the fields that they compute: whatever the text, they are these parts of it, or absent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vedette.decode import access, peers
from vedette.decode.computed import Cut, Part, compute
from vedette.decode.formats import services, zeek

TEXTS = st.one_of(
    st.text(alphabet="GET /a?b&HTP1.- \n", max_size=30),
    st.text(alphabet="[]:.0123fF%", max_size=30),
    st.from_regex(r"(GET|a) {1,3}(http://h)?[/a#?b ]{0,9} {0,2}(HTTP/1.1)? {0,2}", fullmatch=True),
    st.from_regex(r"\[?(::ffff:)?[0-9]{1,3}(\.[0-9]{1,3}){3}\]?(:[0-9]{1,5})?", fullmatch=True),
    st.text(max_size=20),
)
DECLARED: tuple[tuple[Callable[[Any], Mapping[str, Any]], Mapping[str, Part]], ...] = (
    (access.request_fields, access.REQUEST),
    (lambda text: {"src_ip": peers.plain(text)}, peers.PLAIN),
    (services._endpoint, peers.ENDPOINT),
    (access.uri_fields, access.URI),
    (zeek._uri_fields, zeek._URI_PARTS),
)


def may_be(part: Part, text: str, value: str) -> bool:
    """Whether a field of ``text`` may be ``value``."""
    if any(character in text for character in part.unless):
        return True
    for cuts in part.cuts:
        left = text
        for cut in cuts:
            left = cut.of(left)
        if left == value:
            return True
    return False


@pytest.mark.parametrize(("function", "parts"), DECLARED)
def test_declarations_hold(function: Callable[[Any], Mapping[str, Any]], parts: Mapping[str, Part]) -> None:
    """All that a function gives has a declaration, which has its value."""

    @given(TEXTS)
    @example("GET /a?b HTTP/1.1")
    @example("[::ffff:10.0.0.1]:22")
    def check(text: str) -> None:
        for name, value in function(text).items():
            assert may_be(parts[name], text, value), (name, value)

    check()


@pytest.mark.parametrize("parts", [parts for _, parts in DECLARED])
def test_separators_stand_alike_in_folded_texts(parts: Mapping[str, Part]) -> None:
    """The kernel cuts folded texts as well, byte by byte, so no separator is a letter."""
    for part in parts.values():
        assert part.unless.isascii()
        for cut in (cut for cuts in part.cuts for cut in cuts):
            assert len(cut.separator) == 1
            assert cut.separator.isascii()
            assert not cut.separator.isalpha()


def test_cuts() -> None:
    """Before and after the first and last of a separator, and where there is none."""
    cuts = [Cut("?", after, last) for last in (False, True) for after in (False, True)]
    assert [cut.of("a?b?c") for cut in cuts] == ["a", "b?c", "a?b", "c"]
    assert [cut.of("a") for cut in cuts] == ["a", "", "", "a"]


def test_a_part_may_be_anything_of_some_texts() -> None:
    """A character of ``unless`` lifts the claim."""
    part = Part(((Cut("?"),),), unless=":")
    assert may_be(part, "a?b", "a")
    assert not may_be(part, "a?b", "b")
    assert may_be(part, "a?:", "x")
    assert not may_be(Part((), unless=":"), "a", "a")


def test_plain_values_are_computed() -> None:
    """Whatever no one follows goes through the function."""
    fields: dict[str, Any] = {"a": 1}
    assert compute(fields, "x", lambda text: {"b": text * 2}, {})
    assert not compute(fields, "x", lambda text: {}, {})
    assert fields == {"a": 1, "b": "xx"}
