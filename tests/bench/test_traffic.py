"""bench/traffic.py: streams are reproducible, truthful and well formed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

from bench import attacks, benign, traffic
from bench.traffic import Planted, blocks, lines, main, messages

KINDS = sorted(traffic.KINDS)
FORM = {
    "syslog": re.compile(
        rb"<\d{1,3}>(1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ \S"
    ),
    "access": re.compile(
        rb'[\d.]+ - \S+ \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] "[^"]+" \d{3} \d+ "[^"]*" "[^"]*"$'
    ),
    "mqtt-json": re.compile(rb"plant/\w+/\w+/[\w-]+/(telemetry|raw|command) \S"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_stream(kind: str) -> None:
    """A stream is a function of its arguments, and another seed gives another one."""
    first = b"".join(blocks(5, 3000, attack_rate=0.05, kind=kind))
    assert first == b"".join(blocks(5, 3000, attack_rate=0.05, kind=kind))
    assert first != b"".join(blocks(6, 3000, attack_rate=0.05, kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_lines_equal_blocks_and_shorter_is_prefix(kind: str) -> None:
    """The two forms give the same bytes, and a shorter stream is a prefix of a longer one."""
    bulk = b"".join(blocks(1, 2345, attack_rate=0.02, kind=kind))
    single = list(lines(1, 2345, attack_rate=0.02, kind=kind))
    assert bulk == b"".join(line + b"\n" for line in single)
    assert len(single) == 2345
    assert list(lines(1, 777, attack_rate=0.02, kind=kind)) == single[:777]


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_well_formed(kind: str) -> None:
    """Every line has its kind's form; no time is left open and no number unfilled."""
    for line in lines(2, 2000, attack_rate=0.1, kind=kind):
        assert FORM[kind].match(line), line
        assert not re.search(rb"[\x00-\x1f]|%d", line), line


@pytest.mark.parametrize("table", [benign.SYSLOG, benign.ACCESS, benign.MQTT])
def test_bodies_have_two_slots(table: list[tuple[int, benign.Body]]) -> None:
    """Every template takes exactly the two numbers that the stream gives."""
    for body in benign.pool(table, Random(9), 2000):
        assert body.replace(b"%%", b"").count(b"%d") == 2, body


@pytest.mark.parametrize("kind", KINDS)
def test_truth_labels_the_planted_lines_and_no_others(kind: str) -> None:
    """Lines with an attack's marks are those that truth names; every kind of incident occurs; the rate holds."""
    truth: list[Planted] = []
    stream = list(lines(3, 20_000, attack_rate=0.02, kind=kind, truth=truth))
    assert 0.015 * len(stream) <= len(truth) <= 0.02 * len(stream)
    assert {label.attack for label in truth} == set(traffic.KINDS[kind][1])
    labelled = {label.line for label in truth}
    assert len(labelled) == len(truth)
    marks = re.compile(
        rb"203\.0\.113\.|\.invalid|UID=0,|/var/log/auth\.log|truncate -s 0|vacuum-time|/dev/null /root|"
        rb'COMMAND=(/usr/bin/chmod|)[ /]\S*tmp/\.|chmod \+x /tmp/\.|"rpm":[4-9]\d{3},'
    )
    assert {number for number, line in enumerate(stream, 1) if marks.search(line)} == labelled


def test_incidents_stay_whole_and_in_order() -> None:
    """The lines of one incident occur in the order in which it happens."""
    truth: list[Planted] = []
    stream = list(lines(4, 10_000, attack_rate=0.05, truth=truth))
    by_incident: dict[int, list[bytes]] = {}
    for label in truth:
        if label.attack == "download_and_run":
            by_incident.setdefault(label.incident, []).append(stream[label.line - 1])
    chains = [steps for steps in by_incident.values() if len(steps) > 1]
    assert 0 < len(chains) < len(by_incident)
    for steps in chains:
        assert [b"wget" in step for step in steps] == [True, False, False]
        assert [b"chmod" in step for step in steps] == [False, True, False]


def test_attacks_leave_the_other_lines_alone() -> None:
    """Planting replaces lines; it does not change the ordinary ones around."""
    truth: list[Planted] = []
    plain, planted = list(lines(8, 3000)), list(lines(8, 3000, attack_rate=0.1, truth=truth))
    changed = {number for number, (a, b) in enumerate(zip(plain, planted, strict=True), 1) if a != b}
    assert changed == {label.line for label in truth}


def test_time_advances() -> None:
    """``per_second`` lines share a second, from ``start`` on."""
    stream = list(lines(1, 25, start=1_700_000_000_000_000, per_second=10, kind="access"))
    assert b"14/Nov/2023:22:13:20 +0000" in stream[0]
    assert b"22:13:20" in stream[9]
    assert b"22:13:21" in stream[10]
    assert b"22:13:22" in stream[24]


def test_messages_split_topic_and_payload() -> None:
    """MQTT messages carry JSON in most payloads, and none in some."""
    good = bad = 0
    for topic, payload in messages(1, 500):
        assert topic.startswith("plant/")
        try:
            assert isinstance(json.loads(payload)["seq"], int)
            good += 1
        except (ValueError, TypeError):
            bad += 1
    assert good > bad > 0


def test_unknown_kind() -> None:
    """An unknown kind is an error, not an empty stream."""
    with pytest.raises(KeyError):
        next(blocks(1, 1, kind="nonsense"))


def test_command_writes_stream_and_truth(tmp_path: Path) -> None:
    """The command writes what ``blocks`` gives, and the labels as NDJSON."""
    out, labels = tmp_path / "lines.log", tmp_path / "truth.ndjson"
    arguments = ["--count", "1500", "--seed", "7", "--attacks", "0.05", "--out", str(out), "--truth", str(labels)]
    assert main(arguments) == 0
    truth: list[Planted] = []
    assert out.read_bytes() == b"".join(blocks(7, 1500, attack_rate=0.05, truth=truth))
    assert [Planted(**json.loads(line)) for line in labels.read_text().splitlines()] == truth


def test_planted_lines_need_no_numbers() -> None:
    """Incidents come ready: they hold no slot and no control byte but a time."""
    rng = Random(1)
    for table in (attacks.SYSLOG, attacks.WEB, attacks.MQTT):
        for incident in table.values():
            for line in incident(rng):
                assert "%d" not in line
                assert re.fullmatch(r"[\x00\x01\x03\x20-\x7e]+", line)
