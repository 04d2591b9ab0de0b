"""Configuration texts: what they become, and that every mistake is told with its key."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differences import walk
from vedette.config.read import ConfigError, load, parse
from vedette.config.settings import Config
from vedette.decode.decoder import CODECS
from vedette.inputs.settings import INPUT_TYPES, FileInput, MqttInput, SyslogInput
from vedette.model.event import LogSource
from vedette.model.settings import split_address
from vedette.mqtt.settings import MqttSettings


def mistakes(text: str) -> list[str]:
    """What is wrong with a text, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "v.toml")
    assert all(line.startswith("v.toml: ") for line in caught.value.mistakes)
    return [line.removeprefix("v.toml: ") for line in caught.value.mistakes]


def test_nothing_is_a_configuration() -> None:
    """An empty text gives every default; the agent is called like its host."""
    found = parse("")
    assert found == Config(agent=found.agent)
    assert found.agent.id
    assert set(found.agent.id) <= set(socket.gethostname()) | {"-"}
    assert found.uplink.type == "directory"


def test_inputs_in_order() -> None:
    """Each type of input with its own settings, in the order of the text."""
    found = parse("""
        [[input]]
        type = "syslog"
        name = "a"
        udp = "[::1]:514"
        receive_buffer = "1MiB"
        [[input]]
        type = "file"
        name = "b"
        paths = ["/var/log/*.log"]
        from_start = false
        timezone = "Europe/Vienna"
        logsource = { product = "linux", service = "sshd" }
        [[input]]
        type = "mqtt"
        name = "c"
        topics = ["plant/#"]
        session_expiry = "2d"
        [broker]
        url = "mqtts://broker:8883"
        """)
    assert found.input == (
        SyslogInput("a", udp="[::1]:514", receive_buffer=1 << 20),
        FileInput(
            "b",
            paths=("/var/log/*.log",),
            timezone="Europe/Vienna",
            logsource=LogSource("linux", "", "sshd"),
            from_start=False,
        ),
        MqttInput(
            name="c", broker=MqttSettings("mqtts://broker:8883"), topics=("plant/#",), session_expiry=2 * 86400.0
        ),
    )


@pytest.mark.parametrize(
    ("written", "size"), [('"64MiB"', 64 << 20), ('"10 GB"', 10**10), ("2000000", 2_000_000), ('"5000000B"', 5_000_000)]
)
def test_sizes(written: str, size: int) -> None:
    """Sizes are bytes, or a number with a unit of 1000 or 1024."""
    assert parse(f"[raw_log]\nmax_bytes = {written}").raw_log.max_bytes == size


@pytest.mark.parametrize(
    ("written", "seconds"), [('"30d"', 2592000.0), ('"1.5 h"', 5400.0), ('"200ms"', 0.2), ("7", 7.0)]
)
def test_durations(written: str, seconds: float) -> None:
    """Durations are seconds, or a number with a unit."""
    assert parse(f"[raw_log]\nmax_age = {written}").raw_log.max_age == seconds


def test_every_mistake_at_once() -> None:
    """All that is wrong is told together, each with its key and what is expected."""
    found = mistakes("""
        agnet = 1
        [agent]
        id = "a/b"
        [raw_log]
        max_bytes = "64 mebibytes"
        max_age = true
        [uplink]
        type = "carrier pigeon"
        [[input]]
        type = "syslog"
        name = "x"
        tpc = "0.0.0.0:514"
        tcp = "514"
        logsource = { produkt = "linux" }
        max_connections = "many"
        [[input]]
        type = "sylog"
        [[input]]
        type = "file"
        name = "y"
        paths = "/var/log/syslog"
        timezone = "Mars/Olympus"
        """)
    assert [line.partition(": ")[0] for line in found] == [
        "agnet",
        "agent.id",
        "raw_log.max_bytes",
        "raw_log.max_age",
        "uplink.type",
        "input[0].tpc",
        "input[0].tcp",
        "input[0].logsource",
        "input[0].max_connections",
        "input[1].type",
        "input[2].paths",
        "input[2].timezone",
    ]
    assert "unknown key; did you mean tcp? known: format, logsource, max_connections, max_connections_per_p" in found[5]
    assert "expects one of syslog, relp, http, journal, audit, file, mqtt, kafka, not 'sylog'" in found[9]


