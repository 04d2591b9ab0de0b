"""Zips of releases, described for a fleet."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from tests.region.test_fleetfile import file_of as read_file
from vedette.fleet import releases
from vedette.fleet.releases import PIECE
from vedette.region.fleetfile import FleetFileError
from vedette.region.fleetreleases import describe
from vedette.region.polyglot import addon, archive, read
from vedette.region.sign import keygen, load_key


def release(folder: Path, arch: str = "x86_64", version: str = "0.2.1", **bent: bytes) -> Path:
    """A signed zip of the form that `make dist` writes."""
    key = folder / "release.pem"
    public = keygen(key) if not key.exists() else (folder / "release.pub").read_text()
    (folder / "release.pub").write_text(public)
    parts = {
        "install.sh": b"#!/bin/sh\n",
        "RELEASE": f"version={version}\narch={arch}\nunpacked_kib=1\n".encode(),
        "payload.tar.gz": hashlib.shake_256(arch.encode()).digest(PIECE + 4711),
        "release.pub": public.encode() + b"\n",
    }
    sums = b"".join(
        b"%s  %s\n" % (hashlib.sha256(data).hexdigest().encode(), name.encode()) for name, data in parts.items()
    )
    parts |= {"SHA256SUMS": sums, "SHA256SUMS.sig": base64.b64encode(load_key(key).sign(sums))}
    parts |= {name.replace("_", "."): data for name, data in bent.items()}
    path = folder / f"vedette-{version}-linux-{arch}.zip"
    path.write_bytes(archive(path.name, parts))
    return path


def test_pieces_make_the_zips(tmp_path: Path) -> None:
    """Of both architectures; the id is that of the folder that install.sh makes."""
    paths = [release(tmp_path), release(tmp_path, "aarch64")]
    found = describe(paths)
    assert (found.release.version, found.number) == ("0.2.1", 2001)
    for path, arch in zip(paths, ("x86_64", "aarch64"), strict=True):
        one = found.release.archives[arch]
        assert b"".join(found.pieces[f"pieces/{piece}"] for piece in one.pieces) == path.read_bytes()
        assert releases.ID.fullmatch(one.id)
    assert releases.read(found.release.to_bytes()) == found.release


def addition(folder: Path, of: Path, **bent: str) -> Path:
    """The add-on archive of the release ``of``."""
    sums = read(of)["SHA256SUMS"]
    facts = {"addon": "archive", "release": f"0.2.1-{hashlib.sha256(sums).hexdigest()[:12]}", "arch": "x86_64", **bent}
    text = "".join(f"{key}={value}\n" for key, value in facts.items()).encode()
    path = folder / f"{of.stem}-archive.zip"
    path.write_bytes(addon(path.name, of.stem, {"ADDON": text, "ADDON.sig": b"x", "payload.tar.gz": bytes(PIECE + 1)}))
    return path


def test_add_ons(tmp_path: Path) -> None:
    """They are described with the zip that they are for, and are nothing without it."""
    one, other = release(tmp_path), release(tmp_path, "aarch64")
    more = addition(tmp_path, one)
    found = describe([more, other, one])
    file = found.release.archives["x86_64"].addons["archive"]
    assert b"".join(found.pieces[f"pieces/{piece}"] for piece in file.pieces) == more.read_bytes()
    assert found.release.archives["aarch64"].addons == {}
    for paths in ([other, more], [one, addition(tmp_path, one, release="0.2.1-0123456789ab")]):
        with pytest.raises(ValueError, match=r"-archive\.zip: an add-on of release 0\.2\.1-.* name that zip, too"):
            describe(paths)


@pytest.mark.parametrize(
    ("bent", "reason"),
    [
        ({"install_sh": b"#!/bin/sh\nrm -rf /\n"}, "install.sh is not what SHA256SUMS says"),
        ({"SHA256SUMS_sig": base64.b64encode(bytes(64))}, "not signed by its own release key"),
        ({"site_tar": b"x"}, "the zip of one site"),
    ],
)
def test_what_is_refused(tmp_path: Path, bent: dict[str, bytes], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        describe([release(tmp_path, **bent)])


def test_in_a_fleet_file(tmp_path: Path) -> None:
    """One zip or several; two versions, a file that is none, and windows that are none are mistakes of their place."""
    release(tmp_path), release(tmp_path, "aarch64")
    made = read_file(tmp_path, 'release = ["vedette-0.2.1-linux-x86_64.zip", "vedette-0.2.1-linux-aarch64.zip"]')
    target = made.groups[0]["release"]
    assert (target.target.partition("/")[2], target.version) == ("releases/0.2.1.json", 2001)
    assert {*releases.read(made.files[target.target]).archives} == {"x86_64", "aarch64"}
    release(tmp_path, "aarch64", "0.3.0")
    (tmp_path / "none.zip").write_bytes(b"PK")
    for line, reason in (
        ('release = ["vedette-0.2.1-linux-x86_64.zip", "vedette-0.3.0-linux-aarch64.zip"]', "zips of one version"),
        ('release = "none.zip"', r"group\[0\].release: .*none.zip: not a whole zip"),
        ('release = "absent.zip"', r"group\[0\].release: .*No such file"),
        ('windows = [{ from = "22:00" }]', r"group\[0\].windows\[0\].from: unknown key; known: days, start"),
        ('windows = [{ start = "22:00", end = "24:00" }]', r"windows\[0\].end: expects a time such as"),
        ('windows = [{ start = "1:00", end = "02:00" }]', r"windows\[0\].start: expects a time"),
        ('windows = [{ start = "02:00", end = "02:00" }]', "start and end are the same"),
        ('windows = [{ start = "01:00", end = "02:00", timezone = "Vienna" }]', "timezone: expects one such as"),
        ('windows = [{ start = "01:00", end = "02:00", for = ["rules"] }]', r"for\[0\]: expects one of bundles"),
        ('windows = [{ start = "01:00", end = "02:00", days = ["samstag"] }]', r"days\[0\]: expects one of mon"),
    ):
        with pytest.raises(FleetFileError, match=reason):
            read_file(tmp_path, line)
