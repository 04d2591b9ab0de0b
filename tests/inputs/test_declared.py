"""Inputs whose format comes with the rules: none looks it up among the built-in ones, where it is not."""

from __future__ import annotations

import pytest

from tests.inputs.intake import Bin, agent
from vedette.config.read import parse
from vedette.inputs.opening import opened
from vedette.model.counters import Counters

INPUTS = {
    "file": 'paths = ["/nowhere/x"]',
    "mqtt": 'topics = ["a"]\n[broker]\nurl = "mqtt://127.0.0.1:1"',
    "kafka": 'brokers = ["127.0.0.1:1"]\ntopics = ["a"]',
}


@pytest.mark.parametrize("kind", INPUTS)
async def test_it_opens(kind: str) -> None:
    """An input that looks into its messages is made, and hands them on by the name of the format."""
    (made,) = parse(f'[[input]]\ntype = "{kind}"\nname = "i"\nformat = "rules:gate"\n{INPUTS[kind]}\n').input
    assert made.codec == "rules:gate"
    assert await opened(made, agent(Bin(), Counters()), 10)
