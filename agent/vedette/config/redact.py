"""``[[redact]]`` to a ``Redaction``, and the key under which values are hashed.

The key is a file of ``KEY_BYTES`` random bytes as hex digits, which only its owner reads. This host's own is made when
a rule that hashes is first in force; one that ``agent.redact_key`` names is put there by who wants several hosts to
hash alike, and never made here. Without a key nothing leaves that should be hashed: it is masked.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from vedette.config.settings import Config
from vedette.decode.redact import HASH, KEY_BYTES, SECONDS, WINDOW, Redaction, Rule
from vedette.system.durable import sync_path


def rules(config: Config) -> tuple[Rule, ...]:
    return tuple(
        Rule(redact.action, redact.fields, tuple(redact.kinds), redact.patterns, redact.expressions)
        for redact in config.redact
    )


def redaction(config: Config, *, seconds: float = SECONDS, window: int = WINDOW) -> tuple[Redaction, str]:
    """What the configuration redacts, and what is wrong with its key (empty: nothing). Makes this host's own key where
    it lacks."""
    asked = rules(config)
    key, wrong = _key(config, asked, make=True)
    return Redaction(asked, key, seconds=seconds, window=window), wrong


def problem(config: Config) -> str:
    """What is wrong with the key, so that what should be hashed would be masked; empty: nothing."""
    return _key(config, rules(config), make=False)[1]


def _key(config: Config, redactions: Iterable[Rule], *, make: bool) -> tuple[bytes | None, str]:
    if all(rule.action != HASH for rule in redactions):
        return None, ""
    path, own = config.agent.redact_key_file, config.agent.redact_key is None
    try:
        if own and not path.exists():
            if not make:
                return None, ""
            _make(path)
        return read(path), ""
    except (OSError, ValueError) as error:
        return None, f"agent.redact_key: {error}: what should be hashed is masked"


def read(path: Path) -> bytes:
    """The key in a file. Raises OSError, ValueError."""
    text = path.read_text("ascii", "replace").strip()
    if re.fullmatch(rf"[0-9a-f]{{{2 * KEY_BYTES}}}", text) is None:
        raise ValueError(f"{path}: expects {2 * KEY_BYTES} hex digits, as `openssl rand -hex {KEY_BYTES}` prints them")
    return bytes.fromhex(text)


def _make(path: Path) -> None:
    """A new key, unless another process was faster. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)
        except FileExistsError:
            return
    finally:
        partial.unlink(missing_ok=True)
    sync_path(path.parent)
