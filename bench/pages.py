"""``python -m bench.pages --tables DIR``: what the console's pages take, over HTTP, from a console of its own.

Starts ``vedette region console`` over tables that are there (``bench.spark`` makes some), logs an admin in and asks
for each page ``--rounds`` times, one after the other, after a first time that is shown apart (``first``): milliseconds,
bytes, and the console's CPU time for a page, in milliseconds. Then pages a second for 8 askers.

At last ``--open`` pages hold a stream of events, and each asks for *Now* again when it hears that alerts came, as the
page's script does: no more than once in 3 seconds. News comes from rows appended to a copy of the table ``alerts``, one
a second. While that lasts one more asker reads pages: their times, the console's share of a core, its largest resident
memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit

import duckdb

from bench.host import machine
from bench.usage import cpu_seconds, memory_mb
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.duck import view
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import Where
from vedette_console.security.identity import cookie_name
from vedette_console.security.principal import Grant, Role
from vedette_console.settings import Settings
from vedette_console.store.store import open_store

ASKERS, SECONDS = 8, 10.0
AGAIN = 3.0
"""Seconds that a page lets pass between two renewals."""

USERS = 4
"""The open pages' users: one may have 64 streams."""

PLAIN = {
    "now": "/", "alerts": "/alerts", "campaigns": "/campaigns", "entities": "/entities", "fleet": "/fleet",
    "roll-outs": "/rollouts", "rules": "/rules", "noise": "/rules?show=noise", "matrix": "/rules?show=attack",
    "hunts": "/hunts", "reports": "/reports", "users": "/users", "audit": "/audit",
}  # fmt: skip
LED_TO = {
    "alert": ("/alerts", r'href="(/alerts/\d[^"]+)"'),
    "campaign": ("/campaigns", r'href="(/campaigns/[0-9a-f]+)"'),
    "entity": ("/entities", r'href="(/entities/[a-z_]+/[^"]+)"'),
    "rule": ("/rules", r'href="(/rules/(?!new)[^"?]+)"'),
    "agent": ("/fleet", r'href="(/fleet/[^"?]+/[^"?]+)"'),
}
"""Pages about one thing, by the first link to one of them."""


@dataclass(frozen=True)
class Console:
    """A running console and the cookies of its users."""

    process: subprocess.Popen[str]
    host: str
    port: int
    cookies: tuple[str, ...]

    def get(self, path: str, reused: HTTPConnection | None = None) -> tuple[int, bytes]:
        """Status and body. ``reused`` is a connection to go on with."""
        connection = reused or HTTPConnection(self.host, self.port, timeout=300)
        connection.request("GET", path, headers={"Cookie": self.cookies[0]})
        answer = connection.getresponse()
        body = answer.read()
        if reused is None:
            connection.close()
        return answer.status, body


