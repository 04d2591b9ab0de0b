"""A lookup plugin: the lines of a hosts file as a table of addresses and names.

vedette lookup build /etc/hosts --plugin vedette-example-lookup:hosts -o hosts.vlookup --key address:ip
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def rows(source: str) -> Iterator[dict[str, str]]:
    for line in Path(source).read_text("utf-8").splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1:
            yield {"address": words[0], "name": words[1], "aliases": " ".join(words[2:])}