@walk(
    ("text", "mistake"),
    [
        ("input = 1", "input: expects [[input]] tables"),
        ("input = [1]", "input[0]: expects a table, not 1"),
        ("[[input]]\ntype = []", f"input[0].type: expects one of {', '.join(INPUT_TYPES)}, not []"),
        ("agent = 1", "agent: expects a table, not 1"),
        ('[[input]]\ntype = "syslog"\ntcp = ":514"', "input[0].name: missing"),
        ('[[input]]\ntype = "syslog"\nname = "a"', 'input[0]: needs udp, tcp or tls, e.g. udp = "0.0.0.0:514"'),
        ('[[input]]\ntype = "file"\nname = "a"', "input[0]: needs paths"),
        ('[[input]]\ntype = "syslog"\nname = ""\ntcp = ":1"', "input[0].name: must not be empty"),
        ('[agent]\nfleet = ""', "agent.fleet: must not be empty"),
        ('[agent]\nsite = ""', "agent.site: must not be empty"),
        ("[state]\nmax_lateness = 90000", "state.max_lateness: expects 0 to 86,400.0, not 90,000.0"),
        ("[fleet]\nredact = ['a']", "fleet.redact: unknown key"),
        ('[uplink]\ntype = "directory"\nurl = "mqtt://h"', "uplink.url: belongs in [broker]"),
        ('[uplink]\nresend_after = "2d"', "uplink.resend_after: expects 1.0 to 86,400.0, not 172,800.0"),
        (
            '[agent]\nid = ".."',
            "agent.id: expects letters, digits, '_', '-' or '.' (at most 128, no '.' first), not '..'",
        ),
        ('[fleet]\nlabels = { ".a" = "b" }', "fleet.labels: '.a': expects letters, digits, '_', '-' or '.'"),
        (
            '[raw_log]\nfsync = "interval:0s"',
            'raw_log.fsync: expects "interval:200ms" (from 1ms to 60s), "batch" or "never", not \'interval:0s\'',
        ),
        (
            '[raw_log]\nfsync = "always"',
            'raw_log.fsync: expects "interval:200ms" (from 1ms to 60s), "batch" or "never", not \'always\'',
        ),
        (
            '[raw_log]\nfsync = "interval:fast"',
            'raw_log.fsync: expects a duration such as "10m" or "200ms", not \'fast\'',
        ),
        ('[raw_log]\nmax_bytes = "1KiB"', "raw_log.max_bytes: expects 1,048,576 to "),
        ("[state]\nmax_latness = 0", "state.max_latness: unknown key; did you mean max_lateness? known: max_bytes, "),
        ("broker = 1", "broker: expects a table, not 1"),
        ('[uplink]\ntype = "mqtt"', 'broker.url: expects "mqtt://host:port" or "mqtts://host:port", not \'\''),
        ('[uplink]\ntype = "mqtt"\n[broker]\nurl = "http://x:1"', "broker.url: expects"),
        ('[uplink]\ntype = "mqtt"\n[broker]\nurl = "mqtts://x"\ncert_file = "/c"', "broker: cert_file and key_file go"),
        ('[uplink]\nbroker = "plant"\n[broker.plant]\nurl = "mqtt://x"', "uplink.broker: unknown key; known: "),
        ('[broker.plant]\nurl = "x"', "broker.plant.url: expects"),
        ('[broker.plant]\nulr = "x"', "broker.plant.ulr: unknown key; did you mean url?"),
        (
            '[[input]]\ntype = "mqtt"\ntopics = ["a"]\nbroker = "x"',
            "input[0].broker: expects the NAME of a table [broker",
        ),
        ('[[input]]\ntype = "mqtt"\ntopics = ["a"]', "broker.url: expects"),
        (
            '[[input]]\ntype = "mqtt"\ntopics = ["a"]\nbroker = "p"\nusername = "u"\n[broker.p]\nurl = "mqtt://p:1"',
            'input[0].username: belongs in the table [broker.NAME] that broker = "NAME" names',
        ),
        ('[bundles]\ntrusted_keys = ["ssh-rsa AAAA"]', "bundles.trusted_keys[0]: not a public key: 'ssh-rsa AAAA'"),
        ("[agent", "not valid TOML: "),
    ],
)
def test_a_mistake_is_told(text: str, mistake: str) -> None:
    """Each kind of mistake, alone, is one line that names the key."""
    (found,) = mistakes(text)
    assert found.startswith(mistake)


