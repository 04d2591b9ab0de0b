"""Redaction of one event: by fields, kinds and patterns, in whatever form a value stands, and nothing in doubt."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from itertools import islice
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import pytest

from vedette.decode.assigned import assigned, broken, names
from vedette.decode.decoder import record
from vedette.decode.escapes import View, views
from vedette.decode.redact import DROP, HASH, HASHED, MARK, MASK, SLOW, TRIES, Case, Redaction, Rule, Shown
from vedette.decode.secrets import PATTERNS

KEY = bytes(range(32))
LINE = b"<38>Nov 21 02:41:00 web1 sshd[1]: Failed password for alice from 203.0.113.9 port 1 ssh2"


def case(raw: bytes, *rules: Rule, codec: str = "auto", key: bytes | None = KEY, **shown: str) -> Case:
    event = record(raw, codec)
    return Redaction(rules, key).case(event.text, event.fields(), host=event.host, shown=Shown(shown))


def test_a_field_by_its_name() -> None:
    """Its value leaves nothing: not its field, the raw event or another field that holds it; the rest stays."""
    one = case(LINE, Rule(fields=("us?r",)))
    assert one.fields({"user": "alice", "message": "for alice from", "src_ip": "203.0.113.9"}) == {
        "user": MARK, "message": f"for {MARK} from", "src_ip": "203.0.113.9",
    }  # fmt: skip
    assert one.raw() == (LINE.decode().replace("alice", MARK), 1)
    assert [*one.redacted] == ["user", "message", "raw"]
    assert one.entity("user", "alice") == MARK
    assert one.entity("ip", "203.0.113.9") == "203.0.113.9"


@pytest.mark.parametrize("name", ["user.name", "User", "user", "USER"])
def test_other_names_of_a_field(name: str) -> None:
    """A field is meant by any name that finds it, in upper or lower case."""
    assert case(LINE, Rule(fields=(name,))).raw()[0] == LINE.decode().replace("alice", MARK)


def test_objects_and_lists() -> None:
    """All that is in an object or a list is meant with it."""
    raw = b'{"customer": {"name": "Zoe", "tags": ["gold", {"id": 77123}]}, "n": "Zoe!", "id": 5}'
    assert case(raw, Rule(fields=("customer",))).raw()[0] == (
        f'{{"customer": {{"name": "{MARK}", "tags": ["{MARK}", {{"id": {MARK}}}]}}, "n": "{MARK}!", "id": 5}}'
    )


def test_kinds() -> None:
    """Entities of a kind, with the fields that they were read from, also where these write them otherwise."""
    raw = b'{"src_ip": "2001:DB8:0:0::1", "dst": "10.0.0.1:80", "note": "10.0.0.1, not 10.0.0.2", "user": "bob"}'
    one = case(raw, Rule(kinds=("ip",)))
    assert one.fields({"src_ip": "2001:DB8:0:0::1", "dst": "10.0.0.1:80", "user": "bob"}) == {
        "src_ip": MARK, "dst": MARK, "user": "bob",
    }  # fmt: skip
    left, _ = one.raw()
    assert "2001" not in left
    assert "10.0.0.1" not in left
    assert "10.0.0.2" in left
    assert one.entity("ip", "2001:db8::1") == MARK


def test_hash() -> None:
    """The same for the same value wherever it stands, in upper or lower case, and under the same key only."""
    rule = Rule(HASH, ("user",), ("ip",))
    one, other = case(LINE, rule), case(b'{"user": "ALICE", "src_ip": "203.0.113.9"}', rule)
    hashed = one.entity("user", "alice")
    assert hashed is not None
    assert hashed.startswith(HASHED)
    assert len(hashed) == len(HASHED) + 32
    assert hashed in one.raw()[0]
    assert other.fields({"user": "ALICE"}) == {"user": hashed}
    assert one.entity("ip", "203.0.113.9") == other.entity("ip", "203.0.113.9")
    assert case(LINE, rule, key=bytes(32)).entity("user", "alice") != hashed
    assert case(LINE, rule, key=None).entity("user", "alice") == MARK


def test_drop_and_the_first_rule() -> None:
    """What is dropped leaves fields and entities; the first rule that means a field counts."""
    one = case(LINE, Rule(DROP, ("user",)), Rule(HASH, ("user", "src_ip")))
    assert one.fields({"user": "alice", "src_ip": "203.0.113.9"}).keys() == {"src_ip"}
    assert one.entity("user", "alice") is None
    assert "alice" not in one.raw()[0]


def test_what_a_pattern_finds_goes_everywhere() -> None:
    """A password in the text is taken out of the field in which only its value stands, and the other way round: fields
    are read as ``name=value``."""
    raw = b'{"password": "hunter22", "cmd": "login hunter22"}'
    for rule in (Rule(expressions=(r"(?i)password=\S+",)), Rule(patterns=("password",))):
        one = case(raw, rule)
        assert one.raw()[0] == f'{{"password": "{MARK}", "cmd": "login {MARK}"}}'
        assert one.fields({"password": "hunter22"}) == {"password": MARK}
        assert one.fields({"cmd": "login hunter22"}) == {"cmd": f"login {MARK}"}


def test_short_values() -> None:
    """They are taken out as words."""
    assert case(b'{"pin": 12, "n": "a12 12 312"}', Rule(fields=("pin",))).raw()[0] == (
        f'{{"pin": {MARK}, "n": "a12 {MARK} 312"}}'
    )


def test_a_value_that_is_not_found_takes_the_event_with_it() -> None:
    """A number that is written otherwise, arguments that are composed: the raw event does not leave."""
    assert case(b'{"amount": 1e3, "user": "bob"}', Rule(fields=("amount",))).raw() == (MARK, 1)
    assert case(b'{"user": "bob"}', Rule(fields=("amount",))).raw() == ('{"user": "bob"}', 0)


DOUBTFUL = {
    "a name twice": '{"m": 1, "password": "SECRET", "password": "x1"}',
    "within an object that is there twice": '{"a": {"password": "SECRET"}, "a": {"password": "y2"}}',
    "beside one that may leave": '{"a": {"password": "x1"}, "password": "SECRET", "password": "x1"}',
    "cut": '{"m": 1, "password": "SECRET", "x": "',
    "cut, an object": '{"m": 1, "password": {"a": "SECRET", "x": "',
    "cut behind a header": '<38>Nov 29 08:00:00 web1 app: {"m": 1, "password": "SECRET", "x":',
    "too much": '{"m": 1, "password": "SECRET"} }',
    "two objects": '{"m": 1, "password": "SECRET"}{"b": 1}',
    "a list": '[{"m": 1, "password": "SECRET"}]',
    "single quotes": "{'m': 1, 'password': 'SECRET'}",
    "within a text": r'{"m": 1, "log": "{\"password\":\"SECRET\"}"}',
    "behind words": 'request body={"password":"SECRET"}',
    "a byte behind": '{"m": 1, "password": "SECRET"}\x00x',
    "escaped": r'{"m": 1, "p\u0061ssword": "SECRET", "x": "',
    "behind blanks": '{"m": 1, "password"          :           "SECRET", "x": "',
    "a quoted value of words": '{"m": 1, "password": "& SECRET", "x": "',
    "an arrow": '{"m"=>1, :password => "SECRET"}',
    "an option": "run --password=SECRET now",
    "in an address": "GET /login?%70assword=SECRET",
    "as a form's item": "POST user[password]=SECRET&x=1",
    "as a form's item, escaped": "POST user%5Bpassword%5D=SECRET&x=1",
    "as a form's list": "POST password[]=SECRET&x=1",
    "as PHP prints it": "Array ( [password] => SECRET )",
    "a subscript": "x['password'] = 'SECRET'",
    "YAML": "m: 1\npassword: SECRET\nx: 2",
    "a block of YAML": "m: 1\npassword: |\n  SECRET\nx: 2",
    "a folded block of YAML": "m: 1\npassword: >-\n  SECRET\nx: 2",
    "a block of YAML of Windows": "m: 1\r\npassword: >-\r\n  SECRET\r\nx: 2",
    "a list of YAML of Windows": "m: 1\r\npassword:\r\n  - SECRET\r\nx: 2",
    "a list of YAML within a text within a text": r'{"a": "{\"log\": \"m: 1\\npassword:\\n  - SECRET\"}"}',
    "a commented list of YAML": "m: 1\npassword: # of root\n  - SECRET\nx: 2",
    "a list of lists of YAML": "m: 1\npassword:\n  - - SECRET\nx: 2",
    "name and value in YAML within a text": r'{"log": "env:\n- name: password\n  value: SECRET"}',
    "name and a list of values in YAML": "env:\n- name: password\n  values:\n  - SECRET\n",
    "before a tab within a text": r'{"log": "password\t: SECRET"}',
    "before a tab behind rsyslog": "<38>Nov 29 08:00:00 web1 app: password#011: SECRET",
    "behind a line's end of URLs": "GET /x?q=m%0Apassword=SECRET",
    "behind a line's end in Unicode": r'{"log": "m\u000apassword=SECRET"}',
    "as a form's item by number": "POST user[password][0]=SECRET",
    "a type between": '{"P":[{"Name":"password","Type":"String","Value":"SECRET"}]}',
    "name and value in elements of a namespace": "<a><d:Key>password</d:Key><d:Value t='s'>SECRET</d:Value></a>",
    "an element's CDATA of signs": "<a><password><![CDATA[& SECRET]]></password></a>",
    "an element with attributes, cut": '<a><wsse:Password Type="http://x#PasswordText">SECRET',
    "an element with long attributes": f'<a><password type="{"x" * 500}">SECRET</password></a>',
    "a list of YAML": "m: 1\npassword:\n  - SECRET\nx: 2",
    "YAML within a text": r'{"log": "m: 1\npassword: |\n  SECRET"}',
    "behind a tab within a text": r'{"log": "m\tpassword=SECRET"}',
    "YAML behind rsyslog": "<38>Nov 29 08:00:00 web1 app: m: 1#012password: SECRET",
    "an attribute of OpenTelemetry": '{"attributes":[{"key":"password","value":{"stringValue":"SECRET"}}]}',
    "such a one, cut": '{"attributes":[{"key":"password","value":{"stringValue":"SECRET',
    "such a one within a text": r'{"log":"{\"key\": \"password\", \"value\": {\"stringValue\": \"SECRET\"}}"}',
    "name and value": '{"Parameters":[{"Name":"password","Value":"SECRET"},{"Name":"x","Value":"y"}]}',
    "name and value of a template": '{"P":[{"ParameterKey":"password","ParameterValue":"SECRET"}]}',
    "name and value in capitals": '{"P":[{"NAME":"password","VALUE":"SECRET"}]}',
    "name and value in YAML": "env:\n- name: password\n  value: SECRET\n",
    "name and value in pairs": "level=info key=password value=SECRET",
    "name and value in attributes": '<add key="password" value="SECRET"/>',
    "name and value in elements": "<a><Key>password</Key><Value>SECRET</Value></a>",
    "an element": "<a><password>SECRET</password></a>",
    "an element's CDATA": "<a><password><![CDATA[SECRET]]></password></a>",
    "an element's CDATA with an end in it": "<a><password><![CDATA[x</password>SECRET]]></password></a>",
    "such a one, the second": "<a><password><![CDATA[x]]>y<![CDATA[z</password>SECRET]]></password></a>",
    "such a one, with attributes": "<a><password type='t'><![CDATA[x</password>SECRET]]></password></a>",
    "such a one in CDATA, cut": "<a><password><![CDATA[x</password>SECRET",
    "such a one, named": "<a><Key>password</Key><Value><![CDATA[x</Value>SECRET]]></Value></a>",
    "such a one, escaped": "&lt;password&gt;&lt;![CDATA[x&lt;/password&gt;SECRET]]&gt;&lt;/password&gt;",
    "an element with attributes": '<wsse:Password Type="http://x#PasswordText">SECRET</wsse:Password>',
    "in hex": "run " + b"password=SECRET;".hex() + " now",
    "pairs": "<38>Nov 29 08:00:00 web1 app: password=SECRET password=z10",
    "CEF": "<38>Nov 29 08:00:00 web1 CEF:0|V|P|1|m|t|5|password=SECRET password=z11",
    "LEEF": "<38>Nov 29 08:00:00 web1 LEEF:1.0|V|P|1|m|password=SECRET\tpassword=z12",
    "audit": 'type=USER_CMD msg=audit(1795168800.000:42): password="SECRET" password="z13"',
    "structured data": '<38>1 2026-11-29T08:00:00Z web1 app - - [x@1 password="SECRET" password="z19"] m',
    "XML": '<Event><System><EventID>1</EventID></System><EventData><Data Name="password">SECRET</Data>'
    '<Data Name="password">z14</Data></EventData></Event>',
}
"""Events that give the name a value that no decoder hands on."""


@pytest.mark.parametrize("form", DOUBTFUL)
@pytest.mark.parametrize("codec", ["auto", "json", "text"])
@pytest.mark.parametrize("name", ["password", "PASS*"])
def test_a_value_that_no_decoder_gives(form: str, codec: str, name: str) -> None:
    """The raw event leaves without it, whatever the format of its input."""
    left, _ = case(DOUBTFUL[form].encode(), Rule(fields=(name,)), codec=codec).raw()
    assert not any("SECRET" in view.text for view in views(left))


@pytest.mark.parametrize(
    "raw", ['{"a": {"password": "SECRET"}, "x": "', DOUBTFUL["within an object that is there twice"]]
)
def test_a_value_within_an_object_that_no_decoder_gives(raw: str) -> None:
    for name in ("a.password", "a.*"):
        left, count = case(raw.encode(), Rule(fields=(name,))).raw()
        assert count
        assert "SECRET" not in left


NAMED_BESIDE = {
    "scalars": '{"p": [{"Name": "password", "Value": "XX"}, {"Name": "size", "Value": "big"}], "m": "XX!"}',
    "objects": '{"p": [{"key": "password", "value": ["XX", {"a": "XX"}]}, {"key": "size", "value": ["big"]}]}',
    "between": '{"p": [{"Name": "password", "Type": "s", "Value": "XX"}, {"Name": "size", "Value": "big"}]}',
    "CDATA": '<Event><EventData><Data Name="password"><![CDATA[XX]]></Data></EventData></Event>',
}


@pytest.mark.parametrize("form", NAMED_BESIDE)
def test_a_value_that_another_names(form: str) -> None:
    """It is that field's value, wherever it stands; what else the event has stays, but behind a list or an object."""
    raw = NAMED_BESIDE[form].replace("XX", "hunter22")
    event = case(raw.encode(), Rule(fields=("password",)))
    left, _ = event.raw()
    assert left == (
        f'{{"p": [{{"key": "password", "value": {MARK}' if form == "objects" else raw.replace("hunter22", MARK)
    )
    assert event.text("is hunter22?") == f"is {MARK}?"


