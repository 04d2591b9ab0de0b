"""A zip that was carried to a host makes no more bytes on the disk than its fleet has signed."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.differences import differences
from tests.fleet.kit import Centre, desired, group, target
from vedette.cli.main import main
from vedette.fleet.carried import read_answer
from vedette.fleet.documents import Change
from vedette.lookup.build import of_keys
from vedette.lookup.sign import head_of, sign
from vedette.region.repository import needed_blobs, needed_metadata

OVERLAY = b'[log]\nlevel = "debug"\n'
ZEROS = bytes(8 << 20)
"""8 KB when they are packed."""
Files = Mapping[str, bytes]


def signed_lookup(folder: Path) -> bytes:
    path = folder / "staff.vlookup"
    path.write_bytes(of_keys("staff", "text", ["ann", "bob"]))
    sign(path, path, Ed25519PrivateKey.generate(), "plants", "stable")
    return path.read_bytes()


class Site:
    """A centre with an overlay and a lookup, and a host that is not connected."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.centre = folder, Centre(folder / "trust")
        lookup = signed_lookup(folder)
        with (folder / "staff.vlookup").open("rb") as source:
            head = head_of(source)
        self.overlay, self.head = (hashlib.sha256(data).hexdigest() for data in (OVERLAY, head))
        config = Change("c1", target("config/1.toml", OVERLAY))
        lookups = {"staff": Change("c2", target("lookups/1", head))}
        wanted = desired(1, group("everyone", config=config, lookups=lookups))
        self.centre.publish(wanted, {"config/1.toml": OVERLAY, "lookups/1": head})
        metadata = [f"tuf/{name}" for name in needed_metadata(self.centre.repository)]
        blobs = [f"blobs/{path.name}" for path in needed_blobs(self.centre.repository)]
        self.files: Files = {
            **{name: (self.centre.folder / name).read_bytes() for name in (*metadata, *blobs)},
            f"lookups/{self.head}.vlookup": lookup,
            f"requests/{'1' * 32}.json": b"{}",
            "certificates/vienna-1.json": b"{}",
        }
        self.config = folder / "vedette.toml"
        self.config.write_text(
            f'[agent]\nid = "vienna-1"\nfleet = "plants"\ndata_dir = "{folder}/data"\n'
            f'[fleet]\nroot = "{self.centre.folder}/tuf/1.root.json"\n'
        )

    def zip(self, files: Files, method: int = zipfile.ZIP_DEFLATED) -> Path:
        path = self.folder / "site.zip"
        with zipfile.ZipFile(path, "w", method) as out:
            for name, data in files.items():
                out.writestr(name, data)
        return path

    def take(self, path: Path) -> Result:
        return CliRunner().invoke(main, ["fleet", "import", str(path), "-c", str(self.config)])

    def unpacked(self) -> dict[str, bytes]:
        """All that lies in the host's data folder."""
        data = self.folder / "data"
        return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def test_what_was_signed_is_unpacked(site: Site) -> None:
    """All that `fleet export --site` packs, byte by byte; another zip takes its place."""
    for files in (site.files, {**site.files, "certificates/vienna-2.json": b"{}"}):
        done = site.take(site.zip(files))
        assert done.exit_code == 0, done.output
        assert site.unpacked() == {f"fleet/carried/{name}": data for name, data in files.items()}


def bombs(site: Site) -> Iterator[tuple[str, str, Files]]:
    """What is wrong, a part of the message, and the files."""
    overlay, head, lookup = f"blobs/{site.overlay}", f"blobs/{site.head}", f"lookups/{site.head}.vlookup"
    unsigned = hashlib.sha256(ZEROS).hexdigest()
    without = {name: data for name, data in site.files.items() if name != head}
    no_timestamp = {name: data for name, data in site.files.items() if name != "tuf/timestamp.json"}
    other = Site(site.folder / "other")
    yield "a blob that nobody signed", "not among what", {**site.files, f"blobs/{unsigned}": ZEROS}
    yield "a blob that is longer", "were signed", {**site.files, overlay: ZEROS}
    yield "a blob of other bytes", "not what was signed", {**site.files, overlay: bytes(len(OVERLAY))}
    yield "a lookup that nobody signed", "not among what", {**site.files, f"lookups/{unsigned}.vlookup": ZEROS}
    yield "a lookup that is longer", "were signed", {**site.files, lookup: site.files[lookup] + ZEROS}
    yield "a lookup without its head", "came without", without
    yield "metadata that are longer", "at most", {**site.files, "tuf/timestamp.json": ZEROS}
    yield "a root that is longer", "at most", {**site.files, "tuf/2.root.json": ZEROS}
    yield "a request that is longer", "at most", {**site.files, f"requests/{'2' * 32}.json": ZEROS}
    yield "a certificate that is longer", "at most", {**site.files, "certificates/x.json": ZEROS}
    yield "another name", "does not belong there", {**site.files, "blobs/x": ZEROS}
    yield "another fleet's", "sign", other.files
    yield "no metadata", "missing", {overlay: OVERLAY}
    yield "no timestamp", "missing", no_timestamp
    yield "a changed timestamp", "", {**site.files, "tuf/timestamp.json": other.files["tuf/timestamp.json"]}


