"""Bundles that the region publishes: an announcement on the manifest topic of a rule set's channel, then the blob it
names.

A manifest (retained JSON: ``sha256``, ``version``, ``size``) is compared with the active ruleset; a missing bundle is
fetched from its own topic and installed. Whether it is taken is decided by ``bundle/trust.py``: nothing that comes
from a broker is believed. A refusal changes nothing; it is logged (``bundle_refused``) and shown in the status.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson
import structlog

from vedette.bundle.seal import MAX_BUNDLE
from vedette.config.settings import Config, RulesetSettings
from vedette.delivery.topics import blob_topic, manifest_topic
from vedette.model.counters import Log
from vedette.runtime.rulesets.active import ActiveRules
from vedette.runtime.rulesets.bundled import BundledRules

if TYPE_CHECKING:
    from vedette.delivery.uplink import MqttUplink
    from vedette.mqtt.connection import Message

log = structlog.get_logger()

MAX_ANNOUNCEMENT = 64 << 10
"""Bytes of an announcement; a longer one is not parsed."""


def announcement(payload: bytes) -> tuple[str, int]:
    """SHA-256 (64 lower-case hex digits) and version that a manifest message names; raises ValueError."""
    if len(payload) > MAX_ANNOUNCEMENT:
        raise ValueError(f"{len(payload)} bytes, at most {MAX_ANNOUNCEMENT}")
    document = orjson.loads(payload)
    if not isinstance(document, dict):
        raise ValueError(f"expects a JSON object, not {type(document).__name__}")
    sha256, version, size = (document.get(key) for key in ("sha256", "version", "size"))
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError("sha256: expects 64 lower-case hex digits")
    if type(version) is not int or type(size) is not int:
        raise ValueError("version and size: expect integers")
    if size > MAX_BUNDLE:
        raise ValueError(f"size: {size} is more than {MAX_BUNDLE}")
    return sha256, version


class Arrivals:
    """One uplink's subscriptions to the bundles of one rule set; each uplink has its own. While ``governed`` says that
    the fleet's signed documents name the set's bundle, announcements are passed over."""

    def __init__(
        self, config: Config, ruleset: RulesetSettings, active: ActiveRules, uplink: MqttUplink,
        governed: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._active, self._uplink, self._governed = active, uplink, governed
        self._fleet, self._channel, self._ruleset = config.agent.fleet, ruleset.channel, ruleset.name
        self._fetching: str | None = None

    def subscribe(self) -> None:
        self._uplink.subscribe(manifest_topic(self._fleet, self._channel), self._manifest)

    def _manifest(self, message: Message) -> None:
        """A bundle is announced: fetch it, unless it runs already."""
        if not message.payload or self._governed():
            return
        try:
            sha256, version = announcement(message.payload)
        except ValueError as error:
            self._refuse(message, f"not an announcement of a bundle: {error}")
            return
        rules = self._active.sets.members.get(self._ruleset)
        if not isinstance(rules, BundledRules):
            return  # no longer configured so
        if sha256 == self._active.sha256(self._ruleset):
            rules.error = rules.bundles.refused = None  # what the region wants is active
            return
        installed = rules.bundles.installed()
        if installed is not None and version < installed.version:
            self._refuse(message, f"version {version} is older than the installed version {installed.version}")
            return
        same = installed is not None and version == installed.version
        if version <= (withdrawn := rules.bundles.withdrawn()) and not same:
            self._refuse(message, f"version {withdrawn} was rolled back on this agent: publish a higher one")
            return
        topic = blob_topic(self._fleet, self._channel, sha256)
        if self._fetching is not None:
            self._uplink.unsubscribe(self._fetching)
        self._fetching = topic
        self._uplink.subscribe(topic, self._blob)

    def _blob(self, message: Message) -> None:
        if not message.payload or message.topic != self._fetching:
            return
        self._uplink.unsubscribe(message.topic)
        self._fetching = None
        if self._governed():
            return
        if hashlib.sha256(message.payload).hexdigest() != message.topic.rpartition("/")[2]:
            self._refuse(message, "the blob is not what its topic's digest says")
            return
        self._active.install(self._ruleset, message.payload)

    def _refuse(self, message: Message, reason: str) -> None:
        if (rules := self._active.sets.members.get(self._ruleset)) is not None:
            rules.error = f"{message.topic}: {reason}"
        log.error(Log.BUNDLE_REFUSED, topic=message.topic, reason=reason)
