"""An input plugin: events over TCP, each as ``LENGTH:EVENT,`` (netstrings), answered when they are on disk.

```toml
[plugins]
allow = ["vedette-example-input"]

[[input]]
type = "counted"
name = "till"
[input.options]
listen = "127.0.0.1:7070"
```

A sender writes netstrings, and reads one ``+`` for each once the agent has it on disk.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any

from vedette.plugins import Feed

MAX_EVENT = 65536


class Counted:
    """One sender after the other."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        host, _, port = str(options["listen"]).rpartition(":")
        self._at = host, int(port)

    def run(self, feed: Feed) -> None:
        with socket.create_server(self._at) as server:
            server.settimeout(0.2)
            while not feed.wait(0):
                try:
                    connection, (peer, *_) = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(5)
                    try:
                        for event in netstrings(connection):
                            feed.put([event], peer)
                            feed.flush()
                            connection.sendall(b"+")
                    except (OSError, ValueError):
                        continue  # this sender's fault: the next one


def netstrings(connection: socket.socket) -> Iterator[bytes]:
    """Raises ValueError for what is none, and OSError."""
    with connection.makefile("rb") as file:
        while head := file.read(1):
            while not head.endswith(b":"):
                more = file.read(1)
                if len(head) > 6 or not more:
                    raise ValueError("no length")
                head += more
            size = int(head[:-1])
            if not 0 <= size <= MAX_EVENT:
                raise ValueError("too long")
            event = file.read(size)
            if len(event) < size or file.read(1) != b",":
                raise ValueError("cut off")
            yield event
