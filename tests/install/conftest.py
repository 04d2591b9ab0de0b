"""The packed zip, built once per session with a starter bundle of one rule, other releases made of it, and ways to
install them into a folder.

A ``Variant`` is a whole release in its own right: its files replaced, packed and signed again.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from vedette.compiler import build as compiler
from vedette.compiler import sigma
from vedette.engine.artifact import Artifact
from vedette.engine.selftest import Case
from vedette.region.build import build
from vedette.region.polyglot import archive, read
from vedette.region.sign import keygen, load_key, sign

ROOT = Path(__file__).parent.parent.parent
RULE_ID = "7c6cf1a2-52a5-4f0e-9d5d-0f6f3f5d9f11"
RULE = f"""
title: Test rule of the installed agent
id: {RULE_ID}
status: test
level: high
logsource: {{product: linux}}
detection:
  selection:
    message|contains: install-test-marker
  condition: selection
"""
YEAR = 366 * 86_400_000_000


class Done(NamedTuple):
    code: int
    text: str


def call(*command: str | Path) -> Done:
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    return Done(done.returncode, done.stdout)


class Place:
    """Three folders to install into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix, self.config_dir, self.data_dir = folder / "opt", folder / "etc", folder / "data"
        self.config = self.config_dir / "vedette.toml"
        self.vedette = self.prefix / "bin" / "vedette"

    def sh(self, release: Path, *options: str | Path) -> Done:
        """``release``: a zip, or a folder with install.sh in it."""
        script = release if release.suffix == ".zip" else release / "install.sh"
        return call("sh", script, "--no-systemd", "--prefix", self.prefix, *options)

    def install(self, release: Path, *options: str | Path) -> Done:
        return self.sh(release, "--config-dir", self.config_dir, "--data-dir", self.data_dir, *options)

    def current(self) -> str:
        return (self.prefix / "current").readlink().name

    def tree(self) -> dict[str, tuple[int, int, int]]:
        """Every path with inode, mode and modification time."""
        return {
            str(path.relative_to(self.folder)): (s.st_ino, s.st_mode, s.st_mtime_ns)
            for path in self.folder.rglob("*")
            if not path.is_symlink()
            for s in [path.stat()]
        }


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A signed bundle of RULE, and its public key."""
    folder = tmp_path_factory.mktemp("starter")
    key = keygen(folder / "key.pem")
    rules = sigma.load([])
    sigma.add(rules, RULE)
    artifact = Artifact.of(compiler.from_rules(rules))
    now = time.time_ns() // 1000
    bundle = build(
        name="starter",
        version=1,
        created=now,
        expires=now + YEAR,
        plan=artifact.plan,
        databases=artifact.databases,
        sources={"linux/test.yml": RULE.encode()},
        rules=[{"id": RULE_ID}],
        tests=[Case(RULE_ID, True, b"<38>Nov 20 10:00:00 h p: install-test-marker", "auto", "", "test").to_row()],
        hyperscan_version=artifact.library,
    )
    path = folder / "starter.vbundle"
    path.write_bytes(sign(bundle, load_key(folder / "key.pem")))
    return path, key


@pytest.fixture(scope="session")
def release_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private key that signs releases."""
    path = tmp_path_factory.mktemp("release") / "key.pem"
    keygen(path)
    return path


def dist(output: Path, starter: tuple[Path, str], release_key: Path, *arguments: str) -> Path:
    """Run the recipe; returns the folder."""
    if shutil.which("apt-get") is None:
        pytest.skip("the zip is built on Debian 12")
    done = subprocess.run(
        [sys.executable, ROOT / "packaging/dist.py", "--output", output, "--cache", ROOT / "build/dist",
         "--bundle", starter[0], "--key", starter[1], "--release-key", release_key, *arguments],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def dist_folder(tmp_path_factory: pytest.TempPathFactory, starter: tuple[Path, str], release_key: Path) -> Path:
    """What ``make dist`` makes for x86_64."""
    return dist(tmp_path_factory.mktemp("dist"), starter, release_key, "--arch", "x86_64")


@pytest.fixture(scope="session")
def zip_file(dist_folder: Path) -> Path:
    (path,) = dist_folder.glob("*.zip")
    return path


@pytest.fixture(scope="session")
def release(zip_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip unpacked by a tool that keeps no file modes. Not to be written to: see ``variant``."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(zip_file) as file:
        file.extractall(folder)
    (path,) = folder.iterdir()
    return path


Variant = Callable[..., Path]


@pytest.fixture(scope="session")
def files(zip_file: Path) -> Mapping[str, tuple[int, bytes]]:
    """Mode and contents of the files in the payload."""
    with tarfile.open(fileobj=io.BytesIO(read(zip_file)["payload.tar.gz"])) as tar:
        return {
            member.name: (member.mode, tar.extractfile(member).read())  # type: ignore[union-attr]
            for member in tar
            if member.isfile()
        }


@pytest.fixture(scope="session")
def variant(
    zip_file: Path, files: Mapping[str, tuple[int, bytes]], release_key: Path, tmp_path_factory: pytest.TempPathFactory
) -> Variant:
    """Makes the zip of another release: some files replaced, its version where given, signed by ``key``."""
    members = read(zip_file)
    folder = tmp_path_factory.mktemp("variants")

    def make(
        name: str,
        changed: Mapping[str, bytes] | None = None,
        *,
        version: str = "",
        arch: str = "",
        key: Path = release_key,
    ) -> Path:
        contents = {path: data for path, (_, data) in files.items()} | dict(changed or {})
        facts = contents["RELEASE"].decode()
        if version:
            facts = facts.replace(facts.splitlines()[0], f"version={version}")
        if arch:
            facts = facts.replace("arch=x86_64", f"arch={arch}")
        contents["RELEASE"] = facts.encode()
        sums = (f"{sha256(data)}  {path}\n" for path, data in sorted(contents.items()) if path != "FILES.sha256")
        contents["FILES.sha256"] = "".join(sums).encode()
        packed = io.BytesIO()
        with (
            gzip.GzipFile("", "wb", 1, packed, mtime=0) as stream,
            tarfile.open(fileobj=stream, mode="w") as tar,
        ):
            for path, data in contents.items():
                info = tarfile.TarInfo(path)
                info.size, info.mode = len(data), files.get(path, (0o644, b""))[0]
                tar.addfile(info, io.BytesIO(data))
        parts = {
            "install.sh": contents["install.sh"],
            "RELEASE": contents["RELEASE"],
            "payload.tar.gz": packed.getvalue(),
            "release.pub": members["release.pub"],
        }
        listed = "".join(f"{sha256(data)}  {part}\n" for part, data in sorted(parts.items())).encode()
        parts["SHA256SUMS"] = listed
        parts["SHA256SUMS.sig"] = base64.b64encode(load_key(key).sign(listed)) + b"\n"
        path = folder / f"{name}.zip"
        path.write_bytes(archive(path.name, parts))
        return path

    return make


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "place"
    folder.mkdir()
    return Place(folder)


@pytest.fixture(scope="session")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An installation that tests only look at."""
    place = Place(tmp_path_factory.mktemp("installed"))
    done = place.install(release)
    assert done.code == 0, done.text
    return place
