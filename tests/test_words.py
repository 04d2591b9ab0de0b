"""The words of the project: those that docs/glossary.md replaced do not come back."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = {
    "judg(e|es|ed|ing)": "evaluate",
    "told": "logged, reported",
    "doors?": "input",
    "shelf": "segment set",
    "bur(y|ies|ied)": "dead letter",
    "tidy(ing)?": "maintenance",
    "lean": "memory pressure",
    "tryouts?": "dry run",
    "rechoos(e|es|ing)": "retune",
    "gravest": "highest severity",
    "not to be had": "unavailable",
}
"""What is not written any more, and what is."""
FOUND = re.compile(rf"(?<![a-z])(?:{'|'.join(BANNED)})(?![a-z])", re.IGNORECASE)
COLUMN = ("intake/frames", "report/accounts", "report/text", "tables/schema")
REAL = {("docs/rules.md", "door"), ("docs/examples.md", "door"),
        ("agent/vedette/__init__.py", "judge"), ("CHANGELOG.md", "judge"),
        *((f"spark_jobs/{name}.py", "judged") for name in COLUMN)}  # fmt: skip
"""A door that opens and closes is one; the old name of ``vedette.evaluate``; a column of ``agents`` keeps its name."""
STILL = {
    "README.md",
    "agent/vedette/__init__.py",
    "agent/vedette/api.py",
    "agent/vedette/cli/bundle.py",
    "agent/vedette/cli/rules.py",
    "agent/vedette/delivery/queue.py",
    "agent/vedette/inputs/accept.py",
    "agent/vedette/inputs/files.py",
    "agent/vedette/inputs/listen.py",
    "agent/vedette/inputs/subscribe.py",
    "agent/vedette/inputs/tail.py",
    "agent/vedette/model/counters.py",
    "agent/vedette/model/event.py",
    "agent/vedette/mqtt/client.py",
    "agent/vedette/mqtt/tls.py",
    "agent/vedette/plan/database.py",
    "agent/vedette/plan/limits.py",
    "agent/vedette/rules/authoring/explain.py",
    "agent/vedette/rules/authoring/lint.py",
    "agent/vedette/rules/build.py",
    "agent/vedette/rules/correlation.py",
    "agent/vedette/rules/expression.py",
    "agent/vedette/rules/faults.py",
    "agent/vedette/rules/legacy.py",
    "agent/vedette/rules/modifiers.py",
    "agent/vedette/rules/pipelines.py",
    "agent/vedette/rules/sigma.py",
    "agent/vedette/runtime/account.py",
    "agent/vedette/runtime/alerts.py",
    "agent/vedette/runtime/app.py",
    "agent/vedette/runtime/arrivals.py",
    "agent/vedette/runtime/budgets.py",
    "agent/vedette/runtime/control.py",
    "agent/vedette/runtime/failures.py",
    "agent/vedette/runtime/logs.py",
    "agent/vedette/runtime/metrics.py",
    "agent/vedette/runtime/pipeline.py",
    "agent/vedette/runtime/progress.py",
    "agent/vedette/runtime/rules.py",
    "agent/vedette/runtime/scan.py",
    "agent/vedette/runtime/shares.py",
    "agent/vedette/runtime/status.py",
    "agent/vedette/store/check.py",
    "agent/vedette/store/rebuild.py",
    "agent/vedette/store/store.py",
    "agent/vedette/system/allocator.py",
    "agent/vedette/system/compressed.py",
    "agent/vedette/system/descriptors.py",
    "agent/vedette/system/notify.py",
    "agent/vedette/system/trouble.py",
    "agent/vedette/system/wallclock.py",
    "docs/api.md",
    "docs/architecture.md",
    "docs/decisions/0004-mqtt-redelivery.md",
    "docs/decisions/0005-cursor-within-a-frame.md",
    "docs/decisions/0006-sigma-meaning.md",
    "docs/decisions/0007-correlation-semantics.md",
    "docs/decisions/0008-audit-records.md",
    "docs/decisions/0013-a-log-goes-on.md",
    "docs/decisions/0015-what-an-event-does-not-say.md",
    "docs/examples.md",
    "docs/guide.md",
    "docs/install.md",
    "docs/metrics.md",
    "docs/rules.md",
    "docs/sigma-differences.md",
    "spark_jobs/jobs/backtest.py",
} | {(f"spark_jobs/{name}.py", "judged") for name in COLUMN}
"""Files that have some yet: this list only gets shorter. ``judged`` is a column of the table ``agents``,
which keeps its name."""


def files() -> list[Path]:
    code = [path for folder in ("agent/vedette", "spark_jobs") for path in (ROOT / folder).rglob("*.py")]
    return [*code, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def test_words_that_were_replaced() -> None:
    """No name, string or text uses them, but in the files that are listed."""
    guilty = {}
    for path in files():
        name = str(path.relative_to(ROOT))
        words = {match[0].lower() for match in FOUND.finditer(path.read_text("utf-8"))}
        if words := {word for word in words if (name, word) not in REAL}:
            guilty[name] = words
    assert {name: words for name, words in guilty.items() if name not in STILL} == {}
