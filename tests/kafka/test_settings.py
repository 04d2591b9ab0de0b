"""Kafka's settings: each mistake is reported with its key, and passwords stay in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.config.read import ConfigError, parse
from vedette.kafka import settings
from vedette.kafka.settings import KafkaSettings

RULES = '[rules]\npaths = ["r"]\n'
GOOD = RULES + '[[input]]\ntype = "kafka"\nname = "k"\nbrokers = ["h:9093", "[::1]:9093"]\ntopics = ["t"]\n'
INSTALLED = pytest.mark.skipif(settings.find_spec("confluent_kafka") is None, reason="needs confluent-kafka")


@INSTALLED
def test_good() -> None:
    """TLS and the host's authorities are what is used where nothing is said."""
    (made,) = parse(GOOD).input
    assert isinstance(made, KafkaSettings)
    assert (made.servers, made.tls, made.sasl) == ("h:9093,[::1]:9093", True, "none")


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        ('brokers = ["h"]', "].brokers: expects"),
        ('topics = ["a b"]', "].topics: expects names, or expressions"),
        ('topics = ["^a("]', "not a regular expression"),
        ('group = ""', "].group: must not be empty"),
        ('cert_file = "c"', "]: cert_file and key_file go together"),
        ('tls = false\nca_file = "c"', "].tls: is false"),
        ('sasl = "scram-sha-512"\nusername = "u"', "].sasl: scram-sha-512 needs username and password_file"),
        ('username = "u"', "].sasl: missing"),
        ('tls = false\nsasl = "plain"\nusername = "u"\npassword_file = "p"', "plain without tls"),
        ('sasl = "gssapi"', "expects one of 'none', 'plain'"),
        (f"headers = {['h'] * 17}", "at most 16"),
    ],
)
def test_mistakes(more: str, mistake: str) -> None:
    """Each is reported with its key and what to do."""
    key = more.partition(" ")[0]
    text = "".join(line + "\n" for line in GOOD.splitlines() if not line.startswith(key + " "))
    with pytest.raises(ConfigError) as caught:
        parse(text + more)
    assert any(mistake in one for one in caught.value.mistakes), caught.value.mistakes


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that installs it is named."""
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r'pip install "vedette\[kafka\]"'):
        parse(GOOD)


@INSTALLED
def test_files(tmp_path: Path) -> None:
    """The password is the first line of its file; a file that cannot be used is named."""
    from vedette.kafka.client import configuration

    password = tmp_path / "password"
    given = KafkaSettings(("h:1",), sasl="scram-sha-512", username="u", password_file=password)
    password.write_text("hush\nmore\n")
    assert configuration(given, "c")["sasl.password"] == "hush"
    password.write_text("")
    with pytest.raises(OSError, match="password: is empty"):
        configuration(given, "c")
    with pytest.raises(FileNotFoundError, match="none"):
        configuration(KafkaSettings(("h:1",), ca_file=tmp_path / "none"), "c")
