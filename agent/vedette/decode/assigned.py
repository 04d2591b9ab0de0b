"""Where a text gives names their values: ``FORMS`` has each way to write it, and where a value of that kind ends.

``name=value``, ``name: value`` (of YAML also below it), ``name -> value``, ``x[name]=value``, ``"name":"value"``,
``<name type="t">value</name>``, ``<Data Name="name">value``, parts of HTML's forms (RFC 7578), tables by tabs; and
names that are values themselves: ``{"key":"name","value":"value"}``. In doubt a value goes on: a bare one up to the
next name of the same form, the end of its line or of the quoted text around it, others to the end of the text. Pure;
linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from vedette.decode.entities import MAX_KEPT, NOTHING
from vedette.decode.escapes import View, undone

_N = r"[\w.@-]{1,200}"
_SIGN = "(?:[-=~]{1,2}(?=>)|={1,2}(?==)|:(?=[:=]))?[:=>]"
"""``: = >``, and others of the same meaning: ``:= == -> => ::``."""
_CLOSE = r"""["'`\\\[\]]*+(?:\d{1,4}\]++(?=\s*+=))?+"""
"""Quotes and brackets that end a name; a number of a form's list too."""
_OPEN = (
    r"""(?:[ \t]*+(?:[|>][-+0-9]{0,2}[ \t]*+)?+(?:#[ \t][^\n]{0,80}+)?+\r?+\n(?:\s*+-(?=\s))*+)?+"""
    r"""\s*+(?:<!\[CDATA\[\s*+)?+"""
)
"""What stands between the sign and a value: in YAML a block's mark, a comment and the dashes of a list, of XML the
begin of CDATA."""
_BREAKS = re.compile(r"[\\#](?:(?<=\\)\\{0,7}[nrt]|(?<=#)01[125])")
_BROKEN = {"n": "\n", "2": "\n", "r": "\r", "5": "\r", "t": "\t", "1": "\t"}
"""By their last sign ends of lines, and tabs, as JSON and rsyslog write them, once or several times: they would be read
as the first letters of a name."""
_NAMES = re.compile(
    rf"""(?<![\w.@-])-*+(?P<name>{_N})(?P<close>{_CLOSE})\s*+"""
    rf"""(?P<by>{_SIGN}){_OPEN}"""
)
"""A name, its sign and what stands before the value."""
_NAME = re.compile(rf"(?<![\w.@-]){_N}+(?={_CLOSE}\s*+(?:[:=>]|[-~]{{1,2}}>))")
_ELEMENT = re.compile(rf"<(?:[\w.-]{{1,200}}+:)?+(?P<name>[\w.-]{{1,200}}+)\s[^<>]++(?<!/)(?P<by>>){_OPEN}")
"""An element with attributes."""
_PAIR = re.compile(
    r"""[kKnN](?i:(?<=k)ey|(?<=n)ame)["'\\]*+\s*+[:=>]\s*+["'\\]*+(?P<name>[\w.@-]{1,200}+)["'\\]*+"""
    r"""(?:<\\*+/[\w.:-]{1,200}+>)?+"""
    r"""(?:[\s,;&|]*+["'\\]*+[\w.@-]{1,40}+["'\\]*+\s*+[:=]\s*+["'\\]*+[^\s"'\\,;&|<>{}()]{0,64}+["'\\]*+){0,3}?"""
    r"""[\s,;&|()<]*+["'\\]*+[\w.@:-]{0,40}(?i:values?)["'\\]*+(?P<by>\s*+[:=>]|\s[^<>=]{1,40}+=[^<>]{1,200}+>)"""
    rf"""{_OPEN}"""
)
"""A name that is the value of a key or name, up to three other pairs, and a value."""
_PART = re.compile(
    rf"""(?i:form-data);[^\r\n]{{0,200}}?\bname=["'\\]*+(?:[\w.@-]{{1,80}}\[)?+(?P<name>{_N}+)[^\r\n]{{0,300}}+"""
    r"""(?:\r?\n[^\r\n]{1,300}+){0,8}(?P<by>\r?\n)\r?\n"""
)
"""The head of a form's part."""
_CELL = re.compile(rf"""(?<![\w.@-])(?P<name>{_N}+)["'\\]*+ *+(?P<by>\t(?!\s*+{_SIGN})|(?<=\S)\r?\n)""")
"""A name before a tab; before a line's end too, where it is the last column's."""
_HIDDEN = re.compile(
    r"""[\\%&02-7](?:(?<=\\)(?:u00|x)(?:[2-7]|0[9adAD])|(?<=%)(?:[2-7][0-9a-fA-F]|0[9adAD])|(?<=&)[#a-z]"""
    r"""|(?<=[02-7])(?<![0-9A-Za-z].)(?=[0-9A-Fa-f](?:[02-7][0-9A-Fa-f])*?3[ADEade])"""
    r"""[0-9A-Fa-f](?:[02-7][0-9A-Fa-f]){3,}(?![0-9A-Za-z]))"""
)
"""A sign of a name in an escaped form: JSON's, of URLs, of XML; or text in hex with ``:``, ``=`` or ``>`` in it."""
_QUOTE = re.compile(r"""(?<!\\)(\\*+)(["'])""")
_BEHIND = re.compile(r"""["'\\]*+(?:[\s,;&|)}\]>]|/>|</|[.:!?](?!\S)|\Z)""")
"""What may stand behind a closing quote; else the value goes on."""
_TEXTS = re.compile(r"""(?<![^\s:=,;\[{(])"(?:[^"\\]|\\.)*+"(?=[\s:=,;)}\]]|\Z)""", re.S)
"""Texts in quotes."""
_BEGIN = re.compile(r"<(?:[\w.-]{1,200}+:)?+([\w.-]{1,200}+)[^<>]*+\Z")
_END = re.compile(r"<\\*+/(?:[\w.-]{1,200}+:)?+([\w.-]{1,200}+)")
_CDATA = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)", re.S)
_END_OF_PART = re.compile(r"\r?\n--[^\r\n]{1,80}(?:\r?\n(?i:content-)|(?<=--))")
_SEPARATORS = (",", ";", "|", "&")
_LINE = re.compile("\n")
_NEAR = 1024
"""Characters of an element's begin, or of what stands before a name, that are looked at."""


