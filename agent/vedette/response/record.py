"""What is blocked, on disk: ``blocked.json`` in a folder, replaced as a whole.

    {"blocked": {ADDRESS: [since, until, by, alert_id, rule_id]}, "undone": {ADDRESS: at}, "flushed": at}

Times are UTC microseconds. From this the firewall is put in order at a start: what is over is not blocked again, and an
alert that was detected before its address was undone, or all were, blocks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from vedette.response.decide import address_of
from vedette.system.durable import write_whole

MAX_UNDONE = 10_000
"""That are remembered, the newest ones."""


class Block(NamedTuple):
    """``by``: "alert", with its id and rule, or "operator", with the reason as ``rule_id``."""

    since: int
    until: int
    by: str
    alert_id: str = ""
    rule_id: str = ""


class Record:
    """In memory until ``write``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.blocked: dict[str, Block] = {}
        self.undone: dict[str, int] = {}
        self.flushed = 0

    def read(self) -> None:
        """As it is on disk; nothing where there is no file. Raises OSError, and ValueError for what is no record."""
        try:
            document = orjson.loads(self._path.read_bytes())
            blocked = {str(address_of(name)): Block(*row) for name, row in document["blocked"].items()}
            if not all(isinstance(block.until, int) and isinstance(block.since, int) for block in blocked.values()):
                raise ValueError("times are no numbers")
            undone = {str(address_of(name)): int(at) for name, at in document["undone"].items()}
            self.blocked, self.undone, self.flushed = blocked, undone, int(document["flushed"])
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self._path} cannot be read ({error}): remove it") from error

    def write(self) -> None:
        """Raises OSError; what is on disk is then as before."""
        self._path.parent.mkdir(mode=0o750, exist_ok=True)
        undone = dict([*self.undone.items()][-MAX_UNDONE:])
        blocked = {address: tuple(block) for address, block in self.blocked.items()}
        write_whole(
            self._path, orjson.dumps({"blocked": blocked, "undone": undone, "flushed": self.flushed}), mode=0o600
        )

    def left(self, now: int) -> Mapping[str, int]:
        """Milliseconds left by address."""
        return {address: (block.until - now) // 1000 for address, block in self.blocked.items() if block.until > now}

    def expire(self, now: int, ttl: int) -> bool:
        """Forget what is over; whether anything was. ``ttl``: microseconds for which an undone address is remembered:
        a later alert is another one. What was noted while the clock was ahead was noted now: a block lasts no longer
        for it, and no later alert is stale."""
        for address, block in self.blocked.items():
            if block.since > now:
                self.blocked[address] = block._replace(since=now, until=now + block.until - block.since)
        self.undone = {address: min(at, now) for address, at in self.undone.items()}
        self.flushed = min(self.flushed, now)
        over = [address for address, block in self.blocked.items() if block.until <= now]
        for address in over:
            del self.blocked[address]
        for address in [address for address, at in self.undone.items() if at + ttl <= now]:
            del self.undone[address]
        return bool(over)

    def stale(self, address: str, detected_at: int) -> str:
        """Why an alert of then must not block ``address`` any more; empty: it may."""
        if detected_at <= self.flushed:
            return "all blocks were undone after this alert"
        if detected_at <= self.undone.get(address, 0):
            return "undone after this alert"
        return ""

    def rows(self, now: int) -> list[dict[str, Any]]:
        """JSON-able, those that end first at the beginning."""
        return [
            {"address": address, **block._asdict(), "seconds": round((block.until - now) / 1e6)}
            for address, block in sorted(self.blocked.items(), key=lambda each: each[1].until)
            if block.until > now
        ]
