"""Literals of log sources: which there are, when they hold, and that every shape's names are told."""

from __future__ import annotations

import pytest

from tests.differences import walk
from vedette.decode.codecs import CODECS
from vedette.decode.declared import declared
from vedette.decode.formats.table import SHAPES
from vedette.model.event import LogSource
from vedette.plan.witness import witness


def literals(product: str = "", category: str = "", service: str = "") -> set[bytes] | None:
    found = witness(LogSource(product, category, service))
    return None if found is None else set(found.literals)


def test_sources_that_an_event_tells() -> None:
    """A program's name, how a format begins, a name in a JSON object; of several parts the rarest."""
    windows = literals("windows")
    texts = {b"event", b"mswineventlog", *(kind + b"] " for kind in (b"aus", b"auf", b"inf", b"wrn", b"err", b"non"))}
    assert windows == texts | {b'"' + name.lower().encode() + b'"' for name in SHAPES["windows"].names}
    assert literals(service="sudo") == {b"sudo"}
    assert literals(service="okta") == {b'"displaymessage"'}
    assert literals("okta", service="okta") == {b'"displaymessage"'}
    assert literals(service="ldp") == {b"%ldp-", b"-ldp-"}  # %LDP-5-NBRCHG and %MPLS-LDP-5-NBRCHG


@pytest.mark.parametrize("part", [{"service": "syslog"}, {"category": "webserver"}, {"service": "auth"}, {},
                                  {"service": "mosquitto"}])  # fmt: skip
def test_sources_that_nothing_tells(part: dict[str, str]) -> None:
    """What the outermost layer or a facility gives has no text."""
    assert literals(**part) is None


def test_when_it_holds() -> None:
    """Not where the input's own log source gives the part, nor where its codec takes every object for the shape's."""
    wanted = LogSource("windows", "process_creation")
    found = witness(wanted)
    assert found is not None
    own = LogSource(**{LogSource._fields[found.part]: wanted[found.part]})
    assert found.excuses(wanted, CODECS["auto"], LogSource())
    assert found.excuses(wanted, CODECS["syslog"], LogSource("linux", "x", "y"))
    assert not found.excuses(wanted, CODECS["auto"], own)
    assert not found.excuses(wanted, CODECS["windows"], LogSource())
    named = LogSource(service="named")
    found = witness(named)
    assert found is not None
    assert found.excuses(named, CODECS["auto"], LogSource())
    assert not found.excuses(named, CODECS["named"], LogSource())  # a daemon's own log does not name it


EXAMPLES = {
    "windows": [{"winlog": {}}, {"EventID": 1}, {"event_data": {}}, {"Event": {"System": {}}},
                {"System": {}, "EventData": {}}, {"winlog.event_id": 1}, {"winlog.channel": "x"},
                {"event": {"code": "1", "provider": "Microsoft-Windows-Sysmon"}},
                {"event": {"code": "1"}, "host.os.type": "windows"}, {"event.code": "1", "event.module": "sysmon"},
                {"Image": "x", "CommandLine": "x"}, {"NewProcessName": "x"}, {"ScriptBlockText": "x"},
                {"SourceImage": "x", "CallTrace": "x"}],
    "zeek": [{"ts": 1, "id.orig_h": "x", "uid": "C"}, {"ts": 1, "_path": "dns"}, {"ts": 1, "fuid": "F"}],
    "nginx_json": [{"remote_addr": "x", "status": 1, "request": "x"}],
    "caddy": [{"request": {"method": "GET", "uri": "/"}, "status": 1}],
    "traefik": [{"DownstreamStatus": 1, "RequestMethod": "GET"}],
    "kubernetes_audit": [{"auditID": "x", "verb": "x", "apiVersion": "audit.k8s.io/v1"}],
    "opencanary": [{"logtype": 1, "node_id": "x", "logdata": {}}],
    "okta": [{"eventType": "x", "displayMessage": "x", "actor": {}}],
    "suricata": [{"event_type": "x", "flow_id": 1, "timestamp": "x"}],
    "samba_audit": [{"type": "Authentication", "Authentication": {}}],
    "postgresql": [{"error_severity": "LOG", "backend_type": "x"}],
    "client": [{"remote_ip": "x", "srcip": "x"}, {"attr": {"remote": "x"}, "ctx": "conn1"}],
}  # fmt: skip


@walk("shape", sorted(SHAPES))
def test_a_shape_fits_nothing_without_its_names(shape: str) -> None:
    """An object that fits does so no longer when its telling names are taken away."""
    for example in EXAMPLES[shape]:
        assert SHAPES[shape].fits(example)
        assert not SHAPES[shape].fits(_without(example, SHAPES[shape].names))


def _without(value: object, names: tuple[str, ...]) -> dict[str, object]:
    assert isinstance(value, dict)
    return {
        key: _without(inner, names) if isinstance(inner, dict) else inner
        for key, inner in value.items()
        if key not in names
    }


def test_of_a_declared_format() -> None:
    """Its events may belong to what the table says, whatever stands in them: nothing is excused."""
    wanted = LogSource("linux", "", "sshd")
    found = witness(wanted)
    assert found is not None
    made = declared({"name": "x", "regex": "(?P<a>.*)", "logsource": {"product": "linux", "service": "sshd"}})
    assert not found.excuses(wanted, made.codec, LogSource())
