"""Overlays: what they change, what they cannot, and how an agent undoes one by itself, killed wherever."""

from __future__ import annotations

import hashlib
import re
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from vedette.config.read import ConfigError
from vedette.config.settings import Config
from vedette.fleet import overlay
from vedette.fleet.overlay import MAX_STARTS, OPEN, Applied, Watch, check, merged, under
from vedette.inputs.plugin import PluginInput
from vedette.inputs.settings import INPUT_TYPES
from vedette.mqtt.settings import MqttSettings
from vedette.sinks.plugin import PluginSink
from vedette.sinks.settings import SINK_TYPES

LOCAL = """
[agent]
id = "web-1"
data_dir = "{data}"
[fleet]
root = "/root.json"
locked = ["uplink", "raw_log.max_age", "input syslog"]
[bundles]
file = "/starter.vbundle"
[[input]]
type = "syslog"
name = "syslog"
udp = "127.0.0.1:5514"
[[input]]
type = "file"
name = "files"
paths = ["/var/log/syslog"]
"""
ONE, TWO = b'[log]\nlevel = "debug"\n', b'[log]\nlevel = "error"\n'


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "vedette.toml"
    made.write_text(LOCAL.format(data=tmp_path / "data"))
    return made


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied.open(tmp_path / "data" / "fleet")


def again(applied: Applied) -> Applied:
    """As the next process finds it."""
    return Applied.open(applied.folder)


@pytest.mark.parametrize(
    ("above", "expected", "ignored"),
    [
        ({"log": {"level": "debug"}}, {"log": {"level": "debug", "format": "json"}}, ()),
        ({"log": {"format": "console"}}, {"log": {"format": "json"}}, ("log.format",)),
        ({"uplink": {"type": "directory"}}, {}, ("uplink",)),
        ({"agent": {"id": "x", "site": "s"}}, {"agent": {"site": "s"}}, ("agent.id",)),
        ({"bundles": {"trusted_keys": ["k"]}}, {}, ("bundles.trusted_keys",)),
        ({"fleet": {"locked": []}}, {}, ("fleet",)),
        ({"bundles": {"channel": "test"}}, {"bundles": {"channel": "test"}}, ()),
        ({"rules": {"paths": ["/a"]}}, {}, ("rules",)),
        ({"input": [{"name": "a", "type": "file", "format": "json", "paths": ["/a"]}]},
         {"input": [{"name": "a", "type": "file", "format": "json", "paths": ["/a"]}]}, ()),
        ({"input": [{"name": "j", "type": "journal", "directory": "/j"}]},
         {"input": [{"name": "a", "type": "file"}, {"name": "j", "type": "journal"}]}, ("input j.directory",)),
        ({"input": [{"name": "a", "format": "json"}]},
         {"input": [{"name": "a", "type": "file", "format": "json"}]}, ()),
        ({"input": [{"name": "a", "type": "mqtt", "format": "json"}, {"name": "b", "type": "audit"}, {"format": "x"}]},
         {}, ("input a", "input b", "input None")),
        ({"input": [{"name": "c", "type": "mqtt"}]}, {}, ("input c",)),
        ({"ruleset": [{"name": "s", "max_cpu": 0.1, "file": "/a"}, {"name": "new", "channel": "x", "paths": ["/a"]}]},
         {"ruleset": [{"name": "s", "paths": ["/s"], "max_cpu": 0.1}, {"name": "new", "channel": "x"}]},
         ("ruleset s.file", "ruleset new.paths")),
        ({"suppress": [{"for": "10m"}]}, {"suppress": [{"for": "10m"}]}, ()),
        ({"redact": [{"fields": ["a"]}], "log": 3, "nothing": {"a": 1}}, {}, ("redact", "log", "nothing")),
    ],
)  # fmt: skip
def test_merging(above: dict[str, Any], expected: dict[str, Any], ignored: tuple[str, ...]) -> None:
    """Tables key by key, inputs and rule sets by name, other lists as a whole; what is locked or not open stays."""
    local = {
        "log": {"format": "json"},
        "input": [{"name": "a", "type": "file"}],
        "ruleset": [{"name": "s", "paths": ["/s"]}],
    }
    before = repr(local)
    assert merged(local, above, ("log.format", "uplink", "input c")) == ({**local, **expected}, ignored)
    assert repr(local) == before


def kinds_of(kind: Any) -> Iterator[Any]:
    """All that a setting's type is made of, down to the types of what lies in it."""
    yield kind
    parts = [*typing.get_args(kind)]
    if is_dataclass(kind) and isinstance(kind, type):
        parts += typing.get_type_hints(kind, include_extras=True).values()
    for part in parts:
        yield from kinds_of(part)


