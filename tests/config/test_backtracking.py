"""Patterns of a configuration that may take long are named by their keys; usual ones are not."""

from __future__ import annotations

from vedette.config.backtracking import warnings
from vedette.config.read import parse

FILE = '[[input]]\ntype = "file"\nname = "app"\npaths = ["/var/log/app.log"]\nmultiline = {{ {} }}\n'


def warned(text: str) -> list[str]:
    return [*warnings(parse(text))]


def test_multiline() -> None:
    """Where it begins an event and where it goes on; a date at the beginning is no matter."""
    assert warned(FILE.format(r"start = '^\d{4}-\d\d-\d\d'")) == []
    assert warned(FILE.format(r"continue = '^\s|^Caused by'")) == []
    (line,) = warned(FILE.format(r"start = '^(\w+\s?)*:'"))
    assert line.startswith(
        "input app: multiline.start may take long on some lines: a part that fits in several ways is repeated. A line"
    )
    (line,) = warned(FILE.format("continue = 'at .*[(].*[)]'"))
    assert line.startswith("input app: multiline.continue may take long")


def test_redact() -> None:
    """An expression that grows beyond every power; of texts of 8 KiB others do not matter."""
    rule = "[[redact]]\nexpressions = ['user=\\S+ from \\S+', '(?:\\w+,?)+;']\n"
    (line,) = warned(rule)
    assert line.startswith("redact[0].expressions[1] may take long on some texts: a part that fits in several ways")
    assert line.endswith("leaves the host as a mark alone")
