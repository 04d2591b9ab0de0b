"""Settings whose constants a test chooses: the product's classes with fields in the constants' place.

``tests/e2e/tuned.py`` does the same for a whole agent.
"""

# mypy: disable-error-code="misc"

from __future__ import annotations

from dataclasses import dataclass

from vedette.config.settings import RawLogSettings
from vedette.inputs.settings import FileInput, KafkaInput, MqttInput


@dataclass(frozen=True, slots=True)
class SegmentedLog(RawLogSettings):
    """A raw log with segments of ``segment_bytes``."""

    segment_bytes: int = RawLogSettings.segment_bytes


@dataclass(frozen=True, slots=True)
class PolledFiles(FileInput):
    """Tailed files that are looked at each ``poll`` seconds."""

    poll: float = FileInput.poll


@dataclass(frozen=True, slots=True)
class BoundedMqtt(MqttInput):
    """A subscription with at most ``receive_maximum`` unacknowledged messages."""

    receive_maximum: int = MqttInput.receive_maximum


@dataclass(frozen=True, slots=True)
class WatchedKafka(KafkaInput):
    """A member of a consumer group that looks after its topics each ``look`` seconds."""

    look: float = KafkaInput.look
