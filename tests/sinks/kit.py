"""What tests of sinks share: alerts on their way, and a real HTTP server that can do what servers do to senders."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tests.delivery.kit import alert
from tests.waits import DEADLINE
from vedette.delivery.envelope import to_row
from vedette.model.event import Entity
from vedette.sinks.base import Outgoing


def outgoing(seq: int = 1, **changes: Any) -> Outgoing:
    own = alert(seq, **changes)
    return Outgoing(seq, own.alert_id, to_row(own))


HEAD = {"agent_id": "edge-1", "fleet": "f1", "site": "s1", "host": None, "level": "informational", "kind": "row"}


def row(seq: int = 1, **columns: Any) -> Outgoing:
    """A row of a statement."""
    line = orjson.dumps({"n": seq, **columns})
    return Outgoing(seq, f"edge-1/log:lake:{seq}", HEAD, line)


def hostile(seq: int = 1) -> Outgoing:
    """An alert whose texts try to break out of every format."""
    text = 'a|b\\c=d\n<!here> & ```x``` "q" \x1b[31m \U0001f600'
    return outgoing(
        seq, rule_title=text, raw=text, host="h 1]", fields={"user": text}, tags=("attack.t1110", "a|b"),
        entities=(Entity("ip", "192.0.2.7"), Entity("user", text)),
    )  # fmt: skip


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """The peer's port: the same on one connection."""


Act = Callable[["Handler", Request], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body, self.client_address[1])
        with self.server.lock:
            self.server.requests.append(request)
            act = self.server.acts.pop(0) if self.server.acts else self.server.act
        act(self, request)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, status: int, body: bytes, request: Request, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if 200 <= status < 300:
            with self.server.lock:
                self.server.accepted.append(request)


def answers(status: int, body: bytes = b"", **headers: str) -> Act:
    return lambda handler, request: handler.answer(status, body, request, **headers)


def resets(handler: Handler, request: Request) -> None:
    """Close with a reset, without an answer."""
    handler.connection.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SOL_SOCKET, SO_LINGER: on, 0 s
    handler.close_connection = True


def silent(handler: Handler, request: Request) -> None:
    """No answer until the sender goes."""
    with suppress(OSError):
        handler.connection.recv(1)
    handler.close_connection = True


def drips(handler: Handler, request: Request) -> None:
    """An answer that never ends, a byte at a time, each in time."""
    with suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        for _ in range(1000):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)
    handler.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[Request] = []
        self.accepted: list[Request] = []
        """Those answered by 2xx."""
        self.acts: list[Act] = []
        """For the next requests, in order; then ``act``."""
        self.act: Act = answers(200, b"ok")
        self.lock = threading.Lock()
        self._context = context

    @property
    def url(self) -> str:
        return f"http{'s' if self._context else ''}://127.0.0.1:{self.server_address[1]}/hook?key=hush"

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._context is None:
            return super().finish_request(request, client_address)
        request.settimeout(DEADLINE)  # in the connection's own thread
        with self._context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # handshakes that are to fail


@contextmanager
def serving(certificate: tuple[Path, Path] | None = None, client_ca: Path | None = None) -> Iterator[Server]:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_ca)
    with Server(context) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
