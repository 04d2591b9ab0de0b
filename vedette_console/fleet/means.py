"""Means by which the console steers a fleet, and in whose name it signs; errors for what is missing, with what to do.

Keys are read from their files each time, so that one that was replaced counts at once, and never kept.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import key_text
from vedette.fleet.requests import MAX_REASON
from vedette.mqtt.settings import MqttSettings
from vedette.region.requests import revoked_serials
from vedette.region.sign import load_key, public_text
from vedette.system.wallclock import utc_now
from vedette_console.fleet.documents import Contents
from vedette_console.settings import Settings
from vedette_console.web import Problem


def need_broker(settings: Settings) -> MqttSettings:
    """Raises Problem 503."""
    if settings.broker is None:
        raise Problem(503, "the console has no broker", what_to_do="start it with --broker mqtts://…")
    return settings.broker


def need_trust(settings: Settings) -> Path:
    """Raises Problem 503."""
    if settings.trust is None:
        raise Problem(503, "the console does not know the fleet's documents",
                      what_to_do="start it with --trust FOLDER, that of `vedette fleet init`")  # fmt: skip
    return settings.trust


def need_key(settings: Settings) -> Ed25519PrivateKey:
    """The key of the operator whom the console signs as. Raises Problem 503."""
    if settings.operator_key is None:
        raise Problem(503, "the console has no operator's key",
                      what_to_do="make one with `vedette bundle keygen`, name it as an [[operator]] in fleet.toml, "
                                 "and start the console with --operator NAME --operator-key FILE")  # fmt: skip
    return key_of(settings.operator_key)


def need_requests(settings: Settings) -> Path:
    """Raises Problem 503."""
    if settings.requests is None:
        raise Problem(503, "the console has no folder for requests",
                      what_to_do="start it with --requests FOLDER")  # fmt: skip
    return settings.requests


def need_authorities(settings: Settings) -> bytes:
    """The authorities by which agents' replies are believed. Raises Problem 503."""
    if settings.authorities is None:
        raise Problem(503, "the console does not know the authority of the agents' certificates",
                      what_to_do="start it with --authorities region-ca.pem")  # fmt: skip
    try:
        return settings.authorities.read_bytes()
    except OSError as error:
        raise Problem(503, f"{settings.authorities}: {error.strerror}") from error


def revoked_now(settings: Settings) -> frozenset[int]:
    """Serials of revoked certificates, as the file says now. Raises Problem 503."""
    try:
        return revoked_serials(settings.revoked) if settings.revoked is not None else frozenset()
    except (OSError, ValueError) as error:
        raise Problem(503, f"the list of revoked certificates cannot be read: {error}") from error


def rule_options(settings: Settings) -> list[str]:
    """The options of a command that reads rules: the console's pipelines and lookups."""
    options = (("--pipeline", settings.pipelines), ("--lookup", settings.lookups))
    return [word for option, paths in options for path in paths for word in (option, str(path.resolve()))]


def key_of(path: Path) -> Ed25519PrivateKey:
    """Raises Problem 503, which does not name more than the file."""
    try:
        return load_key(path)
    except (OSError, ValueError) as error:
        raise Problem(503, f"a signing key cannot be used: {error}") from error


def signer(settings: Settings, contents: Contents, role: str) -> tuple[str, Ed25519PrivateKey]:
    """The operator's name and key. Raises Problem 503 when it has none, 409 when what it would sign is refused."""
    need_trust(settings)
    key = need_key(settings)
    public = public_text(key)
    every = contents.operators.by_name.values() if contents.operators is not None else ()
    name = settings.operator or next((operator.name for operator in every if key_text(operator.key) == public), "")
    operator = next((operator for operator in every if operator.name == name), None)
    if operator is None:
        raise Problem(409, f"the console's key is that of no operator of fleet {contents.fleet}",
                      what_to_do=f"add an [[operator]] with {public} to fleet.toml, plan, sign and apply")  # fmt: skip
    if key_text(operator.key) != public:
        raise Problem(409, f"the console's key is not that of operator {name}",
                      what_to_do=f"start it with the right --operator-key, or sign {public} for {name}")  # fmt: skip
    if operator.expires <= utc_now():
        raise Problem(409, f"operator {name} has expired at {rfc3339(operator.expires)}",
                      what_to_do="give it a later time in fleet.toml, then plan, sign, apply")  # fmt: skip
    if role not in operator.roles:
        raise Problem(409, f"operator {name} lacks the role {role}",
                      what_to_do="add the role in fleet.toml, then plan, sign, apply")  # fmt: skip
    return name, key


def reasoned(reason: str, who: str) -> str:
    """The reason as both records have it: with the name of the one who asked in the console."""
    by = _by(who)
    return reason[: MAX_REASON - len(by)] + by


def as_given(reason: str, who: str) -> str:
    """The reason without what ``reasoned`` adds: for pages that name the one who asked beside it."""
    return reason.removesuffix(_by(who))


def _by(who: str) -> str:
    return f" (console: {who[:100]})"
