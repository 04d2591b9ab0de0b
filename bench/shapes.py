"""JSON of unusual shapes, as applications write it: deep, wide, long, and such as is new in nearly every event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from orjson import Fragment

from bench.values import WORDS, address, digits, identity, time_of, uri

_NUMBERS = (
    *("0", "-0", "7", "-12", "7.0", "7.50", "-0.125", "1e5", "1E+5", "2.5e-7", "1e400", "0.1000"),
    *("18446744073709551615", "18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"),
)


def _common(rng: Random, number: int) -> dict[str, Any]:
    text = f"took {rng.randrange(999)} ms"
    return {"time": time_of(number) + "Z", "msg": text, "user": rng.choice(WORDS), "id": identity(rng)}


def _deep(rng: Random, number: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"path": uri(rng)}
    for level in range(29):
        inner = {f"level{level}": inner, "size": rng.randrange(99)}
    return _common(rng, number) | inner


def _objects(rng: Random, number: int) -> dict[str, Any]:
    items = [
        {"sku": digits(rng, 32), "price": rng.randrange(10**4) / 100, "name": rng.choice(WORDS)} for _ in range(40)
    ]
    return _common(rng, number) | {"items": items}


def _wide(rng: Random, number: int) -> dict[str, Any]:
    return _common(rng, number) | {f"{WORDS[i % len(WORDS)]}_{i}": digits(rng, 32) for i in range(196)}


def _long(rng: Random, number: int) -> dict[str, Any]:
    trace = "\n".join(
        f"  at shop.{rng.choice(WORDS)}.{digits(rng, 32)}(Shop.java:{rng.randrange(999)})" for _ in range(1400)
    )
    return _common(rng, number) | {"stack": trace}


def _optional(rng: Random, number: int) -> dict[str, Any]:
    return _common(rng, number) | {f"{WORDS[i % len(WORDS)]}_{i}": uri(rng) for i in range(25) if rng.random() < 0.5}


def _names(rng: Random, number: int) -> dict[str, Any]:
    return _common(rng, number) | {"labels": {f"pod-{digits(rng, 40)}": address(rng) for _ in range(3)}}


def _numbers(rng: Random, number: int) -> dict[str, Any]:
    return _common(rng, number) | {name: Fragment(rng.choice(_NUMBERS)) for name in WORDS[:6]}


KINDS: Mapping[str, Callable[[Random, int], dict[str, Any]]] = {
    "30 levels": _deep, "40 objects": _objects, "200 fields": _wide, "60 kB": _long, "optional fields": _optional,
    "made-up names": _names, "numbers": _numbers,
}  # fmt: skip
