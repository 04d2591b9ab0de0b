"""The types of sinks: each has settings that are checked, tests, a section of the guide and an example."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from vedette.config.read import ConfigError, parse
from vedette.config.written import OWN
from vedette.fleet.overlay import merged
from vedette.sinks.settings import SINK_TYPES

ROOT = Path(__file__).parents[2]
INSTALLED = (ROOT / "packaging" / "vedette.toml").read_text("utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text("utf-8")
WEBHOOK = '[[sink]]\ntype = "webhook"\nname = "w"\n'


@pytest.mark.parametrize("name", SINK_TYPES)
def test_a_type(name: str) -> None:
    """It is documented, shown by example, and its receiver has a test file and says what it promises of delivery."""
    assert SINK_TYPES[name].__doc__
    assert f"\n#### Sink: {name}\n" in GUIDE
    assert f'#type = "{name}"' in INSTALLED.partition("\n#[[sink]]\n")[2]
    assert (Path(__file__).parent / f"test_{name}.py").is_file()
    assert (ROOT / "agent" / "vedette" / "sinks" / f"{name}.py").is_file()


@pytest.mark.parametrize("name", SINK_TYPES)
def test_a_type_alone_is_a_mistake(name: str) -> None:
    """A table with nothing but its type and name says what it lacks."""
    with pytest.raises(ConfigError, match=r": sink\[0\]\S*: (expects|missing)"):
        parse(f'[[sink]]\ntype = "{name}"\nname = "x"\n')


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (WEBHOOK + 'url = "ftp://x/"', "sink[0].url: expects http://HOST/… or https://HOST/…"),
        (WEBHOOK + 'url = "http://x y/"', "sink[0].url: expects http://HOST/… or https://HOST/…"),
        (WEBHOOK + 'url = "http://x/"\nurl_file = "f"', "sink[0]: expects url or url_file, and not both"),
        (WEBHOOK + 'url = "http://x/"\ncert_file = "f"', "sink[0]: cert_file and key_file go together"),
        (WEBHOOK + 'url = "http://x/"\nproxy = "x:1"', "sink[0].proxy: expects http://HOST/… or https://HOST/…"),
        (WEBHOOK + 'url = "http://x/"\nlevel = "grave"', "sink[0].level: expects one of 'informational', 'low'"),
        (WEBHOOK + 'url = "http://x/"\ntimeout = "1h"', "sink[0].timeout: expects 0.1 to 300.0, not 3,600.0"),
        (WEBHOOK + 'template = "pagerduty"', "sink[0].token_file: missing"),
        (2 * (WEBHOOK + 'url = "http://x/"\n'), "sink[1].name: 'w' is used twice"),
        (
            '[[sink]]\ntype = "smtp"\nname = "k"',
            "sink[0].type: expects one of webhook, syslog, otlp, kafka, mqtt, file, command",
        ),
        ('[[sink]]\ntype = "file"\nname = "f"\npath = "x"', "sink[0].path: expects an absolute path"),
        ("".join(f'[[sink]]\ntype = "file"\nname = "f{i}"\npath = "/x"\n' for i in (1, 2)), "is written by another"),
        ("".join(f'[[sink]]\ntype = "file"\nname = "f{i}"\npath = "/{i}"\n' for i in range(11)), "at most 10"),
    ],
)
def test_mistakes(text: str, mistake: str) -> None:
    """Each is reported with its key."""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert any(mistake in one for one in caught.value.mistakes), caught.value.mistakes


def file_sinks(*paths: object) -> str:
    return "".join(f'[[sink]]\ntype = "file"\nname = "f{i}"\npath = "{path}"\n' for i, path in enumerate(paths))


@pytest.mark.parametrize(
    ("first", "second", "mistake"),
    [
        ("a/alerts", "a/alerts", "is written by another sink already (f0)"),
        ("a/alerts", "a/../a/alerts", "is written by another sink already (f0)"),
        ("a/alerts", "a//alerts", "is written by another sink already (f0)"),
        ("a/alerts", "link/alerts", "is written by another sink already (f0)"),
        ("a/alerts", "link/alerts.1", "is written by another sink already (f0)"),
        ("a/alerts.12", "a/alerts", "is written by another sink already (f0)"),
        ("a/alerts.1", "a/alerts.2", ""),
        ("a/alerts", "b/alerts", ""),
        ("a/alerts", "a/alerts.json", ""),
    ],
)
def test_two_sinks_of_one_file(tmp_path: Path, first: str, second: str, mistake: str) -> None:
    """Paths are held against each other where their links lead, with the names that a rotation gives."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    text = file_sinks(f"{tmp_path}/{first}", f"{tmp_path}/{second}")
    if not mistake:
        assert len(parse(text).sink) == 2
        return
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.mistakes == [f"vedette.toml: sink[1].path: '{tmp_path / second}' {mistake}"]


