"""``[[sink]] type = "syslog"``: its receivers. Alerts, and rows with their JSON, as messages of RFC 5424 over
TLS (RFC 5425), TCP (RFC 6587, octet-counted) or UDP.

Delivery: syslog has no answers. Over TLS and TCP an alert counts as taken when the receiver's kernel has acknowledged
its last byte; what a receiver then loses by itself nobody can tell. When a connection breaks, all that it was given
since the last such moment is sent again, under the same ids. Over UDP an alert counts as taken when it is sent.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import socket
import ssl
import termios
from collections.abc import Sequence
from contextlib import suppress

from vedette.model.settings import split_address
from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.formats import formed, short, syslog_message
from vedette.sinks.settings import SyslogSink

BATCH, ROW_BATCH = 100, 1000
MAX_DATAGRAM = 60_000
"""Bytes; what IP carries is little more."""
LOOK_SECONDS = 0.01
"""Between two looks at what the receiver's kernel has acknowledged."""


class Stream:
    """TLS or TCP: one connection, made again after any failure, with certificates read again."""

    batch, row_batch = BATCH, ROW_BATCH

    def __init__(self, settings: SyslogSink, version: str) -> None:
        self._settings = settings
        self._version = version
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        messages = [_message(self._settings, alert, self._version) for alert in alerts]
        data = b"".join(b"%d %s" % (len(message), message) for message in messages)
        whole = False
        try:
            async with asyncio.timeout(self._settings.timeout):
                reader, writer = await self._connected()
                writer.write(data)
                await writer.drain()
                await _acknowledged(reader, writer)
            whole = True
        except TimeoutError:
            return [Answer(Verdict.LATER, f"not acknowledged within {self._settings.timeout:g} s")] * len(alerts)
        except (OSError, ValueError) as error:
            return [Answer(Verdict.LATER, str(error) or type(error).__name__)] * len(alerts)
        finally:
            if not whole:
                self._drop()
        said = "acknowledged by the receiver's kernel; syslog has no answers"
        return [Answer(Verdict.TAKEN, said)] * len(alerts)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._open is not None and self._open[0].at_eof():
            self._drop()
        if self._open is None:
            host, port = split_address(self._settings.address)
            context = await asyncio.to_thread(self._context) if self._settings.transport == "tls" else None
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until the kernel has all of it
            self._open = reader, writer
        return self._open

    def _context(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return context

    def _drop(self) -> None:
        if self._open is not None:
            self._open[1].transport.abort()
            self._open = None

    async def close(self) -> None:
        if self._open is not None:
            writer, self._open = self._open[1], None
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()


def _message(settings: SyslogSink, alert: Outgoing, version: str, *, brief: bool = False) -> bytes:
    row = short(alert.row) if brief and not alert.line else alert.row
    return syslog_message(row, formed(alert._replace(row=row), settings.format, version), settings.facility)


async def _acknowledged(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the other side's kernel has acknowledged all. Raises ConnectionError when it closes before."""
    descriptor = writer.get_extra_info("socket").fileno()
    while True:
        if reader.at_eof() or writer.is_closing():
            raise ConnectionResetError("the receiver closed the connection")
        if int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), "little") == 0:  # SIOCOUTQ: tcp(7)
            return
        await asyncio.sleep(LOOK_SECONDS)


class Datagrams:
    """UDP: one message a datagram."""

    batch = BATCH

    def __init__(self, settings: SyslogSink, version: str) -> None:
        self._settings = settings
        self._version = version
        self._socket: socket.socket | None = None

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        """One after the other; once the receiver is away, the others are not sent."""
        answers: list[Answer] = []
        for alert in alerts:
            answers.append(await self._send(alert))
            if answers[-1].verdict is Verdict.LATER:
                break
        return answers + [Answer(Verdict.UNTRIED)] * (len(alerts) - len(answers))

    async def _send(self, alert: Outgoing) -> Answer:
        message = _message(self._settings, alert, self._version)
        if len(message) > MAX_DATAGRAM:
            message = _message(self._settings, alert, self._version, brief=True)
        if len(message) > MAX_DATAGRAM:
            return Answer(Verdict.REFUSED, f"{len(message)} bytes are too many for a datagram")
        try:
            async with asyncio.timeout(self._settings.timeout):
                loop = asyncio.get_running_loop()
                if self._socket is None:
                    host, port = split_address(self._settings.address)
                    family, *_, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM))[0]
                    self._socket = socket.socket(family, socket.SOCK_DGRAM)
                    self._socket.setblocking(False)
                    self._socket.connect(address)
                await loop.sock_sendall(self._socket, message)
        except (OSError, TimeoutError) as error:
            await self.close()
            return Answer(Verdict.LATER, re.sub(r"^\[Errno \d+\] ", "", str(error)) or "cannot be sent")
        return Answer(Verdict.TAKEN, "sent; UDP has no answers")

    async def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
