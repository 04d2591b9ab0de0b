"""News as they come: server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from vedette_console.hub import TOPICS, Full, Hub
from vedette_console.security.principal import Principal
from vedette_console.streams import Streamed
from vedette_console.web import Problem, need

api = APIRouter(tags=["events"])
PAUSE = 15.0
"""Seconds without news after which a comment is sent, so that proxies hold the connection open."""
RETRY = 3_000
"""Milliseconds after which a browser comes back."""


@api.get("/events", response_class=StreamingResponse, responses={200: {
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
    "description": "For each piece of news `event: TOPIC` and `data: JSON`; `missed` when some were lost.",
}})  # fmt: skip
async def get_events(
    request: Request, who: Principal = need("read"),
    topics: Annotated[str, Query(max_length=200, description=f"Of: {', '.join(TOPICS)}.")] = ",".join(TOPICS),
) -> StreamingResponse:  # fmt: skip
    """News of some topics, as far as one may see them, until one goes or is logged out."""
    wanted = frozenset(filter(None, topics.split(",")))
    if unknown := sorted(wanted - {*TOPICS}):
        raise Problem(422, f"there is no topic {unknown[0][:40]!r}", where="topics",
                      what_to_do=f"choose of {', '.join(TOPICS)}")  # fmt: skip
    hub: Hub = request.app.state.hub
    if hub.full(who):
        raise Problem(429, "too many open event streams", what_to_do="close some pages", headers={"Retry-After": "60"})
    return Streamed(request, who, _stream(hub, who, wanted), "text/event-stream", {"X-Accel-Buffering": "no"})


async def _stream(hub: Hub, who: Principal, topics: frozenset[str]) -> AsyncGenerator[str]:
    """Until the browser goes, or is cut off and comes back as who they are now."""
    try:
        with hub.subscribe(who, topics) as subscriber:
            yield f"retry: {RETRY}\n: here\n\n"
            async for message in subscriber.messages(PAUSE):
                yield ": here\n\n" if message is None else f"event: {message[0]}\ndata: {message[1]}\n\n"
    except Full:
        yield "event: missed\ndata: {}\n\n"
