"""What is announced on a bundle channel comes from a broker: bounded before it is parsed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from vedette.config.settings import Config, RulesetSettings
from vedette.delivery.topics import manifest_topic
from vedette.mqtt.connection import Message
from vedette.runtime.rulesets.active import Newest
from vedette.runtime.rulesets.arrivals import MAX_ANNOUNCEMENT, Arrivals, announcement
from vedette.runtime.rulesets.bundled import BundledRules

GOOD = b'{"sha256": "%b", "version": 3, "size": 100}' % (b"ab" * 32)


def test_an_announcement_is_bounded() -> None:
    """One that is longer than its bound is refused unparsed; the longest that is not is read."""
    assert announcement(GOOD.ljust(MAX_ANNOUNCEMENT)) == ("ab" * 32, 3)
    with pytest.raises(ValueError, match="65537 bytes, at most 65536"):
        announcement(GOOD.ljust(MAX_ANNOUNCEMENT + 1))


def test_of_bundles_that_wait_the_last_counts() -> None:
    """While a change is under way one bundle a rule set is kept, however many arrive; each set has its own turn."""
    waiting = Newest()
    assert [waiting.put("region", b"%d" % version) for version in range(3)] == [True, False, False]
    assert waiting.put("site", b"s")
    assert (waiting.take("region"), waiting.take("region"), waiting.take("site")) == (b"2", None, b"s")
    assert waiting.put("region", b"3")


class RolledBack(BundledRules):
    """A rule set whose bundle 3 was rolled back."""

    def __init__(self) -> None:
        self.bundles: Any = SimpleNamespace(installed=lambda: None, withdrawn=lambda: 3)
        self.error = ""


class Channel:
    """An agent whose bundle 3 was rolled back, and its subscriptions: what arrives is what the test says."""

    def __init__(self) -> None:
        self.rules = RolledBack()
        self.sets = SimpleNamespace(members={"default": self.rules})
        self.installed: list[bytes] = []
        self.topics: dict[str, Callable[[Message], None]] = {}
        agent: Any = self
        Arrivals(Config(), RulesetSettings("default", channel="stable"), agent, agent).subscribe()

    def sha256(self, ruleset: str) -> str:
        return ""

    def install(self, ruleset: str, data: bytes) -> None:
        self.installed.append(data)

    def subscribe(self, topic: str, take: Callable[[Message], None]) -> None:
        self.topics[topic] = take

    def unsubscribe(self, topic: str) -> None:
        del self.topics[topic]

    def arrives(self, topic: str, payload: bytes) -> None:
        self.topics[topic](Message(topic, payload, 1, True, False, 0))

    def announce(self, data: bytes, version: int) -> str:
        """Returns the topic on which its blob is waited for; empty: on none."""
        digest = hashlib.sha256(data).hexdigest()
        row = {"sha256": digest, "version": version, "size": len(data)}
        self.arrives(manifest_topic("default", "stable"), json.dumps(row).encode())
        return next((topic for topic in self.topics if topic.endswith(digest)), "")


def test_a_version_that_was_rolled_back() -> None:
    """Neither it nor one below it is fetched again, and the status says why; a higher one is."""
    channel = Channel()
    for version in (2, 3):
        assert channel.announce(b"bundle", version) == ""
        assert "version 3 was rolled back" in channel.rules.error
    assert channel.announce(b"bundle", 4)


def test_a_blob_that_is_another() -> None:
    """What comes under the topic of a bundle is installed when it has the digest of its topic, and else refused."""
    channel = Channel()
    channel.arrives(channel.announce(b"bundle", 4), b"another")
    assert (channel.installed, "not what its topic's digest says" in channel.rules.error) == ([], True)
    channel.arrives(channel.announce(b"bundle", 4), b"bundle")
    assert channel.installed == [b"bundle"]
