"""The console listens: uvicorn on one address, by TLS or on loopback; plain HTTP elsewhere only when it is asked for.
``accept`` says who may connect.

At SIGTERM or SIGINT event streams end first, then requests get ``DRAIN`` seconds, then services stop.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import uvicorn
from fastapi import FastAPI

from vedette.system.descriptors import raise_limit
from vedette_console import accept
from vedette_console.accept import Listening, Timed
from vedette_console.settings import Settings

DRAIN = 5
BACKLOG = 512


class _Server(uvicorn.Server):
    """Leaves signals to its caller, and ends event streams before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, sock: socket.socket) -> None:
        super().__init__(config)
        self._sock = sock

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup([])
        except SystemExit as error:  # which would end the event loop, too
            raise OSError("the console could not start; its log says why") from error
        config, waiting = self.config, dict[Timed, None]()
        server = await asyncio.get_running_loop().create_server(
            lambda: Timed(config, self.server_state, self.lifespan.state, waiting), sock=self._sock,
            backlog=BACKLOG, ssl=config.ssl, ssl_handshake_timeout=accept.HEAD_SECONDS if config.ssl else None,
        )  # fmt: skip
        self.servers.append(server)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.hub.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


async def listen(app: FastAPI, stop: asyncio.Event, started: Callable[[int], None] | None = None) -> None:
    """Serve ``app`` as its settings say until ``stop``; ``started`` is given the port once it answers.

    Raises ValueError for settings that do not go together, OSError for an address that is taken or a certificate that
    cannot be read.
    """
    settings: Settings = app.state.settings
    if mistakes := [*settings.mistakes()]:
        raise ValueError("\n".join(mistakes))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", ws="none", server_header=False,
        limit_concurrency=accept.AT_ONCE, timeout_graceful_shutdown=DRAIN, proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=[*settings.trusted_proxies], ssl_certfile=settings.cert_file, ssl_keyfile=settings.key_file,
    )  # fmt: skip
    raise_limit()
    with closing(_bound(settings.host, settings.port, settings.trusted_proxies)) as sock:
        config.load()
        server = _Server(config, sock)
        work, asked = asyncio.create_task(server.serve()), asyncio.create_task(stop.wait())
        try:
            while not server.started and not work.done():
                await asyncio.sleep(0.01)
            if started is not None and not work.done():
                started(sock.getsockname()[1])
            await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            await work
        finally:
            asked.cancel()


def serve(app: FastAPI, started: Callable[[int], None] | None = None) -> None:
    """Run a console until SIGTERM or SIGINT. Raises what ``listen`` raises."""

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await listen(app, stop, started)

    asyncio.run(main())


def _bound(host: str, port: int, proxies: tuple[str, ...] = ()) -> Listening:
    """A socket at that address. Raises OSError that names it."""
    try:
        found_at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found_at[0]
        # asyncio sends at once, without Nagle's delay, only on sockets that say that they are TCP's.
        listening = Listening(family, kind, protocol, proxies)
        try:
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise OSError(f"{host}:{port}: {error.strerror or error}") from error
    return listening
