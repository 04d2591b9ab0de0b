"""``lookup refresh`` of queries: a real PostgreSQL and a real MariaDB, over TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pymysql
import pytest

from tests import databases
from tests.certificates import Authority
from tests.differences import differences
from tests.region.reload.kit import Region, table
from vedette.lookup.table import Lookup

pytestmark = pytest.mark.peer

PASSWORD = "se'cret %s"
"""With what a client might take for its own."""


class Base(NamedTuple):
    """A database server: ``run`` executes statements in the clear, as its owner."""

    url: str
    plain: str
    """The address of one that speaks no TLS."""
    ca: Path
    run: Callable[..., None]


def _postgresql(tls: databases.Tls, ca: Path) -> Iterator[Base]:
    with databases.postgresql(tls, "secret") as url, databases.postgresql(password="secret") as plain:

        def run(*statements: str) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement.encode())

        run("ALTER USER vedette PASSWORD 'se''cret %s'")
        bare = [f"postgresql://{address.rpartition('@')[2]}" for address in (url, plain)]

        def again(*statements: str) -> None:
            port = int(bare[0].rpartition(":")[2].partition("/")[0])
            with psycopg.connect(
                host="127.0.0.1", port=port, dbname="postgres", user="vedette", password=PASSWORD, autocommit=True
            ) as connection:
                for statement in statements:
                    connection.execute(statement.encode())

        yield Base(*bare, ca, again)


def _mariadb(tls: databases.Tls, ca: Path) -> Iterator[Base]:
    written = PASSWORD.replace("'", "''")
    with databases.mariadb(tls, written) as port, databases.mariadb(None, written) as plain:

        def run(*statements: str) -> None:
            with pymysql.connect(
                host="127.0.0.1", port=port, user="vedette", password=PASSWORD, database="test", autocommit=True
            ) as connection, connection.cursor() as cursor:  # fmt: skip
                for statement in statements:
                    cursor.execute(statement)

        yield Base(f"mysql://127.0.0.1:{port}/test", f"mysql://127.0.0.1:{plain}/test", ca, run)


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    made = _postgresql if request.param == "postgresql" else _mariadb
    yield from made(authority.issue("server"), authority.ca)


@pytest.fixture
def region(tmp_path: Path) -> Region:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    return Region(tmp_path)


def query(base: Base, text: str, *more: str, url: str = "") -> str:
    source = [f'database = "{url or base.url}"', 'username = "vedette"', 'password_file = "password"']
    return table("\n".join(source), f"query = '''{text}'''", *more, *([] if "ca_file" in str(more) else tls(base)))


def tls(base: Base) -> list[str]:
    return [f'ca_file = "{base.ca}"']


def test_rows_and_their_types(region: Region, base: Base) -> None:
    """Texts, whole numbers, floats, truth, times with and without a zone, open ends and nulls, as the server has them;
    rows in another order are the same."""
    first = "u1', 7, 1.5, true, '2026-05-06 07:08:09', '2026-05-06 07:08:09.25', '2026-05-06', NULL"
    open_end = "9999-12-31 00:00:00"
    base.run(
        "DROP TABLE IF EXISTS staff",
        "CREATE TABLE staff (user_name VARCHAR(20), risk BIGINT, share DOUBLE PRECISION, active BOOLEAN,"
        " since TIMESTAMP NULL, seen TIMESTAMP(3) NULL, day DATE, note TEXT)",
        f"INSERT INTO staff VALUES ('{first}), ('u2', -5, 2, false, NULL, NULL, NULL, 'é 50% ''x''')",
    )
    if base.url.startswith("mysql"):
        base.run("ALTER TABLE staff MODIFY since DATETIME", f"UPDATE staff SET since = '{open_end}' WHERE risk < 0")
    else:
        base.run(
            "ALTER TABLE staff ALTER seen TYPE timestamptz USING seen AT TIME ZONE 'UTC'",
            "UPDATE staff SET since = 'infinity' WHERE risk < 0",
            "ALTER DATABASE postgres SET TimeZone = 'Asia/Tokyo'",
        )
    text = "SELECT * FROM staff WHERE user_name LIKE 'u%%'"
    region.tables(query(base, text).replace('key = ["user"]', 'key = ["user_name"]'))
    assert region.refresh()["staff"]["rows"] == 2
    with Lookup.open(region.lookups / "staff.vlookup") as lookup:
        types = {column.name: column.type for column in lookup.columns}
    truth = {"active": "bool"} if base.url.startswith("postgresql") else {"active": "int"}
    assert types == {"user_name": "text", "risk": "int", "share": "float", **truth, "since": "time", "seen": "time",
                     "day": "time", "note": "text"}  # fmt: skip
    at = 1_778_051_289_000_000
    assert region.rows() == {
        "u1": ("u1", 7, 1.5, 1, at, at + 250_000, at - at % 86_400_000_000, None),
        "u2": ("u2", -5, 2.0, 0, None, None, None, "é 50% 'x'"),
    }
    base.run("UPDATE staff SET note = 'x' WHERE risk = 7", "UPDATE staff SET note = NULL WHERE risk = 7")
    assert region.refresh("--now")["staff"]["state"] == "unchanged"
    base.run("UPDATE staff SET risk = 8 WHERE risk = 7")
    assert region.refresh("--now")["staff"]["state"] == "built"
    assert region.rows()["u1"][1] == 8


def test_what_fails_stays_as_it_was(region: Region, base: Base) -> None:
    """Nothing is taken over a connection that is not checked, by a wrong password, of a query that writes or fails, or
    beyond bounds."""
    base.run("DROP TABLE IF EXISTS users", "CREATE TABLE users (u VARCHAR(20), n BIGINT)",
             "INSERT INTO users VALUES ('u1', 1), ('u2', 2), ('u3', 3)")  # fmt: skip
    good = "SELECT u AS name, n FROM users"
    sleep, kind = ("pg_sleep", "bytea") if base.url.startswith("postgresql") else ("SLEEP", "BINARY")
    sleep, blob = f"SELECT {sleep}(60), 'u1' AS name", f"SELECT u AS name, CAST(u AS {kind}) AS b FROM users"
    many = "SELECT CONCAT('u', a.u, b.u, c.u, d.u, e.u) AS name FROM users a, users b, users c, users d, users e"
    (region.folder / "other").mkdir()
    stranger, port = Authority(region.folder / "other").ca, base.url.rpartition(":")[2].partition("/")[0]
    cases = {
        "a stranger's certificate": (query(base, good, f'ca_file = "{stranger}"'), "certificate verify failed"),
        "no TLS": (query(base, good, url=base.plain), "SSL"),
        "the database's other name": (query(base, good, url=base.url.replace("127.0.0.1", "localhost")), "localhost"),
        "nobody there": (query(base, good, url=base.url.replace(f":{port}", ":1")), "refused"),
        "no such table": (query(base, "SELECT u AS name FROM none"), "none"),
        "a query that writes": (query(base, "DELETE FROM users"), ""),
        "two statements": (query(base, f"{good}; DROP TABLE users"), ""),
        "too late": (query(base, sleep, 'timeout = "1s"'), "time"),
        "too many rows": (query(base, many, "max_rows = 100"), "more than 100 rows"),
        "too many bytes": (query(base, many, "max_bytes = 100"), "100 bytes (max_rows, max_bytes)"),
        "bytes": (query(base, blob), "column b has values that are no text, number or time"),
        "two of a name": (query(base, "SELECT u AS name, n AS name FROM users"), "two columns"),
        "no rows": (query(base, f"{good} WHERE n > 9"), "it is empty"),
        "fewer": (query(base, f"{good} WHERE n > 2", "least = 0.9"), ""),
    }
    key = ('key = ["user"]', 'key = ["name"]')
    region.tables(query(base, good).replace(*key))
    region.refresh()
    with differences() as case:
        for name, (text, reason) in cases.items():
            with case(name):
                region.tables(text.replace(*key))
                if name == "fewer":  # another query may well have fewer rows
                    assert region.refresh()["staff"]["rows"] == 1
                    continue
                failed = region.refresh("--now", code=1)["staff"]
                assert failed["state"] == "failed"
                assert reason in failed["error"]
                assert "secret" not in failed["error"]
                assert region.rows() == {f"u{n}": (f"u{n}", n) for n in (1, 2, 3)}
        with case("a wrong password"):
            (region.folder / "password").write_text("wrong\n")
            region.tables(query(base, good).replace(*key))
            assert "assword" in region.refresh("--now", code=1)["staff"]["error"]
            (region.folder / "password").write_text(f"{PASSWORD}\n")
            region.refresh()
            assert len(region.rows()) == 3