def every_setting() -> dict[str, set[str]]:
    """Every setting there is, ``table.key``, and the types that it is made of; of inputs and sinks all types."""
    hints = typing.get_type_hints(Config)
    tables = {f.name: [hints[f.name], *typing.get_args(hints[f.name])] for f in fields(Config) if f.compare}
    tables["input"] = [*INPUT_TYPES.values(), PluginInput]
    tables["sink"] = [*SINK_TYPES.values(), PluginSink]
    tables["broker"] = [MqttSettings]
    settings: dict[str, set[str]] = {}
    for table, types in tables.items():
        for kind in types:
            if is_dataclass(kind):
                for key, inner in typing.get_type_hints(kind, include_extras=True).items():
                    if key in {f.name for f in fields(kind)}:
                        name = f"{table}.{key.rstrip('_')}"
                        settings.setdefault(name, set()).update(str(part) for part in kinds_of(inner))
    return settings


CLOSED = re.compile(
    r"(.*_)?(files?|paths?|folder|dir|directory|url|keys?|tcp|udp|tls|address|listen|brokers?|commands?|programs?|root|"
    r"token|secret|passwords?|username|ca|cert|allow|locked|trusted|type|transport|sasl|topics?|proxy|namespace|"
    r"recipient|group|client_id|options|pipelines|labels|fleet|id|block|enabled)"
)
"""Names of what gives code, keys, addresses or paths, or says who somebody is."""
BUT = {
    "broker.url": "another address of the same region: of its CA, and not without TLS",
    "enrich.key": "a column of a lookup",
    "input.paths": "which logs are read, by the agent's user",
}


def test_what_an_overlay_may_change() -> None:
    """Each setting is open or it stays; no row of OPEN is stale. What is open has no type and no name of a path, an
    address, a key or a program."""
    settings = every_setting()
    assert len(settings) > 150
    assert {name for name in OPEN if "." in name} <= settings.keys()
    for name, kinds in settings.items():
        table, _, key = name.partition(".")
        is_open = name in OPEN or table in OPEN
        if table in ("input", "sink", "ruleset"):
            local: dict[str, Any] = {table: [{"name": "a", "type": "x"}]}
            above: dict[str, Any] = {table: [{"name": "a", key: "new"}]}
        else:
            local, above = {table: {}}, {table: [{key: "new"}] if table in OPEN else {key: "new"}}
        if key != "name":
            changed, ignored = merged(local, above)
            assert (changed != local, ignored == ()) == (is_open, is_open), name
        if is_open and name not in BUT:
            assert not CLOSED.fullmatch(key), name
            assert not any("Path" in kind or "'address'" in kind or "Options" in kind for kind in kinds), name


