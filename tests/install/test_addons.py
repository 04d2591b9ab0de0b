"""Add-ons of the release, the real ones in real installations: they come, work, go on, go back and go with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.archive import s3
from tests.broker import own_port
from tests.install.conftest import Done, Place, Variant, add_on, alone, call, sha256
from tests.install.test_agent import running
from tests.waits import until
from vedette import __version__
from vedette.region.polyglot import read
from vedette.region.sign import keygen

pytestmark = pytest.mark.install
CURRENT = "current/install.sh"


@pytest.fixture
def beside(zip_file: Path, addon_file: Path, tmp_path: Path) -> Path:
    """The zip with the add-on beside it, and nothing else."""
    for path in (zip_file, addon_file):
        (tmp_path / path.name).hardlink_to(path)
    return tmp_path / zip_file.name


@pytest.fixture
def extended(ready: Place, beside: Path) -> Place:
    """The add-on is installed."""
    done = ready.sh(beside, "--with", "archive")
    assert done.code == 0, done.text
    return ready


def version(place: Place) -> str:
    done = call(place.vedette, "version")
    assert done.code == 0, done.text
    return done.text.strip()


def addons(place: Place, release: str = "current") -> list[str]:
    return sorted(path.name for path in (place.prefix / release).glob("addons/*"))


def check(place: Place, settings: str) -> Done:
    """``vedette check`` of a configuration with these settings."""
    path = place.folder / "check.toml"
    text = '[agent]\nid = "a"\n[[input]]\nname = "f"\ntype = "file"\npaths = ["/f"]\n'
    path.write_text(f'{text}[bundles]\ntrusted_keys = ["ed25519:{"A" * 43}="]\n{settings}\n')
    return call(place.vedette, "check", "-c", path)


def test_what_is_in_the_file(addon_file: Path, zip_file: Path) -> None:
    """Only what the zip has not, with its list of parts; and it says which release it is for."""
    with zipfile.ZipFile(addon_file) as file:
        assert file.testzip() is None
        assert {name.partition("/")[0] for name in file.namelist()} == {addon_file.stem}
    members = read(addon_file)
    facts = dict(line.split("=", 1) for line in members["ADDON"].decode().splitlines())
    assert facts["release"] == f"{__version__}-{sha256(read(zip_file)['SHA256SUMS'])[:12]}"
    assert facts["sha256"] == sha256(members["payload.tar.gz"])
    names, others = (
        {
            row["name"]
            for row in json.loads(path.with_suffix(".cdx.json").read_bytes())["components"]
            if "pypi" in row["purl"]
        }
        for path in (addon_file, zip_file)
    )
    assert names == {"obstore", "pyrage", "typing-extensions"}
    assert not names & others
    assert call("sh", addon_file).code == 2


def test_sizes(zip_file: Path) -> None:
    """Each is below 8 MB, and the zip has become none of them."""
    for name in ("archive", "kafka"):
        assert 1e6 < zip_file.with_name(f"{zip_file.stem}-{name}.zip").stat().st_size < 8e6
    with zipfile.ZipFile(zip_file) as file:
        assert not [name for name in file.namelist() if "obstore" in name]


def test_with_one_from_the_start(place: Place, beside: Path) -> None:
    """A first installation with an add-on: by its name, which is that of the file beside the zip; again, it changes
    nothing; and `vedette version` names it."""
    done = place.install(beside, "--with", "archive")
    assert done.code == 0, done.text
    assert "with the add-on archive" in done.text
    assert version(place).endswith(" with archive")
    assert addons(place) == ["archive"]
    again = place.install(beside)
    assert again.code == 0, again.text
    assert "nothing changed" in again.text


@pytest.mark.long
def test_added_later(ready: Place, beside: Path, addon_file: Path) -> None:
    """By the installed release's own script and the add-on's path alone; uninstalled, nothing of it is left."""
    assert " with " not in version(ready)
    done = call("sh", ready.prefix / CURRENT, "--no-systemd", "--prefix", ready.prefix, "--with", addon_file)
    assert done.code == 0, done.text
    assert version(ready).endswith(" with archive")
    assert ready.sh(beside, "--uninstall").code == 0
    assert not ready.prefix.exists()


@pytest.mark.long
def test_two_at_once(ready: Place, zip_file: Path) -> None:
    done = ready.sh(zip_file, "--with", "archive,kafka")
    assert done.code == 0, done.text
    assert version(ready).endswith(" with archive, kafka")
    kafka = '[[input]]\nname = "k"\ntype = "kafka"\nbrokers = ["h:9092"]\ntopics = ["t"]\ngroup = "g"\n'
    assert "confluent-kafka" not in check(ready, kafka).text


@pytest.mark.parametrize("settings", [
    '[archive]\nurl = "s3://bucket/prefix"', f'[archive]\nurl = "/mnt/archive"\nrecipient = "age1{"q" * 58}"',
])  # fmt: skip
def test_check_says_what_to_run(extended: Place, beside: Path, settings: str) -> None:
    """Without the add-on `vedette check` names the command that brings it; with it there is nothing to say."""
    assert " needs " not in check(extended, settings).text
    assert "install.sh --with" not in check(extended, settings).text
    done = extended.sh(beside, "--without", "archive")
    assert done.code == 0, done.text
    assert addons(extended) == []
    lacking = check(extended, settings)
    assert lacking.code == 1, lacking.text
    assert f"sh {extended.prefix}/{CURRENT} --with FOLDER/{beside.stem}-archive.zip" in lacking.text
    assert check(extended, '[archive]\nurl = "/mnt/archive"').code == 0


@pytest.mark.peer
def test_an_object_store(extended: Place, tmp_path: Path) -> None:
    """The installed agent archives to a real S3 server, and finds a line there that it has no more itself."""
    port = own_port()
    with s3.s3(tmp_path / "s3") as store:
        text = extended.config.read_text().replace("127.0.0.1:514", f"127.0.0.1:{port}")
        text = text.replace('"/var/log/', f'"{extended.folder}/')
        for line in ('max_bytes = "10GiB"', "[archive]\n"):
            assert line in text
        text = text.replace("[archive]\n", f'[archive]\nurl = "s3://{s3.BUCKET}/p"\noptions_file = "{store.options}"\n')
        text = text.replace('#max_bytes = "10GiB"', 'max_bytes = "1MiB"')  # whose quarter is a segment
        extended.config.write_text(text)
        assert "--with" not in call(extended.vedette, "check", "-c", extended.config).text
        lines = extended.folder / "lines"
        lines.write_text("".join(f"line {i} {os.urandom(300).hex()}\n" for i in range(3000)))
        with running(extended):
            done = call("logger", "--server", "127.0.0.1", "--port", str(port), "--tcp", "--tag", "demo", "-f", lines)
            assert done.code == 0, done.text

            def status() -> dict[str, object]:
                answer = json.loads(call(extended.vedette, "status", "-c", extended.config, "--json").text)
                assert answer["addons"] == ["archive"]
                return dict(answer["archive"])

            until("two segments in the archive", lambda: int(str(status()["segments"])) >= 2)
            assert "  with archive" in call(extended.vedette, "status", "-c", extended.config).text
        assert {verb for verb, _ in store.proxy.requests} >= {"PUT", "HEAD"}
        rows = call(extended.vedette, "archive", "list", "-c", extended.config).text.splitlines()
        assert len(rows) >= 2
        assert call(extended.vedette, "archive", "verify", "-c", extended.config).code == 0


def refused(place: Place, release: Path, *options: str | Path, code: int, said: str) -> None:
    """The run ends so, and everything is as it was."""
    before = place.tree()
    done = place.sh(release, *options)
    assert done.code == code, done.text
    assert said in done.text
    after = place.tree()
    for changing in ("opt", "opt/install.log", "opt/releases", f"opt/releases/{place.current()}"):
        after[changing] = before.get(changing, after.get(changing))  # type: ignore[arg-type]
    assert {name: row for name, row in after.items() if row is not None} == before


@pytest.mark.long
def test_none_there(ready: Place, zip_file: Path, tmp_path: Path) -> None:
    """What says which file is wanted, and where."""
    (tmp_path / zip_file.name).hardlink_to(zip_file)
    wanted = f"{zip_file.stem}-archive.zip is not beside {tmp_path / zip_file.name}: put it there"
    refused(ready, tmp_path / zip_file.name, "--with", "archive", code=18, said=wanted)
    refused(ready, zip_file, "--with", tmp_path / "x.zip", code=18, said="there is no file")
    for wrong in ("Archive", "archive,,kafka", "", "0x"):
        refused(ready, zip_file, "--with", wrong, code=2, said="expects names")
    refused(ready, zip_file, "--rollback", "--with", "archive", code=2, said="--with and --without do not go")


@pytest.mark.long
def test_of_another_release(
    ready: Place, zip_file: Path, addon_file: Path, variant: Variant, release_key: Path
) -> None:
    """Of another version, or of another build of the same one, though the same key has signed it."""
    for number in ("9.0.0", __version__):
        other = add_on(addon_file, variant("other", {"note": b"x"}, version=number), release_key)
        refused(ready, zip_file, "--with", other, code=18, said=f"is for release {number}-")
        assert f"and this is {ready.current()}: take" in ready.sh(zip_file, "--with", other).text


@pytest.mark.long
def test_of_another_architecture(
    ready: Place, zip_file: Path, addon_file: Path, tmp_path: Path, release_key: Path
) -> None:
    (tmp_path / zip_file.name).hardlink_to(zip_file)
    other = add_on(addon_file, tmp_path / zip_file.name, release_key, arch="aarch64")
    refused(ready, zip_file, "--with", other, code=11, said="is for aarch64, and this release for x86_64")


@pytest.mark.long
def test_signed_by_others(ready: Place, zip_file: Path, addon_file: Path, tmp_path: Path) -> None:
    """Refused by the key of the release, on an installed host and at a first installation, which leaves nothing."""
    keygen(tmp_path / "other.pem")
    (tmp_path / zip_file.name).hardlink_to(zip_file)
    other = add_on(addon_file, tmp_path / zip_file.name, tmp_path / "other.pem")
    refused(ready, zip_file, "--with", other, code=21, said="is not signed by ed25519:")
    first = Place(ready.folder / "first")
    done = first.install(zip_file, "--with", other)
    assert done.code == 21, done.text
    assert [path.name for path in first.folder.rglob("*")] == ["opt", "install.log"]


@pytest.mark.long
@pytest.mark.parametrize("torn", ["end", "half", "stub", "empty", "byte", "text"])
def test_a_torn_file(ready: Place, zip_file: Path, addon_file: Path, tmp_path: Path, torn: str) -> None:
    """Wherever it ends, or one byte is another: damaged, before anything is written."""
    data = addon_file.read_bytes()
    at = data.index(b"ADDON.sig", 4096) + 5000
    damaged = {
        "end": data[: data.rindex(b"PK\1\2") - 5000], "half": data[: len(data) // 2], "stub": data[:2000], "empty": b"",
        "byte": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "text": b"no add-on\n" * 1000,
    }[torn]  # fmt: skip
    path = tmp_path / "torn.zip"
    path.write_bytes(damaged)
    refused(ready, zip_file, "--with", path, code=20, said="damaged")


@pytest.mark.long
def test_upgrade_and_back(extended: Place, addon_file: Path, variant: Variant, release_key: Path) -> None:
    """An upgrade needs the new release's add-on, and changes nothing without; it takes it from beside the new zip;
    a rollback brings back the old release with the old add-on. Without it one goes on only when one says so."""
    newer = variant("newer", version="9.0.0")
    wanted = newer.with_name("vedette-9.0.0-linux-x86_64-archive.zip")
    wanted.unlink(missing_ok=True)
    refused(
        extended, newer, "--upgrade", code=18, said=f"has the add-on archive, and {wanted.name} is not beside {newer}"
    )
    first = extended.current()
    add_on(addon_file, newer, release_key)
    done = extended.sh(newer, "--upgrade")
    assert done.code == 0, done.text
    assert extended.current().startswith("9.0.0-")
    assert addons(extended) == addons(extended, "previous") == ["archive"]
    assert f"release={extended.current()}\n" in (extended.prefix / "current/addons/archive/ADDON").read_text()
    assert version(extended).endswith(" with archive")
    done = call("sh", extended.prefix / CURRENT, "--no-systemd", "--prefix", extended.prefix, "--rollback")
    assert done.code == 0, done.text
    assert extended.current() == first
    assert version(extended).endswith(" with archive")
    done = extended.sh(variant("bare", version="9.1.0"), "--without", "archive")
    assert done.code == 0, done.text
    assert addons(extended) == []
    assert addons(extended, "previous") == ["archive"]


def test_an_upgrade_that_fails(extended: Place, addon_file: Path, variant: Variant, release_key: Path) -> None:
    """A release that does not take the configuration, or an add-on that does not run: what was there runs on, with its
    own."""
    first = extended.current()
    newer = variant("newer2", version="9.2.0")
    add_on(addon_file, newer, release_key, modules="obstore.store,no_such_module")
    done = extended.sh(newer)
    assert done.code == 30, done.text
    assert "no_such_module" in done.text
    add_on(addon_file, newer, release_key)
    good = extended.config.read_text()
    extended.config.write_text("[agent]\nunknown_key = 1\n")
    assert extended.sh(newer).code == 31
    extended.config.write_text(good)
    assert extended.current() == first
    assert [path.name for path in (extended.prefix / "releases").iterdir()] == [first]
    assert version(extended).endswith(" with archive")


@pytest.mark.long
def test_a_run_that_fails_puts_back_what_it_took(extended: Place, beside: Path) -> None:
    """--without, and then the configuration is not taken: the add-on is there as before."""
    good = extended.config.read_text()
    extended.config.write_text("[agent]\nunknown_key = 1\n")
    assert extended.sh(beside, "--without", "archive").code == 31
    extended.config.write_text(good)
    assert addons(extended) == ["archive"]
    assert version(extended).endswith(" with archive")


@pytest.mark.long
def test_damaged_on_the_disk(extended: Place, beside: Path) -> None:
    """A file of the add-on that was changed is put back; where one of the release is, the add-on stays."""
    path = extended.prefix / "current/addons/archive/packages/obstore/__init__.py"
    whole = path.read_bytes()
    path.write_bytes(b"raise SystemExit(3)\n")
    assert extended.sh(beside).code == 0
    assert path.read_bytes() == whole
    (extended.prefix / "current/launch.py").write_text("raise SystemExit(3)\n")
    assert extended.sh(beside).code == 0
    assert version(extended).endswith(" with archive")


@pytest.mark.long
def test_after_a_kill(extended: Place, zip_file: Path, tmp_path: Path) -> None:
    """What a run that was killed has left half unpacked goes; what it was taking out is put back, without its file."""
    folder = extended.prefix / "current/addons"
    (folder / "archive").rename(folder / ".gone.archive")
    (folder / ".new.4711").mkdir()
    (tmp_path / "alone.zip").hardlink_to(zip_file)
    done = extended.sh(tmp_path / "alone.zip")
    assert done.code == 0, done.text
    assert addons(extended) == ["archive"]
    assert version(extended).endswith(" with archive")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A root folder with busybox, and flock, which Debian's has not: no Python, no unzip, no OpenSSL, no network."""
    busybox, flock = shutil.which("busybox"), shutil.which("flock")
    if busybox is None or flock is None:
        pytest.skip("no busybox here: sh tools/packages.sh tests")
    root = tmp_path / "root"
    for folder in ("bin", "proc", "tmp", "root", "dev"):
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    shutil.copy(flock, root / "bin/flock")
    for program in (busybox, flock):
        for word in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split():
            if word.startswith("/") and not (root / word.lstrip("/")).exists():
                (root / word.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, root / word.lstrip("/"))
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if not (root / "bin" / name).exists() and name not in ("unzip", "wget"):
            (root / "bin" / name).symlink_to("busybox")
    return root


