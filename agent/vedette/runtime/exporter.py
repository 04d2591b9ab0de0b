"""``/metrics`` in Prometheus' text format, of the loopback unless the operator says otherwise.

It shows the names of inputs and rules to whoever can connect. It answers in the event loop, where all numbers are of
one moment: one request per connection, each for ``SECONDS`` at most, ``EACH`` of one network at a time and
``MAX_CONNECTIONS`` in all, of which the oldest ends for a further one. So nobody who connects and waits keeps a scraper
at another address out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

from vedette.inputs.accept import network
from vedette.inputs.datagrams import host
from vedette.model.counters import Log
from vedette.model.settings import split_address
from vedette.runtime.metrics import AGENT, METRICS, samples

log = structlog.get_logger()

MAX_REQUEST = 8 << 10
MAX_CONNECTIONS, EACH = 16, 4
SECONDS = 5.0
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    info = GaugeMetricFamily("vedette_agent", "Which agent this is; always 1", labels=AGENT)
    info.add_metric([str(status[name] or "") for name in AGENT], 1)
    yield info
    for metric in METRICS:
        if found := list(samples(metric, status)):
            family = _FAMILIES[metric.type](f"vedette_{metric.name}", metric.help, labels=metric.labels)
            for labels, number in found:
                family.add_metric(labels, number)
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
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MAX_REQUEST)
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
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
        except TimeoutError:
            writer.transport.abort()  # what is not read is not kept for ever
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # no request, or nobody who waits for the answer
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(b"405 Method Not Allowed", "text/plain", b"GET /metrics\n")
        if target != b"/metrics":
            return _response(b"404 Not Found", "text/plain", b"the metrics are at /metrics\n")
        body = text(await self._status())
        return _response(b"200 OK", CONTENT_TYPE_LATEST, body, send=method == b"GET")


def _response(state: bytes, kind: str, body: bytes, *, send: bool = True) -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (state, kind.encode(), len(body)) + (body if send else b"")
