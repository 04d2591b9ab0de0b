"""The rule author's commands, as they are called: lint, explain, list, and pipelines on scan and bundle build."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.lookup.tables import lookup_of
from vedette.cli.main import main
from vedette.rules.build import from_rules

RULE = """title: Rare Thing
id: 929a690e-bef0-4204-a928-ef5e620d6fcc
logsource: {product: linux, service: sshd}
detection: {s: {Who|expand: '%names%'}, condition: s}
level: high
"""
PIPELINE = "name: p\npriority: 1\ntransformations: [{type: field_name_mapping, mapping: {Who: user}}]\n"


def vedette(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def files(folder: Path) -> tuple[Path, Path, Path]:
    """A rule, a pipeline and a lookup that it needs."""
    made = folder / "rare.yml", folder / "p" / "p.yml", folder / "names.txt"
    made[1].parent.mkdir()
    for path, text in zip(made, (RULE, PIPELINE, "root\nadm*\n"), strict=True):
        path.write_text(text)
    return made


def test_scan_with_a_pipeline_and_a_lookup(tmp_path: Path) -> None:
    """Fields are mapped and placeholders filled before anything is evaluated; without them the rule is refused."""
    rule, pipeline, lookup = files(tmp_path)
    events = tmp_path / "events.ndjson"
    events.write_text('{"user": "root"}\n{"user": "bob"}\n{"user": "admin"}\n')
    done = vedette("scan", "--rules", rule, "--pipeline", pipeline, "--lookup", lookup, events)
    assert done.exit_code == 0
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 3]
    without = vedette("scan", "--rules", rule, events)
    assert "%names% has no value" in without.stderr
    wrong = vedette("scan", "--rules", rule, "--pipeline", rule, events)
    assert (wrong.exit_code, "not a processing pipeline" in wrong.stderr) == (2, True)


SQL = """
CREATE TABLE assets (ip STRING, owner STRING) WITH ('connector' = 'vedette', 'lookup' = 'assets');
-- title: Asset
INSERT INTO alerts SELECT e.src_ip, a.owner FROM events AS e
JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS a ON a.ip = e.src_ip WHERE e.message LIKE 'Accepted %';
"""


def test_scan_keeps_statements_and_rules_with_lookups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second scan takes what the first one compiled, of Sigma and of SQL, and asks the lookup; a changed ``.sql``
    file compiles again, a lookup with other rows is only asked. What a lookup that is not there stops stays refused."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    compiled = []
    monkeypatch.setattr("vedette.rules.build.from_rules", lambda rules: (compiled.append(0), from_rules(rules))[1])
    rules, lookup = tmp_path / "rules", tmp_path / "assets.vlookup"
    rules.mkdir()
    (rules / "a.sql").write_text(SQL)
    (rules / "b.yml").write_text(RULE.replace("Who|expand: '%names%'", "src_ip|expand: '%assets%'"))
    events = tmp_path / "auth.log"
    line = "<38>Nov 20 10:00:00 web1 sshd[7]: Accepted password for a from 10.0.0.{} port 1 ssh2\n"
    events.write_text("".join(map(line.format, (1, 2))))

    def built(number: int, owner: str) -> None:
        lookup_of(lookup, "ip owner", "ip", [(f"10.0.0.{number}", owner)]).close()

    def scanned(*options: object) -> list[tuple[object, ...]]:
        done = vedette("scan", "--rules", rules, *options, events)
        assert done.exit_code == (0 if options else 2)
        rows = map(json.loads, done.stdout.splitlines())
        return [(row["rule_title"], row["line"], row["fields"].get("owner")) for row in rows]

    given = "--lookup", lookup
    built(1, "ann")
    first = [("Rare Thing", 1, None), ("Asset", 1, "ann")]
    assert [scanned(*given), scanned(*given), len(compiled)] == [first, first, 1]
    built(2, "bob")
    second = [("Rare Thing", 2, None), ("Asset", 2, "bob")]
    assert [scanned(*given), scanned(*given), len(compiled)] == [second, second, 1]
    (rules / "a.sql").write_text(SQL.replace("Asset", "Changed"))
    third = [second[0], ("Changed", 2, "bob")]
    assert [scanned(*given), scanned(*given), len(compiled)] == [third, third, 2]
    assert [scanned(), scanned(), len(compiled)] == [[], [], 3]


def test_scan_tells_of_quarantine(tmp_path: Path) -> None:
    """What could not be decided is reported with its rule and by the exit code."""
    rule, events = tmp_path / "slow.yml", tmp_path / "events.ndjson"
    rule.write_text(RULE.replace("Who|expand: '%names%'", "Who|re: (?=a)(a|aa)+$"))
    events.write_text(f'{{"Who": "{"a" * 60}!"}}\n' * 12)
    done = vedette("scan", "--rules", rule, events)
    assert done.exit_code == 2
    assert "undecided: Rare Thing on 10 events" in done.stderr
    assert "quarantined: Rare Thing: not asked on 2 more events" in done.stderr


def test_one_file_that_no_parser_reads(tmp_path: Path) -> None:
    """A template that nobody rendered: every command names its file and line, and does its work for the other rule."""
    rules, events, bundle = tmp_path / "rules", tmp_path / "events.ndjson", tmp_path / "rules.vbundle"
    rules.mkdir()
    good = RULE.replace(", service: sshd", "").replace("Who|expand: '%names%'", "Who: root")
    (rules / "good.yml").write_text(good)
    (rules / "good.test.yml").write_text("- match: {event: {Who: root}}\n")
    bad = rules / "bad.yml"
    bad.write_text(good.replace("929a690e", "00000000").replace("Who: root", "Who: {{ admin_user }}"))
    events.write_text('{"Who": "root"}\n')
    for code, *command in (
        (0, "scan", "--rules", rules, events),
        (1, "rules", "lint", rules),
        (1, "rules", "test", rules),
        (1, "rules", "explain", rules),
        (1, "rules", "list", rules),
        (0, "bundle", "build", rules, "--version", 1, "-o", bundle),
    ):
        done = vedette(*command)
        assert f"{bad}:4" in done.output, command
        assert "not valid YAML: a mapping or list is used as a key: if this is a template" in done.output
        assert done.exit_code == code, command
    assert bundle.exists()
    assert '"line":1' in vedette("scan", "--rules", rules, events).stdout.replace(" ", "")


def test_what_a_folder_lists_and_is_no_file(tmp_path: Path) -> None:
    """Editors' locks and hidden folders are left out; a dead link, a pipe, a socket are refused by name, alone: every
    command does its work for the other rule, and none waits."""
    rules, events, bundle = tmp_path / "rules", tmp_path / "events.ndjson", tmp_path / "rules.vbundle"
    (rules / "folder.yml").mkdir(parents=True)
    good = RULE.replace(", service: sshd", "").replace("Who|expand: '%names%'", "Who: root")
    (rules / "folder.yml" / "good.yml").write_text(good)
    os.mkfifo(rules / "folder.yml" / "good.test.yaml")
    (rules / "folder.yml" / "good.test.yml").write_text("- match: {event: {Who: root}}\n")
    (rules / ".#good.yml").symlink_to("bob@host.1:17")
    (rules / ".git").mkdir()
    (rules / ".git" / "good.yml").write_text(good)
    (rules / "dead.yml").symlink_to(tmp_path / "nowhere")
    os.mkfifo(rules / "pipe.yml")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(rules / "socket.yml"))
    events.write_text('{"Who": "root"}\n')
    for code, *command in (
        (0, "scan", "--rules", rules, events),
        (1, "rules", "lint", rules),
        (1, "rules", "test", rules),
        (1, "rules", "explain", rules),
        (1, "rules", "list", rules),
        (0, "bundle", "build", rules, "--version", 1, "-o", bundle),
    ):
        done = vedette(*command)
        assert done.exit_code == code, (command, done.output)
        assert f"{rules}/dead.yml:1: cannot be read: No such file" in done.output.replace("error: ", "")
        assert f"{rules}/pipe.yml:1: cannot be read: it is no regular file" in done.output.replace("error: ", "")
        assert f"{rules}/socket.yml:1: cannot be read: it is no regular file" in done.output.replace("error: ", "")
        assert "lock" not in done.output
        assert ".git" not in done.output
    assert bundle.exists()
    assert '"line":1' in vedette("scan", "--rules", rules, events).stdout.replace(" ", "")
    errors = vedette("rules", "test", rules).stderr
    assert f"{rules}/folder.yml/good.test.yaml:1: cannot be read: it is no regular file" in errors
    assert vedette("rules", "list", rules / "dead.yml").exit_code == 2  # the user named it


def test_what_folders_of_lookups_and_pipelines_list(tmp_path: Path) -> None:
    """A lookup that is no file refuses the rules that ask for it; a pipeline would be for all rules, so it is an error
    that names it. Hidden files are left out of both, and none is waited for."""
    rule, pipeline, lookup = files(tmp_path)
    other = tmp_path / "other.yml"
    other.write_text(RULE.replace("929a690e", "00000000").replace("%names%", "%pipe%"))
    lookups = tmp_path / "lookups"
    lookups.mkdir()
    lookup.rename(lookups / lookup.name)
    os.mkfifo(lookups / "pipe.txt")
    os.mkfifo(lookups / ".names.csv")
    (lookups / "dead.txt").symlink_to(tmp_path / "nowhere")
    (pipeline.parent / ".#p.yml").symlink_to("bob@host.1:17")
    given = ("--pipeline", pipeline.parent, "--lookup", lookups)
    done = vedette("rules", "list", *given, rule, other)
    assert "active" in done.stdout.splitlines()[0]
    assert f"{lookups}/pipe.txt:1: cannot be read: it is no regular file" in done.stdout
    assert f"{lookups}/dead.txt:1: cannot be read: No such file" in done.stdout
    assert f"{other}:4: the placeholder %pipe% has no value: {lookups}/pipe.txt: cannot be read" in done.stdout
    os.mkfifo(pipeline.parent / "second.yml")
    done = vedette("rules", "list", *given, rule)
    assert done.exit_code == 2
    assert f"{pipeline.parent}/second.yml: cannot be read: it is no regular file" in done.stderr


def test_lint(tmp_path: Path) -> None:
    """A finding a line with file, line, column; exit code 1 for errors, and for warnings when strict."""
    rule, pipeline, lookup = files(tmp_path)
    good = vedette("rules", "lint", "--pipeline", pipeline, "--lookup", lookup, rule)
    assert good.exit_code == 0
    assert f"{rule}:1:1: note: falsepositives is missing [metadata] (Rare Thing)" in good.stdout
    bad = vedette("rules", "lint", "--json", rule)
    assert bad.exit_code == 1
    (error,) = [row for row in map(json.loads, bad.stdout.splitlines()) if row["severity"] == "error"]
    assert (error["check"], error["line"], error["column"]) == ("refused", 4, 17)
    rule.write_text(RULE.replace("Who|expand: '%names%'", "pid|gt: 5"))
    assert vedette("rules", "lint", rule).exit_code == 0
    assert vedette("rules", "lint", "--strict", rule).exit_code == 1
    assert vedette("rules", "lint", "--strict", "--skip", "cost", "--skip", "FilenameLength", rule).exit_code == 0
    rule.write_text(RULE.replace("condition: s", "condition: s | count() > 5").replace("|expand", ""))
    legacy = vedette("rules", "lint", rule)
    assert "      type: event_count" in legacy.stdout
    assert vedette("rules", "lint", tmp_path / "nowhere").exit_code == 2


def test_a_rule_without_test_events_is_a_mistake(tmp_path: Path) -> None:
    """Also when nothing else is wrong."""
    rule = tmp_path / "rare.yml"
    rule.write_text(RULE.replace("Who|expand: '%names%'", "user: root"))
    done = vedette("rules", "test", rule)
    assert (done.exit_code, "0 failures, 1 mistakes" in done.stdout) == (1, True)


def test_explain(tmp_path: Path) -> None:
    """Predicates and literals of a rule, and its truth on an event from an argument or standard input."""
    rule, pipeline, lookup = files(tmp_path)
    options = ("rules", "explain", "--pipeline", pipeline, "--lookup", lookup)
    shown = vedette(*options, rule)
    assert "user is 'root'" in shown.stdout
    assert "MATCH" not in shown.stdout
    assert "  MATCH" in vedette(*options, rule, '{"user": "root"}').stdout
    assert "  no match" in vedette(*options, "--id", "Rare Thing", rule, '{"user": "bob"}').stdout
    rule_id = "929a690e-bef0-4204-a928-ef5e620d6fcc"
    assert vedette(*options, "--id", f"{rule_id}@site", rule).stdout == vedette(*options, "--id", rule_id, rule).stdout
    assert vedette(*options, "--id", "Rare Thing@site", rule).exit_code == 2  # titles are not renamed
    piped = CliRunner().invoke(main, [*map(str, options), str(rule), "-"], input='{"user": "admin"}')
    assert "  MATCH" in piped.stdout
    refused = vedette("rules", "explain", rule)
    assert (refused.exit_code, "does not run" in refused.stdout) == (1, True)
    assert vedette(*options, "--id", "nobody", rule).exit_code == 2
    assert vedette(*options, "--format", "bogus", rule, "x").exit_code == 2


FILTER = """title: Known Accounts
logsource: {product: linux}
filter: {rules: [929a690e-bef0-4204-a928-ef5e620d6fcc], known: {user: admin}, condition: not known}
"""
COUNT = """title: Many Rare Things
id: 829a690e-bef0-4204-a928-ef5e620d6fcc
correlation:
    type: value_count
    rules: [929a690e-bef0-4204-a928-ef5e620d6fcc]
    group-by: [src_ip]
    timespan: 5m
    condition: {field: user, gte: 2}
