"""Redaction of one event: by fields, kinds and patterns, in whatever form a value stands, and nothing in doubt."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import pytest

from vedette.decode.decoder import record
from vedette.decode.escapes import views
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
        "password={} end",
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


@pytest.mark.parametrize("text", ["PWD=/root", "Failed password for root", "basic authentication", "bypass=yes"])
def test_words_that_are_no_secrets(text: str) -> None:
    assert Redaction([Rule(patterns=("password", "bearer"))]).case(text, {}).raw() == (text, 0)


def test_nothing_is_redacted_without_rules() -> None:
    assert not Redaction([])
    assert case(LINE, Rule(MASK)).raw() == (LINE.decode(), 0)
