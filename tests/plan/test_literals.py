"""Literals of a predicate: what is provable, what is not, and the guards of what a literal cannot see."""

from __future__ import annotations

import re

import pytest

from tests.differences import walk
from vedette.plan.ir import ANY, FIELD_OPS, KEYWORDS, STAR, And, Leaf, Not, Op, Or, Predicate
from vedette.plan.literals import (
    BARE_NUMBER,
    GUARDS,
    MAX_LITERALS,
    NUMBER_GUARDS,
    candidates,
    choose,
    guess,
    is_numeric,
    pieces,
    required,
    unescaped,
)


def of(op: Op, value: object, option: str = "", *, field: str = "f", cased: bool = False) -> set[bytes] | None:
    found = required(Leaf(0), [Predicate(field, op, value, cased, option)])  # type: ignore[arg-type]
    return None if found is None else set(found)


@walk(
    ("text", "expected"),
    [
        ("Password", [b"password"]),
        ("ab", []),
        ("   ", []),
        ("a b", [b"a b"]),
        ("evil<script>x", [b"evil", b"script"]),
        ("caf\u00e9-bar", [b"caf", b"-bar"]),
        ("line\nother", [b"line", b"other"]),
        ("a\0b\0c", []),
        ("C:\\Windows", [b"c:\\windows"]),
        ('say "x"/y]', [b'say "x"/y]']),
        ("it's", []),
        ("na\u017fty", []),
        ("\x7f\x80abc", [b"abc"]),
    ],
)
def test_pieces(text: str, expected: list[bytes]) -> None:
    """Texts are split at what codecs write in ways that is unknown; short and blank runs are dropped."""
    assert pieces(text) == expected


@pytest.mark.parametrize("op", [Op.EXACT, Op.PREFIX, Op.SUFFIX, Op.CONTAINS])
def test_string_predicates(op: Op) -> None:
    """A string needs the rarest of its pieces; a cased one is searched without regard to case as well."""
    assert of(op, "a long<er>st") == {b"a long"}
    assert of(op, "Mimikatz", cased=True) == {b"mimikatz"}
    assert of(op, "") is None
    assert of(op, "\u65e5\u672c\ufffd") == {"\u65e5\u672c".encode()}
    assert of(op, "\u00e9t\u00e9") == {"\u00e9".encode(), "\u00c9".encode()}
    assert of(op, "\u017f\ufffd\u212a") is None
    assert of(op, "mimikatz", field=KEYWORDS) == {b"mimikatz"}


@walk(
    ("field", "value"),
    [
        *((field, "mimikatz") for field in ("topic", "topic_levels", "peer", "topic_level_3", "SYSCALL")),
        *(("severity", "WARN"), ("facility", "auth"), ("priority", "38"), ("log.syslog.version", "1")),
    ],
)
def test_synthetic_fields_have_none(field: str, value: str) -> None:
    """A value that the agent makes itself need not be in the raw bytes."""
    assert of(Op.EXACT, value, field=field) is None
    assert of(Op.REGEX, value, field=field) is None


@pytest.mark.parametrize("field", ["severity", "facility", "priority", "version", "log.syslog.severity.name"])
def test_what_the_agent_never_makes(field: str) -> None:
    """Of fields that a document may have as well: the text that no syslog header gives stands in the event."""
    assert of(Op.EXACT, "mimikatz", field=field) == {b"mimikatz"}
    assert of(Op.REGEX, "mimikatz", field=field) is None
    assert of(Op.EXISTS, None, field=field) is None


@walk(
    "op", [Op.NULL, Op.EXISTS, Op.LT, Op.LTE, Op.GT, Op.GTE, Op.CIDR, Op.FIELD_EXACT, Op.FIELD_CONTAINS, Op.TIME_PART]
)
def test_operators_without_literals(op: Op) -> None:
    """What is not a search of a text proves nothing about the bytes but that the field is there."""
    assert of(op, "10.0.0.0/8" if op not in FIELD_OPS else "g") is None
    assert of(op, "10.0.0.0/8" if op not in FIELD_OPS else "g", field="user") is None
    assert of(op, "10.0.0.0/8", field="CustomName") == (None if op is Op.NULL else {b"customname"})


def test_names_of_fields() -> None:
    """A field that is given under its own name needs that, or one of its other names; of a path the last part."""
    assert of(Op.EXISTS, None, field="Image") == {b"image", b"executable", b"newprocessname", b"new process name"}
    assert of(Op.EXACT, "", field="outer.CustomName") == {b"customname"}
    assert of(Op.EXACT, "mimikatz", field="CustomName") == {b"mimikatz"}  # a name is common
    assert of(Op.FIELD_EXACT, "OtherName", field="user") == {b"othername"}
    for made in ("src_ip", "pam_service", "cs-uri-query", "process.name", "value", "EventID"):  # Snare's has no name
        assert of(Op.EXISTS, None, field=made) is None


