"""Alert rows per CPU-second: the edge's Parquet writer against pyarrow, on the same rows. Prints one JSON object.

    .venv/bin/python -m bench.parquet_writer [--rows 10000] [--rounds 5]

pyarrow is measured twice: ``from_pylist`` on the rows, and arrays built column by column. Each figure is the best
round's rows by ``time.process_time`` (all threads). Every file is read back and must equal the first one. Sizes on disk
are those of the installed packages; ``import_rss_mb`` is what the import adds to a fresh interpreter's peak.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vedette.delivery import parquet
from vedette.delivery.envelope import LANDED_ALERT, alert_id, landed, received_date, to_row
from vedette.model.event import Alert, Entity, LogSource, RawRef

EPOCH = 1_763_690_400_000_000
LOG_ID = "0123456789abcdef" * 2


def rows(count: int) -> list[dict[str, Any]]:
    """Alerts as a landing gets them: 120 rules, 200 hosts, 255 peers, about 150 bytes of raw text."""
    return [_row(i) for i in range(count)]


def _row(i: int) -> dict[str, Any]:
    peer, host, rule = f"203.0.113.{i * 7 % 255}", f"web{i % 200}", f"00000000-0000-4000-8000-{i % 120:012d}"
    raw = (
        f"<38>Nov 21 02:00:{i % 60:02d} {host} sshd[{i % 32768}]: Failed password for invalid user admin{i % 31} from"
        f" {peer} port {1024 + i * 13 % 60000} ssh2: SHA256:{i * 2654435761 % (1 << 64):016x} after {i % 9} tries"
    )
    alert = Alert(
        alert_id=alert_id(host, LOG_ID, rule, i * 200),
        seq=i + 1,
        rule_id=rule,
        rule_title=f"Failed login of an unknown user, form {i % 120}",
        rule_digest=f"{i % 120:032x}",
        level=("low", "medium", "high", "critical")[i % 4],
        agent_id=host,
        site=f"site{i % 40}",
        fleet="shops",
        event_time=EPOCH + i * 1000,
        detected_at=EPOCH + i * 1000 + 1500,
        received_date=received_date(EPOCH),
        source="syslog",
        raw=raw,
        raw_ref=RawRef(LOG_ID, i * 200, len(raw)),
        host=host,
        tags=("attack.credential_access", "attack.t1110"),
        logsource=LogSource("linux", "", "sshd"),
        fields={"user": f"admin{i % 31}", "src_ip": peer, "src_port": str(1024 + i * 13 % 60000), "program": "sshd"},
        entities=(Entity("ip", peer), Entity("user", f"admin{i % 31}"), Entity("host", host)),
        bundle="starter 3",
    )
    return landed(to_row(alert), received_at=EPOCH + i * 1000 + 9000, collector_id="land1", topic="vedette/v1/shops")


def _arrow_pylist(found: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    return _arrow_file(pa.Table.from_pylist(found, schema=schema))


def _arrow_columns(found: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    arrays = [pa.array([row[field.name] for row in found], type=field.type) for field in schema]
    return _arrow_file(pa.Table.from_arrays(arrays, schema=schema))


def _arrow_file(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Rows per CPU-second and bytes per row of each writer."""
    found = rows(count)
    first = pq.read_table(io.BytesIO(parquet.write(LANDED_ALERT, found)))
    maps = [field.name for field in first.schema if pa.types.is_map(field.type)]
    pairs = [{**row, **{name: list(row[name].items()) for name in maps}} for row in found]
    writers: dict[str, Callable[[], bytes]] = {
        "vedette": lambda: parquet.write(LANDED_ALERT, found),
        "pyarrow_pylist": lambda: _arrow_pylist(pairs, first.schema),
        "pyarrow_columns": lambda: _arrow_columns(pairs, first.schema),
    }
    result: dict[str, Any] = {"rows": count}
    for name, write in writers.items():
        best = 0.0
        for _ in range(rounds):
            start = time.process_time()
            data = write()
            best = max(best, count / (time.process_time() - start))
        if not pq.read_table(io.BytesIO(data)).equals(first):
            raise SystemExit(f"{name} did not write the rows it was given")
        result[name] = {"rows_per_cpu_second": round(best), "bytes_per_row": round(len(data) / count, 1)}
    return result


def _installed_mb(package: str) -> float:
    files = metadata.files(package) or []
    paths = [Path(str(file.locate())) for file in files]
    return round(sum(path.stat().st_size for path in paths if path.is_file()) / 1e6, 1)


def _import_rss_mb(module: str) -> float:
    code = (
        "import re; peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]);"
        f"before = peak(); import {module}; print(peak() - before)"
    )  # not getrusage: its peak outlives exec, and would be this process's
    return round(int(subprocess.check_output([sys.executable, "-c", code])) * 1024 / 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    result = measure(options.rows, options.rounds)
    result["installed_mb"] = {name: _installed_mb(name) for name in ("pyarrow", "zstandard")}
    result["import_rss_mb"] = {
        "vedette": _import_rss_mb("vedette.delivery.parquet"),
        "pyarrow": _import_rss_mb("pyarrow.parquet"),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
