"""Settings of the release before: accepted, each with a warning. ``previous.toml`` is the file it was shipped with."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from vedette.config.read import INTERNAL_SETTINGS, ConfigError, load, parse
from vedette.config.renamed import GONE
from vedette.config.settings import Config
from vedette.inputs.file import FileInput
from vedette.inputs.mqtt import MqttInput
from vedette.mqtt.settings import MqttSettings

PREVIOUS = (Path(__file__).parent / "previous.toml").read_text("utf-8")
KEYS = 'username = "u"\npassword_file = "/p"\nca_file = "/ca"\ncert_file = "/c"\nkey_file = "/k"\n'
BROKER = {
    "username": "u",
    "password_file": Path("/p"),
    "ca_file": Path("/ca"),
    "cert_file": Path("/c"),
    "key_file": Path("/k"),
}


def test_the_file_of_the_release_before() -> None:
    """As it was shipped it is a configuration without a warning; so it is with every line in force, with one for each
    old name."""
    assert parse(PREVIOUS).warnings == ()
    everything = parse(re.sub(r"(?m)^#(?=\S)", "", PREVIOUS))
    assert len(everything.warnings) == len(set(everything.warnings)) == 26
    assert everything.uplink.broker.url == "mqtts://region.example:8883"
    (door,) = [item for item in everything.input if isinstance(item, MqttInput)]
    assert door.broker.url == "mqtts://broker.example:8883"


def test_the_keys_of_a_broker() -> None:
    """Those of the uplink are [broker]; those of an input, where they differ, a table of the input's name."""
    found = parse(
        f'[uplink]\ntype = "mqtt"\nurl = "mqtts://r:1"\n{KEYS}'
        f'[[input]]\ntype = "mqtt"\nname = "a"\ntopics = ["t"]\nurl = "mqtts://r:1"\n{KEYS}'
        '[[input]]\ntype = "mqtt"\nname = "url"\ntopics = ["t"]\nurl = "mqtt://plant:1"\nkeepalive = "9s"\n'
    )
    region = MqttSettings("mqtts://r:1", **BROKER)  # type: ignore[arg-type]
    assert found.uplink.broker == region
    assert [item.broker for item in found.input if isinstance(item, MqttInput)] == [
        region,
        MqttSettings("mqtt://plant:1"),
    ]
    assert found.warnings[0] == "uplink.url: is now url of [broker]; the next release refuses it"
    assert "input[0].url: is now url of [broker], once for all; the next release refuses it" in found.warnings
    assert any(line.startswith("input[1].url: is now url of [broker.url-broker]") for line in found.warnings)


def test_an_input_whose_name_has_a_dot() -> None:
    """Its broker's table has that name."""
    text = '[[input]]\ntype = "mqtt"\nname = "plant.1"\ntopics = ["t"]\nurl = "mqtt://p:1"\nkeepalive = "9s"\n'
    (item,) = parse(text).input
    assert isinstance(item, MqttInput)
    assert item.broker == MqttSettings("mqtt://p:1")


@pytest.mark.parametrize("broker", ["", 'broker = "plant"\n'])
def test_a_keepalive_left_behind(broker: str) -> None:
    """An input whose broker has its table already, but for ``keepalive``, has that broker and a warning."""
    tables = '[broker]\nurl = "mqtt://p:1"\n[broker.plant]\nurl = "mqtt://q:1"\n'
    found = parse(f'{tables}[[input]]\ntype = "mqtt"\nname = "a"\ntopics = ["t"]\n{broker}keepalive = "9s"\n')
    (item,) = found.input
    assert isinstance(item, MqttInput)
    assert item.broker.url == ("mqtt://q:1" if broker else "mqtt://p:1")
    assert [line.partition(":")[0] for line in found.warnings] == ["input[0].keepalive"]


def test_what_nobody_sets_any_more() -> None:
    """It still counts, with a warning; where it is internal, without one; another name never."""
    text = """
        [engine]
        cache_bytes = "1MiB"
        [[input]]
        type = "file"
        name = "a"
        paths = ["/a"]
        poll = "1s"
    """
    found = parse(text)
    assert found.engine.cache_bytes == 1 << 20
    assert found.input == (FileInput("a", paths=("/a",), poll=1.0),)
    assert [line.partition(":")[0] for line in found.warnings] == ["engine.cache_bytes", "input[0].poll"]
    assert parse(text, internal=True) == found
    assert parse(text, internal=True).warnings == ()
    with pytest.raises(ConfigError, match=r"engine\.cash_bytes: unknown key"):
        parse(text.replace("cache", "cash"), internal=True)


def test_the_environment_opens_what_is_internal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of a whole agent."""
    path = tmp_path / "v.toml"
    path.write_text("[log]\nlimit = 7\n")
    for value, count in ((None, 1), ("1", 0)):
        monkeypatch.delenv(INTERNAL_SETTINGS, raising=False)
        if value is not None:
            monkeypatch.setenv(INTERNAL_SETTINGS, value)
        assert load(path).log.limit == 7
        assert len(load(path).warnings) == count


def internal_fields(kind: object, where: str = "") -> set[str]:
    found: set[str] = set()
    for f in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = getattr(kind, f.name)
        if f.metadata:
            found.add(f"{where}.{f.name}")
        elif dataclasses.is_dataclass(value):
            found |= internal_fields(value, f.name)
    return found


def test_all_that_is_internal_was_a_setting() -> None:
    """Each row of GONE is a field, and each field has a row: a new internal one needs none, and none is left over."""
    fields = (
        internal_fields(Config()) | internal_fields(FileInput("a"), "input") | internal_fields(MqttInput(), "input")
    )
    assert fields == GONE - {"uplink.keepalive", "input.keepalive"}
