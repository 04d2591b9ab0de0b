"""The export: every line is what the published field lists allow, and every alert that landed is one line."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.common import attack
from spark_jobs.common.attack import TACTICS
from spark_jobs.export import ecs, ocsf
from spark_jobs.export.ocsf import finding
from spark_jobs.jobs.export import lacking, write
from spark_jobs.tables.ask import Sparks
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.fleet import take
from tests.spark_jobs.found import AT, HOSTILE
from tests.spark_jobs.landed import HOUR, NOON, alert

PUBLISHED = Path(__file__).parents[1] / "published"
OCSF = json.loads((PUBLISHED / "ocsf-1.5.0.json").read_text("utf-8"))
ECS = json.loads((PUBLISHED / "ecs-9.4.0.json").read_text("utf-8"))


def row(**changes: Any) -> dict[str, Any]:
    """A row of the table ``alerts``: landed, and enriched with all there is."""
    landed = {**alert(1), "counted_at": AT}
    for name in ("event_time", "detected_at", "received_at"):
        landed[name] = datetime.fromtimestamp(landed[name] / 1e6, UTC)
    return {
        **dict.fromkeys(ALERTS.names),
        **landed,
        "tags": ["attack.initial_access", "attack.execution", "attack.t1110.001", "attack.t1059", "cve.2026-1"],
        "entities": [
            {"kind": "ip", "value": "203.0.113.9"},
            {"kind": "ip", "value": "2001:db8::1"},
            {"kind": "user", "value": "root"},
            {"kind": "hash", "value": "a" * 64},
            {"kind": "url", "value": "http://h/x"},
            {"kind": "user_agent", "value": "curl/8"},
            {"kind": "domain", "value": "a.example"},
            {"kind": "device", "value": "press-1"},
        ],
        "contributing": [
            {"rule_id": "r", "event_time": AT, "raw_ref": {"log_id": "0" * 32, "offset": 5, "length": 7}}
        ],
        "asset": {"owner": "web team", "role": "web", "environment": "production", "criticality": 3},
        "place": {"name": "Plant", "country": "DE", "latitude": 52.5, "longitude": 13.4, "timezone": "Europe/Berlin"},
        "intel": [
            {"kind": "ip", "value": "203.0.113.9", "indicator": "203.0.113.0/24", "source": "feed", "threat": "bot",
             "score": 80}
        ],
        "batch": "b-1",
        **changes,
    }  # fmt: skip


CASES = {
    "detection": row(),
    "fold": row(kind="fold", parent_id="f" * 32, count=2**40, raw="", first_time=AT, last_time=AT, entities=[]),
    "correlation": row(kind="correlation", group_by=[("src_ip", "203.0.113.9")], fields=[("a.b", "1")], logsource=None),
    "bare": {**dict.fromkeys(ALERTS.names), **{name: row()[name] for name in ("alert_id", "agent_id", "event_time")},
             "received_at": AT},
    "hostile": row(
        raw=HOSTILE, rule_title=HOSTILE, host=HOSTILE, level=HOSTILE, fields=[(HOSTILE, HOSTILE)], tags=[HOSTILE],
        entities=[{"kind": "ip", "value": HOSTILE}, {"kind": HOSTILE, "value": HOSTILE}],
        place={"name": HOSTILE, "country": HOSTILE, "latitude": None, "longitude": None, "timezone": None},
    ),
}  # fmt: skip


def wrong_ocsf(value: Any, of: Mapping[str, Any], path: str = "") -> list[str]:
    """What in an object ``value`` the published list ``of`` its class or object does not allow."""
    attributes = of["attributes"]
    wrong = [f"{path}{name}: unknown" for name in value if name not in attributes]
    wrong += [
        f"{path}{name}: required" for name, about in attributes.items() if about.get("required") and name not in value
    ]
    if (need := of.get("constraints", {}).get("at_least_one")) and not any(name in value for name in need):
        wrong.append(f"{path}: needs one of {need}")
    for name, attribute in attributes.items():
        if name not in value:
            continue
        if attribute.get("array") and not isinstance(value[name], list):
            wrong.append(f"{path}{name}: no list")
            continue
        for item in value[name] if attribute.get("array") else [value[name]]:
            if "object" not in attribute:
                wrong += _wrong_scalar(item, attribute, f"{path}{name}")
            elif not isinstance(item, dict):
                wrong.append(f"{path}{name}: no object")
            elif attribute["object"] != "object":
                wrong += wrong_ocsf(item, OCSF["objects"][attribute["object"]], f"{path}{name}.")
    return wrong


def _wrong_scalar(value: Any, attribute: Mapping[str, Any], path: str) -> list[str]:
    kind = attribute["type"]
    if kind == "json_t":
        return []
    described = OCSF["types"][kind]
    base = described.get("type", kind)
    fits = {"integer_t": int, "long_t": int, "string_t": str, "boolean_t": bool, "float_t": float, "timestamp_t": int}
    if not isinstance(value, fits[base]) or (isinstance(value, bool) and base != "boolean_t"):
        return [f"{path}: {value!r} is no {base}"]
    if "enum" in attribute and value not in attribute["enum"]:
        return [f"{path}: {value!r} is not one of {attribute['enum']}"]
    if kind == "ip_t":
        ipaddress.ip_address(value)
    elif "regex" in described and not re.search(described["regex"], value):
        return [f"{path}: {value!r} is no {kind}"]
    return []


def wrong_ecs(value: Mapping[str, Any], path: str = "") -> list[str]:
    """What in a document the published list of fields does not allow."""
    wrong = []
    for name, item in value.items():
        whole = f"{path}{name}"
        kind = ECS["fields"].get(whole)
        if kind is None and isinstance(item, dict):
            inner = wrong_ecs(item, f"{whole}.")
            wrong += inner if any(field.startswith(f"{whole}.") for field in ECS["fields"]) else [f"{whole}: unknown"]
        elif kind is None:
            wrong.append(f"{whole}: unknown")
        else:
            many = kind.endswith("[]")
            items = item if many and isinstance(item, list) else [item]
            fits = {"text": str, "number": int, "object": dict, "boolean": bool}[kind.removesuffix("[]")]
            wrong += [f"{whole}: {item!r} is no {kind}" for item in items if not isinstance(item, fits)]
    return wrong


@pytest.mark.parametrize("name", CASES)
def test_ocsf_findings_are_what_the_class_allows(name: str) -> None:
    """Known attributes only, all required ones, of the right types, enumerations and constraints."""
    finding = json.loads(json.dumps(ocsf.finding(CASES[name])))
    assert wrong_ocsf(finding, OCSF["class"]) == []
    assert (finding["class_uid"], finding["type_uid"]) == (2004, 200402 if name == "fold" else 200401)


@pytest.mark.parametrize("name", CASES)
def test_ecs_documents_are_of_ecs_fields(name: str) -> None:
    """Every field is in the published list and of its kind; labels are texts."""
    document = json.loads(json.dumps(ecs.document(CASES[name])))
    assert wrong_ecs(document) == []
    assert all(isinstance(value, str) and "." not in key for key, value in document.get("labels", {}).items())
    assert (document["ecs"]["version"], document["event"]["kind"]) == ("9.4.0", "alert")
    assert re.fullmatch(r"2026-11-20T12:00:01\.000Z", document["@timestamp"])


def test_the_checks_see_mistakes() -> None:
    """A wrong name, type, enumeration or a missing attribute is found in both formats."""
    finding = ocsf.finding(CASES["detection"])
    assert wrong_ocsf({**finding, "colour": 1}, OCSF["class"]) == ["colour: unknown"]
    assert wrong_ocsf({**finding, "severity_id": 9}, OCSF["class"]) != []
    assert wrong_ocsf({**finding, "time": "now"}, OCSF["class"]) != []
    assert wrong_ocsf({k: v for k, v in finding.items() if k != "metadata"}, OCSF["class"]) == ["metadata: required"]
    assert wrong_ocsf({**finding, "evidences": [{"uid": "x"}]}, OCSF["class"]) != []
    document = ecs.document(CASES["detection"])
    assert wrong_ecs({**document, "colour": "red"}) == ["colour: unknown"]
    assert wrong_ecs({**document, "event": {"severity": "high"}}) != []


def test_what_a_finding_says() -> None:
    """Identity, severity, times, ATT&CK, observables and the way back to the raw log."""
    finding = ocsf.finding(CASES["detection"])
    assert finding["finding_info"]["uid"] == finding["metadata"]["uid"] == alert(1)["alert_id"]
    assert (finding["severity_id"], finding["time"], finding["metadata"]["logged_time"]) == (
        4,
        NOON // 1000 + 1000,
        NOON // 1000 + 3000,
    )
    assert finding["finding_info"]["attacks"] == [
        {"technique": {"uid": "T1110"}, "sub_technique": {"uid": "T1110.001"}},
        {"technique": {"uid": "T1059"}},
        {"tactic": {"uid": "TA0001", "name": "Initial Access"}},
        {"tactic": {"uid": "TA0002", "name": "Execution"}},
    ]
    assert finding["unmapped"]["raw_ref"] == {"log_id": "0" * 32, "offset": 100, "length": 80}
    assert finding["evidences"][0]["src_endpoint"] == {"ip": "203.0.113.9"}
    fold = ocsf.finding(CASES["fold"])
    assert (fold["activity_id"], fold["finding_info"]["uid"], fold["count"]) == (2, "f" * 32, 2**40)


def test_what_a_document_says() -> None:
    """The same in ECS."""
    document = ecs.document(CASES["detection"])
    assert document["threat"]["tactic"] == {"id": ["TA0001", "TA0002"], "name": ["Initial Access", "Execution"]}
    assert document["threat"]["technique"] == {"id": ["T1110", "T1059"], "subtechnique": {"id": ["T1110.001"]}}
    assert document["source"] == {"ip": "203.0.113.9", "address": "203.0.113.9"}
    assert document["file"] == {"hash": {"sha256": "a" * 64}}
    assert document["related"]["ip"] == ["203.0.113.9", "2001:db8::1"]
    assert document["labels"]["raw_offset"] == "100"
    assert document["labels"]["field_user"] == "root"
    assert "source" not in ecs.document(CASES["hostile"])


def test_tactics_are_those_of_the_jobs() -> None:
    """One list of tactics, in one order."""
    assert tuple(attack.TACTIC_IDS) == TACTICS
    assert attack.caption("command-and-control") == "Command and Control"


NAMES = ("host", "site", "fleet", "level", "kind", "raw", "rule_title", "bundle", "parent_id", "source")
KINDS = ("ip", "user", "hash", "url", "x", "")
TEXT = st.none() | st.text(max_size=8)
TEXTS = st.fixed_dictionaries(dict.fromkeys(NAMES, TEXT))
ENTITIES = st.lists(st.fixed_dictionaries({"kind": st.sampled_from(KINDS), "value": TEXT}), max_size=4)
TAGS = st.lists(
    st.text(max_size=12) | st.sampled_from(["attack.t1110", "ATTACK.T1003.001", "attack.impact"]), max_size=4
)


@given(TEXTS, ENTITIES, TAGS)
@settings(max_examples=80)
def test_any_alert_can_be_exported(texts: dict[str, Any], entities: list[dict[str, Any]], tags: list[str]) -> None:
    """Whatever an alert's texts are, both formats stay within their lists."""
    alert_row = row(**texts, entities=entities, tags=tags)
    assert wrong_ocsf(json.loads(json.dumps(ocsf.finding(alert_row))), OCSF["class"]) == []
    assert wrong_ecs(json.loads(json.dumps(ecs.document(alert_row)))) == []


