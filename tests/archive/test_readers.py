"""Who reads a raw log reads its archive, too: evidence, hunts; and exports go to a store."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.archive import s3
from tests.archive.samples import AGENT, EVENTS, Life, events, filled
from tests.rawlog.samples import NOW
from vedette.archive.reach import whole
from vedette.archive.stores import open_store
from vedette.config.settings import AgentSettings, ArchiveSettings
from vedette.decode.codecs import with_declared
from vedette.fleet import evidence
from vedette.rawlog.segment import segments
from vedette.runtime.offline.export import MANIFEST, Parts, Wanted


def _gone(folder: Path) -> tuple[ArchiveSettings, str]:
    """A log of which all but the last segment is in the archive alone, and its id."""
    (folder / "mnt").mkdir()
    settings = ArchiveSettings(str(folder / "mnt"))
    life = Life(folder, settings)
    log = filled(folder, life.index)
    life.run(log)
    while log.retain(log.end, NOW, make_room=True):
        pass
    log.close()
    assert len(segments(folder / "raw")) == 1
    return settings, log.log_id


def test_evidence_of_what_left(tmp_path: Path) -> None:
    """The lines around an event, and those of a time, come from the archive; what it lacks is a note."""
    settings, log_id = _gone(tmp_path)
    raw = whole(AgentSettings(id=AGENT, data_dir=tmp_path), settings)
    every = events(raw)  # type: ignore[arg-type]
    offset, line = every[12]
    body: dict[str, Any] = {"ref": {"log_id": log_id, "offset": offset, "length": len(line)}, "around": 7}
    found = [*evidence._around(raw, body, lambda: None)]
    assert [one.raw for one in found if not isinstance(one, str)] == [text for _, text in every[5:20]]
    span = {"since": NOW + 8_000_000, "until": NOW + 12_000_000}
    found = [*evidence._range(raw, span, lambda: None)]
    assert [one.raw for one in found if not isinstance(one, str)] == [text for _, text in every[8:12]]
    for path in (tmp_path / "mnt" / AGENT).glob("*.seg"):
        path.unlink()
    raw = whole(AgentSettings(id=AGENT, data_dir=tmp_path), settings)
    notes = [one for one in evidence._range(raw, span, lambda: None) if isinstance(one, str)]
    assert notes
    assert all("in the archive" in note for note in notes)
    with pytest.raises(LookupError, match="in the archive"):
        [*evidence._around(raw, body, lambda: None)]


# Starts an S3 server, of Java where there is no other.
@pytest.mark.peer
def test_an_export_to_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of an archive into a store, interrupted by its failures: in the end every event once, each part as the
    manifest says."""
    settings, _ = _gone(tmp_path)
    monkeypatch.setattr("vedette.runtime.offline.export.PART_BYTES", 10_000)
    raw = whole(AgentSettings(id=AGENT, data_dir=tmp_path), settings)
    with s3.s3(tmp_path / "s3") as server:
        target = replace(server.settings(), url=f"s3://{s3.BUCKET}/out")
        wanted, tries = Wanted("raw", None, NOW + 100_000_000), 0
        modes = iter(["pass", "cut", "500", "half", "corrupt"])
        real = server.proxy._answer

        def failing(asked: Any, to: int) -> None:
            if asked.command == "PUT" and len(server.proxy.requests) % 7 == 6:
                server.proxy.mode = next(modes, "pass")  # type: ignore[assignment]
            real(asked, to)
            server.proxy.mode = "pass"

        monkeypatch.setattr(server.proxy, "_answer", failing)
        while True:
            tries += 1
            try:
                export = Parts(open_store(target), target.url, wanted, AGENT)
                export.take(raw, {}, with_declared(()))
                break
            except OSError:
                assert tries < 20
        assert server.proxy.faults > 1
        store = open_store(target)
        state = json.loads(store.read(MANIFEST, 0, store.stat(MANIFEST).size))  # type: ignore[union-attr]
        assert (state["complete"], state["events"], state["damaged"], state["gone"]) == (True, EVENTS, 0, 0)
        for part in state["parts"]:
            data = store.read(part["file"], 0, part["bytes"])
            assert hashlib.sha256(data).hexdigest() == part["sha256"]
        assert sorted(store.keys("")) == sorted([MANIFEST, *(part["file"] for part in state["parts"])])
        with pytest.raises(ValueError, match="holds the export"):
            Parts(store, target.url, Wanted("jsonl", None, 1), AGENT)
