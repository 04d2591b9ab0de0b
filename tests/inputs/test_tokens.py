"""Who may push."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.waits import write_as_before
from vedette.inputs.tokens import Tokens


def test_tokens(tmp_path: Path) -> None:
    """In every form that senders have; a file that changes is read again, one that went bad is not."""
    path = tmp_path / "tokens"
    path.write_text("# ours\nsecret-1\n\n  secret-2  \n")
    path.chmod(0o640)
    tokens = Tokens(path)
    basic = base64.b64encode(b"user:secret-2").decode()
    for fits in ("Bearer secret-1", "bearer secret-2", "Splunk secret-1", "ApiKey secret-1", f"Basic {basic}"):
        assert tokens.fit(fits)
    for other in (
        "",
        "secret-1",
        "Bearer",
        "Bearer # ours",
        "Bearer secret",
        "Digest secret-1",
        "Basic ?",
        "Basic eDp5",
    ):
        assert not tokens.fit(other)
    path.write_text("another\n")
    assert tokens.fit("Bearer another")
    assert not tokens.fit("Bearer secret-1")
    write_as_before(path, b"revoked\n")
    assert not tokens.fit("Bearer another")
    path.write_text("# none\n")
    assert tokens.fit("Bearer revoked")
    path.unlink()
    assert tokens.fit("Bearer revoked")


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """One that is missing, empty, or readable by all is refused with its path."""
    path = tmp_path / "tokens"
    for text, mode, says in ((None, 0, "No such file"), ("# none\n", 0o600, "no token"), ("t\n", 0o644, "chmod 640")):
        if text is not None:
            path.write_text(text)
            path.chmod(mode)
        with pytest.raises(OSError, match=says):
            Tokens(path)
