"""A controller's folder that is a copy, brought up to what another one has published with it meanwhile.

What the broker retains is believed by nobody: ``fleet/trust.py`` verifies all of it, from the first root in the folder
on, as an agent does. Then files, metadata, and the timestamp last, are taken over. Killed in between, it is done again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Targets, Timestamp

from vedette.delivery.topics import blob_topic, tuf_topic
from vedette.fleet.trust import METADATA, Missing, Trust
from vedette.mqtt.settings import MqttSettings
from vedette.region.announce import CHANNEL, retained
from vedette.region.repository import Repository
from vedette.system.durable import write_whole

MAX_DOCUMENTS = 4


@dataclass
class _Retained:
    files: Mapping[str, bytes]
    blobs: dict[str, bytes] = field(default_factory=dict)

    def metadata(self, name: str) -> bytes | None:
        return self.files.get(name)

    def blob(self, sha256: str) -> bytes | None:
        return self.blobs.get(sha256)


def version(repository: Repository, data: bytes) -> int:
    """Of a timestamp that the broker retains; 0 unless it is signed by this fleet's key."""
    root = repository.newest("root")
    try:
        metadata: Metadata[Timestamp] = Metadata.from_bytes(data)
        if root is None or metadata.signed.type != "timestamp":
            return 0
        root.verify_delegate("timestamp", metadata)
    except (RepositoryError, ValueError):
        return 0
    return int(metadata.signed.version)


async def adopt(broker: MqttSettings, repository: Repository) -> None:
    """Take over what is published. Raises TrustRefused (ValueError) when it cannot be trusted, OSError."""
    fleet, folder = repository.fleet, repository.folder
    there = await retained(broker, [tuf_topic(fleet, "+")])
    files = {topic.rpartition("/")[2]: data for topic, data in there.items()}
    source = _Retained({name: data for name, data in files.items() if METADATA.fullmatch(name)})
    trust_folder = folder / "steer" / "adopt"
    trust_folder.mkdir(parents=True, exist_ok=True)
    trust = Trust(trust_folder, fleet, (folder / "tuf" / "1.root.json").read_bytes())
    for _ in range(MAX_DOCUMENTS):
        try:
            await asyncio.to_thread(trust.refresh, source)
            break
        except Missing as error:
            if len(error.name) != 64:
                raise
            source.blobs.update(await _blobs(broker, fleet, [error.name]))
    lacking = [name for name in _named(source.files) if not (folder / "blobs" / name).exists()]
    source.blobs.update(await _blobs(broker, fleet, [name for name in lacking if name not in source.blobs]))
    await asyncio.to_thread(_write, folder, source, lacking)


async def _blobs(broker: MqttSettings, fleet: str, names: list[str]) -> dict[str, bytes]:
    """What the broker has under these digests, and is what they say. Raises FileNotFoundError."""
    if not names:
        return {}
    came = await retained(broker, [blob_topic(fleet, CHANNEL, name) for name in names])
    blobs = {topic.rpartition("/")[2]: data for topic, data in came.items()}
    for name in names:
        if hashlib.sha256(blobs.get(name, b"")).hexdigest() != name:
            raise FileNotFoundError(f"the file {name} is not published: another controller is publishing, or did")
    return blobs


def _named(files: Mapping[str, bytes]) -> list[str]:
    """Digests of the files that targets and roll-out name. They are verified by now."""
    digests = set[str]()
    for name, data in files.items():
        if name.endswith((".targets.json", ".rollout.json")):
            metadata: Metadata[Targets] = Metadata.from_bytes(data)
            digests |= {info.hashes["sha256"] for info in metadata.signed.targets.values()}
    return sorted(digests)


def _write(folder: Path, source: _Retained, lacking: list[str]) -> None:
    for name in lacking:
        write_whole(folder / "blobs" / name, source.blobs[name])
    for name, data in sorted(source.files.items(), key=lambda item: item[0] == "timestamp.json"):
        write_whole(folder / "tuf" / name, data)
