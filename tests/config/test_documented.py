"""``packaging/vedette.toml`` and the dataclasses of ``vedette.config.settings`` say the same."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vedette.config import read as config
from vedette.config.settings import Config, EnrichSettings, RedactSettings, RulesetSettings, SuppressSettings
from vedette.inputs.settings import INPUT_TYPES
from vedette.mqtt.settings import MqttSettings
from vedette.sinks.settings import SINK_TYPES

FILE = Path(__file__).parents[2] / "packaging" / "vedette.toml"
TEXT = FILE.read_text("utf-8")
UNCOMMENTED = re.sub(r"(?m)^#(?=\S)", "", TEXT)
SECTIONS = {
    f.name: f.default_factory
    for f in dataclasses.fields(Config)
    if f.name not in ("input", "suppress", "enrich", "redact", "ruleset", "sink", "overlay")
}
SECTIONS["suppress"] = lambda: SuppressSettings(600.0)  # a table of its own each time
SECTIONS["ruleset"] = lambda: RulesetSettings("site")
SECTIONS["enrich"] = lambda: EnrichSettings("assets")
SECTIONS["redact"] = RedactSettings
SECTIONS["broker"] = MqttSettings
IN_FORCE_BY_CHOICE = {
    ("agent", "data_dir"),
    ("bundles", "file"),
    ("bundles", "trusted_keys"),
}
"""Settings of one table each that stand without "#"."""


def test_as_it_is_shipped() -> None:
    """The file as it is shipped is a valid configuration."""
    shipped = config.parse(TEXT, FILE)
    assert [item.name for item in shipped.input] == ["syslog", "journal", "web"]


def test_with_every_line_in_force() -> None:
    """The file is a valid configuration with every "#" taken away, too."""
    everything = config.parse(UNCOMMENTED, FILE)
    assert {type(item) for item in everything.input} == set(INPUT_TYPES.values())
    assert {type(item) for item in everything.sink} == set(SINK_TYPES.values())


def test_every_line_is_an_explanation_or_a_setting() -> None:
    """A line is empty, an explanation, a table or a setting: nothing in between that taking "#" away would break."""
    for number, line in enumerate(TEXT.splitlines(), 1):
        assert re.fullmatch(r"|#|# .+|#?\[\[?[a-z_.]+\]\]?|#?[a-z_]+ = .+", line), f"line {number}: {line}"


def keys(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(table or kind of input or sink, key)."""
    for table, values in document.items():
        for item in values if isinstance(values, list) else [values]:
            yield from (
                (_kind(table, item), key)
                for key, value in item.items()
                if (key != "type" or table not in ("input", "sink"))
                and (table != "broker" or not isinstance(value, dict))
            )


def _kind(table: str, item: dict[str, Any]) -> str:
    return {"input": "", "sink": "sink "}[table] + item["type"] if table in ("input", "sink") else table


def test_every_setting_is_there() -> None:
    """Every field of the dataclasses appears in its table, and nothing else does."""
    known = {(table, f.name.rstrip("_")) for table, kind in SECTIONS.items() for f in dataclasses.fields(kind())}  # type: ignore[misc]
    known |= {(name, f.name) for name, kind in INPUT_TYPES.items() for f in dataclasses.fields(kind)}
    known |= {(f"sink {name}", f.name) for name, kind in SINK_TYPES.items() for f in dataclasses.fields(kind)}
    assert set(keys(tomllib.loads(UNCOMMENTED))) == known - {("uplink", "broker")}


def stated() -> Iterator[tuple[str, str, Any, Any]]:
    """(table, key, value in the commented line, default) of each setting that stands behind "#" and has a default."""
    default = {
        **{name: kind() for name, kind in SECTIONS.items()},  # type: ignore[misc]
        **{name: kind(name="x") for name, kind in INPUT_TYPES.items()},
        **{f"sink {name}": kind(name="x") for name, kind in SINK_TYPES.items()},
    }
    everything = config.parse(UNCOMMENTED, FILE)
    in_force = set(keys(tomllib.loads(TEXT)))
    several = {"suppress", "enrich", "redact", "ruleset"}
    tables = {name: [getattr(everything, name)] for name in SECTIONS.keys() - several - {"broker"}}
    tables["broker"] = [everything.uplink.broker]
    tables |= {name: list(getattr(everything, name)) for name in several}
    tables |= {name: [i for i in everything.input if type(i) is kind] for name, kind in INPUT_TYPES.items()}
    tables |= {f"sink {name}": [i for i in everything.sink if type(i) is kind] for name, kind in SINK_TYPES.items()}
    for table, instances in tables.items():
        for f in dataclasses.fields(default[table]):
            value = getattr(default[table], f.name)
            if (table, f.name) not in in_force and value not in (None, "", ()):
                for instance in instances[:1]:
                    yield table, f.name, getattr(instance, f.name), value


EXAMPLES = {("audit", "name"), ("relp", "name"), ("http", "name"), ("http", "logsource"), ("mqtt", "logsource"),
            ("mqtt", "name"), ("kafka", "name"), ("kafka", "logsource"), ("kafka", "sasl"),
            ("mqtt", "broker"), ("uplink", "broker"),
            ("file", "logsource"), ("fleet", "root"), ("fleet", "labels"), ("fleet", "locked")}  # fmt: skip
"""Shown with an example, not with the default."""
EXAMPLES |= {(f"sink {one}", key) for one in SINK_TYPES for key in ("name", "type")}
EXAMPLES |= {("sink kafka", "sasl"), ("sink mqtt", "broker")}


def test_stated_defaults_are_the_defaults() -> None:
    """A setting behind "#" shows its default."""
    shown = {setting[:2]: setting[2:] for setting in stated() if setting[:2] not in EXAMPLES}
    assert len(shown) > 80
    assert {setting: values for setting, values in shown.items() if values[0] != values[1]} == {}


def test_what_is_in_force_is_known() -> None:
    """Of the tables other than inputs only these settings are in force."""
    assert {k for k in keys(tomllib.loads(TEXT)) if k[0] in SECTIONS} == IN_FORCE_BY_CHOICE
