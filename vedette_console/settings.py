"""Settings of the console. Facts only: nothing here opens a file or a connection."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from vedette.mqtt.settings import MqttSettings

HOUR = 3600.0
EVERY_PROXY = "*"


@dataclass(frozen=True, slots=True)
class Oidc:
    """An OpenID provider, and what its users may at first.

    ``roles`` maps a value of the claim ``claim`` to a role on all fleets and sites; who has none of them gets
    ``default_role``, and with "" no entry.
    """

    issuer: str
    client_id: str
    client_secret_file: Path | None = None
    name: str = "Single sign-on"
    scopes: str = "openid profile email"
    claim: str = "groups"
    roles: tuple[tuple[str, str], ...] = ()
    default_role: str = ""
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Sessions:
    """Times for which one stays logged in, in seconds."""

    idle: float = 12 * HOUR
    absolute: float = 7 * 24 * HOUR
    once: float = 900.0
    confirmed: float = 24 * HOUR
    """For a user of the OpenID provider: from their last login there to the next."""
    tokens_confirmed: float = 30 * 24 * HOUR
    """From the same to when their tokens rest."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what others can make the console do."""

    login_failures: int = 5
    """Wrong passwords for one name, or from one address times four, before each further one waits."""
    login_window: float = 900.0
    body_bytes: int = 4 * 1024 * 1024
    streams: int = 512
    """Open event streams in all."""
    streams_each: int = 64
    """Open event streams of one user."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A console. ``database``: ``sqlite:PATH`` or ``postgresql://…``; ``tables``: where ``vedette-spark`` keeps its
    tables; what is None or empty is not offered on the pages, and the API says so."""

    database: str
    tables: str = "tables"
    landing: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8470
    public_url: str = ""
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure: bool = False
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks, or ``*``, whose X-Forwarded-For and X-Forwarded-Proto are believed."""

    broker: MqttSettings | None = None
    fleet: str = ""
    """Only agents of this fleet; "" for all."""
    trust: Path | None = None
    """The fleet's folder of ``vedette fleet init``: its roots, documents and online keys."""
    requests: Path | None = None
    """Where replies of agents are kept (``vedette fleet fetch``)."""
    keep_requests: float = 90 * 24 * HOUR
    """Seconds after which a request of the console that is over is removed, with its replies."""
    evidence: Path | None = None
    operator: str = ""
    operator_key: Path | None = None
    """By whose name and key the console signs what it asks of agents."""
    author_key: Path | None = None
    """Signs bundles that the console builds."""
    authorities: Path | None = None
    """CA of the agents' certificates, by which their replies are believed."""

    members: Path | None = None
    """The region's folder, or one with a copy of its members.json: at which site an agent is; None: as it states."""
    signer_keys: tuple[Path, ...] = ()
    """Of operators who sign the fleet's documents: with enough of them a proposal goes out at once."""
    revoked: Path | None = None
    """The region's crl.pem: replies of revoked agents are refused."""
    fleet_file: Path | None = None
    """fleet.toml, which proposals change."""
    work: Path | None = None
    """The console's own folder for proposals and backtests; by default beside the SQLite file."""

    rules: tuple[Path, ...] = ()
    pipelines: tuple[Path, ...] = ()
    lookups: tuple[Path, ...] = ()
    backtest_sources: tuple[str, ...] = ()
    """Folders or stores of raw log segments, for backtests."""
    reports: Path | None = None
    report_hour: int | None = None
    """The hour, UTC, at which the daily report is written; None for never."""

    oidc: Oidc | None = None
    sessions: Sessions = field(default_factory=Sessions)
    limits: Limits = field(default_factory=Limits)

    @property
    def work_folder(self) -> Path:
        """``work``, or where it is by default."""
        kind, _, path = self.database.partition(":")
        return self.work or (Path(path).parent if kind == "sqlite" else Path()) / "console"

    @property
    def log_folders(self) -> dict[str, Path]:
        """The folders of ``backtest_sources`` by their names."""
        return {Path(source).name or source: Path(source) for source in self.backtest_sources}

    @property
    def tls(self) -> bool:
        return self.cert_file is not None

    @property
    def loopback(self) -> bool:
        """Whether only this host can reach the console."""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """The address at which a browser finds the console; no slash at the end."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether cookies are only for HTTPS."""
        return self.url.startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """Names by which the console may be asked, beside those of loopback; none: by any."""
        return frozenset({urlsplit(self.public_url).hostname or ""}) if self.public_url else frozenset()

    def _of_address(self) -> Iterator[str]:
        if self.public_url:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
                yield f"--public-url: expects https://HOST, not {self.public_url!r}"
            elif parts.path not in ("", "/") or parts.query or parts.fragment:
                yield f"--public-url {self.public_url}: the console needs a host name of its own, without a path"
            elif not confidential(self.public_url) and not self.insecure:
                yield f"--public-url {self.public_url}: passwords would travel in plain text; give https://…"
        elif self.trusted_proxies:
            yield "--trusted-proxy needs --public-url: links and cookies are for the address that browsers use"
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network("::" if proxy == EVERY_PROXY else proxy, strict=False)
            except ValueError:
                yield f"--trusted-proxy: expects an address or a network, not {proxy!r}"

    def mistakes(self) -> Iterator[str]:
        """Mistakes, each with the option that it is about and what to do."""
        if (self.cert_file is None) != (self.key_file is None):
            yield "--tls-cert and --tls-key go together"
        if not self.tls and not self.loopback and not self.insecure:
            yield (
                f"--listen {self.host}:{self.port}: passwords would travel in plain text. Give --tls-cert and"
                " --tls-key, or listen on 127.0.0.1 behind a proxy that does TLS; --insecure listens all the same"
            )
        yield from self._of_address()
        if (self.operator == "") != (self.operator_key is None):
            yield "--operator and --operator-key go together"
        if not self.database.startswith(("sqlite:", "postgresql://", "postgres://")):
            yield f"--database: expects sqlite:PATH or postgresql://…, not {self.database!r}"
        if self.keep_requests < 24 * HOUR:
            yield "--keep-requests: expects at least 1d"
        if self.report_hour is not None and not 0 <= self.report_hour < 24:
            yield f"--report-hour: expects 0 to 23, not {self.report_hour}"
        if self.oidc is not None and not confidential(self.oidc.issuer):
            yield f"--oidc-issuer: expects https://…, not {self.oidc.issuer!r}"
        if self.broker is not None:
            yield from (f"--broker{mistake}" for mistake in self.broker.mistakes())


def is_loopback(host: str) -> bool:
    """Whether this name or address is the host's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def confidential(url: str) -> bool:
    """Whether nobody on the way can read or change what is sent to ``url``: HTTPS, or loopback."""
    parts = urlsplit(url)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    )
