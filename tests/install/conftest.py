"""The packed zip, built once per session with a starter bundle of one rule, and ways to install it into a folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
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
        return call("sh", release / "install.sh", "--no-systemd", "--prefix", self.prefix, *options)

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
def zip_file(tmp_path_factory: pytest.TempPathFactory, starter: tuple[Path, str]) -> Path:
    """What ``make dist`` makes."""
    if shutil.which("apt-get") is None:
        pytest.skip("the zip is built on Debian or Ubuntu")
    output = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, ROOT / "packaging/dist.py", "--output", output, "--cache", ROOT / "build/dist",
         "--bundle", starter[0], "--key", starter[1]],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = output.iterdir()
    return path


@pytest.fixture(scope="session")
def release(zip_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip unpacked by a tool that keeps no file modes. Not to be written to: see ``variant``."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(zip_file) as file:
        file.extractall(folder)
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def variant(release: Path, tmp_path: Path) -> Callable[..., Path]:
    """The release with some files replaced; unless ``sums`` is false SHA256SUMS follows, so it is another release."""

    def make(name: str, files: Mapping[str, bytes], *, sums: bool = True) -> Path:
        folder = tmp_path / "variants" / name
        folder.parent.mkdir(exist_ok=True)
        subprocess.run(["cp", "-al", release, folder], check=True)
        lines = (release / "SHA256SUMS").read_text().splitlines()
        for path, data in files.items():
            (folder / path).unlink()
            (folder / path).write_bytes(data)
            line = f"{hashlib.sha256(data).hexdigest()}  {path}"
            lines = [line if old.endswith(f"  {path}") else old for old in lines]
        if sums:
            (folder / "SHA256SUMS").unlink()
            (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")
        return folder

    return make


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
