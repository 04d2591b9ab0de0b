"""``[[sink]] type = "otlp"``: its receiver. Alerts as log records of OpenTelemetry, over OTLP/HTTP in its JSON
encoding; rows of statements with their JSON as the body and their columns as attributes.

Delivery: one request holds up to ``BATCH`` alerts, and the collector's 2xx is its word for all of them. A request that
it refuses for good is sent again in halves, so that one bad record does not take the others with it. What a
partial success rejects is not sent again, as the specification wants; the collector does not say which records those
are. A 2xx whose body is longer than MAX_ANSWER, or is no answer of OTLP, is nobody's word for anything: see ``_post``.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog

from vedette.model.counters import Log
from vedette.sinks.base import MAX_TEXT, Answer, Outgoing, Verdict, secret
from vedette.sinks.http import Lines, Server, together
from vedette.sinks.settings import OtlpSink

log = structlog.get_logger()

BATCH, ROW_BATCH = 200, 1000
MAX_ANSWER = 64 << 10
"""Bytes of a collector's answer that are read: what a partial success says may be long."""
SEVERITY = {"informational": 9, "low": 10, "medium": 13, "high": 17, "critical": 21}
"""SeverityNumber of a level: INFO, INFO2, WARN, ERROR, FATAL."""


class Otlp:
    """A collector of OpenTelemetry."""

    batch, row_batch = BATCH, ROW_BATCH

    def __init__(self, settings: OtlpSink, version: str) -> None:
        self._settings = settings
        self._version = version
        self._lines = Lines(1, MAX_ANSWER)

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        try:
            token = await asyncio.to_thread(secret, self._settings.token_file) if self._settings.token_file else ""
        except (OSError, ValueError) as error:
            return [Answer(Verdict.LATER, str(error))] * len(alerts)
        return await together(alerts, lambda some: self._post(some, token))

    async def _post(self, alerts: Sequence[Outgoing], token: str) -> Answer:
        settings = self._settings
        body = gzip.compress(orjson.dumps(document(alerts, self._version)), 1, mtime=0)
        headers = {
            "Content-Type": "application/json", "Content-Encoding": "gzip", "User-Agent": f"vedette/{self._version}",
        }  # fmt: skip
        if token:
            headers["Authorization"] = f"Bearer {token}"
        server = Server(
            settings.url, settings.ca_file, settings.cert_file, settings.key_file, settings.proxy, settings.timeout
        )
        reply = await self._lines.post(server, body, headers)
        answer = reply.answer()
        if answer.verdict is not Verdict.TAKEN:
            return answer
        if reply.cut and reply.text.startswith("{"):
            # All taken is said in few words: something was rejected, and alert by alert shows what.
            return Answer(Verdict.REFUSED, answer.text)
        rejected = _rejected(reply.text)
        if rejected is None:  # of a proxy's page, say: whether a collector got them is not known
            return Answer(Verdict.LATER, f"its answer is none of OTLP: {answer.text}"[:MAX_TEXT])
        if rejected:
            if rejected >= len(alerts):
                return Answer(Verdict.REFUSED, answer.text)
            action = "not sent again; the collector does not say which ones"
            log.warning(Log.SINK_REFUSED, sink=settings.name, alerts=rejected, reason=answer.text, action=action)
        return answer

    async def close(self) -> None:
        self._lines.close()


def document(alerts: Sequence[Outgoing], version: str) -> Any:
    """An ExportLogsServiceRequest. Alerts or rows of one agent, as all are."""
    first = alerts[0].row
    resource = {
        "service.name": "vedette", "service.version": version, "service.instance.id": first["agent_id"],
        "vedette.fleet": first["fleet"], "vedette.site": first["site"],
    }  # fmt: skip
    scope = {"name": "vedette", "version": version}
    records = [_of_line(alert) if alert.line else _record(alert.row) for alert in alerts]
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeLogs": [{"scope": scope, "logRecords": records}],
            }
        ]
    }


def _of_line(row: Outgoing) -> dict[str, Any]:
    """Of a statement: its JSON as the body, its columns as attributes."""
    attributes = {"log.record.uid": row.id, **orjson.loads(row.line)}
    now = time.time_ns()
    return {
        "observedTimeUnixNano": str(now), "severityNumber": SEVERITY["informational"], "severityText": "informational",
        "body": {"stringValue": row.line.decode()}, "attributes": _attributes(attributes),
    }  # fmt: skip


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {
        "log.record.uid": row["alert_id"],
        "vedette.kind": row["kind"],
        "vedette.level": row["level"],
        "vedette.source": row["source"],
        "vedette.count": row["count"],
        "rule.id": row["rule_id"],
        "rule.name": row["rule_title"],
        "host.name": row["host"],
        "vedette.tags": row["tags"],
        "vedette.flags": row["flags"],
        **{f"vedette.field.{name}": value for name, value in row["fields"].items()},
        **{f"vedette.group_by.{name}": value for name, value in row["group_by"].items()},
    }
    for kind in dict.fromkeys(entity["kind"] for entity in row["entities"]):
        attributes[f"vedette.entity.{kind}"] = [entity["value"] for entity in row["entities"] if entity["kind"] == kind]
    return {
        "timeUnixNano": str(max(0, row["event_time"]) * 1000),
        "observedTimeUnixNano": str(max(0, row["detected_at"]) * 1000),
        "severityNumber": SEVERITY.get(row["level"], 9),
        "severityText": row["level"],
        "body": {"stringValue": row["raw"]},
        "attributes": _attributes(attributes),
    }


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value not in (None, [])]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case list():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": _attributes(value)}}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case None:
            return {}
    return {"stringValue": value}


def _rejected(text: str) -> int | None:
    """Records that a partial success rejects; of an empty body 0; None: the answer is no ExportLogsServiceResponse."""
    try:
        partial = orjson.loads(text or "{}").get("partialSuccess") or {}
        return max(0, int(partial.get("rejectedLogRecords") or 0))
    except (ValueError, AttributeError, TypeError, OverflowError):
        return None
