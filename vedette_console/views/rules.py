"""Rules as they run (deployed, fired, silent, noisy, the ATT&CK matrix), and before they do: the editor, which lints,
explains on an event and runs test events. None of it changes anything.

The editor opens the file of a rule in the configured folders: read only, bounded, and only below these folders; a link
that leads out of them is passed over.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from uuid import uuid4

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from vedette_console.data import alerts, rules
from vedette_console.data.models_fleet import Coverage, RuleNoise, RulePage, RuleRow
from vedette_console.data.reader import ask
from vedette_console.fleet.models_asked import EventInput, Explained, Linted, RuleInput, Tested
from vedette_console.fleet.service import fleet_of
from vedette_console.pages.render import page, pager
from vedette_console.pages.render import search as search_link
from vedette_console.pages.shapes import of_days
from vedette_console.security.principal import Principal
from vedette_console.views.forms import After, Days, Limit, Part
from vedette_console.web import Listing, Problem, need

api = APIRouter(tags=["rules"])


@api.get("/rules")
async def get_rules(
    request: Request, q: Part = "", show: Literal["", "deployed", "fired", "silent", "noisy"] = "", days: Days = 14,
    after: After = "", limit: Limit = 100, who: Principal = need("read"),
) -> Listing[RuleRow]:  # fmt: skip
    """Rules with what they did in the last days, those with most alerts first."""
    return await ask(request, rules.rules, who, q, show, days, after, limit)


@api.get("/rules/coverage")
async def get_coverage(request: Request, days: Days = 14, who: Principal = need("read")) -> Coverage:
    """The ATT&CK matrix, and the deployed rules that never fired."""
    return await ask(request, rules.coverage, who, days)


@api.get("/rules/noise")
async def get_noise(
    request: Request, after: After = "", limit: Limit = 50, who: Principal = need("read")
) -> Listing[RuleNoise]:
    """How loud rules were, the loudest first, with filters that would help."""
    return await ask(request, rules.noise, who, after, limit)


@api.get("/rules/{rule_id:path}")
async def get_rule(request: Request, rule_id: str, days: Days = 14, who: Principal = need("read")) -> RulePage:
    """A rule: by day, site, host and entity, and its newest alerts."""
    return await ask(request, rules.rule, who, rule_id, days)


@api.post("/rules/lint")
async def lint_rule(body: RuleInput, request: Request, who: Principal = need("rules.try", audit=False)) -> Linted:
    """Mistakes and doubtful parts, with line and column."""
    return await fleet_of(request).authoring.lint(who, body)


@api.post("/rules/explain")
async def explain_rule(
    body: EventInput, request: Request, who: Principal = need("rules.try", audit=False)
) -> Explained:
    """How the rule is evaluated, and why it fires on the event or does not."""
    return await fleet_of(request).authoring.explain(who, body)


@api.post("/rules/test")
async def run_tests(body: RuleInput, request: Request, who: Principal = need("rules.try", audit=False)) -> Tested:
    """Its test events, as in NAME.test.yml."""
    return await fleet_of(request).authoring.test(who, body)


ENDINGS = (".yml", ".yaml", ".sql")
MAX_FILES, MAX_BYTES = 20_000, 256 << 10


class RuleText(NamedTuple):
    """A rule's file: ``path`` below its folder, ``text``, and ``tests``, that of ``NAME.test.yml`` beside it or ""."""

    path: str
    text: str
    tests: str

    @property
    def kind(self) -> str:
        return "sql" if self.path.endswith(".sql") else "sigma"


def find(folders: Iterable[Path], rule_id: str) -> RuleText | None:
    """The file in which a rule of that id is; None when there is none. Blocking."""
    wanted = re.compile(rf"^\W*id\W+{re.escape(rule_id)}\W*$", re.MULTILINE)
    for folder in folders:
        for path in _files(folder):
            text = _read(path)
            if rule_id in text and (wanted.search(text) or path.suffix == ".sql" or path.stem == rule_id):
                beside = path.with_name(path.stem + ".test.yml")
                return RuleText(path.relative_to(folder).as_posix(), text, _read(beside) if beside.is_file() else "")
    return None


def _files(folder: Path) -> Iterator[Path]:
    top, seen = folder.resolve(), 0
    for path in sorted(folder.rglob("*")):
        if path.suffix not in ENDINGS or path.name.endswith(".test.yml") or not path.is_file():
            continue
        seen += 1
        if seen > MAX_FILES:
            return
        if path.resolve().is_relative_to(top):
            yield path


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


