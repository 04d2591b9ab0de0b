"""Names to which a text gives a value, in the usual forms: ``name=value``, ``name: value`` (of YAML also below it),
``x[name]=value``, ``"name":"value"``, ``<name type="t">value</name>``, ``<Data Name="name">value``; and names that
are values themselves: ``{"key":"name","value":"value"}``. Pure; linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vedette.decode.entities import MAX_KEPT, NOTHING

_CLOSE = r"""["'\\\[\]]*+(?:\d{1,4}\]++(?=\s*+=))?+"""
"""Quotes and brackets that end a name; a number of a form's list too."""
_OPEN = (
    r"""(?:[ \t]*+(?:[|>][-+0-9]{0,2}[ \t]*+)?+(?:#[ \t][^\n]{0,80}+)?+\r?+\n(?:\s*+-(?=\s))*+)?+"""
    r"""\s*+(?P<quotes>["'\\]*+)(?P<cdata><!\[CDATA\[\s*+["'\\]*+)?+"""
)
"""What stands between the sign and a value: in YAML a block's mark, a comment and the dashes of a list, then quotes, of
XML the begin of CDATA."""
_BREAKS = r"[\\#](?:(?<=\\)\\{0,7}[nrt]|(?<=#)01[125])"
"""Ends of lines, and tabs, as JSON and rsyslog write them: they would be read as the first letters of a name."""
_NAMES = re.compile(
    rf"""(?<![\w.@-])-*+(?P<name>[\w.@-]{{1,200}})(?P<close>{_CLOSE})\s*+"""
    rf"""(?P<by>=>|[:>]|(?<=\s)=|=(?!\s++[\w.@-]{{1,200}}+=(?!=))){_OPEN}"""
)
"""A name, its sign and what stands before the value. ``a= b=c`` gives ``a`` no value."""
_NAME = re.compile(rf"(?<![\w.@-])[\w.@-]{{1,200}}+(?={_CLOSE}\s*+[:=>])")
_BREAK = re.compile(_BREAKS)
"""A line's end or a tab that is escaped, once or several times."""
_ELEMENT = re.compile(rf"<(?:[\w.-]{{1,200}}+:)?+(?P<name>[\w.-]{{1,200}}+)\s[^<>]++(?<!/)>{_OPEN}")
"""An element with attributes."""
_PAIR = re.compile(
    r"""[kKnN](?i:(?<=k)ey|(?<=n)ame)["'\\]*+\s*+[:=>]\s*+["'\\]*+(?P<name>[\w.@-]{1,200}+)["'\\]*+"""
    r"""(?:<\\*+/[\w.:-]{1,200}+>)?+"""
    r"""(?:[\s,;&|]*+["'\\]*+[\w.@-]{1,40}+["'\\]*+\s*+[:=]\s*+["'\\]*+[^\s"'\\,;&|<>{}()]{0,64}+["'\\]*+){0,3}?"""
    r"""[\s,;&|()<]*+["'\\]*+[\w.@:-]{0,40}(?i:values?)["'\\]*+(?:\s*+[:=>]|\s[^<>=]{1,40}+=[^<>]{1,200}+>)"""
    rf"""{_OPEN}"""
)
"""A name that is the value of a key or name, up to three other pairs, and a value."""
_HIDDEN = re.compile(
    r"""[\\%&02-7](?:(?<=\\)(?:u00|x)(?:[2-7]|0[9adAD])|(?<=%)(?:[2-7][0-9a-fA-F]|0[9adAD])|(?<=&)[#a-z]"""
    r"""|(?<=[02-7])(?<![0-9A-Za-z].)(?=[0-9A-Fa-f](?:[02-7][0-9A-Fa-f])*?3[ADEade])"""
    r"""[0-9A-Fa-f](?:[02-7][0-9A-Fa-f]){3,}(?![0-9A-Za-z]))"""
)
"""A sign of a name in an escaped form: JSON's, of URLs, of XML; or text in hex with ``:``, ``=`` or ``>`` in it."""
_WORD = re.compile(r"""[^\s"'\\,;&<>{}()]{0,64}""")
_CDATA = re.compile(r"(?s)(?:(?!\]\]>).){0,64}")
_QUOTED = re.compile(r"""[^"'\\]{0,64}""")
"""More of a value nobody asks for: where it is as long as the text, all of them are no longer linear in that."""


class Assigned(NamedTuple):
    """``value``: as far as it is one word or stands in quotes, 64 characters at most; ``whole``: it is an object or a
    list; ``key``: the name is one of an object, as JSON and its like write it."""

    name: str
    value: str
    whole: bool
    key: bool


def hides(text: str) -> bool:
    """Whether the text may have a name, or a sign around it, in an escaped form (``escapes.py``)."""
    return _HIDDEN.search(text) is not None


def broken(text: str) -> str:
    """Return ``text`` in lines where it has their ends in an escaped form."""
    return _BREAK.sub("\n", text)


def names(text: str) -> set[str]:
    """The names that ``assigned`` may find in ``text`` and in ``broken(text)``, and more: what else it costs is spared
    where none of them matters."""
    forms = dict.fromkeys((text, broken(text)))
    return {name.lstrip("-") for form in forms for name in (*_NAME.findall(form), *(at["name"] for at in _apart(form)))}


def assigned(text: str) -> Iterator[Assigned]:
    """Each place of ``text`` where a name has a value; empty ones too."""
    for match in _NAMES.finditer(text):
        if match["by"] == ">" and text[max(0, match.start() - 2) : match.start()] == "</":
            continue  # the end of an element
        yield _assigned(match, key=match["close"].strip("[]0123456789") != "" and match["by"] in (":", "=>"))
    for match in _apart(text):
        yield _assigned(match, key=False)


def _apart(text: str) -> Iterator[re.Match[str]]:
    yield from _ELEMENT.finditer(text)
    if "value" in text.lower():
        yield from _PAIR.finditer(text)


def _assigned(match: re.Match[str], *, key: bool) -> Assigned:
    text, at = match.string, match.end()
    quoted = match["quotes"].strip("\\") in ("'", '"')
    value = (_CDATA if match["cdata"] else _QUOTED if quoted else _WORD).match(text, at)
    return Assigned(match["name"], value[0].strip() if value else "", text[at : at + 1] in ("{", "["), key)


def labelled(leaves: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Of an event's leaves, by their dotted names, those that one before them names, with that name, if no
    more than three stand between: ``{"Name": "password", "Value": {"a": 1, "b": 2}}`` gives ``password`` twice."""
    label = parent = ""
    near = 0
    for name, text in leaves:
        near -= 1
        if near < 0 or not name.startswith(parent):
            label = ""
        if label and name[len(parent) :].partition(".")[0].lower().endswith(("value", "values")):
            near += 1
            yield label, text
        elif name.lower().endswith(("key", "name")):
            parent = name[: name.rfind(".") + 1]
            label, near = text if len(text) <= MAX_KEPT else "", 4


def says(value: str) -> bool:
    """Whether a value says something: neither nothing nor a single sign."""
    return (len(value) > 1 or value.isalnum()) and value.strip() not in NOTHING