def test_the_page_lists_them() -> None:
    """docs/fleet.md has each setting that is open, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text().partition("It changes these settings:")[2]
    rows = re.findall(r"(?m)^\| (`\w.*`) \| (.*) \|$", page.partition("All others")[0])
    listed = {table: row for tables, row in rows for table in re.findall(r"`(\w+)`", tables)}
    assert listed.keys() == {name.partition(".")[0] for name in OPEN}
    for name in OPEN:
        table, _, key = name.partition(".")
        assert listed[table].startswith("all") or f"`{key}`" in listed[table], name
    for table, row in listed.items():
        said = {f"{table}.{key}" for key in re.findall(r"`(\w+)`", row)}
        assert not said & OPEN if row.startswith("all") else said <= OPEN


@pytest.mark.parametrize(
    ("before", "after", "accepted"),
    [
        ("mqtts://a:8883", "mqtts://b:8883", True), ("mqtts://a:8883", "mqtt://a:1883", False),
        ("mqtts://a:8883", "MQTT://a", False), ("mqtts://a:8883", 3, False), ("mqtt://a:1883", "mqtt://b:1883", True),
        ("mqtt://a:1883", "mqtts://b:8883", True),
    ],
)  # fmt: skip
def test_another_address_of_the_region(before: str, after: Any, accepted: bool) -> None:
    """With TLS where there was TLS."""
    ignored = () if accepted else ("broker.url",)
    assert merged({"broker": {"url": before}}, {"broker": {"url": after}})[1] == ignored


@pytest.mark.parametrize(
    "above",
    [
        '[functions]\nallow = true\n', '[broker]\nca_file = "/x"\nusername = "x"\n', '[metrics]\nlisten = ":9"\n',
        '[[input]]\ntype = "syslog"\nname = "files"\ntcp = ":514"\n',
        '[[input]]\ntype = "syslog"\nname = "new"\ntcp = ":514"\n', '[lookups]\nfolder = "/x"\n',
        '[[sink]]\ntype = "webhook"\nname = "w"\nurl = "https://x"\n', '[rules]\npaths = ["/x"]\n',
        f'[uplink]\nreceipt_keys = ["ed25519:{"A" * 43}="]\n', '[enrolment]\nurl = "mqtts://x"\n',
        '[bundles]\nfile = "/x"\n', '[broker.plant]\nurl = "mqtts://x"\n',
    ],
)  # fmt: skip
def test_code_keys_addresses_and_paths_are_the_host_s(path: Path, above: str) -> None:
    """An overlay with one is valid, and changes nothing; the centre refuses it."""
    free = path.read_text().replace('"uplink", ', "")
    config = under(free, path, "f" * 64, above.encode())
    assert config == under(free, path, "f" * 64, b"")
    assert config.overlay.ignored
    assert config.overlay.lacking == config.overlay.ignored
    with pytest.raises(ValueError, match=r"no overlay changes this|belongs in|expects"):
        check(tomllib.loads(above))


@pytest.mark.parametrize(
    "above",
    [
        '[uplink]\nurl = "mqtts://x"\nca_file = "/x"\n', '[[input]]\ntype = "file"\nname = "files"\nurl = "x"\n',
        '[fleet]\nredact = ["x"]\n', '[nothing]\na = 1\n', '[log]\nlevle = "debug"\n',
    ],
)  # fmt: skip
def test_a_name_that_is_none(path: Path, above: str) -> None:
    """A former name, a wrong one: refused at the centre; the agent leaves it out, says so, and takes
    the rest, for the overlay may have moved the host to another region."""
    with pytest.raises(ValueError, match=r"unknown key|belongs in"):
        check(tomllib.loads(above))
    (table, keys), free = next(iter(tomllib.loads(above).items())), path.read_text().replace('"uplink", ', "")
    left_out = {f"{table}.{key}" for key in keys} | {"fleet", "nothing", "input files.url"}
    made = under(free, path, "f" * 64, f"{above}[bundles]\nchannel = 'new'\n".encode())
    assert made.bundles.channel == "new"
    assert made.overlay.ignored
    assert left_out.issuperset(made.overlay.ignored)


@pytest.mark.parametrize("above", ["[[suppress]]\nfor = '1h'\nhst = 'a'\n", "[log]\nlevle = 1\nlevel = 'x'\n"])
def test_a_name_that_is_none_beside_what_is_wrong(path: Path, above: str) -> None:
    """A value that does not validate is refused all the same, and so is a filter without one of its conditions."""
    with pytest.raises(ConfigError):
        under(path.read_text(), path, "f" * 64, above.encode())


def test_the_centre_takes_what_agents_take() -> None:
    """Changes of inputs, sinks and rule sets that only hosts have, by name, with or without a type; no TLS."""
    check(
        tomllib.loads("""
        [broker]
        url = "mqtts://b:8883"
        [[input]]
        type = "file"
        name = "files"
        multiline = { start = "^x" }
        [[sink]]
        type = "webhook"
        name = "w"
        level = "high"
        [[sink]]
        name = "x"
        max_bytes = "1MiB"
        [[input]]
        type = "audit"
        name = "kernel"
        receive_buffer = "1MiB"
        [[input]]
        name = "some"
        max_body = "1KiB"
        [[ruleset]]
        name = "site"
        channel = "site"
        [[suppress]]
        for = "1h"
        """)
    )
    check(tomllib.loads('[broker]\nurl = "mqtt://b:1883"\n'))
    for text, reason in (
        ('[[input]]\nname = "a"\nfrom_start = 3\n', r"input\[0\].from_start: expects bool"),
        ('[[input]]\nname = "a"\nfrom_strat = true\n', r"input\[0\].from_strat: unknown key"),
        ('[[input]]\nformat = "json"\n', r"input\[0\].type: expects one of"),
        ('[[sink]]\nname = "a"\nlevel = "x"\n', r"sink\[0\].level: expects one of"),
        ('[[sink]]\nname = "a"\nurl = "http://x"\n', "sink a.url: no overlay changes this"),
        ('[[input]]\ntype = "audit"\nname = "a"\n', "input a: no overlay adds one of type audit"),
        ('[[input]]\ntype = "file"\nname = "a"\nformat = 3\n', r"input\[0\].format: expects str"),
        ('[log]\nlevel = "x"\n', "log.level: expects one of"),
        ('[state]\nmax_lateness = "9d"\n', "state.max_lateness: expects 0 to"),
        ("input = [1]\n", r"input\[0\]: expects a table"),
    ):
        with pytest.raises(ValueError, match=reason):
            check(tomllib.loads(text))


def test_an_overlay_over_a_file(path: Path) -> None:
    """The result is what the reader of the file makes of both, and says which overlay it has and what it left out."""
    above = b'[log]\nlevel = "debug"\n[raw_log]\nmax_age = "1d"\n[[input]]\nname = "files"\nfrom_start = true\n'
    made = under(path.read_text(), path, "f" * 64, above)
    assert (made.log.level, made.raw_log.max_age) == ("debug", 30 * 86400)
    assert made.overlay.sha256 == "f" * 64
    assert made.overlay.ignored == ("raw_log.max_age",)
    assert made.input[1].from_start  # type: ignore[attr-defined]  # an input of files


@pytest.mark.parametrize(
    ("above", "lacking"),
    [
        ("[raw_log]\nmax_age = '1d'\n[uplink]\ntype = 'none'\n[[input]]\nname = 'syslog'\ntcp = ':1'\n", ()),
        ("[[input]]\nname = 'elsewhere'\nmax_rate = 5\n[[sink]]\nname = 'w'\nlevel = 'high'\n", ()),
        ("[[input]]\nname = 'elsewhere'\ntype = 'http'\nmax_rate = 5\n", ("input elsewhere",)),
        ("[[input]]\ntype = 'audit'\nname = 'kernel'\n", ("input kernel",)),
        ("[[input]]\nname = 'files'\nurl = 'x'\n[[sink]]\ntype = 'file'\nname = 's'\npath = '/s'\n",
         ("input files.url", "sink s")),
        ("[metrics]\nlisten = ':1'\n[broker]\nca_file = '/x'\n[raw_log]\nnew = 1\nmax_age = '1d'\n",
         ("metrics", "broker.ca_file", "raw_log.new")),
    ],
)  # fmt: skip
def test_what_is_lacking(path: Path, above: str, lacking: tuple[str, ...]) -> None:
    """What is ignored and not locked, but for changes of what other hosts have by this name."""
    overlay = under(path.read_text(), path, "f" * 64, above.encode()).overlay
    assert overlay.lacking == lacking
    assert set(lacking) <= set(overlay.ignored)


@pytest.mark.parametrize("above", [b"[log]\nlevel = 'x'\n", b"\xff", b"[", b"log = 3\n"])
def test_an_overlay_that_does_not_validate(path: Path, above: bytes) -> None:
    """It is refused by the reader of the file."""
    with pytest.raises(ConfigError):
        under(path.read_text(), path, "f" * 64, above)


def test_in_force_until_undone(path: Path, applied: Applied) -> None:
    """What was begun is loaded; undone, the one before is, and the undone one is remembered."""
    assert overlay.load(path).log.level == "info"
    applied.begin(sha256(ONE), ONE)
    assert overlay.load(path).log.level == "debug"
    applied.confirm()
    applied.begin(sha256(TWO), TWO)
    assert overlay.load(path).overlay.sha256 == sha256(TWO)
    again(applied).undo("it cut the uplink")
    assert overlay.load(path).log.level == "debug"
    state = again(applied).state
    assert (state.active, state.confirmed, state.undone) == (sha256(ONE), True, {sha256(TWO): "it cut the uplink"})


def test_an_unconfirmed_one_is_never_gone_back_to(applied: Applied, path: Path) -> None:
    """Two overlays in a row, the first never confirmed: undone, neither is in force."""
    applied.begin(sha256(ONE), ONE)
    applied.begin(sha256(TWO), TWO)
    applied.undo("unhealthy")
    assert (applied.state.active, overlay.load(path).log.level) == ("", "info")


def test_taking_an_overlay_away_is_watched_too(applied: Applied, path: Path) -> None:
    """No overlay is a state like any other: where the local file alone has no uplink, the overlay comes back."""
    applied.begin(sha256(ONE), ONE)
    applied.confirm()
    applied.begin("")
    assert overlay.load(path).log.level == "info"
    applied.undo("not connected")
    assert overlay.load(path).log.level == "debug"
    assert again(applied).state.undone == {"": "not connected"}


def test_an_agent_that_dies_of_it(path: Path, applied: Applied) -> None:
    """After some starts without ever being healthy the overlay is undone before the agent reads it."""
    applied.begin(sha256(ONE), ONE)
    for _ in range(MAX_STARTS):
        assert overlay.load(path, starting=True).log.level == "debug"
    assert overlay.load(path, starting=True).log.level == "info"
    assert "ended 5 times" in again(applied).state.undone[sha256(ONE)]
    assert overlay.load(path).log.level == "info"


def test_an_agent_that_is_killed_while_healthy(path: Path, applied: Applied) -> None:
    """Kills of an agent that was healthy under the overlay say nothing against it."""
    applied.begin(sha256(ONE), ONE)
    for _ in range(3 * MAX_STARTS):
        assert overlay.load(path, starting=True).log.level == "debug"
        again(applied).healthy()


def test_a_local_file_that_no_longer_fits(path: Path, applied: Applied) -> None:
    """The local file is in force alone, with the reason; mended, both are again."""
    above = b'[[suppress]]\nfor = "1h"\n[[ruleset]]\nname = "strict"\nisolation = "strict"\nmax_backlog = "2GiB"\n'
    applied.begin(sha256(above), above)
    applied.confirm()
    text = path.read_text()
    path.write_text(text + '[raw_log]\nmax_bytes = "1GiB"\n')
    config = overlay.load(path)
    assert "ruleset[0].max_backlog" in config.overlay.problem
    assert config.suppress == ()
    path.write_text(text)
    assert overlay.load(path).overlay.problem == ""


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"active": 3, "x": 1}'])
def test_a_damaged_state(path: Path, applied: Applied, data: bytes) -> None:
    """The local file is in force, and the status says why."""
    applied.begin(sha256(ONE), ONE)
    (applied.folder / "overlay.json").write_bytes(data)
    found = overlay.load(path, starting=True)
    assert found.log.level == "info"
    assert "remove it" in found.overlay.problem


def test_killed_between_any_two_writes(path: Path, applied: Applied, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever file was the last that a process wrote, the next one has the old overlay or the new one."""
    applied.begin(sha256(ONE), ONE)
    applied.confirm()
    real, left = overlay.write_whole, 0

    def dying(*arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        real(*arguments)

    monkeypatch.setattr(overlay, "write_whole", dying)
    for steps, level in ((0, "debug"), (1, "debug"), (2, "error")):
        left = steps
        one = again(applied)
        if steps < 2:
            with pytest.raises(KeyboardInterrupt):
                one.begin(sha256(TWO), TWO)
        else:
            one.begin(sha256(TWO), TWO)
        assert overlay.load(path).log.level == level


def test_the_host_s_own_bundle_no_longer_counts(path: Path, applied: Applied) -> None:
    """Once a signed document has named a bundle, that of the local file is none of the agent's."""
    assert overlay.load(path).bundles.file is not None
    applied.govern("default")
    assert overlay.load(path).bundles.file is None


def test_without_a_fleet_nothing_is_looked_at(tmp_path: Path) -> None:
    """A configuration without [fleet] root is read as it always was."""
    path = tmp_path / "vedette.toml"
    path.write_text(f'[agent]\ndata_dir = "{tmp_path}/data"\n')
    assert overlay.load(path, starting=True).overlay == overlay.Overlay()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ([(0, ""), (9, "")], None),
        ([(0, ""), (10, "")], ""),
        ([(0, "away"), (9, "away")], None),
        ([(0, "away"), (10, "away")], "away, for 10 s after the overlay came"),
        ([(0, "away"), (9, ""), (18, ""), (19, "")], ""),
        ([(0, ""), (9, "away"), (18, "away"), (19, "away")], "away, for 10 s after the overlay came"),
        (
            [(0, ""), (9, "away"), (12, ""), (21, "away"), (29, ""), (30, "away")],
            "away, for 0 s after the overlay came",
        ),
    ],
)
def test_watching(seen: list[tuple[float, str]], verdict: str | None) -> None:
    """Well for a while: confirmed; unwell for as long, or neither for three times as long: undone."""
    watch = Watch(10.0, 0.0)
    found = [watch.see(now, wrong) for now, wrong in seen]
    assert found[:-1] == [None] * (len(seen) - 1)
    assert found[-1] == verdict


def test_how_an_input_is_read_is_the_owners_who_redacts(path: Path) -> None:
    """Else a field of its format would be none under another one, and would leave."""
    above = b'[[input]]\nname = "files"\nformat = "text"\npaths = ["/var/log/other"]\n'
    assert under(path.read_text(), path, "f" * 64, above).input[1].format == "text"
    redacting = path.read_text() + '[[redact]]\nfields = ["password"]\n'
    config = under(redacting, path, "f" * 64, above)
    assert config.input[1] == replace(under(redacting, path, "f" * 64, b"").input[1], paths=("/var/log/other",))
    assert (config.overlay.ignored, config.overlay.lacking) == (("input files.format",), ())
