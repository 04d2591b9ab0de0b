"""Which ends of an agent count as crashes."""

from __future__ import annotations

from pathlib import Path

from vedette.runtime.pipeline.lives import Lives


def test_a_stop_is_no_crash_and_neither_is_a_host_that_starts_again(tmp_path: Path) -> None:
    """A life without a stop is a crash; not when the host went down with it; a damaged file counts as none."""
    path, boot = tmp_path / "lives", tmp_path / "boot_id"
    boot.write_text("one\n")
    first = Lives(path, boot)
    assert first.status() == {"starts": 1, "crashes": 0}
    first.stopped()
    assert Lives(path, boot).status() == {"starts": 2, "crashes": 0}
    assert Lives(path, boot).status() == {"starts": 3, "crashes": 1}
    assert Lives(path, boot).status() == {"starts": 4, "crashes": 2}
    boot.write_text("two\n")
    assert Lives(path, boot).status() == {"starts": 5, "crashes": 2}
    size = path.stat().st_size
    path.write_bytes(b"{" * size)
    assert Lives(path, boot).status() == {"starts": 1, "crashes": 0}