@contextmanager
def running(tables: Path) -> Iterator[Console]:
    """A console over ``tables``, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="vedette-pages-") as folder, ExitStack() as end:
        database = f"sqlite:{folder}/console.db"
        settings = Settings(database=database, tables=str(tables))
        store = end.enter_context(closing(open_store(settings)))
        names = [f"user-{number}" for number in range(USERS)]
        for name in names:
            store.accounts.add(name, [Grant(Role.ADMIN)])
        cookies = tuple(f"{cookie_name(settings)}={store.sessions.start(name)}" for name in names)
        words = [sys.executable, "-m", "vedette", "region", "console", "--database", database, "--tables", str(tables)]
        process = subprocess.Popen(
            [*words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        end.callback(process.wait)
        end.callback(process.terminate)
        assert process.stdout is not None
        where = next((line.split()[1] for line in process.stdout if line.startswith("console")), "")
        if not where:
            raise SystemExit("the console did not start; vedette region console says why")
        url = urlsplit(where)
        yield Console(process, url.hostname or "127.0.0.1", url.port or 0, cookies)


def places(console: Console) -> dict[str, str]:
    """Paths by name: ``PLAIN``, and one each of ``LED_TO`` that there is."""
    paths = dict(PLAIN)
    for name, (page, pattern) in LED_TO.items():
        if match := re.search(pattern, console.get(page)[1].decode()):
            paths[name] = match[1].replace("&amp;", "&")
        else:
            print(f"no {name}: {page} leads to none")
    return paths


def one_by_one(console: Console, rounds: int) -> None:
    """Each page by itself."""
    print(f"{'page':12} {'first':>7} {'p50':>7} {'p95':>7} {'cpu':>7} ms   bytes")
    for name, path in places(console).items():
        connection = HTTPConnection(console.host, console.port, timeout=300)
        times, size, used = [], 0, 0.0
        for number in range(rounds + 1):
            begin, before = time.perf_counter(), cpu_seconds(console.process.pid)
            status, body = console.get(path, connection)
            times.append(1e3 * (time.perf_counter() - begin))
            if status != 200:
                raise SystemExit(f"{path}: status {status}")
            size, used = len(body), used + (1e3 * (cpu_seconds(console.process.pid) - before) if number else 0.0)
        connection.close()
        print(f"{name:12} {times[0]:7.0f} {shares(times[1:])} {used / rounds:7.0f} {size:10,}", flush=True)


def together(console: Console) -> None:
    """Pages a second."""
    paths, end = ["/", "/alerts", "/campaigns", "/fleet"], time.perf_counter() + SECONDS

    def ask(number: int) -> int:
        connection, answers = HTTPConnection(console.host, console.port, timeout=300), 0
        while time.perf_counter() < end:
            console.get(paths[(number + answers) % len(paths)], connection)
            answers += 1
        connection.close()
        return answers

    with ThreadPoolExecutor(ASKERS) as pool:
        answers = sum(pool.map(ask, range(ASKERS)))
    print(f"{answers / SECONDS:.0f} pages a second by {ASKERS} askers of {', '.join(paths)}")


async def opened(console: Console, number: int, tables: DeltaTables) -> None:
    """So many open pages while alerts come."""
    over, renewed, heard = asyncio.Event(), 0, 0

    async def page(cookie: str) -> None:
        nonlocal renewed, heard
        reader, writer = await asyncio.open_connection(console.host, console.port)
        writer.write(_request("/api/v1/events?topics=now", cookie, "keep-alive"))
        last, wanted = 0.0, False
        while not over.is_set():
            try:
                line = await asyncio.wait_for(reader.readline(), 0.5)
            except TimeoutError:
                line = b""
            if line.startswith(b"event: now"):
                heard, wanted = heard + 1, True
            if wanted and time.monotonic() - last > AGAIN:
                last, wanted = time.monotonic(), False
                asked, asking = await asyncio.open_connection(console.host, console.port)
                asking.write(_request("/", cookie, "close"))
                await asked.read()
                asking.close()
                renewed += 1
        writer.close()

    pages = [asyncio.create_task(page(console.cookies[user % USERS])) for user in range(number)]
    await asyncio.sleep(2)
    begin, used, times = time.perf_counter(), cpu_seconds(console.process.pid), []
    with ThreadPoolExecutor(1) as writing:
        loop = asyncio.get_running_loop()
        news = loop.run_in_executor(writing, _alerts, tables, int(SECONDS * 2))
        while not news.done():
            at = time.perf_counter()
            await asyncio.to_thread(console.get, "/alerts")
            times.append(1e3 * (time.perf_counter() - at))
        await news
    lasted = time.perf_counter() - begin
    share = (cpu_seconds(console.process.pid) - used) / lasted
    over.set()
    await asyncio.gather(*pages)
    print(f"{number} open pages, {lasted:.0f} s with new alerts each second: {heard / number:.0f} events and "
          f"{renewed / number:.1f} renewals a page; the console used {100 * share:.0f} % of a core; "
          f"/alerts asked beside it: p50 and p95 {shares(times)} ms")  # fmt: skip


def _request(path: str, cookie: str, connection: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: console\r\nCookie: {cookie}\r\nConnection: {connection}\r\n\r\n".encode()


def _alerts(tables: DeltaTables, seconds: int) -> None:
    """Append alerts of another agent, one a second."""
    with duckdb.connect() as duck:
        day = max(tables.partitions(ALERTS))
        view(duck, "alerts", tables, ALERTS, Where(only=(day,)))
        for number in range(seconds):
            begin = time.monotonic()
            row = f"SELECT * REPLACE ('bench-{number}' AS agent_id) FROM alerts LIMIT 1"
            tables.append(ALERTS, duck.sql(row).to_arrow_table())
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begin)))


def shares(times: list[float]) -> str:
    """p50 and p95."""
    cut = quantiles(times, n=20, method="inclusive") if len(times) > 1 else times * 19
    return f"{cut[9]:7.0f} {cut[18]:7.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--open", type=int, default=200)
    said = parser.parse_args()
    print(machine())
    with running(said.tables) as console:
        one_by_one(console, said.rounds)
        together(console)
        print(f"largest resident memory: {memory_mb(console.process.pid)['VmHWM']:.0f} MB")
    with tempfile.TemporaryDirectory(dir=said.tables.parent, prefix="pages-") as folder:
        # Data files are never changed, so links to them will do.
        copy = Path(folder) / "tables"
        shutil.copytree(said.tables, copy, copy_function=_linked)
        with running(copy) as console:
            console.get("/")
            asyncio.run(opened(console, said.open, DeltaTables(str(copy))))
            print(f"largest resident memory: {memory_mb(console.process.pid)['VmHWM']:.0f} MB")
    return 0


def _linked(source: str, target: str) -> None:
    (os.link if source.endswith(".parquet") else shutil.copy2)(source, target)


if __name__ == "__main__":
    sys.exit(main())
