"""Lines of a container's output as runtimes write them, each in a line of a file, as events. Pure.

* **CRI** (containerd, CRI-O: Kubernetes' ``/var/log/pods``): ``TIME STREAM TAGS TEXT``; the first of TAGS is ``P``
  for a part of a line, ``F`` for its end (kubernetes/design-proposals-archive, kubelet-cri-logging).
* **Docker** (json-file): ``{"log":"TEXT\\n","stream":STREAM,"time":TIME}``; a part has no newline at its end.

An event is one line of RFC 5424, so that all that is known of syslog holds for it, and its text stands there as the
program wrote it: JSON, audit records and other formats in it are found, and the native kernel learns it. A line of an
access log has the program ``access_log`` where the container's is not one whose messages are read as such:

    <PRI>1 TIME - CONTAINER - - [container …][kubernetes …][log file.path="PATH" iostream="STREAM"] TEXT

PRI says ``info`` for stdout and ``err`` for stderr, of facility ``user``, as Docker's own syslog driver does. Pod and
container are in the file's path, or in that which it links to; of Docker the name is in ``config.v2.json`` beside it. A
line that is in neither format is an event as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import orjson

from vedette.decode import access
from vedette.decode.programs import ACCESS_LOG, PROGRAMS, program_name
from vedette.inputs.multiline import Line
from vedette.system.within import resolved

_CRI = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([PF])(?::\S*)? ?", re.S)
_PRI = {b"stdout": b"<14>1", b"stderr": b"<11>1"}
_POD = re.compile(r"/(?P<namespace>[^_/]+)_(?P<pod>[^_/]+)_(?P<uid>[^_/]+)/(?P<container>[^/]+)/\d+\.log")
_LINK = re.compile(r"/(?P<pod>[^_/]+)_(?P<namespace>[^_/]+)_(?P<container>[^/]+)-(?P<id>[0-9a-f]{64})\.log")
_DOCKER = re.compile(r"/(?P<id>[0-9a-f]{64})/(?P=id)-json\.log")
_ACCESS_LOG = ACCESS_LOG.encode()
_SPECIAL = re.compile(r'["\\\]]')
_UNSAFE = re.compile(r"[^\x21-\x7e]")
MAX_CONFIG = 1 << 20


def about(path: str) -> dict[str, str]:
    """Return what a file's path says, as fields: ``container.id``, ``kubernetes.pod.name`` …; empty where it says
    nothing."""
    parts: dict[str, str] = {}
    real = resolved(path)
    for pattern in (_POD, _LINK, _DOCKER):
        for place in (path, real):
            if match := pattern.search(place):
                parts.update(match.groupdict())
    fields = {"container.id": parts.get("id", ""), "container.name": parts.get("container", "")}
    if "id" in parts and "container" not in parts:
        fields |= _docker(os.path.join(os.path.dirname(real), "config.v2.json"))
    if "pod" in parts:
        fields |= {
            "kubernetes.namespace": parts["namespace"],
            "kubernetes.pod.name": parts["pod"],
            "kubernetes.pod.uid": parts.get("uid", ""),
            "kubernetes.container.name": parts["container"],
        }
    return {name: value for name, value in fields.items() if value}


def _docker(path: str) -> dict[str, str]:
    """Name and image, as dockerd notes them; empty where that cannot be read."""
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            config = orjson.loads(file.read(MAX_CONFIG))
        name = config.get("Name")
        image = (config.get("Config") or {}).get("Image")
    except (OSError, ValueError, AttributeError):
        return {}
    said = {"container.name": name, "container.image.name": image}
    return {field: value.lstrip("/") for field, value in said.items() if isinstance(value, str)}


class Container:
    """Reads the lines of one file."""

    def __init__(self, path: str, fields: Mapping[str, str]) -> None:
        name = fields.get("kubernetes.container.name") or fields.get("container.name", "")
        self._name = (_UNSAFE.sub("_", name)[:128] or "-").encode("utf-8", "replace")
        row = PROGRAMS.get(program_name(name))
        self._is_server = row is not None and row.reader is access.read
        """Access logs are read by the container's name."""
        elements: dict[str, list[str]] = {}
        for field, value in fields.items():
            element, _, parameter = field.partition(".")
            elements.setdefault(element, []).append(f'{parameter}="{escaped(value)}"')
        said = "".join(f"[{element} {' '.join(parameters)}]" for element, parameters in elements.items())
        self._said = f'{said}[log file.path="{escaped(path)}" iostream="'.encode("utf-8", "replace")

    def line(self, line: bytes) -> Line:
        """Return what is in a line."""
        if match := _CRI.match(line):
            time, stream, tag = match.groups()
            text = line[match.end() :]
            return Line(stream, text, tag == b"P", self._head(time, stream, text))
        if line[:1] == b"{":
            try:
                entry = orjson.loads(line)
                text = entry["log"].encode()
                stream = entry["stream"].encode()
                time = entry["time"].encode()
            except (ValueError, KeyError, AttributeError):
                pass
            else:
                return Line(stream, text.removesuffix(b"\n"), text[-1:] != b"\n", self._head(time, stream, text))
        return Line(b"", line, False, b"")

    def _head(self, time: bytes, stream: bytes, text: bytes) -> bytes:
        name = self._name if self._is_server or not access.looks_like(text) else _ACCESS_LOG
        return b'%b %b - %b - - %b%b"] ' % (_PRI.get(stream, b"<14>1"), time, name, self._said, stream)


def escaped(value: str) -> str:
    """``value`` as RFC 5424 has it in a parameter."""
    return _SPECIAL.sub(r"\\\g<0>", value)
