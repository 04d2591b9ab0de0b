"""The zip: what is in it, that it is a shell script, and what is refused before anything is written."""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, Inputs, Place, Variant, call, dist, native_kernel, sha256
from tests.waits import until
from vedette import __version__
from vedette.region.polyglot import PAYLOAD, STUB_BYTES, archive, read
from vedette.region.sign import keygen, load_key, public_text

pytestmark = pytest.mark.install
Files = Mapping[str, tuple[int, bytes]]
KERNEL = "packages/vedette/_kernel.abi3.so"
complete = importlib.import_module("complete")


def test_what_is_in_the_zip(zip_file: Path, files: Files) -> None:
    """The agent without the region's side; no compiler or Spark; a digest for every file, and licences."""
    with zipfile.ZipFile(zip_file) as file:
        assert file.testzip() is None
        assert {name.removeprefix("vedette/") for name in file.namelist()} == {
            "install.sh", "RELEASE", PAYLOAD, "release.pub", "SHA256SUMS", "SHA256SUMS.sig",
        }  # fmt: skip
    assert {"install.sh", "vedette.toml", "vedette.service", "starter.vbundle", "bin/vedette"} <= files.keys()
    packages = {name.split("/")[1] for name in files if name.startswith("packages/")}
    assert {"vedette", "hyperscan", "lmdb", "cryptography"} <= packages
    assert not packages & {"sigma", "yaml", "pyspark", "pyarrow", "pip", "setuptools", "tests"}
    assert not [name for name in files if name.startswith("packages/vedette/region")]
    sums = dict(reversed(line.split("  ")) for line in files["FILES.sha256"][1].decode().splitlines())
    assert sums == {name: sha256(data) for name, (_, data) in files.items() if name != "FILES.sha256"}
    assert files["install.sh"][1] == (ROOT / "install.sh").read_bytes()


def test_its_licences(dist_folder: Path, zip_file: Path, files: Files, tmp_path: Path) -> None:
    """Each file of the zip, and of its add-ons, is of a part that the list names, with its licence and its text: also
    of Vedette itself, of Debian's packages with the common ones that they refer to, of what wheels link statically."""
    inside = {}
    for name in ("", "-archive", "-kafka"):
        archived, folder = zip_file.with_name(f"{zip_file.stem}{name}.zip"), tmp_path / f"unpacked{name}"
        folder.mkdir()
        (tmp_path / PAYLOAD).write_bytes(read(archived)[PAYLOAD])
        assert call("tar", "-xzf", tmp_path / PAYLOAD, "-C", folder).code == 0
        assert complete.problems(folder) == []
        listed = (folder / complete.LIST).read_bytes()
        assert (dist_folder / f"{archived.stem}.cdx.json").read_bytes() == listed
        assert_valid(listed.decode())
        for row in json.loads(listed)["dependencies"]:
            parts = {part.partition("@")[0].rpartition("/")[2] for part in row["dependsOn"]}
            inside[row["ref"].partition("@")[0]] = parts
    assert {"openssl", "rust-std", "asn1"} <= inside["pkg:pypi/cryptography"]
    assert inside["pkg:pypi/hyperscan"] == {"vectorscan", "boost", "pcre", "libstdc%2B%2B"}
    assert inside["pkg:pypi/confluent-kafka"] == {"librdkafka", "openssl", "zlib", "zstd", "curl"}
    assert "aws-lc-sys" in inside["pkg:pypi/obstore"]
    assert files["LICENSE"][1] == (ROOT / "LICENSE").read_bytes()
    assert b"Lesser General Public" in files["licences/libc6"][1]
    assert b"GCC RUNTIME LIBRARY EXCEPTION" in files["licences/gcc-12-base"][1]
    assert {f"licences/{name}" for name in ("GPL-3", "LGPL-2.1", "vectorscan", "BSL-1.0", "pcre")} <= files.keys()


def assert_valid(text: str) -> None:
    """By CycloneDX's own schema, where its library is."""
    if importlib.util.find_spec("cyclonedx") is not None:
        validator = importlib.import_module("cyclonedx.validation.json").JsonStrictValidator
        version = importlib.import_module("cyclonedx.schema").SchemaVersion.V1_5
        assert validator(version).validate_str(text) is None