def test_what_a_negation_needs() -> None:
    """NOT null: the field's name, also through the laws of De Morgan; nothing else."""
    predicates = [
        Predicate("CustomName", Op.NULL),
        Predicate("OtherName", Op.NULL),
        Predicate("f", Op.CONTAINS, "word"),
    ]
    one, other, word = map(Leaf, range(3))
    assert required(Not(one), predicates) == {b"customname"}
    assert required(Not(And((one, other))), predicates) == {b"customname", b"othername"}
    assert required(Not(And((one, word))), predicates) is None
    assert required(Not(Or((other, word))), predicates) == {b"othername"}
    assert required(Not(Not(word)), predicates) == {b"word"}


def test_a_hot_rule_has_two_clauses() -> None:
    """A second clause is taken when it spares more than its hits cost, and only for a rule whose first is hot."""
    predicates = [Predicate("f", Op.CONTAINS, text) for text in ("powershell", "service", "mimikatz")]
    hot, warm, rare = map(Leaf, range(3))
    shares = {b"powershell": 0.4, b"service": 0.5, b"mimikatz": 0.0001}
    assert choose(And((hot, warm)), predicates, shares.__getitem__) == ({b"powershell"}, {b"service"})
    assert choose(And((hot, rare)), predicates, shares.__getitem__) == ({b"mimikatz"}, None)
    assert choose(hot, predicates, shares.__getitem__) == ({b"powershell"}, None)
    assert choose(Not(hot), predicates, shares.__getitem__) == (None, None)


def test_globs_and_numbers() -> None:
    """A glob needs each of its texts, none across a wildcard; a whole number its digits, a fraction nothing."""
    assert of(Op.GLOB, (STAR, "mimi", ANY, "katzenjammer", STAR)) == {b"katzenjammer"}
    assert of(Op.GLOB, (STAR, ANY, "ab", STAR, "cd")) is None
    assert of(Op.NUMBER, 4720) == {b"4720"}
    assert of(Op.NUMBER, -4720) == {b"-4720"}
    assert of(Op.NUMBER, 47) is None
    assert of(Op.NUMBER, 0.5) is None


@walk(
    ("pattern", "expected"),
    [
        ("mimikatz", {b"mimikatz"}),
        ("^mimikatz$", {b"mimikatz"}),
        (r"\bmimikatz\b", {b"mimikatz"}),
        ("mimi.*katzenjammer", {b"katzenjammer"}),
        ("mimi(?:katz|kitten)", {b"mimik"}),
        ("(foo|bar)", {b"foo", b"bar"}),
        ("foo|bar|", None),
        ("foo|b.r", None),
        ("(foo)?", None),
        ("(foo)*bar", {b"bar"}),
        ("(foobar)+", {b"foobar"}),
        ("(foobar){2,}", {b"foobar"}),
        ("(foobar){0,2}", None),
        ("abc+defg", {b"defg"}),
        ("abc?defg", {b"defg"}),
        (r"C:\\Windows\\", {b"c:\\windows\\"}),
        (r"a\.b\.c", {b"a.b.c"}),
        (r"\x66\x6f\x6f", {b"foo"}),
        ("[f]oobar", {b"foobar"}),
        ("[fg]oobar", {b"oobar"}),
        ("f\u00f6\u00f6bar", None),
        (r"f\xf6foobar", {b"foobar"}),
        (r"[^[:space:]]foobar", None),
        (r"[[:alpha:]]foobar", None),
        (r"[a[:digit:]]foobar", None),
        (r"\Qfoo.bar\E", None),
        ("(?i)foobar", {b"foobar"}),
        ("x(?i)foobar", None),
        ("(?x)foo bar", None),
        ("(?i:foobar)x", {b"foobar"}),
        ("(?=foobar)x", None),
        ("food(?!bar)baz", {b"food"}),
        ("fo[Oo]bar", {b"foobar"}),
        ("fo[^o]bar", {b"bar"}),
        ("^`", {b"`"}),
        ("(?P<name>foobar)", None),
        ("[a&&b]foobar", {b"foobar"}),
        (r"\dfoo\w\sbars", {b"bars"}),
        (".*", None),
        ("", None),
        ("(", None),
        ("(((((((((a)))))))))", None),
    ],
)
def test_regexes(pattern: str, expected: set[bytes] | None) -> None:
    """What every alternative needs; nothing where Python and PCRE could read a pattern differently."""
    assert of(Op.REGEX, pattern) == expected


def test_regex_flags_change_nothing_unsound() -> None:
    """Literals are searched without regard to case, so ``i`` gives the same; ``m`` and ``s`` do too."""
    for flags in ("i", "m", "s", "ims"):
        assert of(Op.REGEX, "^Mimikatz.", flags) == {b"mimikatz"}


def test_expressions() -> None:
    """AND is served by one side, OR needs both, NOT proves nothing; the cheaper side is taken."""
    predicates = [
        Predicate("f", Op.CONTAINS, "mimikatz"),
        Predicate("f", Op.CONTAINS, "user"),
        Predicate("f", Op.NULL),
    ]
    rare, common, nothing = map(Leaf, range(3))
    assert required(And((common, rare)), predicates) == {b"mimikatz"}
    assert required(And((nothing, common)), predicates) == {b"user"}
    assert required(And((nothing, Not(rare))), predicates) is None
    assert required(Or((common, rare)), predicates) == {b"user", b"mimikatz"}
    assert required(Or((rare, nothing)), predicates) is None
    assert required(Not(rare), predicates) is None
    assert required(And((Or((rare, nothing)), common)), predicates) == {b"user"}
    expensive = {b"mimikatz": 1.0, b"user": 0.1}
    assert required(And((common, rare)), predicates, expensive.__getitem__) == {b"user"}


