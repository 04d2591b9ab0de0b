"""Find alerts that would come back: a sink, or the uplink, that sends to where an input of the same agent takes in.
Such an alert is an event, which makes an alert, without end.

Seen is what the configuration says: addresses of this host, topics of the same broker, the file of a sink. What comes
back by another program (rsyslog, a proxy, ``logger`` in a command) is not. Names but those of LOCAL and the host's own
are not looked up.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import product
from urllib.parse import urlsplit

from vedette.config.settings import Config
from vedette.inputs.settings import FileInput, HttpInput, InputSettings, KafkaInput, MqttInput, SyslogInput
from vedette.model.settings import split_address
from vedette.mqtt.filters import Filters
from vedette.sinks.base import SinkSettings
from vedette.system.within import resolved

Address = IPv4Address | IPv6Address

LOOPBACK = frozenset(map(ip_address, ("127.0.0.1", "::1")))
LOCAL = frozenset(("localhost", "ip6-localhost", "ip6-loopback"))
"""Names of this host (RFC 6761, Debian's hosts), whatever the resolver knows."""
ANY = frozenset(map(ip_address, ("0.0.0.0", "::")))
NOBODYS = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses that no host has (RFC 5737, RFC 3849)."""
PORTS = {"http": "80", "https": "443", "mqtt": "1883", "mqtts": "8883"}
"""Of URLs that name none."""
ALERTS = "vedette/v1/{}/{}/alerts"
"""``delivery.topics.agent_topic``, which is of a later room."""


def mistakes(config: Config) -> Iterator[str]:
    """Yield a line for each sink and input, or MQTT input, of which alerts come back."""
    for i, sink in enumerate(config.sink):
        for item in config.input:
            if key := _comes_back(sink, item):
                yield (
                    f"sink[{i}].{key}: {sink.to} is where input {item.name} takes in: each alert would be an event"
                    " again, without end; send alerts elsewhere, or have the input leave that out"
                )
    if config.uplink.type == "mqtt":
        broker = _of_url(config.uplink.broker.url)
        topic = ALERTS.format(config.agent.fleet, config.agent.id)
        for i, item in enumerate(config.input):
            if isinstance(item, MqttInput):
                for wanted in item.topics:
                    if Filters([wanted]).cover(topic) and _same(_of_url(item.broker.url), broker):
                        yield (
                            f"input[{i}].topics: {wanted!r} takes in {topic}, where the uplink sends alerts: each would"
                            " be an event again, without end; name topics without it"
                        )


def _comes_back(sink: SinkSettings, item: InputSettings) -> str:
    """Return the key of ``sink`` by which it sends to where ``item`` takes in; empty: it does not."""
    from vedette.sinks.settings import FileSink, HttpSink, KafkaSink, MqttSink, SyslogSink

    match sink, item:
        case SyslogSink(), SyslogInput():
            listens = {"udp": item.udp, "tcp": item.tcp, "tls": item.tls.address if item.tls else ""}[sink.transport]
            return "address" if _reaches(*split_address(sink.address), listens) else ""
        case HttpSink(), HttpInput() if sink.url and not sink.proxy:
            url = urlsplit(sink.url)
            listens = item.tcp if url.scheme == "http" else item.tls.address if item.tls else ""
            return "url" if _reaches(url.hostname or "", url.port or int(PORTS[url.scheme]), listens) else ""
        case KafkaSink(), KafkaInput() if any(_names(wanted, sink.topic) for wanted in item.topics):
            pairs = product(map(_broker, sink.brokers), map(_broker, item.brokers))
            return "topic" if any(_same(*pair) for pair in pairs) else ""
        case MqttSink(), MqttInput() if Filters(item.topics).cover(sink.topic):
            return "topic" if _same(_of_url(sink.broker.url), _of_url(item.broker.url)) else ""
        case FileSink(), FileInput() if sink.path:
            from vedette.inputs.files import belongs  # and its decompressors

            places = (f"{path}{end}" for path in (sink.path, resolved(sink.path)) for end in ("", ".1"))
            return "path" if any(belongs(place, item.paths) for place in places) else ""
    return ""


def _reaches(host: str, port: int, listens: str) -> bool:
    """Whether what is sent to ``host`` and ``port`` arrives at ``listens``, a place of this host; empty: none."""
    if not listens or port != split_address(listens)[1]:
        return False
    targets, bound = _addresses(host), _addresses(split_address(listens)[0])
    if targets & ANY:
        targets |= LOOPBACK  # where the kernel sends what is sent to none
    if bound & ANY:
        return any(_is_own(target) for target in targets if target.version == 4 or ip_address("::") in bound)
    return bool(targets & bound)


def _same(broker: tuple[str, str], second: tuple[str, str]) -> bool:
    """Whether two brokers, host and port of each, are one."""
    (host, port), (second_host, second_port) = broker, second
    return port == second_port and (host == second_host or bool(_of_broker(host) & _of_broker(second_host)))


def _of_broker(host: str) -> frozenset[Address]:
    addresses = _addresses(host)
    is_own = host == socket.gethostname().lower() or addresses & ANY or any(map(_is_own, addresses))
    return addresses | LOOPBACK if is_own else addresses


def _addresses(host: str) -> frozenset[Address]:
    """Return the addresses of ``host``, as far as no name server is asked for another's: that an agent starts must not
    depend on one."""
    name = host.lower().rstrip(".")
    if name in LOCAL or name.endswith(".localhost"):
        return LOOPBACK
    flags = 0 if name == socket.gethostname().lower() else socket.AI_NUMERICHOST
    try:
        answers = socket.getaddrinfo(name, None, flags=flags)
        addresses = {ip_address(str(where[0])) for *_, where in answers}
    except (OSError, ValueError):  # unknown, or no name
        return frozenset()
    return frozenset(getattr(address, "ipv4_mapped", None) or address for address in addresses)


def _is_own(address: Address) -> bool:
    """Whether ``address`` is one of this host: then a socket can be bound to it. Where it can be to any, as
    ``ip_nonlocal_bind`` of the kernel has it, only those of loopback are known."""
    if address.is_loopback or address.is_multicast:
        return address.is_loopback
    return _binds(str(address)) and not _binds(NOBODYS[address.version])


def _binds(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _broker(place: str, scheme: str = "") -> tuple[str, str]:
    """Return host and port of a broker at ``place``; ``scheme``: of its URL."""
    host, _, port = place.rpartition(":") if re.search(r":\d+$", place) else (place, "", PORTS.get(scheme, ""))
    return host.strip("[]").lower().rstrip("."), port


def _of_url(url: str) -> tuple[str, str]:
    scheme, _, place = url.partition("://")
    return _broker(place, scheme)


def _names(wanted: str, topic: str) -> bool:
    """Whether a topic of a Kafka input, or its expression, is ``topic``."""
    return re.match(wanted, topic) is not None if wanted.startswith("^") else wanted == topic
