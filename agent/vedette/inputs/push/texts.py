"""A record's text and its names: what a log line holds, under names that rules know. Pure.

A text that is a JSON object gives its own fields. One with a syslog header gives the journal's fields
(``SYSLOG_IDENTIFIER MESSAGE _HOSTNAME _PID``), from which ``decode`` knows the program and reads its message. Any other
is ``message``. Names of OpenTelemetry and Loki that have another one in ECS get that; Sigma's names follow from it
(``decode/aliases.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vedette.decode import syslog
from vedette.decode.values import from_strict
from vedette.inputs.push.pieces import few

_SYSLOG = re.compile(r"<\d{1,3}>|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* \S+ \S+: ")
"""How a text begins that may have a syslog header."""

ECS: Mapping[str, str] = {
    "client.address": "client.ip",
    "code.function.name": "log.origin.function",
    "container.image.tags": "container.image.tag",
    "deployment.environment": "service.environment",
    "deployment.environment.name": "service.environment",
    "destination.address": "destination.ip",
    "enduser.id": "user.name",
    "event.name": "event.action",
    "exception.message": "error.message",
    "exception.stacktrace": "error.stack_trace",
    "exception.type": "error.type",
    "host.arch": "host.architecture",
    "http.method": "http.request.method",
    "http.status_code": "http.response.status_code",
    "http.target": "url.original",
    "http.url": "url.original",
    "http.user_agent": "user_agent.original",
    "k8s.cluster.name": "orchestrator.cluster.name",
    "k8s.container.name": "kubernetes.container.name",
    "k8s.deployment.name": "kubernetes.deployment.name",
    "k8s.namespace.name": "kubernetes.namespace",
    "k8s.node.name": "kubernetes.node.name",
    "k8s.pod.name": "kubernetes.pod.name",
    "k8s.pod.uid": "kubernetes.pod.uid",
    "net.host.name": "url.domain",
    "net.peer.ip": "source.ip",
    "net.peer.port": "source.port",
    "network.peer.address": "source.ip",
    "network.peer.port": "source.port",
    "os.description": "host.os.full",
    "os.name": "host.os.name",
    "os.type": "host.os.type",
    "os.version": "host.os.version",
    "process.command_args": "process.args",
    "process.executable.name": "process.name",
    "process.executable.path": "process.executable",
    "process.owner": "user.name",
    "process.parent_pid": "process.parent.pid",
    "server.address": "destination.domain",
    "service.instance.id": "service.node.name",
    "source.address": "source.ip",
    "thread.id": "process.thread.id",
    "thread.name": "process.thread.name",
    "url.full": "url.original",
    # The syslog receiver's
    "appname": "SYSLOG_IDENTIFIER",
    "hostname": "_HOSTNAME",
    "proc_id": "_PID",
}
"""OpenTelemetry's names (semantic conventions, also before 1.21), and what the same is called in ECS."""

LABELS: Mapping[str, str] = {
    **{name.replace(".", "_"): ecs for name, ecs in ECS.items() if "." in name},
    "container": "kubernetes.container.name",
    "detected_level": "log.level",
    "filename": "log.file.path",
    "host": "host.name",
    "host_name": "host.name",
    "hostname": "host.name",
    "instance": "host.name",
    "level": "log.level",
    "namespace": "kubernetes.namespace",
    "node_name": "kubernetes.node.name",
    "nodename": "host.name",
    "pod": "kubernetes.pod.name",
    "service_name": "service.name",
    "syslog_identifier": "SYSLOG_IDENTIFIER",
}
"""Labels of Loki, which have no dots."""


def named(fields: dict[str, Any], names: Mapping[str, str] = ECS) -> dict[str, Any]:
    """``fields`` under their names in ECS; one whose new name is taken keeps its own."""
    if fields.keys().isdisjoint(names.keys()):
        return fields
    result: dict[str, Any] = {}
    for name, value in fields.items():
        other = names.get(name, name)
        result[name if other != name and (other in fields or other in result) else other] = value
    return result


def of_text(text: str) -> dict[str, Any]:
    """The fields of a record's text."""
    first = text[:1]
    if first == "{":
        if not few(text):
            return {"message": text}
        try:
            value = from_strict(text.encode())
        except ValueError:
            return {"message": text}
        return value if isinstance(value, dict) else {"message": text}
    if (first == "<" or first.isupper() or first.isdigit()) and _SYSLOG.match(text):
        raw = text.encode("utf-8", "replace")
        header = syslog.parse(raw, 0, None)
        if header is not None and header.app:
            message = raw[header.message_start :].decode("utf-8", "replace")
            fields = {"MESSAGE": message, "SYSLOG_IDENTIFIER": header.app}
            for name, value in (("_HOSTNAME", header.field("hostname")), ("_PID", header.field("pid"))):
                if value:
                    fields[name] = str(value)
            return fields
    return {"message": text}