pages = APIRouter()
ROWS = 100
TABS = (
    ("", "All"),
    ("fired", "Fired"),
    ("silent", "Never fired"),
    ("noise", "Noise"),
    ("attack", "ATT&CK"),
)
SKETCH = """title: A Short Name of What It Finds
id: {id}
status: experimental
description: What happened when this matches, and why it matters.
logsource:
  product: linux
detection:
  selection:
    message|contains: something
  condition: selection
level: medium
tags:
  - attack.execution
"""
SKETCH_PATH = "drafts/new_rule.yml"


@pages.get("/rules")
async def show_rules(
    request: Request,
    who: Principal = need("read"),
    show: Annotated[str, Query(pattern="^(|fired|silent|noise|attack)$")] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """A list of rules, or the ATT&CK matrix."""
    listing, coverage, noise = Listing[RuleRow](items=[]), None, None
    if show == "attack":
        coverage = await ask(request, rules.coverage, who)
    elif show == "noise":
        noise = (await ask(request, rules.noise, who)).items
    else:
        listing = await ask(request, rules.rules, who, show=show, after=after, limit=ROWS)
    return page(
        request,
        "rules.html.j2",
        show=show,
        tabs=TABS,
        listing=listing,
        coverage=coverage,
        noise=noise,
        **pager(request, listing.next),
    )


@pages.get("/rules/new")
async def show_editor(
    request: Request,
    who: Principal = need("rules.try"),
    rule: Annotated[str, Query(max_length=200)] = "",
    filter: Annotated[str, Query(max_length=200)] = "",
    alert: Annotated[str, Query(max_length=600)] = "",
) -> Response:
    """The editor: empty, with a rule's file, or with ``filter``, which the job ``noise`` proposes for that rule, below
    it; ``alert`` (DAY/AGENT/ID) brings that alert's event."""
    fleet = fleet_of(request)
    opened, event = await _opened(request, who, rule, filter)
    if alert.count("/") >= 2:
        day, agent, alert_id = alert.split("/", 2)
        event = (await ask(request, alerts.alert, who, day, agent, alert_id)).raw
    groups = [group.name for group in (await asyncio.to_thread(fleet.overview.page, who, limit=1)).groups if group.name]
    tried = await asyncio.to_thread(fleet.backtests.listed, who)
    return page(
        request,
        "editor.html.j2",
        origin=f"{rule}|{filter}",
        new=not rule and not filter,
        kind=opened.kind,
        path=opened.path,
        text=opened.text,
        tests=opened.tests,
        event=event,
        groups=groups,
        backtests=tried.items[:5],
        sources=tried.sources,
    )


async def _opened(request: Request, who: Principal, rule: str, filter: str) -> tuple[RuleText, str]:
    """A text for the editor, and an event to try it on. Raises Problem 404."""
    folders = request.app.state.settings.rules
    if not rule and not filter:
        return RuleText(SKETCH_PATH, SKETCH.format(id=uuid4()), ""), ""
    file = await asyncio.to_thread(find, folders, rule or filter)
    if filter:
        loud = await ask(request, rules.rule, who, filter)
        if loud.noise is None or not loud.noise.proposal:
            raise Problem(404, "no filter is proposed for this rule", what_to_do="run vedette-spark noise")
        event = next((alert.raw for alert in loud.newest if alert.raw), "")
        if file is None or file.kind != "sigma":
            return RuleText(f"filters/{_name(filter)}.yml", loud.noise.proposal, ""), event
        return file._replace(text=f"{file.text.rstrip()}\n---\n{loud.noise.proposal}"), event
    if file is None:
        where = "it is in none of the rules' folders" if folders else "the console has no rules' folder"
        raise Problem(
            404,
            f"the file of this rule is not here: {where}",
            what_to_do="start the console with --rules and the folder in which rules are kept",
        )
    return file, ""


def _name(rule_id: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in rule_id)[:80] or "rule"


@pages.get("/rules/{rule_id:path}")
async def show_rule(request: Request, rule_id: str, who: Principal = need("read")) -> Response:
    """One rule: what it speaks for and how it does."""
    shown = await ask(request, rules.rule, who, rule_id)
    days = of_days(shown.by_day, lambda day: search_link(f"{shown.query} from:{day} to:{day}"))
    return page(request, "rule.html.j2", rule=shown, days=days)
