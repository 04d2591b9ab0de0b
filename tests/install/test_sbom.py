"""The list of parts and the licences of an archive, in a small one: whole as ``sbom`` writes it, and each thing that is
missing or too much is noticed by ``complete``. That the real zip has nothing to object to: ``test_archive.py``."""

from __future__ import annotations

import importlib
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.differences import walk
from tests.install.conftest import ROOT

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]

complete, sbom, linked = (importlib.import_module(name) for name in ("complete", "sbom", "linked"))
BuildError = importlib.import_module("shell").BuildError
Package = importlib.import_module("debs").Package
EPOCH = 1_795_888_067
ELF = b"\x7fELF\x02\x01".ljust(18, b"\0") + struct.pack("<H", 62) + bytes(100)
CRATE = {
    "name": "aead",
    "version": "0.5.2",
    "purl": "pkg:cargo/aead@0.5.2?x=y",
    "author": "RustCrypto",
    "hashes": [{"alg": "SHA-256", "content": "ab" * 32}],
    "licenses": [{"expression": "MIT  OR Apache-2.0"}],
}
BUILDER = {**CRATE, "name": "cc", "purl": "pkg:cargo/cc@1.0.0", "scope": "excluded"}


class Archive:
    """One that holds a wheel with a program, a module in one file, a Debian package and files of Vedette's own."""

    def __init__(self, folder: Path) -> None:
        self.stage, self.root = folder / "stage", folder / "root"
        self.owners: dict[Path, str] = {}
        self.write("LICENSE", (ROOT / "LICENSE").read_bytes(), sbom.OWN)
        for name, licence in (("cryptography", "Apache-2.0 OR BSD-3-Clause"), ("single", "MIT")):
            metadata = f"Name: {name}\nVersion: 1.0\nAuthor-email: Ann <ann@example>\nLicense-Expression: {licence}\n"
            self.write(f"packages/{name}-1.0.dist-info/METADATA", metadata.encode(), f"{name}==1.0")
        self.write("packages/cryptography/__init__.py", b"", "cryptography==1.0")
        program = ELF + b"\0OpenSSL 4.0.3 25 Aug 2026\0 /rustc/" + b"a" * 40 + b"/library"
        self.write("packages/cryptography/_rust.abi3.so", program, "cryptography==1.0")
        self.write("packages/cryptography-1.0.dist-info/licenses/LICENSE", b"text " * 50, "cryptography==1.0")
        listed = json.dumps({"components": [CRATE, BUILDER]}).encode()
        self.write("packages/cryptography-1.0.dist-info/sboms/rust.json", listed, "cryptography==1.0")
        self.write("packages/single.py", b"", "single==1.0")
        self.write("runtime/lib/libgcc_s.so.1", b"", "libgcc-s1")
        docs = self.root / "usr/share/doc"
        (docs / "gcc-12-base").mkdir(parents=True)
        (docs / "gcc-12-base/copyright").write_text(f"{'text ' * 50}/usr/share/common-licenses/GPL-3.\n")
        (docs / "libgcc-s1").symlink_to("gcc-12-base")

    def write(self, path: str, data: bytes, owner: str) -> Path:
        target = self.stage / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        self.owners[target] = owner
        return target

    def close(self) -> dict[str, Any]:
        """Write the list and what comes after it."""
        bill = sbom.Bill(self.stage, self.owners)
        bill.debian("x86_64", [Package("libgcc-s1", "12", "cd" * 32), Package("unused", "1", "ef" * 32)], self.root)
        bill.wheels({"cryptography==1.0": "01" * 32, "single==1.0": "23" * 32})
        data = bill.document("0.1.0", "x86_64", EPOCH)
        (self.stage / complete.LIST).write_bytes(data)
        (self.stage / "packages/__pycache__").mkdir()
        (self.stage / "packages/__pycache__/single.cpython-311.pyc").touch()
        (self.stage / "FILES.sha256").touch()
        listed: dict[str, Any] = json.loads(data)
        return listed


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def test_what_the_list_says(archive: Archive) -> None:
    """Wheels, packages, what is linked into a wheel by its own list and by ours, each with supplier, licence and the
    text of that, and the time of the commit; not what only built a wheel."""
    bill = archive.close()
    assert complete.problems(archive.stage) == []
    assert bill["metadata"]["timestamp"] == "2026-11-28T17:47:47Z"
    rows = {row["purl"]: row for row in bill["components"]}
    deb, std = "pkg:deb/debian/libgcc-s1@12?arch=amd64&distro=debian-12", f"pkg:generic/rust-std@{'a' * 40}"
    wheel, openssl = "pkg:pypi/cryptography@1.0", "pkg:generic/openssl@4.0.3"
    assert rows.keys() == {deb, std, wheel, openssl, "pkg:pypi/single@1.0", "pkg:cargo/aead@0.5.2"}
    texts = {purl: [entry["url"] for entry in row["externalReferences"]] for purl, row in rows.items()}
    assert texts[deb] == ["licences/gcc-12-base", "licences/GPL-3"]
    assert texts["pkg:cargo/aead@0.5.2"] == ["licences/Apache-2.0", "licences/MIT"]
    assert texts[wheel] == ["packages/cryptography-1.0.dist-info/licenses/LICENSE"]
    assert rows[openssl]["evidence"]["occurrences"] == [{"location": "packages/cryptography/_rust.abi3.so"}]
    assert {rows[wheel]["supplier"]["name"], rows[deb]["supplier"]["name"]} == {"Ann", "Debian"}
    depends = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    assert depends[wheel] == ["pkg:cargo/aead@0.5.2", openssl, std]
    assert depends[bill["metadata"]["component"]["bom-ref"]] == [deb, wheel, "pkg:pypi/single@1.0"]


