"""The lookups that a fleet's desired document names, whole: kept beside its signed files, published, copied.

A lookup's target is what is signed before its file. The file itself lies in ``FOLDER/lookups/SHA256.vlookup``, by the
SHA-256 of that target, and goes to the broker as all lookups do (``lookups.py``), block by block, with deltas against
the one that its change goes out from; each version on a channel of its own, so that in rings two are to be had at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from vedette.delivery.topics import fleet_channel, lookup_topic
from vedette.fleet.documents import Desired, Target
from vedette.lookup.names import SUFFIX
from vedette.lookup.sign import head_of, opened
from vedette.mqtt.settings import MqttSettings
from vedette.region.lookups import publish_lookup, withdraw_lookup
from vedette.system.durable import sync_path


class Kept(NamedTuple):
    """A lookup that agents may need."""

    name: str
    target: Target
    path: Path
    previous: Path | None
    """What agents have that are to take it."""


def keep(folder: Path, lookups: Mapping[str, Path]) -> None:
    """Copy what ``fleetfile.read`` has found to a fleet's folder. Raises OSError."""
    (folder / "lookups").mkdir(exist_ok=True)
    for sha256, path in lookups.items():
        place = _path(folder, sha256)
        if not place.exists():
            temporary = place.with_suffix(".tmp")
            shutil.copyfile(path, temporary)
            sync_path(temporary)
            temporary.rename(place)
    sync_path(folder / "lookups")


def needed(folder: Path, desired: Desired | None) -> list[Kept]:
    """Those that ``desired`` names. Raises FileNotFoundError for one that was not kept."""
    lookups: dict[tuple[str, str], Kept] = {}
    for group in desired.groups if desired else ():
        for kind, name, change in group.changes():
            if kind != "lookups":
                continue
            for target, before in ((change.from_, None), (change.to, change.from_)):
                if target is None:
                    continue
                path = _path(folder, target.sha256)
                if not path.exists():
                    raise FileNotFoundError(f"{path}: lookup {name} is missing: `vedette fleet plan` copies it there")
                old = None if before is None else _path(folder, before.sha256)
                if old is not None or (name, target.sha256) not in lookups:
                    lookups[name, target.sha256] = Kept(name, target, path, old)
    return [*lookups.values()]


def names(desired: Desired | None) -> set[str]:
    """Of the files that ``desired`` names."""
    return {
        _path(Path(), target.sha256).name
        for group in (desired.groups if desired else ())
        for change in group.lookups.values()
        for target in (change.to, change.from_)
        if target is not None
    }


async def publish(
    broker: MqttSettings, fleet: str, lookups: list[Kept], there: Mapping[str, bytes], *, whole: bool = False
) -> int:
    """Publish those that the broker does not announce yet; how many. ``there``: what is retained on the topics of
    lookups. Raises as ``publish_lookup``."""
    sent = 0
    for lookup in lookups:
        channel = _channel(lookup.path)
        if whole or lookup_topic(fleet, channel, lookup.name) not in there:
            await publish_lookup(broker, lookup.path, previous=lookup.previous, fleet=fleet, under=channel)
            sent += 1
    return sent


async def clear(broker: MqttSettings, fleet: str, lookups: list[Kept], there: Mapping[str, bytes]) -> int:
    """Withdraw the versions that the documents name no more; how many. Raises OSError."""
    wanted = {lookup_topic(fleet, _channel(lookup.path), lookup.name) for lookup in lookups}
    cleared = 0
    for topic in there:
        *_, channel, _, name = topic.split("/")
        if channel.startswith(fleet_channel("")) and topic not in wanted:
            await withdraw_lookup(broker, fleet, channel, name)
            cleared += 1
    return cleared


def _channel(path: Path) -> str:
    with path.open("rb") as source:
        return fleet_channel(opened(head_of(source), None).version)


def _path(folder: Path, sha256: str) -> Path:
    return folder / "lookups" / f"{sha256}{SUFFIX}"
