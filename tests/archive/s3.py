"""A real S3 server for tests, and a proxy before it that misbehaves as stores and networks do.

The server is MinIO where there is one (``VEDETTE_MINIO``, ``build/minio`` of ``tools/minio.sh``, or on the PATH), else
s3proxy over a folder, from ``build/jars/s3`` (``tools/jars.sh``); without either the tests are skipped. Both check
signatures and keys, and know uploads in parts and conditional writes. Docs: min.io/docs, github.com/gaul/s3proxy.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.broker import own_port
from tests.waits import DEADLINE, until
from vedette.config.settings import ArchiveSettings

ROOT = Path(__file__).parents[2]
USER, SECRET, BUCKET = "vedette-tests", "only-for-tests", "logs"
Mode = Literal["pass", "500", "full", "cut", "half", "corrupt", "other", "slow", "dead", "revoked"]


PROPERTIES = f"""\
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={USER}
s3proxy.credential={SECRET}
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.identity=none
jclouds.credential=none
"""
QUIET = '<configuration><root level="OFF"/></configuration>'


@contextmanager
def serving(folder: Path, bucket: str) -> Iterator[int]:
    """The port of a server that keeps an empty bucket in ``folder``; skips the test when there is none."""
    (folder / "data" / bucket).mkdir(parents=True)
    port = own_port()
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(_command(folder, port), env=_environment(), stdout=log, stderr=log)
        try:
            until("an S3 server", lambda: process.poll() is not None or _ready(port))
            assert process.poll() is None, (folder / "server.log").read_text()
            yield port
        finally:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_CI_CD": "1"}


def _command(folder: Path, port: int) -> list[str]:
    built, jars = ROOT / "build" / "minio", ROOT / "build" / "jars" / "s3"
    if minio := os.environ.get("VEDETTE_MINIO") or (str(built) if built.exists() else shutil.which("minio")):
        return [minio, "server", "--quiet", "--address", f"127.0.0.1:{port}", "--console-address",
                f"127.0.0.1:{own_port()}", str(folder / "data")]  # fmt: skip
    java = shutil.which("java")
    if java is None or not jars.is_dir():
        pytest.skip("no S3 server: tools/jars.sh fetches one for Java, tools/minio.sh builds MinIO")
    (folder / "logback.xml").write_text(QUIET)
    endpoint = f"s3proxy.endpoint=http://127.0.0.1:{port}\njclouds.filesystem.basedir={folder / 'data'}\n"
    (folder / "s3proxy.conf").write_text(PROPERTIES + endpoint)
    return [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlogback.configurationFile={folder / 'logback.xml'}", "-cp", f"{jars}/*", "org.gaul.s3proxy.Main",
            "--properties", str(folder / "s3proxy.conf")]  # fmt: skip


def _ready(port: int) -> bool:
    """Whether it speaks HTTP: who does not sign is refused."""
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        with closing(connection):
            connection.request("GET", "/")
            return connection.getresponse().status == 403
    return False


class S3:
    """A server with an empty bucket, behind a ``Proxy``."""

    def __init__(self, folder: Path, target: int, proxy: Proxy) -> None:
        self.folder, self.target, self.proxy = folder, target, proxy
        self.options = folder / "options.toml"
        self.key(SECRET)

    def key(self, secret: str) -> None:
        """The options file with this key."""
        self.options.write_text(
            f'endpoint = "http://127.0.0.1:{self.proxy.port}"\nregion = "us-east-1"\n'
            f'access_key_id = "{USER}"\nsecret_access_key = "{secret}"\n'
        )

    def settings(self, **more: Any) -> ArchiveSettings:
        return ArchiveSettings(f"s3://{BUCKET}/edge", self.options, **more)


@contextmanager
def s3(folder: Path) -> Iterator[S3]:
    folder.mkdir(parents=True, exist_ok=True)
    with serving(folder, BUCKET) as port, Proxy(port) as proxy:
        yield S3(folder, port, proxy)


class Proxy:
    """``mode``: "500": each request is answered by an error; "full": each PUT is refused for want of room; "cut":
    uploads are cut half-way; "half": they reach the store and the answer does not come back; "corrupt": a byte of each
    upload and of each object that is read is another; "other": uploads are answered with success, and ``other`` then
    changes what is kept; "slow": answers take ``slow`` seconds; "dead": there are none; "revoked": no such key.

    ``only``: part of a path, outside of which all passes; ``passes``: so many requests pass before."""

    def __init__(self, target: int) -> None:
        self.mode: Mode = "pass"
        self.only = ""
        self.passes = 0
        self.slow = 0.05
        self.other: Callable[[str], None] = lambda path: None
        self.faults = 0
        self.requests: list[tuple[str, str]] = []
        proxy, self._ends = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                proxy._answer(self, target)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _any

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, asked: BaseHTTPRequestHandler, target: int) -> None:
        mode: Mode = self.mode if self.only in asked.path and self.passes <= 0 else "pass"
        self.passes -= 1
        upload = asked.command == "PUT"
        length = int(asked.headers.get("Content-Length") or 0)
        self.requests.append((asked.command, asked.path))
        if mode != "pass":
            self.faults += 1
        if mode == "dead":
            self._ends.wait()
            asked.close_connection = True
            return
        if mode == "slow":
            self._ends.wait(self.slow)
        if mode == "cut" and upload:
            asked.rfile.read(length // 2)
            asked.close_connection = True
            return
        body = asked.rfile.read(length)
        if mode in ("500", "revoked") or (mode == "full" and upload):
            code, name = {"500": (500, "InternalError"), "revoked": (403, "InvalidAccessKeyId")}.get(
                mode, (507, "XMinioStorageFull")
            )
            _send(asked, code, [], f"<Error><Code>{name}</Code><Message>no</Message></Error>".encode())
            return
        if mode == "corrupt" and upload and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        connection = http.client.HTTPConnection("127.0.0.1", target, timeout=DEADLINE)
        connection.putrequest(asked.command, asked.path, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        _, _, query = asked.path.partition("?")
        if mode == "other" and asked.command in ("PUT", "POST") and not query.startswith(("uploads", "partNumber")):
            self.other(asked.path)  # the object is there
        if mode == "half" and upload:
            asked.close_connection = True
            return
        if mode == "corrupt" and asked.command == "GET" and data:
            data = bytes([data[0] ^ 1]) + data[1:]
        _send(asked, answer.status, answer.getheaders(), data)


def _send(asked: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
    asked.send_response_only(status)
    for name, value in headers:
        if name.lower() not in ("transfer-encoding", "connection") and (
            name.lower() != "content-length" or asked.command == "HEAD"
        ):
            asked.send_header(name, value)
    if asked.command != "HEAD" and status not in (204, 304):
        asked.send_header("Content-Length", str(len(data)))
    asked.end_headers()
    if asked.command != "HEAD":
        asked.wfile.write(data)
