"""No sink, nor the uplink, sends to where an input of the same agent takes in: what can be seen is refused, no more."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.differences import walk
from vedette.config import loops
from vedette.config.read import ConfigError, parse
from vedette.delivery.topics import agent_topic

SYSLOG = 'name = "in"\ntype = "syslog"\n'
TLS = 'tls = { address = "0.0.0.0:6514", cert = "/c", key = "/k" }'
HTTP = 'name = "in"\ntype = "http"\n'
KAFKA = 'name = "in"\ntype = "kafka"\ntls = false\n'
FILE = 'name = "in"\ntype = "file"\n'
MQTT = 'name = "in"\ntype = "mqtt"\n'
UPLINK = '[agent]\nid = "a1"\nfleet = "f1"\n[uplink]\ntype = "mqtt"\n[broker]\nurl = "mqtts://localhost"\n'
HOST = socket.gethostname()


def refused(text: str) -> list[str]:
    try:
        parse(text, "v.toml")
    except ConfigError as error:
        return [line.removeprefix("v.toml: ") for line in error.mistakes]
    return []


def of(sink: str, item: str) -> list[str]:
    return refused(f'[[input]]\n{item}\n[[sink]]\nname = "out"\n{sink}\n')


def syslog(address: str, transport: str = "udp") -> str:
    return f'type = "syslog"\naddress = "{address}"\ntransport = "{transport}"'


def web(url: str, more: str = "") -> str:
    return f'type = "webhook"\nurl = "{url}"\n{more}'


def topic(brokers: str, name: str) -> str:
    return f'type = "kafka"\nbrokers = [{brokers}]\ntopic = "{name}"\ntls = false'


@walk(
    ("key", "sink", "item"),
    [
        ("address", syslog("127.0.0.1:514"), f'{SYSLOG}udp = "127.0.0.1:514"'),
        ("address", syslog("localhost:514", "tcp"), f'{SYSLOG}udp = ":1"\ntcp = "127.0.0.1:514"'),
        ("address", syslog("localhost:514", "tcp"), f'{SYSLOG}tcp = "[::1]:514"'),
        ("address", syslog("127.0.0.9:514"), f'{SYSLOG}udp = ":514"'),
        ("address", syslog("127.0.0.9:514"), f'{SYSLOG}udp = "[::]:514"'),
        ("address", syslog("[::ffff:127.0.0.1]:514"), f'{SYSLOG}udp = "0.0.0.0:514"'),
        ("address", syslog("0.0.0.0:514"), f'{SYSLOG}udp = "localhost:514"'),
        ("address", syslog(f"{HOST}:514"), f'{SYSLOG}udp = "0.0.0.0:514"'),
        ("address", syslog("127.0.0.1:6514", "tls"), SYSLOG + TLS),
        ("url", web("http://127.0.0.1:8088/services/collector"), f'{HTTP}tcp = "0.0.0.0:8088"'),
        ("url", web("https://localhost:6514/"), HTTP + TLS),
        ("url", 'type = "otlp"\nurl = "http://localhost/v1/logs"', f'{HTTP}tcp = "0.0.0.0:80"'),
        ("topic", topic('"b:9092", "c:9092"', "alerts"), f'{KAFKA}brokers = ["C:9092"]\ntopics = ["x", "alerts"]'),
        ("topic", topic('"127.0.0.1:9092"', "alerts"), f'{KAFKA}brokers = ["localhost:9092"]\ntopics = ["^al"]'),
        ("path", 'type = "file"\npath = "/var/log/none/a.log"', f'{FILE}paths = ["/var/log/none/*.log"]'),
        ("path", 'type = "file"\npath = "/var/log/none/a.log"', f'{FILE}paths = ["/var/log/none/a.log.*"]'),
    ],
)
def test_a_sink_that_comes_back(key: str, sink: str, item: str) -> None:
    """One line says which sink, which input and what to do."""
    (line,) = of(sink, item)
    assert line.startswith(f"sink[0].{key}: ")
    assert "is where input in takes in" in line
    assert "send alerts elsewhere" in line


@walk(
    ("sink", "item"),
    [
        (syslog("127.0.0.1:514"), f'{SYSLOG}udp = "127.0.0.1:515"'),
        (syslog("127.0.0.1:514", "tcp"), f'{SYSLOG}udp = "127.0.0.1:514"'),
        (syslog("127.0.0.1:514", "tls"), f'{SYSLOG}tcp = "127.0.0.1:514"'),
        (syslog("127.0.0.2:514"), f'{SYSLOG}udp = "127.0.0.1:514"'),
        (syslog("[::1]:514"), f'{SYSLOG}udp = "0.0.0.0:514"'),
        (syslog("203.0.113.7:514"), f'{SYSLOG}udp = "0.0.0.0:514"'),
        (syslog("239.1.1.1:514"), f'{SYSLOG}udp = "0.0.0.0:514"'),
        (syslog("siem.example.org:514"), f'{SYSLOG}udp = "0.0.0.0:514"'),
        (web("http://siem.example.org:8088/"), f'{HTTP}tcp = "0.0.0.0:8088"'),
        (web("https://127.0.0.1:8088/"), f'{HTTP}tcp = "0.0.0.0:8088"'),
        (web("http://127.0.0.1:8088/", 'proxy = "http://proxy:3128"'), f'{HTTP}tcp = "0.0.0.0:8088"'),
        ('type = "webhook"\nurl_file = "/u"', f'{HTTP}tcp = "0.0.0.0:443"'),
        (topic('"b:9092"', "alerts"), f'{KAFKA}brokers = ["c:9092"]\ntopics = ["alerts"]'),
        (topic('"b:9092"', "alerts"), f'{KAFKA}brokers = ["b:9092"]\ntopics = ["alert", "^logs"]'),
        ('type = "file"\npath = "/var/log/none/alerts"', f'{FILE}paths = ["/var/log/none/*.log"]'),
        ('type = "file"\npath = "/var/log/none/.a.log"', f'{FILE}paths = ["/var/log/none/*.log"]'),
        ('type = "file"\npath = "/var/log/own-logs/a.log"', f'{FILE}paths = ["/var/**/logs/*.log"]'),
        ('type = "command"\ncommand = ["/bin/true"]\n[agent]\nallow_commands = ["/bin/true"]', f'{SYSLOG}udp = ":514"'),
    ],
)
def test_one_that_does_not(sink: str, item: str) -> None:
    assert of(sink, item) == []


@walk(
    ("topics", "takes"),
    [
        ("#", True),
        ("vedette/#", True),
        ("vedette/v1/f1/a1/alerts/#", True),
        ("+/+/+/+/alerts", True),
        ("$share/g/vedette/v1/+/a1/alerts", True),
        ("plant/#", False),
        ("vedette/v1/f1/a2/alerts", False),
        ("vedette/v1/+/alerts", False),
        ("+", False),
        ("$share/g", False),
    ],
)
def test_topics_of_the_uplink(topics: str, takes: bool) -> None:
    """An MQTT input takes in no alerts of the uplink at the same broker; at another it may."""
    lines = refused(f'{UPLINK}[[input]]\n{MQTT}topics = ["x", "{topics}"]')
    assert [line.partition(",")[0] for line in lines] == [
        f"input[0].topics: {topics!r} takes in {agent_topic('f1', 'a1', 'alerts')}"
    ] * takes
    same = 'broker = "p"\n[broker.p]\nurl = "mqtts://127.0.0.1:8883"\n'
    assert len(refused(f'{UPLINK}[[input]]\n{MQTT}topics = ["{topics}"]\n{same}')) == takes
    assert refused(f'{UPLINK}[[input]]\n{MQTT}topics = ["{topics}"]\n{same.replace("8883", "1883")}') == []
    assert refused(f'{UPLINK.replace("mqtt", "none", 1)}[[input]]\n{MQTT}topics = ["{topics}"]') == []


@walk(
    ("host",),
    [
        ("127.1",), ("0x7f000001",), ("2130706433",), ("0177.0.0.1",), ("127.0.0.1",), ("0",), ("0.0.0.0",), ("[::]",),
        ("[::1]",), ("[0:0::1]",), ("[::ffff:127.0.0.1]",), ("[::ffff:7f00:1]",), ("[::ffff:0.0.0.0]",), ("localhost",),
        ("localhost.",), ("LOCALHOST",), ("a.localhost",), ("ip6-localhost",), ("IP6-LOCALHOST",), (HOST,),
    ],
)  # fmt: skip
def test_each_name_of_this_host(host: str) -> None:
    """However it is written, what is sent there comes to an input that listens at all addresses."""
    assert len(of(syslog(f"{host}:514"), f'{SYSLOG}udp = "[::]:514"')) == 1
    assert len(of(web(f"http://{host}:8088/x"), f'{HTTP}tcp = "[::]:8088"')) == 1
    assert len(of(topic(f'"{host}:9092"', "alerts"), f'{KAFKA}brokers = ["127.0.0.1:9092"]\ntopics = ["alerts"]')) == 1
    at = f'broker = "p"\n[broker.p]\nurl = "mqtts://{host}:8883"\n'
    assert len(refused(f'{UPLINK}[[input]]\n{MQTT}topics = ["#"]\n{at}')) == 1


def test_no_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an agent starts hangs on no answer of one: another name is another host."""
    asked, resolver = list[str](), socket.getaddrinfo

    def noted(host: str, port: None, flags: int = 0) -> Any:
        if not flags & socket.AI_NUMERICHOST and host != HOST.lower():
            asked.append(host)
        return resolver(host, port, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    kafka = f'{KAFKA}brokers = ["broker.example:9092"]\ntopics = ["alerts"]'
    assert len(of(topic('"Broker.example.:9092"', "alerts"), kafka)) == 1
    assert of(topic('"broker.example:9093"', "alerts"), kafka) == []
    assert of(topic('"other.example:9092"', "alerts"), kafka) == []
    assert of(syslog("siem.example:514"), f'{SYSLOG}udp = ":514"') == []
    assert asked == []


def test_a_link_to_the_folder(tmp_path: Path) -> None:
    """The sink's file is where its links lead."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to("logs")
    sink = f'type = "file"\npath = "{tmp_path}/link/a.log"'
    assert len(of(sink, f'{FILE}paths = ["{tmp_path}/logs/*.log"]')) == 1


def test_where_a_socket_can_be_bound_to_any_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ip_nonlocal_bind``, as beside keepalived: another host's address is not taken for this one's."""
    monkeypatch.setattr(loops, "_binds", lambda address: True)
    assert of(syslog("203.0.113.7:514"), f'{SYSLOG}udp = "0.0.0.0:514"') == []
    assert len(of(syslog("127.0.0.9:514"), f'{SYSLOG}udp = "0.0.0.0:514"')) == 1


def test_an_address_of_this_host() -> None:
    """One that a socket can be bound to, though it is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.7", 9))
        except OSError:
            pytest.skip("this host has no address but loopback")
        address = probe.getsockname()[0]
    assert len(of(syslog(f"{address}:514"), f'{SYSLOG}udp = "0.0.0.0:514"')) == 1
    assert of(syslog(f"{address}:514"), f'{SYSLOG}udp = "127.0.0.1:514"') == []
