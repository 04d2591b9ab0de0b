"""What is carried by hand, on the side of a host: `vedette fleet import FILE` and `vedette fleet export --answers`."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import click
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from vedette.cli.console import safe
from vedette.config.settings import Config
from vedette.fleet import carried
from vedette.fleet.overlay import load
from vedette.runtime.agent.control import ask
from vedette.system.durable import sync_path
from vedette.system.wallclock import utc_now

SECONDS = 120.0
"""For the agent to look at what was carried."""


def carry_in(path: Path, file: Path) -> None:
    """Give the zip ``file`` to the agent of the configuration ``path``. Raises ValueError and OSError."""
    from vedette.fleet.carriedin import unpack

    config = load(path)
    folder, root = _fleet(config)
    new, old = folder / ".carried.new", folder / ".carried.old"
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        count = unpack(file, new, config.agent.fleet, root.read_bytes())
    except (OSError, ValueError):
        shutil.rmtree(new)
        raise
    _give(new, config.agent.data_dir)
    for path_in in sorted(new.rglob("*")):
        sync_path(path_in)
    target = folder / "carried"
    if target.exists():
        target.rename(old)
    new.rename(target)
    sync_path(folder)
    shutil.rmtree(old, ignore_errors=True)
    try:
        took = ask(config.agent.control_socket, "carried", seconds=SECONDS)
    except ConnectionRefusedError:
        click.echo(f"{count} files are there; the agent takes them when it starts")
        return
    click.echo(f"{count} files; in force: desired document {took['desired']}, roll-out document {took['rollout']}")
    for request in took.get("requests", []):
        done = f"refused: {request['refused']}: {request['why']}" if request["refused"] else "taken"
        click.echo(safe(f"request {request['request'][:8]}: {done}"), err=bool(request["refused"]))
    if said := took.get("certificate"):
        click.echo(safe(f"certificate: {said}"), err=said.startswith("refused"))
    if said and said.startswith("refused"):
        raise SystemExit(1)
    if any(request["refused"] not in ("", "replayed") for request in took.get("requests", [])):
        raise SystemExit(1)


def carry_out(path: Path, out: Path | None) -> None:
    """Write what the agent answers. Raises ValueError and OSError."""
    config = load(path)
    folder, _ = _fleet(config)
    status = ask(config.agent.control_socket, "status", seconds=SECONDS)
    audit, agent = folder / "audit.jsonl", config.agent
    target = out or Path(f"{agent.id}-answers.zip")
    key = _key(config)
    record = audit.read_bytes() if audit.exists() else b""
    said = carried.answer(agent.fleet, agent.id, utc_now(), status, record, key)
    waiting = ask(config.agent.control_socket, "replies", seconds=SECONDS)
    renewal = ask(config.agent.control_socket, "renewal", seconds=SECONDS)["request"]
    asked = [(carried.RENEWAL, renewal.encode())] if renewal else []
    carried.pack(target, chain(said, asked, _replies(config, waiting)))
    click.echo(safe(f"written to {target}, {'signed' if key else 'not signed, as there is no certificate'}"))
    if asked:
        click.echo("its certificate is to be renewed: the request is in it")
    click.echo(f"replies to {len(waiting['parts'])} requests, {len(waiting['refusals'])} refusals")


def _replies(config: Config, waiting: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Parts of replies, one at a time, as the agent signs them."""
    for request, count in waiting["parts"].items():
        for number in range(count):
            row = ask(config.agent.control_socket, "reply", seconds=SECONDS, request=request, part=number)
            yield f"replies/{request}/{number:06}", base64.b64decode(row["message"])
    for request, message in waiting["refusals"].items():
        if request not in waiting["parts"]:
            yield f"replies/{request}/{0:06}", base64.b64decode(message)


def _fleet(config: Config) -> tuple[Path, Path]:
    """The agent's folder of its fleet, and the file of the fleet's root. Raises ValueError."""
    if config.fleet.root is None:
        raise ValueError("this agent follows no fleet: set [fleet] root")
    return config.agent.fleet_dir, config.fleet.root


def _give(folder: Path, like: Path) -> None:
    """To the agent's user, where root has unpacked it."""
    if os.geteuid() != 0:
        return
    owner = like.stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _key(config: Config) -> tuple[ec.EllipticCurvePrivateKey, bytes] | None:
    broker = config.uplink.broker
    if broker.cert_file is None or broker.key_file is None or not broker.key_file.exists():
        return None
    key = load_pem_private_key(broker.key_file.read_bytes(), password=None)
    return (key, broker.cert_file.read_bytes()) if isinstance(key, ec.EllipticCurvePrivateKey) else None
