"""Wheels by lock file: which ones a release needs, the folder that holds them, and how they are unpacked.

edge.lock has those of every release, NAME.lock those that an add-on has beyond (``EXTRAS``), all in the versions of
requirements.lock, with which the agent was tested, by hash and for both architectures.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from debs import ARCHITECTURES, PYTHON
from shell import BuildError, digest, run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LOCK = HERE / "edge.lock"
EXTRAS = {"archive": ("obstore.store", "pyrage"), "kafka": ("confluent_kafka",)}
"""Of pyproject.toml, which a host may add to its release; modules that must be there then."""
PLATFORMS = {
    "x86_64": ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64"),
    "aarch64": ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_24_aarch64", "manylinux_2_28_aarch64"),
}
"""Of wheels: what runs with the oldest C library; the release's own is 2.36."""
UNUSED = ("bin", "include", "share", "zstandard/_cffi.*", "hyperscan/include", "prometheus_client/twisted",
          "prometheus_client/django", "securesystemslib/_vendor/ed25519/test_data", "urllib3/contrib/emscripten",
          "regex/tests")  # fmt: skip
"""In wheels."""


def pip(*arguments: str | Path) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, cwd=HERE)


def kind(arch: str) -> list[str]:
    """pip's words for the wheels of an architecture."""
    platforms = (word for name in PLATFORMS[arch] for word in ("--platform", name))
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON, *platforms]


def write_locks() -> None:
    """Write edge.lock: every package the agent needs, by version, with the hashes of its wheels; and for each of EXTRAS
    a file of what that needs beyond."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    edge = _resolved(project["dependencies"])
    _write(LOCK, edge, "the wheels of the installed agent")
    for extra in EXTRAS:
        found = _resolved([*project["dependencies"], *project["optional-dependencies"][extra]])
        further = {name: hashes for name, hashes in found.items() if name not in edge}
        _write(LOCK.with_stem(extra), further, f"the wheels that the extra {extra} needs beyond edge.lock")


def _resolved(requirements: list[str]) -> dict[str, set[str]]:
    """SHA-256 of the wheels for all architectures, by ``name==version``, in the versions of requirements.lock."""
    tested = re.findall(r"^(\w.*?)(?: \\)?$", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    hashes: dict[str, set[str]] = {}
    for arch in ARCHITECTURES:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
            constraints.write("\n".join(tested))
            constraints.flush()
            report = pip(
                "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", "--target", "unused",
                "--constraint", constraints.name, *kind(arch), *requirements,
            )  # fmt: skip
        for item in json.loads(report)["install"]:
            name = f"{item['metadata']['name'].lower().replace('_', '-')}=={item['metadata']['version']}"
            hashes.setdefault(name, set()).add(item["download_info"]["archive_info"]["hashes"]["sha256"])
    return hashes


def _write(path: Path, hashes: dict[str, set[str]], what: str) -> None:
    lines = [f"# Written by `make lock`: {what}, of the versions in requirements.lock.\n"]
    for name, values in sorted(hashes.items()):
        lines.append(f"{name}" + "".join(f" \\\n    --hash=sha256:{value}" for value in sorted(values)) + "\n")
    path.write_text("".join(lines))


def wheels(arch: str, cache: Path, lock: Path) -> tuple[Path, dict[str, str]]:
    """The folder of exactly the wheels that ``lock`` names, and their SHA-256 by ``name==version``."""
    text = lock.read_text("utf-8")
    wanted = {name.replace("_", "-") for name in re.findall(r"^([^#\s]+==\S+)", text, re.MULTILINE)}
    folder = cache / f"wheels-{digest(lock)[:12]}-{arch}"

    def there() -> dict[str, str]:
        found = {}
        for path in folder.glob("*.whl"):
            name, version = path.name.split("-")[:2]
            if f"sha256:{digest(path)}" in text:
                found[f"{name.lower().replace('_', '-')}=={version}"] = digest(path)
        return found

    if there().keys() != wanted:
        pip("download", "--quiet", "--no-deps", "--require-hashes", *kind(arch), "--dest", folder, "-r", lock)
        if there().keys() != wanted:
            raise BuildError(f"pip brought other wheels than {lock.name} names: {wanted ^ there().keys()}")
    return folder, there()


def unpack(target: Path, arch: str, lock: Path, folder: Path) -> dict[Path, str]:
    """What the wheels of ``lock``, which are in ``folder``, hold and the agent uses, into ``target``. Returns of each
    file the ``name==version`` of its wheel."""
    pip(
        "install", "--quiet", "--no-deps", "--no-compile", "--no-index", "--require-hashes", *kind(arch),
        "--target", target, "--find-links", folder, "-r", lock,
    )  # fmt: skip
    for unused in UNUSED:
        for path in target.glob(unused):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    owners = {}
    for record in target.glob("*.dist-info/RECORD"):
        name, version = record.parent.name.removesuffix(".dist-info").split("-")
        with record.open(encoding="utf-8", newline="") as file:
            paths = [target / row[0] for row in csv.reader(file)]
        record.unlink()
        owners |= dict.fromkeys(filter(Path.is_file, paths), f"{name.lower().replace('_', '-')}=={version}")
    return owners
