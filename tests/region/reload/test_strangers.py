"""``lookup refresh`` of servers that are none: each fails by itself, in its time, and the others are reloaded."""

from __future__ import annotations

import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.region.reload.kit import Region, staff, table


def _message(kind: bytes, body: bytes) -> bytes:
    """Of PostgreSQL's protocol."""
    return kind + struct.pack("!I", len(body) + 4) + body


def silent(client: socket.socket) -> None:
    """A PostgreSQL that lets a client in and answers nothing more."""
    _let_in(client)
    while client.recv(4096):
        pass


def _let_in(client: socket.socket) -> None:
    while struct.unpack("!I", client.recv(struct.unpack("!I", client.recv(4))[0] - 4)[:4])[0] > 80_000_000:
        client.sendall(b"N")  # no TLS, no GSS
    client.sendall(
        _message(b"R", bytes(4)) + _message(b"S", b"server_version\x0015.0\0")
        + _message(b"S", b"client_encoding\0UTF8\0") + _message(b"K", bytes(8)) + _message(b"Z", b"I")
    )  # fmt: skip


def endless_of_postgresql(client: socket.socket) -> None:
    """One whose first row does not end."""
    _let_in(client)
    column = struct.pack("!h", 1) + b"user\0" + struct.pack("!IhIhih", 0, 0, 25, -1, -1, 0)
    parsed = _message(b"1", b"") + _message(b"2", b"")
    while data := client.recv(65536):
        if b"FETCH" in data:
            size = 0x3FFFFF00
            client.sendall(parsed + _message(b"T", column) + b"D" + struct.pack("!IhI", size + 10, 1, size))
            while True:
                client.sendall(bytes(1 << 20))
        described = _message(b"T", column) if data[:1] == b"D" else _message(b"C", b"SET\0")
        client.sendall((b"" if data[:1] in b"QD" else parsed) + described + _message(b"Z", b"T"))


def endless_of_mysql(client: socket.socket) -> None:
    """One whose first row does not end: packets of the greatest size, of which each is followed by another."""
    number = 0

    def send(body: bytes) -> None:
        nonlocal number
        client.sendall(len(body).to_bytes(3, "little") + bytes([number % 256]) + body)
        number += 1

    def received() -> bytes:
        nonlocal number
        head = client.recv(4, socket.MSG_WAITALL)
        number = head[3] + 1
        return client.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL)

    send(
        b"\x0a8.0.1\0" + struct.pack("<I", 1) + b"abcdefgh\0" + struct.pack("<HBHHB", 0xF7FF, 33, 2, 8, 21) + bytes(10)
        + b"abcdefghijkl\0mysql_native_password\0"
    )  # fmt: skip
    received()
    send(b"\0\0\0\2\0\0\0")
    while b"SELECT 1" not in received():
        send(b"\0\0\0\2\0\0\0")
    send(b"\1")
    send(b"\3def\0\0\0\4user\4user\x0c" + struct.pack("<HIBHBxx", 45, 100, 253, 0, 0))
    send(b"\xfe\0\0\2\0")
    send((b"\xfe" + struct.pack("<Q", 1 << 40)).ljust(0xFFFFFF, b"x"))
    while True:
        send(bytes(0xFFFFFF))


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
        with closing(client), suppress(ConnectionError):
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


@pytest.mark.parametrize(
    ("scheme", "answer", "said"),
    [
        ("postgresql", endless_of_postgresql, "PostgreSQL: "),  # as libpq puts it
        ("mysql", endless_of_mysql, "MiB of memory (max_bytes, max_rows)"),
    ],
)
def test_a_row_without_an_end(tmp_path: Path, scheme: str, answer: Callable[[socket.socket], None], said: str) -> None:
    """Memory is bounded by ``max_bytes``, long before the time is over; the bound is gone with the source."""
    region, before = Region(tmp_path), resource.getrlimit(resource.RLIMIT_AS)
    (tmp_path / "good.csv").write_bytes(staff(1))
    (tmp_path / "pw").write_text("secret")
    with serving(answer) as port:
        source = f'database = "{scheme}://127.0.0.1:{port}/x"\nquery = "SELECT 1"\nmax_bytes = "1MiB"'
        odd = table(source, 'username = "u"', 'password_file = "pw"', 'timeout = "5m"').replace("staff", "odd")
        region.tables(odd, table('path = "good.csv"'))
        done = region.refresh(code=1)
    assert (done["odd"]["state"], done["staff"]["state"]) == ("failed", "built")
    assert said in done["odd"]["error"]
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_parquet_file_that_unpacks_without_end(tmp_path: Path) -> None:
    """Some kilobytes that are gigabytes of rows: it fails by itself, and the others are reloaded."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs vedette[region]")
    parquet = pytest.importorskip("pyarrow.parquet")
    region = Region(tmp_path)
    (tmp_path / "good.csv").write_bytes(staff(1))
    users = [f"u{number}" for number in range(4000)]
    note = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * len(users), pyarrow.int32()), ["x" * 1_000_000])
    parquet.write_table(pyarrow.table({"user": users, "note": note}), tmp_path / "odd.parquet", store_schema=False)
    assert (tmp_path / "odd.parquet").stat().st_size < 1 << 20
    odd = table('path = "odd.parquet"\nmax_bytes = "1MiB"').replace("staff", "odd")
    region.tables(odd, table('path = "good.csv"'))
    done = region.refresh(code=1)
    assert (done["odd"]["state"], done["staff"]["state"]) == ("failed", "built")
    assert "MiB of memory (max_bytes, max_rows)" in done["odd"]["error"]
    assert region.rows().keys() == {"u1"}