FAULTS: list[tuple[str, Callable[[Archive], Any], str]] = [
    ("a file of nobody's", lambda a: (a.stage / "packages/stray.py").touch(), "packages/stray.py is of no component"),
    ("its bytecode", lambda a: (a.stage / "packages/__pycache__/stray.cpython-311.pyc").touch(), "is of no component"),
    ("a file that is gone", lambda a: (a.stage / "packages/single.py").unlink(), "packages/single.py is not there"),
    ("a text that is gone", lambda a: (a.stage / "licences/MIT").unlink(), "single: licences/MIT, the text of its"),
    ("an empty text", lambda a: (a.stage / "LICENSE").write_bytes(b"\n"), "vedette: LICENSE, the text of its licence"),
    ("half a text", lambda a: first(a, lambda row: row["externalReferences"].pop()), "refers to GPL-3"),
    ("a text elsewhere", lambda a: elsewhere(a, "../text"), "../text, the text of its licence, is not there"),
    ("a text behind a link", lambda a: elsewhere(a, "link"), "link, the text of its licence, is not there"),
    ("a file elsewhere", lambda a: elsewhere(a, "../text"), "../text is not there"),
    ("no text", lambda a: first(a, lambda row: row.pop("externalReferences")), "libgcc-s1: no text of its licence"),
    ("no licence", lambda a: first(a, lambda row: row.pop("licenses")), "libgcc-s1: no licence"),
    ("no supplier", lambda a: first(a, lambda row: row.pop("supplier")), "libgcc-s1: no supplier"),
    ("no place", lambda a: first(a, lambda row: row.pop("evidence")), "libgcc-s1: no file of it is named"),
    ("no time", lambda a: change(a, lambda bill: bill["metadata"].pop("timestamp")), "no timestamp"),
    ("no serial number", lambda a: change(a, lambda bill: bill.pop("serialNumber")), "no serialNumber"),
    ("one twice", lambda a: change(a, lambda bill: bill["components"].append(bill["components"][0])), "there twice"),
    ("of nothing", lambda a: change(a, lambda bill: bill["dependencies"].clear()), "nothing depends on it"),
    ("of another", lambda a: first(a, lambda row: row.update({"bom-ref": "x"})), "which is no component"),
]


