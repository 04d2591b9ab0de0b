"""What a function brings along is bounded before it is read on."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.udf.modules import MAX_BYTES, MAX_MODULES, collected


def test_so_many_modules(tmp_path: Path) -> None:
    """Each imports the next: as many as may be are taken, one more is refused."""
    for number in range(MAX_MODULES + 1):
        (tmp_path / f"m{number}.py").write_text(f"import m{number + 1}\n")
    assert len(collected(tmp_path, "m1.f").files) == MAX_MODULES
    with pytest.raises(ValueError, match=f"more than {MAX_MODULES} modules"):
        collected(tmp_path, "m0.f")


def test_so_many_bytes(tmp_path: Path) -> None:
    """Of all modules of a function together."""
    for name, text in (("a", "import b\n"), ("b", "")):
        (tmp_path / f"{name}.py").write_text(text.ljust(MAX_BYTES // 2, "#"))
    assert len(collected(tmp_path, "a.f").files) == 2
    (tmp_path / "b.py").write_text("#" * (MAX_BYTES // 2 + 1))
    with pytest.raises(ValueError, match="or 1 MiB of them"):
        collected(tmp_path, "a.f")