class Assigned(NamedTuple):
    """The value of ``name``, ``original[start:end]``, which reads ``value``; ``whole``: it is an object or a list;
    ``key``: the name is one of an object, as JSON and its like write it."""

    name: str
    value: str
    start: int
    end: int
    whole: bool
    key: bool


def hides(text: str) -> bool:
    """Whether the text may have a name, or a sign around it, in an escaped form (``escapes.py``)."""
    return _HIDDEN.search(text) is not None


def broken(view: View) -> View | None:
    """Return ``view`` in lines and columns where it has their ends in an escaped form; None: it has none."""
    return undone(view, _BREAKS, _break)


def _break(match: re.Match[str]) -> str:
    return _BROKEN[match[0][-1]]


def names(text: str) -> tuple[set[str], set[str]]:
    """The names that ``assigned`` may find in ``text`` and in what ``broken`` makes of it, and more: what else it costs
    is spared where none of them matters."""
    lines = _BREAKS.sub(_break, text)
    return _names(text), _names(lines) if lines != text else set()


def _names(text: str) -> set[str]:
    lower = text.lower()
    others = (match["name"] for form in FORMS[1:] if form.needs.search(lower) for match in form.pattern.finditer(text))
    return {name.strip("-") for name in (*_NAME.findall(text), *others)}


def assigned(original: str, view: View, wanted: Callable[[str], bool]) -> Iterator[Assigned]:
    """Each place where ``view``, which is one of ``original``, gives a name that is ``wanted`` a value that is not
    empty."""
    text, lower = _Text(original, view), view.text.lower()
    for form in FORMS:
        if form.needs.search(lower) is None:
            continue
        for match in form.pattern.finditer(view.text):
            name = match["name"].strip("-")
            if not wanted(name):
                continue
            start, end = form.value(text, match)
            if start >= end:
                continue
            sign = view.span(*match.span("by"))[0]
            first, last = view.span(start, end)
            if first < (around := text.around(sign)) < last:
                last, end = around, around if view.starts is None else bisect_left(view.starts, around)
            key = form.pattern is _NAMES and match["by"] in (":", "=>") and match["close"].strip("[]0123456789") != ""
            yield Assigned(name, view.text[start:end], first, last, view.text[start] in ("{", "["), key)


