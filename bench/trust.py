"""What trust costs an agent: memory and time to load it, and to refresh. ``python -m bench.trust``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.fleet.documents import Change, Desired, Group, Target
from vedette.fleet.labels import parse
from vedette.fleet.trust import FolderSource, Trust
from vedette.region.repository import Repository
from vedette.region.roles import Signatory

GROUPS, ROUNDS = 40, 50
LOAD = """
import time
import vedette.runtime.app
from vedette.system.resident import resident
before, began = resident(), time.perf_counter()
import vedette.fleet.trust
print(time.perf_counter() - began, resident() - before)
"""


def published(folder: Path) -> Repository:
    """A fleet of GROUPS groups with a bundle each, signed by two of three."""
    keys = [Ed25519PrivateKey.generate() for _ in range(3)]
    named = [Signatory(f"operator-{i}", key.public_key()) for i, key in enumerate(keys)]
    made = Repository(folder)
    made.create("bench", named, 2, named, 2)
    for key in keys[:2]:
        made.sign(key)
    made.commit()
    blobs = {f"bundles/{i}": str(i).encode() * 1000 for i in range(GROUPS)}
    groups = []
    for i, (path, data) in enumerate(blobs.items()):
        target = Target(path, made._file(path, data, version=1).hashes["sha256"], 1)
        groups.append(Group(f"g{i}", f"site = s{i}", parse(f"site = s{i}"), {"main": Change(f"c{i}", target)}))
    made.stage_desired(Desired("bench", 1, "2026-11-22T00:00:00Z", tuple(groups)), blobs)
    for key in keys[:2]:
        made.sign(key)
    made.commit()
    return made


def main() -> None:
    loads = []
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
        loads.append([*map(float, ended.stdout.split())])
    seconds, size = sorted(loads)[len(loads) // 2]
    print(f"loading fleet.trust into an agent: {seconds * 1000:.0f} ms, {size / 1e6:.1f} MB of memory")
    with tempfile.TemporaryDirectory() as name:
        made = published(Path(name) / "centre")
        source, root = FolderSource(made.folder), (made.folder / "tuf" / "1.root.json").read_bytes()
        began = time.perf_counter()
        for i in range(ROUNDS):
            Trust(Path(name) / f"agent-{i}", "bench", root).refresh(source)
        first = (time.perf_counter() - began) / ROUNDS
        agent = Trust(Path(name) / "agent-0", "bench", root)
        began = time.perf_counter()
        for _ in range(ROUNDS):
            agent.refresh(source)
        again = (time.perf_counter() - began) / ROUNDS
    print(
        f"refresh of {GROUPS} groups: the first {first * 1000:.1f} ms, one without news {again * 1000:.1f} ms, synced"
    )


if __name__ == "__main__":
    main()
