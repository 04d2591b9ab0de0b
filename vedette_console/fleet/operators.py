"""In whose name the console signs, and whether hosts and the controller will listen to that name now."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import key_text
from vedette.fleet.requests import MAX_REASON
from vedette.region.sign import public_text
from vedette.system.wallclock import utc_now
from vedette_console.fleet.documents import Known
from vedette_console.fleet.given import Given
from vedette_console.web import Problem


def signer(given: Given, known: Known, role: str) -> tuple[str, Ed25519PrivateKey]:
    """The operator's name and key. Raises Problem 503 when it has none, 409 when what it would sign is refused."""
    given.need_trust()
    key = given.need_key()
    public = public_text(key)
    every = known.operators.by_name.values() if known.operators is not None else ()
    name = given.operator or next((one.name for one in every if key_text(one.key) == public), "")
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
