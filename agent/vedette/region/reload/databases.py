"""The rows of a query of PostgreSQL or MySQL (MariaDB, too) as JSON Lines: one read-only transaction, over TLS whose
certificate is checked, within ``timeout``, ``max_rows`` and ``max_bytes``.

When the time is over the connection is shut down below the client, whatever the server does meanwhile. Values come as
the server writes them; a time without a zone is UTC. Rows in another order are no other content, unless ``duplicates``
lets the order count.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import orjson

from vedette.region.feeds.web import Failed
from vedette.region.reload.settings import PORTS, Table
from vedette.sinks.base import secret

CONNECT_SECONDS = 20.0
_BATCH = 64
"""Rows that PostgreSQL sends at once, which libpq holds whole: they may be wide."""
_HOST_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_OIDS = {16: "bool", 20: "int", 21: "int", 23: "int", 26: "int", 700: "float", 701: "float", 1700: "float",
         1082: "time", 1114: "time", 1184: "time"}  # fmt: skip
"""Of PostgreSQL's types (``pg_type.dat``): bool, int8, int2, int4, oid, float4, float8, numeric, date, timestamp,
timestamptz."""
_AS_TEXT = ("date", "timestamp", "timestamptz", "numeric", "json", "jsonb", "inet", "cidr", "uuid", "time", "timetz",
            "interval")  # fmt: skip
_FIELDS = {1: "int", 2: "int", 3: "int", 8: "int", 9: "int", 13: "int", 0: "float", 4: "float", 5: "float",
           246: "float", 7: "time", 10: "time", 12: "time"}  # fmt: skip
"""Of MySQL's (``enum_field_types``): tiny, short, long, longlong, int24, year, decimal, float, double, newdecimal,
timestamp, date, datetime."""
_OPEN = ("infinity", "-infinity", "0000-00-00", "0000-00-00 00:00:00")
"""Times of these servers that are none."""


class _Rows(NamedTuple):
    columns: Sequence[str]
    types: Sequence[str]
    rows: Iterator[Sequence[Any]]


def fetch(table: Table, target: Path) -> tuple[str, Mapping[str, str]]:
    """Write the rows of ``table``'s query to ``target``; their digest, and the types of columns. Raises OSError."""
    opened = {"postgresql": _postgresql, "mysql": _mysql}[table.server()[0].scheme]
    digests, size = [], 0
    with opened(table) as (columns, types, rows), target.open("wb") as file:
        if len({*columns}) != len(columns):
            raise Failed("two columns of the query have the same name: AS gives one another")
        for row in rows:
            line = orjson.dumps(dict(zip(columns, map(_value, row, types, columns), strict=True))) + b"\n"
            digests.append(hashlib.sha256(line).digest())
            size += len(line)
            if len(digests) > table.max_rows or size > table.max_bytes:
                raise Failed(f"more than {table.max_rows:,} rows or {table.max_bytes:,} bytes (max_rows, max_bytes)")
            file.write(line)
    if table.duplicates == "refuse":
        digests.sort()
    return hashlib.sha256(b"".join(digests)).hexdigest(), dict(zip(columns, types, strict=True))


