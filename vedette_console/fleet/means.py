"""What the console sees and steers a fleet with, and in whose name it signs; what is missing is said, with what to do.

Keys are read from their files each time, so that one that was replaced counts at once, and never kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import key_text
from vedette.fleet.requests import MAX_REASON
from vedette.mqtt.settings import MqttSettings
from vedette.region.requests import revoked_serials
from vedette.region.sign import load_key, public_text
from vedette.system.wallclock import utc_now
from vedette_console.fleet.documents import Known
from vedette_console.settings import Settings
from vedette_console.web import Problem


@dataclass(frozen=True, slots=True)
class Means:
    """``work``: the console's own folder. ``sources``: folders of raw logs for backtests, by name."""

    work: Path
    broker: MqttSettings | None = None
    trust: Path | None = None
    requests: Path | None = None
    evidence: Path | None = None
    tables: str = ""
    landing: Path | None = None
    operator: str = ""
    operator_key: Path | None = None
    author_key: Path | None = None
    signer_keys: tuple[Path, ...] = ()
    authorities: Path | None = None
    revoked: Path | None = None
    fleet_file: Path | None = None
    rules: tuple[Path, ...] = ()
    pipelines: tuple[Path, ...] = ()
    lookups: tuple[Path, ...] = ()
    sources: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Means:
        beside = settings.database.removeprefix("sqlite:") if settings.database.startswith("sqlite:") else ""
        folder = Path(beside).parent if beside else Path()
        work = settings.work or folder / "console"
        sources = {Path(one).name or one: Path(one) for one in settings.backtest_sources}
        return cls(
            work, settings.broker, settings.trust, settings.requests, settings.evidence, settings.tables,
            settings.landing, settings.operator, settings.operator_key, settings.author_key,
            settings.signer_keys, settings.authorities, settings.revoked,
            settings.fleet_file, settings.rules, settings.pipelines, settings.lookups, sources,
        )  # fmt: skip

    def need_broker(self) -> MqttSettings:
        """Raises Problem 503."""
        if self.broker is None:
            raise Problem(503, "the console has no broker", what_to_do="start it with --broker mqtts://…")
        return self.broker

    def need_trust(self) -> Path:
        """Raises Problem 503."""
        if self.trust is None:
            raise Problem(503, "the console does not know the fleet's documents",
                          what_to_do="start it with --trust FOLDER, that of `vedette fleet init`")  # fmt: skip
        return self.trust

    def need_key(self) -> Ed25519PrivateKey:
        """The key of the operator whom the console signs as. Raises Problem 503."""
        if self.operator_key is None:
            raise Problem(503, "the console has no operator's key",
                          what_to_do="make one with `vedette bundle keygen`, name it as an [[operator]] in fleet.toml, "
                                     "and start the console with --operator NAME --operator-key FILE")  # fmt: skip
        return key_of(self.operator_key)

    def need_requests(self) -> Path:
        """Raises Problem 503."""
        if self.requests is None:
            raise Problem(503, "the console has no folder for requests",
                          what_to_do="start it with --requests FOLDER")  # fmt: skip
        return self.requests

    def need_authorities(self) -> bytes:
        """By which agents' replies are believed. Raises Problem 503."""
        if self.authorities is None:
            raise Problem(503, "the console does not know the authority of the agents' certificates",
                          what_to_do="start it with --authorities region-ca.pem")  # fmt: skip
        try:
            return self.authorities.read_bytes()
        except OSError as error:
            raise Problem(503, f"{self.authorities}: {error.strerror}") from error

    def revoked_now(self) -> frozenset[int]:
        """Serials of revoked certificates, as the file says now. Raises Problem 503."""
        try:
            return revoked_serials(self.revoked) if self.revoked is not None else frozenset()
        except (OSError, ValueError) as error:
            raise Problem(503, f"the list of revoked certificates cannot be read: {error}") from error


def key_of(path: Path) -> Ed25519PrivateKey:
    """Raises Problem 503, which does not name more than the file."""
    try:
        return load_key(path)
    except (OSError, ValueError) as error:
        raise Problem(503, f"a signing key cannot be used: {error}") from error


def signer(means: Means, known: Known, role: str) -> tuple[str, Ed25519PrivateKey]:
    """The operator's name and key. Raises Problem 503 when it has none, 409 when what it would sign is refused."""
    means.need_trust()
    key = means.need_key()
    public = public_text(key)
    every = known.operators.by_name.values() if known.operators is not None else ()
    name = means.operator or next((one.name for one in every if key_text(one.key) == public), "")
    found = next((one for one in every if one.name == name), None)
    if found is None:
        raise Problem(409, f"the console's key is that of no operator of fleet {known.fleet}",
                      what_to_do=f"add an [[operator]] with {public} to fleet.toml, plan, sign and apply")  # fmt: skip
    if key_text(found.key) != public:
        raise Problem(409, f"the console's key is not that of operator {name}",
                      what_to_do=f"start it with the right --operator-key, or sign {public} for {name}")  # fmt: skip
    if found.expires <= utc_now():
        raise Problem(409, f"operator {name} has expired at {rfc3339(found.expires)}",
                      what_to_do="give it a later time in fleet.toml, then plan, sign, apply")  # fmt: skip
    if role not in found.roles:
        raise Problem(409, f"operator {name} lacks the role {role}",
                      what_to_do="add the role in fleet.toml, then plan, sign, apply")  # fmt: skip
    return name, key


def reasoned(reason: str, who: str) -> str:
    """The reason as both records have it: with the name of the one who asked in the console."""
    by = _by(who)
    return reason[: MAX_REASON - len(by)] + by


def as_given(reason: str, who: str) -> str:
    """What ``reasoned`` was given: for pages that name the one who asked beside it."""
    return reason.removesuffix(_by(who))


def _by(who: str) -> str:
    return f" (console: {who[:100]})"
