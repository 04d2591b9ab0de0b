"""What the property tests draw: predicates, rules and events that often match, over an alphabet of traps.

An example begins with a few *fragments*; rule values are cut from them, event values are made of them under changes
that a match must survive (case, U+017F for s, U+212A for k, JSON escapes). The alphabet holds what codecs escape,
what folds unusually, and the digits and signs of numbers.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import hypothesis.strategies as st
import orjson

from vedette.plan.ir import ANY, KEYWORDS, STAR, And, Expr, Leaf, Not, Op, Or, Predicate, fold

PLAIN = "aAbBsSkKtTeE0159"
TRAPS = "\0\"'\\/<>&%#[]{}()=:;,.-+*?^$|@!`~ _\t\r\n\x1b"
FOREIGN = "\u017f\u212a\u0130\u0131\u00df\u1e9e\u03a3\u03c3\u03c2\u00e9\u00c9\u2028\ufeff\ufffd\U0001f600\U00010400"

CHARS = st.one_of(st.sampled_from(PLAIN), st.sampled_from(PLAIN), st.sampled_from(TRAPS), st.sampled_from(FOREIGN))
NUMBERS = (
    *("0", "-0", "1", "15", "155", "4720", "4720.0", "4.72e3", "47200e-1", "1e5", "1E5", "1.0E+5", "100000"),
    *("0.5", "0.50", "5e-1", "-0.0", "0.00001", "1e-5", "0.0001", "1e20", "100000000000000000000"),
    *("12345678.1234567896", "123456789012345.678", "99999999.99999999999", "9007199254740993", "1e16"),
    *("0.1000000000000000055511151231257827", "1234567890.12345678901", "18446744073709551616", "-15", "1e300"),
)
PRINTED = tuple(repr(value) for text in NUMBERS if (value := json.loads(text)) is not None)

WORDS = ("password", "failed", "cmd.exe", "a/b", "C:\\Windows\\", "tasks", "ask", "\u017fecret", "to\u212aen", "true")
FRAGMENTS = st.lists(
    st.one_of(st.text(CHARS, min_size=1, max_size=8), st.sampled_from(WORDS), st.sampled_from(PRINTED)),
    min_size=1,
    max_size=4,
)
OWN = ("OwnName", "outer.inner_task", "task/list", "outer", "x")
"""Names that no decoder knows."""
FIELDS = (
    *("a", "b", "user", "message", "n.x", "s@1.p", "topic", "hostname", "program", "src_ip", "cs-uri-query"),
    *("value", "peer", "severity", "command", "type", "a1", "name", "proctitle", "SYSCALL", "CommandLine", "Image"),
    *("OwnName", "outer.inner_task", "task/list", "x.OwnName"),
    *("process.command_line", "source.ip", "msg", "cs-user-agent", "cs-uri-stem", "mnemonic", "deviceVendor", "Data"),
    *("repeated", "host", "event.code", "cisco_tag", "host.name"),
)


class Drawn(NamedTuple):
    """An event as it arrives."""

    codec: str
    raw: bytes
    origin: str


_VARIANTS = {"s": "sS\u017f", "k": "kK\u212a", "\u03c3": "\u03c3\u03c2\u03a3", "\u00df": "\u00df\u1e9e"}


@st.composite
def variant(draw: st.DrawFn, fragment: str) -> str:
    """``fragment`` under changes of case."""
    if draw(st.booleans()):
        return fragment
    return "".join(draw(st.sampled_from(_VARIANTS.get(fold(char), fold(char) + _upper(char)))) for char in fragment)


def _upper(char: str) -> str:
    upper = char.upper()
    return upper if len(upper) == 1 and fold(upper) == fold(char) else char


@st.composite
def event_text(draw: st.DrawFn, fragments: list[str]) -> str:
    """A value made of fragments and noise."""
    part = st.one_of(st.sampled_from(fragments).flatmap(variant), st.text(CHARS, max_size=3))
    parts = draw(st.lists(part, max_size=4))
    return "".join(parts)


@st.composite
def rule_text(draw: st.DrawFn, fragments: list[str]) -> str:
    """A value cut from what events are made of."""
    text = "".join(draw(st.lists(st.sampled_from(fragments), min_size=1, max_size=2)))
    if draw(st.integers(0, 3)) == 0:
        start = draw(st.integers(0, len(text)))
        text = text[start : draw(st.integers(start, len(text)))]
    return text


_NO_CASE_TRAPS = str.maketrans("", "", "iI\u0130\u0131")
_CLASSES = (r"\d", r"\w", r"\s", r"\b", "[a-c]", "[^a]", r"[0-9.]", "[]a]", r"\D", r"\W")


@st.composite
def regex(draw: st.DrawFn, fragments: list[str], depth: int = 0, caseless: bool = False) -> str:
    """A regular expression of the kind that Sigma allows; one piece of it often is a fragment."""
    kind = draw(st.integers(0, 9 if depth < 2 else 5))
    if kind <= 3:
        text = draw(rule_text(fragments)).translate(_NO_CASE_TRAPS).replace("\0", "")
        return "".join(c if c.isalnum() else re.escape(c) for c in text) or "a"
    if kind == 4:
        return draw(st.sampled_from([".*", ".", ".+", "a?", "^", "$", "(?:)"]))
    if kind == 5:
        return "s" if caseless else draw(st.sampled_from(_CLASSES))
    inner = st.deferred(lambda: regex(fragments, depth + 1, caseless))
    if kind == 6:
        return f"({draw(inner)}|{draw(inner)})"
    if kind == 7:
        return f"(?:{draw(inner)}){draw(st.sampled_from(['*', '+', '?', '{1,2}', '{0,2}', '{2}', '+?', '*?']))}"
    return draw(inner) + draw(inner)


_TEXT_OPS = (Op.EXACT, Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.CONTAINS)
_NETWORKS = ("10.0.0.0/8", "203.0.113.9/32", "::/0", "fe80::/10", "::ffff:0:0/96", "0.0.0.0/0")
_VALUES = (0, 1, 15, -15, 4720, 0.5, 100000, 1e20, 12345678.12345679)


@st.composite
def predicate(draw: st.DrawFn, fragments: list[str]) -> Predicate:
    """Any predicate that the compiler can make of a Sigma rule."""
    name = draw(st.sampled_from((KEYWORDS, *FIELDS, "a", "a", "message", "message")))
    cased = draw(st.integers(0, 3)) == 0
    kind = draw(st.integers(0, 11))
    if kind <= 4:
        text = draw(rule_text(fragments))
        op = Op.CONTAINS if name == KEYWORDS else draw(st.sampled_from(_TEXT_OPS))
        return Predicate(name, op, text if cased else fold(text), cased)
    if kind <= 6:
        part = st.one_of(rule_text(fragments), st.sampled_from([STAR, ANY, STAR]))
        parts = [p for p in draw(st.lists(part, min_size=1, max_size=5)) if p] or [STAR]
        if name == KEYWORDS:
            parts = [STAR, *parts, STAR]
        return Predicate(name, Op.GLOB, tuple(p if cased or p in (STAR, ANY) else fold(p) for p in parts), cased)
    if kind <= 8:
        flags = "".join(sorted(draw(st.sets(st.sampled_from("ims")))))
        return Predicate(name, Op.REGEX, draw(regex(fragments, caseless="i" in flags)), True, flags)
    if kind == 9:
        if draw(st.booleans()):
            return Predicate(name, Op.CIDR, draw(st.sampled_from(_NETWORKS)))
        op = draw(st.sampled_from([Op.NUMBER, Op.LT, Op.LTE, Op.GT, Op.GTE]))
        if name == KEYWORDS:
            name = "a"
        return Predicate(name, op, draw(st.sampled_from(_VALUES)))
    if name == KEYWORDS:
        name = "b"
    if kind == 10:
        return Predicate(name, draw(st.sampled_from([Op.NULL, Op.EXISTS])))
    ops = [Op.FIELD_EXACT, Op.FIELD_PREFIX, Op.FIELD_SUFFIX, Op.FIELD_CONTAINS]
    return Predicate(name, draw(st.sampled_from(ops)), draw(st.sampled_from(FIELDS)))


def exprs(predicates: int) -> st.SearchStrategy[Expr]:
    """Expressions over that many predicates."""
    leaf: st.SearchStrategy[Expr] = st.integers(0, predicates - 1).map(Leaf)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=0, max_size=3).map(lambda args: And(tuple(args))),
            st.lists(inner, min_size=1, max_size=3).map(lambda args: Or(tuple(args))),
            inner.map(Not),
        ),
        max_leaves=5,
    )


# --- events --------------------------------------------------------------------------------------------------------


@st.composite
def json_string(draw: st.DrawFn, text: str) -> str:
    """``text`` as a JSON string, each character in one of the forms that JSON allows."""
    style = draw(st.integers(0, 4))
    if style == 0:
        return orjson.dumps(text).decode()
    if style == 1:
        return json.dumps(text)
    if style == 2:
        return json.dumps(text, ensure_ascii=False).replace("/", "\\/")
    out = []
    for char in text:
        forms = [json.dumps(char)[1:-1], "".join(f"\\u{unit:04x}" for unit in _units(char))]
        if char == "/":
            forms.append("\\/")
        if ord(char) >= 0x20 and char not in '"\\':
            forms.append(char)
        out.append(draw(st.sampled_from(forms)))
        if draw(st.booleans()):
            out[-1] = re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda m: m[0].upper(), out[-1])
    return '"' + "".join(out) + '"'


def _units(char: str) -> list[int]:
    data = char.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


def json_value(fragments: list[str], depth: int = 0) -> st.SearchStrategy[str]:
    scalar = st.one_of(
        event_text(fragments).flatmap(json_string),
        event_text(fragments).flatmap(json_string),
        st.sampled_from(NUMBERS),
        st.sampled_from(["true", "false", "null", '"10.1.2.3"', '"::ffff:10.1.2.3"', '"fe80::1"', '""', "[]", "{}"]),
    )
    if depth > 1:
        return scalar
    inner = st.deferred(lambda: json_value(fragments, depth + 1))
    return st.one_of(
        scalar,
        scalar,
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        inner.map(lambda value: '{"x":' + value + "}"),
        inner.map(lambda value: '{"inner_task" : ' + value + ', "OwnName":1}'),
    )


@st.composite
def json_object(draw: st.DrawFn, fragments: list[str]) -> str:
    names = draw(
        st.lists(st.sampled_from(["a", "b", "user", "message", "n", "n.x", "hostname", "a", *OWN]), max_size=4)
    )
    keys = [draw(json_string(name)) if draw(st.integers(0, 3)) == 0 else f'"{name}"' for name in names]
    return "{" + ",".join([f"{key}: {draw(json_value(fragments))}" for key in keys]) + "}"


def _sd(text: str) -> str:
    return re.sub(r'(["\\\]])', r"\\\1", text)


def structured(p: str, q: str) -> str:
    """An RFC 5424 header with the parameters ``p`` and ``q`` of ``s@1``."""
    return f'<165>1 2026-08-01T10:00:00Z web1 app 12 ID [s@1 p="{_sd(p)}" q="{_sd(q)}"] '


def _cef(text: str, header: bool) -> str:
    return re.sub(r"([\\\\|])" if header else r"([\\\\=])", r"\\\1", text).replace("\n", "\\n").replace("\r", "\\r")


@st.composite
def _xml(draw: st.DrawFn, text: str) -> str:
    """``text`` as XML, each character in one of its forms."""
    if "]]>" not in text and draw(st.integers(0, 3)) == 0:
        return f"<![CDATA[{text}]]>"
    numbers = draw(st.booleans())
    out = []
    for char in text:
        forms = [f"&#{ord(char)};", f"&#x{ord(char):X};"] if numbers else []
        if char in _ENTITIES:
            forms.append(_ENTITIES[char])
        if char not in "<&":
            forms += [char] * 4
        out.append(draw(st.sampled_from(forms)))
    return "".join(out)


_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;", "'": "&apos;"}

SERIAL = b"@SERIAL@"
"""In an audit record: its event's number, which the test gives, so that no two are one event."""


