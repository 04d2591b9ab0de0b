"""The comment lines before a statement: what they say of its alerts, and what is a mistake in them."""

from __future__ import annotations

from vedette.rules import build
from vedette.rules.ruleset import RuleSet

QUERY = "INSERT INTO alerts SELECT host FROM events WHERE message LIKE 'x%';"


def read(sql: str) -> RuleSet:
    rules = build.empty()
    rules.front_ends[".sql"].add(sql, "a.sql")
    return rules


def test_what_a_header_says() -> None:
    """Title, id, level, tags; any other word is a comment."""
    (one,) = read(
        "-- title: Some title\n-- id: 7\n-- level: high\n-- tags: attack.t1, b\n-- note: whatever\n" + QUERY
    ).statements
    assert (one.title, one.id, one.level, one.tags) == ("Some title", "7", "high", ("attack.t1", "b"))


def test_a_mistyped_key_is_refused() -> None:
    """By name, with the key that is meant: a level that is not taken would be medium."""
    (refused,) = read(f"-- title: T\n-- lvel: high\n{QUERY}").refused
    assert (refused.reason, refused.hint) == ("the header has no key lvel", "-- level: …")
