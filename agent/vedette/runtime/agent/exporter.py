"""``/metrics`` in Prometheus' text format, of the loopback unless the operator says otherwise.

It shows the names of inputs and rules to whoever can connect. It answers in the event loop, where all numbers are of
one moment: one request per connection, each for ``SECONDS`` at most, ``EACH`` of one network at a time and
``MAX_CONNECTIONS`` in all, of which the oldest ends for a further one. So nobody who connects and waits keeps a scraper
at another address out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

from vedette.inputs.accept import host, network
from vedette.inputs.http_reader import HttpReader, Received
from vedette.inputs.push.base import Refused, Request
from vedette.model.counters import Log
from vedette.model.settings import split_address
from vedette.runtime.agent.metrics import AGENT, METRICS, samples

log = structlog.get_logger()

READ_BYTES = 8 << 10
MAX_CONNECTIONS, EACH = 16, 4
SECONDS = 5.0


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    info = GaugeMetricFamily("vedette_agent", "Which agent this is; always 1", labels=AGENT)
    info.add_metric([str(status[name] or "") for name in AGENT], 1)
    yield info
    for metric in METRICS:
        kind: type[CounterMetricFamily | GaugeMetricFamily] = (
            CounterMetricFamily if metric.counter else GaugeMetricFamily
        )
        family = kind(f"vedette_{metric.name}", metric.help, labels=metric.labels)
        for labels, number in samples(metric, status):
            family.add_metric(labels, number)
        if family.samples:
            yield family


class _Status(CollectorRegistry):
    """For one request."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        super().__init__(auto_describe=False)
        self._status = status

    def collect(self) -> Iterator[Metric]:
        return families(self._status)


def text(status: Mapping[str, Any]) -> bytes:
    return generate_latest(_Status(status))


class Exporter:
    def __init__(self, listen: str, status: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        self._host, self._port = split_address(listen)
        self._status = status
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, str] = {}
        """The oldest first, with the network of who has it."""

    async def start(self) -> None:
        """Raises OSError naming the setting and the address."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=READ_BYTES)
        except OSError as error:
            reason = f"metrics.listen: cannot listen on {self._host}:{self._port}: {error.strerror or error}"
            raise OSError(error.errno, reason) from error
        log.info(Log.METRICS_SERVED, url=f"http://{self._host}:{self.port}/metrics")

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = network(host((writer.get_extra_info("peername") or [""])[0]))
        self._open[writer] = peer
        try:
            if [*self._open.values()].count(peer) <= EACH:
                if len(self._open) > MAX_CONNECTIONS:
                    oldest = next(iter(self._open))
                    del self._open[oldest]
                    oldest.transport.abort()
                async with asyncio.timeout(SECONDS):
                    writer.write(await self._answer(await _first(reader)))
                    await writer.drain()
        except TimeoutError:
            writer.transport.abort()  # what is not read is not kept for ever
        except (OSError, EOFError):
            pass  # no request, or nobody who waits for the answer
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answer(self, received: Received) -> bytes:
        if (refused := received.refused) is not None:
            return _response(refused.status, "text/plain", f"{refused}\n".encode())
        body = text(await self._status())
        return _response(HTTPStatus.OK, CONTENT_TYPE_LATEST, body, send=received.request.method == "GET")


async def _first(reader: asyncio.StreamReader) -> Received:
    """Read the first request; raises EOFError when none comes."""
    requests = HttpReader(0, _admit)
    while not requests.requests:
        data = await reader.read(READ_BYTES)
        if not data:
            raise EOFError
        requests.feed(data)
        if requests.within and requests.refused is not None:
            requests.give_up()
    return requests.requests[0]


def _admit(request: Request) -> Refused | None:
    if request.method not in ("GET", "HEAD"):
        return Refused(405, "GET /metrics")
    return None if request.path == "/metrics" else Refused(404, "the metrics are at /metrics")


def _response(status: int, kind: str, body: bytes, *, send: bool = True) -> bytes:
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if send else b"")
