"""Digests of texts, in hex."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from vedette.plan.query import Type
from vedette.stream.functions.table import Function, gives, takes
from vedette.stream.values.types import TEXT, WHOLE, Failed


def _digest(name: str) -> Callable[[str], str]:
    return lambda text: hashlib.new(name, text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def _row(name: str, digits: int) -> Function:
    example = f"{name.upper()}('')"
    return Function(gives(Type("CHAR", digits), takes(TEXT)), _digest(name), example=example, gives=_digest(name)(""))


def _sha2(text: str, bits: int) -> str:
    if bits not in (224, 256, 384, 512):
        raise Failed(f"SHA2 of {bits} bits; there are 224, 256, 384, 512")
    return _digest(f"sha{bits}")(text)


FUNCTIONS: dict[str, Function] = {
    "MD5": _row("md5", 32),
    "SHA1": _row("sha1", 40),
    "SHA224": _row("sha224", 56),
    "SHA256": _row("sha256", 64),
    "SHA384": _row("sha384", 96),
    "SHA512": _row("sha512", 128),
    "SHA2": Function(gives(Type("VARCHAR", 128), takes(TEXT, WHOLE)), _sha2, example="SHA2('', 224)",
                     gives=_sha2("", 224)),
}  # fmt: skip
