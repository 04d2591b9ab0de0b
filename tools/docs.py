"""Write the pages of docs/ that restate code: ``python -m tools.docs``, or ``make docs``.

One function a page, each returning the text; ``PAGES`` lists them, and tests/test_docs.py compares the files with them.
Edit the code that a page is made of, not the page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def metrics() -> str:
    """docs/metrics.md: what stands above "All metrics" as it is, then a row for each metric of the table."""
    from vedette.runtime.metrics import AGENT, METRICS, UNITS

    heading, labels = "## All metrics\n", ", ".join(f"`{name}`" for name in AGENT)
    rows = [
        f"`vedette_agent` is always 1; its labels tell which agent this is: {labels}.",
        "Counters end in `_total` and survive restarts; the others are gauges.",
        "",
        "| metric | labels | in the status | unit | meaning |",
        "|---|---|---|---|---|",
    ]
    for one in METRICS:
        names = ", ".join(f"`{name}`" for name in one.labels)
        rows.append(f"| `{one.full_name}` | {names} | `{one.path}` | {UNITS[one.unit]} | {one.help} |")
    return (DOCS / "metrics.md").read_text("utf-8").partition(heading)[0] + heading + "\n".join(rows) + "\n"


PAGES: dict[str, Callable[[], str]] = {"metrics.md": metrics}
"""Each page's name in docs/, and what makes its text."""

if __name__ == "__main__":
    for name, text in PAGES.items():
        (DOCS / name).write_text(text(), "utf-8")
