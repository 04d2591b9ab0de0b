"""The example plugins, installed by pip, in the real agent: events come in, alerts go out, and faults stay theirs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import own_port
from tests.e2e.agent import ROOT, Agent, vedette
from tests.rawlog.samples import NOW, open_log
from tests.runtime.test_hunt import SMALL, order, report, start, stopped
from tests.waits import DEADLINE, until
from vedette.decode.declared import declared
from vedette.fleet.huntfolder import Input, Order
from vedette.model.event import Chunk, LogSource
from vedette.rules import build

RULE = """title: Badge at the gate
id: 6a1f0000-0000-4000-8000-000000000087
logsource: {product: gates}
detection: {one: {gate: GATE3, badge: 41457}, condition: one}
level: high
"""
BROKEN = """
class Broken:
    def __init__(self, options): pass
    def run(self, feed): raise RuntimeError("broken by intent")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all example packages, as pip installs them."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copytree(ROOT / "examples" / "plugins", folder / "source")
    sources = sorted((folder / "source").iterdir())
    assert [one.name for one in sources] == ["decoder", "function", "input", "lookup", "sink"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
         "--no-build-isolation", "--target", folder / "site", *sources],
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    info = folder / "site" / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vedette.inputs]\nbroken = broken:Broken\n")
    (folder / "site" / "broken.py").write_text(BROKEN)
    return folder / "site"


@pytest.fixture
def path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_an_agent(tmp_path: Path) -> None:
    """An input, a decoder and a sink of plugins at work, beside an input that only fails."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "gate.yml").write_text(RULE)
    spool = tmp_path / "spool"
    port = own_port()
    agent = Agent(
        tmp_path / "a",
        f'[[input]]\ntype = "counted"\nname = "till"\nformat = "gate"\nlogsource = {{product = "gates"}}\n'
        f'options = {{listen = "127.0.0.1:{port}"}}\n[[input]]\ntype = "broken"\nname = "bad"\n'
        f'[uplink]\ntype = "none"\n[[sink]]\ntype = "spool"\nname = "tickets"\noptions = {{folder = "{spool}"}}\n'
        '[plugins]\nallow = ["vedette-example-input", "vedette-example-decoder", "vedette-example-sink", "broken"]\n',
        rules=tmp_path / "rules",
    ).up()
    try:
        until("the faults of the broken one", lambda: agent.said("plugin_failed"))
        until("the input", lambda: answered(port, b"GATE4 IN 00A1F1"))
        assert answered(port, b"GATE3 OUT 00A1F1")  # 41457
        until("the sink's fault", lambda: of(agent, "sink tickets")["faults"])  # there is no folder yet
        spool.mkdir()
        (file,) = until("the alert", lambda: [*spool.glob("*.json")])
        alert = json.loads(file.read_text())
        assert (alert["raw"], alert["source"]) == ("GATE3 OUT 00A1F1", "till")
        until("the sink to be well", lambda: of(agent, "sink tickets")["error"] is None)
        status = agent.status()
        assert (status["identity_broken"], status["inputs"]["till"]["stored"]) == ([], 2)
        assert of(agent, "input bad")["error"] == "RuntimeError: broken by intent"
        assert of(agent, "input till")["faults"] == 0
    finally:
        agent.stop()


def of(agent: Agent, used: str) -> dict[str, object]:
    return {one["used"]: one for one in agent.status()["plugins"]}[used]


def answered(port: int, event: bytes) -> bool:
    """Send one event as a netstring; whether it is answered for."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as connection:
            connection.sendall(b"%d:%s," % (len(event), event))
            return connection.recv(1) == b"+"
    except ConnectionRefusedError:
        return False


FORMAT = {"name": "turnstile", "regex": r"T(?P<gate>N\d):(?P<badge>\d+)"}


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_scan(tmp_path: Path) -> None:
    """A file of the decoder's format, as an agent reads it; without the plugin that is said."""
    (tmp_path / "gate.yml").write_text(RULE)
    (tmp_path / "in.log").write_text("GATE4 IN 00A1F1\nGATE3 OUT 00A1F1\n")
    asked = ("scan", "--rules", tmp_path / "gate.yml", "--format", "gate", tmp_path / "in.log")
    done = vedette(*asked, "--plugin", "vedette-example-decoder")
    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["line"], found["fields"]) == (2, {"badge": "41457", "gate": "GATE3"})
    assert "--format gate: expects one of" in vedette(*asked, code=2).stderr
    assert "no distribution none-such" in vedette(*asked, "--plugin", "none-such", code=2).stderr
    whole = ("rules", "explain", tmp_path / "gate.yml", "GATE3 OUT 00A1F1", "--format", "gate")
    assert "41457" in vedette(*whole, "--plugin", "vedette-example-decoder:gate").stdout


