"""``[[sink]] type = "webhook"``: its receiver.

One POST an alert, a few at a time over connections that are kept. Each carries the alert's id as ``Idempotency-Key``
and ``webhook-id``, the same however often it comes. Rows of statements go many in a POST, as lines of JSON or an array;
its key is the id of the first and the number of the last, since what is sent again after a kill may hold more.

With ``secret_file`` it is signed as Standard Webhooks
(https://www.standardwebhooks.com) has it: ``webhook-signature: v1,BASE64`` is HMAC-SHA-256 of ``ID.TIMESTAMP.BODY``,
with the Unix seconds of ``webhook-timestamp``; any of its libraries verifies it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from vedette.sinks.base import Answer, Outgoing, Verdict, secret
from vedette.sinks.http import Lines, Server, together
from vedette.sinks.settings import PAGERDUTY, WebhookSink, url_mistakes
from vedette.sinks.templates import TEMPLATES

PARALLEL = 4
BATCH, ROW_BATCH = 20, 1000


class Webhook:
    """A receiver of POSTs."""

    batch, row_batch = BATCH, ROW_BATCH

    def __init__(self, settings: WebhookSink, version: str) -> None:
        self._settings = settings
        self._agent = f"vedette/{version}"
        self._lines = Lines(PARALLEL)

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        settings = self._settings
        try:
            url, token, key = await asyncio.to_thread(self._secrets)
        except (OSError, ValueError) as error:
            return [Answer(Verdict.LATER, str(error))] * len(alerts)
        server = Server(url, settings.ca_file, settings.cert_file, settings.key_file, settings.proxy, settings.timeout)
        paused = False

        async def send(id: str, body: bytes, form: str) -> Answer:
            headers = {"Content-Type": form, "User-Agent": self._agent, "Idempotency-Key": id, "webhook-id": id}
            if token and settings.template != "pagerduty":
                headers["Authorization"] = f"Bearer {token}"
            if key:
                headers |= signed(key, id, int(time.time()), body)
            return (await self._lines.post(server, body, headers)).answer()

        async def post(alert: Outgoing) -> Answer:
            nonlocal paused
            if paused:
                return Answer(Verdict.UNTRIED)
            body = orjson.dumps(TEMPLATES[settings.template](alert.row, token))
            answer = await send(alert.id, body, "application/json")
            paused = paused or answer.wait > 0
            return answer

        async def post_rows(rows: Sequence[Outgoing]) -> Answer:
            id, lines = f"{rows[0].id}-{rows[-1].seq}", [row.line for row in rows]
            if settings.row_format == "json":
                return await send(id, b"[%b]" % b",".join(lines), "application/json")
            return await send(id, b"".join(line + b"\n" for line in lines), "application/x-ndjson")

        if alerts[0].line:
            return await together(alerts, post_rows)
        answers: list[Answer] = []
        for begin in range(0, len(alerts), PARALLEL):
            answers += await asyncio.gather(*map(post, alerts[begin : begin + PARALLEL]))
            if all(answer.verdict is Verdict.LATER for answer in answers):
                paused = True  # nobody is there: the rest need not wait for as long
        return answers

    def _secrets(self) -> tuple[str, str, bytes]:
        """URL, token and key of the signature. Raises OSError and ValueError naming the file."""
        settings = self._settings
        url = settings.url or (secret(settings.url_file) if settings.url_file else PAGERDUTY)
        for mistake in url_mistakes(url):
            raise ValueError(f"{settings.url_file}: {mistake}")
        token = secret(settings.token_file) if settings.token_file else ""
        return url, token, signing_key(settings.secret_file) if settings.secret_file else b""

    async def close(self) -> None:
        self._lines.close()


def signed(key: bytes, id: str, at: int, body: bytes) -> dict[str, str]:
    """The headers of a signature; ``at``: Unix seconds."""
    digest = hmac.digest(key, f"{id}.{at}.".encode() + body, "sha256")
    return {"webhook-timestamp": str(at), "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}


def signing_key(path: Path) -> bytes:
    """Read the key of Standard Webhooks' ``whsec_BASE64``; any other line is the key itself. Raises OSError,
    ValueError."""
    line = secret(path)
    if not line.startswith("whsec_"):
        return line.encode()
    try:
        return base64.b64decode(line.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{path}: expects whsec_ and base64: {error}") from error
