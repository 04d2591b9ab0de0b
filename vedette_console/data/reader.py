"""DuckDB readers over the tables: as many questions at a time as there are readers, within one bound of memory.

``Pool.ask(function, who, …)`` runs ``function(reader, …)`` in a thread, with the views that it makes narrowed to
what ``who`` may see (``scope``). A table may be written, compacted, vacuumed or missing meanwhile: a question whose
files are gone is asked once more of the table as it is then. When the one who asked goes away, after ``seconds``, and
when the pool is closed, DuckDB is interrupted, and again until the question has ended: an interrupt that comes before
DuckDB has begun is lost. What a question costs is bounded: memory, readers, questions that wait, and time.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
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
from vedette_console.data.memo import Memo
from vedette_console.data.scope import NEEDS, SCOPED
from vedette_console.security.principal import Principal, Scope
from vedette_console.web import Problem

P = ParamSpec("P")
Answer = TypeVar("Answer")

MEMORY = "512MB"
DISK = "4GB"
"""For what does not fit into memory."""
READERS = 3
EXPORTS = 2
WAITING = 200
SECONDS = 30.0
"""Of a question, before it is interrupted."""
EXPORT_SECONDS = 3600.0
CACHED = 5.0
"""Seconds for which an answer of ``cached`` stays whatever the tables do."""
NARROWED = "narrowed"
NOBODY = Principal("", "user", ())
LOOK = 0.25
"""Seconds between two looks at whether a browser is still there."""
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
        self._duck = duck
        self._stop = threading.Event()

    def begin(self, who: Principal) -> None:
        """A question of ``who`` begins."""
        self.who, scope = who, who.sites("read")
        self.scope = Scope(True) if scope.all else scope
        self._stop.clear()
        self._duck.execute(f"DROP TABLE IF EXISTS {NARROWED}")

    def stop(self) -> None:
        """End the question, from another thread; what it asks from now on raises ``Stopped``."""
        self._stop.set()
        self._duck.interrupt()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

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
        for batch in self._ask(sql).to_arrow_reader(BATCH):
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
        self._threads = ThreadPoolExecutor(readers + EXPORTS, thread_name_prefix="tables")
        self._free: asyncio.LifoQueue[Reader] = asyncio.LifoQueue()
        self._exports: asyncio.LifoQueue[Reader] = asyncio.LifoQueue()
        self._waiting = 0
        self._at_work: dict[Reader, asyncio.Future[Any]] = {}
        for queue, count in ((self._free, readers), (self._exports, EXPORTS)):
            for _ in range(count):
                queue.put_nowait(Reader(self._database.cursor(), self.catalog, self.memo))

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
        """The answer of ``function``. Raises what it raises, and Problem 503 when the tables cannot be asked now."""
        if self._waiting >= WAITING:
            raise _busy()
        self._waiting += 1
        try:
            reader = await self._free.get()
        finally:
            self._waiting -= 1
        return await self._run(self._free, reader, self.seconds, who, lambda: function(reader, *args, **kwargs))

    async def work(
        self,
        function: Callable[Concatenate[Reader, P], Answer],
        who: Principal,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer:
        """The same for what takes long, by a reader that pages do not wait for."""
        reader = await self._exports.get()
        return await self._run(self._exports, reader, EXPORT_SECONDS, who, lambda: function(reader, *args, **kwargs))

    async def stream(
        self, function: Callable[Concatenate[Reader, P], Iterator[bytes]], who: Principal,
        *args: P.args, **kwargs: P.kwargs,
    ) -> AsyncIterator[bytes]:  # fmt: skip
        """The pieces of ``function``, one at a time, by a reader that pages do not wait for.

        The first piece is made before this returns, so that what goes wrong at the beginning is raised here. Raises
        Problem 503 when as many exports as can be run already.
        """
        try:
            reader = self._exports.get_nowait()
        except asyncio.QueueEmpty:
            raise _busy("as many exports as may be run already") from None
        with _unless_it_begins(self._exports, reader):
            reader.begin(who)
            pieces = self._pieces(reader, function(reader, *args, **kwargs))
        first = await anext(pieces, b"")

        async def rest() -> AsyncIterator[bytes]:
            try:
                yield first
                async for piece in pieces:
                    yield piece
            finally:
                await pieces.aclose()

        return rest()

    async def _pieces(self, reader: Reader, pieces: Iterator[bytes]) -> AsyncGenerator[bytes]:
        def following() -> bytes | None:
            with _named():
                return next(pieces, None)

        def overdue() -> None:
            reader.stop()  # also where the browser is slow, and no piece is under way
            self._stop(reader, work)

        with _unless_it_begins(self._exports, reader):
            work = self._begin(reader, following)
        late = asyncio.get_running_loop().call_later(EXPORT_SECONDS, overdue)
        try:
            while (piece := await asyncio.shield(work)) is not None:
                yield piece
                work = self._begin(reader, following)
        finally:
            late.cancel()
            self._stop(reader, work)
            work.add_done_callback(lambda _: self._exports.put_nowait(reader))

    def _begin(self, reader: Reader, work: Callable[[], Answer]) -> asyncio.Future[Answer]:
        """``work`` in a thread, by ``reader``, noted until it has ended."""

        def ended(done: asyncio.Future[Answer]) -> None:
            del self._at_work[reader]
            if not done.cancelled():
                done.exception()

        future = self._at_work[reader] = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(ended)
        return future

    def _stop(self, reader: Reader, work: asyncio.Future[Any]) -> None:
        """Interrupt ``work``, and again until it has ended; once it has, the reader is another's."""
        if not work.done():
            reader.stop()
            asyncio.get_running_loop().call_later(AGAIN, self._stop, reader, work)

    async def _run(
        self,
        home: asyncio.LifoQueue[Reader],
        reader: Reader,
        seconds: float,
        who: Principal,
        work: Callable[[], Answer],
    ) -> Answer:
        """``work`` in a thread; the reader is free again when that has ended, whoever still waits for it."""
        with _unless_it_begins(home, reader):
            reader.begin(who)
            future = self._begin(reader, lambda: self._twice(reader, work))
        late = asyncio.get_running_loop().call_later(seconds, self._stop, reader, future)

        def ended(_: asyncio.Future[Answer]) -> None:
            late.cancel()
            home.put_nowait(reader)

        future.add_done_callback(ended)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._stop(reader, future)
            raise

    def _twice(self, reader: Reader, work: Callable[[], Answer]) -> Answer:
        """Do ``work`` in the thread, and once more where its files are gone."""
        with _named():
            try:
                return work()
            except (duckdb.IOException, duckdb.InvalidInputException, FileNotFoundError):
                if reader.stopped:
                    raise
                self.catalog.forget()
                return work()


@contextmanager
def _unless_it_begins(home: asyncio.LifoQueue[Reader], reader: Reader) -> Iterator[None]:
    """Give the reader back when its question does not begin: nothing else would."""
    try:
        yield
    except BaseException:
        home.put_nowait(reader)
        raise


@contextmanager
def _named() -> Iterator[None]:
    """Raise what goes wrong with the tables as Problem 503."""
    less = "ask for less: a shorter time, a site, a rule"
    try:
        yield
    except (duckdb.InterruptException, Stopped):
        raise Problem(503, "no answer in time", what_to_do=less) from None
    except duckdb.OutOfMemoryException:
        raise Problem(503, "the answer takes more memory than the console has", what_to_do=less) from None
    except (duckdb.IOException, duckdb.InvalidInputException, DeltaError, OSError) as error:
        log.warning("tables_unreadable", reason=str(error)[:500])
        raise Problem(
            503, "the tables cannot be read now", what_to_do="try again; the log of the console has the reason"
        ) from error


def _busy(why: str = "too many questions wait already") -> Problem:
    return Problem(503, why, what_to_do="try again in a minute", headers={"Retry-After": "60"})


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
