"""The words of the project: those that docs/glossary.md replaced do not come back."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = {
    "judg(e|es|ing)": "evaluate",  # "judged" is the name of a counter: docs/decisions/0027
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
    "agent/vedette/delivery/queue.py",
}
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
