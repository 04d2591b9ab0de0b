"""Sigma filters as they are proposed to the authors of rules: their text, their file, and all of them as a patch."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence

NAMESPACE = uuid.UUID("5d0c3c0e-6a0f-5b55-9f2f-0a3c1c6f7d11")
"""Of the filters' ids: the same proposal has the same id each time."""

_ODD = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")

_DIGEST = re.compile(r"-[0-9a-f]{16}\Z")
"""The end of a name that says another id than it shows."""


def filter_text(
    rule_id: str, source: Mapping[str, str | None], values: Mapping[str, Sequence[str]], *, key: str, title: str,
    description: str,
) -> str:  # fmt: skip
    """A Sigma filter in YAML that leaves events out of the rule in which every field of ``values`` has one of its
    values. ``key`` makes its id. Texts are JSON's, which are YAML's too."""
    lines = [
        f"title: {_text(title)}",
        f"id: {uuid.uuid5(NAMESPACE, key)}",
        f"description: {_text(description)}",
        "logsource:",
        *(f"    {name}: {_text(value)}" for name, value in source.items() if value),
        "filter:",
        f"    rules: [{_text(rule_id)}]",
        "    selection:",
        *selection(values, "        "),
        "    condition: not selection",
    ]
    return "\n".join(lines) + "\n"


def selection(values: Mapping[str, Sequence[str]], indent: str) -> list[str]:
    """The lines of a search identifier."""
    lines = []
    for name, some in values.items():
        texts = ", ".join(_text(_plain(value)) for value in some)
        lines.append(f"{indent}{_text(name)}: {texts if len(some) == 1 else f'[{texts}]'}")
    return lines


def _plain(value: str) -> str:
    """``value`` as a Sigma value that means itself: wildcards and their escape escaped."""
    return value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")


def _text(text: str) -> str:
    """``text`` in quotes on one line; what YAML takes for the end of one, or refuses, is escaped."""
    return _ODD.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def file_name(rule_id: str) -> str:
    """Name of the file that holds the filter for a rule, of bounded length; no other rule's."""
    from vedette.system.within import is_name

    if is_name(rule_id) and not _DIGEST.search(rule_id):
        return f"filter-{rule_id}.yml"
    digest = hashlib.sha256(rule_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"filter-{re.sub('[^A-Za-z0-9_-]', '_', rule_id)[:64]}-{digest[:16]}.yml"


def added(name: str, text: str) -> str:
    """``text`` as a new file ``name`` in a unified diff. Without git's own header the name counts from the folder in
    which it is applied, for ``git apply`` as for ``patch -p1``."""
    lines = text.rstrip("\n").split("\n")
    head = ["--- /dev/null", f"+++ b/{name}", f"@@ -0,0 +1,{len(lines)} @@"]
    return "\n".join([*head, *(f"+{line}" for line in lines)]) + "\n"
