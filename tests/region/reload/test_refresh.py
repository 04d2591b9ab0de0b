"""``lookup refresh`` of files, on the web and here: what is taken, what stays as it was and is said, what is sent."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker
from tests.certificates import Authority
from tests.differences import differences, walk
from tests.region.feeds.server import Server
from tests.region.reload.kit import Region, staff, table
from vedette.delivery.topics import ROOT, lookup_topic, steer_topic
from vedette.mqtt.settings import MqttSettings
from vedette.region import announce
from vedette.region.reload import health, refresh
from vedette.region.reload.refresh import Refresher
from vedette.region.reload.settings import Table, mistakes, read
from vedette.region.sign import keygen, load_key

HOUR = 3_600_000_000
NOW = 1_795_824_000_000_000
UNSIGNED = "unsigned = true"


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")).running() as server:
        yield server


@pytest.fixture
def server(served: Server) -> Server:
    served.files, served.hooks, served.asked = {"/staff.csv": staff(1, 2, 3, 4)}, {}, []
    return served


def web(server: Server, *more: str, path: str = "/staff.csv") -> str:
    return table(f'url = "{server.url}{path}"', f'ca_file = "{server.ca}"', 'types = { risk = "int" }', *more)


def test_a_table_on_the_web_becomes_a_signed_lookup_and_follows_it(region: Region, server: Server) -> None:
    """Read when due, built when it changed, and a server that says that nothing did is not read again."""
    region.tables(web(server, UNSIGNED))
    assert region.refresh()["staff"]["state"] == "built"
    assert region.rows()["u2"] == ("u2", 20)
    assert region.refresh()["staff"]["state"] == "not due"
    first = region.refresh("--now")["staff"]
    assert (first["state"], first["rows"], [status for _, status in server.asked]) == ("unchanged", 4, [200, 304])
    server.files["/staff.csv"] = staff(1, 2, 5)
    second = region.refresh("--now")["staff"]
    assert (second["state"], second["rows"], [*region.rows()]) == ("built", 3, ["u1", "u2", "u5"])
    assert second["version"] != first["version"]
    region.tables(web(server, UNSIGNED, 'columns = ["user"]').replace('{ risk = "int" }', "{}"))
    assert region.refresh()["staff"]["state"] == "built"  # another meaning is due at once, whatever the server says
    assert region.rows()["u1"] == ("u1",)


def test_who_signed_it(region: Region, server: Server) -> None:
    """A signature by OpenSSL, raw or in Base64, is taken; another key's, one over other bytes and none are refused."""
    author = region.folder / "author.pem"
    region.tables(web(server, f'signed_by = ["{keygen(region.folder / "other.pem")}", "{keygen(author)}"]'))

    def sign(key: Path, data: bytes) -> bytes:
        (region.folder / "data").write_bytes(data)
        command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(key), "-in", str(region.folder / "data")]
        return subprocess.run(command, check=True, capture_output=True).stdout

    server.files["/staff.csv.sig"] = sign(author, staff(1, 2, 3, 4))
    region.refresh()
    server.files["/staff.csv"] = staff(1, 2, 3, 5)
    keygen(region.folder / "foreign.pem")
    foreign = sign(region.folder / "foreign.pem", staff(1, 2, 3, 5))
    for signature in (server.files["/staff.csv.sig"], foreign, b"", b"\0" * 64, b"\0" * 9999, b"no\xff base64"):
        server.files["/staff.csv.sig"] = signature
        assert "no signature by one of signed_by" in region.refresh("--now", code=1)["staff"]["error"]
    del server.files["/staff.csv.sig"]
    assert ".sig: HTTP 401" in region.refresh("--now", code=1)["staff"]["error"]
    assert [*region.rows()] == ["u1", "u2", "u3", "u4"]
    server.files["/staff.csv.sig"] = base64.b64encode(sign(author, staff(1, 2, 3, 5))) + b"\n"
    region.refresh()  # what failed is due at once
    assert [*region.rows()] == ["u1", "u2", "u3", "u5"]


def test_pinned_digests(region: Region, server: Server) -> None:
    """Only content that the list has is taken; a new list is looked at when it is written."""
    digests = [hashlib.sha256(staff(*numbers)).hexdigest() for numbers in ((1, 2, 3, 4), (1, 2, 3, 5))]
    region.tables(web(server, f'sha256 = ["{digests[0]}"]'))
    region.refresh()
    server.files["/staff.csv"] = staff(1, 2, 3, 5)
    assert f"its SHA-256 is {digests[1]}: not in sha256" in region.refresh("--now", code=1)["staff"]["error"]
    assert [*region.rows()] == ["u1", "u2", "u3", "u4"]
    region.tables(web(server, f'sha256 = ["{digests[0]}", "{digests[1]}"]'))
    region.refresh()
    assert [*region.rows()] == ["u1", "u2", "u3", "u5"]


