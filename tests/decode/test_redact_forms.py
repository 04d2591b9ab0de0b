"""Generated texts that give a redacted name a value: in many forms of assignment, with values that look as if they
ended early, at each place of a text and within others. No part of the value leaves, whatever decoder reads the text,
and where the form says where a value ends, what stands around it stays.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import compress
from typing import NamedTuple
from urllib.parse import quote_plus

import pytest

from vedette.decode.assigned import assigned, says
from vedette.decode.decoder import record
from vedette.decode.escapes import View, views
from vedette.decode.redact import _SIGNS, MARK, Case, Redaction, Rule, Shown
from vedette.decode.values import lowered

HEAD, TAIL = "hunterQ7", "zebraW9"
"""Both ends of each value; in no text else."""
PLAIN = (
    "", ",", ";", ")", "\\ ", "(", "{", "}", "]", "[", "|", "<", ">", "/", "\\", ":", "@", "#", "$", "!", "é", ",;",
    "//", "://", "),", ");", "\\n", "\\,", "-", ".", "`", "+",
)  # fmt: skip
"""What stands between the ends of a value in every form."""
BLANKS = (" ", ", ", "; ", ") ", " - ", " (", "\t", "  ")
WHITE = (" ", "\t", "\n", "\r")
QUOTES = ('"', "'", '""', "''", '" ', "\\'", '\\"', '",', "',", '"}', '""",', "'';")
PAIRS = ("&", "&amp;", "=", "a&", "%")


class Form(NamedTuple):
    """``text`` with a ``%s`` for the assignment: other fields around it. ``stays``: parts of ``text`` that leave in any
    case, where the form is one that says where a value ends."""

    assign: Callable[[str, str], str]
    joints: tuple[str, ...]
    texts: tuple[str, ...]
    stays: tuple[str, ...] = ()


def quoted(sign: str, quote: str, escape: Callable[[str], str]) -> Callable[[str, str], str]:
    return lambda name, value: f"{name}{sign}{quote}{escape(value)}{quote}"


def backslashed(quote: str) -> Callable[[str], str]:
    return lambda value: value.replace("\\", "\\\\").replace(quote, "\\" + quote)


def doubled(quote: str) -> Callable[[str], str]:
    return lambda value: value.replace(quote, quote * 2)


def bare(sign: str) -> Callable[[str, str], str]:
    return lambda name, value: f"{name}{sign}{value}"


def in_json(name: str, value: str) -> str:
    return f"{json.dumps(name)}: {json.dumps(value)}"


def in_compact_json(name: str, value: str) -> str:
    return f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=False)}"


def in_query(name: str, value: str) -> str:
    """As careless clients write it: signs that end no value stay."""
    return f"{name}={quote_plus(value, safe=',;()/:@!$')}"


ALL = (*PLAIN, *BLANKS, *QUOTES, *PAIRS)
SPACED = ("%s", "before=b4 %s", "%s behind=b5", "started before=b4 %s behind=b5")
LISTED = ("before: b4, %s", "%s, behind: b5", "before: b4, %s, behind: b5")
CALLED = ("login(%s)", "INSERT INTO t SET before=1, %s, behind=2", "WHERE %s AND behind=1")
LINES = ("%s", "before\tx\n%s", "%s\nbehind\tx", "before\tx\n%s\nbehind\tx")
OBJECTS = ('{%s}', '{"before": "b4", %s}', '{%s, "behind": "b5"}', '{"before": "b4", %s, "behind": 17}',
           '{"before": {"x": [1, 2]}, %s, "behind": {"y": "b5"}', '[{"before":"b4",%s,"behind":"b5"}] ')  # fmt: skip
