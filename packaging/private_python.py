"""A Python of our own: the distribution's interpreter, unpacked from its .deb packages, with its own C library.

The agent must run on hosts without Python and with an older C library than the builder's, so the zip brings both:

    runtime/bin/vedetted           the interpreter, named for what `ps` should show
    runtime/lib/ld-linux-*.so.2    its loader, libc and every other library that anything in the zip needs
    runtime/lib/python3.X/         the standard library, compiled
    runtime/interpreter.offset     "OFFSET LENGTH" of the loader's path inside vedetted
    runtime/sources.txt            each .deb with version and SHA-256; runtime/copyright/ their copyright files

The kernel wants the loader's path inside the program to be absolute, so install.sh writes the real one over the
``LENGTH`` bytes kept for it, and needs no tool for that but dd. Libraries are found by an RPATH relative to the
program. Nothing of the host's Python or C library is used; what would be is found by ``foreign`` and stops the build.

The packages are the newest that apt offers, so a new build brings the distribution's security updates. apt checks
them against its signed lists.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")
"""Of Python, in order of preference: those the agent's wheels are locked for."""

LOADER = "ld-linux-x86-64.so.2"
_RESERVED = 1024
"""Bytes kept in the interpreter for the path of its loader."""

_BASE = ("libc6", "libgcc-s1", "libstdc++6")
_UNUSED = (
    "config-*", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tkinter",
    "turtle.py", "turtledemo", "venv", "__phello__",
    *(f"lib-dynload/{name}.*" for name in (
        "_crypt", "_ctypes_test", "_curses", "_curses_panel", "_dbm", "_sqlite3", "_test*", "_tkinter", "_xx*", "nis",
        "ossaudiodev", "readline", "xx*",
    )),
)  # fmt: skip
"""Below lib/python3.X: what the agent never imports and would only pull in more libraries."""


class BuildError(Exception):
    """The zip cannot be built here; the text says why and what to do."""


def run(*command: str | Path, **options: object) -> str:
    """Standard output of ``command``; raises BuildError with its error output."""
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}: the zip is built on Debian or Ubuntu, x86_64") from error
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command[:4]))} failed:\n{(done.stderr or done.stdout).strip()}")
    return str(done.stdout)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fields(package: str) -> dict[str, str]:
    """What apt knows of the version of ``package`` that it would install."""
    text = run("apt-cache", "show", "--no-all-versions", package)
    return dict(re.findall(r"(?m)^([A-Za-z0-9-]+): (.*)$", text.split("\n\n")[0]))


def choose() -> str:
    """The Python version that apt offers here."""
    for update in (True, False):
        for version in VERSIONS:
            try:
                fields(f"python{version}-minimal")
            except BuildError:
                continue
            return version
        if update and os.geteuid() == 0:
            run("apt-get", "update", "-q")
    raise BuildError(
        f"apt offers none of Python {', '.join(VERSIONS)} here:"
        " run `apt-get update` once, on Debian 12 or later or Ubuntu"
    )