"""


def test_explain_with_rules_of_other_files(tmp_path: Path) -> None:
    """A filter, a rule that it is joined to and a correlation, each in a file of its own: ``--with`` brings the others,
    a folder that holds RULE itself included, and only RULE is shown."""
    rule, known, count = tmp_path / "rare.yml", tmp_path / "known.yml", tmp_path / "count.yml"
    rule.write_text(RULE.replace("Who|expand: '%names%'", "user: [root, admin]"))
    known.write_text(FILTER)
    count.write_text(COUNT)
    event = '{"user": "admin", "src_ip": "192.0.2.1"}'
    for path in (known, count):
        alone = vedette("rules", "explain", path)
        assert (alone.exit_code, "given by --with" in alone.stdout) == (1, True)
    options = ("rules", "explain", "--with", tmp_path)
    shown = vedette(*options, known)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        f"filter 'Known Accounts' ({known}:1)",
        f"  joined to Rare Thing ({rule}:1)",
    ]
    shown = vedette(*options, rule, event)
    assert shown.exit_code == 0
    assert f"  joined to it: filter 'Known Accounts' ({known}:1)" in shown.stdout
    assert f"    false filter 'Known Accounts' ({known}:1): not" in shown.stdout
    assert "  no match" in shown.stdout
    assert "  used by the correlation Many Rare Things" in shown.stdout
    assert "Many Rare Things (829a690e-bef0-4204-a928-ef5e620d6fcc), level" not in shown.stdout
    shown = vedette("rules", "explain", "--with", rule, count, event)
    assert shown.exit_code == 0
    assert "Rare Thing (929a690e" in shown.stdout
    assert shown.stdout.splitlines()[-3:] == [
        "  rule 0: Rare Thing: MATCH",
        "    in the group src_ip = '192.0.2.1'",
        "    adds user = 'admin'",
    ]
    shown = vedette("rules", "explain", "--with", rule, count, '{"user": "root"}')
    assert shown.stdout.splitlines()[-1] == "    it is in no group and does not count, for lack of: src_ip"
    assert vedette(*options, tmp_path / "none.yml").exit_code == 2
    assert vedette("rules", "explain", "--with", tmp_path / "none.yml", rule).exit_code == 2


def test_list(tmp_path: Path) -> None:
    """Active, always or dead with its reason; with a configuration the inputs count, too."""
    folder = tmp_path / "rules"
    folder.mkdir()
    for number, item in enumerate(["user: rare thing", "user: '?'", "user: 'rare'", "user|bogus: x"]):
        text = RULE.replace("Who|expand: '%names%'", item).replace("929a", f"929{number}")
        (folder / f"{number}.yml").write_text(text.replace("sshd", "nosuch") if number == 2 else text)
    listed = vedette("rules", "list", folder)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["active", "always", "active", "dead"]
    assert listed.exit_code == 1
    config = tmp_path / "vedette.toml"
    config.write_text(f'[[input]]\ntype = "syslog"\nname = "s"\nudp = "127.0.0.1:0"\n[rules]\npaths = ["{folder}"]\n')
    rows = [json.loads(line) for line in vedette("rules", "list", "--json", "-c", config).stdout.splitlines()]
    assert [row["state"] for row in rows] == ["active", "always", "dead", "dead"]
    assert "no input has its log source" in rows[2]["reason"]
    assert "Unknown modifier" in rows[3]["reason"]
    assert vedette("rules", "list").exit_code == 2


def test_list_says_why_a_rule_is_always_looked_at(tmp_path: Path) -> None:
    """The placeholder by name, with its number of values; a lookup that cannot be used is named, the rest listed."""
    rule, pipeline, lookup = files(tmp_path)
    rule.write_text(rule.read_text().replace("Who|expand", "Who|contains|expand"))
    lookup.write_text("\n".join(f"user{i}" for i in range(3000)))
    given = ("--pipeline", pipeline, "--lookup", lookup, rule)
    done = vedette("rules", "list", *given)
    assert done.exit_code == 0
    assert "always" in done.stdout
    assert "%names% stands for 3,000 values, more than the 2,048 that the prefilter searches for" in done.stdout
    rule.write_text(rule.read_text().replace("Who|contains|expand", "Who|expand"))
    done = vedette("rules", "list", *given)
    assert "evaluated on every event of its log source: user is in value of the lookup names-" in done.stdout
    lookup.write_text("\n".join(f"user{i}" for i in range(1_000_000)))
    other = tmp_path / "other.yml"
    other.write_text(RULE.replace("929a690e", "00000000").replace("Who|expand: '%names%'", "user: somebody"))
    done = vedette("rules", "list", *given, other)
    assert done.exit_code == 1
    assert f"{lookup}:1: larger than 8 MiB: split it" in done.stdout
    said = "1 rules, 0 correlations, 1 refused: 1 active, 0 always, 1 dead; 1 lookups that cannot be used"
    assert said in done.stderr
    rows = [json.loads(line) for line in vedette("rules", "list", "--json", *given, other).stdout.splitlines()]
    assert [(row["state"], row["kind"]) for row in rows] == [("active", "detection"), ("dead", "lookup"), ("dead", "")]
    without = vedette("rules", "list", "--lookup", lookup, other)
    assert (without.exit_code, "1 rules, 0 correlations: 1 active, 0 always, 0 dead; 1" in without.stderr) == (1, True)


def test_bundles_are_built_with_pipelines(tmp_path: Path) -> None:
    """What a bundle holds is mapped already."""
    rule, pipeline, lookup = files(tmp_path)
    out = tmp_path / "one.vbundle"
    done = vedette(
        "bundle", "build", rule, "-o", out, "--version", 1, "--pipeline", pipeline, "--lookup", lookup, "--strict"
    )
    assert done.exit_code == 0, done.stderr
    assert "1 rules" in done.stdout
