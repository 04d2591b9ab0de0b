"""One change to ``fleet.toml``: which bundle a group runs. The text around it stays as people wrote it. Pure.

The change is made in the text and then proved: what the new text means is what the old one means but for this bundle.
"""

from __future__ import annotations

import copy
import re
import tomllib
from typing import Any

DEFAULT = "default"
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
        try:
            named = tomllib.loads("".join(lines[start:end]))["group"][0].get("name")
        except (tomllib.TOMLDecodeError, KeyError, IndexError):
            continue
        if named != group:
            continue
        for made in (_replaced(lines[start:end], ruleset, path), _added(lines[start:end], ruleset, path)):
            new = "".join([*lines[:start], *made, *lines[end:]])
            try:
                if tomllib.loads(new) == wanted:
                    return new
            except tomllib.TOMLDecodeError:
                continue
    raise ValueError(f"the bundle of group {group} cannot be changed in the text: write {_line(ruleset, path)} there")


def _meant(text: str, group: str, ruleset: str, path: str) -> dict[str, Any]:
    document = copy.deepcopy(tomllib.loads(text))
    found = [one for one in document.get("group", []) if isinstance(one, dict) and one.get("name") == group]
    if len(found) != 1:
        raise ValueError(f"{len(found) or 'no'} groups are called {group}")
    named = found[0].get("bundles", {})
    if ruleset == DEFAULT and DEFAULT not in named:
        found[0]["bundle"] = path
    else:
        found[0]["bundles"] = {**named, ruleset: path}
    return document


def _blocks(lines: list[str]) -> list[tuple[int, int]]:
    """Where each [[group]] with its tables begins and ends, by lines."""
    starts = [i for i, line in enumerate(lines) if _GROUP.match(line)]
    found = []
    for start in starts:
        end = start + 1
        while end < len(lines) and (not _TABLE.match(lines[end]) or _BELOW.match(lines[end])):
            end += 1
        found.append((start, end))
    return found


def _line(ruleset: str, path: str) -> str:
    return f'bundle = "{path}"' if ruleset == DEFAULT else f'bundles = {{ {ruleset} = "{path}" }}'


def _replaced(block: list[str], ruleset: str, path: str) -> list[str]:
    key = rf"(?:{re.escape(ruleset)}|\"{re.escape(ruleset)}\")"
    forms = [re.compile(rf"^(\s*bundles\s*=\s*\{{.*?[{{,\s]{key}\s*=\s*)(?:\"[^\"]*\"|'[^']*')")]
    if ruleset == DEFAULT:
        forms.insert(0, re.compile(r"^(\s*bundle\s*=\s*)(?:\"[^\"]*\"|'[^']*')"))
    if any(re.match(r"\s*\[\s*group\s*\.\s*bundles\s*\]", line) for line in block):
        forms.append(re.compile(rf"^(\s*{key}\s*=\s*)(?:\"[^\"]*\"|'[^']*')"))
    for form in forms:
        made = [form.sub(lambda match: f'{match[1]}"{path}"', line) for line in block]
        if made != block:
            return made
    return block


def _added(block: list[str], ruleset: str, path: str) -> list[str]:
    """As the line after the name."""
    at = next((i for i, line in enumerate(block) if re.match(r"\s*name\s*=", line)), 0)
    new = re.compile(r"^(\s*bundles\s*=\s*\{)")
    if ruleset != DEFAULT and any(new.match(line) for line in block):
        return [new.sub(lambda match: f'{match[1]} {ruleset} = "{path}",', line) for line in block]
    ended = block[at] if block[at].endswith("\n") else block[at] + "\n"
    return [*block[:at], ended, _line(ruleset, path) + "\n", *block[at + 1 :]]
