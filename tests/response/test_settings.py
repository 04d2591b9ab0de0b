"""``[response]``: mistakes with their keys, and that only the host's own file has a say."""

from __future__ import annotations

import pytest

from vedette.config.read import ConfigError, parse
from vedette.fleet.overlay import merged


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('table = "a b"', "response.table: expects letters"),
        ('table = "1.x"', "response.table: expects up to 32 letters, digits and '_', a letter first, not '1.x'"),
        ('allow = ["x"]', "response.allow[0]: expects an address or a network such as 192.0.2.0/24, not 'x'"),
        ('ttl = "60d"', "response.ttl: expects 1.0 to 2,592,000.0"),
        ("max_blocked = 0", "response.max_blocked: expects 1 to 10,000"),
        ('[[response.block]]\nfield = "src"', "response.block[0]: needs rules or tags"),
        ('[[response.block]]\nrules = ["*"]\nlevel = "x"', "response.block[0].level: expects one of"),
        ("enable = true", "response.enable: unknown key; did you mean enabled?"),
    ],
)
def test_mistakes(text: str, mistake: str) -> None:
    """Each is reported with its key."""
    with pytest.raises(ConfigError) as caught:
        parse(f"[response]\n{text}\n")
    assert mistake in str(caught.value)


def test_off_by_default() -> None:
    """Neither an empty file nor a table without ``enabled`` blocks anything."""
    assert not parse("").response.live
    assert not parse('[[response.block]]\nrules = ["*"]\n').response.live
    assert not parse("[response]\nenabled = true\ndry_run = true\n").response.live


def test_no_overlay_changes_it() -> None:
    """Whatever an overlay says of it is left out."""
    made, ignored = merged({"response": {"dry_run": True}}, {"response": {"enabled": True, "dry_run": False}})
    assert made == {"response": {"dry_run": True}}
    assert ignored == ("response",)
