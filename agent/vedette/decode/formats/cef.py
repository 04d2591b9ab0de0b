r"""Common Event Format: ``CEF:0|VENDOR|PRODUCT|VERSION|CLASS|NAME|SEVERITY|KEY=VALUE KEY=VALUE``.

ArcSight Common Event Format, implementation standard 26. In the header ``\|`` and ``\\`` are escapes; in the extension
``\=``, ``\\``, ``\|``, ``\n`` and ``\r``. A value ends before the next ``KEY=`` or at the end, without blanks. An
extension key is a field under its short name, its full name (``CEF_NAMES``) and, where rules have one, its generic
name (``src_ip``). Undone escapes are all of the kind that the prefilter tolerates: a backslash before the character, or
a line break, of which no literal is made.
"""

from __future__ import annotations

import re

from vedette.decode.formats.base import Fields
from vedette.decode.formats.table import CEF_GENERIC_NAMES, CEF_HEADER, CEF_NAMES

_START = re.compile(r" ?(?:(?:\S{1,255} )?(\S{1,255}) )?CEF: ?(\d{1,2})\|")
_PART = re.compile(r"((?:[^\\|]++|\\.)*+)\|", re.S)
_LAST_PART = re.compile(r"((?:[^\\|]++|\\.)*+)(?:\||$)", re.S)
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z_]\w{0,127}(?:\.[^\s=\\|]{1,127})?(?:\[\d{1,4}\])?)=")
_ESCAPE = re.compile(r"\\([\\|=nr])")
_PLAIN = {"n": "\n", "r": "\r"}

MAX_KEYS = 512


def _undo(text: str) -> str:
    return _ESCAPE.sub(lambda m: _PLAIN.get(m[1], m[1]), text) if "\\" in text else text


def read(message: str) -> Fields:
    """The fields of one message; empty when it has not all seven parts of the header."""
    start = _START.match(message)
    if start is None:
        return {}
    fields: Fields = {"cefVersion": start[2]}
    if start[1]:
        fields["hostname"] = start[1]
    at = start.end()
    for name in CEF_HEADER:
        part = (_LAST_PART if name == "severity" else _PART).match(message, at)
        if part is None:
            return {}
        fields[name] = _undo(part[1])
        at = part.end()
    fields["cef_severity"] = fields["severity"]
    fields |= extension(message[at:].rstrip("\r\n\0"))
    return fields


def extension(text: str) -> Fields:
    """The keys of an extension, and their other names."""
    keys = []
    for key in _KEY.finditer(text):
        keys.append(key)
        if len(keys) == MAX_KEYS:
            break
    fields: Fields = {}
    for i, key in enumerate(keys):
        end = keys[i + 1].start() if i + 1 < len(keys) else len(text)
        fields[key[1]] = _undo(text[key.end() : end].strip())
    for table in (CEF_NAMES, CEF_GENERIC_NAMES):
        for name in list(fields):
            if (other := table.get(name)) is not None and fields[name] != "":
                fields.setdefault(other, fields[name])
    return fields
