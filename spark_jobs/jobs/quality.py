"""The job ``quality``: how right each rule was, by what people closed.

Of the findings that somebody closed (``closed``), as long as the decision holds, each counts for every rule that it is
made of. A rule's **precision** is the share of its closed findings that were true; its **recall** the share of all true
ones that it had a part in: what it would have missed alone. What nobody found is in neither.
"""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click

from spark_jobs.common.plain import many, plain, short
from spark_jobs.jobs.job import COUNT, FILE, Job, spark_job
from spark_jobs.report import closed
from spark_jobs.tables import storage
from spark_jobs.tables.schema import RULES


class Quality(NamedTuple):
    """A rule: how many closed findings it has a part in that are true and false, and of how many true ones."""

    rule_id: str
    title: str
    true: int
    false: int
    of: int

    @property
    def precision(self) -> float:
        return self.true / (self.true + self.false)

    @property
    def recall(self) -> float | None:
        """None where no finding was closed as true."""
        return self.true / self.of if self.of else None


@spark_job()
@click.option("--top", type=COUNT, default=20, show_default=True, help="Rules printed, those of most false first.")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Write all of them as JSON.")
def quality(job: Job, top: int, output: Path | None) -> str:
    """Say how right each rule was, by closed findings.

    Example: vedette-spark quality --tables tables
    """
    with closing(job.reader()) as reader:
        closed.take_apart(reader, datetime.now(UTC))
        of = closed.findings(reader)
        reader.view("rules", RULES)
        titles = {row["rule_id"]: row["rule_title"] for row in reader.rows("SELECT rule_id, rule_title FROM rules")}
        rules = [
            Quality(
                row["rule_id"],
                titles.get(row["rule_id"]) or row["rule_id"],
                row["correct"],
                row["incorrect"],
                of["correct"],
            )
            for row in closed.rules(reader)
        ]
    rules.sort(key=lambda rule: (-rule.false, rule.true, rule.rule_id))
    if output:
        rows = [{**rule._asdict(), "precision": rule.precision, "recall": rule.recall} for rule in rules]
        storage.replace(output, json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    number = many(of["correct"] + of["incorrect"], "closed finding")
    head = [f"quality: {number}: {of['correct']} true, {of['incorrect']} false"]
    if rules:
        head.append("  precision  recall  true  false  rule")
    return "\n".join([*head, *map(_line, rules[:top])])


def _line(rule: Quality) -> str:
    recall = "-" if rule.recall is None else f"{rule.recall:.0%}"
    return f"  {rule.precision:9.0%}  {recall:>6}  {rule.true:4}  {rule.false:5}  {plain(short(rule.title, 60))}"
