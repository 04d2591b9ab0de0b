"""Deployed rules against what was seen, and the layer that the ATT&CK Navigator reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.common.attack import of_tags
from spark_jobs.jobs.coverage import SEEN, SILENT, STRANGE
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import COVERAGE, RULES, WIN_5M
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROOT = Path(__file__).parents[3]
PUBLISHED = json.loads((Path(__file__).parents[1] / "published" / "navigator-4.5.json").read_text())
KINDS: dict[str, type | tuple[type, ...]] = {"text": str, "number": (int, float), "bool": bool}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """``two`` with 3 alerts at one site and 4 at another, ``stranger`` with 5."""
    tables = open_tables(str(tmp_path / "tables"))
    counts = [
        {"date": "2026-11-20", "window_start": AT, "fleet": "north", "site": site, "rule_id": rule, "level": "high",
         "alerts": alerts, "matches": 2 * alerts, "first_time": AT, "last_time": AT}
        for site, rule, alerts in (("a", "two", 3), ("b", "two", 4), ("a", "stranger", 5))
    ]  # fmt: skip
    rules = [{"rule_id": "stranger", "rule_title": "Stranger", "techniques": ["T1003"], "tactics": ["discovery"]}]
    for table, rows in ((WIN_5M, counts), (RULES, rules)):
        kinds = [field for field in arrow_schema(table.columns) if field.name in rows[0]]
        tables.upsert(table, pa.Table.from_pylist(rows, pa.schema(kinds)))
    return tables


def publish(landing: Path, version: int, rules: list[dict[str, Any]], name: str = "main") -> Path:
    (landing / "rules").mkdir(parents=True, exist_ok=True)
    (landing / "rules" / f"{version}.json").write_text(json.dumps({"name": name, "version": version, "rules": rules}))
    return landing / "rules"


RULE_LIST = [
    {
        "id": "two",
        "title": "Two",
        "level": "high",
        "tags": ["attack.t1110.001", "attack.initial-access", "attack.T1059"],
    },
    {"id": "never", "title": "Never", "level": "low", "tags": ["attack.t1110.001", "attack.lateral_movement"]},
    {"id": "plain", "title": "Plain", "level": "low", "tags": []},
    {"id": "part", "title": "Part of a correlation", "level": "low", "tags": ["attack.t1001"], "alerts": False},
    {"id": "bad", "title": "Refused", "level": "low", "tags": ["attack.t1002"], "state": "refused"},
    {"id": "plc", "title": "Plant", "level": "low", "tags": ["attack.t0855"]},
]


def test_each_technique_has_its_rules(tables: Tables, tmp_path: Path) -> None:
    """By technique and rule, of the newest list only; what never fired and what is not deployed is said."""
    publish(tmp_path, 1, [{"id": "old", "title": "Old", "level": "low", "tags": ["attack.t1005"]}])
    folder = publish(tmp_path, 12, RULE_LIST)
    text = run(None, "coverage", f"--tables={tables.root}", "--date=2026-11-20", f"--rules={folder}")
    assert text == ("coverage: 4 rules deployed, 3 never fired, 1 not deployed fired; 3 of 4 techniques seen")
    rows = {(row["technique"], row["rule_id"]): row for row in tables.arrow(COVERAGE).to_pylist()}
    assert set(rows) == {
        ("T1110.001", "two"), ("T1059", "two"), ("T1110.001", "never"), ("", "plain"), ("T0855", "plc"),
        ("T1003", "stranger"),
    }  # fmt: skip
    row = rows["T1059", "two"]
    assert (row["alerts"], row["matches"], row["sites"], row["tactics"]) == (7, 14, 2, ["initial-access"])
    assert (row["deployed"], row["first_seen"]) == (True, AT)
    assert (rows["T1110.001", "never"]["alerts"], rows["T1110.001", "never"]["sites"]) == (0, 0)
    assert rows["T1110.001", "never"]["tactics"] == ["lateral-movement"]
    assert not rows["T1003", "stranger"]["deployed"]


def test_tactics_and_techniques_of_tags() -> None:
    """Each once; what only looks like one is none, nor is a tag that is not there."""
    tags = [
        ["attack.t1110.001", "attack.initial_access", "attack.initial-access", "ATTACK.T1059", "attack.t1059"],
        ["attack.ta0001", "attack.t11101", "attack.t1059\n", "attack.t\u0661\u0662\u0663\u0664", "t1003", "execution"],
        [None],
    ]  # fmt: skip
    assert of_tags(tags[0]) == (["initial-access"], ["T1110.001", "T1059"])
    assert [of_tags(those) for those in (*tags[1:], [], None)] == [([], [])] * 4


def _wrong(value: dict[str, Any], kind: str) -> Iterator[str]:
    """What the published layer format does not allow in an object of ``kind``."""
    about = PUBLISHED["objects"][kind]
    yield from (f"{kind}.{name} is missing" for name in about["required"] if name not in value)
    for name, item in value.items():
        wanted = about["fields"].get(name)
        if wanted is None:
            yield f"{kind}.{name} is not published"
        elif isinstance(wanted, list):
            if item not in wanted:
                yield f"{kind}.{name} is {item}"
        elif wanted.endswith("[]"):
            for part in item:
                yield from _wrong_value(part, wanted[:-2], f"{kind}.{name}")
        else:
            yield from _wrong_value(item, wanted, f"{kind}.{name}")


def _wrong_value(value: Any, wanted: str, name: str) -> Iterator[str]:
    if wanted in PUBLISHED["objects"]:
        yield from _wrong(value, wanted)
    elif not isinstance(value, KINDS[wanted]) or (wanted == "number" and isinstance(value, bool)):
        yield f"{name} is no {wanted}"


def test_the_layer_is_one_of_the_navigator(tables: Tables, tmp_path: Path) -> None:
    """Fields and types that layer format 4.5 asks for; colour and score by what was seen."""
    folder = publish(tmp_path, 12, RULE_LIST)
    file = tmp_path / "layer.json"
    run(None, "coverage", f"--tables={tables.root}", "--date=2026-11-20", f"--rules={folder}", f"--layer={file}")
    layer = json.loads(file.read_text())
    assert (layer["domain"], layer["versions"]) == ("enterprise-attack", {"navigator": "5.0.0", "layer": "4.5"})
    assert layer["name"] == "Vedette 2026-10-22 to 2026-11-20"
    assert list(_wrong(layer, "layer")) == []
    assert layer["gradient"]["maxValue"] > layer["gradient"]["minValue"]
    assert [*_wrong({**layer, "colour": "red"}, "layer")] == ["layer.colour is not published"]
    assert [*_wrong({"name": 1, "sorting": 4, "legendItems": [{}]}, "layer")] == [
        "layer.domain is missing", "layer.name is no text", "layer.sorting is 4", "legendItem.label is missing",
        "legendItem.color is missing",
    ]  # fmt: skip
    shown = {entry["techniqueID"]: (entry["score"], entry["color"], entry["comment"]) for entry in layer["techniques"]}
    assert shown == {
        "T1110.001": (7, SEEN, "Two: 7\nNever: 0"),
        "T1059": (7, SEEN, "Two: 7"),
        "T1003": (5, STRANGE, "Stranger: 5"),
    }
    assert {entry["color"] for entry in layer["legendItems"]} == {SEEN, SILENT, STRANGE}


def test_rule_files_will_do(tables: Tables) -> None:
    """The rules of a folder, as `vedette` compiles them."""
    text = run(None, "coverage", f"--tables={tables.root}", "--date=2026-11-20", f"--rules={ROOT}/rules/sigma/web")
    number = int(text.split()[1])
    assert text.startswith(f"coverage: {number} rules deployed, {number} never fired, 1 not deployed fired")
    assert number >= 18


def test_no_rules_are_said(tables: Tables, tmp_path: Path) -> None:
    """A path that is not there ends the job with the path."""
    with pytest.raises(FileNotFoundError, match="nothing: no such rules"):
        run(None, "coverage", f"--tables={tables.root}", f"--rules={tmp_path}/nothing")