@pytest.mark.long
def test_with_nothing_but_busybox(bare: Path, beside: Path, addon_file: Path, variant: Variant, release_key: Path,
                                  tmp_path: Path) -> None:  # fmt: skip
    """Installed, upgraded, rolled back and removed, with its add-on, offline."""
    newer = variant("busybox", version="9.3.0")
    for path in (beside, addon_file, newer, add_on(addon_file, newer, release_key)):
        shutil.copy(path, bare / "root" / path.name)
    script = f"""
        mount --bind "$1" "$1" && mount --rbind /proc "$1/proc" && mount --rbind /dev "$1/dev" || exit 99
        exec chroot "$1" /bin/sh -euc '
            export PATH=/bin
            cd /root
            ! command -v python3 && ! command -v unzip && ! command -v openssl || exit 98
            sh {beside.name} --no-systemd --with archive
            /opt/vedette/current/bin/vedette version
            sh {newer.name} --no-systemd --upgrade
            /opt/vedette/current/bin/vedette version
            sh /opt/vedette/current/install.sh --no-systemd --rollback
            /opt/vedette/current/bin/vedette version
            sh /opt/vedette/current/install.sh --no-systemd --uninstall --purge
            ! ls /opt/vedette
        '
    """
    done = call(*alone(), "--net", "sh", "-c", script, "sh", bare)
    assert done.code == 0, done.text
    assert done.text.count(" with archive\n") == 3, done.text
    assert "rolled back from 9.3.0-" in done.text