@pytest.mark.parametrize(
    "path",
    ["data/raw/alerts", "data/sinks/f0.ndjson", "data/../data/shown", "data/store.damaged-1/x", "data/.lock",
     "link/store/x", "landing/x", "copies/a/x"],
)  # fmt: skip
def test_a_file_of_the_agents_own(tmp_path: Path, path: str) -> None:
    """A sink writes where the agent keeps nothing: beside its own names in the data folder it may."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    own = (
        f'[agent]\nid = "a"\ndata_dir = "{tmp_path}/data"\n[uplink]\npath = "{tmp_path}/landing"\n'
        f'[archive]\nurl = "{tmp_path}/copies"\n'
    )
    with pytest.raises(ConfigError) as caught:
        parse(own + file_sinks(tmp_path / path))
    assert caught.value.mistakes == [
        f"vedette.toml: sink[0].path: '{tmp_path / path}' lies where the agent keeps its own files: name another"
    ]
    assert parse(own + file_sinks(tmp_path / "data/alerts.ndjson", tmp_path / "data/out/x", tmp_path / "copies/x"))


def test_the_agents_own_names_are_all_known() -> None:
    """Whatever the source puts into the data folder."""
    texts = [path.read_text("utf-8") for path in (ROOT / "agent" / "vedette").rglob("*.py")]
    names = {name for text in texts for name in re.findall(r'data_dir / "([^"]+)"', text)}
    assert len(names) > 10
    assert names | {"bundles", "cache", "rulesets"} <= OWN


def test_no_secret_is_shown() -> None:
    """What a status names of a webhook is the host, without path, query and user."""
    sink = parse(WEBHOOK + 'url = "https://me:hush@hooks.example:8443/services/T0/hush?key=hush"').sink[0]
    assert sink.to == "https://hooks.example:8443"
    assert parse(WEBHOOK + 'template = "pagerduty"\ntoken_file = "/t"').sink[0].to == "https://events.pagerduty.com"


def test_no_overlay_allows_a_command() -> None:
    """The centre may filter a sink that the host has, but for what is locked; it adds none, and allows no program."""
    local = tomllib.loads(WEBHOOK + 'url = "http://x/"\n[agent]\nallow_commands = ["/bin/a"]')
    overlay = tomllib.loads(
        '[agent]\nallow_commands = ["/bin/sh"]\n[[sink]]\nname = "w"\nlevel = "high"\nurl = "http://y/"\n'
        '[[sink]]\ntype = "command"\nname = "c"\ncommand = ["/bin/sh"]\n'
    )
    result, ignored = merged(local, overlay)
    assert ignored == ("agent.allow_commands", "sink w.url", "sink c")
    assert result["sink"] == [{"type": "webhook", "name": "w", "url": "http://x/", "level": "high"}]
    assert merged(local, overlay, ["sink w"])[1] == ("agent.allow_commands", "sink w", "sink c")


def test_reading_a_configuration_loads_no_receiver() -> None:
    """The settings are there without HTTP, TLS and the event loop."""
    program = "import sys, vedette.config.read; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"urllib3", "asyncio.base_events", "http.client", "vedette.sinks.webhook"}
