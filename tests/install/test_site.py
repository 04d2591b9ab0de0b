"""A zip per site: what ``vedette member zip`` writes, installed as it is and talking to a real broker."""

from __future__ import annotations

import ast
import base64
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.install.conftest import ROOT, Place, call, sha256
from tests.install.stubbed import Stubbed
from vedette.cli.main import main
from vedette.config import read as config
from vedette.region import sitezip
from vedette.region.polyglot import PAYLOAD, archive, read
from vedette.region.sign import keygen, load_key, public_text
from vedette.region.sitezip import merge

pytestmark = pytest.mark.install
URL = "mqtts://region.example:8883"
KEY = "ed25519:" + "A" * 43 + "="


def member(verb: str, folder: Path, *options: str | Path, code: int = 0, name: str = "web-1") -> str:
    done = CliRunner().invoke(main, ["member", verb, name, "--folder", str(folder), *map(str, options)])
    assert done.exit_code == code, done.output
    return done.output


def zipped(
    folder: Path, release: Path, *options: str | Path, fleet: str = "default", code: int = 0, name: str = "web-1"
) -> str:
    """Enroll ``name`` and write its zip; ``code`` is the exit code of the latter."""
    member("enroll", folder, "--broker", URL, "--fleet", fleet, name=name)
    return member("zip", folder, "--release", release, *options, code=code, name=name)


def site_zip(folder: Path, name: str = "web-1") -> Path:
    (path,) = (folder / "members" / name).glob("*.zip")
    return path