def test_bombs(site: Site) -> None:
    """Each is refused by name, and what was there before stays as it is."""
    assert (
        site.take(site.zip({name: data for name, data in site.files.items() if "certificate" not in name})).exit_code
        == 0
    )
    before = site.unpacked()
    with differences() as case:
        for wrong, said, files in bombs(site):
            with case(wrong):
                refused(site, site.zip(files), said)
                assert site.unpacked() == before


def refused(site: Site, path: Path, said: str) -> None:
    done = site.take(path)
    assert (done.exit_code, type(done.exception)) == (2, SystemExit), (done.output, done.exception)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_many_small_ones(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that no metadata name are bounded together."""
    requests = {f"requests/{number:032x}.json": bytes(1 << 20) for number in range(8)}
    monkeypatch.setattr("vedette.fleet.carriedin.MAX_UNSIGNED", 7 << 20)
    refused(site, site.zip({**site.files, **requests}), "without a signature")
    assert site.unpacked() == {}


CENTRAL, LOCAL = b"PK\1\2", b"PK\3\4"
"""Headers of a zip: sizes lie 24 and 22 bytes into them, the flags 8 and 6, the name 46 and 30."""


def forged(path: Path, name: str, change: Callable[[bytearray, int, int], None]) -> Path:
    """``change`` the bytes of both headers of ``name``: of each gets its start, and how far its flags are."""
    data = bytearray(path.read_bytes())
    for mark, start, flags in ((CENTRAL, 46, 8), (LOCAL, 30, 6)):
        place = data.index(name.encode())
        while data[place - start : place - start + 4] != mark:
            place = data.index(name.encode(), place + 1)
        change(data, place - start, flags)
    path.write_bytes(data)
    return path


def test_headers_that_lie(site: Site) -> None:
    """The size a header states is all that is unpacked; what is damaged, encrypted, there twice or packed by LZMA or
    bzip2, whose memory nothing bounds, is refused in a line."""
    overlay = f"blobs/{site.overlay}"

    def shorter(data: bytearray, start: int, flags: int) -> None:
        struct.pack_into("<I", data, start + flags + 16, len(OVERLAY))

    def encrypted(data: bytearray, start: int, flags: int) -> None:
        data[start + flags] |= 1

    def damaged(data: bytearray, start: int, flags: int) -> None:
        if flags == 6:
            first = start + 30 + len(overlay)
            data[first : first + 8] = b"\xff" * 8

    whole = site.files
    with differences() as case:
        for change, files, said in (
            (shorter, {**whole, overlay: ZEROS}, overlay),
            (encrypted, whole, "packed"),
            (damaged, whole, "copy it again"),
        ):
            with case(change.__name__):
                refused(site, forged(site.zip(files), overlay, change), said)
                assert site.unpacked() == {}
        for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
            with case(method):
                refused(site, site.zip(whole, method), "packed")
        with case("twice"):
            path = site.zip(whole)
            with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as out:
                out.writestr(overlay, OVERLAY)
            refused(site, path, "twice")
        assert site.unpacked() == {}


def test_answers_of_a_host(site: Site) -> None:
    """What comes back is bounded too: nothing is unpacked that an answer does not have."""
    with differences() as case:
        for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
            with case(method), pytest.raises(ValueError, match="packed"):
                read_answer(site.zip({"answer.json": b"{}", "audit.jsonl": b""}, method), "plants", None)
        with case("long"), pytest.raises(ValueError, match="more than an answer"):
            read_answer(site.zip({"answer.json": bytes(65 << 20), "audit.jsonl": b""}), "plants", None)
