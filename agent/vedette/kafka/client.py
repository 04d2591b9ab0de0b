"""librdkafka's configuration from ours, and its errors in words."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from vedette.kafka.settings import KafkaSettings

REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)  # fmt: skip
"""Errors that say who we are is not believed, or may not do this."""


def configuration(settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    """What every client of librdkafka needs, by its names. Raises OSError naming the file that cannot be read."""
    options: dict[str, Any] = {
        "bootstrap.servers": settings.servers,
        "client.id": client_id,
        "log_level": 0,  # errors come by error_cb
        "reconnect.backoff.max.ms": 5000,
        "security.protocol": ("SASL_" if settings.sasl != "none" else "") + ("SSL" if settings.tls else "PLAINTEXT"),
    }
    for name, path in (
        ("ssl.ca.location", settings.ca_file),
        ("ssl.certificate.location", settings.cert_file),
        ("ssl.key.location", settings.key_file),
    ):
        if path is not None:
            path.open("rb").close()  # else librdkafka says nothing of which file it is
            options[name] = str(path)
    if settings.sasl != "none":
        assert settings.password_file is not None  # ``kafka_mistakes`` says so
        password = settings.password_file.read_text("utf-8").partition("\n")[0].strip()
        if not password:
            raise OSError(f"{settings.password_file}: is empty; expects one line")
        options |= {
            "sasl.mechanism": settings.sasl.upper(), "sasl.username": settings.username, "sasl.password": password,
        }  # fmt: skip
    return options


def reason(error: KafkaError | KafkaException) -> str:
    """In a line, with the name by which Kafka's documentation knows it."""
    cause: Any = error.args[0] if isinstance(error, KafkaException) else error
    text = " ".join(str(cause.str()).split()) if isinstance(cause, KafkaError) else str(cause)
    return f"{cause.name()}: {text}" if isinstance(cause, KafkaError) else text