def test_two_inputs_of_one_name() -> None:
    """Names tell inputs apart in counters and the raw log; twice the same is a mistake, and so is an unknown format."""
    one = '[[input]]\ntype = "file"\nname = "a"\npaths = ["/%d"]\n'
    assert mistakes(one % 1 + one % 2 + 'format = "sylog"\n') == [
        "input[1].name: 'a' is used twice",
        f"input[1].format: expects one of {', '.join(CODECS)}, or rules:NAME of a format that comes with the rules,"
        " not 'sylog'",
    ]
    assert mistakes(one % 1 + 'format = "rules:Gate"\n')


def test_two_inputs_of_one_file(tmp_path: Path) -> None:
    """By whatever links and names it is a mistake, but for those of one input, which takes it once."""
    file, folder = tmp_path / "app.log", tmp_path / "link"
    file.touch()
    folder.symlink_to(tmp_path)
    (tmp_path / "linked").symlink_to(file)
    (tmp_path / "hard").hardlink_to(file)
    text = '[[input]]\ntype = "file"\nname = "%s"\npaths = ["%s"]\n'
    for name in ("app.log", "../" + tmp_path.name + "/app.log", "linked", "hard", "link/app.log", "none", "*.log"):
        first = text % ("a", tmp_path / (name if name in ("none", "*.log") else "app.log"))
        (mistake,) = mistakes(first + text % ("b", f"{tmp_path}/link/../{tmp_path.name}/{name}"))
        assert mistake.startswith("input[1].paths: ")
        assert mistake.endswith(" is read by another input already")
    for allowed in (
        text % ("a", f'{file}", "{tmp_path}/linked'),
        text % ("a", file) + text % ("b", tmp_path / "other.log"),
    ):
        (mistake,) = mistakes(allowed + "[nope]\n")
        assert "nope" in mistake


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are no UTF-8 are told with the path."""
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    for path in (tmp_path / "none.toml", tmp_path, tmp_path / "latin.toml"):
        with pytest.raises(ConfigError, match="cannot be read") as caught:
            load(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("0.0.0.0:514", ("0.0.0.0", 514)),
        ("[::1]:0", ("::1", 0)),
        (":514", ("0.0.0.0", 514)),
        ("log.example:6", ("log.example", 6)),
    ],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    """``host:port``, a v6 address in brackets; no host is every interface."""
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["514", "::1:514", "host:", "host:65536", "ho st:1", "[::1]"])
def test_addresses_that_are_none(address: str) -> None:
    """Anything else is refused with what is expected."""
    with pytest.raises(ValueError, match='expects "host:port"'):
        split_address(address)


toml_values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(1 << 62), 1 << 62),
        st.floats(allow_nan=False),
        st.text('ab"\\:/.é', max_size=8).map(repr),
    ),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)


@given(
    st.sampled_from(["agent", "broker", "raw_log", "rules", "bundles", "uplink", "log"]),
    st.sampled_from(["id", "max_bytes", "paths", "trusted_keys", "url", "plant", "type", "level", "path", "heartbeat"]),
    toml_values,
)
@settings(max_examples=100)
def test_no_value_breaks_the_reader(table: str, key: str, value: object) -> None:
    """Whatever value a key has, the answer is a configuration or a list of mistakes, never another exception."""
    text = f"[{table}]\n{key} = {str(value).replace('True', 'true').replace('False', 'false')}"
    with suppress(ConfigError):
        assert isinstance(parse(text), Config)