class _Text:
    """A view of a text, and where in it values end."""

    def __init__(self, original: str, view: View) -> None:
        self.original = original
        self.view = view
        self.text = view.text
        self._next = dict[tuple[str, bool, bool], Mapping[int, int]]()
        self._closing = dict[tuple[str, str], tuple[list[int], list[int]]]()

    def pair(self, match: re.Match[str]) -> tuple[int, int]:
        """The value behind a name and its sign."""
        return self._value(match, self._bare)

    def value(self, match: re.Match[str]) -> tuple[int, int]:
        """The value that stands as such."""
        return self._value(match, lambda _: len(self.text))

    def element(self, match: re.Match[str]) -> tuple[int, int]:
        return match.end(), self._end_of(match["name"], match)

    def part(self, match: re.Match[str]) -> tuple[int, int]:
        return match.end(), self._behind(self._parts, match.end())

    def below(self, match: re.Match[str]) -> tuple[int, int]:
        """All behind a cell: rows may follow."""
        last = match["by"] != "\t" and "\t" not in self.text[max(0, match.start() - 3) : match.start()]
        return match.end(), match.end() if last else len(self.text)

    def around(self, at: int) -> int:
        """Where in the original the quoted text ends that holds ``original[at]``."""
        number = bisect_left(self._texts, (at, 0)) - 1
        end = self._texts[number][1] - 1 if number >= 0 else -1
        return end if end > at else len(self.original)

    def _value(self, match: re.Match[str], bare: Callable[[re.Match[str]], int]) -> tuple[int, int]:
        """``bare`` tells where a bare value ends, if not with its line."""
        text, at, by = self.text, match.end(), match.end("by")
        if text[by - 1] == ">":
            if text[max(0, match.start() - 2) : match.start()] == "</":
                return at, at  # the end of an element
            begin = text.rfind("<", max(0, by - _NEAR), by)
            if begin >= 0 and (element := _BEGIN.match(text, begin, by - 1)) is not None:
                return at, self._end_of(element[1], match)
        sign = text[at : at + 1]
        if by < len(text) and self._written(by, by + 1)[0] == "%" != self._written(by - 1, by)[0]:
            at, sign = by, ""  # in an address it means nothing
        if sign in ("'", '"', "\\") and (quote := _QUOTE.match(text, at)) is not None:
            at = quote.end()
            end = self._closed(quote)
            if end < len(text) and _BEHIND.match(text, end + len(quote[0])) is None:
                end = self._behind(self._lines, end)
            return at, end
        if "\n" in text[by:at] or sign in ("{", "["):
            return at, len(text)
        end = min(bare(match), self._behind(self._lines, at))
        return at, at + len(text[at:end].rstrip())

    def _closed(self, quote: re.Match[str]) -> int:
        """Where what ``quote`` begins ends: at a sign that is escaped as often, and not doubled. Behind backslashes a
        single one may end or not, since JSON has it as it stands."""
        form = quote[0], self._written(*quote.span())
        if form not in self._closing:
            self._closing[form] = self._closing_of(*form)
        places, ends = self._closing[form]
        return ends[bisect_left(places, quote.end())]

    def _closing_of(self, sign: str, written: str) -> tuple[list[int], list[int]]:
        """The places of signs that may end what such a one begins, and where it ends from each on."""
        slashes, places = len(sign) - 1, list[int]()
        for match in _QUOTE.finditer(self.text):
            first, more = match.end() - len(sign), len(match[1]) - slashes
            if match[2] != sign[-1] or more % (2 * slashes + 2) or (more and sign[-1] == "'"):
                continue
            if self._written(first, match.end()) == written:
                places.append(first)
        ends = [len(self.text)] * (len(places) + 2)
        for i in range(len(places) - 1, -1, -1):
            last = places[i] + len(sign)
            doubled = 1 + (places[i + 1 : i + 2] == [last])
            ends[i] = ends[i + doubled] if self.text.startswith(sign, last) else places[i]
        return places, ends

    def _bare(self, match: re.Match[str]) -> int:
        """Where the next name of the same form stands, before which the same separator stands: there a bare value ends.
        ``a= b=c`` gives ``a`` no value."""
        form = self._form(match)
        if form not in self._next:
            self._next[form] = self._ends_of(form)
        return self._next[form][match.start()]

    def _form(self, match: re.Match[str]) -> tuple[str, bool, bool]:
        """The sign, whether the name is in quotes, and whether a blank is before the sign (of ``:`` behind it)."""
        by = match["by"]
        written = by if self.view.starts is None else self._written(*match.span("by"))
        sign = next((by[:length] for length in (3, 2, 1) if written.startswith(by[:length])), written)
        if match["close"].strip("[]0123456789"):
            return sign, True, False
        apart = match.end("by") < match.end() if by[-1] == ":" else match.start("by") > match.end("close")
        return "-" * (by == ">" and match["name"][-1] == "-") + sign, False, apart

    @cached_property
    def _names(self) -> Mapping[tuple[str, bool, bool], list[re.Match[str]]]:
        names = defaultdict[tuple[str, bool, bool], list[re.Match[str]]](list)
        for match in _NAMES.finditer(self.text):
            names[self._form(match)].append(match)
        return names

    def _ends_of(self, form: tuple[str, bool, bool]) -> Mapping[int, int]:
        """``_bare`` of all names of a form."""
        sign, quoted, apart = form
        nearest, last, ends = dict[str, int](), dict[str, int](), dict[int, int]()
        begin = len(self.text)
        for match in reversed(self._names[form]):
            lead = self.text[max(0, match.start() - _NEAR) : match.start()].rstrip("\"'[")
            mark = lead.rstrip()[-1:].replace("?", "&")
            ways = [mark] if mark in _SEPARATORS else []
            if mark not in (",", ";") or lead[-1:].isspace():
                ways += ["blank", *("&" * (sign == "="))]
            if quoted:
                ways += ["quoted"]
            if not apart or begin > match.end():
                nearest |= last
            ends[match.start()] = min((nearest[way] for way in ways if way in nearest), default=len(self.text))
            nearest |= last
            last = {}
            begin = match.start()
            if any(map(str.isalpha, match["name"])):
                at = begin - min(begin, _NEAR) + len(lead)
                last["quoted"] = at
                if mark in _SEPARATORS:
                    last[mark] = at - len(lead) + len(lead.rstrip()) - 1
                if lead[-1:].isspace() and not lead[:-1].endswith("\\"):
                    last["blank"] = at
        return ends

    def _written(self, start: int, end: int) -> str:
        """How ``text[start:end]`` stands in the original: an escaped sign ends nothing that a plain one has begun."""
        first, last = self.view.span(start, end)
        return self.original[first:last]

    @cached_property
    def _lines(self) -> list[int]:
        return [match.start() for match in _LINE.finditer(self.text) if self._written(*match.span()) == "\n"]

    @cached_property
    def _parts(self) -> list[int]:
        return [match.start() for match in _END_OF_PART.finditer(self.text)]

    def _end_of(self, name: str, match: re.Match[str]) -> int:
        """Where an element ends: outside of CDATA, or in the CDATA in which its begin stands."""
        sections = {-1, self._section(match.start("by"))}
        return min(self._behind(self._ends[name.lower(), section], match.end()) for section in sections)

    @cached_property
    def _ends(self) -> Mapping[tuple[str, int], list[int]]:
        """Of elements, by their names and the CDATA that they are in."""
        ends = defaultdict[tuple[str, int], list[int]](list)
        for match in _END.finditer(self.text):
            ends[match[1].lower(), self._section(match.start())].append(match.start())
        return ends

    def _section(self, at: int) -> int:
        """The number of the CDATA that holds ``text[at]``; -1: none."""
        number = bisect_left(self._sections, (at, 0)) - 1
        return number if number >= 0 and at < self._sections[number][1] else -1

    @cached_property
    def _sections(self) -> list[tuple[int, int]]:
        return [match.span() for match in _CDATA.finditer(self.text)]

    @cached_property
    def _texts(self) -> list[tuple[int, int]]:
        return [match.span() for match in _TEXTS.finditer(self.original)]

    def _behind(self, places: list[int], at: int) -> int:
        """The first of ``places`` from ``at`` on; else the end."""
        number = bisect_left(places, at)
        return places[number] if number < len(places) else len(self.text)


