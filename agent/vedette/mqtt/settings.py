"""How to reach a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """``mqtt://host:port`` or ``mqtts://host:port``: ``[broker]``, or ``[broker.NAME]``."""

    url: str = ""
    protocol: Literal["5", "3.1.1"] = "5"
    """3.1.1 is also tried where the broker refuses 5."""
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def mistakes(self) -> Iterator[str]:
        """Yield mistakes, each with the key it is about."""
        if not re.fullmatch(r"mqtts?://(\[[0-9a-fA-F:]+\]|[^\[\]:/\s]+)(:\d{1,5})?", self.url):
            yield f'.url: expects "mqtt://host:port" or "mqtts://host:port", not {self.url!r}'
        if (self.cert_file is None) != (self.key_file is None):
            yield ": cert_file and key_file go together"
