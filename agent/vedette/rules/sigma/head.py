"""The head of a document, which rules and correlations have in common."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection
from typing import Any

from sigma.rule.attributes import SigmaStatus

from vedette.model.times import seconds
from vedette.plan.ir import MAX_SPAN, Suppress
from vedette.rules.ruleset import Unsupported
from vedette.rules.sigma.documents import expect

DESCRIPTIVE = frozenset(
    ("related", "description", "license", "references", "author", "date", "modified", "falsepositives", "scope")
)
"""Attributes that tell people about a rule: a mistake in one is for ``rules lint`` and does not stop the rule."""


def check_head(title: str | None, status: SigmaStatus | None) -> None:
    """Raise Unsupported for a rule or correlation without a title, or that its author withdrew."""
    if not title:
        raise Unsupported("title is missing", "title")
    if status is SigmaStatus.UNSUPPORTED:
        raise Unsupported("its status is 'unsupported': its author says that it cannot be used", "status")


def suppress_of(attributes: dict[str, Any]) -> Suppress | None:
    """The suppression that ``suppress: {by: [field, …], for: 10m}`` asks for; raises Unsupported."""
    asked = attributes.get("suppress")
    if asked is None:
        return None
    wanted = "suppress expects {by: [field, …], for: 10m}"
    if not isinstance(asked, dict) or set(asked) - {"by", "for"} or "for" not in asked:
        raise Unsupported(wanted, "suppress")
    by = asked.get("by") or []
    by = expect([by] if isinstance(by, str) else by, list, f"{wanted}: by is a list of fields", "suppress")
    for name in by:
        expect(name, str, f"{wanted}: by is a list of fields", "suppress")
    try:
        duration = seconds(str(asked["for"]))
    except ValueError:
        duration = 0.0
    if not 1_000_000 <= duration * 1_000_000 <= MAX_SPAN:
        raise Unsupported(f"{wanted}: for is a duration of 1s to 366d, not {asked['for']!r}", "suppress")
    return Suppress(tuple(by), duration)


def own_id(rule_id: str, used_ids: Collection[str]) -> str:
    """An id for one more rule where several have ``rule_id`` or a title in common; stable while their order is."""
    number = 2
    while (own := str(uuid.uuid5(uuid.NAMESPACE_OID, f"{rule_id}/{number}"))) in used_ids:
        number += 1
    return own


def derived_id(document: dict[str, Any]) -> str:
    """A stable id for a rule that has none: from its title, so that a later edit keeps it."""
    return hashlib.blake2b(str(document.get("title")).encode(), digest_size=16).hexdigest()
