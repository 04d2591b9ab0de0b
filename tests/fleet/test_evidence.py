"""Evidence: the lines around an event of a real raw log, or of a time and a pattern, redacted, each once."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.asking import NOW as ASKED
from tests.fleet.asking import asked, signed, spooled
from tests.life import NOW, Life, engine, lines
from vedette.config.settings import AgentSettings, Config, RedactSettings
from vedette.fleet import evidence
from vedette.fleet.job import Job, Services, Stopped
from vedette.fleet.kinds import KINDS
from vedette.fleet.replies import records
from vedette.model.event import Chunk
from vedette.rawlog.read import search

EVENTS = [b"line %03d of web9 password=s3cret%03d" % (i, i) for i in range(300)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A data folder with 300 events of the input "in" in frames of 7, each frame followed by one of another input."""
    life = Life(tmp_path, engine("nothing"), segment_bytes=64 << 10)
    for i in range(0, len(EVENTS), 7):
        life.give(lines(*EVENTS[i : i + 7]), lines(b"other %03d" % i, name="other"))
    life.live().end()
    return tmp_path


def config(folder: Path, *redact: str, fields: tuple[str, ...] = ()) -> Config:
    given = (RedactSettings(expressions=redact, fields=fields),) if redact or fields else ()
    return Config(agent=AgentSettings(id="vienna-1", data_dir=folder), redact=given)


def asked_for(
    folder: Path, body: dict[str, Any], *redact: str, stop: Callable[[Job], None] | None = None, **more: Any
) -> Any:
    """State, reason and records of a reply."""
    evidence.validate(body)
    spool = spooled(folder / "requests", lambda: ASKED)
    request = asked("evidence", "ann", body=body, id="ab" * 16)
    held = spool.held.get(request.id) or spool.take(request, signed(request))

    async def command(name: str, **words: object) -> object:
        return {}

    job = Job(held, KINDS["evidence"].limits, Services(lambda: config(folder, *redact, **more), command), lambda: None)
    if stop is not None:
        stop(job)
    state = asyncio.run(job.run(KINDS["evidence"]))
    return *state, [row for number in range(held.parts) for row in records(held.kept(number).part)]


def ref_of(folder: Path, event: bytes) -> dict[str, Any]:
    hit = next(hit for hit in search(folder / "raw") if hit.raw == event)
    return {"log_id": hit.log_id, "offset": hit.offset, "length": hit.length}


@pytest.mark.parametrize("at", [0, 1, 6, 7, 150, 298, 299])
@pytest.mark.parametrize("around", [0, 1, 8, 200])
def test_around(log: Path, at: int, around: int) -> None:
    """So many of the same input before and after, none of another; where the log begins or ends there are fewer, and
    that is noted for its beginning."""
    state, _, found = asked_for(log, {"ref": ref_of(log, EVENTS[at]), "around": around})
    assert state == "done"
    notes = [row["note"] for row in found if "note" in row]
    rows = [row for row in found if "note" not in row]
    assert [row["raw"].encode() for row in rows] == EVENTS[max(0, at - around) : at + around + 1]
    assert [row["raw"].encode() for row in rows if row.get("alert")] == [EVENTS[at]]
    assert bool(notes) == (at < around)
    assert {row["input"] for row in rows} == {"in"}


@pytest.mark.parametrize(
    ("redact", "left"), [({"fields": ("badge",)}, "[redacted]"), ({}, "BADGE 00A1F1 alice"), ({"fields": ()}, None)]
)
def test_of_a_format_that_is_not_known_here(tmp_path: Path, redact: dict[str, Any], left: str | None) -> None:
    """What a field of a plugin's or of rules' format holds nobody can say: nothing of the event leaves. Patterns look
    at the text alone."""
    life = Life(tmp_path, engine("nothing"))
    life.give(Chunk("in", "gate", NOW, b"BADGE 00A1F1 alice\n"))
    life.live().end()
    body = {"ref": ref_of(tmp_path, b"BADGE 00A1F1 alice"), "around": 0}
    patterns = () if left else ("BADGE",)
    found = asked_for(tmp_path, body, *patterns, **redact)[2]
    assert [row["raw"] for row in found] == [left or "[redacted] 00A1F1 alice"]


def test_redacted_on_the_host(log: Path) -> None:
    """What the owner's patterns match is in no byte of the reply, also where a pattern takes too long."""
    body = {"ref": ref_of(log, EVENTS[5]), "around": 2}
    state, _, found = asked_for(log, body, r"password=\S+", r"line (?=00[45])")
    assert state == "done"
    texts = [row["raw"] for row in found]
    assert texts[2] == "[redacted]005 of web9 [redacted]"
    assert texts[0] == "line 003 of web9 [redacted]"
    assert [row["redacted"] for row in found] == [1, 2, 2, 1, 1]


