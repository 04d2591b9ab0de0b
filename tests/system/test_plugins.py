"""What ``plugins.allow`` names: entry points of installed distributions, found without importing them."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from vedette.config.read import ConfigError, parse
from vedette.fleet.overlay import merged
from vedette.inputs.plugin import PluginInput
from vedette.sinks.plugin import PluginSink
from vedette.system.plugins import Entry, by_name, found

POINTS = """[vedette.inputs]
one = acme:One
file = acme:File
[vedette.sinks]
one = acme : Sink
[console_scripts]
acme = acme:main
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two distributions whose code raises when it is imported."""
    for name, points in (("acme-plugins", POINTS), ("other", "[vedette.inputs]\none = other:One\n"), ("plain", "")):
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)
    (tmp_path / "acme.py").write_text("raise SystemError('imported')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def test_a_distribution() -> None:
    """Its name stands for all entry points of Vedette's groups that it has; none is imported."""
    entries, mistakes = found(["acme-plugins"])
    assert {(one.kind, one.name, one.target) for one in entries} == {
        ("inputs", "one", "acme:One"), ("inputs", "file", "acme:File"), ("sinks", "one", "acme:Sink"),
    }  # fmt: skip
    assert (mistakes, "acme" in sys.modules) == ([], False)
    with pytest.raises(SystemError, match="imported"):
        entries[0].load()


def test_one_entry_point() -> None:
    """A name behind the distribution's stands for that alone."""
    assert {one.label for one in found(["acme-plugins:file"])[0]} == {"acme-plugins:file"}


@pytest.mark.parametrize(
    ("allow", "mistake"),
    [
        ("no-such-thing", "[0]: no distribution no-such-thing is installed for "),
        ("plain", "[0]: plain 1.0 has no entry point in vedette.inputs"),
        ("acme-plugins:two", "[0]: acme-plugins 1.0 has no entry point 'two' in "),
        ("a b", '[0]: expects "DISTRIBUTION" or "DISTRIBUTION:NAME", not \'a b\''),
    ],
)
def test_mistakes(allow: str, mistake: str) -> None:
    """Each says what is wrong with which line of the list, and is one of the configuration."""
    assert found([allow])[1][0].startswith(mistake)
    with pytest.raises(ConfigError, match=r"plugins\.allow\[0\]: "):
        parse(f'[plugins]\nallow = ["{allow}"]\n')


def test_names() -> None:
    """A name that two distributions have means neither: the distribution's goes before it."""
    one, other = Entry("inputs", "a", "1", "x", "m:x"), Entry("inputs", "b", "1", "x", "m:x")
    assert by_name([one], "inputs") == {"a:x": one, "x": one}
    assert by_name([one, other], "inputs") == {"a:x": one, "b:x": other}
    assert by_name([one], "sinks") == {}


def test_an_input_and_a_sink() -> None:
    """A type that is no built-in one is a plugin's, if it is allowed; its own settings are ``options``."""
    text = (
        '[[input]]\ntype = "one"\nname = "i"\noptions = {at = [1]}\n'
        '[[sink]]\ntype = "one"\nname = "s"\ntimeout = "3s"\noptions = {a = "b"}\n'
    )
    made = parse(f'{text}[plugins]\nallow = ["acme-plugins"]\n')
    (one,), (sink,) = made.input, made.sink
    assert isinstance(one, PluginInput)
    assert isinstance(sink, PluginSink)
    assert (one.entry.label, one.options) == ("acme-plugins:one", {"at": [1]})
    assert (sink.type, sink.to, sink.timeout) == ("one", "plugin acme-plugins:one", 3.0)
    assert parse(f'{text}[plugins]\nallow = ["acme-plugins"]\n') == made
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - as a strict rule set gets it
    with pytest.raises(ConfigError, match=r"input\[0\]\.type: expects one of syslog, .* not 'one'"):
        parse(text)
    with pytest.raises(ConfigError, match=r"input\[0\]\.type: expects one of .*acme-plugins:one"):
        parse(f'{text}[plugins]\nallow = ["acme-plugins", "other"]\n')


def test_built_in_types_go_first() -> None:
    """A plugin cannot take the name of a type that comes with the agent."""
    text = '[[input]]\ntype = "file"\nname = "i"\npaths = ["/x"]\n[plugins]\nallow = ["acme-plugins"]\n'
    assert not isinstance(parse(text).input[0], PluginInput)


def test_no_overlay_allows_one() -> None:
    """What the fleet says of plugins is left out, and reported."""
    made, ignored = merged({"plugins": {"allow": ["a"]}}, {"plugins": {"allow": ["a", "b"]}})
    assert (made, ignored) == ({"plugins": {"allow": ["a"]}}, ("plugins",))
