"""Mistakes in the settings of a journal input are reported by key."""

from __future__ import annotations

import pytest

from vedette.inputs.journal import JournalInput


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"priority": "loud"}, ".priority: "),
        ({"include": ("sshd",)}, ".include: "),
        ({"exclude": ("_comm=sshd",)}, ".exclude: "),
        ({"fields": ("a b",)}, ".fields: "),
        ({"namespace": "--merge"}, ".namespace: "),
    ],
)
def test_mistakes(settings: dict[str, str], key: str) -> None:
    """Each by its key."""
    (mistake,) = JournalInput("j", **settings).mistakes()
    assert mistake.startswith(key)


def test_no_mistake() -> None:
    """What journalctl takes is taken."""
    made = JournalInput("j", include=("_COMM=sshd", "EMPTY="), fields=("SHOP_1",), priority="err", namespace="+web")
    assert not list(made.mistakes())
    assert made.least == 3