def test_only_days_that_are_over_and_have_no_file(tmp_path: Path) -> None:
    """``--new``: each day once, the day that goes on not yet."""
    days = {day: tmp_path / f"ocsf-{day}.ndjson" for day in ("2026-11-20", "2026-11-21", "2026-11-22")}
    days["2026-11-20"].write_text("")
    assert list(lacking(days, "2026-11-22")) == ["2026-11-21"]
    words = ["export", f"--tables={tmp_path}/t", "--format=ecs", "--date=2020-01-02", f"--output={tmp_path}", "--new"]
    assert run(None, *words) == f"{tmp_path}/ecs-2020-01-02.ndjson: 0 alerts"
    assert run(None, *words) == "nothing new"


@pytest.mark.spark
def test_each_alert_is_one_line_of_the_day_it_landed(spark: SparkSession, tmp_path: Path) -> None:
    """A day's file holds the alerts that landed then, late ones too, by either reader; files appear whole."""
    tables = f"--tables={tmp_path / 'tables'}"
    late = alert(3, received_at=NOON + 30 * HOUR, rule_title=HOSTILE)
    take(spark, open_tables(str(tmp_path / "tables")), "batch", [alert(1), alert(2), late])
    out = tmp_path / "out"
    said = run(None, "export", tables, "--format=ocsf", "--date=2026-11-21", "--days=2", f"--output={out}")
    assert [line.rsplit(": ", 1)[1] for line in said.splitlines()] == ["2 alerts", "1 alert"]
    assert sorted(file.name for file in out.iterdir()) == ["ocsf-2026-11-20.ndjson", "ocsf-2026-11-21.ndjson"]
    whole = [json.loads(line) for file in sorted(out.iterdir()) for line in file.read_text("utf-8").splitlines()]
    assert {line["metadata"]["uid"] for line in whole} == {alert(n)["alert_id"] for n in (1, 2, 3)}
    assert [wrong_ocsf(line, OCSF["class"]) for line in whole] == [[], [], []]
    assert whole[2]["message"] == HOSTILE
    other = tmp_path / "other"
    other.mkdir()
    by_spark = Sparks(open_tables(str(tmp_path / "tables")), spark)
    by_spark.view("exported", ALERTS)
    for day in ("2026-11-20", "2026-11-21"):
        write(by_spark, day, finding, other / f"ocsf-{day}.ndjson")
    for file in out.iterdir():
        lines, theirs = (sorted(line.read_text("utf-8").splitlines()) for line in (file, other / file.name))
        assert lines == theirs
