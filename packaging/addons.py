"""The add-ons of a release: what is heavy and few hosts need, a file for each of ``wheelhouse.EXTRAS``.

    vedette-VERSION-linux-ARCH-NAME.zip    see vedette/region/polyglot.py
      ADDON                                lines of KEY=VALUE: addon, release (VERSION-DIGEST, the one that it is for),
                                           arch, modules to try, KiB unpacked, sha256 of payload.tar.gz
      ADDON.sig                            its Ed25519 signature by the release's key, base64
      payload.tar.gz                       packages/  LICENSE  licences/  sbom.cdx.json  FILES.sha256

install.sh unpacks it as addons/NAME in the release's folder, where launch.py finds it. It runs with the release's own
Python and C library, whatever the host has: a build fails when it would need another library or a newer C library.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import complete
import elf
import sbom
import wheelhouse
from private_python import compile_all, foreign
from shell import BuildError, run
from tarball import kib, list_files, pack

from vedette import __version__
from vedette.region.polyglot import PAYLOAD, addon


class Release(NamedTuple):
    folder: Path
    """As it is unpacked."""
    arch: str
    id: str
    compiler: Path
    """A Python of its version that runs here."""
    epoch: int
    """The time of the commit."""


def check(stage: Path) -> None:
    """Raises BuildError where an archive is not what its list of parts says, or lacks a licence."""
    if wrong := complete.problems(stage):
        raise BuildError("the list of parts is not complete:\n" + "\n".join(wrong))


def build(name: str, release: Release, cache: Path, patchelf: Path, sign: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """The add-on file and its list of parts, by name. Raises BuildError."""
    stage = release.folder / "addons" / name
    lock = wheelhouse.LOCK.with_stem(name)
    folder, digests = wheelhouse.wheels(release.arch, cache, lock)
    owners = wheelhouse.unpack(stage / "packages", release.arch, lock, folder)
    _check_libraries(stage, release, patchelf)
    for path in elf.files(stage / "packages"):
        elf.strip(path)
    modules = wheelhouse.EXTRAS[name]
    if release.arch == platform.machine():
        inside = release.folder.parent
        outside = foreign(release.compiler.parent.parent, release.folder / "launch.py", modules, inside)
        if outside:
            raise BuildError(f"the add-on {name} would use libraries of the host: {', '.join(outside)}")
    shutil.copyfile(release.folder / sbom.LICENSE, stage / sbom.LICENSE)
    owners[stage / sbom.LICENSE] = sbom.OWN
    bill = sbom.Bill(stage, owners)
    bill.wheels(digests)
    listed = bill.document(__version__, release.arch, release.epoch, f"vedette-{name}")
    (stage / complete.LIST).write_bytes(listed)
    compile_all(release.compiler, [stage / "packages"], stage)
    list_files(stage)
    check(stage)
    packed = pack(stage)
    facts = {
        "addon": name,
        "release": release.id,
        "arch": release.arch,
        "modules": ",".join(modules),
        "unpacked_kib": kib(stage),
        "sha256": hashlib.sha256(packed).hexdigest(),
    }
    text = "".join(f"{key}={value}\n" for key, value in facts.items()).encode()
    of = f"vedette-{__version__}-linux-{release.arch}"
    members = {"ADDON": text, "ADDON.sig": sign(text), PAYLOAD: packed}
    return {f"{of}-{name}.zip": addon(f"{of}-{name}.zip", of, members), f"{of}-{name}.cdx.json": listed}


def _check_libraries(stage: Path, release: Release, patchelf: Path) -> None:
    """Raises BuildError for a library that neither the release nor the add-on has."""
    library = release.folder / "runtime/lib"
    newest = max(elf.glibc(path) for path in library.glob("libc.so.*"))
    files = list(elf.files(stage))
    known = {path.name for path in (*files, *elf.files(library))}
    for path in files:
        if elf.machine(path) != elf.MACHINES[release.arch]:
            raise BuildError(f"{path.relative_to(stage)} is not for {release.arch}")
        if elf.glibc(path) > newest:
            raise BuildError(f"{path.relative_to(stage)} needs a C library newer than the release's {newest}")
        if lacking := set(run(patchelf, "--print-needed", path).split()) - known:
            raise BuildError(f"{path.relative_to(stage)} needs {', '.join(sorted(lacking))}, which the release lacks")