def _audit(text: str, draw: st.DrawFn) -> str:
    """A value as the kernel writes it: quoted when it is plain, else as hex."""
    plain = text.isascii() and text.isprintable() and '"' not in text and " " not in text
    return f'"{text}"' if plain and draw(st.booleans()) else text.encode().hex().upper()


@st.composite
def formatted(draw: st.DrawFn, fragments: list[str]) -> tuple[str, str]:
    """Codec and line of an event in one of the formats of ``inputs/formats``."""
    text, other = draw(event_text(fragments)), draw(event_text(fragments))
    head = draw(st.sampled_from(["", "<14>Nov 20 10:00:00 web1 x: "]))
    kind = draw(st.integers(0, 7))
    if kind <= 1:
        values = f'a0="x" a1={_audit(text, draw)} a2[0]={_audit(other, draw)} name={_audit(other, draw)}'
        record = draw(st.sampled_from(["type=EXECVE msg=", "type=PATH msg=", "type=1309 "]))
        body = f"{values} proctitle={_audit(text, draw)} arch=c000003e syscall=59"
        return "auto", f"{head}{record}audit(1.5:@SERIAL@): {body}".replace("\n", " ")
    if kind == 2:
        names = draw(st.lists(st.sampled_from(["CommandLine", "Image", "user", "a"]), min_size=1, max_size=3))
        data = "".join(f'<Data Name="{name}">{draw(_xml(draw(event_text(fragments))))}</Data>' for name in names)
        return "auto", f"{head}<Event><System><EventID>1</EventID></System><EventData>{data}</EventData></Event>"
    if kind == 3:
        extension = f"msg={_cef(text, False)} a={_cef(other, False)} user={_cef(text, False)}"
        return "auto", f"{head}CEF:0|{_cef(other, True)}|p|1|2|n|3|{extension}"
    if kind == 4:
        return draw(st.sampled_from(["auto", "leef"])), f"{head}LEEF:1.0|{other}|p|1|2|a={text}\tuser={other}"
    if kind == 5:
        line = f'2026/11/20 10:00:00 [error] 7#8: *9 {other}, client: 10.1.2.3, request: "GET /{text} HTTP/1.1"'
        return (
            "auto",
            line if not head else f"[Fri Nov 20 10:00:00 2026] [error] [client 10.1.2.3] {text}, referer: {other}",
        )
    if kind == 6:
        value, uri = draw(json_string(text)), draw(json_string("/x?" + other))
        return draw(st.sampled_from(["auto", "json"])), draw(
            st.sampled_from(
                [
                    f'{{"Event": {{"System": {{"EventID": 1}}, "EventData": {{"CommandLine": {value}, "a": {uri}}}}}}}',
                    f'{{"winlog": {{"event_id": 1, "event_data": {{"Image": {value}, "user": {uri}}}}}}}',
                    f'{{"ts": 1, "uid": "C", "id.orig_h": {value}, "trans_depth": 1, "uri": {uri}}}',
                    f'{{"remote_addr": "10.1.2.3", "status": 1, "request_uri": {uri}, "http_user_agent": {value}}}',
                    f'{{"process": {{"command_line": {value}}}, "source": {{"ip": {uri}}}}}',
                ]
            )
        )
    return "auto", f"<189>45: *Nov 20 10:00:00.123 UTC: %SYS-5-CONFIG_I: Configured from {text} by {other} on x"


