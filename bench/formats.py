"""What a declared format costs: CPU time of one rule over lines, by how the input reads them.

``python -m bench.formats``: each way by turns, the least of 5.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from vedette import evaluate
from vedette.decode.declared import declared
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.rules import build

LINES, TURNS = 20_000, 5
RULE = """title: R
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: p}
detection: {one: {%s: %s}, condition: one}
"""
FORMATS: dict[str, dict[str, Any]] = {
    "regex": {"regex": r"(?P<gate>GATE\d+) (?P<way>\w+) badge=(?P<badge>\w+)"},
    "grok": {"grok": "%{WORD:gate} %{WORD:way} badge=%{WORD:badge}"},
    "key_value": {"key_value": {}},
    "map": {"regex": r"(?P<gate>GATE\d+) (?P<way>\w+) badge=(?P<badge>\w+)", "map": {"badge": {"zzz": "yyy"}}},
}


def seconds(engine: Engine, lines: list[str], form: str) -> float:
    engine.remember(Cache(0))
    began = time.process_time()
    sum(1 for _ in evaluate(engine, lines, format=form))
    return time.process_time() - began


def main() -> None:
    chance = random.Random(7)
    lines = [f"GATE{chance.randrange(9)} IN badge={chance.randrange(1 << 20):06x}" for _ in range(LINES)]
    for badge, what in (("0badge", "a value that is nowhere"), ("*a*", "a value that is in most lines")):
        ways: dict[str, tuple[Engine, str]] = {}
        for name, table in FORMATS.items():
            rules = build.read(RULE % ("badge", f"'{badge}'"))
            rules.formats["x"] = declared({"name": "x", **table})
            ways[name] = Engine(build.from_rules(rules), route=False), "rules:x"
        ways["built in: keyvalue"] = Engine(build.from_text(RULE % ("badge", f"'{badge}'")), route=False), "keyvalue"
        least = dict.fromkeys(ways, float("inf"))
        for _ in range(TURNS):
            for name, (engine, form) in ways.items():
                least[name] = min(least[name], seconds(engine, lines, form))
        for name, found in least.items():
            sys.stdout.write(f"{what:<32} {name:<20} {found / LINES * 1e6:6.2f} µs a line\n")


if __name__ == "__main__":
    main()
