"""What hosts answer, shown: one that says anything hides no other's answer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.fleet.asking import FLEET, KEYS, Authority
from tests.region.anything import spoiled
from vedette.cli import fleet_ask, fleet_hunt
from vedette.fleet.replies import Part, pack, packed
from vedette.fleet.requests import Request
from vedette.region.requests import Collection, moment

AUTHORITY = Authority()
ANSWERS: dict[str, dict[str, Any]] = {
    "status": {
        "state": "running", "version": "0.1.0", "bundle": None, "lag_events": 3, "alerts": {"in_outbox": 1},
        "rules": {"running": 1, "correlations": 2, "statements": 3, "quarantined_count": 0, "dead_count": 0},
    },
    "rules": {"state": "running", "level": "high", "kind": "detection", "rule_id": "r1", "title": "Needle"},
    "explain": {"text": "a line"},
    "disk": {"disk_free_bytes": 1 << 30, "disk_bytes": 1 << 31, "raw_log_bytes": 1, "raw_log_max_bytes": 1,
             "outbox_bytes": 1, "raw_log_oldest": 1, "failing": {"raw log": {"reason": "full", "since": 1}}},
    "versions": {"vedette": "0.1.0", "python": "3.11", "kernel": True, "bundles": {"default": None}, "system": "x"},
}  # fmt: skip


def asked(folder: Path, question: str, *agents: str) -> Collection:
    now = moment()
    request = Request(FLEET, "ask", "vera", now, now + 3_600_000_000, {"question": question}, agents)
    return Collection.begin(folder, request, KEYS["vera"], agents, AUTHORITY.pem)


def answered(collection: Collection, agent: str, lines: bytes) -> None:
    part = Part(0, packed(lines), len(lines), True, "done")
    assert collection.take(agent, pack(collection.request.id, part, AUTHORITY.agent(agent)))


@pytest.mark.parametrize("question", [*ANSWERS, "other"])
def test_any_answer_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], question: str) -> None:
    """Of a host whose 50 records have anything in any place; the next host's row follows it."""
    good = ANSWERS.get(question, {"key": "value"})
    rng, collection = random.Random(2), asked(tmp_path, question, "bad", "good")
    spoilt = [line for _ in range(80) if len(line := spoiled(rng, good)) < 1000]
    answered(collection, "bad", b"".join(line + b"\n" for line in spoilt[:50]))
    answered(collection, "good", orjson.dumps(good) + b"\n")
    fleet_ask.TABLES.get(question, fleet_ask._pairs)(collection)
    shown = capsys.readouterr().out
    assert "good" in shown.splitlines()[-1] or "a line" in shown.splitlines()[-1]


def test_any_progress_of_a_hunt_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where its times and counts are none."""
    good = {"type": "progress", "events": 10, "matches": 2, "oldest": 100, "reached": 150, "until": 200}
    rng = random.Random(4)
    for number in range(100):
        line = spoiled(rng, good)
        if b"[[[" not in line and b'{"a":{' not in line:
            fleet_hunt.News().came(f"bad-{number}", Part(0, packed(line), len(line)))
    line = orjson.dumps(good)
    fleet_hunt.News().came("good", Part(0, packed(line), len(line)))
    assert capsys.readouterr().err.splitlines()[-1].startswith("good: 10 events, up to 1970-01-01T00:00:00Z (50 %)")