def change(archive: Archive, act: Callable[[dict[str, Any]], Any]) -> None:
    path = archive.stage / complete.LIST
    bill = json.loads(path.read_bytes())
    act(bill)
    path.write_text(json.dumps(bill))


def first(archive: Archive, act: Callable[[dict[str, Any]], Any]) -> None:
    """Change the row of the Debian package."""
    change(archive, lambda bill: act(next(row for row in bill["components"] if row["name"] == "libgcc-s1")))


def elsewhere(archive: Archive, place: str) -> None:
    """A text and a file of the package are named by a place that leaves the folder."""
    (archive.stage.parent / "text").write_text("x")
    (archive.stage / "link").symlink_to(archive.stage.parent / "text")
    first(archive, lambda row: row["externalReferences"].append({"type": "license", "url": place}))
    first(archive, lambda row: row["evidence"]["occurrences"].append({"location": place}))


@walk(("name", "fault", "text"), FAULTS)
def test_what_is_noticed(name: str, fault: Callable[[Archive], Any], text: str, tmp_path: Path) -> None:
    """Each thing that is missing from an archive, or too much in it, is named."""
    archive = Archive(tmp_path)
    archive.close()
    fault(archive)
    assert [line for line in complete.problems(archive.stage) if text in line], complete.problems(archive.stage)


def test_the_command(archive: Archive) -> None:
    """It ends with 0 where nothing is wrong, else with 1 and what is."""
    archive.close()
    command = [sys.executable, complete.__file__, str(archive.stage)]
    assert subprocess.run(command).returncode == 0
    (archive.stage / "LICENSE").unlink()
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, "LICENSE, the text" in ended.stderr) == (1, True)


def test_a_file_of_which_nothing_is_known(archive: Archive) -> None:
    """What the recipe put there without saying whose it is stops the build."""
    archive.owners.pop(archive.write("packages/stray.py", b"", sbom.OWN))
    with pytest.raises(BuildError, match=r"whose file packages/stray\.py is"):
        archive.close()


def test_a_licence_without_a_text(archive: Archive) -> None:
    """A wheel that brings no text, of a licence that has none here, stops the build; so does one in mere words."""
    path = archive.stage / "packages/single-1.0.dist-info/METADATA"
    for licence, message in (("EUPL-1.2", "EUPL-1.2 has no text"), ("Free for all!", "no SPDX expression")):
        shutil.rmtree(archive.stage / "licences", ignore_errors=True)
        path.write_text(f"Name: single\nVersion: 1.0\nLicense: {licence}\n")
        with pytest.raises(BuildError, match=message):
            archive.close()


@walk(
    ("name", "data", "message"),
    [
        ("cryptography", b"", "links nothing statically, and packaging/linked.py lists openssl, rust-std"),
        ("regex", b"\0OpenSSL 3.5.8 25 Aug 2026\0", "links openssl statically, and packaging/linked.py lists nothing"),
        ("hyperscan", b"", "hyperscan 9.9 has ELF files: list in packaging/linked.py"),
        ("unheard-of", b"", "unheard-of 9.9 has ELF files: list in packaging/linked.py"),
    ],
)
def test_what_wheels_link(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    """A part that is there and not listed, or listed and not there, and a wheel that nobody has looked at."""
    program = tmp_path / "x.so"
    program.write_bytes(ELF + data)
    with pytest.raises(BuildError, match=message):
        list(linked.linked(name, "9.9", [program]))


def test_places() -> None:
    """The shortest paths that hold an owner's files and nobody else's."""
    owners = {"a/b/1": "x", "a/b/c/2": "x", "a/d/3": "y", "a/d/4": "x", "e": "y"}
    assert sbom.places(owners) == {"x": ["a/b/", "a/d/4"], "y": ["a/d/3", "e"]}
