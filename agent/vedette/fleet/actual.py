"""The actual state: what an agent has in force, as its heartbeats prove it.

Everything is computed from what is loaded in memory, nothing read back from disk: a file that was changed under the
agent's feet does not show, and what was installed and not loaded does not either.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vedette.config.settings import Config
from vedette.fleet.overlay import AppliedState

OS_RELEASE = Path("/etc/os-release")
MAX_PROBLEMS = 20
MAX_TEXT = 300
MAX_REFUSED = 5
"""Problems in a heartbeat, characters of one, and refused targets."""


def labels(config: Config, os_release: Path = OS_RELEASE) -> dict[str, str]:
    """An agent's labels: what is known of it, and over that what its configuration says."""
    return {
        "id": config.agent.id,
        "site": config.agent.site,
        "os": _os(os_release),
        "arch": platform.machine(),
        **config.fleet.labels,
    }


def _os(path: Path) -> str:
    """``debian``, ``ubuntu``, ``alpine``, … (os-release(5))."""
    try:
        rows = dict(line.split("=", 1) for line in path.read_text("utf-8").splitlines() if "=" in line)
    except (OSError, UnicodeDecodeError):
        return "linux"
    return rows.get("ID", "linux").strip("\"'")


def config_digest(config: Config) -> str:
    """SHA-256 of every setting in force, those left at their defaults included."""
    rows = [f"{field.name}={getattr(config, field.name)!r}" for field in dataclasses.fields(config) if field.compare]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def of_config(config: Config, applied: AppliedState) -> dict[str, Any]:
    """What the heartbeat says of the configuration that is loaded."""
    return {
        "digest": config_digest(config),
        "overlay": config.overlay.sha256,
        "confirmed": applied.confirmed,
        "ignored": [*config.overlay.ignored],
        "undone": {sha256: reason[:MAX_TEXT] for sha256, reason in [*applied.undone.items()][-5:]},
    }


def of_bundle(name: str | None, sha256: str | None, plan_digest: str) -> dict[str, Any] | None:
    """What it says of the bundle ``NAME-VERSION`` that is loaded; None: rules come from elsewhere."""
    if name is None:
        return None
    return {"version": int(name.rpartition("-")[2]), "sha256": sha256, "digest": plan_digest}


def problems(reasons: Mapping[str, str]) -> list[str]:
    """By what they are about, bounded."""
    return [f"{about}: {reason}"[:MAX_TEXT] for about, reason in reasons.items() if reason][:MAX_PROBLEMS]


def refused(failed: Mapping[str, str]) -> dict[str, str]:
    """What this agent was given and does not take, and why: by SHA-256 of the target, the newest. An overlay that was
    undone is in ``of_config``."""
    return {sha256: reason[:MAX_TEXT] for sha256, reason in [*failed.items()][-MAX_REFUSED:]}
