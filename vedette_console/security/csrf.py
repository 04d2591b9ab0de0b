"""Protection against other sites that would act in the name of one who is logged in.

A request that changes something and is known by its cookie must bring the session's token in ``X-CSRF-Token``; the
token is a hash of the cookie's secret, so it needs no place of its own, and gives nothing away. Whatever changes
something, the login too, must come from the console's own pages where the browser says whence it comes. Requests with
``Authorization`` are of scripts: no browser adds that by itself.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

HEADER = "x-csrf-token"


def token(cookie: str) -> str:
    """The CSRF token of a session."""
    return hmac.new(cookie.encode(), b"vedette csrf", hashlib.sha256).hexdigest()


def valid(cookie: str, sent: str) -> bool:
    return hmac.compare_digest(token(cookie).encode(), sent.encode())


def foreign(origin: str, fetch_site: str, host: str) -> bool:
    """Whether a browser says that a request comes from another site. ``origin``, ``fetch_site``: the headers Origin and
    Sec-Fetch-Site, "" without; ``host``: the header Host."""
    if fetch_site:
        return fetch_site not in ("same-origin", "none")
    if not origin:
        return False
    return urlsplit(origin).netloc.lower() != host.lower()