@pytest.mark.long
@pytest.mark.usefixtures("awake")
def test_a_hunt(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an agent stored under names of a plugin's decoder and of a declared format is read as the agent reads it,
    also by rules that bring neither."""
    monkeypatch.syspath_prepend(site)  # a hunt has the module path of its agent
    (tmp_path / "gate.yml").write_text(RULE + "---\n" + RULE.replace("0087", "0088").replace("GATE3", "N7"))
    plan = build.from_rules(build.load([tmp_path / "gate.yml"]))
    log = open_log(tmp_path / "raw", SMALL)
    log.append(Chunk("till", "gate", NOW, b"GATE4 IN 00A1F1\nGATE3 OUT 00A1F1\n"))
    log.append(Chunk("door", "rules:turnstile", NOW + 1, b"TN7:41457\nTN8:41457\n"))
    log.close()
    inputs = tuple(Input(name, "UTC", LogSource(product="gates"), False) for name in ("till", "door"))
    formats, counts = ((declared(FORMAT).text, "turnstile.toml"),), []
    for name, given in {"bare": {}, "whole": {"plugins": ("vedette-example-decoder",), "formats": formats}}.items():
        folder = order(tmp_path / name, plan, tmp_path / "raw")
        Order.load(folder)._replace(inputs=inputs, **given).save(folder)  # type: ignore[arg-type]  # as named
        assert stopped(start(folder)) == 0, (folder / "stderr").read_text()
        counts.append({one["id"][-4:]: one["count"] for one in report(folder)["rules"]})
    assert counts == [{}, {"0087": 1, "0088": 1}]


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_an_export(tmp_path: Path) -> None:
    """``logs export`` reads what is stored under names of a plugin's decoder and of declared formats as the agent does:
    of rules in a folder, and of the bundle in the data folder."""
    rules = tmp_path / "rules"
    (rules / "formats").mkdir(parents=True)
    (rules / "gate.yml").write_text(RULE)
    (rules / "formats" / "turnstile.toml").write_text(
        "name = 'turnstile'\nregex = '" + FORMAT["regex"] + "'\n[[examples]]\nmessage = 'TN7:41457'\n"
    )
    log = open_log(tmp_path / "data" / "raw", SMALL)
    log.append(Chunk("till", "gate", NOW, b"GATE3 OUT 00A1F1\n"))
    log.append(Chunk("door", "rules:turnstile", NOW + 1, b"TN7:41457\n"))
    log.close()
    config = tmp_path / "vedette.toml"
    config.write_text(
        f"""[agent]
id = "a"
fleet = "f"
site = "s"
data_dir = "{tmp_path / "data"}"
[plugins]
allow = ["vedette-example-decoder"]
[rules]
paths = ["{rules}"]
"""
    )

    def exported() -> list[dict[str, str]]:
        done = vedette("logs", "export", "-c", config)
        return [json.loads(line)["fields"] for line in done.stdout.splitlines()]

    plugin, declared_one = exported()
    assert (plugin["gate"], plugin["badge"]) == ("GATE3", "41457")
    assert (declared_one["gate"], declared_one["badge"]) == ("N7", "41457")
    config.write_text(config.read_text().replace(f'[rules]\npaths = ["{rules}"]\n', ""))
    assert "badge" not in exported()[1]
    bundles = tmp_path / "data" / "bundles"
    bundles.mkdir()
    vedette("bundle", "build", rules, "-o", bundles / "1-000000000000.vbundle", "--version", "1", "--name", "gates")
    (bundles / "current").symlink_to("1-000000000000.vbundle")
    assert exported()[1]["badge"] == "41457"


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_their_own_tests() -> None:
    """Those that the packages bring along pass where they are installed."""
    folders = sorted((ROOT / "examples" / "plugins").glob("*/tests"))
    assert len(folders) == 5
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_a_lookup(tmp_path: Path) -> None:
    """A plugin's rows become a lookup; what it raises is said with its name."""
    (tmp_path / "hosts").write_text("# mine\n10.0.0.7 printer lp\n10.0.0.8 tv\n")
    made = tmp_path / "hosts.vlookup"
    build = ("lookup", "build", tmp_path / "hosts", "-o", made, "--key", "address:ip", "--plugin")
    assert "2 rows" in vedette(*build, "vedette-example-lookup:hosts").stdout
    assert "printer" in vedette("lookup", "get", made, "10.0.0.7").stdout
    (tmp_path / "hosts").unlink()
    failed = vedette(*build, "vedette-example-lookup", code=None)
    assert failed.returncode != 0
    assert "--plugin vedette-example-lookup:hosts" in failed.stderr
    assert "FileNotFoundError" in failed.stderr
    missing = vedette(*build, "no-such-thing", code=None)
    assert "no distribution no-such-thing is installed" in missing.stderr


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_a_function(tmp_path: Path, site: Path) -> None:
    """A function of a plugin travels with the rules: where they run it need not be installed."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "names.sql").write_text(
        "CREATE TABLE dns (query STRING, host STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',"
        " WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');\n"
        "CREATE FUNCTION entropy AS 'vedette-example-function:entropy' LANGUAGE PYTHON;\n"
        "SELECT query, ts FROM dns WHERE entropy(query) > 3.5;\n"
    )
    (tmp_path / "in.json").write_text('{"query": "aaaa"}\n{"query": "q8z1x0v7m3k5"}\n')
    done = vedette("scan", "--rules", rules, "--functions", "--format", "json", tmp_path / "in.json", code=None)
    assert (done.returncode, "q8z1x0v7m3k5" in done.stdout, "aaaa" in done.stdout) == (0, True, False), done.stderr
