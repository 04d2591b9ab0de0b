"""A decoder plugin: a turnstile's messages, ``GATE3 IN 00A1F3`` with the badge in hexadecimal.

```toml
[plugins]
allow = ["vedette-example-decoder"]

[[input]]
type = "syslog"
name = "gates"
format = "gate"
```

The gate and the direction stand in the message. The badge's number does not: it is computed, so it is synthetic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

_MESSAGE = re.compile(r"(GATE\d{1,4}) (IN|OUT) ([0-9A-F]{6})\b")


class Gate:
    fields: Mapping[str, Literal["verbatim", "synthetic"]] = {
        "gate": "verbatim", "direction": "verbatim", "badge": "synthetic",
    }  # fmt: skip

    def read(self, message: str) -> Mapping[str, str | int]:
        found = _MESSAGE.match(message)
        if found is None:
            return {}
        return {"gate": found[1], "direction": found[2], "badge": int(found[3], 16)}
