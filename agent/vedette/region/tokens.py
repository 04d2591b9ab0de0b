"""Tokens by which hosts enrol themselves: made, counted, revoked; in ``tokens.json`` (0600) of the region's folder.

A token is for one fleet, for so many agents and until a time; what enrols by it carries its labels. The file holds the
secrets, since both sides prove with them who they are (``fleet/enrolment.py``): it is as worth keeping as ``ca.key``.
Whoever holds ``Region.open`` of the folder may change it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, structs

from vedette.fleet.enrolment import EnrolmentRefused, Token, new_token
from vedette.model.times import MAX_SKEW
from vedette.region.members import SITE, check_site
from vedette.system import documents, foreign
from vedette.system.durable import write_whole
from vedette.system.terminal import safe

FILE = "tokens.json"


class Grant(Struct, forbid_unknown_fields=True):
    """What a token allows; times are seconds since 1970."""

    id: str
    secret: str
    """Base64."""
    fleet: str
    uses: int
    expires: int
    created: int
    labels: dict[str, str] = {}
    used: list[str] = []
    """The agents that enrolled by it."""
    revoked: int = 0

    def token(self) -> Token:
        return Token(self.fleet, self.id, b64decode(self.secret))

    def state(self, now: float) -> str:
        """ "usable", or why not."""
        if self.revoked:
            return "revoked"
        if not self.created - MAX_SKEW / 1e6 <= now < self.expires:  # from the future: the clock was ahead
            return "expired"
        return "used up" if len(self.used) >= self.uses else "usable"

    def check(self, name: str, now: float) -> None:
        """Raises EnrolmentRefused unless ``name`` may enrol by it now; one that did may again."""
        state = self.state(now)
        if state != "usable" and not (state == "used up" and name in self.used):
            raise EnrolmentRefused(f"the token is {state}: make another with 'vedette region token create'")


class _File(Struct):
    tokens: list[Grant]


class Tokens:
    """The file of ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.grants = _load(self._path)

    def create(self, fleet: str, *, uses: int, seconds: float, labels: Mapping[str, str], now: float) -> Grant:
        """A new token. Raises OSError, and ValueError for a label ``site`` that can be none."""
        if SITE in labels:
            check_site(labels[SITE])
        token = new_token(fleet)
        grant = Grant(
            token.id, b64encode(token.secret).decode(), fleet, uses, int(now + seconds), int(now), dict(labels)
        )
        self.grants[grant.id] = grant
        self._save()
        return grant

    def find(self, id: str) -> Grant:
        """Raises EnrolmentRefused for a token that was never made here."""
        grant = self.grants.get(id)
        if grant is None:
            raise EnrolmentRefused(f"token {safe(id)} was not made by this region")
        return grant

    def spend(self, id: str, name: str) -> None:
        """``name`` has enrolled by a token."""
        if name not in (grant := self.grants[id]).used:
            grant.used.append(name)
            self._save()

    def count(self, id: str, names: Iterable[str]) -> None:
        """``names`` are known to have enrolled by a token: what a service that was killed had not written yet."""
        for name in names:
            self.spend(id, name)

    def revoke(self, id: str, now: float) -> Grant:
        """Raises EnrolmentRefused for a token that was never made here."""
        grant = self.find(id)
        grant.revoked = grant.revoked or int(now)
        self._save()
        return grant

    def _save(self) -> None:
        rows = [structs.asdict(grant) for grant in self.grants.values()]
        write_whole(self._path, json.dumps({"tokens": rows}, indent=1).encode() + b"\n", 0o600)


def _load(path: Path) -> dict[str, Grant]:
    if not path.exists():
        return {}
    try:
        grants = documents.read(_File, foreign.read(path.read_bytes())).tokens
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): restore it, or remove it to revoke all tokens") from error
    return {grant.id: grant for grant in grants}
