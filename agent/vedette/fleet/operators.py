"""Who may ask hosts what: the target ``operators.json``, signed by the operators' threshold like every target.

    {"format": 1, "fleet": F, "serial": int,
     "operators": [{"name", "key": "ed25519:BASE64", "roles": ["viewer", …], "expires": RFC 3339}]}

So one stolen key makes nobody an operator, and who is taken out of the document is refused as soon as agents have it.
The serial rises with every change. Pure: bytes and values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import key_text, public_key
from vedette.fleet.documents import DocumentRefused, each, opened, serial_of, written
from vedette.model.times import iso_time
from vedette.system.within import is_name

OPERATORS = "operators.json"
"""The name of the target."""
ROLES = ("viewer", "analyst", "operator")
"""Each kind of request takes one of them (``kinds.py``); an operator may have several."""
MAX_OPERATORS = 200
MAX_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Operator:
    """``expires`` in UTC microseconds."""

    name: str
    key: Ed25519PublicKey
    roles: frozenset[str]
    expires: int


@dataclass(frozen=True, slots=True)
class Operators:
    fleet: str
    serial: int
    by_name: Mapping[str, Operator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a key of two names: nobody could say who has signed."""
        names: dict[str, str] = {}
        for one in self.by_name.values():
            if (other := names.setdefault(key_text(one.key), one.name)) != one.name:
                raise ValueError(f"operators {other} and {one.name} have the same key: each needs one of their own")

    def to_bytes(self) -> bytes:
        rows = [
            {"name": one.name, "key": key_text(one.key), "roles": sorted(one.roles), "expires": rfc3339(one.expires)}
            for one in self.by_name.values()
        ]
        return written(self.fleet, self.serial, operators=rows)

    def same(self, other: Operators | None) -> bool:
        """Whether both name the same operators, whatever their serials."""
        return other is not None and {**self._rows()} == {**other._rows()}

    def _rows(self) -> dict[str, tuple[str, frozenset[str], int]]:
        return {one.name: (key_text(one.key), one.roles, one.expires) for one in self.by_name.values()}


def read_operators(data: bytes, fleet: str) -> Operators:
    """Raises DocumentRefused."""
    try:
        document = opened(data, fleet, MAX_BYTES)
        rows = each(document, "operators", MAX_OPERATORS, operator)
        return Operators(fleet, serial_of(document), {one.name: one for one in rows})
    except ValueError as error:
        raise DocumentRefused(f"{OPERATORS}: {error}") from error


def operator(row: Any, where: str) -> Operator:
    """One row of the document, or of ``[[operator]]`` in ``fleet.toml``. Raises ValueError."""
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expects an object")
    if unknown := row.keys() - {"name", "key", "roles", "expires"}:
        raise ValueError(f"{where}.{min(unknown)}: unknown key; known: name, key, roles, expires")
    name, key, roles, expires = (row.get(one) for one in ("name", "key", "roles", "expires"))
    if not is_name(name, 64):
        raise ValueError(f"{where}.name: expects letters, digits, '.', '_' or '-', not {name!r}")
    if not isinstance(key, str):
        raise ValueError(f"{where}.key: expects ed25519:…, not {key!r}")
    try:
        public = public_key(key)
    except ValueError as error:
        raise ValueError(f"{where}.key: {error}") from error
    if not isinstance(roles, list) or not roles or not all(one in ROLES for one in roles):
        raise ValueError(f"{where}.roles: expects some of {', '.join(ROLES)}, not {roles!r}")
    until = iso_time(expires) if isinstance(expires, str) else None
    if until is None:
        raise ValueError(f'{where}.expires: expects a time such as "2027-06-30T00:00:00Z", not {expires!r}')
    return Operator(name, public, frozenset(roles), until)
