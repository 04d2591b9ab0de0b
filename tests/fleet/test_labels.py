"""Label expressions: what they mean, and what is refused."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.fleet import labels

HOST = {"site": "vienna", "os": "debian", "role": "web"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", True),
        ("site = vienna", True),
        ("site = linz", False),
        ("site != linz", True),
        ("tier != gold", True),
        ("tier = gold", False),
        ("site in (vienna, linz) and os = debian", True),
        ("site in (graz, linz) and os = debian", False),
        ("site not in (graz, linz)", True),
        ("not site = vienna", False),
        ("os = alpine or os = debian and site = linz", False),
        ("(os = alpine or os = debian) and site = vienna", True),
        ("not (os = alpine or site = linz)", True),
        ("NOT os = alpine AND site IN (vienna)", True),
        ('site = "vienna"', True),
        ('"os" = debian', True),
        ("os = Debian", False),
    ],
)
def test_meaning(text: str, expected: bool) -> None:
    """An expression holds for the host or not."""
    assert labels.parse(text).matches(HOST) is expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at character 1: expects a label, not the end"),
        ("site", "at character 5: expects '=', '!=', 'in' or 'not in', not the end"),
        ("site =", "at character 7: expects a value, not the end"),
        ("site = and", "at character 8: expects a value, not 'and'"),
        ("site in vienna", "at character 9: expects '(', not 'vienna'"),
        ("site in (vienna", "at character 16: expects ')', not the end"),
        ("site = a os = b", "at character 10: expects 'and', 'or' or the end, not 'os'"),
        ("site ~ a", "at character 6: '~ a' is not understood"),
        ("(" * 40 + "all" + ")" * 40, "nested deeper than 32"),
        ("a=" + "b" * 5000, "5002 characters, at most 4096"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    """A mistake is named with its place."""
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        labels.parse(text)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Nothing but ValueError comes out of a text that somebody wrote."""
    with suppress(ValueError):
        assert labels.parse(text).matches(HOST) in (True, False)


@pytest.mark.parametrize(
    ("text", "may", "may_not"),
    [
        ("site = vienna", True, False),
        ("site = linz", False, True),
        ("os = debian", True, True),
        ("site = linz and os = debian", False, True),
        ("site = vienna or os = debian", True, False),
        ("not site = vienna", False, True),
        ("not (site = linz or os = debian)", True, True),
        ("all", True, False),
        ("site in (linz, vienna) and not os in (debian)", True, True),
    ],
)
def test_what_may_hold_where_labels_are_missing(text: str, may: bool, may_not: bool) -> None:
    """Of an agent whose site alone is known: sound for every value of the other labels."""
    expression = labels.parse(text)
    assert labels.possible(expression, {"site": "vienna"}) == (may, may_not)
    held = {expression.matches({"site": "vienna", "os": os}) for os in ("debian", "alpine")}
    assert (True in held) <= may
    assert (False in held) <= may_not
