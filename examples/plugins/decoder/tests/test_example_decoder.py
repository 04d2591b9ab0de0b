"""What a turnstile's message says."""

from __future__ import annotations

from vedette_example_decoder import Gate


def test_read() -> None:
    """Gate and direction as they stand, the badge as a number; other messages have no fields."""
    gate = Gate()
    assert gate.read("GATE3 IN 00A1F3") == {"gate": "GATE3", "direction": "IN", "badge": 41459}
    assert gate.read("GATE3 IN") == gate.read("") == {}
    assert gate.fields.keys() == gate.read("GATE3 IN 00A1F3").keys()
