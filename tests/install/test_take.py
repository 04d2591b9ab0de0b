"""``take.py``: what root takes out of a folder that is the agent's, who may be in wrong hands."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.install.conftest import ROOT, sha256
from vedette.region.sign import keygen, load_key

pytestmark = pytest.mark.install


class Asked(NamedTuple):
    upgrade: Path
    folder: Path
    key: str
    id: str

    def take(self) -> subprocess.CompletedProcess[str]:
        self.folder.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, ROOT / "packaging/take.py", self.upgrade, self.folder, self.key],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def ask(self, addons: str = "", **bent: str) -> None:
        name = f"{self.id}.zip"
        lines = {"id": self.id, "nonce": "0" * 16, "zip": name, "sha256": sha256((self.upgrade / name).read_bytes()),
                 "within": "60"} | bent  # fmt: skip
        (self.upgrade / "request").write_text("".join(f"{key}={value}\n" for key, value in lines.items()) + addons)


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """A signed release, fetched and asked for."""
    key = keygen(tmp_path / "key.pem")
    parts = {name: name.encode() for name in ("install.sh", "payload.tar.gz", "release.pub")}
    parts["RELEASE"] = b"version=0.2.0\narch=x86_64\nunpacked_kib=1\n"
    sums = "".join(f"{sha256(data)}  {name}\n" for name, data in parts.items()).encode()
    parts |= {"SHA256SUMS": sums, "SHA256SUMS.sig": base64.b64encode(load_key(tmp_path / "key.pem").sign(sums))}
    request = Asked(tmp_path / "upgrade", tmp_path / "staged", key, f"0.2.0-{sha256(sums)[:12]}")
    request.upgrade.mkdir()
    write(request, parts)
    request.ask()
    return request


def write(asked: Asked, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(asked.upgrade / f"{asked.id}.zip", "w") as file:
        for name, data in parts.items():
            file.writestr(f"vedette/{name}", data)


def parts_of(asked: Asked) -> dict[str, bytes]:
    with zipfile.ZipFile(asked.upgrade / f"{asked.id}.zip") as file:
        return {name.removeprefix("vedette/"): file.read(name) for name in file.namelist()}


def test_taken(asked: Asked) -> None:
    """The parts, and what was asked; nothing else."""
    done = asked.take()
    assert done.returncode == 0, done.stderr
    assert {path.name for path in asked.folder.iterdir()} == {*parts_of(asked), "request"}
    assert (asked.folder / "request").read_text() == f"id={asked.id}\nwithin=60\n"


def test_add_ons(asked: Asked) -> None:
    """Those that were asked for, under the names by which the release finds them; what is another file, or no plain
    one, is refused."""
    (asked.upgrade / f"{asked.id}-archive.zip").write_bytes(b"an add-on")
    asked.ask(f"addon=archive {sha256(b'an add-on')}\n")
    done = asked.take()
    assert done.returncode == 0, done.stderr
    assert (asked.folder / "vedette-0.2.0-linux-x86_64-archive.zip").read_bytes() == b"an add-on"
    for wrong, reason in (
        (f"addon=archive {'ab' * 32}\n", "the add-on archive of"),
        (f"addon=kafka {'ab' * 32}\n", "No such file"),
        (f"addon=../x {'ab' * 32}\n", "not a request"),
    ):
        shutil.rmtree(asked.folder)
        asked.ask(wrong)
        done = asked.take()
        assert done.returncode == 1
        assert reason in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("bent", "reason"),
    [
        ({"id": "../../x-0123456789ab"}, "not a request"),
        ({"zip": "../x.zip"}, "not a request"),
        ({"within": "0"}, "not a request"),
        ({"within": "60\nwithin=7"}, "not a request"),
        ({"sha256": "ab" * 32}, "not the file that was asked for"),
        ({"id": "0.3.0-0123456789ab"}, "and not 0.3.0-0123456789ab"),
    ],
)
def test_requests_that_are_none(asked: Asked, bent: dict[str, str], reason: str) -> None:
    asked.ask(**bent)
    done = asked.take()
    assert done.returncode == 1
    assert reason in done.stderr


@pytest.mark.parametrize("what", ["payload.tar.gz", "install.sh", "SHA256SUMS"])
def test_a_changed_part(asked: Asked, what: str) -> None:
    parts = parts_of(asked)
    write(asked, parts | {what: parts[what] + b"\n"})
    asked.ask()
    done = asked.take()
    assert done.returncode == 1
    assert "not what SHA256SUMS says" in done.stderr or "not signed by" in done.stderr


@pytest.mark.parametrize("name", ["site.tar", "../../evil"])
def test_other_parts(asked: Asked, name: str) -> None:
    """A site's part, or a name that leads elsewhere, is none of a release's."""
    write(asked, parts_of(asked) | {name: b"x"})
    asked.ask()
    done = asked.take()
    assert done.returncode == 1
    assert "other parts than a release" in done.stderr


def test_links_and_pipes(asked: Asked, tmp_path: Path) -> None:
    """A link out of the folder, or a pipe that never ends, is not read."""
    name = asked.upgrade / f"{asked.id}.zip"
    name.rename(tmp_path / "elsewhere.zip")
    name.symlink_to(tmp_path / "elsewhere.zip")
    assert asked.take().returncode == 1
    name.unlink()
    os.mkfifo(name)
    done = asked.take()
    assert done.returncode == 1
    assert "no plain file" in done.stderr
    assert {path.name for path in asked.folder.iterdir()} <= {"release.zip"}
    linked = asked._replace(upgrade=tmp_path / "linked")
    linked.upgrade.symlink_to(asked.upgrade)
    assert linked.take().returncode == 1
