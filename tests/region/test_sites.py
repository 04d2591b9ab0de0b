"""What is carried to sites and back: files that were damaged, and answers that say anything."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from tests.fleet.asking import AGENT, FLEET, KEYS, Authority
from vedette.fleet.carried import Answer, pack, read_answer
from vedette.fleet.requests import Request
from vedette.region.requests import Collection, moment
from vedette.region.sites import keep, requests_for

AUTHORITY = Authority()


def waiting(folder: Path) -> Path:
    """A request that waits to be carried."""
    now = moment()
    request = Request(FLEET, "ask", "vera", now, now + 3_600_000_000, {"question": "disk"}, (AGENT,))
    made = Collection.begin(folder, request, KEYS["vera"], [AGENT], AUTHORITY.pem)
    made.carry()
    return made.folder


@pytest.mark.parametrize("answer", [{}, {"actual": []}, {"actual": {"labels": [1]}}, {"actual": {"labels": {}}}])
def test_a_host_may_answer_anything(tmp_path: Path, answer: object) -> None:
    """What a host says of itself keeps nobody's requests from being carried."""
    folder = waiting(tmp_path / "requests")
    (tmp_path / "trust" / "answers").mkdir(parents=True)
    for name in ("linz-1", "linz-2"):
        row = orjson.dumps({"time": 1, **orjson.loads(orjson.dumps(answer))})
        (tmp_path / "trust" / "answers" / f"{name}.json").write_bytes(row)
    [(name, _)] = requests_for(tmp_path / "requests", tmp_path / "trust", "vienna", moment())
    assert name == f"requests/{folder.name}.json"


@pytest.mark.parametrize("name", ["agents.json", "request.json"])
@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[1]", b'["../x"]', None])
def test_a_damaged_request_is_named(tmp_path: Path, name: str, data: bytes | None) -> None:
    """By its file, with what to do, wherever it is read."""
    folder = waiting(tmp_path / "requests")
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{name} is "):
        [*requests_for(tmp_path / "requests", tmp_path / "trust", "vienna", moment())]
    with pytest.raises(ValueError, match="make"):
        Collection(folder, AUTHORITY.pem)


@pytest.mark.parametrize(
    "status",
    [{"actual": []}, {"actual": {"audit": 5}}, {"actual": {"audit": {"seq": 2**60, "digest": "x"}}},
     {"actual": {"audit": {"seq": 1, "digest": 5}}}],
)  # fmt: skip
def test_an_answer_of_a_wrong_form_changes_nothing(tmp_path: Path, status: dict[str, object]) -> None:
    """It is refused before anything of it is kept, and the agent's next answer is taken."""
    good = Answer(FLEET, AGENT, 5, {"actual": {"audit": {"seq": 0, "digest": ""}}}, b"", False)
    assert keep(tmp_path, good) == ""
    before = {path.name: path.read_bytes() for path in (tmp_path / "answers").iterdir()}
    with pytest.raises(ValueError, match="actual"):
        keep(tmp_path, good._replace(time=6, status=status, audit=b"x\n"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "answers").iterdir()} == before
    assert keep(tmp_path, good._replace(time=7)) == ""


@pytest.mark.parametrize("row", [{"time": 10**30}, {"time": -1}, {"time": 2**63}, {"status": b"@"}, {"agent": ["x"]}])
def test_an_answer_that_overflows(tmp_path: Path, row: dict[str, object]) -> None:
    """Times that are none and a status that nests deeper than any are no answer."""
    said = {"format": 1, "fleet": FLEET, "agent": AGENT, "time": 5, "status": {}, **row}
    text = json.dumps(said, default=lambda _: "@").replace('"@"', '{"a":' * 400 + "1" + "}" * 400)
    pack(tmp_path / "answer.zip", [("answer.json", text.encode()), ("audit.jsonl", b"")])
    with pytest.raises(ValueError, match="no answer of a host"):
        read_answer(tmp_path / "answer.zip", FLEET, None)
