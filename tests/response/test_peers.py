"""Whom a block would cut this agent off from: every host that its configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vedette.config.read import load
from vedette.runtime.options.response import sink_of

CONFIG = """
[agent]
id = "a"
[[input]]
type = "mqtt"
topics = ["t"]
broker = "plant"
[[input]]
type = "kafka"
name = "stream"
brokers = ["192.0.2.2:9092", "[2001:db8::2]:9092"]
topics = ["t"]
tls = false
[uplink]
type = "mqtt"
[broker]
url = "mqtt://broker.example:1884"
[broker.plant]
url = "mqtt://192.0.2.1"
[archive]
url = "s3://bucket/logs"
options_file = "{folder}/options.toml"
[[sink]]
type = "syslog"
name = "siem"
address = "192.0.2.3:6514"
[[sink]]
type = "webhook"
name = "hook"
url_file = "{folder}/url"
proxy = "http://192.0.2.4:3128"
[[sink]]
type = "webhook"
name = "pager"
template = "pagerduty"
token_file = "{folder}/url"
[[sink]]
type = "otlp"
name = "collector"
url = "http://192.0.2.5:4318/v1/logs"
[[sink]]
type = "kafka"
name = "queue"
brokers = ["192.0.2.6:9092"]
topic = "alerts"
tls = false
[response]
enabled = true
"""


def test_who_is_never_blocked(tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text('endpoint = "https://store.example:9000"\n')
    (tmp_path / "url").write_text("https://192.0.2.7/services/secret\n")
    path = tmp_path / "vedette.toml"
    path.write_text(CONFIG.replace("{folder}", str(tmp_path)))

    def opened(_: Any) -> Any:
        raise NotImplementedError  # nothing is opened here

    assert sink_of(load(path), opened).peers == (
        *(f"192.0.2.{number}" for number in range(1, 8)),
        "2001:db8::2",
        "broker.example",
        "events.pagerduty.com",
        "store.example",
    )
