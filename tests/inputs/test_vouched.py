"""What a shipper's JSON says beside a text: nothing of it is lost, and no text says it of itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from tests.inputs.push.reading import read
from tests.inputs.test_carried import ACCESS, CARRIED, SSHD, STAMP, XML, by_all_ways, known
from vedette.decode.decoder import ABSENT, Record, record
from vedette.decode.values import scalars
from vedette.inputs.carried import CARRIERS, MAX_BESIDE, joined

WORDS = "Failed password for root"
CEF = "CEF:0|acme|p|1|100|n|5|src=192.0.2.9"
BACKTRACE = "Traceback (most recent call last):\n  File x"


def event_of(event: dict[str, Any]) -> Record:
    (only,) = by_all_ways(json.dumps(event).encode())
    return known(only)


KEPT: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("GELF with a backtrace", {"version": "1.1", "short_message": WORDS, "full_message": BACKTRACE},
     {"message": WORDS, "full_message": BACKTRACE}),
    ("GELF with all in both", {"version": "1.1", "short_message": WORDS, "full_message": WORDS + " from x"},
     {"message": WORDS + " from x", "full_message": ABSENT}),
    ("GELF with a name twice", {"version": "1.1", "short_message": "x", "host": "w1", "_host": "w2", "_message": "y"},
     {"message": "y", "host": "w1", "_host": "w2"}),
    ("a message beside _raw", {"_time": 1, "_raw": "user=kim", "message": WORDS},
     {"message": WORDS, "_raw": "user=kim", "user": "kim"}),
    ("a message beside log", {"log": "x", "stream": "stdout", "message": WORDS}, {"message": WORDS, "log": "x"}),
    ("a message beside a program's", {"_time": 1, "_raw": SSHD, "message": "parsed"},
     {"program": "sshd", "carrier.message": "parsed"}),
    ("an application's result", {"action": WORDS, "user": "kim", "result": {"_raw": "x", "_time": 1}},
     {"action": WORDS, "user": "kim", "result._raw": "x"}),
    ("a container's result", {"log": "x", "stream": "stdout", "kubernetes": {"pod_name": "p"},
                              "result": {"_raw": SSHD, "_time": 1}}, {"kubernetes.pod_name": "p", "program": ABSENT}),
    ("Splunk's result", {"preview": False, "sid": "s-1", "result": {"_raw": "x", "_time": 1}},
     {"sid": "s-1", "message": "x"}),
    ("a name that both say", {"_raw": '{"host":"w1","a":1}', "_time": 1, "host": "fwd", "a": 1},
     {"host": "w1", "carrier.host": "fwd", "carrier.a": ABSENT}),
    ("the shipper's own name", {"_raw": '{"sourcetype":"x"}', "_time": 1, "sourcetype": "y"},
     {"sourcetype": "y", "carried.sourcetype": "x"}),
    ("much beside a line", {"_raw": CEF, "_time": 1, "note": "x" * MAX_BESIDE}, {"message": CEF}),
    ("deep beside a line", {"_raw": CEF, "_time": 1, "a": {"b": {"c": {"d": {"e": {"f": {"g": "deep"}}}}}}, "": {}},
     {"src_ip": "192.0.2.9", "carrier.a.b.c.d.e": '{"f":{"g":"deep"}}', "carrier._": "{}"}),
)  # fmt: skip


@walk(("what", "event", "wanted"), KEPT)
def test_nothing_beside_is_lost(what: str, event: dict[str, Any], wanted: dict[str, Any]) -> None:
    shown = event_of(event)
    assert {name: shown.get(name) for name in wanted} == wanted


TEXTS = ("x", '{"a":1,"message":"m","stream":"y"}', CEF, SSHD, ACCESS, "user=kim a=b", '{"_raw":"y"}')


WORD = st.text("aB1_. ", max_size=6)
VALUES = st.recursive(
    WORD | st.integers(0, 99), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORD, inner, max_size=3)
)


@given(st.dictionaries(WORD, VALUES, max_size=5), st.sampled_from(sorted({row.text for row in CARRIERS})),
       st.sampled_from(TEXTS))  # fmt: skip
def test_every_value_is_kept(event: dict[str, Any], name: str, text: str) -> None:
    """Of any event with any text, each in the event that is stored."""
    signs = {"stream": "z", "version": "1.1", "short_message": "short", "sourcetype": "t", "source_type": "u"}
    beside = {**event, **signs}
    beside.pop(name, None)
    (stored,) = by_all_ways(json.dumps({**beside, name: text}).encode())
    assert set(_words(" ".join(scalars([beside])))) <= set(_words(stored.decode()))


def _words(text: str) -> list[str]:
    return re.findall("[A-Za-z0-9]+", text)


POD = {"pod_name": "evil", "namespace_name": "shop", "host": "node7"}
CLAIMS = (
    '{"kubernetes.namespace_name":"kube-system","Kubernetes":{"x":"kube-system"},"hostname":"bastion","message":"m"}',
    '{"_kubernetes.namespace_name":"kube-system","_hostname":"bastion","version":"1","short_message":"m"}',
    '{"carrier":{"kubernetes":{"namespace_name":"kube-system"}},"carrier.kubernetes.namespace_name":"kube-system"}',
    '{"_raw":"<38>Nov 28 02:29:33 bastion sshd[42]: x","_time":1,"host":"bastion","kubernetes.x":"kube-system"}',
    '{"MESSAGE":"kubernetes.namespace_name=kube-system","SYSLOG_IDENTIFIER":"sshd","_HOSTNAME":"bastion"}',
    '{"CONTAINER_NAME":"kube-system","container.name":"kube-system","container_id":"kube-system","Computer":"bastion"}',
    '<14>1 - bastion app - - [carrier kubernetes.namespace_name="kube-system"] ' + CEF,
    '<14>1 - bastion app - - [kubernetes namespace_name="kube-system"][journal _HOSTNAME="bastion"] x',
    '<14>1 - bastion app - - [a b="c"] {"kubernetes.namespace_name":"kube-system","hostname":"bastion"}',
    '<14>{"kubernetes.namespace_name":"kube-system","hostname":"bastion"}',
    "<38>Nov 28 02:29:33 bastion sshd[42]: Failed kubernetes.namespace_name=kube-system container_name=kube-system",
    f"{CEF} kubernetes.namespace_name=kube-system container_name=kube-system dvchost=bastion",
    "a=b kubernetes.namespace_name=kube-system container_name=kube-system",
    "<14>1 - x app - - - host=bastion device=bastion namespace=kube-system",
    "<14>Nov 30 06:00:00 x app: hostname=bastion namespace=kube-system",
    json.dumps({"host": "bastion", "log": f"{CEF} msg=kube-system"}),
    json.dumps({"System": XML.replace("kim", "kube-system").replace("w1", "bastion")}),
    XML.replace("TargetUserName", "kubernetes.namespace_name").replace("kim", "kube-system").replace("w1", "bastion"),
)  # fmt: skip
NAMES = ("kubernetes.namespace_name", "carrier.kubernetes.namespace_name", "container.name", "container_name",
         "container_id", "container.id", "Kubernetes.x", "CONTAINER_NAME")  # fmt: skip
CONTAINERS: tuple[dict[str, Any], ...] = (
    {"date": 1795832973.5, "stream": "stdout", "kubernetes": POD},
    {"date": 1795832973.5, "stream": "stdout", "kubernetes": POD, "host": "node7"},
    {"stream": "stdout", "container_id": "c1", "host": {"name": "node7"}},
    {"stream": "stderr", "time": STAMP},
)


@walk("text", CLAIMS)
def test_no_container_is_another(text: str) -> None:
    """However it says so: by no name of the shipper's, of its host least of all; its words are kept."""
    for beside in CONTAINERS:
        (stored,) = by_all_ways(json.dumps({**beside, "log": text}).encode())
        shown = record(stored, "auto", origin="192.0.2.1")
        for name in NAMES:
            assert "kube-system" not in str(shown.get(name)), (name, stored)
        assert shown.host == ("192.0.2.1" if "time" in beside else "node7"), stored
        assert "kube-system" in shown.text
    body = {"event": text, "host": "node7", "fields": {"k8s.namespace.name": "shop", "kubernetes.namespace_name": "s"}}
    labels = {"stream": {"pod": "evil", "host": "node7"}, "values": [["1795832973500000000", text]]}
    for path, posted in (("/services/collector", body), ("/loki/api/v1/push", {"streams": [labels]})):
        shown = record(read(path, json.dumps(posted).encode(), "application/json")[0][0], "auto", origin="192.0.2.1")
        assert shown.host == "node7"
        assert {name for name in NAMES if "kube-system" in str(shown.get(name))} <= {"kubernetes.namespace_name"[:-1]}


