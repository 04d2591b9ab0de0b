"""The rows of a hosts file."""

from __future__ import annotations

from pathlib import Path

from vedette_example_lookup import rows


def test_rows(tmp_path: Path) -> None:
    """A row a line, without comments."""
    (tmp_path / "hosts").write_text("# none\n\n127.0.0.1 localhost lo  # mine\n::1 six\n")
    assert [*rows(str(tmp_path / "hosts"))] == [
        {"address": "127.0.0.1", "name": "localhost", "aliases": "lo"},
        {"address": "::1", "name": "six", "aliases": ""},
    ]
