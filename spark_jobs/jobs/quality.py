"""The job ``quality``: how right each rule was, by what people closed.

Of the findings that somebody closed (``filters.closed_cases``), as long as the decision holds, each counts for every
rule that it is made of. A rule's **precision** is the share of its closed findings that were true; its **recall** the
share of all true ones that it had a part in: what it would have missed alone. What nobody found is in neither.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click

from spark_jobs.common.plain import many, plain, short
from spark_jobs.findings.conjunctions import FALSE, TRUE
from spark_jobs.jobs.filters import Case, closed_cases
from spark_jobs.jobs.job import COUNT, FILE, Job, spark_job
from spark_jobs.tables import storage
from spark_jobs.tables.schema import RULES


class Quality(NamedTuple):
    """Of a rule: how many closed findings it has a part in that are true and false, and of how many true ones."""

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
        cases = closed_cases(reader, datetime.now(UTC))
        reader.view("rules", RULES)
        titles = {row["rule_id"]: row["rule_title"] for row in reader.rows("SELECT rule_id, rule_title FROM rules")}
    found = qualities(cases, titles)
    if output:
        rows = [{**one._asdict(), "precision": one.precision, "recall": one.recall} for one in found]
        storage.replace(output, json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    labels = Counter(one.label for one in cases)
    head = f"quality: {many(len(cases), 'closed finding')}: {labels[TRUE]} true, {labels[FALSE]} false"
    lines = [_line(one) for one in found[:top]]
    return "\n".join([head, *(["  precision  recall  true  false  rule"] if lines else []), *lines])


def _line(one: Quality) -> str:
    recall = "-" if one.recall is None else f"{one.recall:.0%}"
    return f"  {one.precision:9.0%}  {recall:>6}  {one.true:4}  {one.false:5}  {plain(short(one.title, 60))}"


def qualities(cases: Sequence[Case], titles: dict[str, str | None]) -> list[Quality]:
    """Of each rule of ``cases``; those with most false ones first, then those with fewest true ones."""
    right, wrong = Counter[str](), Counter[str]()
    for case in cases:
        (right if case.label == TRUE else wrong).update(case.rules)
    of = sum(case.label == TRUE for case in cases)
    made = [Quality(rule, titles.get(rule) or rule, right[rule], wrong[rule], of) for rule in sorted({*right, *wrong})]
    return sorted(made, key=lambda one: (-one.false, one.true, one.rule_id))
