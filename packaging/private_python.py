"""A Python of our own: the distribution's interpreter, unpacked from its .deb packages, with its own C library.

The agent must run on hosts without Python and with an older C library than the builder's, so the zip brings both:

    runtime/bin/vedetted           the interpreter, named for what `ps` should show
    runtime/lib/ld-linux-*.so.*    its loader, libc and every other library that anything in the zip needs
    runtime/lib/python3.11/        the standard library, compiled
    runtime/interpreter            "OFFSET LENGTH LOADER": where in vedetted the loader's path is, and its file's name

The kernel wants the loader's path inside the program to be absolute, so install.sh writes the real one over the
``LENGTH`` bytes kept for it, and needs no tool for that but dd: each release names its own loader, wherever it is
installed, and can be tried before `current` points to it. Libraries are found by an RPATH relative to the program.
Nothing of the host's Python or C library is used; what would be is found by ``foreign`` and stops the build.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import elf
from debs import PYTHON, Package
from shell import BuildError, run

LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_RESERVED = 1024
"""Bytes kept in the interpreter for the path of its loader."""
_UNUSED = (
    "_pydecimal.py", "_pyio.py", "aifc.py", "antigravity.py", "asynchat.py", "asyncore.py", "cProfile.py", "cgi.py",
    "cgitb.py", "chunk.py", "config-*", "crypt.py", "ctypes/macholib", "curses", "dbm", "distutils", "doctest.py",
    "ensurepip", "ftplib.py", "idlelib", "imaplib.py", "imghdr.py", "lib2to3", "mailbox.py",
    "mailcap.py", "modulefinder.py", "msilib", "multiprocessing", "nntplib.py", "optparse.py", "pdb.py",
    "pickletools.py", "pipes.py", "poplib.py", "profile.py", "pstats.py", "pyclbr.py", "pydoc.py", "pydoc_data",
    "site-packages", "smtpd.py", "smtplib.py", "sndhdr.py", "sqlite3", "sunau.py", "symtable.py",
    "tabnanny.py", "telnetlib.py", "test", "this.py", "tkinter", "trace.py", "turtle.py", "turtledemo",
    "unittest", "venv", "wave.py", "webbrowser.py", "xdrlib.py", "xmlrpc", "zipapp.py", "__phello__",
    *(f"lib-dynload/{name}.*" for name in (
        "_codecs_*", "_crypt", "_ctypes_test", "_curses", "_curses_panel", "_dbm", "_multibytecodec",
        "_multiprocessing", "_posixshmem", "_sqlite3", "_test*", "_tkinter", "_xx*", "audioop", "nis", "ossaudiodev",
        "readline", "xx*",
    )),
)  # fmt: skip
"""Below lib/python3.X: what the agent never imports and would only pull in more libraries."""
_FOR_ADDONS = ("librt.so.1",)
"""Of the C library, which an add-on may not bring along, as both must be of one build."""
_CODECS = {"__init__", "aliases", "ascii", "charmap", "cp437", "idna", "latin_1", "punycode", "raw_unicode_escape",
           "unicode_escape", "utf_8", "utf_8_sig", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be",
           "utf_32_le"}  # fmt: skip
"""Of encodings/: the agent runs in Python's UTF-8 mode, whatever the host's locale is."""


def assemble(
    runtime: Path, arch: str, packages: Iterable[tuple[Package, Path]], users: Path, patchelf: Path, scratch: Path
) -> dict[Path, str]:
    """Make ``runtime`` of the .deb packages, which are then unpacked in ``scratch``/root; ``users`` is the folder of
    further libraries that it must serve. Returns the package of each file."""
    root = scratch / "root"
    brought_by: dict[Path, str] = {}
    for package, file in packages:
        run("dpkg-deb", "-x", file, root)
        for path in root.rglob("*"):
            brought_by.setdefault(path, package.name)

    library = runtime / "lib"
    standard = library / f"python{PYTHON}"
    shutil.copytree(root / f"usr/lib/python{PYTHON}", standard, symlinks=False, ignore_dangling_symlinks=True)
    for pattern in _UNUSED:
        for path in standard.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (standard / "encodings").iterdir():
        if path.stem not in _CODECS:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    binary = runtime / "bin" / "vedetted"
    binary.parent.mkdir()
    shutil.copyfile(root / f"usr/bin/python{PYTHON}", binary)
    binary.chmod(0o755)

    offered = {}
    for folder in ("lib", "lib64", "usr/lib"):
        for path in (root / folder).rglob("*.so*"):
            if path.is_file() and "gconv" not in path.parts:
                offered.setdefault(path.name, path)
    own = {path.name for path in elf.files(users)}
    waiting = [binary, *elf.files(standard), *elf.files(users)]
    owners = {binary: brought_by[root / f"usr/bin/python{PYTHON}"]}
    for path in standard.rglob("*"):
        owners[path] = brought_by[root / "usr" / path.relative_to(runtime)]
    while waiting:
        for soname in [*run(patchelf, "--print-needed", waiting.pop()).split(), *_FOR_ADDONS]:
            target = library / soname
            if target.exists() or soname in own:
                continue
            if soname not in offered:
                raise BuildError(f"{soname} is needed and in none of the packages")
            shutil.copyfile(offered[soname], target)
            target.chmod(0o755)
            owners[target] = brought_by[offered[soname]]
            waiting.append(target)
    for path in elf.files(runtime):
        if elf.machine(path) != elf.MACHINES[arch]:
            raise BuildError(f"{path.relative_to(runtime)} is not for {arch}")

    run(patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", binary)
    placeholder = "/" + "x" * (_RESERVED - 2)
    run(patchelf, "--set-interpreter", placeholder, binary)
    data = binary.read_bytes()
    if data.count(placeholder.encode() + b"\0") != 1:
        raise BuildError("patchelf has not written the loader's path as expected")
    (runtime / "interpreter").write_text(f"{data.index(placeholder.encode())} {_RESERVED} {LOADERS[arch]}\n")
    return owners


def set_loader(runtime: Path, folder: str) -> None:
    """Write the path of the loader, in ``folder``, into the interpreter, as install.sh does."""
    offset, length, name = (runtime / "interpreter").read_text().split()
    path = f"{folder}/{name}"
    if len(path) >= int(length):
        raise BuildError(f"{path}: too long a path")
    with (runtime / "bin" / "vedetted").open("r+b") as file:
        file.seek(int(offset))
        file.write(path.encode().ljust(int(length), b"\0"))


def compile_all(python: Path, folders: Iterable[Path], top: Path) -> None:
    """Compile the Python files of ``folders`` with the interpreter ``python``, so that a read-only installation starts
    fast. Bytecode is the same for every architecture.

    With a fixed hash seed (which -I would ignore): the order of constants in a set is part of the bytes.
    """
    run(
        python, "-X", "utf8", "-P", "-s", "-S", "-B", "-m", "compileall", "-q", "-f",
        "--invalidation-mode", "unchecked-hash", "-s", str(top), *folders, env={"PYTHONHASHSEED": "0"},
    )  # fmt: skip


def foreign(runtime: Path, launcher: Path, modules: Iterable[str], inside: Path) -> list[str]:
    """Libraries outside ``inside`` that are mapped once ``modules`` are imported; raises BuildError when one fails."""
    script = (
        f"import runpy, sys; runpy.run_path({str(launcher)!r})\n"
        f"for name in {list(modules)!r}: __import__(name)\n"
        "print(*sorted({line.split()[5] for line in open('/proc/self/maps') if '.so' in line}), sep='\\n')"
    )
    mapped = run(runtime / "bin/vedetted", "-X", "utf8", "-I", "-S", "-B", "-c", script, env={}).split()
    return [path for path in mapped if not Path(path).is_relative_to(inside)]