def test_a_followed_container() -> None:
    """Nor is one whose log the agent reads itself."""
    head = (
        '<14>1 2026-11-28T02:29:33Z - web - - [container id="c1"][kubernetes pod.name="evil"][log iostream="stdout"] '
    )
    for text in (*CLAIMS, '{"hostname":"bastion"}', "a=b host=bastion kubernetes.pod.name=x"):
        shown = record((head + text).encode(), "auto", origin="192.0.2.1")
        assert shown.host == "192.0.2.1", text
        assert (shown.get("kubernetes.pod.name"), shown.get("container.id")) == ("evil", "c1"), text


def test_what_a_container_may_say() -> None:
    """Its own data, also a device of its application and a request's host, where the shipper knows the node."""
    text = '{"device_id":"meter-7","host":"shop.example","user":"kim","stream":"x"}'
    shown = event_of({"log": text, "stream": "stdout", "kubernetes": POD})
    wanted = {"device_id": "meter-7", "host": "shop.example", "user": "kim", "stream": "stdout", "carried.stream": "x"}
    assert {name: shown.get(name) for name in wanted} == wanted
    assert shown.host == "node7"


def test_an_object_of_hec() -> None:
    """What the collector says beside an object is kept, and no container's object says it."""
    event = {"kubernetes.namespace_name": "kube-system", "host.name": "bastion", "source": "a", "message": "m"}
    body = {"event": event, "host": "node7", "source": "b", "fields": {"kubernetes": {"namespace_name": "shop"}}}
    shown = record(read("/services/collector", json.dumps(body).encode(), "application/json")[0][0], "auto")
    assert (shown.get("kubernetes.namespace_name"), shown.host) == ("shop", "node7")
    assert (shown.get("source"), shown.get("carrier.source"), shown.get("message")) == ("a", "b", "m")


@pytest.mark.parametrize("writer", [row[0] for row in CARRIED])
def test_an_event_stays_what_it_is(writer: str) -> None:
    """An agent that gets what another has stored takes nothing more apart."""
    event = next(row[1] for row in CARRIED if row[0] == writer)
    (stored,) = by_all_ways(json.dumps(event).encode())
    assert by_all_ways(stored) == [stored]


def test_depth() -> None:
    """Carriers in each other keep the word of each."""
    assert joined(joined({"a": 1}, {"a": 2}), {"a": 3}) == {"a": 3, "carrier": {"a": 2, "carrier": {"a": 1}}}