def test_a_set_is_bounded() -> None:
    """A rule of more literals than the bound is always a candidate."""
    predicates = [Predicate("f", Op.CONTAINS, f"word{i:04}") for i in range(MAX_LITERALS + 1)]
    assert len(required(Or(tuple(map(Leaf, range(MAX_LITERALS)))), predicates) or ()) == MAX_LITERALS
    assert required(Or(tuple(map(Leaf, range(MAX_LITERALS + 1)))), predicates) is None


def test_candidates_are_all_that_could_be_chosen() -> None:
    """What to measure: every piece of every predicate, chosen or not."""
    predicates = [Predicate("f", Op.CONTAINS, "one<two>three"), Predicate("f", Op.REGEX, "fou(?:r|five)six")]
    assert candidates(Or((Leaf(0), Leaf(1))), predicates) >= {b"one", b"two", b"three", b"fou", b"six"}


@walk(
    ("literal", "numeric"),
    [
        (b"4720", True),
        (b"-15", True),
        (b"1e+20", True),
        (b"e+20", True),
        (b"0.5", True),
        (b".50", True),
        (b"+20", True),
        (b"5e-0", True),
        (b"inf", True),
        (b"nan", True),
        (b"10.0.0.1", False),
        (b"a15", False),
        (b"15 ", False),
        (b"2025-01", False),
    ],
)
def test_is_numeric(literal: bytes, numeric: bool) -> None:
    """True for every part of a number's printed form."""
    assert is_numeric(literal) == numeric


@pytest.mark.parametrize(
    "raw",
    [
        rb"p\u0061ssword",
        rb"\u0020",
        rb"\u005c",
        rb"\u002F",
        "\u017f".encode(),
        "\u212a".encode(),
        rb"\u017F",
        rb"\u212A",
        rb"\u0026quot;",
        rb"\u0026#101;",
    ],
)
def test_guards_see_what_literals_cannot(raw: bytes) -> None:
    """An ASCII character as a JSON escape, and the two characters that fold to ASCII letters."""
    assert any(re.search(guard, raw, re.IGNORECASE) for guard in GUARDS)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (rb"p\u0061ss\u0057ORD", b"passWORD"),
        (rb"a\\u0061", rb"a\\u0061"),
        (rb"a\\\u0061", rb"a\\a"),
        (rb"\u0022\u005c\u000a\u00e9", rb'"\\u000a\u00e9'),
        (rb"di\u017F\u212a", b"disk"),
        ("di\u017f\u212a".encode(), b"disk"),
        (rb"C:\temp", rb"C:\temp"),
        (rb"\u0026quot;\u0026#x65;\u0026amp;", b"&quot;e&amp;"),
    ],
)
def test_unescaped(raw: bytes, shown: bytes) -> None:
    """Escapes are read from left to right; controls and what is not ASCII stay as they are written."""
    assert unescaped(raw) == shown


@pytest.mark.parametrize("raw", [b"password", rb"\n\t\"\\\/", rb"\u00e9\u4e2d", rb"\u000a", rb"C:\\Users\\u0"])
def test_guards_leave_ordinary_events_alone(raw: bytes) -> None:
    """Common escapes make nothing a candidate."""
    assert not any(re.search(guard, raw, re.IGNORECASE) for guard in GUARDS)


@pytest.mark.parametrize(
    "raw",
    [b"1e5", b"1E+5", b"4.72e3", b"12345678.1234567896", b"123456789012345.678", b"9007199254740993", b"0.00001"],
)
def test_number_guards(raw: bytes) -> None:
    """Numbers that Python does not print as they are written, in JSON or as a whole event."""
    assert any(re.search(guard, b'{"a":' + raw + b"}", re.IGNORECASE) for guard in NUMBER_GUARDS)
    assert BARE_NUMBER.match(raw) or any(re.search(guard, raw, re.IGNORECASE) for guard in NUMBER_GUARDS)


@pytest.mark.parametrize(
    "raw", [b"4720", b"10.20.30.40:8080", b"1732156800.123", b"0.001", b"2025-01-01T10:00:00", b"a1e5", b"c3d4e5f6"]
)
def test_number_guards_leave_ordinary_numbers_alone(raw: bytes) -> None:
    """Addresses, times and plain numbers make nothing a candidate."""
    assert not any(re.search(guard, raw, re.IGNORECASE) for guard in NUMBER_GUARDS)


def test_guess_orders_literals() -> None:
    """Rare long words are cheap, common words dear, and nothing costs more than half of all events."""
    assert guess(b"mimikatz") < guess(b"tty1") < guess(b"user")
    assert guess(b"x" * 400) >= 0
    assert guess(b"...") <= 0.5
