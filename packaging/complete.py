"""Whether an archive is wholly what its list of parts says, and its licences may be kept by whoever gets it.

``problems`` reads the unpacked archive with its sbom.cdx.json and nothing else, so that anybody can ask the same:

    python packaging/complete.py FOLDER

Every file is of a component; every place that a component names is there; each component has a licence, whose text is
in the archive, a supplier, and what CycloneDX wants of it. A plugin of a site's own may be without a licence.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIST = "sbom.cdx.json"
_DOCUMENT = {
    "bomFormat": r"CycloneDX",
    "specVersion": r"1\.5",
    "version": r"1",
    "serialNumber": r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}


def problems(folder: Path) -> list[str]:
    """In words, of the archive unpacked in ``folder``; empty: none."""
    bill = json.loads((folder / LIST).read_bytes())
    metadata = bill.get("metadata", {})
    components = [metadata.get("component", {}), *bill.get("components", ())]
    wrong = [key for key, form in _DOCUMENT.items() if not re.fullmatch(form, str(bill.get(key)))]
    return [
        *(f"{LIST}: no {key} as it should be" for key in wrong),
        *_times(metadata),
        *_references(bill, components),
        *(f"{row.get('name')}: {text}" for row in components for text in _component(folder, row)),
        *_strays(folder, components),
    ]


def _times(metadata: dict[str, Any]) -> Iterator[str]:
    if not re.fullmatch(r"\d{4}(-\d\d){2}T(\d\d:){2}\d\dZ", metadata.get("timestamp", "")):
        yield f"{LIST}: no timestamp"
    if not metadata.get("supplier", {}).get("name"):
        yield f"{LIST}: no supplier"


def _references(bill: dict[str, Any], components: list[dict[str, Any]]) -> Iterator[str]:
    references = [row.get("bom-ref") for row in components]
    if len(set(references)) != len(references) or None in references:
        yield f"{LIST}: a bom-ref is missing or there twice"
    for row in bill.get("dependencies", ()):
        if unknown := {row["ref"], *row["dependsOn"]} - {*references}:
            yield f"{LIST}: a dependency on {sorted(unknown)[0]}, which is no component"
    reached = {ref for row in bill.get("dependencies", ()) for ref in row["dependsOn"]}
    for ref in sorted({*references[1:]} - reached - {None}):
        yield f"{ref}: nothing depends on it"


def _component(folder: Path, row: dict[str, Any]) -> Iterator[str]:
    for key in ("type", "name", "purl"):
        if not row.get(key):
            yield f"no {key}"
    if not row.get("supplier", {}).get("name"):
        yield "no supplier"
    for place in _places(row):
        if not _inside(folder, place) or not (folder / place).exists():
            yield f"{place} is not there"
    if not _places(row):
        yield "no file of it is named"
    if {"name": "vedette:plugin", "value": "true"} in row.get("properties", ()):
        return
    if not row.get("licenses"):
        yield "no licence"
    texts = [entry["url"] for entry in row.get("externalReferences", ()) if entry["type"] == "license"]
    if not texts:
        yield "no text of its licence"
    for text in texts:
        path = folder / text
        if not _inside(folder, text) or not path.is_file() or not path.read_bytes().strip():
            yield f"{text}, the text of its licence, is not there"
            continue
        for name in re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", path.read_bytes()):
            if f"licences/{name.decode()}" not in texts:
                yield f"{text} refers to {name.decode()}, which is not there"


def _inside(folder: Path, place: str) -> bool:
    return (folder / place).resolve().is_relative_to(folder.resolve())


def _places(row: dict[str, Any]) -> list[str]:
    return [entry["location"] for entry in row.get("evidence", {}).get("occurrences", ())]


def _strays(folder: Path, components: list[dict[str, Any]]) -> Iterator[str]:
    owned = {place for row in components for place in _places(row)}
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        source = path
        if path.parent.name == "__pycache__":
            source = Path(importlib.util.source_from_cache(str(path)))
        parts = str(source.relative_to(folder)).split("/")
        folders = {"/".join(parts[:depth]) + "/" for depth in range(1, len(parts))}
        if not owned & {"/".join(parts), *folders}:
            yield f"{path.relative_to(folder)} is of no component"


if __name__ == "__main__":
    sys.exit("\n".join(problems(Path(sys.argv[1]))) or None)
