"""Topics of Apache RocketMQ 5, by its gRPC proxy: an input, and a sink for alerts.

```toml
[plugins]
allow = ["vedette-rocketmq"]

[[input]]
type = "rocketmq"
name = "gateway"
[input.options]
endpoints = "proxy.example:8081"
topics = ["firewall"]
group = "vedette-vienna"

[[sink]]
type = "rocketmq"
name = "soc"
[sink.options]
endpoints = "proxy.example:8081"
topic = "alerts"
```

A message is an event. It is acknowledged once the raw log has it on disk; what was not comes again after ``invisible``
seconds (60), also to another agent of the group, so a message may be stored twice. An alert is a message of JSON whose
key is its ``alert_id``; it may come again under the same.

``access_key`` and ``secret_file`` (its first line) say who we are. TLS, by the authorities that gRPC brings or those in
GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, unless ``tls = false``. The client does not write, as it does by itself, into the
home directory.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from vedette.plugins import Answer, Feed, Stopped, Verdict

logger = logging.getLogger("vedette_rocketmq")
_log = ModuleType("rocketmq.v5.log")
_log.logger = logging.getLogger("rocketmq")  # type: ignore[attr-defined]
_log.logger.setLevel(logging.CRITICAL)  # the rest is raised, too
sys.modules.setdefault(_log.__name__, _log)

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer  # noqa: E402

MESSAGES = 32
"""Received at once, the most that a broker gives."""
AWAIT = 2
"""Seconds that a broker waits for a first message: so long a stop may take."""
ANSWER = 10
"""Seconds for an answer; short ones a broker refuses to wait in."""
SETTLE = 1.0
"""Seconds that a broker takes to know a new consumer."""
PAUSE = 5.0
"""Seconds after a broker that does not answer."""
SEND = 30.0
"""Seconds for the answer to an alert."""


def _client(options: Mapping[str, Any]) -> tuple[ClientConfiguration, bool]:
    """The client's configuration, and whether it takes TLS. Raises KeyError and OSError."""
    secret = ""
    if "secret_file" in options:
        secret = Path(options["secret_file"]).read_text("utf-8").partition("\n")[0].strip()
    credentials = Credentials(options.get("access_key", ""), secret)
    namespace = options.get("namespace", "")
    configuration = ClientConfiguration(options["endpoints"], credentials, namespace, request_timeout=ANSWER)
    return configuration, options.get("tls", True)


class Source:
    """A consumer of a group, one batch of messages after the other."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._configuration, self._tls = _client(options)
        self._topics = {topic: FilterExpression(options.get("tags", "*")) for topic in options["topics"]}
        self._group, self._invisible = options["group"], int(options.get("invisible", 60))

    def run(self, feed: Feed) -> None:
        said = ""
        while not feed.wait(0):
            consumer = SimpleConsumer(
                self._configuration, self._group, self._topics, await_duration=AWAIT, tls_enable=self._tls
            )
            try:
                consumer.startup()
                self._receive(consumer, feed)
            except Stopped:
                return
            except Exception as error:  # a broker that is away; a consumer that it has forgotten does not come again
                if str(error) != said:
                    said = str(error)
                    logger.warning("no messages: %s", said)
                feed.wait(PAUSE)
            finally:
                with suppress(Exception):
                    consumer.shutdown()

    def _receive(self, consumer: SimpleConsumer, feed: Feed) -> None:
        feed.wait(SETTLE)
        while not feed.wait(0):
            messages = consumer.receive(MESSAGES, self._invisible)
            for message in messages:
                feed.put([message.body], f"rocketmq:{message.topic}")
            feed.flush()
            for message in messages:
                consumer.ack(message)


class Target:
    """A producer for one topic."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        configuration, tls = _client(options)
        self._topic: str = options["topic"]
        self._producer = Producer(configuration, (self._topic,), tls_enable=tls)
        self._producer.startup()

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> Sequence[Answer]:
        return [self._answer(sent) for sent in [self._send(alert) for alert in alerts]]

    def _send(self, alert: Mapping[str, Any]) -> Future[Any] | Exception:
        message = Message()
        message.topic, message.keys = self._topic, alert["alert_id"]
        message.body = json.dumps(alert, default=str).encode()
        try:
            return self._producer.send_async(message)
        except Exception as error:
            return error

    def _answer(self, sent: Future[Any] | Exception) -> Answer:
        try:
            if isinstance(sent, Exception):
                raise sent
            return Answer(Verdict.TAKEN, str(sent.result(SEND).message_id))
        except Exception as error:
            return Answer(Verdict.LATER, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        self._producer.shutdown()
