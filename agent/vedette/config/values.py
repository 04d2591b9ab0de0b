"""Values of the configuration as they are written, and what they mean: sizes, durations, addresses, names.

Each function takes what TOML holds and returns what a setting is; it raises ValueError with what was expected.
"""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import ZoneInfo

from vedette.model.settings import split_address
from vedette.model.times import seconds
from vedette.system.within import is_name

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = re.fullmatch(r"(\d+)\s*([KMG]?i?B)", value) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS:
        raise ValueError(f'expects a size such as "64MiB" or a number of bytes, not {value!r}')
    return int(match[1]) * _UNITS[match[2]]


def _seconds(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if isinstance(value, str):
        return seconds(value)
    raise ValueError(f'expects a duration such as "10m" or "200ms", not {value!r}')


def _share(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"expects a share from 0 to 1, not {value!r}")


def _address(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'expects "host:port", not {value!r}')
    if value:
        split_address(value)
    return value


def _fsync(value: Any) -> str:
    if isinstance(value, str):
        kind, _, interval = value.partition(":")
        if value in ("batch", "never") or (kind == "interval" and FSYNC[0] <= _seconds(interval) <= FSYNC[1]):
            return value
    raise ValueError(
        f'expects "interval:200ms" (from {FSYNC[0] * 1000:g}ms to {FSYNC[1]:g}s), "batch" or "never", not {value!r}'
    )


def _name(value: Any) -> str:
    if value != "" and not is_name(value):
        raise ValueError(f"expects letters, digits, '_', '-' or '.' (at most 128, no '.' first), not {value!r}")
    return str(value)


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_LABELS:
        raise ValueError(f"expects a table of at most {MAX_LABELS} labels, not {value!r}")
    for name, text in value.items():
        if not is_name(name, 64):
            raise ValueError(f"{name!r}: expects letters, digits, '_', '-' or '.' (at most 64, no '.' first)")
        if not isinstance(text, str) or not 0 < len(text) <= 256 or not text.isprintable() or '"' in text:
            raise ValueError(f"{name}: expects 1 to 256 characters without '\"', not {text!r}")
    return dict(value)


def _options(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expects a table, not {value!r}")
    return dict(value)


def _zone(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expects a time zone such as 'Europe/Vienna', not {value!r}")
    if value:
        try:
            ZoneInfo(value)
        except Exception as error:  # ZoneInfo raises several kinds for a bad key
            raise ValueError(f"{value!r} is not a known time zone") from error
    return value


FSYNC = 0.001, 60.0
"""Shortest and longest interval of syncs, in seconds."""
MAX_LABELS = 64
"""In ``fleet.labels``."""
SCALARS = {
    "fsync": _fsync,
    "size": _size,
    "seconds": _seconds,
    "share": _share,
    "address": _address,
    "name": _name,
    "zone": _zone,
    "labels": _labels,
    "options": _options,
}
