"""Rules as they are typed: lint, explain, test events, plans for hunts; each in a bounded child (``worker.py``).

A rule set that never ends, eats memory or crashes its reader ends the child; the answer then says so (``stopped``).
AT_ONCE children at a time, of one user one; beyond WAITING that wait, of one user OWN, they are refused.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from vedette.system import child
from vedette.system.within import within
from vedette_console.data.turns import Turns
from vedette_console.fleet.models import Finding, RuleFile
from vedette_console.fleet.models_asked import EventInput, Explained, Linted, RuleInput, Tested
from vedette_console.security.principal import Principal
from vedette_console.settings import Settings
from vedette_console.web import Problem

MODULE = "vedette_console.fleet.worker"
SECONDS, MEMORY = 60.0, 2 << 30
"""Of a child: time on the clock, and address space."""
AT_ONCE, WAITING, OWN = 2, 32, 8
STEM = "console_rule"
"""Name of the file that a single text becomes."""
ENDINGS = {"sigma": ".yml", "sql": ".sql"}


class Authoring:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._turns = Turns(range(AT_ONCE), 1)

    async def lint(self, who: Principal, rule: RuleInput) -> Linted:
        row = await self._ask(who, "lint", _files(rule), rule.beside)
        if "stopped" in row:
            return Linted(runs=False, problems=row["problems"], stopped=row["stopped"])
        return Linted(**row)

    async def explain(self, who: Principal, rule: EventInput) -> Explained:
        row = await self._ask(who, "explain", _files(rule), rule.beside, event=rule.event, format=rule.format,
                              topic=rule.topic)  # fmt: skip
        return Explained(**{"lines": [], **row})

    async def test(self, who: Principal, rule: RuleInput) -> Tested:
        row = await self._ask(who, "test", _files(rule), rule.beside)
        return Tested(**{"ok": False, "events": 0, "sequences": 0, "failures": [], **row})

    async def plan(self, who: Principal, rules: Iterable[RuleFile]) -> tuple[str, list[str], list[Finding]]:
        """Plan of a hunt in Base64, titles of its rules, findings about it. Raises Problem 422 when nothing runs."""
        row = await self._ask(who, "plan", {file.path: file.text or "" for file in rules}, True)
        findings = [Finding(**problem) for problem in row["problems"]]
        if not row.get("plan"):
            first = row.get("stopped") or next((said(finding) for finding in findings), "no rule in it")
            raise Problem(422, f"no rule runs: {first}", where="rules", what_to_do="see /rules/lint for each mistake")
        return row["plan"], row["titles"], findings

    async def _ask(
        self, who: Principal, op: str, files: Mapping[str, str], beside: bool, **more: str
    ) -> dict[str, Any]:
        """The child's answer, always with "problems"; with "stopped" when it gave none. Raises Problem 429."""
        if self._turns.waiting.total() >= WAITING or self._turns.waiting[who.name] >= OWN:
            raise Problem(429, "too many rules are being tried", what_to_do="try again in a moment",
                          headers={"Retry-After": "5"})  # fmt: skip
        order = {
            "rules": [name for name in files if is_rule(name)],
            "beside": [str(path) for path in self._settings.rules] if beside else [],
            "pipelines": [str(path) for path in self._settings.pipelines],
            "lookups": [str(path) for path in self._settings.lookups],
            **{"event": "", "format": "auto", "topic": ""}, **more,
        }  # fmt: skip
        turn = await self._turns.take(who.name)
        try:
            folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="vedette-console-"))
            try:
                await asyncio.to_thread(write_rules, files, folder)
                ended = await child.run_async(MODULE, str(folder), op, data=orjson.dumps(order), seconds=SECONDS,
                                              memory=MEMORY)  # fmt: skip
            finally:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        finally:
            self._turns.give(turn)
        return answer(ended)


def answer(ended: child.Ended) -> dict[str, Any]:
    """The answer of a child that has ended."""
    why = ""
    if ended.code is None:
        why = f"it took longer than {SECONDS:.0f} s"
    elif ended.code != 0:
        memory = "MemoryError" in ended.complaint or ended.code < 0
        why = f"it needs more than {MEMORY >> 30} GiB of memory" if memory else ended.complaint or "it ended early"
    else:
        row: dict[str, Any] = orjson.loads(ended.out)
        if "failed" not in row:
            return row
        why = row["failed"]
    finding = Finding(severity="error", check="stopped", message=f"not evaluated: {why[:500]}")
    return {"problems": [finding.model_dump()], "stopped": why[:500]}


def write_rules(files: Mapping[str, str], folder: Path) -> None:
    """Write the files into ``folder``. Raises Problem 422 for names that exclude each other, OSError."""
    for name, text in files.items():
        path = below(folder, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="")
        except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            raise Problem(422, f"{name}: a file and a folder of the same name", where="rules") from error
        except UnicodeEncodeError as error:
            raise Problem(422, f"{name}: not a text in UTF-8", where="rules") from error


def rules_in(folder: Path) -> list[RuleFile]:
    """What ``write_rules`` wrote there, by path; none where there is no such folder. Raises OSError."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [RuleFile(path=str(path.relative_to(folder)), text=path.read_bytes().decode()) for path in files]


def below(folder: Path, path: str) -> Path:
    """The place of the rule file ``path`` of a request. Raises Problem 422."""
    try:
        return within(folder, path)
    except ValueError as error:
        raise Problem(422, f"not a path below the rules' folder: {error}", where="rules") from error


def is_rule(path: str) -> bool:
    """Whether the file holds rules, not the test events of some."""
    return not path.endswith((".test.yml", ".test.yaml"))


def said(finding: Finding) -> str:
    """A finding as one line, with its place."""
    place = ":".join(str(part) for part in (finding.path, finding.line, finding.column) if part)
    return f"{place}: {finding.message}" if place else finding.message


def _files(rule: RuleInput) -> dict[str, str]:
    files = {f"{STEM}{ENDINGS[rule.kind]}": rule.text}
    return {**files, f"{STEM}.test.yml": rule.tests} if rule.tests else files
