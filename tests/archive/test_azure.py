"""An archive in Azure's blob storage, by Azurite."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.archive.azure import azure
from tests.archive.samples import AGENT, Life, events, filled, reach
from tests.rawlog.samples import NOW
from vedette.archive.index import STORED
from vedette.archive.stores import open_store
from vedette.rawlog.segment import segments

pytest.importorskip("obstore", reason="an environment from before: make environment")


@pytest.mark.peer
def test_segments_go_to_azure_and_come_back(tmp_path: Path) -> None:
    """Its ETags are no digests, so objects are read back before a local copy leaves; nothing is put twice; a wrong key
    is said."""
    with azure(tmp_path / "azure") as settings:
        life = Life(tmp_path, settings)
        log = filled(tmp_path, life.index)
        before = events(tmp_path / "raw")
        life.run(log)
        objects = sorted(open_store(settings).keys(f"{AGENT}/"))
        assert len(objects) == 2 * len(log.final()) > 10
        while log.retain(log.end, NOW, make_room=True):
            pass
        assert len(segments(tmp_path / "raw")) == 1
        assert events(reach(tmp_path, settings)) == before
        (tmp_path / "archive" / "index").unlink()
        again = Life(tmp_path, settings)
        again.run(log)
        assert again.archiver.uploaded == 0
        assert again.index.rows() == [replace(row, state=STORED) for row in life.index.rows()]
        log.close()
        assert settings.options_file is not None
        text = settings.options_file.read_text()
        settings.options_file.write_text(text.replace('account_key = "E', 'account_key = "F'))
        with pytest.raises(OSError, match=r"[Aa]uth"):
            list(open_store(settings).keys(f"{AGENT}/"))
