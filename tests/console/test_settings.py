"""Settings: plain HTTP stays on loopback, and what goes together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vedette_console.settings import Settings

CERT: dict[str, Any] = {"cert_file": Path("c.pem"), "key_file": Path("k.pem")}


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({}, ""),
        ({"host": "::1"}, ""),
        ({"host": "localhost"}, ""),
        ({"host": "127.9.9.9"}, ""),
        ({"host": "0.0.0.0"}, "plain text"),
        ({"host": "::"}, "plain text"),
        ({"host": "192.0.2.1"}, "plain text"),
        ({"host": "region.example"}, "plain text"),
        ({"host": "0.0.0.0", "insecure": True}, ""),
        ({"host": "0.0.0.0", **CERT}, ""),
        ({"cert_file": Path("c.pem")}, "go together"),
        ({"database": "mysql://x"}, "expects sqlite"),
        ({"public_url": "region.example"}, "expects https"),
        ({"public_url": "https://user@region.example"}, "expects https"),
        ({"public_url": "https://region.example"}, ""),
        ({"public_url": "https://region.example:8443/"}, ""),
        ({"public_url": "https://region.example/vedette"}, "without a path"),
        ({"public_url": "https://region.example/?a"}, "without a path"),
        ({"public_url": "http://region.example"}, "plain text"),
        ({"public_url": "http://localhost:9"}, ""),
        ({"public_url": "http://region.example", "insecure": True}, ""),
        ({"trusted_proxies": ("127.0.0.1",)}, "--public-url"),
        ({"trusted_proxies": ("127.0.0.1", "::1/128", "*"), "public_url": "https://region.example"}, ""),
        ({"trusted_proxies": ("proxy",), "public_url": "https://region.example"}, "--trusted-proxy"),
        ({"operator": "ann"}, "go together"),
        ({"report_hour": 24}, "0 to 23"),
        ({"keep_requests": 3600.0}, "at least 1d"),
    ],
)
def test_mistakes(options: dict[str, Any], mistake: str) -> None:
    mistakes = [*Settings(**{"database": "sqlite:x", **options}).mistakes()]
    assert (mistake in mistakes[0]) if mistake else not mistakes


@pytest.mark.parametrize(
    ("options", "url", "secure"),
    [
        ({}, "http://127.0.0.1:8470", False),
        ({"host": "::1", "port": 1}, "http://[::1]:1", False),
        ({"host": "region.example", **CERT}, "https://region.example:8470", True),
        ({"public_url": "https://console.example/"}, "https://console.example", True),
    ],
)
def test_how_it_is_reached(options: dict[str, Any], url: str, secure: bool) -> None:
    """Cookies are for HTTPS only where browsers come by HTTPS."""
    settings = Settings(database="sqlite:x", **options)
    assert (settings.url, settings.secure) == (url, secure)