@pytest.mark.parametrize(
    "raw",
    [
        '{"p": [{"Name": "size", "Value": "password"}, {"Name": "password"}], "Value": 3}',
        r"<38>Nov 29 08:00:00 web1 app: C:\new\ruser [user] <password/> a key=x password-value=1",
        "<38>Nov 29 08:00:00 web1 app: Check of mounts " + "." * 70 + ": done",
    ],
)  # fmt: skip
def test_a_name_beside_which_no_value_stands(raw: str) -> None:
    assert case(raw.encode(), Rule(fields=("password", "user"))).raw() == (raw, 0)


def test_hex_of_several_arguments() -> None:
    head = "type=PROCTITLE msg=audit(1.2:3): proctitle=" + b"run\0--password=".hex().upper()
    raw = head + b"hunter22\0x".hex().upper()
    assert case(raw.encode(), Rule(fields=("password",))).raw() == (head + MARK, 1)


def test_a_name_of_many_parts() -> None:
    """It is not compared part by part: what it names does not leave."""
    began = time.thread_time()
    deep = "a." * 16_000 + "b"
    near = "a." * 70 + "b"  # within the window
    assert "SECRET" not in case(f'{{"{near}": "SECRET"}}'.encode(), Rule(fields=("password",))).raw()[0]
    assert Redaction([Rule(fields=("password",))]).named(deep) == MASK
    assert time.thread_time() - began < 1


