"""Plugins in the zip: wheels, or folders that pip builds one of, unpacked beside the agent's own packages.

A wheel that is for another architecture is left out, if another one of its distribution fits. What would replace a
file of the agent or of another plugin is refused. Dependencies are not looked for: each is to be named, too. Nothing
says where the wheels came from: equal wheels, equal bytes.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from shell import BuildError, digest, run

NOTES = ("RECORD", "direct_url.json", "REQUESTED", "INSTALLER")
"""What pip writes about an installation."""


def pip(*arguments: str | Path) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, cwd=Path.cwd())


def wheels(sources: Iterable[Path], folder: Path) -> list[Path]:
    """The wheels of ``sources``, those of folders built into ``folder``. Raises BuildError."""
    found = []
    for source in sources:
        if source.is_dir():
            copy = folder / "source" / source.name  # setuptools leaves build/ behind
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
            made = folder / f"wheel-{len(found)}"
            pip("wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", made, copy)
            found += sorted(made.glob("*.whl"))
        elif source.suffix == ".whl" and source.is_file():
            found.append(source)
        else:
            raise BuildError(f"plugin {source}: expects a wheel, or a folder to build one of")
    return found


def unpack(
    target: Path, arch: str, given: Iterable[Path], words: Iterable[str]
) -> tuple[dict[str, str], dict[Path, str]]:
    """Those of ``given`` that are for ``arch`` into ``target``; their SHA-256 by ``name==version``, and of each file
    that label. ``words``: pip's for wheels of it. Raises BuildError."""
    taken: dict[str, str] = {}
    owners: dict[Path, str] = {}
    left = set()
    for wheel in given:
        name, version, *_, platform = wheel.name.removesuffix(".whl").split("-")
        label = f"{re.sub('[-_.]+', '-', name).lower()}=={version}"
        if platform != "any" and arch not in platform:
            left.add(label)
            continue
        with tempfile.TemporaryDirectory(prefix="vedette-plugin-") as scratch:
            pip("install", "--quiet", "--no-deps", "--no-compile", "--no-index", *words, "--target", scratch, wheel)
            info = next(Path(scratch).glob("*.dist-info"), None)
            if info is None or not (info / "entry_points.txt").is_file():
                raise BuildError(f"plugin {wheel}: it has no entry points")
            for note in NOTES:
                (info / note).unlink(missing_ok=True)
            for source in sorted(Path(scratch).iterdir()):
                if source.name in ("bin", "__pycache__"):
                    continue
                copy = target / source.name
                if copy.exists():
                    raise BuildError(f"plugin {wheel}: {copy.name} is there already, of the agent or another plugin")
                if source.is_dir():
                    shutil.copytree(source, copy)
                else:
                    shutil.copyfile(source, copy)
                owners |= dict.fromkeys(filter(Path.is_file, (copy, *copy.rglob("*"))), label)
        taken[label] = digest(wheel)
    if lacking := sorted(left - taken.keys()):
        raise BuildError(f"plugin {lacking[0]}: no wheel of it is for {arch}")
    return taken, owners