def test_range(log: Path) -> None:
    """By time, pattern, input and limit, oldest first."""
    body = {"since": NOW - 1, "until": NOW + 1000, "pattern": r"line 0\d[05] "}
    assert [row["raw"].encode() for row in asked_for(log, body)[2]] == EVENTS[:100:5]


def test_range_by_input_and_limit(log: Path) -> None:
    found = asked_for(log, {"since": 0, "until": NOW + 1000, "input": "other", "limit": 3})[2]
    assert [row.get("raw") for row in found] == ["other 000", "other 007", "other 014", None]
    assert found[-1]["note"] == "the limit of 3 events is reached"


def test_another_time_has_nothing(log: Path) -> None:
    assert asked_for(log, {"since": 0, "until": NOW - 1}) == ("done", "", [])


def test_log_is_gone(log: Path) -> None:
    """An event whose segment was deleted, or of another log: the reply says so, and gives no other lines for it."""
    ref = ref_of(log, EVENTS[150])
    state, why, found = asked_for(log, {"ref": {**ref, "log_id": "0" * 32}, "around": 5})
    assert (state, found) == ("failed", [])
    assert "retention may have deleted it" in why


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """They come whole, as base64; a line that is too long is cut, and says so."""
    life = Life(tmp_path, engine("nothing"))
    life.give(lines(b"\xff\xfe raw", b"x" * 100_000))
    life.live().end()
    found = asked_for(tmp_path, {"since": 0, "until": NOW + 1000})[2]
    assert found[0]["raw_base64"] == "//4gcmF3"
    assert (len(found[1]["raw"]), found[1]["cut"], found[1]["length"]) == (evidence.MAX_LINE, True, 100_000)


def test_long_lines_around_are_read_one_by_one(tmp_path: Path) -> None:
    """However many lines of whatever length lie before an event, no more than a few are in memory at a time."""
    size, count = 512 << 10, 60
    life = Life(tmp_path, engine("nothing"))
    for number in range(count):
        life.give(lines(b"%02d " % number + b"a" * size))
    life.give(lines(b"the alert's event"))
    life.live().end()
    body = {"ref": ref_of(tmp_path, b"the alert's event"), "around": count}
    tracemalloc.start()
    try:
        state, _, found = asked_for(tmp_path, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (state, [row["raw"][:2] for row in found]) == ("done", [*(f"{n:02d}" for n in range(count)), "th"])
    assert peak < count * size / 2


def test_stopped_anywhere(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that ends again and again in the middle of a reply gives every line once."""
    monkeypatch.setattr("vedette.fleet.job.PART_FULL", 600)
    body = {"ref": ref_of(log, EVENTS[150]), "around": 100}
    for steps in range(40, 2000, 45):

        def stop(job: Job, left: list[int] = [steps]) -> None:  # noqa: B006 -- the counter of this life
            pace = job.pace

            def counted() -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Stopped
                pace()

            monkeypatch.setattr(job, "pace", counted)

        try:
            state, _, found = asked_for(log, body, stop=stop)
        except Stopped:
            continue
        assert state == "done"
        assert [row["raw"].encode() for row in found] == EVENTS[50:251]
        return
    raise AssertionError("never done")


@pytest.mark.parametrize(
    "body",
    [
        {}, {"around": 3}, {"ref": {"log_id": "../etc", "offset": 0, "length": 1}, "around": 1},
        {"ref": {"log_id": "0" * 32, "offset": -1, "length": 1}, "around": 1}, {"since": 0, "until": 0},
        {"since": 0, "until": 1, "pattern": "("}, {"since": 0, "until": 1, "path": "/etc/shadow"},
        {"since": 0, "until": 1, "limit": 10**9},
        {"ref": {"log_id": "0" * 32, "offset": 0, "length": 1}, "around": 10**9},
    ],
)  # fmt: skip
def test_bodies_that_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expects|: "):
        evidence.validate(body)


def test_patterns_in_force_are_those_of_the_file(log: Path) -> None:
    """A redaction that was taken out of the file no longer holds: it is read for each request."""
    body = {"ref": ref_of(log, EVENTS[0]), "around": 0}
    assert replace(config(log, "x")).redact[0].expressions == ("x",)
    assert "[redacted]" in asked_for(log, body, "web9")[2][-1]["raw"]