class Form(NamedTuple):
    """``needs``: what a text in lower case has in which this form is. ``pattern`` finds the ``name``, the sign or what
    stands as one (``by``), and all before the value; ``value`` tells where that stands."""

    needs: re.Pattern[str]
    pattern: re.Pattern[str]
    value: Callable[[_Text, re.Match[str]], tuple[int, int]]


FORMS = (
    Form(re.compile(""), _NAMES, _Text.pair),
    Form(re.compile("<"), _ELEMENT, _Text.element),
    Form(re.compile("value"), _PAIR, _Text.value),
    Form(re.compile("form-data"), _PART, _Text.part),
    Form(re.compile(r"""\t(?<=[\w.@"'\\ -]\t)"""), _CELL, _Text.below),
)


def labelled(leaves: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Of an event's leaves, by their dotted names, those that one before them names, with that name, if no
    more than three stand between: ``{"Name": "password", "Value": {"a": 1, "b": 2}}`` gives ``password`` twice; and
    those that a label names, as CEF's ``cs1Label``."""
    label = parent = ""
    near = 0
    leaves = [*leaves]
    values = dict(leaves)
    for name, text in leaves:
        if name.lower().endswith("label") and len(text) <= MAX_KEPT and (value := values.get(name[:-5])) is not None:
            yield text, value
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
