"""The agent's control socket, for its operator: a Unix socket in the data folder, for its own user and root only.

One request per connection: a JSON line ``{"command": NAME}``, with what the command wants to know as further keys; the
answer is one JSON line, ``{"error": TEXT}`` when there is no such command or it failed. A request longer than
``MAX_REQUEST`` or slower than ``SECONDS`` is dropped. An answer may take as long as it takes: who asks gives up first.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

MAX_REQUEST = 64 << 10
SECONDS = 10.0

Command = Callable[..., Awaitable[Any]]


class Control:
    """Serves ``commands`` on the socket ``path``."""

    def __init__(self, path: Path, commands: Mapping[str, Command]) -> None:
        self._path, self._commands = path, commands
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError, also when the path is too long for a Unix socket (about 100 bytes)."""
        self._path.unlink(missing_ok=True)  # of a process that was killed: the store's lock says we are alone
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self._path), limit=MAX_REQUEST)
        except OSError as error:
            raise OSError(f"{self._path}: the control socket cannot be made: {error}") from error
        os.chmod(self._path, 0o600)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                line = await reader.readline()
            answer = await self._answer(line)
            async with asyncio.timeout(SECONDS):
                writer.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()  # what is not read is not kept for ever
        except (OSError, ValueError):
            pass  # the operator's command went away, or sent no request
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Any:
        try:
            words = orjson.loads(line)
            command = self._commands[words.pop("command")]
            inspect.signature(command).bind(**words)
        except (ValueError, TypeError, KeyError, AttributeError):
            return {"error": f"expects a command: {', '.join(self._commands)}"}
        try:
            return await command(**words)
        except (OSError, ValueError) as error:
            return {"error": str(error)}
        except Exception as error:  # a defect in a status must not stop evaluation
            return {"error": f"the agent could not answer: {type(error).__name__}: {error}; please report it"}


def ask(path: Path, command: str, *, seconds: float = SECONDS, **words: Any) -> Any:
    """The running agent's answer to ``command`` with ``words``, for which it has ``seconds``.

    Raises ConnectionRefusedError when nobody listens at ``path``; ConnectionError when one could not be asked, or did
    not answer: then it may have done what was asked, or do it yet; ValueError on its refusal.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(path))
            connection.sendall(orjson.dumps({"command": command, **words}) + b"\n")
            data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except PermissionError as error:
            raise ConnectionError(f"{path}: not permitted; ask as root or as the agent's user") from error
        except TimeoutError as error:
            raise ConnectionError(f"{path}: no agent answers within {seconds:g} s; is it running?") from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ConnectionRefusedError(f"{path}: no agent answers ({error}); is it running?") from error
        except OSError as error:
            raise ConnectionError(f"{path}: no agent answers ({error}); is it running?") from error
    if not data:
        raise ConnectionError(f"{path}: the agent ended or failed before it answered; see its log")
    answer = orjson.loads(data)
    if isinstance(answer, dict) and answer.get("error") is not None:
        raise ValueError(str(answer["error"]))
    return answer
