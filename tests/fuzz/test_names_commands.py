"""Names from outside, in every command that takes one, and in the zip that ``vedette fleet import`` takes.

A name is what an operator was told, or pastes: of an agent, an alert, a fleet, a rule set, a lookup, a plugin, a
request. What is a path by its own right, such as ``--output FILE``, is the operator's. ``VEDETTE_DEEP=N`` draws N
instead of 100.
"""

from __future__ import annotations

import shlex
import shutil
import zipfile
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.bundle.conftest import Author
from tests.deep import examples
from tests.fleet.kit import Centre, desired, group
from tests.fleet.test_import_bounds import Site
from tests.fuzz.outside import CANARY, Box, names
from vedette.cli.main import main

ASKING = "--key F/otto.pem --as otto --fleet plants --trust F/trust --requests F/requests --reason r --offline"
ASKING += " --ca-file F/region/members/web-2/region-ca.pem"
BROKER = "--broker mqtt://127.0.0.1:1"
ORDERING = f"{BROKER} --trust F/trust --key F/otto.pem --as otto"
COMMANDS = f"""
archive list --agent=X -c F/vedette.toml
archive restore --agent=X -c F/vedette.toml F/restored
archive verify --agent=X -c F/vedette.toml
bundle build F/rules --output F/built.vbundle --version 1 --name=X
bundle build F/rules --output F/built.vbundle --version 1 --apart=X
bundle rollback --set=X -c F/vedette.toml
bundle sign F/one.vbundle --key F/otto.pem --output F/signed.vbundle --fleet=X
bundle sign F/one.vbundle --key F/otto.pem --output F/signed.vbundle --fleet plants --channel=X
fleet ask status --agent=X {ASKING}
fleet ask status --group=X {ASKING}
fleet ask status --agent a1 {ASKING} --fleet=X
fleet ask status --agent a1 {ASKING} --as=X
fleet cancel X {ASKING}
fleet do rollback --version 1 --ruleset=X --agent a1 {ASKING}
fleet evidence X --alerts F/alert.json --evidence F/evidence {ASKING}
fleet evidence {"0" * 32} --alerts F/alert.json --evidence F/evidence --agent=X {ASKING}
fleet evidence {"0" * 32} --alerts F/alert.json --evidence F/evidence --input=X {ASKING}
fleet export --site=X --trust F/trust --requests F/requests
fleet fetch X --evidence F/evidence {ASKING}
fleet hunt F/rules --agent=X {ASKING}
fleet init X --trust F/new --keys F/keys --root-key alice --targets-key carol
fleet init plants --trust F/new --keys F/keys --root-key=X --targets-key carol
fleet init plants --trust F/new --keys F/keys --root-key alice --targets-key=X
fleet rollout abort X {ORDERING}
fleet rollout pause X {ORDERING}
fleet rollout resume X {ORDERING}
fleet rollout show X {BROKER} --trust F/trust
fleet rotate --trust F/trust --keys F/keys --root-key=X
logs export --input=X -c F/vedette.toml
logs search --input=X -c F/vedette.toml a
logs show -c F/vedette.toml X
lookup build F/users.csv --output F/users.vlookup --key ip:ip --name=X
lookup build F/users.csv --output F/users.vlookup --key ip:ip --plugin=X
lookup fetch F/feeds.toml --output F/fetched --state F/state --only=X
lookup fetch F/feeds.toml --output F/fetched --state F/state --prefix=X
lookup refresh F/tables.toml --output F/fetched --key F/otto.pem --fleet=X
lookup refresh F/tables.toml --output F/fetched --key F/otto.pem --fleet plants --fewer=X
lookup refresh F/tables.toml --output F/fetched --key F/otto.pem --fleet plants --only=X
lookup remove X -c F/vedette.toml
lookup rollback X -c F/vedette.toml
member allow X --folder F/region
member enroll X --folder F/region --fleet plants
member enroll web-1 --folder F/region --fleet=X
member move X --site linz --folder F/region
member move web-1 --site=X --folder F/region
member renew X --folder F/region
member revoke X --folder F/region
member zip X --folder F/region --release F/release.zip
region console --database sqlite:F/console.db user add X --role viewer
region console --database sqlite:F/console.db user grant X viewer
region console --database sqlite:F/console.db user login X
region console --database sqlite:F/console.db user remove X
region publish F/one.vbundle {BROKER} --landing F/landing --fleet=X
region publish F/one.vbundle {BROKER} --landing F/landing --fleet plants --channel=X
region token create --fleet=X --folder F/region
region token create --fleet plants --labels=X --folder F/region
region token revoke X --folder F/region
region token zip X --folder F/region --broker mqtts://r:1 --release F/release.zip
region withdraw {BROKER} --key F/otto.pem --channel stable --fleet=X
region withdraw {BROKER} --key F/otto.pem --fleet plants --channel=X
region withdraw {BROKER} --channel stable --lookup users --fleet=X
region withdraw {BROKER} --fleet plants --lookup users --channel=X
region withdraw {BROKER} --fleet plants --channel stable --lookup=X
rules explain F/rules/needle.yml x --format=X
rules explain F/rules/needle.yml x --id=X
rules explain F/rules/needle.yml x --plugin=X --format a
rules list --set=X -c F/vedette.toml
scan --rules F/rules F/lines.log --format=X
scan --rules F/rules F/lines.log --plugin=X --format a
sink test X -c F/vedette.toml
"""
"""X is the name, F the folder."""
LINES = [line for line in COMMANDS.splitlines() if line]
RULE = "title: Needle\nid: 0b2f8d5c-0000-4000-8000-000000000001\nlogsource: {product: linux}\n"
FILES = {
    "vedette.toml": '[agent]\nid = "a1"\ndata_dir = "F/data"\n[archive]\nurl = "F/archive"\n',
    "rules/needle.yml": RULE + "detection: {k: [needle], condition: k}\n",
    "users.csv": "ip,user\n192.0.2.1,ann\n",
    "feeds.toml": '[[feed]]\nname = "x"\ntype = "misp"\npath = "F/misp"\n',
    "tables.toml": '[[lookup]]\nname = "x"\nevery = "1h"\nkey = ["ip:ip"]\npath = "F/users.csv"\n',
    "misp/event.json": '{"Event": {"uuid": "5b7e1c1a-6d0e-4f43-9a4f-0c8f5a1d2e01", "Attribute": []}}',
    "lines.log": "a needle\n",
    "data/raw/none": "",
    "archive/a1/none": "",
    "alert.json": '{"alert_id": "ID", "agent_id": "a1", "raw_ref": {"log_id": "ID", "offset": 0, "length": 1}}',
    "evidence/none": "",
    "requests/none": "",
}


