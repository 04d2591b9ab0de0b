"""docs/sql.md: its rules compile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.sql.plans import read
from vedette.decode.decoder import from_mapping
from vedette.rules import build
from vedette.stream.reader import Event
from vedette.stream.statements import Statements
from vedette.udf.host import Host

PAGE = (Path(__file__).parents[3] / "docs" / "sql.md").read_text("utf-8")
OWN = PAGE[: PAGE.index("## What is there")]
EXAMPLES = re.findall(r"^```sql\n(.*?)^```", OWN, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("sql", EXAMPLES)
def test_an_example_compiles(sql: str) -> None:
    """Each example of the language's own sections is a rule as it stands."""
    rules = read(sql)
    assert not rules.refused
    assert rules.statements


def test_the_example_of_functions_runs(tmp_path: Path) -> None:
    """The module and the rules of the section, as they stand, over events."""
    section = PAGE[PAGE.index("## Functions in Python") : PAGE.index("## Time and lateness")]
    (module,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    (sql,) = re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "plant.py").write_text(module)
    (tmp_path / "plant.sql").write_text(sql)
    host = Host()
    try:
        plan = build.build([tmp_path], functions=host)
        assert not plan.refused
        running = Statements(plan.statements, functions=host, modules=plan.modules)
        for second, degrees in enumerate((32, 50, 32, 68)):
            event = {"oven": "a", "fahrenheit": degrees, "note": "fault4 seen" if second == 2 else ""}
            one = Event(
                from_mapping(event), second, input="x", host=lambda: None, time=lambda at=second: at * 1_000_000
            )
            for rule in plan.rules:
                running.feed(running.read(rule.id, one))
        found = {(one.statement.title, *one.fields.values()) for one in running.finish()}
    finally:
        host.close()
    assert found == {("Oven drifts", "a", "1970-01-01T00:01:00.000", "40.0"), ("Fault noted", "a", "fault4")}


def test_the_header_of_the_page() -> None:
    """What the first example says of itself reaches the statement."""
    (one,) = read(EXAMPLES[0]).statements
    assert (one.id, one.level) == ("6f2c9a54-5e0b-4d3e-9a6b-0d6c1b1f5f10", "high")
    assert one.title == "Many failed logins on one host"
    assert one.tags == ("attack.credential_access", "attack.t1110")
    assert one.entities == (("host", "host"),)
    assert one.suppress is not None
    assert (one.suppress.by, one.line) == (("host",), 7)
