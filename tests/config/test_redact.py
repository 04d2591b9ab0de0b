"""``[[redact]]``: its mistakes and its key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from vedette.config.read import ConfigError, parse
from vedette.config.redact import problem, redaction

HASHING = '[[redact]]\naction = "hash"\nfields = ["user"]\n'


def test_mistakes() -> None:
    """Each with its place, and what was meant."""
    text = """
        [[redact]]
        [[redact]]
        patterns = ["cards"]
        expressions = ["ok", "(unclosed"]
        fields = [""]
        [[redact]]
        kinds = ["person"]
        [[redact]]
        action = "hide"
        fields = ["x"]
    """
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert any("redact[2].kinds[0]: expects one of" in line for line in caught.value.mistakes)
    assert any("redact[3].action: expects one of 'mask', 'hash', 'drop'" in line for line in caught.value.mistakes)
    with pytest.raises(ConfigError) as caught:
        parse(text.partition("        [[redact]]\n        kinds")[0])
    told = "\n".join(caught.value.mistakes)
    assert "redact[0]: expects fields, kinds, patterns or expressions" in told
    assert "redact[1].patterns[0]: 'cards' is no pattern; did you mean card? known: card, iban" in told
    assert "redact[1].expressions[1]: not a regular expression" in told
    assert "redact[1].fields[0]: must not be empty" in told


def test_a_key_of_this_host(tmp_path: Path) -> None:
    """It is made once, for its owner alone; a second start has the same."""
    config = parse(f'[agent]\ndata_dir = "{tmp_path}/data"\n{HASHING}')
    assert problem(config) == ""
    assert not config.agent.redact_key_file.exists()  # a check makes none
    first, wrong = redaction(config)
    assert wrong == ""
    file = tmp_path / "data" / "redact.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert redaction(config)[0].hidden("alice", "hash") == first.hidden("alice", "hash")
    assert [path.name for path in file.parent.iterdir()] == ["redact.key"]


@pytest.mark.parametrize("content", [None, "", "abc", "z" * 64])
def test_a_key_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    """One that is named is never made: what should be hashed is masked, and a check says why."""
    file = tmp_path / "site.key"
    if content is not None:
        file.write_text(content)
    config = parse(f'[agent]\ndata_dir = "{tmp_path}"\nredact_key = "{file}"\n{HASHING}')
    made, wrong = redaction(config)
    assert wrong == problem(config)
    assert str(file) in wrong
    assert made.hidden("alice", "hash") == "[redacted]"
    assert file.exists() == (content is not None)


def test_without_hashes_there_is_no_key(tmp_path: Path) -> None:
    redaction(parse(f'[agent]\ndata_dir = "{tmp_path}"\n[[redact]]\nfields = ["user"]\n'))
    assert [*tmp_path.iterdir()] == []
