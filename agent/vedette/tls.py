"""TLS as this project uses it: 1.2 or newer, the peer's certificate and name always checked."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any


class ClientContext(ssl.SSLContext):
    """Remembers the socket it wrapped last, so that one whose handshake failed can be closed (paho leaves it open)."""

    wrapped: ssl.SSLSocket | None = None

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        self.wrapped = super().wrap_socket(*args, **options)
        return self.wrapped

    def close(self) -> None:
        """Close the socket wrapped last."""
        if self.wrapped is not None:
            self.wrapped.close()


def client_context(ca: Path | None, cert: Path | None, key: Path | None) -> ClientContext:
    """For a connection to a server; ``ca`` None: the host's trust store; ``cert`` and ``key``: who we are.

    Raises FileNotFoundError with the path, ssl.SSLError (an OSError) when a file is not what it should be.
    """
    for path in (ca, cert, key):
        if path is not None and not path.is_file():
            raise FileNotFoundError(f"TLS file {path} is missing")
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context
