"""What is remembered by a name that a sender chose takes no more memory for long names."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from vedette.decode.entities import TOO_LONG, entities
from vedette.decode.programs import program_name
from vedette.decode.redact import Redaction, Rule
from vedette.decode.values import Value
from vedette.model.event import Entity
from vedette.mqtt.filters import IDENTIFIER, Copies

SIZE, NAMES = 100_000, 50
COPIES = Copies()


@pytest.mark.parametrize(
    "ask",
    [
        program_name,
        Redaction([Rule("mask", ("password",))]).named,
        Redaction([Rule("mask", ("password",))]).doubtful,
        lambda name: entities({name: "x", "user": name}, name),
        lambda name: COPIES.is_copy(name, b"digest", bytes([IDENTIFIER, 1])),
    ],
)
def test_of_long_names_nothing_stays(ask: Callable[[str], object]) -> None:
    ask("short")
    tracemalloc.start()
    try:
        for number in range(NAMES):
            ask(f"{number:0{SIZE}}")
        assert tracemalloc.get_traced_memory()[0] < 10 * SIZE
    finally:
        tracemalloc.stop()


def test_names_of_nested_values_do_not_grow() -> None:
    """An event of objects in each other, each with a long name: not every name has all those before it."""
    nested: Value = "x"
    for _ in range(900):
        nested = {"k" * 900: nested, "s": 1}
    fields = {"user": "kim", "o": nested}
    redaction = Redaction([Rule("mask", ("password",))])
    assert redaction.named(TOO_LONG)
    tracemalloc.start()
    try:
        assert entities(fields, None) == (Entity("user", "kim"),)
        assert redaction.case("", fields)._decoded
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