def _value(value: Any, kind: str, column: str) -> str | int | float | None:
    if isinstance(value, str) and kind == "time":
        return None if value in _OPEN or value.endswith(" BC") else _time(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise Failed(f"column {column} has values that are no text, number or time: cast it in the query")


def _time(text: str) -> str:
    """With a time of day, and minutes in its offset."""
    text = text if len(text) > 10 else f"{text} 00:00:00"
    return f"{text}:00" if text[-3] in "+-" and ":" in text[:-3] else text


@contextmanager
def _bounded(table: Table, sock: socket.socket) -> Iterator[None]:
    """Shut the connection of ``sock``, a descriptor of its own, when the time is over."""

    def over() -> None:
        late.append(True)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    late: list[bool] = []
    alarm = Timer(table.timeout, over)
    alarm.daemon = True
    alarm.start()
    try:
        yield
    except Exception:
        if late:
            raise Failed(f"not read within {table.timeout:g} s (timeout)") from None
        raise
    finally:
        alarm.cancel()
        sock.close()


def _password(table: Table) -> str:
    return "" if table.password_file is None else secret(table.password_file)


@contextmanager
def _postgresql(table: Table) -> Iterator[_Rows]:
    try:
        import psycopg
        from psycopg.types.string import TextLoader
    except ImportError:
        raise Failed("PostgreSQL needs psycopg: pip install 'vedette[postgres]'") from None
    parts, checked = table.server()
    about: dict[str, Any] = {"sslmode": "verify-full" if checked else "prefer"}
    if checked:
        about["sslrootcert"] = str(table.ca_file or ssl.get_default_verify_paths().cafile or _HOST_AUTHORITIES)
    if table.cert_file is not None:
        about |= {"sslcert": str(table.cert_file), "sslkey": str(table.key_file)}
    most = max(1, round(table.timeout * 1000))
    try:
        connection = psycopg.connect(
            host=parts.hostname, port=parts.port or PORTS[parts.scheme], dbname=parts.path[1:], user=table.username,
            password=_password(table), connect_timeout=round(min(CONNECT_SECONDS, max(2.0, table.timeout))),
            application_name="vedette lookup refresh", gssencmode="disable",
            **about,
        )  # fmt: skip
        sock = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with _bounded(table, sock), connection:
            connection.read_only = True
            for setting in (f"statement_timeout = {most}", "TimeZone = 'UTC'", "DateStyle = 'ISO'"):
                connection.execute(f"SET LOCAL {setting}".encode())  # poolers refuse them as options
            for name in _AS_TEXT:
                connection.adapters.register_loader(name, TextLoader)
            with connection.cursor(name="vedette") as cursor:
                cursor.itersize = _BATCH
                cursor.execute(table.query.encode())
                described = cursor.description or []
                types = [_OIDS.get(column.type_code, "text") for column in described]
                yield _Rows([column.name for column in described], types, iter(cursor))
    except psycopg.Error as error:
        raise Failed(f"PostgreSQL: {_line(error)}") from None


@contextmanager
def _mysql(table: Table) -> Iterator[_Rows]:
    try:
        import pymysql
        from pymysql.converters import encoders
        from pymysql.cursors import SSCursor
    except ImportError:
        raise Failed("MySQL needs PyMySQL: pip install 'vedette[mysql]'") from None
    parts, checked = table.server()
    context = ssl.create_default_context(cafile=table.ca_file) if checked else None
    if context is not None and table.cert_file is not None:
        context.load_cert_chain(table.cert_file, table.key_file)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    wait = min(CONNECT_SECONDS, table.timeout)
    connection = pymysql.connect(
        host=host, port=port, user=table.username, password=_password(table), database=parts.path[1:],
        charset="utf8mb4", ssl=context, ssl_disabled=context is None, conv=encoders, cursorclass=SSCursor,
        defer_connect=True, read_timeout=table.timeout, write_timeout=wait, local_infile=False, read_default_file=None,
        init_command="SET SESSION TRANSACTION READ ONLY",
    )  # fmt: skip
    try:
        sock = socket.create_connection((host, port), wait)
        with _bounded(table, sock.dup()):
            try:
                connection.connect(sock)
                cursor = connection.cursor()
                cursor.execute("SET time_zone = '+00:00'")
                cursor.execute("START TRANSACTION READ ONLY")
                cursor.execute(table.query)
                described = cursor.description or ()
                types = [_FIELDS.get(column[1], "text") for column in described]
                yield _Rows([column[0] for column in described], types, iter(cursor.fetchone, None))
            finally:
                connection._force_close()
                if connection._result is not None:
                    connection._result.unbuffered_active = False  # else what is left of the rows would be read
    except (pymysql.Error, OSError) as error:
        if isinstance(error, Failed):
            raise
        raise Failed(f"MySQL: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
