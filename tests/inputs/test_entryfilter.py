"""Which entries an input of the journal takes."""

from __future__ import annotations

import pytest

from vedette.inputs.entryfilter import Filter
from vedette.inputs.settings import JournalInput

NGINX = {b"_SYSTEMD_UNIT": [b"nginx.service"], b"_PID": [b"7"], b"PRIORITY": [b"4"]}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, True),
        ({"units": ("nginx", "ssh.service")}, True),
        ({"units": ("ssh",)}, False),
        ({"exclude_units": ("nginx",)}, False),
        ({"exclude_units": ("ssh",)}, True),
        ({"priority": "warning"}, True),
        ({"priority": "err"}, False),
        ({"include": ("_PID=7", "_PID=8")}, True),
        ({"include": ("_PID=7", "_UID=0")}, False),
        ({"exclude": ("_PID=7",)}, False),
        ({"exclude": ("_UID=0",)}, True),
    ],
)
def test_wanted(settings: dict[str, tuple[str, ...]], wanted: bool) -> None:
    """Values of one field are alternatives, fields all hold; what is excluded goes before."""
    made = Filter(JournalInput("j", **settings))
    assert made.wants(NGINX) is wanted
    assert {b"_SYSTEMD_UNIT", b"PRIORITY"} <= set(made.wanted)


def test_what_systemd_says_of_a_unit() -> None:
    """It belongs to that unit; another process that claims a unit is not believed."""
    made = Filter(JournalInput("j", exclude_units=("nginx",)))
    claimed = {b"UNIT": [b"nginx.service"], b"_SYSTEMD_UNIT": [b"user@1000.service"], b"_PID": [b"7"]}
    assert made.wants(claimed)
    assert not made.wants({**claimed, b"_PID": [b"1"]})


def test_without_a_priority() -> None:
    """An entry that has none counts as info."""
    assert Filter(JournalInput("j", priority="info")).wants({})
    assert not Filter(JournalInput("j", priority="notice")).wants({})


def test_other_machines() -> None:
    """Their entries, which lie beside those of this one, are left out where one machine is asked for."""
    made = Filter(JournalInput("j"), machine="a1")
    assert b"_MACHINE_ID" in made.wanted
    assert made.wants({b"_MACHINE_ID": [b"a1"]})
    assert not made.wants({b"_MACHINE_ID": [b"b2"]})
    assert not made.wants({})


def test_own_entries() -> None:
    """What the agent's own unit logs is no event; what systemd says of it is."""
    made = Filter(JournalInput("j"), "vedette.service")
    assert not made.wants({b"_SYSTEMD_UNIT": [b"vedette.service"]})
    assert made.wants({b"_SYSTEMD_UNIT": [b"init.scope"], b"UNIT": [b"vedette.service"], b"_PID": [b"1"]})
    assert made.wants({b"_SYSTEMD_USER_UNIT": [b"vedette.service"], b"_SYSTEMD_UNIT": [b"user@1000.service"]})
