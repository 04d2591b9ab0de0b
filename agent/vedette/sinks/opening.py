"""Opening a sink: the receiver of each type of settings, imported when the first sink of its type is opened."""

from __future__ import annotations

from vedette.sinks.base import Receiver, SinkSettings
from vedette.sinks.settings import CommandSink, FileSink, KafkaSink, MqttSink, OtlpSink, SyslogSink, WebhookSink


def opened(settings: SinkSettings, version: str) -> Receiver:
    """Make a sink's receiver; it connects at the first alert, whose answer says what is missing.

    ``version``: of the agent.
    """
    match settings:
        case WebhookSink():
            from vedette.sinks.webhook import Webhook

            return Webhook(settings, version)
        case SyslogSink():
            from vedette.sinks.syslog import Datagrams, Stream

            return Datagrams(settings, version) if settings.transport == "udp" else Stream(settings, version)
        case OtlpSink():
            from vedette.sinks.otlp import Otlp

            return Otlp(settings, version)
        case FileSink():
            from vedette.sinks.file import LineFile

            return LineFile(settings, version)
        case CommandSink():
            from vedette.sinks.command import Command

            return Command(settings)
        case MqttSink():
            from vedette.sinks.mqtt import MqttTopic

            return MqttTopic(settings)
        case KafkaSink():
            from vedette.sinks.kafka import KafkaTopic

            return KafkaTopic(settings, version)
    return settings.open(version)
