"""Another bundle in the text of ``fleet.toml``: all else stays as people wrote it.

What the new text means is what the old one means but for this bundle; where that cannot be had by changing a line of
the group, or adding one, nothing is changed.
"""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from typing import Any

DEFAULT = "default"
"""The rule set of a group's ``bundle``."""
_GROUP = re.compile(r"\s*\[\[\s*group\s*\]\]")
_TABLE = re.compile(r"\s*\[")
_BELOW = re.compile(r"\s*\[\s*group\s*\.")


def with_bundle(text: str, group: str, ruleset: str, path: str) -> str:
    """``text`` with the bundle at ``path`` for the rule set of a group. Raises ValueError when it must be done by
    hand."""
    wanted = _meant(text, group, ruleset, path)
    if tomllib.loads(text) == wanted:
        return text
    lines = text.splitlines(keepends=True)
    for start, end in _blocks(lines):
        if group not in "".join(lines[start:end]):
            continue
        # Only the change of the right group's block gives what is wanted.
        for block in (_replaced(lines[start:end], ruleset, path), _added(lines[start:end], ruleset, path)):
            changed = "".join([*lines[:start], *block, *lines[end:]])
            with suppress(tomllib.TOMLDecodeError):
                if tomllib.loads(changed) == wanted:
                    return changed
    raise ValueError(
        f"the bundle of group {group} cannot be changed in the text: write {bundle_line(ruleset, path)} there"
    )


def _meant(text: str, group: str, ruleset: str, path: str) -> dict[str, Any]:
    """The document that ``text`` becomes. Raises ValueError."""
    document = tomllib.loads(text)
    groups = [table for table in document.get("group", []) if isinstance(table, dict) and table.get("name") == group]
    if len(groups) != 1:
        raise ValueError(f"{len(groups) or 'no'} groups are called {group}")
    bundles = groups[0].get("bundles", {})
    if ruleset == DEFAULT and DEFAULT not in bundles:
        groups[0]["bundle"] = path
    else:
        groups[0]["bundles"] = {**bundles, ruleset: path}
    return document


def _blocks(lines: list[str]) -> list[tuple[int, int]]:
    """Begin and end of each [[group]] with its tables, by lines."""
    blocks = []
    for start in (number for number, line in enumerate(lines) if _GROUP.match(line)):
        end = start + 1
        while end < len(lines) and (not _TABLE.match(lines[end]) or _BELOW.match(lines[end])):
            end += 1
        blocks.append((start, end))
    return blocks


def bundle_line(ruleset: str, path: str) -> str:
    """The line of a group that names it."""
    return f'bundle = "{path}"' if ruleset == DEFAULT else f'bundles = {{ {ruleset} = "{path}" }}'


def _replaced(block: list[str], ruleset: str, path: str) -> list[str]:
    key = rf"(?:{re.escape(ruleset)}|\"{re.escape(ruleset)}\")"
    forms = [re.compile(rf"^(\s*bundles\s*=\s*\{{.*?[{{,\s]{key}\s*=\s*)(?:\"[^\"]*\"|'[^']*')")]
    if ruleset == DEFAULT:
        forms.insert(0, re.compile(r"^(\s*bundle\s*=\s*)(?:\"[^\"]*\"|'[^']*')"))
    if any(re.match(r"\s*\[\s*group\s*\.\s*bundles\s*\]", line) for line in block):
        forms.append(re.compile(rf"^(\s*{key}\s*=\s*)(?:\"[^\"]*\"|'[^']*')"))
    for form in forms:
        replaced = [form.sub(lambda match: f'{match[1]}"{path}"', line) for line in block]
        if replaced != block:
            return replaced
    return block


def _added(block: list[str], ruleset: str, path: str) -> list[str]:
    """The block with a line after the name."""
    at = next((i for i, line in enumerate(block) if re.match(r"\s*name\s*=", line)), 0)
    new = re.compile(r"^(\s*bundles\s*=\s*\{)")
    if ruleset != DEFAULT and any(new.match(line) for line in block):
        return [new.sub(lambda match: f'{match[1]} {ruleset} = "{path}",', line) for line in block]
    ended = block[at] if block[at].endswith("\n") else block[at] + "\n"
    return [*block[:at], ended, bundle_line(ruleset, path) + "\n", *block[at + 1 :]]
