"""A record's place in Kafka as an event's origin: what goes in comes out as fields, and rules match by them."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.decode import kafka
from vedette.decode.decoder import record
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.rules.build import from_text

RULE = """title: T
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {category: any}
detection:
  s: {kafka.topic: audit, kafka.headers.tenant: 'a b'}
  condition: s
level: low
"""


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True),
    st.integers(0, 1 << 31),
    st.none() | st.binary(max_size=300),
    st.dictionaries(st.text(max_size=20), st.binary(max_size=300), max_size=4),
)
def test_there_and_back(topic: str, partition: int, key: bytes | None, headers: dict[str, bytes]) -> None:
    """Whatever bytes a key and headers have; what is long is cut."""
    usable = {name: value for name, value in headers.items() if name.isprintable()}
    found = kafka.fields(kafka.origin(topic, partition, key, usable.items()))
    text = {f"kafka.headers.{name}": value for name, value in usable.items()}
    text |= {} if key is None else {"kafka.key": key}
    expected = {name: value[: kafka.MAX_VALUE].decode("utf-8", "replace") for name, value in text.items()}
    assert found == {"kafka.topic": topic, "kafka.partition": partition, **expected}


@given(st.text())
def test_total(text: str) -> None:
    """Any origin of this kind gives fields."""
    assert "kafka.topic" in kafka.fields(kafka.PREFIX + text)


def test_no_peer() -> None:
    """It is no host, and goes before what the event says of the same name."""
    event = record(b'{"kafka.topic": "forged", "a": 1}', "auto", origin="kafka:audit/3")
    assert (event.get("kafka.topic"), event.host, event.peer, event.get("a")) == ("audit", None, None, 1)


@pytest.mark.parametrize("kernel", [True, False])
def test_rules_match_by_it(kernel: bool) -> None:
    """The same text of two topics is two answers, also when a cache or the native kernel has seen the other."""
    engine = Engine(from_text(RULE), route=False, kernel=kernel, cache=Cache(1 << 20))
    origins = (kafka.origin("audit", 0, None, [("tenant", b"a b")]), kafka.origin("other", 0), kafka.origin("audit", 0))
    for event in (b'{"a": 1}', b"text of a kind"):
        ends = array("I", (len(event) * i for i in range(1, 4)))
        chunk = Chunk("in", "auto", 1, event * 3, ends, origins, array("H", (0, 1, 2)))
        for _ in range(3):
            assert [match.start for match in engine.evaluate(chunk)] == [0]
