"""The rule lists that the region published: the landing's folder ``rules``, a JSON file for each bundle and version."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from spark_jobs.tables import storage

log = logging.getLogger(__name__)

Listed: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Rules by their ids, each with ``title``, ``level`` and ``tags``."""


def lists(folder: str) -> list[Mapping[str, Any]]:
    """All lists in ``folder``, by their versions. Raises ValueError or KeyError for what is none."""
    texts = (storage.text(f"{folder}/{name}") for name in storage.names(folder) if name.endswith(".json"))
    return sorted((json.loads(text) for text in texts if text), key=itemgetter("version"))


def alerting(rules: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Those of ``rules`` of which alerts can come, by id; of equal ids the last."""
    able = (rule for rule in rules if rule.get("state") != "refused" and rule.get("alerts") is not False)
    return {rule["id"]: rule for rule in able if rule["id"]}


class Published:
    """What the lists in ``folder`` say of each rule, as they are now: the list made last that has it, also where its
    bundle was replaced or withdrawn since, because agents may still run it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: list[str] = []
        self._rules: Listed = {}

    def rules(self) -> Listed:
        """Rules by id; the files are read when there are others than before. One that cannot be read is logged, and
        all stays as it was: what has landed must not wait for it."""
        names = storage.names(self._folder)
        if names != self._names:
            self._names = names
            try:
                by_age = sorted(lists(self._folder), key=lambda listed: str(listed.get("created", "")))
                every = alerting(rule for listed in by_age for rule in listed["rules"])
                self._rules = {
                    id: {
                        "title": str(rule["title"]), "level": str(rule["level"]),
                        "tags": [str(tag) for tag in rule["tags"] or ()],
                    }
                    for id, rule in every.items()
                }  # fmt: skip
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("%s: not all of it are rule lists (%r); rules keep their texts", self._folder, error)
        return self._rules
