"""The starter rules: every file is good Sigma, is unique, and stands beside events that it must and must not match."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
import yaml

collection = pytest.importorskip("sigma.collection")

FOLDER = Path(__file__).parents[2] / "rules" / "sigma"
RULES = sorted(path for path in FOLDER.rglob("*.yml") if not path.name.endswith(".test.yml"))


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rule(path: Path) -> None:
    """pySigma reads the rule, its form is complete, and its test file has events for both answers."""
    parsed = collection.SigmaCollection.from_yaml(path.read_text("utf-8"))
    (rule,) = parsed.rules
    assert not rule.errors
    document = yaml.safe_load(path.read_text("utf-8"))
    assert UUID(document["id"]).version == 4
    for key in ("title", "status", "description", "author", "date", "tags", "falsepositives", "level", "fields"):
        assert document[key], key
    assert all(tag.startswith("attack.") for tag in document["tags"])
    assert all(link.startswith("https://attack.mitre.org/") for link in document["references"])
    cases = yaml.safe_load(path.with_suffix(".test.yml").read_text("utf-8"))
    assert {outcome for case in cases for outcome in case} == {"match", "no_match"}


def test_set() -> None:
    """There are at least 28 rules, no two with one id or title, and no test file without its rule."""
    documents = [yaml.safe_load(path.read_text("utf-8")) for path in RULES]
    assert len(documents) >= 28
    assert len({d["id"] for d in documents}) == len({d["title"] for d in documents}) == len(documents)
    for cases in FOLDER.rglob("*.test.yml"):
        assert cases.with_name(cases.name.replace(".test.yml", ".yml")).exists()
