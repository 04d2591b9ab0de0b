"""Each row of the function table has an example for docs/sql-functions.md, and it says what the function gives."""

from __future__ import annotations

from tests.differences import walk
from vedette.rules.ruleset import RuleSet
from vedette.rules.sql.frontend import Sql
from vedette.stream.functions import cast
from vedette.stream.functions.library import FAMILIES, LIBRARY
from vedette.stream.keyed import Budget
from vedette.stream.network.network import Network

SCALAR = [name for family in FAMILIES[:-1] for name in family.FUNCTIONS if name != "FIELD"]
"""Without functions that give rows, and ``r.name``, whose row is a column."""


@walk("name", SCALAR)
def test_the_example_gives_what_it_says(name: str) -> None:
    """Through the front end, compiled, over one event."""
    row = LIBRARY[name]
    assert row.example
    rules = RuleSet()
    table = "CREATE TABLE t (k INT) WITH ('connector' = 'vedette');"
    Sql(rules).add(f"{table}\nSELECT {row.example} AS e FROM t;\n", "example.sql")
    assert not rules.refused, rules.refused
    network = Network(rules.statements, Budget())
    for rule in network.scans:
        network.feed(rule, (1, 1))
    ((statement, found),) = network.finish()
    write = cast.text_of(statement.root.columns[0].type)
    assert write is not None
    assert ("NULL" if found[1] is None else write(found[1])) == row.gives
