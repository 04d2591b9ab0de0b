"""Where an alert's event lies, found in what the centre has; and evidence stored beside the alert."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.fleet.asking import AGENT, FLEET, KEYS, Authority
from vedette.fleet.audit import Audit, verify
from vedette.fleet.replies import Part, pack, packed
from vedette.fleet.requests import Request
from vedette.region import evidence
from vedette.region.members import Member, access
from vedette.region.requests import Collection, find, moment, revoked_serials

REF = {"log_id": "0" * 32, "offset": 94, "length": 102}
ROWS = [
    {"alert_id": f"a-{i}", "agent_id": AGENT, "raw_ref": {**REF, "offset": i}, "rule_title": "A rule"}
    for i in range(100)
] + [{"alert_id": "w-1", "agent_id": AGENT, "raw_ref": None, "rule_title": "A window"}]
AUTHORITY = Authority()


def landing(folder: Path) -> Path:
    for hour in range(4):
        place = folder / "alerts" / "dt=2026-11-22" / f"hh={hour:02}"
        place.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(ROWS[hour::4]), place / f"{hour}.parquet")
    return folder


def test_found_wherever_alerts_lie(tmp_path: Path) -> None:
    """In a landing, a Delta table, a folder of Parquet files, a JSON file."""
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "delta"), pa.Table.from_pylist(ROWS))
    (tmp_path / "alert.json").write_bytes(orjson.dumps(ROWS[17]))
    place = landing(tmp_path / "landing")
    for where in (place, place / "alerts", tmp_path / "delta", tmp_path / "alert.json"):
        assert evidence.find("a-17", where) == ("a-17", AGENT, {**REF, "offset": 17})
    with pytest.raises(LookupError, match="holds no alert a-100"):
        evidence.find("a-100", place)
    with pytest.raises(LookupError, match="refers to no event"):
        evidence.find("w-1", place)
    with pytest.raises(FileNotFoundError):
        evidence.find("a-17", tmp_path / "none")


def collected(folder: Path, alert: str = "a-17") -> Collection:
    request = Request(
        FLEET, "evidence", "ann", moment(), moment() + 3_600_000_000, {"ref": REF, "around": 3}, (AGENT,),
        reason="case 17",
    )  # fmt: skip
    return Collection.begin(folder, request, KEYS["ann"], [AGENT], AUTHORITY.pem, alert=alert)


def test_stored_beside_the_alert(tmp_path: Path) -> None:
    """What has come, as one file that zstd reads, with a manifest of who asked, why, its digest; also half of it."""
    made, signer = collected(tmp_path / "requests"), AUTHORITY.agent()
    lines = [b'{"n":%d}\n' % n for n in range(3)]
    parts = [Part(n, packed(line), len(line), n == 2, "done" if n == 2 else "running") for n, line in enumerate(lines)]
    for part in (parts[1], parts[0], parts[0]):
        made.take(AGENT, pack(made.request.id, part, signer))
    again = Collection(find(tmp_path / "requests", made.request.id[:6]), AUTHORITY.pem)
    assert (again.answers, again.alert) == (made.answers, "a-17")
    manifest = json.loads(evidence.store(tmp_path / "evidence", again.alert, again, AGENT).read_text())
    assert (manifest["records"], manifest["whole"], manifest["operator"], manifest["reason"]) == (
        2,
        False,
        "ann",
        "case 17",
    )
    again.take(AGENT, pack(made.request.id, parts[2], signer))
    path = evidence.store(tmp_path / "evidence", again.alert, again, AGENT)
    manifest, data = json.loads(path.read_text()), (path.parent / f"{made.request.id}.jsonl.zst").read_bytes()
    assert (manifest["records"], manifest["whole"], manifest["state"]) == (3, True, "done")
    assert manifest["sha256"] == hashlib.sha256(data).hexdigest()
    assert zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read() == b"".join(lines)
    again.close()
    record = tmp_path / "requests" / "audit.jsonl"
    assert verify(record)[1] is None
    assert [row["event"] for row in Audit(record).lines()] == [
        "request_made", "evidence_stored", "reply_whole", "evidence_stored", "request_collected",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no alert id"):
        evidence.store(tmp_path / "evidence", "../../etc", again, AGENT)


def test_an_agent_that_sends_too_much(tmp_path: Path) -> None:
    """More bytes or parts than the kind may have, or parts behind the last: refused, and no more of it is taken."""
    signer, line = AUTHORITY.agent(), b'{"n":1}\n'
    for number, first in ((100_000, None), (5, Part(3, packed(line), len(line), True, "done"))):
        made = collected(tmp_path / f"{number}")
        if first is not None:
            made.take(AGENT, pack(made.request.id, first, signer))
        assert made.take(AGENT, pack(made.request.id, Part(number, packed(line), len(line)), signer)) is None
        assert made.answers[AGENT].stopped
        assert made.take(AGENT, pack(made.request.id, Part(0, packed(line), len(line)), signer)) is None
        assert [row["refused"] for row in made.audit.lines() if row["event"] == "reply_refused"] == ["bomb"]
    with pytest.raises(ValueError, match="no agent id"):
        Collection.begin(tmp_path / "x", made.request, KEYS["ann"], ["../x"], AUTHORITY.pem)


def test_what_an_analyst_may_write(tmp_path: Path) -> None:
    """Commands to agents of its fleet, and nothing else; a list of revoked certificates that is none is refused."""
    text = access([Member("ann", "analyst", "plants")])
    rights = text[text.index("user ann") :].splitlines()[1:]
    assert [line for line in rights if "read " not in line] == ["topic write vedette/v1/plants/+/commands"]
    assert not [line for line in rights if "vedette/v1/plants" not in line]
    (tmp_path / "crl.pem").write_text("nothing")
    with pytest.raises(ValueError, match="not a list"):
        revoked_serials(tmp_path / "crl.pem")