@pytest.fixture
def host(box: Box, monkeypatch: pytest.MonkeyPatch) -> Box:
    """A box with a host's, an operator's and a region's folders, and the process in it."""
    for name, text in FILES.items():
        path = box.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("F/", f"{box.folder}/").replace("ID", "0" * 32))
    for name in ("data", "evidence", "requests"):
        (box.folder / name / "out").symlink_to(box.root / "elsewhere")
    (box.folder / "one.vbundle").write_bytes(Author(box.folder / "otto.pem").build())
    Centre(box.folder / "trust").publish(desired(1, group("vienna")))
    monkeypatch.chdir(box.folder)
    for module in ("publish", "announce", "steer.ordering"):  # no broker is there
        monkeypatch.setattr(f"vedette.region.{module}.CONNECT_SECONDS", 0.0)
    ended(
        "a member",
        CliRunner().invoke(main, ["member", "enroll", "web-2", "--broker", "mqtts://r:1", "--folder", "region"]),
    )
    return box


def argument(name: str) -> str:
    """The name as a process may be given it."""
    return name.replace("\0", "").replace("\ud800", "\udcff")


def ended(what: str, done: Result) -> None:
    """As commands end: with their own exit codes, no traceback, and an error in one line."""
    assert done.exit_code in (0, 1, 2), f"{what}: {done.exit_code} {done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), f"{what}: {done.exception!r}"
    assert "Traceback" not in done.output, f"{what}: {done.output}"
    assert CANARY not in done.output, f"{what}: {done.output}"
    if done.exit_code == 2 and not done.stderr.startswith("Usage: "):
        assert done.stderr.count("\n") == 1, f"{what}: {done.stderr!r}"


def tried(host: Box, line: str, name: str) -> Result:
    """What a command says to the name in place of X."""
    words = [word.replace("F/", f"{host.folder}/") for word in shlex.split(line)]
    words = [word[:-1] + argument(name) if word == "X" or word.endswith("=X") else word for word in words]
    what = f"{line}: {name!r}"
    for folder in ("new", "keys"):
        shutil.rmtree(host.folder / folder, ignore_errors=True)
    with host.closed(what):
        done = CliRunner().invoke(main, words)
    ended(what, done)
    return done