QUERIES = ("GET /login?%s HTTP/1.1", "POST /login body: %s&behind=b5", "/a?before=b4&%s&behind=b5#x", "before=b4&%s")
STAYS = ("before", "behind", "b4", "b5")
FORMS: dict[str, Form] = {
    "name=value": Form(bare("="), (*PLAIN, *BLANKS, *QUOTES, *PAIRS), SPACED, STAYS),
    "name = value": Form(bare(" = "), (*PLAIN, *BLANKS, *QUOTES, *PAIRS), SPACED[:2]),
    "--name=value": Form(lambda name, value: f"--{name}={value}", ALL, ("run --before=b4 %s --behind=b5",), STAYS),
    "name==value": Form(bare("=="), ALL, SPACED),
    "name:=value": Form(bare(":="), ALL, SPACED),
    "name := value": Form(bare(" := "), ALL, SPACED),
    "name->value": Form(bare("->"), ALL, SPACED),
    "name -> value": Form(bare(" -> "), ALL, SPACED),
    "name=>value": Form(bare("=>"), ALL, SPACED),
    "name => value": Form(bare(" => "), ALL, SPACED),
    "name: value": Form(bare(": "), ALL, (*SPACED[:1], *LISTED, "Header: 1\n%s\nOther: 2")),
    "name:value": Form(bare(":"), ALL, SPACED),
    'name="value" with backslashes': Form(quoted("=", '"', backslashed('"')), ALL, (*SPACED, *CALLED), STAYS),
    "name='value' with backslashes": Form(quoted("=", "'", backslashed("'")), ALL, (*SPACED, *CALLED), STAYS),
    'name="value" doubled': Form(quoted("=", '"', doubled('"')), ALL, (*SPACED, *CALLED)),
    "name='value' doubled": Form(quoted("=", "'", doubled("'")), ALL, (*SPACED, *CALLED)),
    "name = 'value' doubled": Form(quoted(" = ", "'", doubled("'")), ALL, CALLED),
    'name: "value"': Form(quoted(": ", '"', backslashed('"')), ALL, (*SPACED[:1], *LISTED)),
    'name := "value"': Form(quoted(" := ", '"', backslashed('"')), ALL, SPACED),
    '"name"=>"value"': Form(
        lambda name, value: f'"{name}"=>"{value}"', PLAIN, ('{"before"=>"b4", %s, "behind"=>"b5"}',)
    ),
    "JSON": Form(in_json, (*ALL, "\n"), OBJECTS, STAYS),
    "compact JSON": Form(in_compact_json, (*ALL, "\n"), OBJECTS, STAYS),
    "Python": Form(lambda name, value: f"{name!r}: {value!r}", ALL, ("{'before': 'b4', %s, 'behind': 'b5'}",)),
    "a query": Form(in_query, ALL, QUERIES, STAYS),
    "name TAB value": Form(bare("\t"), (*PLAIN, *BLANKS[:-2], *QUOTES, *PAIRS), LINES),
    "a table": Form(
        lambda name, value: f"{name}\tbehind\n{value}\tx", (*PLAIN, *BLANKS[:-2], *QUOTES, *PAIRS),
        ("before\t%s", "%s", "title\nbefore\t%s\nmore\ty\tz"),
    ),
    "the last column of a table": Form(
        lambda name, value: f"id\tbefore\t{name}\r\n1\tx\t{value}",
        (*PLAIN, *BLANKS[:-2], *QUOTES, *PAIRS), ("%s", "%s\r\n2\ty\tz"),
    ),
    "a form's part": Form(
        lambda name, value: f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n',
        (*ALL, "\n", "\r\n\r\n", "\n--"),
        ("--b1\r\n%s--b1--\r\n", '--b1\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n--b1\r\n%s--b1--', "%s"),
    ),
    "a form's part with a type": Form(
        lambda name, value: f"content-disposition: form-data; name={name}; filename=a\nContent-Type: a/b\n\n{value}\n",
        ALL, ("--b1\n%s--b1--",),
    ),
    "an element": Form(
        lambda name, value: f"<{name}>{value.replace('&', '&amp;').replace('<', '&lt;')}</{name}>", ALL,
        ("<a><before>b4</before>%s<behind>b5</behind></a>", "<a>%s"),
    ),
    "an element with attributes": Form(
        lambda name, value: f"<x:{name} t='1'>{value.replace('&', '&amp;').replace('<', '&lt;')}</x:{name}>", ALL,
        ("<a><before>b4</before>%s<behind>b5</behind></a>",),
    ),
    "YAML": Form(lambda name, value: f"{name}:\n  - {value}\n  - {HEAD}", PLAIN, ("before: b4\n%s\nbehind: b5",)),
    "pairs of name and value": Form(
        lambda name, value: f'{{"key":"{name}","value":{json.dumps(value)}}}', ALL,
        ('{"a":[%s]', '[%s,{"key":"b","value":1}]'),
    ),
}  # fmt: skip
CARRIERS: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "behind a header": lambda text: f"<38>Nov 29 08:00:00 web1 app[7]: {text}",
    "within JSON": lambda text: json.dumps({"outer": "o1", "log": text, "last": "o2"}),
    "within JSON within JSON": lambda text: json.dumps({"outer": "o1", "log": json.dumps({"m": text}), "last": "o2"}),
    "within a cut JSON": lambda text: json.dumps({"outer": "o1", "log": text, "last": {"o2": 1}})[:-1],
    "behind rsyslog": lambda text: (
        "<38>Nov 29 08:00:00 web1 app[7]: " + "".join(f"#{ord(c):03o}" if ord(c) < 32 else c for c in text)
    ),
}
AROUND = {name: ("outer", "o1", "last", "o2") if "JSON" in name else () for name in CARRIERS}
CODECS = ("auto", "text", "json")
REDACTION = Redaction([Rule(fields=("passw*", "other.secret"))])


