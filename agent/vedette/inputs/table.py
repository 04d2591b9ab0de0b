"""The types of inputs: ``type`` of an ``[[input]]`` table, and its settings. A new one is a module and a line here.

``tests/inputs/test_table.py`` walks it: each needs tests, a section of docs/guide.md and an example in
packaging/vedette.toml.
"""

from __future__ import annotations

from collections.abc import Mapping

from vedette.inputs.audit import AuditInput
from vedette.inputs.base import InputSettings
from vedette.inputs.file import FileInput
from vedette.inputs.http import HttpInput
from vedette.inputs.journal import JournalInput
from vedette.inputs.kafka import KafkaInput
from vedette.inputs.mqtt import MqttInput
from vedette.inputs.relp import RelpInput
from vedette.inputs.syslog import SyslogInput

INPUT_TYPES: Mapping[str, type[InputSettings]] = {
    "syslog": SyslogInput,
    "relp": RelpInput,
    "http": HttpInput,
    "journal": JournalInput,
    "audit": AuditInput,
    "file": FileInput,
    "mqtt": MqttInput,
    "kafka": KafkaInput,
}
