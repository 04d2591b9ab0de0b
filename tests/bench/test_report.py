"""bench/report.py: results become tables, and a person's text stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import harness, report


def test_only_what_lies_between_markers_is_replaced() -> None:
    """Markers without a part keep what they hold, and so does all text outside."""
    text = "a\n<!-- bench:one -->\nold\n<!-- /bench:one -->\nb\n<!-- bench:two -->\nkept\n<!-- /bench:two -->\n"
    page = report.filled(text, {"one": "new\n", "three": "nowhere\n"})
    assert page == text.replace("old", "new")
    assert report.filled(page, {"one": "new\n"}) == page


def test_the_document_has_a_place_for_every_scenario() -> None:
    """No result is written to nowhere."""
    text = report.DOCUMENT.read_text("utf-8")
    for name in (*harness.SCENARIOS, "environment", "targets"):
        assert text.count(f"<!-- bench:{name} -->\n") == text.count(f"<!-- /bench:{name} -->") == 1, name
    assert {target.place.split("/")[0] for target in report.TARGETS} <= set(harness.SCENARIOS)


def test_targets_say_met_missed_or_not_measured() -> None:
    """A scenario that did not run leaves its targets open; the others are compared the right way round."""
    rows = {row[0]: row for row in report.targets({"rulesets": {"ratio": 1.17}, "footprint": {"tables": [[]]}})}
    assert rows["ten rule sets merged on the agent against one"][1:] == ("≤ 1.18 ×", "1.17", "yes")
    assert rows["idle memory, 3,000 rules"][2:] == ("not measured", "")
    missed = {row[0]: row for row in report.targets({"inputs": {"tables": [[{"events_per_second": 200_000}]]}})}
    assert missed["UDP without loss"][3] == "**no**"
    table = report.table(rows.values())
    assert "| ten rule sets merged on the agent against one | ≤ 1.18 × | 1.17 | yes |" in table
    assert table.count("\n") == len(report.TARGETS) + 2


def test_the_place_of_a_figure() -> None:
    """Keys, indices, and of rows with the same values the last; nothing where there is none."""
    results = {"a": {"tables": [[], [{"kind": "x", "n": 1, "v": 2}, {"kind": "x", "n": 1, "v": 3}, {"kind": "y"}]]}}
    assert report.at(results, "a/tables/1/kind=x,n=1/v") == 3
    assert report.at(results, "a/tables/1/0/v") == 2
    for place in ("b/tables/1", "a/tables/2/kind=x/v", "a/tables/1/kind=z/v", "a/tables/1/kind=y/v", "a/tables/0/0/v"):
        assert report.at(results, place) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not measured"), (1234567.8, "1,234,568"), (0.1234, "0.123"), (80, "80"), (52.36, "52.4")],
)
def test_numbers_for_people(value: float | None, text: str) -> None:
    """As many digits as say something."""
    assert report.number(value) == text


REST = {"machine": {"cores": 2, "cpu": "c", "memory_mb": 1024, "kernel": "k"}, "versions": {"python": "3"},
        "pinned_to_core": 0, "memory_limit": "none"}  # fmt: skip
ABOUT = {"at": "2026", "load": 1, "profiled": False, "tables": []}


def test_a_partial_run_keeps_what_was_measured_before(tmp_path: Path) -> None:
    """A target of a scenario that did not run keeps its row, if it is still the same target; what ran is put in."""
    page = tmp_path / "performance.md"
    old = report.targets({"rulesets": {"ratio": 1.25}, "inputs": {"tables": [[{"events_per_second": 400_000}]]}})
    page.write_text(f"<!-- bench:targets -->\n{report.table(old)}<!-- /bench:targets -->\n")
    results = {"scenarios": {"rulesets": {**ABOUT, "ratio": 1.1}}, **REST}
    report.document(results, page)
    text = page.read_text()
    assert "| ten rule sets merged on the agent against one | ≤ 1.18 × | 1.1 | yes |" in text
    assert "| UDP without loss | ≥ 300,000 datagrams/s | 400,000 | yes |" in text
    assert "| cache, one look-up | ≤ 1,000 ns | not measured |  |" in text
    page.write_text(text.replace("≥ 300,000 datagrams/s", "≥ 200,000 datagrams/s"))
    report.document(results, page)
    assert "| UDP without loss | ≥ 300,000 datagrams/s | not measured |  |" in page.read_text()


def test_results_become_a_document(tmp_path: Path) -> None:
    """Tables between the markers, with what is said below them and when that was."""
    page = tmp_path / "performance.md"
    page.write_text("# P\n<!-- bench:latency -->\n<!-- /bench:latency -->\n")
    tables = [[{"rate": 10_000}, {"rate": 10_000, "outbox_p99": 9.5, "kernel": True, "left_out": {}}]]
    report.document({"scenarios": {"latency": {**ABOUT, "tables": tables, "said": "So."}}, **REST}, page)
    table = "| rate | outbox p99 | kernel |\n|---|---|---|\n| 10,000 |  |  |\n| 10,000 | 9.5 | yes |\n"
    assert f"{table}\nSo.\n\n2026, machine load 1.\n<!-- /bench:latency -->" in page.read_text()
