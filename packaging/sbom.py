"""The list of what a release is made of, as CycloneDX 1.5 JSON (the format's specification: ECMA-424).

Each Debian package, wheel and crate is a component with version, package URL and the SHA-256 of the file that was used;
the native kernel is one, too, with the compiler that made it.
The list holds no time and no host, and its serial number is made of its contents: equal inputs, equal bytes.
"""

from __future__ import annotations

import email
import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from debs import ARCHITECTURES, Package
from native_kernel import Crate

_NAMESPACE = uuid.UUID("6f0b0c53-4c0e-5d0b-9a39-3d4a4cbf5d10")


def _component(name: str, version: str, purl: str, sha256: str, licence: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }
    if licence:
        row["licenses"] = [{"license": {"name": licence}}]
    return row


def wheels(folder: Path, digests: dict[str, str]) -> list[dict[str, Any]]:
    """The components of the packages unpacked in ``folder``; ``digests`` by name and version of the wheel."""
    found = []
    for metadata in sorted(folder.glob("*.dist-info/METADATA")):
        fields = email.message_from_bytes(metadata.read_bytes())
        name, version = fields["Name"].lower().replace("_", "-"), fields["Version"]
        licence = fields["License-Expression"] or (fields["License"] or "").strip().split("\n")[0]
        purl = f"pkg:pypi/{name}@{version}"
        found.append(_component(name, version, purl, digests[f"{name}=={version}"], licence))
    return found


def debian(arch: str, packages: Iterable[Package]) -> list[dict[str, Any]]:
    """The components of the Debian packages. Their licences lie in the release, in runtime/copyright/."""
    suffix = f"?arch={ARCHITECTURES[arch]}&distro=debian-12"
    return [
        _component(name, version, f"pkg:deb/debian/{name}@{version}{suffix}", sha256)
        for name, version, sha256 in packages
    ]


def kernel(version: str, sha256: str, compiler: str, crates: Iterable[Crate]) -> list[dict[str, Any]]:
    """The components of the native kernel: itself, with the digest of its library as it is shipped, and its crates."""
    own = _component("vedette-kernel", version, f"pkg:generic/vedette-kernel@{version}", sha256, "Apache-2.0")
    return [
        own | {"description": f"built by {compiler}, with its standard library"},
        *(
            _component(
                crate.name, crate.version, f"pkg:cargo/{crate.name}@{crate.version}", crate.sha256, crate.licence
            )
            for crate in crates
        ),
    ]


def document(version: str, arch: str, components: list[dict[str, Any]], name: str = "vedette") -> bytes:
    """The whole list, of the release or of an add-on by its ``name``."""
    purl = f"pkg:generic/{name}@{version}?arch={arch}"
    body = {
        "metadata": {"component": {"type": "application", "bom-ref": purl, "name": name, "version": version}},
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [row["bom-ref"] for row in components]}],
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(body, sort_keys=True))
    whole = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **body,
    }
    return json.dumps(whole, indent=1).encode() + b"\n"
