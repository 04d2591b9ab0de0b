"""The list of what a release or an add-on is made of, as CycloneDX 1.5 JSON (the format's specification: ECMA-424).

Each Debian package, wheel and crate is a component with version, supplier, package URL and the SHA-256 of the file that
was used; the native kernel is one, too, with the compiler that made it; so is what wheels link statically, as they list
it themselves (PEP 770) or ``linked`` does. Of each component the list says

    evidence.occurrences       where it lies in the archive: files, and folders (they end in /) that hold nothing else
    licenses                   an SPDX expression, or the name of the licence
    externalReferences         the texts of these licences, of type "license", by their paths in the archive

so that ``complete`` can hold it against the archive. The time is that of the commit, and the serial number is made of
the contents: equal inputs, equal bytes.
"""

from __future__ import annotations

import base64
import email.utils
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import elf
from debs import ARCHITECTURES, LICENCES, Package
from licences import EXPRESSION, FOLDER, IS_TEXT, Texts
from linked import linked
from native_kernel import Crate
from shell import BuildError, digest

_NAMESPACE = uuid.UUID("6f0b0c53-4c0e-5d0b-9a39-3d4a4cbf5d10")
SUPPLIER = "Vedette"
OWN = ""
KERNEL = "vedette-kernel"
LICENSE = "LICENSE"
"""Vedette's own."""
LATER = ("sbom.cdx.json", "FILES.sha256", f"{FOLDER}/")
"""Vedette's own files that are written after the list."""
PLUGIN = {"name": "vedette:plugin", "value": "true"}
"""A property of what a site adds to its own zip: it may be without a licence."""
UNSAID = {"obstore": "MIT", "confluent-kafka": "Apache-2.0", "pyrage": "MIT", "protobuf": "BSD-3-Clause"}
"""Licences of wheels whose metadata name them only by a classifier or in words."""

Row = dict[str, Any]


def places(owners: Mapping[str, str]) -> dict[str, list[str]]:
    """Of each owner the shortest paths that hold its files and nobody else's; of a folder with a slash at its end."""
    holders: dict[str, set[str]] = defaultdict(set)
    for path, owner in owners.items():
        for folder in _folders(path):
            holders[folder].add(owner)
    shortest: dict[str, set[str]] = defaultdict(set)
    for path, owner in owners.items():
        shortest[owner].add(next((folder for folder in _folders(path) if holders[folder] == {owner}), path))
    return {owner: sorted(paths) for owner, paths in shortest.items()}


def _folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) + "/" for depth in range(1, len(parts) + 1)]


