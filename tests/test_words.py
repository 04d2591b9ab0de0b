"""The words of the project: those that docs/glossary.md replaced do not come back."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
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


HOLLOW = {"one", "found", "made", "given", "known", "told", "kept"}
"""Names that do not say what a thing is. One by role does: ``rule``, ``row``, ``deadline``."""
CEILINGS = {
    "rawlog": 1,  # ``made``: how many alerts were, beside ``receipted``
    "store": 1,  # the same
    "region": 1,  # ``given``: how many agents of a ring were given a change, beside ``taken``
    "vedette_console": 1,  # the same
    "runtime": 9,  # ``made``, and a heartbeat's parts
}
"""Variables, attributes and parameters of such names in a room, at most; in a room that is not here: none. A ceiling
only falls: whoever renames some lowers it."""


def code() -> Iterator[tuple[str, Path]]:
    """The modules of the product, each with its room: a folder of the package, or the name of another one."""
    for folder in ("agent/vedette", "vedette_console", "spark_jobs", "packaging/installer"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            below = path.relative_to(ROOT / folder).parts
            inside = folder == "agent/vedette" and len(below) > 1
            yield below[0] if inside else folder.rpartition("/")[2], path


def named(path: Path) -> Iterator[str]:
    """What a module calls its variables, attributes and parameters, once for each place that sets one."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.arg():
                yield node.arg
            case ast.MatchAs(name=str()) | ast.MatchStar(name=str()):
                yield node.name or ""


def test_names_say_what_a_thing_is() -> None:
    """No room has more names that say nothing than its ceiling."""
    hollow = Counter(room for room, path in code() for name in named(path) if name.strip("_") in HOLLOW)
    assert {room: count for room, count in hollow.items() if count > CEILINGS.get(room, 0)} == {}
