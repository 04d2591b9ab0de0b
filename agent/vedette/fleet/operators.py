"""Who may ask hosts what: the target ``operators.json``, signed by the operators' threshold like every target.

    {"format": 1, "fleet": F, "serial": int,
     "operators": [{"name", "key": "ed25519:BASE64", "roles": ["viewer", …], "expires": RFC 3339}]}

So one stolen key makes nobody an operator, and who is taken out of the document is refused as soon as agents have it.
The serial rises with every change. Pure: bytes and values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Meta, Struct

from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import key_text, public_key
from vedette.fleet.documents import DocumentRefused, opened, written
from vedette.system.documents import Readers, Serial, Time, read, unique
from vedette.system.within import NAME

OPERATORS = "operators.json"
"""The name of the target."""
Role = Literal["viewer", "analyst", "operator"]
ROLES: tuple[str, ...] = get_args(Role)
"""Each kind of request takes one of them (``kinds.py``); an operator may have several."""
MAX_OPERATORS = 200
MAX_BYTES = 256 << 10


class Operator(Struct, frozen=True, forbid_unknown_fields=True):
    """``expires`` in UTC microseconds."""

    name: Annotated[
        str, Meta(pattern=rf"\A{NAME}\Z", max_length=64, description="letters, digits, '.', '_' or '-', at most 64")
    ]
    key: Ed25519PublicKey
    roles: Annotated[frozenset[Role], Meta(min_length=1, description=f"some of {', '.join(ROLES)}")]
    expires: Time


class _Document(Struct, frozen=True):
    serial: Serial
    operators: Annotated[
        tuple[Operator, ...], Meta(max_length=MAX_OPERATORS, description=f"a list of at most {MAX_OPERATORS}")
    ] = ()

    def __post_init__(self) -> None:
        unique((operator.name for operator in self.operators), "operators")


@dataclass(frozen=True, slots=True)
class Operators:
    fleet: str
    serial: int
    by_name: Mapping[str, Operator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a key of two names: nobody could say who has signed."""
        names: dict[str, str] = {}
        for operator in self.by_name.values():
            other = names.setdefault(key_text(operator.key), operator.name)
            if other != operator.name:
                who = f"operators {other} and {operator.name}"
                raise ValueError(f"{who} have the same key: each needs one of their own")

    def to_bytes(self) -> bytes:
        rows = [
            {"name": operator.name, "key": key_text(operator.key), "roles": sorted(operator.roles),
             "expires": rfc3339(operator.expires)}
            for operator in self.by_name.values()
        ]  # fmt: skip
        return written(fleet=self.fleet, serial=self.serial, operators=rows)

    def same(self, other: Operators | None) -> bool:
        """Whether both name the same operators, whatever their serials."""
        return other is not None and {**self.by_name} == {**other.by_name}


def read_operators(data: bytes, fleet: str) -> Operators:
    """Raises DocumentRefused."""
    try:
        document = read(_Document, opened(data, fleet, MAX_BYTES), readers=_READERS)
        return Operators(fleet, document.serial, {operator.name: operator for operator in document.operators})
    except ValueError as error:
        raise DocumentRefused(f"{OPERATORS}: {error}") from error


def read_operator(row: Any, where: str) -> Operator:
    """One row of the document, or of ``[[operator]]`` in ``fleet.toml``. Raises ValueError."""
    return read(Operator, row, where, readers=_READERS)


def _key(value: object) -> Ed25519PublicKey:
    if not isinstance(value, str):
        raise ValueError(f"expects ed25519:…, not {value!r}")
    return public_key(value)


_READERS: Readers = {Ed25519PublicKey: _key}
