"""TLS as this project uses it: 1.2 or newer, the peer's certificate and name checked, keys for their owner only.

Only a host that enrols, and knows no authority yet, takes any peer: its messages prove themselves.
A private key is opened once: its permissions are checked on the open file and it is loaded from there, so that what was
checked is what is used. A key that group or others may read or write is refused with the command that closes it; one
that asks for a passphrase is refused, as nobody is there to type it. A systemd credential may be readable by its group
(``_credential``): the unit alone can reach the folder, and its user reads a file of root's, by an access list whose
mask ``stat`` shows as the group's bits.

``Renewed`` keeps a context as long as its files stay what they are; a certificate renewed on disk is taken up at the
next connection, without a restart and without reading keys again in between.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from vedette.system.durable import stamp

C = TypeVar("C", bound=ssl.SSLContext)


class ClientSocket(ssl.SSLSocket):
    """Remembers why reading failed: under TLS 1.3 a server says only then that it refuses our certificate."""

    failure = ""

    def recv(self, *args: Any, **options: Any) -> bytes:
        try:
            return super().recv(*args, **options)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLZeroReturnError):
            raise
        except ssl.SSLError as error:
            self.failure = reason(error)
            raise


class ClientContext(ssl.SSLContext):
    """Remembers the socket it wrapped last, so that one whose handshake failed can be closed (paho leaves it open)."""

    sslsocket_class = ClientSocket
    wrapped: ClientSocket | None = None

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        wrapped = super().wrap_socket(*args, **options)
        assert isinstance(wrapped, ClientSocket)
        self.wrapped = wrapped
        return wrapped

    def close(self) -> None:
        """Close the socket wrapped last."""
        if self.wrapped is not None:
            self.wrapped.close()


def client_context(ca: Path | None, cert: Path | None, key: Path | None, *, unverified: bool = False) -> ClientContext:
    """For a connection to a server; ``ca`` None: the host's trust store; ``cert`` and ``key``: who we are;
    ``unverified``: without ``ca`` the server may be anybody.

    Raises FileNotFoundError, PermissionError for a key that others may reach, OSError when a file is not what it should
    be, ValueError for a key with a passphrase; each with the path.
    """
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None and unverified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is None:
        context.load_default_certs()
    else:
        _load_authorities(context, ca)
    if cert is not None and key is not None:
        _load_identity(context, cert, key)
    return context


def server_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """For connections of clients; ``client_ca``: they must show a certificate that it signed. Raises as above."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_identity(context, cert, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_authorities(context, client_ca)
    return context


class Renewed(Generic[C]):
    """The context that ``make`` builds from ``files``; built again when one of them changes."""

    def __init__(self, make: Callable[[], C], files: Sequence[Path | None]) -> None:
        self._make = make
        self._files = [path for path in files if path is not None]
        self._context: C | None = None
        self._seen: list[tuple[int, int, int] | None] = []

    def get(self) -> C:
        """Raises what ``make`` raises, at every call until the files are good."""
        seen = [stamp(path) for path in self._files]
        if self._context is None or seen != self._seen:
            self._context = self._make()
            self._seen = seen
        return self._context

    @property
    def last(self) -> C | None:
        """The newest that could be built."""
        return self._context


def reason(error: BaseException) -> str:
    """Return why a handshake failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and (text := getattr(error, "reason", None)):  # none in some of CPython's own
        text = text.lower().replace("_", " ")
        refused = re.match(r"(?:tlsv1[0-9]*|sslv3) alert (.*)", text)
        return f"the peer refuses us: {refused[1]}" if refused else text
    return re.sub(r" \(_ssl\.c:\d+\)", "", str(error)) or type(error).__name__


def expiry(cert: Path | None, now: datetime | None = None) -> str:
    """A remark that our own certificate is no longer (or not yet) good; empty when it is, or cannot be read."""
    from cryptography import x509  # 1.5 MiB of memory, for when a connection has failed

    try:
        certificate = x509.load_pem_x509_certificate(cert.read_bytes()) if cert is not None else None
    except (OSError, ValueError):
        return ""
    now = now or datetime.now(UTC)
    if certificate is not None and now > certificate.not_valid_after_utc:
        return f"our certificate {cert} expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}: renew it"
    if certificate is not None and now < certificate.not_valid_before_utc:
        return f"our certificate {cert} is good only from {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} on"
    return ""


def _load_authorities(context: ssl.SSLContext, ca: Path) -> None:
    _present(ca)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise OSError(f"{ca}: no certificates of authorities in PEM form: {reason(error)}") from error


def _load_identity(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    _present(cert)
    _present(key)

    def passphrase() -> str:
        raise ValueError(f"{key}: asks for a passphrase, and nobody is there to type it: store it without one")

    with key.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077 and not (mode & 0o037 == 0 and _credential(file.fileno())):
            raise PermissionError(f"{key}: others may reach this private key (mode {mode:04o}): chmod 600 {key}")
        try:
            context.load_cert_chain(cert, f"/proc/self/fd/{file.fileno()}", passphrase)
        except ssl.SSLError as error:
            raise OSError(f"{cert} and {key}: no certificate and its private key: {reason(error)}") from error


def _credential(descriptor: int) -> bool:
    """Whether an open file lies directly in this unit's credentials directory (systemd.exec(5)), and both are root's or
    ours and closed to others."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    opened = os.readlink(f"/proc/self/fd/{descriptor}")
    if not os.path.isabs(folder) or os.path.dirname(opened) != os.path.realpath(folder):
        return False
    statuses = os.fstat(descriptor), os.stat(folder)
    return all(status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o027 for status in statuses)


def _present(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"TLS file {path} is missing")
