"""Settings that a host has from its enrolment: defaults for what its own file does not set.

With ``enrolment.token_file`` key, certificate and authorities lie in the data directory, where the agent puts them when
it enrols (``fleet/identity.py``). The fleet is that of the token; ``identity.json`` brings the region's public keys and
the host's labels, ``root.json`` the fleet's root of trust. A setting of the local file wins.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from vedette.bundle.seal import public_key
from vedette.config.settings import AgentSettings, Config
from vedette.system.within import is_name


def enrolled(config: Config) -> Config:
    """``config`` with what enrolment said; as it is without ``enrolment.token_file``."""
    if config.enrolment.token_file is None:
        return config
    folder = config.agent.identity_dir
    said = _said(folder / "identity.json")
    fleet = config.agent.fleet
    if fleet == AgentSettings().fleet:
        fleet = _named(said.get("fleet")) or _named(_fleet_of(config.enrolment.token_file)) or fleet
    settings = said.get("settings") or {}
    broker = config.uplink.broker
    if broker.cert_file is None:
        broker = replace(
            broker,
            ca_file=broker.ca_file or folder / "region-ca.pem",
            cert_file=folder / "agent.pem",
            key_file=folder / "agent.key",
        )
    receipts = config.uplink.receipt_keys or _keys(settings.get("receipt_keys"))
    labels = {name: text for name, text in _object(settings.get("labels")).items() if isinstance(text, str)}
    root = folder / "root.json"
    steered = replace(
        config.fleet,
        root=config.fleet.root or (root if root.exists() else None),
        labels={**labels, **config.fleet.labels},
    )
    trusted = (*config.bundles.trusted_keys, *_keys(settings.get("trusted_keys")))
    return replace(
        config,
        agent=replace(config.agent, fleet=fleet),
        fleet=steered,
        uplink=replace(config.uplink, broker=broker, receipt_keys=receipts),
        bundles=replace(config.bundles, trusted_keys=tuple(dict.fromkeys(trusted))),
    )


def _said(path: Path) -> dict[str, Any]:
    try:
        said = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return _object(said) if isinstance(_object(said).get("settings", {}), dict) else {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _named(value: object) -> str:
    """A fleet's name; empty for what topics cannot hold."""
    return value if is_name(value, 64) else ""


def _fleet_of(token: Path) -> str:
    """The fleet that a token names; empty when the file cannot be read: ``runtime/member/membership.py`` says so."""
    try:
        parts = token.read_text("ascii").strip().split(":")
    except (OSError, UnicodeDecodeError):
        return ""
    return parts[1] if len(parts) == 4 else ""


def _keys(value: object) -> tuple[str, ...]:
    keys = []
    for text in value if isinstance(value, list) else ():
        try:
            public_key(text)
        except (ValueError, TypeError, AttributeError):
            continue
        keys.append(text)
    return tuple(keys)
