"""A web server over TLS for tests of feeds: TAXII 2.1 (the documents of its specification), and files with ETags."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.certificates import Authority

TAXII = "application/taxii+json;version=2.1"
COLLECTION = "91a7b528-80eb-42ed-a74d-c6fbd5a26116"


class Server:
    """``objects``: pairs of the date on which one was added and the object, by date; ``page``: how many a page has.
    ``files``: by path. ``hooks``: by path what answers instead, a status, headers and a body; None: as always."""

    def __init__(self, folder: Path) -> None:
        self.objects: list[tuple[str, dict[str, Any]]] = []
        self.page = 2
        self.by_next = True
        self.files: dict[str, bytes] = {}
        self.hooks: dict[str, Callable[[], tuple[int, dict[str, str], bytes] | None]] = {}
        self.token = "Bearer secret"
        self.asked: list[tuple[str, int]] = []
        """Paths with their queries, and what was answered."""
        authority = Authority(folder)
        self.ca = authority.ca
        certificate, key = authority.issue("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = owner.answer(self.path, dict(self.headers.items()))
                owner.asked.append((self.path, status))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    if headers.get("X-Slow"):
                        for byte in body:
                            self.wfile.write(bytes([byte]))
                            time.sleep(0.05)
                    else:
                        self.wfile.write(body)
                except OSError:  # the reader has gone
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._http.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[Server]:
        thread = Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def answer(self, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        hook = self.hooks.get(parts.path)
        if hook is not None and (answered := hook()) is not None:
            return answered
        if parts.path in self.files:
            body = self.files[parts.path]
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            if headers.get("If-None-Match") == tag:
                return 304, {"ETag": tag}, b""
            return 200, {"ETag": tag}, body
        if headers.get("Authorization") != self.token:
            return 401, {"WWW-Authenticate": "Bearer"}, b""
        if not parts.path.startswith(("/taxii2/", "/api")):
            return 404, {}, b""
        if headers.get("Accept") != TAXII:
            return 406, {}, b""
        document, more = self._taxii(parts.path, {name: one[0] for name, one in parse_qs(parts.query).items()})
        if document is None:
            return 404, {}, b"{}"
        return 200, {"Content-Type": TAXII, **more}, json.dumps(document).encode()

    def _taxii(self, path: str, query: dict[str, str]) -> tuple[dict[str, Any] | None, dict[str, str]]:
        if path == "/taxii2/":
            return {"title": "A server", "api_roots": ["/api1/", f"{self.url}/api2/"]}, {}
        if path == "/api2/":
            return {"title": "Second", "versions": [TAXII], "max_content_length": 9_000_000}, {}
        if path == "/api1/collections/":
            return {}, {}
        if path == "/api2/collections/":
            about = {"id": COLLECTION, "title": "High value", "alias": "high", "can_read": True, "can_write": False}
            return {"collections": [about, {**about, "id": "no", "alias": "closed", "can_read": False}]}, {}
        if path != f"/api2/collections/{COLLECTION}/objects/":
            return None, {}
        wanted = query.get("match[type]", "").split(",")
        objects = [(date, one) for date, one in self.objects if date > query.get("added_after", "")]
        objects = [(date, one) for date, one in objects if one["type"] in wanted]
        start = int(query.get("next", 0))
        page = objects[start : start + self.page]
        document: dict[str, Any] = {"objects": [one for _, one in page]} if page else {}
        if start + self.page < len(objects):
            document["more"] = True
            if self.by_next:
                document["next"] = str(start + self.page)
        dates = {"X-TAXII-Date-Added-First": page[0][0], "X-TAXII-Date-Added-Last": page[-1][0]} if page else {}
        return document, dates
