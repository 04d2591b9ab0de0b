"""The packed zip with a starter bundle of one rule, other releases made of it, and ways to install them into a folder.

The zip is built once and kept in build/tests, named for the digest of all that goes into it, with the keys that signed
it; workers that run side by side wait for the one that builds it. A ``Variant`` is a whole release in its own right:
its files replaced, packed and signed again. All installations of a session have one path, emptied before each test, so
that one made by ``ready`` can be a copy.

Building takes minutes, so every test of the zip itself, and of a booted host, is ``long``. What is quick installs a
light release (``light.py``) or stand-ins (``stubbed.py``).
"""

from __future__ import annotations

import base64
import fcntl
import functools
import gzip
import hashlib
import importlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from vedette import __version__
from vedette.engine.artifact import Artifact
from vedette.region.build import build
from vedette.region.polyglot import addon as addon_bytes
from vedette.region.polyglot import archive, read
from vedette.region.sign import keygen, load_key, sign
from vedette.rules import build as compiler
from vedette.rules.selftest import Case

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "packaging"))
INSTALLER = {f"installer/{path.name}": path.read_bytes() for path in (ROOT / "packaging/installer").glob("*.py")}
"""What goes on after install.sh, of a release."""
native_kernel = importlib.import_module("native_kernel")
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
CACHE = ROOT / "build/tests"
UNOPTIMISED = (
    {}
    if os.environ.get("VEDETTE_BOOT") == "all"
    else {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
)
"""What spares the compiler a minute of optimising; ``make test-install`` builds the kernel as it ships."""
MEMORY = Path("/dev/shm")
UNUSED_SECONDS = 7200
"""After which a zip of other sources, or an installation that was left, is deleted: longer than a run of tests that may
still use it."""


class Done(NamedTuple):
    code: int
    text: str


def call(*command: str | Path) -> Done:
    """Run it as from a terminal, where SIGINT ends it: what a shell starts in the background ignores that."""
    done = subprocess.run(
        ["env", "--default-signal=INT", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
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


@functools.cache
def alone() -> list[str]:
    """``unshare`` into a mount namespace where mounting is allowed, or skip."""
    command = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    return command


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what builds the zip or boots a host, before tests are chosen by their marks."""
    for item in items:
        if "dist_folder" in getattr(item, "fixturenames", ()) or item.get_closest_marker("boot"):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(1800))  # the first one builds, and others wait for that


class Inputs(NamedTuple):
    """What the recipe is given besides this repository."""

    folder: Path
    """Kept with them; empty at first."""
    starter: Path
    """A signed bundle of RULE."""
    key: str
    """The public key it is signed with."""
    release_key: Path


def starter_bundle(path: Path, private: Path) -> None:
    rules = compiler.empty()
    compiler.add(rules, RULE)
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
    path.write_bytes(sign(bundle, load_key(private)))


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """For one of all processes that run tests here."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def inputs() -> Inputs:
    """Made once for the same sources, and anew each month, as bundles and locked packages grow old."""
    digest = hashlib.sha256(f"{time.strftime('%Y-%m')} {UNOPTIMISED} {RULE}".encode())
    kernel = native_kernel.CRATE
    digest.update(str(native_kernel.missing("x86_64") or native_kernel.compiler()).encode())
    sources = [ROOT / "install.sh", *(ROOT / "packaging").rglob("*"), *(ROOT / "agent").rglob("*.py"),
               *(kernel / "src").rglob("*"), *kernel.glob("Cargo.*")]  # fmt: skip
    for path in sorted(path for path in sources if path.is_file() and "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    folder = CACHE / digest.hexdigest()[:16]
    with one_at_a_time():
        if not folder.exists():
            scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=CACHE))
            (scratch / "key").write_text(keygen(scratch / "starter.pem"))
            keygen(scratch / "release.pem")
            starter_bundle(scratch / "starter.vbundle", scratch / "starter.pem")
            for old in CACHE.iterdir():
                if old.is_dir() and time.time() - old.stat().st_mtime > UNUSED_SECONDS:
                    shutil.rmtree(old)
            scratch.rename(folder)
        os.utime(folder)
    return Inputs(folder, folder / "starter.vbundle", (folder / "key").read_text(), folder / "release.pem")


@pytest.fixture(scope="session")
def starter(inputs: Inputs) -> tuple[Path, str]:
    """A signed bundle of RULE, and its public key."""
    return inputs.starter, inputs.key


@pytest.fixture(scope="session")
def release_key(inputs: Inputs) -> Path:
    """The private key that signs releases."""
    return inputs.release_key


def dist(output: Path, inputs: Inputs, *arguments: str, root: Path = ROOT) -> Path:
    """Run the recipe of the sources in ``root``; returns the folder, which is there when all of it is."""
    if shutil.which("apt-get") is None:
        pytest.skip("the zip is built on Debian 12")
    with tempfile.TemporaryDirectory(prefix=".new-", dir=output.parent) as scratch:
        done = subprocess.run(
            [sys.executable, root / "packaging/dist.py", "--output", f"{scratch}/dist", "--cache",
             ROOT / "build/dist", "--bundle", inputs.starter, "--key", inputs.key, "--release-key", inputs.release_key,
             *arguments],
            env={**os.environ, **UNOPTIMISED, "PYTHONPATH": str(root / "agent")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        Path(scratch, "dist").rename(output)
    return output


@pytest.fixture(scope="session")
def dist_folder(inputs: Inputs) -> Path:
    """What ``make dist`` makes for x86_64."""
    folder = inputs.folder / "x86_64"
    with one_at_a_time():
        return folder if folder.exists() else dist(folder, inputs, "--arch", "x86_64")


@pytest.fixture(scope="session")
def zip_file(dist_folder: Path) -> Path:
    return dist_folder / f"vedette-{__version__}-linux-x86_64.zip"


@pytest.fixture(scope="session")
def addon_file(zip_file: Path) -> Path:
    """The add-on archive, which lies beside the zip."""
    return zip_file.with_name(f"{zip_file.stem}-archive.zip")


@pytest.fixture(scope="session")
def release(zip_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip unpacked by a tool that keeps no file modes. Not to be written to: see ``variant``."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(zip_file) as file:
        file.extractall(folder)
    (path,) = folder.iterdir()
    return path


def add_on(addon: Path, release: Path, key: Path, name: str = "archive", **bent: str) -> Path:
    """Beside ``release`` the add-on that ``addon`` is of another release, as ``name``, signed by ``key``."""
    members, of = read(addon), read(release)
    facts = dict(line.split("=", 1) for line in members["ADDON"].decode().splitlines())
    says = dict(line.split("=", 1) for line in of["RELEASE"].decode().splitlines())
    facts |= {"addon": name, "release": f"{says['version']}-{sha256(of['SHA256SUMS'])[:12]}", **bent}
    text = "".join(f"{key}={value}\n" for key, value in facts.items()).encode()
    parts = {**members, "ADDON": text, "ADDON.sig": base64.b64encode(load_key(key).sign(text))}
    path = release.with_name(f"vedette-{says['version']}-linux-{says['arch']}-{name}.zip")
    path.write_bytes(addon_bytes(path.name, release.stem, parts))
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
        path = folder / f"{name}.zip"
        modes = {name: mode for name, (mode, _) in files.items()}
        path.write_bytes(packed(path.name, contents, modes, members["release.pub"], key))
        return path

    return make


def packed(name: str, files: Mapping[str, bytes], modes: Mapping[str, int], public: bytes, key: Path) -> bytes:
    """The zip of a release of these files, with ``public`` as its key, signed by the private ``key``."""
    contents = dict(files)
    sums = (f"{sha256(data)}  {path}\n" for path, data in sorted(contents.items()) if path != "FILES.sha256")
    contents["FILES.sha256"] = "".join(sums).encode()
    payload = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", 0, payload, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as tar,
    ):
        for path, data in contents.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), modes.get(path, 0o644)
            tar.addfile(info, io.BytesIO(data))
    parts = {
        "install.sh": contents["install.sh"],
        "RELEASE": contents["RELEASE"],
        "payload.tar.gz": payload.getvalue(),
        "release.pub": public,
    }
    listed = "".join(f"{sha256(data)}  {part}\n" for part, data in sorted(parts.items())).encode()
    parts["SHA256SUMS"] = listed
    parts["SHA256SUMS.sig"] = base64.b64encode(load_key(key).sign(listed)) + b"\n"
    return archive(name, parts)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _in_memory() -> bool:
    """Whether programs may lie in memory, and some installations have room there."""
    if not os.access(MEMORY, os.W_OK):
        return False
    memory = os.statvfs(MEMORY)
    return not memory.f_flag & os.ST_NOEXEC and memory.f_bavail * memory.f_frsize > 2 << 30


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where all installations go, one after the other: in memory where it may be, as each is thousands of files."""
    if _in_memory():
        for old in MEMORY.glob("vedette-installed-*"):  # of runs that were killed
            if time.time() - old.stat().st_mtime > UNUSED_SECONDS:
                shutil.rmtree(old)
        with tempfile.TemporaryDirectory(prefix="vedette-installed-", dir=MEMORY) as folder:
            yield Path(folder) / "place"
    else:
        yield tmp_path_factory.mktemp("ground") / "place"


@pytest.fixture
def place(ground: Path) -> Place:
    """Nothing installed."""
    return emptied(ground)


def emptied(ground: Path) -> Place:
    shutil.rmtree(ground, ignore_errors=True)
    ground.mkdir()
    return Place(ground)


@pytest.fixture(scope="session")
def saved(release: Path, ground: Path) -> Path:
    """A copy of ``ground`` with the release installed."""
    done = emptied(ground).install(release)
    assert done.code == 0, done.text
    return ground.rename(ground.with_name("saved"))


@pytest.fixture
def ready(saved: Path, ground: Path) -> Place:
    """The release is installed, as by ``place.install(release)``, and everything may be done to it."""
    shutil.rmtree(ground, ignore_errors=True)
    assert call("cp", "-a", saved, ground).code == 0
    return Place(ground)


@pytest.fixture(scope="session")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An installation that tests only look at."""
    place = Place(tmp_path_factory.mktemp("installed"))
    done = place.install(release)
    assert done.code == 0, done.text
    return place
