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
    assert set(report.TEXTS) == set(harness.SCENARIOS)


def test_targets_say_met_missed_or_not_measured() -> None:
    """A scenario that did not run leaves its targets open; the others are compared the right way round."""
    rows = {row["measure"]: row for row in report.targets({"merge": {"ratio": 1.19}, "footprint": {"rows": []}})}
    assert rows["ten rule sets against one"]["met"] is True
    assert rows["idle memory, 3,000 rules"]["met"] is None
    missed = {row["measure"]: row for row in report.targets({"merge": {"ratio": 1.21}})}
    assert missed["ten rule sets against one"]["met"] is False
    table = report.table(list(rows.values()))
    assert "| ten rule sets against one | ≤ 1.2 × | 1.19 | yes |" in table
    assert table.count("\n") == len(report.TARGETS) + 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not measured"), (1234567.8, "1,234,568"), (0.1234, "0.123"), (80, "80"), (52.36, "52.4")],
)
def test_numbers_for_people(value: float | None, text: str) -> None:
    """As many digits as say something."""
    assert report.number(value) == text


def test_a_partial_run_keeps_what_was_measured_before(tmp_path: Path) -> None:
    """A target of a scenario that did not run keeps its row, if it is still the same target; what ran is put in."""
    page = tmp_path / "performance.md"
    old = report.targets({"merge": {"ratio": 1.25}, "inputs": {"udp": {"events_per_second": 400_000}}})
    page.write_text(f"<!-- bench:targets -->\n{report.table(old)}<!-- /bench:targets -->\n")
    rest = {"machine": {"cores": 2, "cpu": "c", "memory_mb": 1024, "kernel": "k"}, "versions": {}, "pinned_to_core": 0}
    scenarios = {"merge": {"ratio": 1.1}}
    report.document({"scenarios": {}, "targets": report.targets(scenarios), "memory_limit": "none", **rest}, page)
    text = page.read_text()
    assert "| ten rule sets against one | ≤ 1.2 × | 1.1 | yes |" in text
    assert "| UDP without loss | ≥ 300,000 datagrams/s | 400,000 | yes |" in text
    assert "| cache, one look-up | ≤ 1,000 ns | not measured |  |" in text
    page.write_text(text.replace("≥ 300,000 datagrams/s", "≥ 200,000 datagrams/s"))
    report.document({"scenarios": {}, "targets": report.targets(scenarios), "memory_limit": "none", **rest}, page)
    assert "| UDP without loss | ≥ 300,000 datagrams/s | not measured |  |" in page.read_text()


def test_results_become_a_document(tmp_path: Path) -> None:
    """Tables between the markers."""
    page = tmp_path / "performance.md"
    page.write_text(
        "# P\n<!-- bench:latency -->\n<!-- /bench:latency -->\n<!-- bench:targets -->\n<!-- /bench:targets -->\n"
    )
    spread = {"p50": 1.0, "p99": 9.5, "p99.9": 20.0}
    rows = [{"rate": 10_000, "fsync_ms_added": 0, "outbox": spread, "broker": spread}]
    scenarios = {"latency": {"at": "2026", "load": 1, "seconds": 2, "rows": rows}}
    report.document(
        {
            "scenarios": scenarios,
            "targets": report.targets(scenarios),
            "machine": {"cores": 2, "cpu": "c", "memory_mb": 1024, "kernel": "k"},
            "versions": {"python": "3"},
            "pinned_to_core": 0,
            "memory_limit": "none",
        },
        page,
    )
    text = page.read_text()
    assert "| 10,000 | +0 ms | 1 ms | 9.5 ms | 20 ms |" in text