def test_no_name_leads_a_command_out(host: Box) -> None:  # the quick test of its promise: seconds, for 100 commands
    """Whatever the name: a command refuses it in a line, or does its work in its folders."""

    @examples(100)
    @given(names(host), st.sampled_from(LINES))
    def drawn(name: str, line: str) -> None:
        tried(host, line, name)

    drawn()


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        ("archive list --agent=X", "../.."), ("fleet export --site=X", "../canary"), ("fleet init X", "../canary"),
        ("lookup fetch F/feeds.toml --output F/fetched --state F/state --prefix=X", "../../canary"),
        ("fleet ask status --agent=X", ".."), ("fleet do rollback", "\udcff"), ("scan", "a\nb"),
        ("member revoke X", "a\nb"), ("region token revoke X", "a\nb"), ("fleet evidence X", "a\nb"),
        ("bundle build F/rules --output F/built.vbundle --version 1 --name=X", ".hidden"),
        (f"region publish F/one.vbundle {BROKER} --landing F/landing --fleet=X", "a\nb"),
        (f"region withdraw {BROKER} --key F/otto.pem --channel stable --fleet=X", "+"),
        (f"region withdraw {BROKER} --fleet plants --lookup users --channel=X", "a/b"),
        (f"region withdraw {BROKER} --fleet plants --channel stable --lookup=X", "a\nb"),
    ],
)  # fmt: skip
def test_refused(host: Box, begin: str, name: str) -> None:
    """In one line, before a broker is asked, and no request is left behind."""
    line = next(line for line in LINES if line.startswith(begin))
    done = tried(host, line, name)
    assert done.exit_code == 2
    assert "the broker" not in done.stderr
    assert {path.name for path in (host.folder / "requests").iterdir()} == {"out", "none"}


def test_no_name_in_a_zip_leads_out(box: Box) -> None:
    """A site's zip with one more file of any name, or one in place of another, unpacks nothing but what belongs there;
    a folder in it is passed over."""
    site = Site(box.folder / "site")

    @examples(50)
    @given(names(box), st.sampled_from(sorted(site.files)), st.booleans())
    def tried(name: str, other: str, instead: bool) -> None:
        path = site.folder / "site.zip"
        name = name.encode("utf-8", "replace").decode().partition("\0")[0]  # a zip's names end there
        with zipfile.ZipFile(path, "w") as out:
            for file, data in site.files.items():
                out.writestr(name or "." if instead and file == other else file, data)
            if not instead:
                out.writestr(name or ".", b"x")
        with box.closed(name):
            done = site.take(path)
        ended(name, done)
        assert done.exit_code == 2 or name.endswith("/"), f"{name!r}: {done.output}"
        assert site.unpacked().keys() <= {f"fleet/carried/{file}" for file in site.files}
        shutil.rmtree(site.folder / "data", ignore_errors=True)

    tried()


def test_commands_that_take_a_name_are_tried() -> None:
    """Each text that a command takes is in the table, or no name: a time, an address, an expression, a key."""
    no_name = {
        "--since", "--until", "--username", "--broker", "--wait", "--expires", "--reason", "--as", "--group", "--from",
        "--to", "--pattern", "--known", "--for", "--trusted-key", "--key", "--type", "--columns", "--valid", "--index",
        "--at", "--topic", "--product", "--time-field", "--skip", "--filter", "--output", "--host", "--noted",
        "--reload", "--receipt-key", "--kafka", "--kafka-topics", "--client-id", "ADDRESS", "PATTERN", "KEY", "EVENT",
        "RULE",
    }  # fmt: skip
    apart = ("region console ", "region enroller ", "region land ", "region steer ")
    for path, command in commands(main):
        texts = {
            (param.opts[-1] if isinstance(param, click.Option) else (param.name or "").upper())
            for param in command.params
            if param.type.name == "text" and not getattr(param, "is_flag", False)
        }
        for text in texts - no_name:
            as_option = f" {text}=X" in COMMANDS
            as_argument = any(line.startswith(f"{path} ") and "X" in line.split() for line in LINES)
            assert as_option or as_argument or f"{path} ".startswith(apart), f"{path} {text}"


def commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        path = f"{above} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, path)
        else:
            yield path, command
