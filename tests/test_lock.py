"""requirements.lock: what set-up installs is what pyproject.toml asks for, by hash, and what the zip ships."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ZIPS = ("packaging/edge.lock", "packaging/archive.lock", "packaging/kafka.lock")
"""That of the agent, and what a zip may bring along beyond it."""
PYTHONS = ("3.11.2", "3.12.3", "3.13.0")
ENVIRONMENT = {
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
}


def entries(path: Path) -> list[tuple[Requirement, list[str]]]:
    """The pinned requirements of a lock file, each with its hashes."""
    found = []
    for entry in path.read_text().replace("\\\n", " ").splitlines():
        if not entry.startswith("#"):
            text, *hashes = entry.split("--hash=")
            found.append((Requirement(text.strip()), [value.strip() for value in hashes]))
    return found


def pins(path: Path, python: str) -> dict[str, str]:
    """Versions by name for a Python; fails where a package has two."""
    around = {**ENVIRONMENT, "python_full_version": python, "python_version": python.rpartition(".")[0]}
    found: dict[str, str] = {}
    for requirement, _ in entries(path):
        if requirement.marker is None or requirement.marker.evaluate(around):
            (specifier,) = requirement.specifier
            assert specifier.operator == "=="
            assert found.setdefault(canonicalize_name(requirement.name), specifier.version) == specifier.version
    return found


def asked() -> list[Requirement]:
    """What setup installs: the dependencies, and the extras that tools/lock.sh names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"--extra (\w+)", (ROOT / "tools/lock.sh").read_text())
    assert set(project["optional-dependencies"]) - set(extras) == {"fuzz"}
    return [
        Requirement(text)
        for text in (
            *project["dependencies"],
            *(text for extra in extras for text in project["optional-dependencies"][extra]),
        )
    ]


def test_the_lock_satisfies_pyproject() -> None:
    """For every supported Python each dependency is in the lock, in a version that pyproject.toml allows."""
    for python in PYTHONS:
        locked = pins(ROOT / "requirements.lock", python)
        for requirement in asked():
            found = locked.get(canonicalize_name(requirement.name))
            assert found is not None, f"{requirement} is not in requirements.lock for Python {python}: make lock"
            assert found in requirement.specifier, f"{requirement}: {found} is locked for Python {python}: make lock"


def test_by_hash_from_any_registry() -> None:
    """Every file is named by its digest, and no registry is."""
    for name in ("requirements.lock", *ZIPS):
        for requirement, hashes in entries(ROOT / name):
            assert hashes, requirement
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes), requirement
            assert requirement.url is None
        assert not re.search(r"://|--(extra-)?index|--find-links", (ROOT / name).read_text())


def test_the_zip_ships_what_was_tested() -> None:
    """The wheels of the installed agent are of the versions that the tests run with."""
    locked = pins(ROOT / "requirements.lock", PYTHONS[0])
    edge, *extras = (pins(ROOT / name, PYTHONS[0]) for name in ZIPS)
    for shipped in (edge, *extras):
        assert shipped
        assert shipped.items() <= locked.items()
    assert not any(extra.keys() & edge.keys() for extra in extras)


def test_the_environment_is_the_lock() -> None:
    """The tests run with the locked versions; else set-up was done by other means than `make`."""
    import platform

    locked = pins(ROOT / "requirements.lock", platform.python_version())
    assert {name: version(name) for name in locked if name != "colorama"} == {
        name: pin for name, pin in locked.items() if name != "colorama"
    }