FAILURES = {
    "HTTP 500": (500, {}, b""),
    "HTTP 404": (404, {}, b""),
    "expects the same host": (302, {"Location": "https://localhost/staff.csv"}, b""),
    "expects https://": (302, {"Location": "http://127.0.0.1/staff.csv"}, b""),
    "redirect to nowhere": (302, {"Location": "/staff.csv"}, b""),
    "1 rows, 4 before, at least 2 expected (least)": (200, {}, staff(1)),
    "0 rows, 4 before": (200, {}, staff()),
    "staff.csv:3: 1 values, expects 2": (200, {}, staff(1) + b"u2\n"),
    "staff.csv:2: column risk": (200, {}, b"user,risk\nu1,high\n"),
    "staff.csv: there is no column risk": (200, {}, b"user\nu1\n"),
    "not CSV in UTF-8": (200, {}, b"user,risk\n\xff\xff,1\n"),
    "more than 1,000 bytes (max_bytes)": (200, {}, staff(*range(400))),
    "more than 50 rows (max_rows)": (200, {}, staff(*range(60))),
    "not read within 1 s (timeout)": (200, {"X-Slow": "1"}, b"x" * 100),
}


def test_what_fails_stays_as_it_was(region: Region, server: Server) -> None:
    """Whatever the server answers: the reason by name, exit code 1, the version before in force, the next run asks."""
    bounds = UNSIGNED, "max_bytes = 1000", "max_rows = 50"
    region.tables(web(server, *bounds))
    region.refresh()
    with differences() as case:
        for reason, answer in FAILURES.items():
            server.hooks["/staff.csv"] = lambda answer=answer: answer  # type: ignore[misc]  # it is called at once
            with case(reason):
                region.tables(web(server, *bounds, 'timeout = "1s"' if "timeout" in reason else ""))
                failed = region.refresh("--now", code=1)["staff"]
                assert reason in failed["error"]
                assert "/lookups/" not in failed["error"]
                assert (failed["state"], failed["rows"]) == ("failed", 4)
                assert [*region.rows()] == ["u1", "u2", "u3", "u4"]
    server.hooks.clear()
    server.files["/staff.csv"] = staff(1, 2, 7)
    region.refresh()
    assert [*region.rows()] == ["u1", "u2", "u7"]


def test_wrong_token_and_untrusted_server(region: Region, server: Server) -> None:
    """Credentials come from a file and go to that host alone; a server of an unknown authority is not believed."""
    (region.folder / "token").write_text("wrong\n")
    region.tables(web(server, UNSIGNED, 'token_file = "token"', 'format = "csv"', path="/api2/"))
    assert "HTTP 401: wrong or missing credentials" in region.refresh(code=1)["staff"]["error"]
    (region.folder / "stranger").mkdir()
    stranger = Authority(region.folder / "stranger").ca
    region.tables(table(f'url = "{server.url}/staff.csv"', f'ca_file = "{stranger}"', UNSIGNED))
    assert "certificate verify failed" in region.refresh(code=1)["staff"]["error"]
    assert not region.lookups.joinpath("staff.vlookup").exists()


def test_a_table_that_shrinks_is_taken_when_it_is_said_so(region: Region) -> None:
    """Below the share of ``least`` only with --fewer; a file is read whenever it is due, and no pipe."""
    file = region.folder / "staff.csv"
    file.write_bytes(staff(1, 2, 3, 4))
    region.tables(table('path = "staff.csv"', "least = 0.8"))
    region.refresh()
    file.write_bytes(staff(1, 2, 3))
    assert "3 rows, 4 before, at least 4 expected (least)" in region.refresh("--now", code=1)["staff"]["error"]
    assert [*region.rows()] == ["u1", "u2", "u3", "u4"]
    assert region.refresh("--fewer", "staff")["staff"]["rows"] == 3
    file.write_bytes(staff())
    assert "0 rows, 3 before" in region.refresh("--now", code=1)["staff"]["error"]
    assert region.refresh("--fewer", "staff")["staff"]["rows"] == 0
    file.unlink()
    subprocess.run(["mkfifo", str(file)], check=True)
    assert "it is no regular file" in region.refresh("--now", code=1)["staff"]["error"]
    assert region.command("--fewer", "other").exit_code == 2