CISCO = (
    "<187>46: rtr1: *Mar  1 18:46:12.123: %SYS-5-CONFIG_I: ",
    "%LINEPROTO-5-UPDOWN: ",
    "<38>Nov 20 10:00:00 ask sshd[7]: ",
    "<189>Nov 20 10:00:00 ask 46: *Mar  1 18:46:12: %ASA-4-106023: ",
)
"""Heads of Cisco's lines, and one of a line that may be folded."""


@st.composite
def event(draw: st.DrawFn, fragments: list[str]) -> Drawn:
    """An event in any of the shapes that decoders know; sometimes with bytes that are no UTF-8 in it."""
    text = draw(event_text(fragments))
    kind = draw(st.integers(0, 17))
    codec, origin, line = "auto", draw(st.sampled_from(["", "10.1.2.3", "web1"])), text
    if 11 < kind < 17:
        codec, line = draw(formatted(fragments))
    elif kind == 11:
        text = draw(st.one_of(st.just(text), json_object(fragments)))
        if draw(st.booleans()):
            text = f"message repeated {draw(st.sampled_from([5, 15, 4720]))} times: [ {text}]"
        line = draw(st.sampled_from(CISCO)) + text
    elif kind <= 2:
        line = draw(json_object(fragments))
        codec = draw(st.sampled_from(["auto", "json", "json"]))
    elif kind == 3:
        host = draw(st.sampled_from(["web1", "ask", "10.0.0.1"]))
        program = draw(st.sampled_from(["app[12]", "sshd[7]", "sudo", "CRON[1]", "kernel", "tasK"]))
        line = draw(st.sampled_from(["<38>", "", "<13>"])) + f"Nov 20 10:00:00 {host} {program}: {text}"
    elif kind == 4:
        line = structured(text, draw(event_text(fragments))) + draw(event_text(fragments))
    elif kind == 5:
        line = draw(st.sampled_from(["<38>Nov 20 10:00:00 web1 app: ", "<38>Nov 20 10:00:00 web1 app: @cee: "]))
        line += draw(json_object(fragments))
    elif kind == 6:
        codec, origin = "mqtt", draw(st.sampled_from(["plant/a/1", "a", "ask/tasks/password"]))
        line = draw(st.one_of(json_object(fragments), json_value(fragments), st.just(text)))
    elif kind == 7:
        codec = draw(st.sampled_from(["auto", "access"]))
        line = f'10.1.2.3 - a [10/Oct/2025:13:55:36 +0200] "GET /x?{text} HTTP/1.1" 200 15 "-" '
        line += f'"{draw(event_text(fragments))}"'
    elif kind == 8:
        line = f'<38>Nov 20 10:00:00 web1 app: a={text} b="{draw(event_text(fragments))}" user={text} OwnName={text}'
    elif kind == 9:
        line = f"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for {text} from 203.0.113.9 port 22 ssh2"
    elif kind == 10:
        codec = draw(st.sampled_from(["text", "auto", "syslog"]))
    else:
        codec = draw(st.sampled_from(["auto", "mosquitto", "fail2ban", "named"]))
        line = f"1763672400: New connection from 10.1.2.3:5 on port {text}"
    raw = line.encode() or b"\n"  # no event is empty
    if draw(st.integers(0, 7)) == 0:
        at = draw(st.integers(0, len(raw)))
        raw = raw[:at] + draw(st.sampled_from([b"\xff", b"\xc5", b"\xed\xa0\x80", b"\xf0\x9f"])) + raw[at:]
    return Drawn(codec, raw, origin)