LONG = (
    "a=", "%61=", "<a b", "<a:", "<a b></a>", "key=a", "key=a value", "name", 'key="a"value', "key=a;;;;", "#012",
    "\\n", "a:\n", "a: |\n", "a:\n- ", "[a]=", "a:<![CDATA[", "a: # ", "\\", "a[1]", "a ", "a.", " ", '"', "\n",
    "a='", 'a="', 'a=\\"', "(a=", "x=1,", "a\t", "a\n\t", "form-data; name=a;", "form-data; name=a\n\n", "\r\n--x--",
    "a->", "a:=", "<a>", "</a>", 'a=""', "a={", "<a x='1'>", " a=b", "a=b&", 'a="x",',
    '\\"a="', "<a><![CDATA[</a>", "<![CDATA[<a></a>]]>",
)  # fmt: skip


@pytest.mark.parametrize("part", LONG)
def test_linear(part: str) -> None:
    """64 KiB of what may be a name or its value are read in seconds, however they are repeated."""
    text = part * ((64 << 10) // len(part)) + "</a value"
    began = time.thread_time()
    for form in filter(None, (*islice(views(text), 2), broken(View(text)))):
        names(form.text)
        for _ in assigned(text, form, lambda name: True):
            pass
    assert time.thread_time() - began < 5


def test_linear_where_values_overlap() -> None:
    """So are names within the values of others, of which patterns have taken out all but signs."""
    text = "password=" * 1800 + ("%25253D" * 20 + '\\"password\\":\\"- ') * 100
    rules = [Rule(fields=("password",), patterns=("password",))]
    began = time.thread_time()
    Redaction(rules, window=len(text), seconds=60).case(text, {"a": "b"}).raw()
    assert time.thread_time() - began < 8


def test_a_name_without_a_value_takes_nothing() -> None:
    raw = "<38>Nov 29 08:00:00 web1 su: authentication failure; ruser= rhost=192.0.2.7  user="
    assert case(raw.encode(), Rule(fields=("ruser", "user"))).raw() == (raw, 0)


def test_an_element_within_cdata_ends_there() -> None:
    raw = "<a><m><![CDATA[<password>hunter22</password> and more]]></m><m>last</m></a>"
    redacted = raw.replace("hunter22", MARK)
    assert case(raw.encode(), Rule(fields=("password",))).raw() == (redacted, 1)


def test_what_is_not_meant_stays() -> None:
    """A name within one object is not that within another, one without a value says nothing, and of an event that is
    decoded whole all else leaves."""
    raw = '{"user": {"name": "bob"}, "process": {"name": "sshd"}, "password": "", "note": "password: none"}'
    redacted = raw.replace("bob", MARK)
    assert case(raw.encode(), Rule(fields=("user.name", "password"))).raw()[0] == redacted
    raw = '{"a": {"password": "x1"}, "names": [{"name": 1}, {"name": 2}], "b": 1}'
    assert case(raw.encode(), Rule(fields=("b.password", "user.name"))).raw() == (raw, 0)
    assert case(raw.encode(), Rule(fields=("password",))).raw() == (raw.replace("x1", MARK), 1)


def test_fields_that_cannot_be_decoded() -> None:
    """Nothing is known of them, so the raw event does not leave; by patterns alone it does."""
    assert Redaction([Rule(fields=("user",))]).case("for alice", None).raw() == (MARK, 1)
    assert Redaction([Rule(patterns=("email",))]).case("to a@b.example", None).raw() == (f"to {MARK}", 1)


def test_a_pattern_that_takes_too_long() -> None:
    """The text does not leave, and is counted. One that does so again and again is left out, and every text with it,
    and has another chance later."""
    redaction = Redaction([Rule(expressions=(r"(?:a|aa)+$",))])

    def one(text: str) -> Case:
        return redaction.case(text, {})

    slow = one("a" * 60 + "b")
    assert slow.raw() == (SLOW, 1)
    assert slow.failed == 1
    assert one("good a").raw() == ("good " + MARK, 1)
    for _ in range(int(TRIES) + 1):
        assert one("a" * 60 + "b").raw()[0] == SLOW
    assert one("good a").raw()[0] == SLOW
    assert "good " + MARK in [one("good a").raw()[0] for _ in range(20)]


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "UTF-8 in JSON": lambda text: json.dumps(text, ensure_ascii=False),
    "XML": quoteattr,
    "JSON in XML": lambda text: quoteattr(json.dumps(text)),
    "XML by numbers": lambda text: "".join(f"&#{ord(c)};" if i % 2 else f"&#x{ord(c):x};" for i, c in enumerate(text)),
    "URL": lambda text: quote(text, safe=""),
    "URL in JSON": lambda text: json.dumps(quote(text, safe="")),
    "hex": lambda text: text.encode().hex().upper(),
    "nginx": lambda text: "".join(c if c.isalnum() else "".join(f"\\x{b:02X}" for b in c.encode()) for c in text),
    "backslashes": lambda text: text.replace("\\", "\\\\").replace('"', '\\"').replace("=", "\\="),
    "upper case": str.upper,
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    """Drawn values are found in each form that an event may have them in, and what stands around them stays."""
    rng = random.Random(7)
    redaction = Redaction([Rule(fields=("secret",))])
    for _ in range(150):
        value = "".join(rng.choice("abcdeXYZ0189 \"'\\/<>&%=;:,é漢😀\t") for _ in range(rng.randint(4, 20)))
        if not value.strip() or value.upper().lower() != value.lower():
            continue
        left, count = redaction.case(f"<{form}> {FORMS[form](value)} (end)", {"secret": value}).raw()
        assert count, value
        assert left == MARK or (left.startswith(f"<{form}> ") and left.endswith(" (end)")), (value, left)
        assert value not in left
        assert FORMS[form](value) not in left


def test_views_say_where_each_character_stands() -> None:
    """Of every view: the text between the ends of a character reads as that character."""
    text = r"a\"b\u00e9\ud83d\ude00 &lt;&#65; %41%C3%A9 \\\""
    for view in views(text):
        if view.starts is not None and view.ends is not None:
            assert len(view.text) == len(view.starts) == len(view.ends)
        for i in range(len(view.text)):
            start, end = view.span(i, i + 1)
            assert 0 <= start < end <= len(text)
            assert any(view.text[i] in one.text for one in views(text[start:end]))


EXAMPLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "card": (
        ("4111111111111111", "4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009"),
        ("4111111111111112", "1795168828000000", "41111111111111111111111", "0123456789abcdef4111111111111111"),
    ),
    "iban": (
        ("AT611904300234573201", "DE89 3704 0044 0532 0130 00", "gb29nwbk60161331926819"),
        ("AT611904300234573202", "AB12CDEF"),
    ),
    "email": (("o'neil+x@sub.example.org", "jürgen@example.com"), ("user@host", "@example.com")),
    "ipv4": (("203.0.113.9", "10.0.0.1"), ("1.2.3", "256.1.1.1", "1.2.3.4.5")),
    "ipv6": (("2001:db8::1", "fe80::1", "::ffff:192.0.2.1"), ("12:30:45", "a:b")),
    "phone": (("+43 1 234 56 78", "+49(0)89-1234567", "(555) 123-4567"), ("+5", "1234567")),
    "password": (
        ("hunter2", "p@ss/w0rd!"),
        (),
    ),
    "bearer": (("dGhpc2lzYXRva2Vu.x_y-z", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), ()),
    "aws": (("AKIAIOSFODNN7EXAMPLE",), ("AKIAIOSFODNN7", "XAKIAIOSFODNN7EXAMPLE")),
    "token": (("ghp_" + "a1B2" * 9, "glpat-" + "x" * 20, "xoxb-123456789012-abc", "AIza" + "S" * 35), ("ghp_short",)),
    "jwt": (("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",), ("eyJ.x.y",)),
    "private_key": (
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\\nMIIEvQ\\n-----END PRIVATE KEY-----",
        ),
        ("-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",),
    ),
}
AROUND = {
    "password": (
        "password={} x=end",
        'x "secret": "{}", y',
        "--password {} end",
        "db://joe:{}@db.example/x",
        "api_key: {}",
    ),
    "bearer": ("Authorization: Bearer {} end", "authorization: basic {} end"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    """Each row of the table takes out its examples, and leaves what only looks like one."""
    redaction, (found, left) = Redaction([Rule(patterns=(name,))]), EXAMPLES[name]
    for around in AROUND.get(name, ("got {} end", "x=[{}]", '{{"k":"{}"}}')):
        for text in found:
            if "/" in text and "://" in around:
                continue
            given = around.format(text)
            taken, count = redaction.case(given, {}).raw()
            assert count == 1, given
            assert taken == given.replace(text, MARK), given
    for text in left:
        assert redaction.case(f"got {text} end", {}).raw() == (f"got {text} end", 0)


@pytest.mark.parametrize(
    "text",
    [
        "run --password a,TAIL end", "run --password a;TAIL", "run --password a&TAIL", "run --password 'a'TAIL",
        'run --password a"TAIL', r"run --password a\ TAIL", "run --password  TAIL", "run -Password 'TAIL' end",
        "run --db-password TAIL", "pwd=a,TAIL", "pwd=a&TAIL", "Pwd=a;TAIL;Database=end",
        "https://joe@x.example:TAIL@db.example/end", "https://joe:a@TAIL@db.example/end", "SET `password` = 'a TAIL'",
    ],
)  # fmt: skip
def test_no_tail_of_a_password_leaves(text: str) -> None:
    left, _ = Redaction([Rule(patterns=("password",))]).case(text, {}).raw()
    assert MARK in left
    assert "TAIL" not in left
    assert left.endswith("end") == text.endswith("end")


@pytest.mark.parametrize("name", ["`password`", "`u`.`password`", "@password"])
def test_names_as_sql_writes_them(name: str) -> None:
    raw = f"<38>Nov 29 08:00:00 db1 app: SET {name}='a hunter22', x=1"
    assert case(raw.encode(), Rule(fields=("password",))).raw()[0] == raw.replace("a hunter22", MARK)


def test_a_label_of_cef() -> None:
    for pairs in ("cs1Label=password cs1=a hunter22 x=1", "cs1=a hunter22 cs1Label=password x=1"):
        raw = f"CEF:0|V|P|1|100|name|5|{pairs}"
        assert case(raw.encode(), Rule(fields=("password",))).raw() == (raw.replace("a hunter22", MARK), 1)


@pytest.mark.parametrize("text", ["PWD=/root", "Failed password for root", "basic authentication", "bypass=yes"])
def test_words_that_are_no_secrets(text: str) -> None:
    assert Redaction([Rule(patterns=("password", "bearer"))]).case(text, {}).raw() == (text, 0)


def test_nothing_is_redacted_without_rules() -> None:
    assert not Redaction([])
    assert case(LINE, Rule(MASK)).raw() == (LINE.decode(), 0)
