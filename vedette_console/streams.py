"""Answers in pieces, for as long as the one who asks may read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import structlog
from fastapi import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

from vedette_console.security.identity import identify
from vedette_console.security.principal import Principal
from vedette_console.store.database import Unavailable
from vedette_console.web import Problem

LOOK = 5.0
"""Seconds after which, before the next piece, it is looked at whether one may still read."""

log = structlog.get_logger(__name__)


class Streamed(StreamingResponse):
    """``pieces``, which are closed at the end, whatever ends it.

    When it is no longer the same person with the same grants, and when the next piece fails with a Problem, the
    connection is cut, so that nobody takes for whole what there is; the log says why.
    """

    def __init__(
        self, request: Request, who: Principal, pieces: AsyncGenerator[str | bytes], media_type: str,
        headers: Mapping[str, str],
    ) -> None:  # fmt: skip
        super().__init__(self._allowed(), media_type=media_type, headers=headers)
        self._request, self._who, self._pieces = request, who, pieces

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            try:
                await super().stream_response(send)
            except Problem as problem:
                log.warning("answer_cut", path=self._request.url.path, who=self._who.who, reason=str(problem))

    async def _allowed(self) -> AsyncGenerator[str | bytes]:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        async for piece in self._pieces:
            if loop.time() - looked >= LOOK:
                looked = loop.time()
                if not await self._still():
                    raise Problem(403, "who reads it may no longer")
            yield piece

    async def _still(self) -> bool:
        state = self._request.app.state
        try:
            return await asyncio.to_thread(identify, self._request, state.store, state.settings) == self._who
        except Unavailable:  # nobody can say
            return False