class Bill:
    """The components of one archive, each once, and which of them hold others.

    ``owners`` has, of each file below ``stage``, the component that it is of: a Debian package by its name, a wheel by
    its ``name==version``, the kernel as KERNEL, what is Vedette's own as OWN. Raises BuildError for a file without one.
    """

    def __init__(self, stage: Path, owners: Mapping[Path, str]) -> None:
        files = [path for path in stage.rglob("*") if path.is_file()]
        if stray := [path for path in files if path not in owners]:
            raise BuildError(f"nothing says whose file {stray[0].relative_to(stage)} is")
        self.texts = Texts(stage)
        self._stage = stage
        self._owners = {str(path.relative_to(stage)): owners[path] for path in sorted(files)}
        self._where = places(self._owners)
        self._rows: dict[str, Row] = {}
        self._inside: dict[str, set[str]] = defaultdict(set)

    def debian(self, arch: str, packages: Iterable[Package], root: Path) -> None:
        """Those Debian packages, unpacked in ``root``, of which the archive has a file."""
        for name, version, sha256 in packages:
            if where := self._where.get(name):
                purl = f"pkg:deb/debian/{name}@{version}?arch={ARCHITECTURES[arch]}&distro=debian-12"
                texts = self.texts.of_debian(root, name)
                self._add(name, version, purl, LICENCES[name], "Debian", texts, where, sha256)

    def wheels(self, digests: Mapping[str, str], plugins: Container[str] = ()) -> None:
        """The wheels in packages/, with what is linked into them; both by ``name==version``."""
        for label, sha256 in sorted(digests.items()):
            if where := self._where.get(label):
                files = [path for path, owner in self._owners.items() if owner == label]
                self._wheel(label, sha256, files, where, label in plugins)

    def _wheel(self, label: str, sha256: str, files: list[str], where: list[str], plugin: bool) -> None:
        name, version = label.split("==")
        (info,) = {path.split("/")[1] for path in files if path.split("/")[1].endswith(".dist-info")}
        metadata = BytesParser().parsebytes((self._stage / "packages" / info / "METADATA").read_bytes())
        said = metadata["License-Expression"] or (metadata["License"] or "").strip().split("\n")[0]
        licence = UNSAID.get(name) or said or "not stated"
        texts = sorted(
            path for path in files if IS_TEXT.match(path.rpartition("/")[2]) or f"/{info}/licenses/" in f"/{path}"
        )  # fmt: skip
        if not texts and not plugin:
            texts = self.texts.by_expression(licence)
        purl = f"pkg:pypi/{name}@{version}"
        self._add(name, version, purl, licence, _supplier(metadata), texts, where, sha256)
        if plugin:
            self._rows[purl]["properties"] = [PLUGIN]
        programs = [self._stage / path for path in files if elf.machine(self._stage / path) is not None]
        if programs and not plugin:
            self._linked(purl, name, version, programs)
        for path in sorted(self._stage.glob(f"packages/{info}/sboms/*.json")):
            self._own_list(purl, path, programs)

    def _own_list(self, holder: str, path: Path, programs: list[Path]) -> None:
        """What a list inside a wheel names, but for what only built it."""
        for row in json.loads(path.read_bytes())["components"]:
            if row.get("scope") == "excluded":
                continue
            purl = row["purl"].partition("?")[0]
            (sha256,) = [entry["content"] for entry in row.get("hashes", ()) if entry["alg"] == "SHA-256"] or [""]
            licence, texts = self._licence_in_list(row) if purl not in self._rows else ("", [])
            where = [str(file.relative_to(self._stage)) for file in programs]
            self._add(
                row["name"], row["version"], purl, licence, row.get("author", "crates.io"), texts, where, sha256, holder
            )

    def _licence_in_list(self, row: Row) -> tuple[str, list[str]]:
        (entry,) = row.get("licenses") or [{}]
        if "license" in entry:
            text = base64.b64decode(entry["license"]["text"]["content"])
            return f"of {row['name']}", [self.texts.put(f"crate-{row['name']}", text)]
        expression = re.sub(r"\s+", " ", entry.get("expression", "")).replace("/", " OR ")
        return expression, self.texts.by_expression(expression)

    def _linked(self, holder: str, name: str, version: str, programs: Iterable[Path]) -> None:
        for inside in linked(name, version, programs):
            licence, suffix = inside.part.licence, f"@{inside.version}" if inside.version else ""
            purl = f"pkg:generic/{inside.name}{suffix}".replace("+", "%2B")
            texts = [self.texts.by_name(inside.part.text)] if inside.part.text else self.texts.by_expression(licence)
            where = [str(path.relative_to(self._stage)) for path in inside.files]
            self._add(inside.name, inside.version, purl, licence, inside.part.supplier, texts, where, "", holder)

    def kernel(self, version: str, library: Path, compiler: str, crates: Iterable[Crate]) -> None:
        """The native kernel with the digest of its library as it is shipped, and its crates."""
        where, purl = self._where[KERNEL], f"pkg:generic/{KERNEL}@{version}"
        self._add(KERNEL, version, purl, "Apache-2.0", SUPPLIER, [LICENSE], where, digest(library))
        self._rows[purl]["description"] = f"built by {compiler}, with its standard library"
        for crate in crates:
            of_crate = f"pkg:cargo/{crate.name}@{crate.version}"
            licence, text = crate.licence.replace("/", " OR "), self.texts.put(f"crate-{crate.name}", crate.licences())
            supplier = crate.authors or "crates.io"
            self._add(crate.name, crate.version, of_crate, licence, supplier, [text], where, crate.sha256, purl)
        self._linked(purl, KERNEL, version, [library])

    def _add(
        self,
        name: str,
        version: str,
        purl: str,
        licence: str,
        supplier: str,
        texts: Iterable[str],
        where: Iterable[str],
        sha256: str,
        holder: str = "",
    ) -> None:
        self._inside[holder].add(purl)
        named = {"expression": licence} if EXPRESSION.fullmatch(licence) else {"license": {"name": licence}}
        row = self._rows.setdefault(purl, {"type": "library", "bom-ref": purl, "name": name, "purl": purl})
        for key, value in (
            ("version", version),
            ("supplier", {"name": supplier}),
            ("licenses", [named]),
            ("hashes", [{"alg": "SHA-256", "content": sha256}] if sha256 else []),
            ("externalReferences", [{"type": "license", "url": path} for path in texts]),
        ):
            if value:
                row.setdefault(key, value)
        there = {entry["location"] for entry in row.get("evidence", {}).get("occurrences", ())}
        row["evidence"] = {"occurrences": [{"location": path} for path in sorted(there | set(where))]}

    def document(self, version: str, arch: str, epoch: int, name: str = "vedette") -> bytes:
        """The whole list, of the release or of an add-on by its ``name``; ``epoch``: the time of the commit, in seconds
        since 1970."""
        purl = f"pkg:generic/{name}@{version}?arch={arch}"
        self._inside[purl] = self._inside.pop("", set())
        rows = [self._rows[key] for key in sorted(self._rows)]
        application = {
            "type": "application", "bom-ref": purl, "name": name, "version": version, "purl": purl,
            "supplier": {"name": SUPPLIER}, "licenses": [{"expression": "Apache-2.0"}],
            "externalReferences": [{"type": "license", "url": LICENSE}],
            "evidence": {"occurrences": [{"location": path} for path in sorted({*self._where[OWN], *LATER})]},
        }  # fmt: skip
        body = {
            "metadata": {
                "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "component": application,
                "supplier": {"name": SUPPLIER},
            },
            "components": rows,
            "dependencies": [
                {"ref": ref, "dependsOn": sorted(inside)} for ref, inside in sorted(self._inside.items())
            ],
        }  # fmt: skip
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


def _supplier(metadata: Message) -> str:
    """Whom a wheel names as its author or maintainer."""
    for key in ("Author", "Maintainer"):
        if metadata[key]:
            return str(metadata[key])
        for name, address in email.utils.getaddresses([str(metadata[f"{key}-email"] or "")]):
            if name or address:
                return name or address
    return "PyPI"
