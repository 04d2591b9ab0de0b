"""What an agent may say that says anything: any shape in any place, any depth, any number, as bytes of JSON."""

from __future__ import annotations

import copy
import random
import re
from typing import Any

import orjson


def nested(depth: int, inner: bytes = b"") -> bytes:
    return b"[" * depth + inner + b"]" * depth


def objects(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


VALUES = (
    b"null", b"true", b"0", b"-1", b"1.5", b"9007199254740992", b"9223372036854775807", b"18446744073709551615",
    b"-9223372036854775808", b"1e308", b"-1e308", b"1" + b"0" * 40, b'"NaN"', b'"inf"', b'"x"', b'""', b"[]", b'["x"]',
    b"[[]]", b"[1]", b"{}", b'{"default":1}', b'{"staff":[]}', b'{"role":["x"]}', b'{"sha256":{}}', b'{"audit":5}',
    nested(20), nested(400), nested(1000), nested(5000), objects(20), objects(300), objects(1000),
)  # fmt: skip


def spoiled(rng: random.Random, document: dict[str, Any]) -> bytes:
    """``document`` with something else in one to three places."""
    spoilt = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        place = spoilt
        while True:
            key = rng.choice([*place])
            if not isinstance(place[key], dict) or not place[key] or rng.random() < 0.3:
                break
            place = place[key]
        place[key] = f"@{rng.randrange(len(VALUES))}@"
    return re.sub(rb'"@(\d+)@"', lambda mark: VALUES[int(mark[1])], orjson.dumps(spoilt))
