"""What is a key: a value made canonical, as bytes, by the kind of the index; and the hash that spreads keys.

    text     the text, in UTF-8, case-sensitive; a number or a boolean as rules print it (``plan.ir.text``)
    nocase   the same under Unicode simple case folding
    domain   the same without one dot at its end
    number   an integer of 64 bits; 7.0 and "7" are 7, what has a fraction is no key
    ip       an IPv4 or IPv6 address in any written form (``model.event.address``): 4 or 16 bytes
    cidr     as ip; the table's keys are networks
    range    a number as a float of 64 bits; the table's keys are lowest and highest

A value that cannot be a key of the kind gives None, and is in no table. Python and the kernel must agree to the bit
(``agent/kernel/src/lookup_keys.rs``).
"""

from __future__ import annotations

import math
import re
import struct

from vedette.model.event import address as parse
from vedette.plan.ir import fold, text

_WORD = (1 << 64) - 1
_ONE, _TWO = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def canonical(kind: str, value: object) -> bytes | None:
    """The key that ``value`` is for an index of ``kind``; None when it is none."""
    match kind:
        case "text":
            plain = text(value)
            return None if plain is None else plain.encode("utf-8", "surrogatepass")
        case "nocase" | "domain":
            plain = text(value)
            if plain is None:
                return None
            plain = fold(plain)
            if kind == "domain":
                plain = plain.removesuffix(".")
                if not plain:
                    return None
            return plain.encode("utf-8", "surrogatepass")
        case "number":
            number = integer(value)
            return None if number is None else struct.pack("<q", number)
        case "ip" | "cidr":
            return address(value)
        case _:
            point = real(value)
            return None if point is None else ordered(point)


def integer(value: object) -> int | None:
    if (isinstance(value, str) and _INTEGER.fullmatch(value)) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def real(value: object) -> float | None:
    """A number as a float; None also for what no range can hold: ranges end below 2^53."""
    if type(value) is str:
        try:
            value = float(value) if value.isascii() and "_" not in value and value == value.strip() else None
        except ValueError:
            return None
    if type(value) is int:
        return float(value) if abs(value) < 1 << 53 else None
    return value if type(value) is float and math.isfinite(value) else None


def ordered(number: float) -> bytes:
    """8 bytes that compare as the numbers do."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number + 0.0))
    return int.to_bytes(bits ^ (_WORD if bits >> 63 else 1 << 63), 8, "big")


def address(value: object) -> bytes | None:
    parsed = parse(value) if type(value) is str else None
    return None if parsed is None else parsed.packed


def mix(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & _WORD


def hash64(key: bytes, seed: int) -> int:
    """64 bits of every byte of ``key``: words of 8 bytes, the last filled up with NUL, each folded in by a product."""
    hash_ = seed ^ len(key) * _ONE & _WORD
    for at in range(0, len(key), 8):
        hash_ = mix(hash_ ^ int.from_bytes(key[at : at + 8], "little") ^ _TWO, _ONE)
    return mix(hash_ ^ _ONE, _TWO)


def spread(number: int) -> int:
    """A bijection of 64 bits (the finalizer of MurmurHash3), so that near numbers lie far apart."""
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _WORD
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _WORD
    return number ^ number >> 33


_FIRST = pow(0xFF51AFD7ED558CCD, -1, 1 << 64)
_SECOND = pow(0xC4CEB9FE1A85EC53, -1, 1 << 64)


def gather(number: int) -> int:
    """The inverse of ``spread``."""
    number = (number ^ number >> 33) * _SECOND & _WORD
    number = (number ^ number >> 33) * _FIRST & _WORD
    return number ^ number >> 33