def fetch(version: str, cache: Path) -> list[tuple[str, str, Path]]:
    """(package, version, file) of the interpreter, its library and the packages they depend on."""
    python = [f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib"]
    names = [*python, *_BASE]
    for package in python:
        known = fields(package)
        for key in ("Pre-Depends", "Depends"):
            for dependency in known.get(key, "").split(", "):
                name = re.match(r"[a-z0-9.+-]+", dependency.split(" | ")[0])
                if name and name[0] not in names:
                    names.append(name[0])
    cache.mkdir(parents=True, exist_ok=True)
    packages = []
    for name in sorted(names):
        known = fields(name)
        file = cache / Path(known["Filename"]).name.replace("%3a", ":")
        if not file.exists() or digest(file) != known["SHA256"]:
            options = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
            run("apt-get", "download", "-q", *options, f"{name}={known['Version']}", cwd=cache)
            for written in cache.glob(f"{name}_*.deb"):
                if digest(written) == known["SHA256"]:
                    written.rename(file)
        if not file.exists():
            raise BuildError(f"{name}: apt brought another file than its lists state: run `apt-get update`")
        packages.append((name, known["Version"], file))
    return packages


def libraries(folder: Path) -> Iterator[Path]:
    """The ELF files below ``folder``."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def assemble(
    runtime: Path, version: str, packages: Iterable[tuple[str, str, Path]], users: Path, patchelf: Path, scratch: Path
) -> None:
    """Make ``runtime`` of the .deb packages; ``users`` is the folder of further libraries that it must serve."""
    root = scratch / "root"
    sources = []
    for name, package_version, file in packages:
        run("dpkg-deb", "-x", file, root)
        sources.append(f"{name} {package_version} sha256:{digest(file)}\n")
        copyright = root / "usr/share/doc" / name / "copyright"
        if copyright.exists():
            (runtime / "copyright").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(copyright, runtime / "copyright" / name)
    (runtime / "sources.txt").write_text("".join(sources))

    library = runtime / "lib"
    standard = library / f"python{version}"
    shutil.copytree(root / f"usr/lib/python{version}", standard, symlinks=False, ignore_dangling_symlinks=True)
    for pattern in _UNUSED:
        for path in standard.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    binary = runtime / "bin" / "vedetted"
    binary.parent.mkdir()
    shutil.copyfile(root / f"usr/bin/python{version}", binary)
    binary.chmod(0o755)

    offered = {}
    for folder in ("lib", "lib64", "usr/lib"):
        for path in (root / folder).rglob("*.so*"):
            if path.is_file() and "gconv" not in path.parts:
                offered.setdefault(path.name, path)
    own = {path.name for path in libraries(users)}
    waiting = [binary, *libraries(standard), *libraries(users)]
    while waiting:
        for soname in run(patchelf, "--print-needed", waiting.pop()).split():
            target = library / soname
            if target.exists() or soname in own:
                continue
            if soname not in offered:
                raise BuildError(f"{soname} is needed and in none of the packages")
            shutil.copyfile(offered[soname], target)
            target.chmod(0o755)
            waiting.append(target)

    run(patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", binary)
    placeholder = "/" + "x" * (_RESERVED - 2)
    run(patchelf, "--set-interpreter", placeholder, binary)
    data = binary.read_bytes()
    if data.count(placeholder.encode() + b"\0") != 1:
        raise BuildError("patchelf has not written the loader's path as expected")
    (runtime / "interpreter.offset").write_text(f"{data.index(placeholder.encode())} {_RESERVED}\n")


def set_loader(runtime: Path, loader: str) -> None:
    """Write the path of the loader into the interpreter, as install.sh does."""
    offset, length = map(int, (runtime / "interpreter.offset").read_text().split())
    if len(loader) >= length:
        raise BuildError(f"{loader}: too long a path")
    with (runtime / "bin" / "vedetted").open("r+b") as file:
        file.seek(offset)
        file.write(loader.encode().ljust(length, b"\0"))


def compile_all(runtime: Path, folders: Iterable[Path], top: Path) -> None:
    """Compile the Python files of ``folders``, so that a read-only installation starts fast.

    With a fixed hash seed (which -I would ignore): the order of constants in a set is part of the bytes.
    """
    run(
        runtime / "bin/vedetted", "-P", "-s", "-S", "-B", "-m", "compileall", "-q", "-f",
        "--invalidation-mode", "unchecked-hash", "-s", str(top), *folders, env={"PYTHONHASHSEED": "0"},
    )  # fmt: skip


def foreign(runtime: Path, launcher: Path, modules: Iterable[str], inside: Path) -> list[str]:
    """Libraries outside ``inside`` that are mapped once ``modules`` are imported; raises BuildError when one fails."""
    script = (
        f"import runpy, sys; runpy.run_path({str(launcher)!r})\n"
        f"for name in {list(modules)!r}: __import__(name)\n"
        "print(*sorted({line.split()[5] for line in open('/proc/self/maps') if '.so' in line}), sep='\\n')"
    )
    mapped = run(runtime / "bin/vedetted", "-I", "-S", "-B", "-c", script, env={}).split()
    return [path for path in mapped if not Path(path).is_relative_to(inside)]