async def test_not_ok_after_a_bounded_time(region: Region) -> None:
    """A failure is told at once, and is NOT OK once the lookup was in order too long ago."""
    file = region.folder / "staff.csv"
    file.write_bytes(staff(1))
    region.tables(table('path = "staff.csv"'), table('path = "none.csv"').replace("staff", "other", 1))
    tables = read(region.folder / "fleet.toml")
    refresher = Refresher(region.lookups, load_key(region.folder / "region.pem"), "plants")
    staff_now, other_now = await refresher.run(tables, None, NOW)
    assert (staff_now.error, staff_now.trouble, other_now.state, other_now.trouble) == ("", "", "failed", "")
    file.unlink()
    staff_now, other_now = await refresher.run(tables, None, NOW + 3 * HOUR)
    assert "No such file" in staff_now.error
    assert (staff_now.since, staff_now.trouble, other_now.trouble) == (NOW, "", "")
    staff_now, other_now = await refresher.run(tables, None, NOW + 3 * HOUR + 1)
    assert staff_now.trouble.startswith("not reloaded since 2026-11-28T00:00:00Z: ")
    assert "none.csv" in other_now.trouble
    file.write_bytes(staff(2))
    staff_now, _ = await refresher.run(tables, None, NOW + 4 * HOUR)
    assert (staff_now.since, staff_now.error, staff_now.trouble) == (NOW + 4 * HOUR, "", "")
    refresher.close()
    assert [*region.rows()] == ["u2"]


