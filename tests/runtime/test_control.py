"""The control socket: one question, one answer, and nothing that a bad peer can break."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.looptime import forward
from tests.waits import DEADLINE
from vedette.runtime.agent import control
from vedette.runtime.agent.control import MAX_REQUEST, Control, ask


async def _good() -> Any:
    return {"state": "running", "n": 3}


async def _wants(n: int, more: str = "") -> Any:
    return {"n": n, "more": more}


async def _without_error() -> Any:
    return {"reloads": 1, "error": None}


async def _bad() -> Any:
    raise ValueError("no such thing; do that")


def serving(path: Path, work: Callable[[], Awaitable[Any]]) -> Any:
    """What ``work`` gives while a control socket is served at ``path``."""

    async def main() -> Any:
        served = Control(path, {"good": _good, "bad": _bad, "wants": _wants, "reload": _without_error})
        await served.start()
        try:
            return await work()
        finally:
            await served.stop()

    return asyncio.run(main())


def test_a_command_is_answered(tmp_path: Path) -> None:
    """``ask`` gives what the command gave."""
    path = tmp_path / "c.sock"
    assert serving(path, lambda: asyncio.to_thread(ask, path, "good")) == {"state": "running", "n": 3}


def test_an_answer_may_say_that_there_was_no_error(tmp_path: Path) -> None:
    """As that to ``reload`` does."""
    path = tmp_path / "c.sock"
    assert serving(path, lambda: asyncio.to_thread(ask, path, "reload")) == {"reloads": 1, "error": None}


def test_a_command_gets_its_words(tmp_path: Path) -> None:
    """Further keys of the request are what the command is given; too few or others are refused."""
    path = tmp_path / "c.sock"
    assert serving(path, lambda: asyncio.to_thread(ask, path, "wants", n=3)) == {"n": 3, "more": ""}
    refused: tuple[dict[str, int], ...] = ({}, {"n": 1, "other": 2})
    for words in refused:
        with pytest.raises(ValueError, match="expects a command"):
            serving(path, partial(asyncio.to_thread, ask, path, "wants", **words))


@pytest.mark.parametrize(
    ("command", "reason"), [("bad", "no such thing; do that"), ("what", "expects a command: good")]
)
def test_a_refusal_is_a_value_error(tmp_path: Path, command: str, reason: str) -> None:
    """A command that fails, or that there is none of, raises with the agent's words."""
    path = tmp_path / "c.sock"
    with pytest.raises(ValueError, match=reason):
        serving(path, lambda: asyncio.to_thread(ask, path, command))


def test_only_its_user_may_ask(tmp_path: Path) -> None:
    """The socket is readable and writable by its owner only, and gone after the stop."""
    path = tmp_path / "c.sock"

    async def mode() -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert serving(path, mode) == 0o600
    assert not path.exists()


@pytest.mark.parametrize(
    "request_bytes", [b"\n", b"not json\n", b"[1]\n", b'{"command": []}\n', b"x" * (MAX_REQUEST * 2)]
)
def test_a_bad_request_does_no_harm(tmp_path: Path, request_bytes: bytes) -> None:
    """Requests that are none get an error or a closed connection, and the next one is answered."""
    path = tmp_path / "c.sock"

    def talk() -> tuple[bytes, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(str(path))
            try:
                connection.sendall(request_bytes)
                answer = connection.recv(1 << 16)
            except ConnectionError:
                answer = b""
        return answer, ask(path, "good")

    answer, after = serving(path, lambda: asyncio.to_thread(talk))
    assert answer == b"" or "expects a command" in orjson.loads(answer)["error"]
    assert after["state"] == "running"


def test_a_silent_peer_is_dropped(tmp_path: Path) -> None:
    """Who sends no request is disconnected after a while; others are answered meanwhile."""
    path = tmp_path / "c.sock"

    def talk(loop: asyncio.AbstractEventLoop) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(str(path))
            assert ask(path, "good")["n"] == 3
            forward(loop, control.SECONDS)
            return connection.recv(1)

    async def work() -> bytes:
        return await asyncio.to_thread(talk, asyncio.get_running_loop())

    assert serving(path, work) == b""


def test_a_dead_agents_socket_is_taken_over(tmp_path: Path) -> None:
    """A socket that a killed agent left behind does not hinder the next one; asked, it says that nobody is there."""
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(ConnectionRefusedError, match=r"no agent answers .* is it running"):
        ask(path, "good")
    assert serving(path, lambda: asyncio.to_thread(ask, path, "good"))["n"] == 3


def test_nobody_there(tmp_path: Path) -> None:
    """Asking where there is no socket says where it looked."""
    with pytest.raises(ConnectionRefusedError, match=f"{tmp_path}/none.sock: no agent answers"):
        ask(tmp_path / "none.sock", "good")


def test_an_agent_that_dies_while_answering(tmp_path: Path) -> None:
    """A connection that ends without an answer is said, not shown as broken JSON."""
    path = tmp_path / "c.sock"

    async def main() -> Any:
        server = await asyncio.start_unix_server(lambda reader, writer: writer.close(), str(path))
        async with server:
            return await asyncio.to_thread(ask, path, "good")

    with pytest.raises(ConnectionError, match=r"see its log|no agent answers"):
        asyncio.run(main())


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    """A data folder too deep for a Unix socket is said with the path."""
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    with pytest.raises(OSError, match=r"d/c\.sock: the control socket cannot be made"):
        serving(folder / "c.sock", _good)
    assert os.listdir(folder) == []
