"""The native kernel of a release (``agent/kernel``), built here: natively, and for aarch64 by Debian's cross gcc.

Where the tool chain of an architecture is missing, ``missing`` says what of it, and that release goes without a kernel:
the agent evaluates in Python then. Equal sources and tool chains give equal bytes: no path of the builder is in them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple

import elf
from debs import locked
from shell import BuildError, run

CRATE = Path(__file__).resolve().parent.parent / "agent/kernel"
LIBRARY = "_kernel.abi3.so"
LINKERS = {"x86_64": "cc", "aarch64": "aarch64-linux-gnu-gcc"}


class Crate(NamedTuple):
    """A crate that is linked into the kernel; ``sha256`` as Cargo.lock has it."""

    name: str
    version: str
    sha256: str
    licence: str
    authors: str
    folder: Path
    """Its sources."""

    def licences(self) -> bytes:
        """The texts that its licence wants to be passed on."""
        paths = sorted(path for path in self.folder.iterdir() if re.match("(?i)licen[cs]e|copy", path.name))
        return b"\n".join(path.read_bytes() for path in paths if path.is_file())


def _target(arch: str) -> str:
    return f"{arch}-unknown-linux-gnu"


def _home() -> Path:
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{_home() / 'bin'}"}


def _rust(*command: str | Path, **more: str) -> str:
    return run(*command, env={**_environment(), **more}, cwd=CRATE)


def missing(arch: str) -> str | None:
    """Why the kernel cannot be built for ``arch``; None when it can."""
    path = _environment()["PATH"]
    if shutil.which("cargo", path=path) is None:
        return "cargo is missing"
    found = _rust("cargo", "--version").split()[1]
    needed = tomllib.loads((CRATE / "Cargo.toml").read_text("utf-8"))["package"]["rust-version"]
    if [int(part) for part in found.split("-")[0].split(".")] < [int(part) for part in needed.split(".")]:
        return f"Rust {found} is older than {needed}"
    if not Path(_rust("rustc", "--print", "target-libdir", "--target", _target(arch)).strip()).is_dir():
        return f"Rust's library for {arch} is missing"
    if shutil.which(LINKERS[arch], path=path) is None:
        return f"{LINKERS[arch]} is missing"
    return None


def build(arch: str, target_folder: Path) -> Path:
    """The library for ``arch``; raises BuildError."""
    target = _target(arch)
    remapped = {Path.home(): "/home", _home(): "/cargo", CRATE: "/kernel", target_folder.resolve(): "/target"}
    flags = [f"--remap-path-prefix={path}={name}" for path, name in remapped.items()]
    _rust(
        "cargo", "rustc", "--quiet", "--locked", "--release", "--lib", "--crate-type", "cdylib",
        "--features", "extension-module", "--target", target, "--target-dir", target_folder.resolve(),
        CARGO_ENCODED_RUSTFLAGS="\x1f".join(flags),
        PYO3_NO_PYTHON="1",
        **{f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER": LINKERS[arch]},
    )  # fmt: skip
    made = target_folder / target / "release" / "lib_kernel.so"
    if elf.machine(made) != elf.MACHINES[arch]:
        raise BuildError(f"{made} is not for {arch}")
    (libc,) = (package.version for package in locked(arch) if package.name == "libc6")
    brought = tuple(map(int, re.findall(r"\d+", libc)[:2]))
    if (needs := elf.glibc(made)) > brought:
        raise BuildError(f"the kernel for {arch} needs glibc {needs}, the release brings {brought}: build on Debian 12")
    return made


def crates(arch: str) -> list[Crate]:
    """What is linked into it."""
    lock = tomllib.loads((CRATE / "Cargo.lock").read_text("utf-8"))["package"]
    digests = {(row["name"], row["version"]): row["checksum"] for row in lock if "checksum" in row}
    listed = _rust(
        "cargo", "tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}",
        "--features", "extension-module", "--target", _target(arch),
    )  # fmt: skip
    linked = {tuple(line.split()[:2]) for line in listed.splitlines()}
    metadata = json.loads(_rust("cargo", "metadata", "--locked", "--format-version", "1"))
    found = [
        Crate(name, version, sha256, row["license"] or "", ", ".join(row["authors"]), Path(row["manifest_path"]).parent)
        for row in metadata["packages"]
        for name, version in [(row["name"], row["version"])]
        if (name, f"v{version}") in linked and (sha256 := digests.get((name, version)))
    ]
    return sorted(found)


def compiler() -> str:
    """As ``rustc --version`` names it."""
    return _rust("rustc", "--version").strip()
