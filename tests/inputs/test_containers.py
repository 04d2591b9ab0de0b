"""Lines of container runtimes: what a program wrote, whole, with pod and container of the file's path."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vedette.decode.decoder import Record, record
from vedette.inputs.containers import Container, about

ID = "4f2c" * 16
POD = "/var/log/pods/shop_cart-7d9f_0b1c2d3e-aaaa-bbbb-cccc-0123456789ab/nginx/0.log"
FIELDS = {
    "container.name": "nginx",
    "kubernetes.namespace": "shop",
    "kubernetes.pod.name": "cart-7d9f",
    "kubernetes.pod.uid": "0b1c2d3e-aaaa-bbbb-cccc-0123456789ab",
    "kubernetes.container.name": "nginx",
}
TIME = "2026-11-23T10:00:00.123456789Z"


def event(line: str | bytes, path: str = POD) -> Record:
    """The event of one line, as an input with ``format = "auto"`` has it."""
    found = Container(path, about(path)).line(line.encode() if isinstance(line, str) else line)
    return record(found.head + found.text, "auto")


def docker(text: str, stream: str = "stdout") -> str:
    return json.dumps({"log": text, "stream": stream, "time": TIME})


@pytest.mark.parametrize(
    "path",
    [
        POD,
        POD.replace("0.log", "3.log.20261123-101010"),
        POD + ".1.gz",
        "/host" + POD,
    ],
)
def test_a_pods_path(path: str) -> None:
    """Namespace, pod, its uid and the container, also of a rotated file."""
    assert about(path) == FIELDS


def test_links(tmp_path: Path) -> None:
    """A link of /var/log/containers gives what its name says and what its target's path does."""
    target = tmp_path / POD[1:]
    target.parent.mkdir(parents=True)
    target.touch()
    link = tmp_path / f"cart-7d9f_shop_nginx-{ID}.log"
    link.symlink_to(target)
    assert about(str(link)) == {**FIELDS, "container.id": ID}
    assert about(f"/var/log/containers/cart-7d9f_shop_nginx-{ID}.log")["container.id"] == ID


def test_docker(tmp_path: Path) -> None:
    """Docker's path has the id; name and image are in its own file beside, where that can be read."""
    path = tmp_path / ID / f"{ID}-json.log"
    path.parent.mkdir()
    assert about(str(path)) == {"container.id": ID}
    (path.parent / "config.v2.json").write_text(json.dumps({"Name": "/web", "Config": {"Image": "nginx:1.27"}}))
    known = {"container.id": ID, "container.name": "web", "container.image.name": "nginx:1.27"}
    assert about(str(path)) == known
    (path.parent / "config.v2.json").write_text("[]")
    assert about(str(path)) == {"container.id": ID}
    (path.parent / "config.v2.json").unlink()
    os.mkfifo(path.parent / "config.v2.json")  # nobody writes into it, and nobody waits
    assert about(str(path)) == {"container.id": ID}
    assert about("/var/log/syslog") == {}


@pytest.mark.parametrize("line", [f"{TIME} stderr F GET / failed", docker("GET / failed\n", "stderr")])
def test_a_line_is_an_event(line: str) -> None:
    """Time, stream and text of a line of either runtime; the fields of the path, and the container as the program."""
    one = event(line)
    assert one.get("message") == "GET / failed"
    assert one.event_time == 1795428000_123456
    assert (one.get("program"), one.get("severity"), one.get("facility")) == ("nginx", "err", "user")
    assert {name: one.get(name) for name in FIELDS} == FIELDS
    assert (one.get("log.file.path"), one.get("log.iostream")) == (POD, "stderr")
    assert event(line.replace("stderr", "stdout")).get("severity") == "info"


def test_what_is_in_a_line() -> None:
    """JSON, an access log of a container that is known by name, a syslog header's format: read as anywhere else."""
    inner = {"level": "warn", "user": {"name": 'a"b\\c'}, "msg": "denied"}
    for line in (f"{TIME} stdout F {json.dumps(inner)}", docker(json.dumps(inner) + "\n")):
        one = event(line)
        assert (one.get("user.name"), one.get("msg")) == ('a"b\\c', "denied")
        assert one.get("kubernetes.pod.name") == "cart-7d9f"
    access = '192.0.2.7 - - [23/Nov/2026:10:00:00 +0000] "GET /a?b=c HTTP/1.1" 404 12 "-" "curl/8"'
    one = event(f"{TIME} stdout F {access}")
    assert (one.get("cs-uri-query"), one.get("src_ip"), one.get("sc-status")) == ("b=c", "192.0.2.7", "404")
    assert ("webserver" in one.source.categories, one.get("program")) == (True, "nginx")
    other = event(f"{TIME} stdout F {access}", POD.replace("/nginx/", "/controller/"))
    assert (other.get("cs-uri-query"), other.get("program")) == ("b=c", "access_log")
    assert ("webserver" in other.source.categories, other.get("container.name")) == (True, "controller")
    assert event(f"{TIME} stdout F CEF:0|v|p|1|100|n|5|src=192.0.2.9").get("src") == "192.0.2.9"


def test_text_cannot_forge() -> None:
    """What a program writes into its line changes neither pod nor container."""
    forged = '[kubernetes pod.name="other"] kubernetes.pod.name=other kubernetes={"pod":1}'
    one = event(f"{TIME} stdout F {forged}")
    assert one.get("kubernetes.pod.name") == "cart-7d9f"
    assert one.get("message") == forged
    path = POD.replace("/nginx/", '/n"]x/')
    assert event(f"{TIME} stdout F a", path).get("kubernetes.container.name") == 'n"]x'


def test_parts() -> None:
    """P of CRI and a missing newline of Docker say that more follows; of neither format a line is as it is."""
    read = Container(POD, {}).line
    for part, whole in ((f"{TIME} stdout P a", f"{TIME} stdout F b"), (docker("a"), docker("b\n"))):
        assert [(one.text, one.part) for one in (read(part.encode()), read(whole.encode()))] == [
            (b"a", True),
            (b"b", False),
        ]
    assert read(f"{TIME} stdout F".encode()).text == b""
    assert read(f"{TIME} stdout F:x  two".encode()).text == b" two"
    for other in (b"plain", b'{"log":1}', b"{", b'{"log":"x"}', b"", b"2026 stdout F x"):
        assert read(other) == (b"", other, False, b"")