async def test_killed_anywhere(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an end before the marks are written, with damaged or without marks, the next run comes to the same."""
    (region.folder / "staff.csv").write_bytes(staff(1))
    region.tables(table('path = "staff.csv"'))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    refresher = Refresher(region.lookups, load_key(region.folder / "region.pem"), "plants")
    with monkeypatch.context() as patch:
        patch.setattr(refresh, "write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            await refresher.run(read(region.folder / "fleet.toml"), None, NOW)
    refresher.close()
    (region.lookups / ".work").mkdir(exist_ok=True)
    (region.lookups / ".work" / "staff.csv").write_text("half")
    refresher = Refresher(region.lookups, load_key(region.folder / "region.pem"), "plants")
    for marks in (None, b"", b"[]", b'{"staff": {"tried": -1}}', b"\xff"):
        if marks is not None:
            (region.lookups / refresh.STATE).write_bytes(marks)
        assert [*region.rows()] == ["u1"]
        refresher.close()
        refresher = Refresher(region.lookups, load_key(region.folder / "region.pem"), "plants")
        (done,) = await refresher.run(read(region.folder / "fleet.toml"), None, NOW)
        assert done.state == "built"
    with pytest.raises(BlockingIOError, match="another refresh is at work"):
        Refresher(region.lookups, load_key(region.folder / "region.pem"), "plants")
    refresher.close()
    assert sorted(path.name for path in region.lookups.iterdir()) == ["before", "reload.json", "staff.vlookup"]


GOOD = {"name": "staff", "every": 60.0, "key": ("user",), "path": Path("staff.csv")}
SITE = {**GOOD, "path": None, "url": "https://192.0.2.1/staff.csv", "unsigned": True}
BASE = {**GOOD, "path": None, "database": "mysql://192.0.2.1/hr", "query": "SELECT 1", "username": "v",
        "password_file": Path("p")}  # fmt: skip
MISTAKES: list[tuple[dict[str, Any], str]] = [
    (GOOD, ""),
    (SITE, ""),
    (BASE, ""),
    ({**GOOD, "name": ".a"}, ".name"),
    ({**GOOD, "url": "https://192.0.2.1/a.csv"}, ": expects one of url, path and database"),
    ({**GOOD, "path": None}, ": expects one of url, path and database"),
    ({**SITE, "url": "http://192.0.2.1/staff.csv"}, ".url: expects https://"),
    ({**SITE, "url": "https://a:b@192.0.2.1/staff.csv"}, ".url: expects no credentials"),
    ({**SITE, "unsigned": False}, ": url needs signed_by or sha256"),
    ({**GOOD, "sha256": ("0" * 64,)}, "go with url"),
    ({**SITE, "sha256": ("abc",)}, ".sha256"),
    ({**SITE, "signed_by": ("abc",)}, ".signed_by: not a public key"),
    ({**SITE, "signature": "https://192.0.2.1/staff.sig"}, ""),
    ({**SITE, "signature": "http://192.0.2.1/a"}, ".signature"),
    ({**SITE, "signature": "https://192.0.2.2/a"}, ".signature"),
    ({**SITE, "signature": "https://[/a"}, ".signature"),
    ({**SITE, "url": "https://[/a"}, ".url"),
    ({**SITE, "url": "https://192.0.2.1/export?csv"}, ".format: missing"),
    ({**SITE, "url": "https://192.0.2.1/export", "format": "csv"}, ""),
    ({**SITE, "token_file": Path("a"), "username": "b", "password_file": Path("c")}, ": either token_file"),
    ({**SITE, "cert_file": Path("a")}, ": cert_file and key_file"),
    ({**BASE, "query": ""}, ": database and query go together"),
    ({**BASE, "database": "mysql://v:p@192.0.2.1/hr"}, ".database"),
    ({**BASE, "database": "mysql://192.0.2.1"}, ".database"),
    ({**BASE, "database": "postgresql://192.0.2.1/hr?sslmode=disable"}, ".database"),
    ({**BASE, "database": "oracle://192.0.2.1/hr"}, ".database"),
    ({**BASE, "database": "mysql://[/hr"}, ".database"),
    ({**BASE, "database": "mysql://192.0.2.1:x/hr"}, ".database"),
    ({**BASE, "username": "", "password_file": None}, ".username: missing"),
    ({**GOOD, "key": ()}, ".key"),
    ({**GOOD, "key": ("user:wrong",)}, ".key"),
    ({**GOOD, "types": {"risk": "number"}}, ".types.risk"),
    ({**GOOD, "valid": ("a",)}, ".valid"),
    ({**GOOD, "every": 0.0}, ".every"),
    ({**GOOD, "max_rows": 0}, ".max_rows"),
    ({**GOOD, "timeout": 0.0}, ".timeout"),
]


@walk(("settings", "expected"), MISTAKES)
def test_mistakes(settings: dict[str, Any], expected: str) -> None:
    """Each mistake is named with its key."""
    wrong = mistakes([Table(**settings)])
    assert bool(wrong) == bool(expected)
    assert any(expected in line for line in wrong or [""]), wrong


def test_two_of_one_name() -> None:
    """Are a mistake of the file, since each has a folder's file to itself."""
    assert mistakes([Table(**GOOD), Table(**GOOD)]) == ["lookup: two are called staff"]


@pytest.mark.peer
async def test_what_the_broker_lacks_is_published(
    region: Region, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first version, a change, and all of it again to a broker that lost it; beside it how old they are."""
    many = [b"u%d,%d\n" % (number, number * number) for number in range(40_000)]
    (region.folder / "staff.csv").write_bytes(b"user,risk\n" + b"".join(many))
    region.tables(table('path = "staff.csv"'))
    settings, topics = MqttSettings(url=broker.url), [f"{ROOT}/plants/#"]
    tables, key = read(region.folder / "fleet.toml"), load_key(region.folder / "region.pem")
    refresher = Refresher(region.lookups, key, "plants")
    (done,) = await refresher.run(tables, settings, NOW)
    assert done.published
    announced = (await announce.retained(settings, topics))[lookup_topic("plants", "stable", "staff")]
    (done,) = await refresher.run(tables, settings, NOW + 1)
    assert (done.state, done.published) == ("not due", False)

    (region.folder / "staff.csv").write_bytes(b"user,risk\n" + b"".join(many[:-1]))
    (done,) = await refresher.run(tables, settings, NOW + HOUR)
    assert (done.state, done.published) == ("built", True)
    retained = await announce.retained(settings, topics)
    assert retained[lookup_topic("plants", "stable", "staff")] != announced
    (entry,) = health.read(retained[steer_topic("plants", "lookups")])
    assert (entry.name, entry.since, entry.rows, entry.error) == ("staff", NOW + HOUR, 39_999, "")
    assert entry.trouble(NOW + 4 * HOUR) == ""
    assert entry.trouble(NOW + 5 * HOUR) == "not reloaded since 2026-11-28T01:00:00Z: nobody refreshes it"

    broker.stop()
    monkeypatch.setattr(announce, "CONNECT_SECONDS", 0.3)
    with pytest.raises(OSError, match="cannot read from the broker"):
        await refresher.run(tables, settings, NOW + HOUR + 1)
    for file in broker.folder.glob("*.db"):
        file.unlink()
    broker.start()
    monkeypatch.undo()
    (done,) = await refresher.run(tables, settings, NOW + HOUR + 2)
    assert (done.published, done.error) == (True, "")
    refresher.close()
