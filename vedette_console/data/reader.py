"""DuckDB readers over the tables: as many questions at a time as there are readers, within one bound of memory.

``Pool.ask(function, who, …)`` runs ``function(reader, …)`` in a thread, with the views that it makes narrowed to
what ``who`` may see (``scope``). A table may be written, compacted, vacuumed or missing meanwhile: a question whose
files are gone is asked once more of the table as it is then. When the one who asked goes away, after ``seconds``, and
when the pool is closed, DuckDB is interrupted, and again until the question has ended: an interrupt that comes before
DuckDB has begun is lost. What a question costs is bounded: memory, readers, questions that wait, and time. No user has
all readers: pages leave one to others, and an export goes on beside no other of the same user.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb
import pyarrow as pa
import structlog
from deltalake.exceptions import DeltaError
from fastapi import Request

from spark_jobs.tables.ask import Reader as TableReader
from spark_jobs.tables.ask import Row
from spark_jobs.tables.delta import DataFile
from spark_jobs.tables.duck import BATCH, show
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Where
from vedette_console.data.catalog import Catalog
from vedette_console.data.memo import BeingMade, Memo
from vedette_console.data.scope import NEEDS, SCOPED
from vedette_console.data.turns import Turns
from vedette_console.security.principal import Principal, Scope
from vedette_console.web import Problem

P = ParamSpec("P")
Answer = TypeVar("Answer")

MEMORY = "512MB"
DISK = "4GB"
"""For what does not fit into memory."""
READERS = 3
EXPORTS = 2
WORKS = 2
"""Readers of ``work``: for a report, and what pages show at once."""
WAITING = 200
WAITING_EACH = 40
"""Questions of one user that wait."""
SECONDS = 30.0
"""Of a question, before it is interrupted."""
EXPORT_SECONDS = 3600.0
CACHED = 5.0
"""Seconds for which an answer of ``cached`` stays whatever the tables do."""
NARROWED = "narrowed"
NOBODY = Principal("", "user", ())
LOOK = 0.25
"""Seconds between two looks at whether a browser is still there."""
LESS = "ask for less: a shorter time, a site, a rule"
AGAIN = 0.1
"""Seconds between two interrupts of a question that is to end."""


log = structlog.get_logger(__name__)


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class Reader(TableReader):
    """Views of the tables within ``scope``, and answers; used by one thread at a time.

    Times of an answer are aware, in UTC; maps are lists of pairs.
    """

    def __init__(self, duck: Any, catalog: Catalog, memo: Memo) -> None:
        self.catalog = catalog
        self.memo = memo
        self.who = NOBODY
        self.scope = Scope(False)
        self.stopped = False
        self._duck = duck
        self._batches: pa.RecordBatchReader | None = None

    @contextmanager
    def question(self, who: Principal) -> Iterator[None]:
        """Around a question of ``who``, in its thread: DuckDB takes the next only when nothing of this is open."""
        self.who, scope = who, who.sites("read")
        self.scope = Scope(True) if scope.all else scope
        self._duck.execute(f"DROP TABLE IF EXISTS {NARROWED}")
        try:
            yield
        finally:
            if self._batches is not None:
                self._batches.close()
                self._batches = None

    def stop(self) -> None:
        """End the question, from another thread; what it asks from now on raises ``Stopped``."""
        self.stopped = True
        self._duck.interrupt()

    def files(self, table: Table, where: Where | None = None) -> list[DataFile]:
        """The files of ``table`` in which rows of ``where`` may be."""
        return self.catalog.files(table, where)

    def show(self, name: str, table: Table, files: list[DataFile]) -> None:
        """Let ``name`` stand for what is seen of these files."""
        if self.stopped:
            raise Stopped
        rows = self.catalog.tables.dataset_of(table, [file.path for file in files])
        self._duck.execute(f"DROP VIEW IF EXISTS {name}")
        if self.scope.all:
            show(self._duck, name, table, rows)
            return
        for other in NEEDS.get(table.name, ()):
            self.show(f"seen_{other.name}", other, self.files(other))
        self._duck.execute(f"DROP VIEW IF EXISTS all_{name}")
        show(self._duck, f"all_{name}", table, rows)
        names = ", ".join(f'"{column}"' for column in table.names)
        sql = SCOPED[table.name](f"all_{name}", self.scope)
        self._duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {names} FROM ({sql})")

    def _view(self, name: str, table: Table, where: Where) -> None:
        self.show(name, table, self.files(table, where))

    def _over(self, name: str, sql: str) -> None:
        self._duck.execute(f"DROP VIEW IF EXISTS {name}")
        self._duck.execute(f"CREATE TEMP VIEW {name} AS {sql}")

    def narrow(self, view: str, test: str) -> str:
        """The name of a table of the rows of ``view`` that pass ``test`` (SQL): read once for all that is asked of it,
        until the next question."""
        if self.stopped:
            raise Stopped
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE {NARROWED} AS SELECT * FROM {view} WHERE {test}")
        return NARROWED

    def has(self, table: Table) -> bool:
        return self.catalog.version(table) >= 0

    def rows(self, sql: str) -> list[Row]:
        rows: list[Row] = self._ask(sql).to_arrow_table().to_pylist()
        return rows

    def stream(self, sql: str) -> Iterator[Row]:
        self._batches = self._ask(sql).to_arrow_reader(BATCH)
        for batch in self._batches:
            if self.stopped:
                raise Stopped
            yield from pa.Table.from_batches([batch]).to_pylist()

    def cached(self, key: Hashable, tables: Sequence[Table], make: Callable[[], Answer]) -> Answer:
        """The answer of ``make`` for this scope, stored while ``tables`` stay as they are (``memo``)."""
        return self.memo.get((key, self.scope), self.catalog.versions(tables), make, least=CACHED, most=600.0)

    def close(self) -> None:
        self._duck.close()

    def _ask(self, sql: str) -> Any:
        if self.stopped:
            raise Stopped
        return self._duck.sql(sql.replace("{explode}", "unnest"))


async def unless_gone(gone: Callable[[], Awaitable[bool]], question: Awaitable[Answer]) -> Answer:
    """The answer of ``question``, an ``ask``, which ends when the browser is ``gone`` (``Request.is_disconnected``).

    Raises Problem 499 then, which nobody reads.
    """
    task = asyncio.ensure_future(question)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK))[0]:
            if await gone():
                raise Problem(499, "the browser went away")
        return task.result()
    finally:
        task.cancel()


class Pool:
    """The readers of one console. Opened and closed in its event loop."""

    def __init__(self, root: str, *, memory: str = MEMORY, readers: int = READERS, seconds: float = SECONDS) -> None:
        """Raises ValueError for a folder that cannot be one of tables."""
        self.catalog = Catalog(root)
        self.memo = Memo()
        self.seconds = seconds
        self._open = ExitStack()
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="vedette-console-"))
        settings: dict[str, Any] = {
            "memory_limit": memory,
            "temp_directory": folder,
            "max_temp_directory_size": DISK,
            "autoinstall_known_extensions": "false",
            "preserve_insertion_order": "false",
            "threads": 2,
        }
        self._database = self._open.enter_context(duckdb.connect(config=settings))
        self._database.execute("SET GLOBAL TimeZone = 'UTC'; SET GLOBAL parquet_metadata_cache = true")
        self._threads = ThreadPoolExecutor(readers + EXPORTS + WORKS, thread_name_prefix="tables")
        self._questions = self._readers(readers, each=max(1, readers - 1))
        self._exports, self._works = self._readers(EXPORTS, each=1), self._readers(WORKS, each=WORKS)
        self._at_work: dict[Reader, asyncio.Future[Any]] = {}

    def _readers(self, count: int, each: int) -> Turns[Reader]:
        return Turns([Reader(self._database.cursor(), self.catalog, self.memo) for _ in range(count)], each)

    async def close(self) -> None:
        """Interrupt what runs, and end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for reader, work in self._at_work.items():
            self._stop(reader, work)
        await asyncio.to_thread(self._threads.shutdown)
        self._open.close()

    async def ask(
        self,
        function: Callable[Concatenate[Reader, P], Answer],
        who: Principal,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer:
        """The answer of ``function``. Raises what it raises, Problem 503 when the tables cannot be asked now, and 429
        when too many questions of ``who`` wait."""
        waiting = self._questions.waiting
        if waiting.total() >= WAITING:
            raise _busy()
        if waiting[who.name] >= WAITING_EACH:
            raise _busy("too many of your questions wait already", 429)
        return await self._answer(self._questions, self.seconds, who, lambda reader: function(reader, *args, **kwargs))

    async def work(
        self,
        function: Callable[Concatenate[Reader, P], Answer],
        who: Principal,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer:
        """The same for what takes long, by a reader that pages do not wait for."""
        return await self._answer(self._works, EXPORT_SECONDS, who, lambda reader: function(reader, *args, **kwargs))

    async def stream(
        self, function: Callable[Concatenate[Reader, P], Iterator[bytes]], who: Principal,
        *args: P.args, **kwargs: P.kwargs,
    ) -> AsyncGenerator[bytes]:  # fmt: skip
        """The pieces of ``function``, one at a time, by a reader that pages do not wait for, until ``aclose``.

        The first piece is made before this returns, so that what goes wrong at the beginning is raised here. Raises
        Problem 503 when as many exports as can be run already, and Problem 429 when one of ``who`` does.
        """
        if self._exports.has_all(who.name):
            raise _busy("an export of yours runs already", 429)
        if self._exports.empty():
            raise _busy("as many exports as may be run already")
        reader = await self._exports.take(who.name)
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        taken = threading.Semaphore(0)

        def make() -> None:
            for piece in function(reader, *args, **kwargs):
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
                while not reader.stopped and not taken.acquire(timeout=LOOK):
                    pass
                if reader.stopped:
                    raise Stopped

        begun = self._begin(self._exports, reader, EXPORT_SECONDS, who, make)
        begun.add_done_callback(lambda _: pieces.put_nowait(None))

        async def sent() -> AsyncGenerator[bytes]:
            try:
                piece = await pieces.get()
                if piece is not None:
                    yield b""  # only a generator that has begun does at its end what ``finally`` says
                while piece is not None:
                    yield piece
                    taken.release()
                    piece = await pieces.get()
                begun.result()
            finally:
                self._stop(reader, begun)
                taken.release()

        all = sent()
        await anext(all, None)
        return all

    def _begin(
        self, home: Turns[Reader], reader: Reader, seconds: float, who: Principal, work: Callable[[], Answer]
    ) -> asyncio.Future[Answer]:
        """``work`` of ``who`` in a thread, interrupted after ``seconds``; the reader goes home when that has ended,
        whoever still waits for it."""

        def question() -> Answer:
            with _named(), reader.question(who):
                return work()

        def ended(done: asyncio.Future[Answer]) -> None:
            late.cancel()
            del self._at_work[reader]
            home.give(reader)
            if not done.cancelled():
                done.exception()

        loop = asyncio.get_running_loop()
        reader.stopped = False
        try:
            begun = self._at_work[reader] = loop.run_in_executor(self._threads, question)
        except BaseException:  # nothing else would give it back
            home.give(reader)
            raise
        late = loop.call_later(seconds, self._stop, reader, begun)
        begun.add_done_callback(ended)
        return begun

    async def _answer(
        self, home: Turns[Reader], seconds: float, who: Principal, work: Callable[[Reader], Answer]
    ) -> Answer:
        """The answer of ``work``; who does not wait for it ends the question. While another question makes what this
        one needs, too, its reader is others', and it counts among those that wait."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            reader = await home.take(who.name)
            begun = self._begin(home, reader, seconds, who, partial(self._twice, reader, work))
            try:
                return await asyncio.shield(begun)
            except asyncio.CancelledError:
                self._stop(reader, begun)
                raise
            except BeingMade as making:
                if (left := until - loop.time()) <= 0:
                    raise _late() from None
                with home.waits(who.name):
                    await asyncio.wait({asyncio.wrap_future(making.over)}, timeout=left)

    def _stop(self, reader: Reader, work: asyncio.Future[Any]) -> None:
        """Interrupt ``work``, and again until it has ended; once it has, the reader is another's."""
        if not work.done():
            reader.stop()
            asyncio.get_running_loop().call_later(AGAIN, self._stop, reader, work)

    def _twice(self, reader: Reader, work: Callable[[Reader], Answer]) -> Answer:
        """Do ``work``, in the thread; once more where its files are gone."""
        try:
            return work(reader)
        except (duckdb.IOException, duckdb.InvalidInputException, FileNotFoundError):
            if reader.stopped:
                raise
            self.catalog.forget()
            return work(reader)


@contextmanager
def _named() -> Iterator[None]:
    """Raise what goes wrong with the tables as Problem 503."""
    try:
        yield
    except (duckdb.InterruptException, Stopped):
        raise _late() from None
    except duckdb.OutOfMemoryException:
        raise Problem(503, "the answer takes more memory than the console has", what_to_do=LESS) from None
    except (duckdb.IOException, duckdb.InvalidInputException, DeltaError, OSError) as error:
        log.warning("tables_unreadable", reason=str(error)[:500])
        raise Problem(
            503, "the tables cannot be read now", what_to_do="try again; the log of the console has the reason"
        ) from error


def _late() -> Problem:
    return Problem(503, "no answer in time", what_to_do=LESS)


def _busy(why: str = "too many questions wait already", status: int = 503) -> Problem:
    return Problem(status, why, what_to_do="try again in a minute", headers={"Retry-After": "60"})


def pool_of(request: Request) -> Pool:
    """The pool of the application."""
    pool: Pool = request.app.state.pool
    return pool


async def ask(
    request: Request, function: Callable[Concatenate[Reader, P], Answer], who: Principal,
    *args: P.args, **kwargs: P.kwargs,
) -> Answer:  # fmt: skip
    """The answer of ``function`` to a request; the question ends when the browser goes away. Raises as ``Pool.ask``."""
    return await unless_gone(request.is_disconnected, pool_of(request).ask(function, who, *args, **kwargs))
