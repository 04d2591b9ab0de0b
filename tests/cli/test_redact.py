"""What the commands say of ``[[redact]]``."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from vedette.cli.main import main

CONFIG = """
[agent]
data_dir = "{data}"
redact_key = "{data}/site.key"
[[redact]]
action = "hash"
fields = ["src_ip"]
kinds = ["user"]
[[redact]]
patterns = ["card"]
"""
RULE = """
title: Login
id: 00000000-0000-4000-8000-000000000001
logsource: {category: any}
detection: {a: {user|exists: true}, condition: a}
fields: [user, port, src_ip]
level: low
"""
SQL = """
INSERT INTO alerts SELECT UPPER(`user`) AS who, COUNT(*) AS n FROM events WHERE `user` IS NOT NULL
    GROUP BY UPPER(`user`), TUMBLE(event_time, INTERVAL '1' MINUTE);
"""


def explained(tmp_path: Path, name: str, text: str) -> list[str]:
    (tmp_path / "vedette.toml").write_text(CONFIG.format(data=tmp_path))
    (tmp_path / name).write_text(text)
    given = ["rules", "explain", "-c", str(tmp_path / "vedette.toml"), str(tmp_path / name)]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    return [line.strip() for line in result.output.splitlines() if line.startswith("  redacted ")]


def test_explain(tmp_path: Path) -> None:
    """Which fields of a rule's alerts are redacted, and how."""
    found = explained(tmp_path, "rule.yml", RULE)
    assert set(found[0].removeprefix("redacted fields: ").split(", ")) == {"user (hash)", "src_ip (hash)"}
    assert found[1:] == ["redacted entities: user (hash)", "redacted in all its texts: card (mask)"]


def test_explain_a_statement(tmp_path: Path) -> None:
    """By the fields that its columns are made of."""
    assert explained(tmp_path, "rule.sql", SQL)[0] == "redacted fields: who (hash)"


def test_check(tmp_path: Path) -> None:
    """A key that cannot be used is a fault; with it all is well."""
    config = tmp_path / "vedette.toml"
    config.write_text(CONFIG.format(data=tmp_path))
    result = CliRunner().invoke(main, ["check", "-c", str(config)])
    assert result.exit_code == 1
    assert "site.key" in result.output
    assert "what should be hashed is masked" in result.output
    (tmp_path / "site.key").write_text("0" * 64)
    assert CliRunner().invoke(main, ["check", "-c", str(config)]).exit_code == 0
