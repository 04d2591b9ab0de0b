"""docs/sql.md: its rules compile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.sql.plans import read

PAGE = (Path(__file__).parents[3] / "docs" / "sql.md").read_text("utf-8")
OWN = PAGE[: PAGE.index("## What is there")]
EXAMPLES = re.findall(r"^```sql\n(.*?)^```", OWN, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("sql", EXAMPLES)
def test_an_example_compiles(sql: str) -> None:
    """Each example of the language's own sections is a rule as it stands."""
    rules = read(sql)
    assert not rules.refused
    assert rules.statements


def test_the_header_of_the_page() -> None:
    """What the first example says of itself reaches the statement."""
    (one,) = read(EXAMPLES[0]).statements
    assert (one.id, one.level) == ("6f2c9a54-5e0b-4d3e-9a6b-0d6c1b1f5f10", "high")
    assert one.title == "Many failed logins on one host"
    assert one.tags == ("attack.credential_access", "attack.t1110")
    assert one.entities == (("host", "host"),)
    assert one.suppress is not None
    assert (one.suppress.by, one.line) == (("host",), 7)