def test_installed_as_it_is(zip_file: Path, starter: tuple[Path, str], place: Place, tmp_path: Path) -> None:
    """One command at the region, one line on the host: identity, certificate, key and rules are in place, and the
    agent's user alone reads the key."""
    region = tmp_path / "region"
    said = zipped(region, zip_file, "--bundle", starter[0], "--trusted-key", starter[1], fleet="plants")
    path = site_zip(region)
    assert str(path) in said
    assert "secret" in said
    assert "SECRET" in path.name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as file:
        assert b"SECRET" in file.comment
        assert file.testzip() is None
        assert {info.external_attr >> 16 & 0o077 for info in file.infolist() if "site" in info.filename} == {0}

    done = place.install(path)
    assert done.code == 0, done.text
    settings = config.load(place.config)
    assert (settings.agent.id, settings.agent.fleet) == ("web-1", "plants")
    assert (settings.uplink.type, settings.uplink.broker.url) == ("mqtt", URL)
    assert settings.uplink.broker.ca_file == place.config_dir / "region-ca.pem"
    assert settings.bundles.file == place.config_dir / "site.vbundle"
    assert settings.bundles.trusted_keys == (starter[1],)
    member = region / "members/web-1"
    for name in ("agent.pem", "agent.key", "region-ca.pem"):
        assert (place.config_dir / name).read_bytes() == (member / name).read_bytes()
    assert (place.config_dir / "site.vbundle").read_bytes() == starter[0].read_bytes()
    assert stat.S_IMODE((place.config_dir / "agent.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((place.config_dir / "agent.pem").stat().st_mode) == 0o640
    assert call(place.vedette, "check", "-c", place.config).code == 0
    assert "nothing changed" in place.install(path).text
    assert [item for item in place.folder.rglob("*") if item.name.startswith((".site", ".toml"))] == []


def test_by_a_token(zip_file: Path, starter: tuple[Path, str], place: Place, tmp_path: Path) -> None:
    """One zip for all hosts of a token: it brings no key, and the agent's user alone reads the token."""
    region = tmp_path / "region"
    member("enroll", region, "--broker", URL)

    def token(*words: str | Path, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["region", "token", *map(str, words), "--folder", str(region)])
        assert done.exit_code == code, done.output
        return done.output

    text = token("create", "--fleet", "plants", "--uses", "50").split()[0]
    number = text.split(":")[2]
    rules = ("--bundle", starter[0], "--trusted-key", starter[1])
    said = token("zip", number, "--broker", URL, "--release", zip_file, *rules)
    (path,) = region.glob("*SECRET.zip")
    assert f"to install 50 hosts: {path}" in said
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(fileobj=io.BytesIO(read(path)["site.tar"])) as tar:
        assert {info.name for info in tar} == {"vedette.toml", "token", "site.vbundle"}

    done = place.install(path)
    assert done.code == 0, done.text
    settings = config.load(place.config)
    assert (settings.agent.fleet, settings.uplink.type, settings.uplink.broker.url) == ("plants", "mqtt", URL)
    assert settings.enrolment.token_file == place.config_dir / "token"
    assert (place.config_dir / "token").read_text() == f"{text}\n"
    assert stat.S_IMODE((place.config_dir / "token").stat().st_mode) == 0o600
    assert call(place.vedette, "check", "-c", place.config).code == 0
    token("revoke", number)
    assert "is revoked" in token("zip", number, "--broker", URL, "--release", zip_file, code=2)


def test_the_configuration_is_explained(zip_file: Path, tmp_path: Path) -> None:
    """The site's file is the release's with the site's values, so every other setting stands there to be changed; the
    release's own parts and their signature are byte for byte as they were."""
    region = tmp_path / "region"
    zipped(region, zip_file, "--trusted-key", KEY)
    members, own = read(site_zip(region)), read(zip_file)
    assert {name: members[name] for name in own} == own
    with tarfile.open(fileobj=io.BytesIO(members["site.tar"])) as tar:
        text = tar.extractfile("vedette.toml").read().decode()  # type: ignore[union-attr]
        assert {info.name for info in tar} == {"vedette.toml", "agent.pem", "agent.key", "region-ca.pem"}
        assert {info.mode for info in tar} == {0o600}
    with tarfile.open(fileobj=io.BytesIO(own[PAYLOAD])) as tar:
        shipped = tar.extractfile("vedette.toml").read().decode()  # type: ignore[union-attr]
    changed = [line for line in text.splitlines() if line not in shipped.splitlines()]
    assert {line.split(" = ")[0] for line in changed} == {
        "id", "fleet", "type", "url", "ca_file", "cert_file", "key_file", "trusted_keys",
    }  # fmt: skip
    assert len(text.splitlines()) == len(shipped.splitlines())
    keys = config.parse(text).bundles.trusted_keys
    assert len(keys) == 2
    assert keys[1] == KEY, "the starter rules' key and the region's"


def test_again_it_has_the_same_bytes(zip_file: Path, tmp_path: Path) -> None:
    """Enrolled again with nothing new, the zip is written again byte for byte."""
    region = tmp_path / "region"
    zipped(region, zip_file)
    first = site_zip(region).read_bytes()
    zipped(region, zip_file)
    assert site_zip(region).read_bytes() == first


def test_what_the_operator_has_changed_stays(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """A renewed certificate comes beside the one that is there; nothing of the operator's is overwritten."""
    region = tmp_path / "region"
    zipped(region, zip_file)
    assert place.install(site_zip(region)).code == 0
    key = (place.config_dir / "agent.key").read_bytes()
    member("renew", region)
    member("zip", region, "--release", zip_file)
    done = place.install(site_zip(region))
    assert done.code == 0, done.text
    assert "agent.key.new" in done.text
    assert (place.config_dir / "agent.key").read_bytes() == key
    assert stat.S_IMODE((place.config_dir / "agent.key.new").stat().st_mode) == 0o600


def test_a_damaged_site_part(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """The site's own part has a digest, too."""
    region = tmp_path / "region"
    zipped(region, zip_file)
    data = bytearray(site_zip(region).read_bytes())
    at = data.index(b"BEGIN CERTIFICATE")
    data[at + 40] ^= 1
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(data)
    done = place.install(damaged)
    assert done.code == 20
    assert "site.tar" in done.text
    assert list(place.folder.iterdir()) == []


def remade(path: Path, into: Path, tar: bytes, signer: Path, *, named: bool = True) -> Path:
    """The site's zip with another site.tar, its digest right, signed by ``signer``; ``named``: as its key, too."""
    members, private = read(path), load_key(signer)
    members |= {
        "site.tar": tar,
        "site.sha256": sha256(tar).encode(),
        "site.sig": base64.b64encode(private.sign(tar)),
    }
    if named:
        members["site.pub"] = public_text(private).encode()
    into.write_bytes(archive(into.name, members, "SECRET"))
    return into


def test_signed_by_the_region(zip_file: Path, release_key: Path, place: Place, tmp_path: Path) -> None:
    """The site's part is taken only when the region's key signed it: the one that the installer names, else that of the
    first zip on this host; who asks for a signed release must name it. Refused, nothing is left."""
    region, other = tmp_path / "region", tmp_path / "other.pem"
    said = zipped(region, zip_file)
    own, stranger = public_text(load_key(region / "site.key")), keygen(other)
    assert f"--site-key {own}" in said
    assert stat.S_IMODE((region / "site.key").stat().st_mode) == 0o600
    good, tar = site_zip(region), read(site_zip(region))["site.tar"]
    forged = remade(good, tmp_path / "forged.zip", tar, other)
    borrowed = remade(good, tmp_path / "borrowed.zip", tar + bytes(512), other, named=False)

    for bad, key in ((forged, own), (borrowed, own), (good, stranger), (borrowed, "")):
        done = place.install(bad, *(["--site-key", key] if key else []))
        assert done.code == 21, done.text
        assert "site.tar: not signed by" in done.text
        assert [path.name for path in place.folder.rglob("*")] == ["opt", "install.log"]
    release = public_text(load_key(release_key))
    done = place.install(good, "--release-key", release)
    assert done.code == 21
    assert "--site-key" in done.text
    assert place.install(good, "--release-key", release, "--site-key", own).code == 0
    before = (place.config_dir / "agent.key").read_bytes()
    done = place.install(forged)
    assert done.code == 21
    assert (place.config_dir / "agent.key").read_bytes() == before
    assert not list(place.config_dir.glob("*.new"))
    assert place.install(forged, "--site-key", stranger).code == 0, "the region has a new key"
    assert place.install(good).code == 21


def test_an_unsigned_site_part(zip_file: Path, place: Place, tmp_path: Path) -> None:
    """A zip of an earlier release's `enroll` is refused with what to do."""
    zipped(tmp_path / "region", zip_file)
    members = read(site_zip(tmp_path / "region"))
    del members["site.sig"], members["site.pub"]
    old = tmp_path / "old.zip"
    old.write_bytes(archive(old.name, members, "SECRET"))
    done = place.install(old)
    assert done.code == 21
    assert "vedette member zip" in done.text


KINDS = {
    "symlink": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "folder": tarfile.DIRTYPE, "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE, "sparse": tarfile.GNUTYPE_SPARSE,
}  # fmt: skip


@pytest.mark.parametrize("what", [*KINDS, "../vedette.toml", "/tmp/vedette.toml", "other.txt", "twice", "no tar"])
def test_only_plain_files(zip_file: Path, installed: Place, tmp_path: Path, what: str) -> None:
    """Even with the region's signature nothing but the site's own files is taken, and nothing behind a link changes its
    mode or owner."""
    victim, key, folder = tmp_path / "victim", tmp_path / "site.key", tmp_path / "into"
    victim.write_bytes(b"victim")
    victim.chmod(0o644)
    folder.mkdir()
    public = keygen(key)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("agent.pem", "agent.pem") if what == "twice" else ("agent.pem",):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"good"))
        info = tarfile.TarInfo("agent.key" if what in KINDS or what == "twice" else what)
        info.type, info.linkname = KINDS.get(what, tarfile.REGTYPE), str(victim)
        tar.addfile(info)
    data = b"no tar" if what == "no tar" else buffer.getvalue()
    (tmp_path / "site.tar").write_bytes(data)
    (tmp_path / "site.sig").write_bytes(base64.b64encode(load_key(key).sign(data)))
    current = installed.prefix / "current"
    done = call(
        current / "runtime/bin/vedetted", "-I", "-S", "-B", current / "verify.py",
        public, tmp_path / "site.tar", tmp_path / "site.sig", folder,
    )  # fmt: skip
    assert done.code == 1, done.text
    assert done.text.count("\n") == 1, done.text
    assert "not signed" not in done.text
    assert {path.name for path in folder.iterdir()} <= {"agent.pem"}
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Whatever unpacked it: install.sh changes neither mode nor owner of what a link leads to, and installs nothing."""
    host = Stubbed(tmp_path / "host")
    release = host.release("1", site={"vedette.toml": b""})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("agent.key")
        link.type, link.linkname = tarfile.SYMTYPE, "/var/victim"
        tar.addfile(link)
    (host.folder / "srv/1/site.tar").write_bytes(buffer.getvalue())
    (host.folder / "srv/1/site.sha256").write_text(sha256(buffer.getvalue()))
    victim = host.folder / "var/victim"
    victim.touch(0o644)
    done = host.run(release)
    assert done.code == 20, done.text
    assert "agent.key is no plain file" in done.text
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644
    assert not [call for call in host.calls() if call.startswith("chown") and "agent.key" in call]
    assert not host.prefix.joinpath("current").exists()


def test_verify_knows_the_files_of_a_site() -> None:
    """What `member zip` packs is what the installed program unpacks."""
    tree = ast.parse((ROOT / "packaging/verify.py").read_text("utf-8"))
    (rows,) = [ast.literal_eval(node.value) for node in tree.body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SITE"]  # fmt: skip
    assert set(rows) == {*sitezip._NEEDED, sitezip.BUNDLE, sitezip.TOKEN}


def test_wrong_use(zip_file: Path, starter: tuple[Path, str], tmp_path: Path) -> None:
    """What cannot be made is said and not written."""
    region = tmp_path / "region"
    assert "no region here" in member("zip", region, "--release", zip_file, code=2)
    member("enroll", region, "--role", "landing", name="landing-1")
    assert "only agents" in member("zip", region, "--release", zip_file, code=2, name="landing-1")
    assert "needs the public key" in zipped(region, zip_file, "--bundle", starter[0], code=2)
    said = zipped(region, zip_file, "--bundle", starter[0], "--trusted-key", KEY, code=2)
    assert "sign" in said
    broken = tmp_path / "broken.zip"
    broken.write_bytes(zip_file.read_bytes()[:100_000])
    assert "not a whole zip" in zipped(region, broken, code=2)
    assert "No such file" in zipped(region, tmp_path / "none.zip", code=2)
    assert not list(region.rglob("*SECRET*"))
    zipped(region, zip_file)
    assert "a site's zip already" in zipped(region, site_zip(region), code=2, name="web-2")


@pytest.mark.parametrize("values", [{"agnet": {"id": "x"}}, {"agent": {"idd": "x"}}])
def test_merge_knows_the_template(values: dict[str, dict[str, str]]) -> None:
    """A table or key that the release's file does not have is refused, not dropped."""
    with pytest.raises(ValueError, match=next(iter(values))):
        merge('[agent]\n#id = "web"\n', values)


def test_merge() -> None:
    """The first line of the key in its own table changes, commented or not; text is quoted as TOML wants it."""
    template = '[agent]\n#id = "a"\n[[input]]\n#id = "b"\n#[[suppress]]\n#by = 1\n[bundles]\ntrusted_keys = []\n'
    merged = merge(template, {"agent": {"id": 'x"y'}, "bundles": {"trusted_keys": ["k"]}})
    assert merged == template.replace('#id = "a"', 'id = "x\\"y"').replace("[]\n", '["k"]\n')