def cases(form: Form, carrier: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each text with each value, and what stays of it."""
    careless = form.assign("password", "") in ("password=", "--password=") and form.assign is not in_query
    for text in form.texts:
        for joint in form.joints:
            for value in (f"{HEAD}{joint}{TAIL}", f"{joint}{TAIL}", f"{HEAD}{joint}{TAIL} x{joint}{TAIL}"):
                if " x=" in value or " x:" in value or value.startswith((*WHITE, "'';")):
                    continue  # what is behind may be another name's, or what is before no value
                around = (
                    () if careless and not value.startswith(HEAD) else (part for part in form.stays if part in text)
                )
                yield CARRIERS[carrier](text.replace("%s", form.assign("password", value))), (*AROUND[carrier], *around)


def leaving(raw: str, codec: str, redaction: Redaction = REDACTION) -> Iterator[str]:
    """All texts that leave of an event: ``raw``, its fields, a title that a statement made of it."""
    event = record(raw.encode(), codec)
    fields = event.fields()
    shown = {
        name: text for name, text in fields.items() if isinstance(text, str) and not secret(name) and name != "name"
    }
    shown["line"] = raw
    case = redaction.case(event.text, fields, host=event.host, shown=Shown(shown, texts=[f"Login: {raw}"]))
    yield case.raw()[0]
    yield from case.fields(shown).values()
    yield case.text(f"Login: {raw}")


def secret(text: str) -> bool:
    """Whether a part of the value stands in it, in any form."""
    return any(part.lower() in view.text.lower() for view in views(text) for part in (HEAD, TAIL))


def swallowed(raw: str, codec: str, part: str) -> bool:
    """Whether a decoder has read it as the value's: it takes more of an address than the form says."""
    return part in str(record(raw.encode(), codec).fields().get("password"))


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("form", FORMS)
def test_no_part_of_a_value_leaves(form: str, carrier: str) -> None:
    """And what stands around it does, where the form says where it ends."""
    for raw, stays in random.Random(f"{form} {carrier}").sample([*cases(FORMS[form], carrier)], 8):
        for codec in CODECS:
            left = [*leaving(raw, codec)]
            assert not [text for text in left if secret(text)], (codec, raw, left)
            assert not [part for part in stays if part not in left[0] and not swallowed(raw, codec, part)], (
                codec,
                raw,
                left,
            )


def test_a_word_that_no_decoder_gives_goes_everywhere() -> None:
    """Also from a field that has it without the name."""
    raw = f'{{"log": "login password={HEAD} try=2", "argument": "-p {HEAD}", "note": "try=2"}}'
    left = [*leaving(raw, "json")]
    assert not [text for text in left if secret(text)]
    assert left[0] == raw.replace(HEAD, MARK)


@pytest.mark.long
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("form", FORMS)
def test_no_part_of_any_value_leaves(form: str, carrier: str) -> None:
    """All of them."""
    for raw, stays in cases(FORMS[form], carrier):
        for codec in CODECS:
            left = [*leaving(raw, codec)]
            assert not [text for text in left if secret(text)], (codec, raw, left)
            assert not [part for part in stays if part not in left[0] and not swallowed(raw, codec, part)], (
                codec,
                raw,
                left,
            )


def by_each_sign(
    self: Case, text: str, view: View, left: bytearray, words: bytearray
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """``Case._unread_of`` from its text alone: what is left of each value is put together, sign by sign."""
    places = Counter[tuple[bool, str]]()
    waiting = dict[tuple[bool, str], list[tuple[int, int]]]()
    for name, value, start, end, whole, key in assigned(text, view, self._redaction.doubtful):
        rest = "".join(compress(text[start:end], left[start:end]))
        if not rest or not (key or self._redaction.named(name)):
            continue
        if any(map(str.isalnum, rest)) if len(rest) < end - start else says(lowered(value.rstrip(_SIGNS))):
            kind = whole, name.lower()
            places[kind] += 1
            waiting.setdefault(kind, []).append((start, end))
            if places[kind] > self._decoded[whole][kind[1]]:
                yield from waiting.pop(kind)


def test_what_is_left_of_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of several assignments, in each other and cut anywhere, leave as when their signs are looked at singly."""
    chance = random.Random(11)
    every = [
        text for form in FORMS.values() for carrier in CARRIERS for text, _ in chance.sample([*cases(form, carrier)], 2)
    ]
    texts = list[str]()
    for _ in range(60):
        parts = [chance.choice(every) for _ in range(chance.randint(1, 4))]
        texts.append(
            chance.choice(("", " ", "password=", '%25253D\\"password\\":\\"- ')).join(parts)[chance.randint(0, 9) :][
                :1500
            ]
        )
    redaction = Redaction([Rule(fields=("passw*", "other.secret")), Rule(patterns=("password",))])
    leave = [[*leaving(text, codec, redaction)] for text in texts for codec in CODECS]
    monkeypatch.setattr(Case, "_unread_of", by_each_sign)
    assert leave == [[*leaving(text, codec, redaction)] for text in texts for codec in CODECS]
    assert any(MARK in text for texts in leave for text in texts)
