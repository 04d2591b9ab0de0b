"""The table of inputs: each row has settings that are checked, tests, a section of the guide and an example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from vedette.config.read import ConfigError, parse
from vedette.inputs.settings import INPUT_TYPES, JournalInput

ROOT = Path(__file__).parents[2]
INSTALLED = (ROOT / "packaging" / "vedette.toml").read_text("utf-8")
OPENING = (ROOT / "agent" / "vedette" / "inputs" / "opening.py").read_text("utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text("utf-8")


@pytest.mark.parametrize("name", INPUT_TYPES)
def test_a_row(name: str) -> None:
    """It is documented, shown by example, and its transport has a test file."""
    settings = INPUT_TYPES[name]
    assert settings.__doc__
    assert f"\n#### {name}\n" in GUIDE
    assert f'type = "{name}"' in INSTALLED
    transport = re.search(rf"case {settings.__name__}\(\):\n +from vedette\.inputs\.(\w+) import", OPENING)
    assert transport is not None
    assert (Path(__file__).parent / f"test_{transport[1]}.py").is_file()


WHOLE = {"audit", "journal"}
"""Types that need no setting: a host has one journal, and one audit."""


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_row_alone_is_enough(name: str) -> None:
    """A table with nothing but its type and name is an input, of this host's events."""
    (settings,) = parse(f'[[input]]\ntype = "{name}"\nname = "x"\n[rules]\npaths = ["rules"]\n').input
    assert type(settings) is INPUT_TYPES[name]
    assert settings.local


@pytest.mark.parametrize("name", sorted(INPUT_TYPES.keys() - WHOLE))
def test_a_row_alone_is_a_mistake(name: str) -> None:
    """A table with nothing but its type and name says what it needs, by its key."""
    with pytest.raises(ConfigError) as caught:
        parse(f'[[input]]\ntype = "{name}"\nname = "x"\n')
    assert any(": input[0]: needs " in mistake for mistake in caught.value.mistakes)


def test_reading_a_configuration_loads_no_transport() -> None:
    """The settings are there without paho, TLS or the event loop's protocols."""
    program = "import sys, vedette.config.settings; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"paho", "asyncio.base_events", "vedette.inputs.listen", "vedette.inputs.framing"}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"priority": "loud"}, ".priority: "),
        ({"include": ("sshd",)}, ".include: "),
        ({"exclude": ("_comm=sshd",)}, ".exclude: "),
        ({"fields": ("a b",)}, ".fields: "),
        ({"namespace": "--merge"}, ".namespace: "),
    ],
)
def test_mistakes_of_a_journal(settings: dict[str, str], key: str) -> None:
    """Each by its key."""
    (mistake,) = JournalInput("j", **settings).mistakes()
    assert mistake.startswith(key)


def test_no_mistake_of_a_journal() -> None:
    """What journalctl takes is taken."""
    settings = JournalInput("j", include=("_COMM=sshd", "EMPTY="), fields=("SHOP_1",), priority="err", namespace="+web")
    assert not list(settings.mistakes())
    assert settings.least == 3
