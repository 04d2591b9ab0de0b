"""Scenario ``services``: logs of services as JSON lines, of which hardly a value comes twice.

Here Zeek as it streams a site's traffic (http, dns, conn, ssl, files), nginx with the variables that its documentation
shows and with the request's first line alone, Caddy; then what other vendors write (``vendors.py``) and unusual shapes
(``shapes.py``). URIs, addresses, ports, ids and times are fresh in nearly every event, one request in 500 is a probe.
With all rules of SigmaHQ where they are at hand, else the starter rules; with the native kernel and without it, by
turns, in one process: CPU µs an event, and the share of events that the kernel decided.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import orjson

from bench import shapes, vendors
from bench.values import AGENTS, WORDS, address, identity, time_of, uri
from vedette.api import compile_rules
from vedette.engine.cache import Cache
from vedette.engine.match import Context, Engine
from vedette.model.event import Chunk, LogSource

if TYPE_CHECKING:
    from bench.drive import Bench

ROOT = Path(__file__).parents[1]
RULES = (ROOT.parent / "shared" / "data" / "sigma-all" / "rules", ROOT / "rules" / "sigma")
"""The first that is there."""
CHUNK = 500
"""Events."""
MOST_BYTES = 40 << 20
"""Of the events of one kind."""


def _zeek(rng: Random, number: int) -> dict[str, Any]:
    kind = rng.choices(("conn", "dns", "http", "ssl", "files"), (45, 25, 12, 12, 6))[0]
    event: dict[str, Any] = {"_path": kind, "ts": time_of(number) + "Z"}
    if kind == "files":
        event |= {"fuid": "F" + identity(rng), "uid": identity(rng), "source": "HTTP", "depth": 0, "is_orig": False,
                  "seen_bytes": rng.randrange(9**6),
                  "mime_type": rng.choice(("text/html", "image/png", "application/json"))}  # fmt: skip
        return event
    event |= {"uid": identity(rng), "id.orig_h": address(rng, inside=True), "id.orig_p": rng.randrange(1024, 65536),
              "id.resp_h": address(rng), "id.resp_p": {"dns": 53, "http": 80}.get(kind, 443)}  # fmt: skip
    if kind == "conn":
        event |= {"proto": rng.choice(("tcp", "udp")), "conn_state": rng.choice(("SF", "S0", "REJ", "RSTO")),
                  "local_orig": True, "local_resp": False, "missed_bytes": 0, "history": "ShADadFf",
                  "orig_pkts": rng.randrange(99), "orig_ip_bytes": rng.randrange(9**5),
                  "resp_pkts": rng.randrange(99), "resp_ip_bytes": rng.randrange(9**6)}  # fmt: skip
        if rng.random() < 0.7:
            event |= {"service": rng.choice(("ssl", "dns", "http")), "duration": rng.randrange(1, 10**6) / 1e6,
                      "orig_bytes": rng.randrange(9**5), "resp_bytes": rng.randrange(9**6)}  # fmt: skip
    elif kind == "dns":
        name = f"{rng.choice(WORDS)}-{rng.getrandbits(20):x}.{rng.choice(WORDS)}.example"
        event |= {"proto": "udp", "trans_id": rng.randrange(65536), "rtt": rng.randrange(1, 10**5) / 1e6, "query": name,
                  "qclass": 1, "qclass_name": "C_INTERNET", "qtype": 1, "qtype_name": rng.choice(("A", "AAAA")),
                  "rcode": 0, "rcode_name": "NOERROR", "AA": False, "TC": False, "RD": True, "RA": True, "Z": 0,
                  "rejected": False}  # fmt: skip
        if rng.random() < 0.8:
            event |= {"answers": [address(rng)], "TTLs": [float(rng.randrange(3600))]}
    elif kind == "http":
        event |= {"trans_depth": 1, "method": rng.choice(("GET", "GET", "POST", "HEAD")),
                  "host": f"{rng.choice(WORDS)}.example", "uri": uri(rng), "version": "1.1",
                  "user_agent": rng.choice(AGENTS), "request_body_len": 0, "response_body_len": rng.randrange(9**6),
                  "status_code": rng.choice((200, 200, 200, 304, 404)), "status_msg": "OK", "tags": []}  # fmt: skip
        if rng.random() < 0.5:
            event["referrer"] = f"http://{rng.choice(WORDS)}.example{uri(rng)}"
    else:
        event |= {"version": "TLSv13", "cipher": "TLS_AES_128_GCM_SHA256", "curve": "x25519",
                  "resumed": False, "server_name": f"{rng.choice(WORDS)}.example", "established": True,
                  "ssl_history": "CsiI"}  # fmt: skip
    return event


def _nginx(rng: Random, number: int) -> dict[str, Any]:
    return {
        "time_iso8601": time_of(number) + "+00:00",
        "remote_addr": address(rng), "remote_user": "-" if rng.random() < 0.9 else rng.choice(WORDS),
        "request_method": rng.choice(("GET", "GET", "POST")), "request_uri": uri(rng), "server_protocol": "HTTP/2.0",
        "status": rng.choice((200, 200, 200, 301, 404)), "body_bytes_sent": rng.randrange(9**6),
        "request_time": rng.randrange(1, 999) / 1000, "upstream_addr": f"10.20.0.{rng.randrange(1, 9)}:8080",
        "http_referer": "-" if rng.random() < 0.5 else f"https://{rng.choice(WORDS)}.example{uri(rng)}",
        "http_user_agent": rng.choice(AGENTS), "http_host": "shop.example",
        "request_id": f"{rng.getrandbits(128):032x}",
    }  # fmt: skip


def _nginx_request(rng: Random, number: int) -> dict[str, Any]:
    event = _nginx(rng, number)
    request = f"{event.pop('request_method')} {event.pop('request_uri')} {event.pop('server_protocol')}"
    return {**event, "request": request}


def _caddy(rng: Random, number: int) -> dict[str, Any]:
    return {
        "level": "info", "ts": 1_790_000_000 + number / 1000, "logger": "http.log.access", "msg": "handled request",
        "request": {
            "remote_ip": address(rng), "remote_port": str(rng.randrange(1024, 65536)), "proto": "HTTP/2.0",
            "method": rng.choice(("GET", "GET", "POST")), "host": "shop.example", "uri": uri(rng),
            "headers": {"User-Agent": [rng.choice(AGENTS)], "Accept": ["*/*"]},
        },
        "duration": rng.randrange(1, 10**6) / 1e6, "size": rng.randrange(9**6), "status": rng.choice((200, 200, 404)),
    }  # fmt: skip


KINDS: Mapping[str, Callable[[Random, int], dict[str, Any]]] = {
    "zeek": _zeek, "nginx": _nginx, "nginx, request line": _nginx_request, "caddy": _caddy,
    **vendors.KINDS, **shapes.KINDS,
}  # fmt: skip


SOURCES = {
    "Filebeat, system auth": LogSource("linux", "", "auth"), "Filebeat, nginx": LogSource("", "webserver", "nginx"),
    "CloudTrail": LogSource("aws", "", "cloudtrail"), "Falco": LogSource("linux"), "osquery": LogSource("linux"),
}  # fmt: skip
"""What a user says of the inputs of these, whose events do not tell."""


def events(kind: str, seed: int, count: int) -> Iterator[bytes]:
    """``count`` lines of JSON without newline."""
    rng = Random(f"{kind} {seed}")
    for number in range(count):
        yield orjson.dumps(KINDS[kind](rng, number))


def run(bench: Bench) -> dict[str, Any]:
    return measured(bench.size(20_000, 1_000), bench.runs, bench.say)


def measured(count: int, runs: int, say: Callable[[str], None], kinds: Iterable[str] = KINDS) -> dict[str, Any]:
    """Of ``count`` events of each kind, or fewer that are large."""
    folder = next(path for path in RULES if path.is_dir())
    plan = compile_rules(folder, sample=b"\n".join(line for kind in KINDS for line in _within(1 << 20, kind, 2, 500)))
    databases = Engine(plan).databases()
    rows = []
    for kind in kinds:
        lines = list(_within(MOST_BYTES, kind, 1, count))
        chunks = [
            Chunk("bench", "json", 0, b"".join(line + b"\n" for line in lines[at : at + CHUNK]))
            for at in range(0, len(lines), CHUNK)
        ]
        times: dict[bool, list[float]] = {True: [], False: []}
        matches, share = set[tuple[tuple[int, int, int], ...]](), 0.0
        for _ in range(runs):
            for kernel in (True, False):
                engine = Engine(plan, databases, kernel=kernel, cache=Cache(0))
                began = time.process_time()
                matches.add(found(engine, chunks, SOURCES.get(kind, LogSource())))
                times[kernel].append((time.process_time() - began) / len(lines) * 1e6)
                if kernel and (account := engine.kernel()):
                    share = 1 - account["undecided"] / account["events"]
        if len(matches) > 1:
            raise ValueError(f"{kind}: with the kernel and without it other matches: {sorted(map(len, matches))}")
        on, off = (round(statistics.median(times[kernel]), 2) for kernel in (True, False))
        rows.append({
            "events": kind, "bytes": round(sum(map(len, lines)) / len(lines)), "matches": len(matches.pop()),
            "decided_share": round(share, 4), "on": on, "off": off,
        })  # fmt: skip
        say(f"  {rows[-1]}")
    return {"rules": len(plan.rules), "rows": rows}


def _within(most: int, kind: str, seed: int, count: int) -> Iterator[bytes]:
    """``events`` of at most so many bytes in all."""
    for line in events(kind, seed, count):
        most -= len(line)
        if most < 0:
            return
        yield line


def found(engine: Engine, chunks: Iterable[Chunk], source: LogSource) -> tuple[tuple[int, int, int], ...]:
    """Chunk, place and rule of each."""
    context = Context(None, source)
    each = ((number, match) for number, chunk in enumerate(chunks) for match in engine.evaluate(chunk, context))
    return tuple((number, match.start, match.rule) for number, match in each)
