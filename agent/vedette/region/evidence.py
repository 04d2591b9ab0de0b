"""Evidence at the centre: where an alert's event lies, and what a host gave, stored beside the alert.

    FOLDER/ALERT_ID/REQUEST_ID.jsonl.zst       the records of the reply, as zstd frames (RFC 8878), one a part
    FOLDER/ALERT_ID/REQUEST_ID.manifest.json   who asked, why, whom; SHA-256, bytes, records; whether it is whole

The manifest comes last: without one the file was not finished. Alerts are found in a landing (Parquet), a Delta table,
or a file with one alert as JSON.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from vedette.bundle.manifest import rfc3339
from vedette.region.requests import Collection
from vedette.system import foreign
from vedette.system.durable import write_whole
from vedette.system.terminal import safe
from vedette.system.within import is_name

COLUMNS = ["alert_id", "agent_id", "raw_ref", "rule_title", "received_date", "event_time"]


class Found(NamedTuple):
    """An alert's host, and where its event lies there."""

    alert_id: str
    agent: str
    ref: dict[str, Any]


def find(alert_id: str, place: Path) -> Found:
    """The alert in ``place``: a Delta table, a landing or another folder of Parquet files, or a JSON file. Raises
    LookupError, ValueError and OSError."""
    if place.is_file():
        rows = [foreign.read(place.read_bytes())]
        if not isinstance(rows[0], dict):
            raise ValueError(f"{place}: expects one alert as a JSON object")
    else:
        rows = _rows(alert_id, place)
    rows = [row for row in rows if row.get("alert_id") == alert_id]
    if not rows:
        raise LookupError(f"{place}: holds no alert {safe(alert_id)}")
    row = rows[0]
    ref = row.get("raw_ref")
    if not isinstance(ref, dict) or not isinstance(row.get("agent_id"), str):
        raise LookupError(f"alert {alert_id} refers to no event of a raw log")
    return Found(alert_id, row["agent_id"], {key: ref[key] for key in ("log_id", "offset", "length")})


def _rows(alert_id: str, place: Path) -> list[dict[str, Any]]:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    if not place.is_dir():
        raise FileNotFoundError(f"{place}: no such folder")
    if (place / "_delta_log").is_dir():
        from deltalake import DeltaTable

        dataset = DeltaTable(str(place)).to_pyarrow_dataset()
    else:
        below = place / "alerts" if (place / "alerts").is_dir() else place
        dataset = ds.dataset(sorted(map(str, below.rglob("*.parquet"))), format="parquet")
    columns = [name for name in COLUMNS if name in dataset.schema.names]
    rows: list[dict[str, Any]] = dataset.to_table(columns, filter=pc.field("alert_id") == alert_id).to_pylist()
    return rows


def manifest_of(folder: Path, alert_id: str, request: str) -> Path:
    """Where the manifest of a request's evidence lies. Raises ValueError."""
    if not is_name(alert_id):
        raise ValueError(f"{alert_id[:80]!r} is no alert id")
    return folder / alert_id / f"{request}.manifest.json"


def store(folder: Path, alert_id: str, collection: Collection, agent: str) -> Path:
    """Keep an agent's reply, as far as it has come; the path of its manifest. Raises ValueError and OSError."""
    request, answer = collection.request, collection.answers[agent]
    path = manifest_of(folder, alert_id, request.id)
    place = path.parent
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{request.id}.jsonl.zst"
    digest, size = hashlib.sha256(), 0
    frames = []
    for part in collection.parts(agent):
        digest.update(part.data)
        size += len(part.data)
        frames.append(part.data)
    write_whole(place / name, b"".join(frames), 0o600)
    manifest = {
        "alert_id": alert_id, "agent_id": agent, "request": request.id, "operator": request.operator,
        "reason": request.reason, "asked": dict(request.body), "created": rfc3339(request.created), "file": name,
        "sha256": digest.hexdigest(), "bytes": size, "records": sum(1 for _ in collection.records(agent)),
        "whole": answer.whole, "state": answer.state, "why": answer.reason,
    }  # fmt: skip
    write_whole(path, orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n", 0o600)
    collection.audit.append(
        "evidence_stored", request=request.id, alert=alert_id, agent=agent, sha256=manifest["sha256"], bytes=size
    )
    return path
