"""The .deb packages of which a release's Python is made, as debs.lock names them: ``ARCH PACKAGE VERSION SHA256``.

Both architectures' packages come through an apt of the recipe's own (its lists and packages lie in the cache folder,
the host's apt is not touched), which reads the host's list of sources and checks them against the keys there. A file
that is in the cache with the locked digest is taken as it is, so a build with a full cache needs no network.

Debian takes a package from its servers when a newer one replaces it. Then the newer one is taken and reported, unless
``strict``: a security update is no reason not to be able to build. ``write_lock`` brings the lock up to date; keep the
cache folder of a release that is to be built again.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from shell import BuildError, digest, run

LOCK = Path(__file__).with_name("debs.lock")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names."""
PYTHON = "3.11"
"""Of Debian 12."""
_ROOTS = (f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib")
_BASE = ("libc6", "libgcc-s1", "libstdc++6", "gcc-12-base")
"""The last has the licence of the two before."""
_NOT_NEEDED = {"libcrypt1", "libdb5.3", "libncursesw6", "libnsl2", "libreadline8", "libsqlite3-0", "libtinfo6",
               "libtirpc3", "media-types"}  # fmt: skip
"""Needed by modules of Python that are left out."""
LICENCES = {
    "libbz2-1.0": "bzip2-1.0.6",
    "libc6": "LGPL-2.1-or-later",
    "libexpat1": "MIT",
    "libffi8": "MIT",
    "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "liblzma5": "public domain",
    "libpython3.11-minimal": "Python-2.0",
    "libpython3.11-stdlib": "Python-2.0",
    "libssl3": "Apache-2.0",
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libuuid1": "BSD-3-Clause",
    "python3.11-minimal": "Python-2.0",
    "zlib1g": "Zlib",
}
"""Of what the release takes of each package; its copyright file has all that is in the package."""


class Package(NamedTuple):
    name: str
    version: str
    sha256: str


def locked(arch: str) -> list[Package]:
    """The packages of an architecture."""
    rows = [line.split() for line in LOCK.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return [Package(*row[1:]) for row in rows if row[0] == ARCHITECTURES[arch]]


class Apt:
    """An apt for one architecture, below ``cache``."""

    def __init__(self, arch: str, cache: Path) -> None:
        self._arch = ARCHITECTURES[arch]
        self._folder = (cache / f"apt-{self._arch}").resolve()
        self._updated = False

    def _run(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        root = self._folder
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        options = [
            f"APT::Architecture={self._arch}", f"APT::Architectures={self._arch}", f"Dir::State={root}/state",
            f"Dir::State::status={root}/status", f"Dir::Cache={root}/cache", "Acquire::Languages=none",
            "APT::Update::Post-Invoke=", "APT::Update::Post-Invoke-Success=",
        ]  # fmt: skip
        if os.geteuid() == 0:
            options.append("APT::Sandbox::User=root")
        return run(program, *(word for option in options for word in ("-o", option)), *arguments, cwd=cwd)

    def update(self) -> None:
        if not self._updated:
            self._run("apt-get", "update", "-qq")
            self._updated = True

    def newest(self, name: str) -> dict[str, str]:
        """The fields of the version that apt would install; raises BuildError."""
        self.update()
        text = self._run("apt-cache", "show", "--no-all-versions", name)
        return dict(re.findall(r"(?m)^([A-Za-z0-9-]+): (.*)$", text.split("\n\n")[0]))

    def download(self, package: Package, folder: Path) -> Path:
        """The file of exactly this package; raises BuildError."""
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{package.name}_{self._arch}_{package.sha256[:16]}.deb"
        if not target.exists() or digest(target) != package.sha256:
            self.update()
            self._run("apt-get", "download", "-qq", f"{package.name}={package.version}", cwd=folder)
            for written in folder.glob(f"{package.name}_{package.version.replace(':', '%3a')}_*.deb"):
                if digest(written) == package.sha256:
                    written.rename(target)
                else:
                    written.unlink()
            if not target.exists():
                raise BuildError(f"{package.name} {package.version}: apt brought another file than the one locked")
        return target

    def closure(self) -> list[Package]:
        """The interpreter, its library and the packages they depend on, each in its newest version."""
        names = [*_ROOTS, *_BASE]
        for root in _ROOTS:
            known = self.newest(root)
            for key in ("Pre-Depends", "Depends"):
                for dependency in known.get(key, "").split(", "):
                    name = re.match(r"[a-z0-9.+-]+", dependency.split(" | ")[0])
                    if name and name[0] not in names:
                        names.append(name[0])
        return [self.package(name) for name in sorted(set(names) - _NOT_NEEDED)]

    def package(self, name: str) -> Package:
        known = self.newest(name)
        return Package(name, known["Version"], known["SHA256"])


def fetch(arch: str, cache: Path, *, strict: bool) -> list[tuple[Package, Path]]:
    """The packages of an architecture with their files; raises BuildError."""
    apt, found = Apt(arch, cache), []
    for package in locked(arch):
        try:
            file = apt.download(package, cache / "debs")
        except BuildError as error:
            if strict:
                raise
            newer = apt.package(package.name)
            if newer == package:
                raise
            sys.stderr.write(
                f"dist: {package.name} {package.version} is gone, {newer.version} taken in its place ({error}):"
                " run `python packaging/dist.py --lock debs`\n"
            )
            file, package = apt.download(newer, cache / "debs"), newer
        found.append((package, file))
    return found


def write_lock(cache: Path) -> None:
    """Write debs.lock anew: what apt offers now, for every architecture."""
    lines = ["# Written by `python packaging/dist.py --lock debs`: the Debian packages of the agent's own Python."]
    for arch, debian in ARCHITECTURES.items():
        lines += [
            f"{debian} {package.name} {package.version} {package.sha256}" for package in Apt(arch, cache).closure()
        ]
    LOCK.write_text("\n".join(lines) + "\n", "utf-8")