def test_sizes(zip_file: Path, installed: Place) -> None:
    """The zip (with a starter bundle of one rule) is below 32 MB, and takes less than 92 MB on the disk."""
    assert zip_file.stat().st_size < 32e6 - 3e6  # the real starter rules
    used = int(call("du", "-sk", installed.prefix / "current/").text.split()[0]) * 1024
    assert used < 92e6 - 3e6


def test_the_kernel(files: Files, installed: Place) -> None:
    """The native kernel is in it and used, where its tool chain is; it names no path of this machine, and runs with
    the C library in the zip. The licences of its crates come with it."""
    if missing := native_kernel.missing("x86_64"):
        pytest.skip(missing)
    library = files[KERNEL][1]
    for path in (ROOT, Path.home(), Path("/tmp")):
        assert f"{path}/".encode() not in library
    assert b"Permission is hereby granted" in files["licences/crate-memchr"][1]
    assert "native kernel: in use\n" in call(installed.vedette, "check", "-c", installed.config).text


@pytest.mark.long
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_two_kernels_are_equal(arch: str, tmp_path: Path) -> None:
    """Built elsewhere from the same sources by the same tools, it has the same bytes."""
    if missing := native_kernel.missing(arch):
        pytest.skip(missing)
    places = [tmp_path / "one", tmp_path / "or the other"]
    for place in places:
        shutil.copytree(ROOT / "packaging", place / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(native_kernel.CRATE, place / "agent/kernel", ignore=shutil.ignore_patterns("target"))
        script = f"import native_kernel, pathlib; native_kernel.build({arch!r}, pathlib.Path('target'))"
        subprocess.run([sys.executable, "-c", script], cwd=place / "packaging", check=True)
    ours, other = (next(place.rglob("release/lib_kernel.so")).read_bytes() for place in places)
    assert ours == other


@pytest.mark.long
def test_two_builds_are_equal(dist_folder: Path, inputs: Inputs, tmp_path: Path) -> None:
    """From the same locks, bundle and key every file comes out byte for byte as before."""
    again = dist(tmp_path / "again", inputs, "--arch", "x86_64")
    first = {path.name: sha256(path.read_bytes()) for path in dist_folder.iterdir()}
    assert {path.name: sha256(path.read_bytes()) for path in again.iterdir()} == first
    assert len(first) == 8


def test_what_lies_beside_it(dist_folder: Path, zip_file: Path, release_key: Path, files: Files) -> None:
    """SHA256SUMS names all files and is signed; the SBOM names what is shipped, with versions and digests."""
    sums = (dist_folder / "SHA256SUMS").read_bytes()
    named = dict(reversed(line.split("  ")) for line in sums.decode().splitlines())
    assert named[zip_file.name] == sha256(zip_file.read_bytes())
    assert named.keys() == {path.name for path in dist_folder.iterdir() if not path.name.startswith("SHA256SUMS")}
    load_key(release_key).public_key().verify(base64.b64decode((dist_folder / "SHA256SUMS.sig").read_bytes()), sums)

    bom = json.loads((dist_folder / f"vedette-{__version__}-linux-x86_64.cdx.json").read_bytes())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
    purls = {component["purl"] for component in bom["components"]}
    locked = {
        line.split(" ")[0].replace("_", "-")
        for line in (ROOT / "packaging/edge.lock").read_text().splitlines()
        if "==" in line
    }
    left_out = {"pycparser"}
    wanted = {f"pkg:pypi/{name.replace('==', '@')}" for name in locked if name.split("==")[0] not in left_out}
    assert {purl for purl in purls if "pypi" in purl} == wanted
    crates = tomllib.loads((ROOT / "agent/kernel/Cargo.lock").read_text())["package"]
    checksums = {f"pkg:cargo/{row['name']}@{row['version']}": row.get("checksum") for row in crates}
    listed = {row["purl"]: row["hashes"][0]["content"] for row in bom["components"] if "hashes" in row}
    inside = {row["ref"]: row["dependsOn"] for row in bom["dependencies"]}
    of_kernel = inside.get(f"pkg:generic/vedette-kernel@{__version__}", [])
    shipped = {purl: listed[purl] for purl in of_kernel if "cargo" in purl}
    assert shipped.items() <= checksums.items()
    assert any("/pyo3@" in purl for purl in shipped) == (KERNEL in files)
    if KERNEL in files:
        assert listed[f"pkg:generic/vedette-kernel@{__version__}"] == sha256(files[KERNEL][1])
    assert any(purl.startswith("pkg:deb/debian/libc6@") and "arch=amd64" in purl for purl in purls)
    assert all(len(content) == 64 for content in listed.values())
    assert {row["name"] for row in bom["components"] if "hashes" not in row} >= {"boost", "vectorscan"}


def test_the_signature_by_the_hosts_own_tools(dist_folder: Path, release: Path, tmp_path: Path) -> None:
    """What docs/install.md shows: OpenSSL verifies the signature beside the zip with the key in it."""
    if "3." not in call("openssl", "version").text:
        pytest.skip("needs OpenSSL 3")
    key = (release / "release.pub").read_text().strip().removeprefix("ed25519:")
    (tmp_path / "release.pem").write_text(
        f"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA{key}\n-----END PUBLIC KEY-----\n"
    )
    (tmp_path / "sums.sig").write_bytes(base64.b64decode((dist_folder / "SHA256SUMS.sig").read_bytes()))
    done = call("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", tmp_path / "release.pem", "-rawin",
                "-in", dist_folder / "SHA256SUMS", "-sigfile", tmp_path / "sums.sig")  # fmt: skip
    assert "Signature Verified Successfully" in done.text


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_it_is_a_shell_script(zip_file: Path, place: Place, tmp_path: Path, shell: str) -> None:
    """Without unzip: the zip itself installs, under every usual shell, and leaves nothing in the temporary folder."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    command = ["busybox", "sh"] if shell == "busybox" else [shell]
    done = call("env", f"TMPDIR={tmp_path}", *command, zip_file, "--no-systemd", "--prefix", place.prefix,
                "--config-dir", place.config_dir, "--data-dir", place.data_dir)  # fmt: skip
    assert done.code == 0, done.text
    assert call(place.vedette, "version").code == 0
    assert list(tmp_path.iterdir()) == []


def test_from_its_own_folder(zip_file: Path, place: Place) -> None:
    """`sh NAME.zip` works in the folder where it lies, and passes --help and exit codes on."""
    done = subprocess.run(
        ["sh", zip_file.name, "--help"], cwd=zip_file.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("usage: ")
    assert place.sh(zip_file, "--unknown").code == 2


def test_a_truncated_zip(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """A zip that was not copied whole is refused at once, with both sizes."""
    part = tmp_path / "part.zip"
    part.write_bytes(zip_file.read_bytes()[:20_000_000])
    done = place.install(part)
    assert done.code == 20
    assert "20000000" in done.text
    assert str(zip_file.stat().st_size) in done.text
    assert list(place.folder.iterdir()) == []


@pytest.mark.parametrize("part", [PAYLOAD, "install.sh", "RELEASE"])
def test_a_damaged_zip(zip_file: Path, place: Place, tmp_path: Path, part: str) -> None:
    """One other byte in any part is refused before anything is written, and the part is named."""
    members = read(zip_file)
    data = bytearray(zip_file.read_bytes())
    at = data.index(members[part][:4096], STUB_BYTES) + len(members[part]) - 2
    data[at] ^= 1
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(data)
    done = place.install(damaged)
    assert done.code == 20, done.text
    assert part in done.text
    assert list(place.folder.iterdir()) == []


def test_a_truncated_payload_beside_the_script(release: Path, place: Place, tmp_path: Path) -> None:
    """Unpacked with a tool that was content with a truncated zip, it is refused as well."""
    folder = tmp_path / "vedette"
    shutil.copytree(release, folder)
    with (folder / PAYLOAD).open("r+b") as file:
        file.truncate(1_000_000)
    done = place.install(folder)
    assert done.code == 20
    assert PAYLOAD in done.text
    (folder / PAYLOAD).unlink()
    assert place.install(folder).code == 20
    assert list(place.folder.iterdir()) == []


def test_another_architecture(variant: Variant, place: Place) -> None:
    """A zip for another processor is refused, and says which one to take."""
    done = place.install(variant("arm", arch="aarch64"))
    assert done.code == 11
    assert "x86_64" in done.text
    assert "aarch64" in done.text
    assert list(place.folder.iterdir()) == []


def test_an_upgrade_by_somebody_else(
    zip_file: Path, variant: Variant, ready: Place, release_key: Path, tmp_path: Path
) -> None:
    """The key of the first release holds: another one's release is refused by the installed agent, unless its key is
    given."""
    before = ready.current()
    other = tmp_path / "other.pem"
    public = keygen(other)
    foreign = variant("foreign", version="6.6.6", key=other)
    done = ready.install(foreign)
    assert done.code == 21
    assert public_text(load_key(release_key)) in done.text
    assert ready.current() == before
    done = ready.install(foreign, "--release-key", public)
    assert done.code == 0, done.text
    assert ready.current().startswith("6.6.6-")
    done = ready.install(zip_file)
    assert done.code == 21, "the key that was given holds from now on"


def test_the_first_installation_with_a_key(zip_file: Path, place: Place, release_key: Path, tmp_path: Path) -> None:
    """With --release-key the host's OpenSSL checks the first release, too."""
    if "3." not in call("openssl", "version").text:
        pytest.skip("needs OpenSSL 3")
    wrong = place.install(zip_file, "--release-key", keygen(tmp_path / "other.pem"))
    assert wrong.code == 21
    assert list(place.folder.iterdir()) == []
    done = place.install(zip_file, "--release-key", public_text(load_key(release_key)))
    assert done.code == 0, done.text
    assert "signed by" in done.text


def test_stopped_in_the_middle(zip_file: Path, place: Place) -> None:
    """SIGTERM while the release is unpacked: nothing of it is left but the log."""
    process = subprocess.Popen(
        ["sh", zip_file, "--no-systemd", "--prefix", place.prefix, "--config-dir", place.config_dir,
         "--data-dir", place.data_dir], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    until("a half of the release", lambda: list(place.prefix.glob("releases/.new.*/runtime")))
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode != 0
    assert [path.name for path in place.folder.rglob("*") if path.is_file()] == ["install.log"], output
    assert place.install(zip_file).code == 0


def test_archive_has_a_bound() -> None:
    """More members than the script's table holds are refused, not cut."""
    members = {"install.sh": b"", PAYLOAD: b"", **{f"{n:060}": b"" for n in range(100)}}
    with pytest.raises(ValueError, match="too many members"):
        archive("x.zip", members)


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06" + bytes(18), b"not a zip" * 1000])
def test_what_is_no_release(tmp_path: Path, data: bytes) -> None:
    """``read`` says what is wrong with a file that is no release, and what it expects."""
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.zip"):
        read(path)


def test_payload_is_a_plain_tar(zip_file: Path, tmp_path: Path) -> None:
    """No owner, time or path outside in the payload."""
    path = tmp_path / PAYLOAD
    path.write_bytes(read(zip_file)[PAYLOAD])
    with tarfile.open(path) as tar:
        for member in tar:
            assert (member.uid, member.uname, member.mtime) == (0, "", 315532800)
            assert not member.name.startswith(("/", "..")), member.name
    assert hashlib.sha256(path.read_bytes()).hexdigest() in read(zip_file)["SHA256SUMS"].decode()


def test_what_it_costs(zip_file: Path, tmp_path: Path) -> None:
    """The command that docs/install.md names measures what it says there; the zip is within its size."""
    done = subprocess.run(
        [sys.executable, ROOT / "packaging/measure.py", zip_file],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = {name: float(value) for name, value, _ in map(str.split, done.stdout.splitlines())}
    page = (ROOT / "docs/install.md").read_text()
    assert all(f"{name} " in page for name in figures)
    assert figures["zip"] < 32
    assert 50 < figures["unpacked"] < 92
