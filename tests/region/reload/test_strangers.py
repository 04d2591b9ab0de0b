"""``lookup refresh`` of servers that are none: each fails by itself, in its time, and the others are reloaded."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.region.reload.kit import Region, staff, table


def silent(client: socket.socket) -> None:
    """A PostgreSQL that lets a client in and answers nothing more."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!I", len(body) + 4) + body

    while struct.unpack("!I", client.recv(struct.unpack("!I", client.recv(4))[0] - 4)[:4])[0] > 80_000_000:
        client.sendall(b"N")  # no TLS, no GSS
    client.sendall(
        message(b"R", bytes(4)) + message(b"S", b"server_version\x0015.0\0") + message(b"S", b"client_encoding\0UTF8\0")
        + message(b"K", bytes(8)) + message(b"Z", b"I")
    )  # fmt: skip
    while client.recv(4096):
        pass


def cut_short(client: socket.socket) -> None:
    """A MySQL whose greeting is cut."""
    greeting = b"\x0a8.0.1\0ab"
    client.sendall(len(greeting).to_bytes(3, "little") + b"\0" + greeting)
    client.recv(100)


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Its port."""

    def serve() -> None:
        client, _ = listener.accept()
        with closing(client):
            answer(client)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(("scheme", "answer"), [("postgresql", silent), ("mysql", cut_short)])
def test_a_server_that_is_none(tmp_path: Path, scheme: str, answer: Callable[[socket.socket], None]) -> None:
    region = Region(tmp_path)
    (tmp_path / "good.csv").write_bytes(staff(1))
    (tmp_path / "pw").write_text("secret")
    with serving(answer) as port:
        source = f'database = "{scheme}://127.0.0.1:{port}/x"\nquery = "SELECT 1"'
        odd = table(source, 'username = "u"', 'password_file = "pw"', 'timeout = "1s"').replace("staff", "odd")
        region.tables(odd, table('path = "good.csv"'))
        done = region.refresh(code=1)
    assert (done["odd"]["state"], done["staff"]["state"]) == ("failed", "built")
    assert done["odd"]["error"]
    assert region.rows().keys() == {"u1"}
