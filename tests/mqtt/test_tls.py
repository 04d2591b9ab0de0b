"""Who may reach a private key: its owner, and within a systemd credentials directory a group that only the unit has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.certificates import Authority
from vedette.mqtt.tls import client_context


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Certificate and key in ``credentials``, as systemd leaves them: files 0440, the folder 0550."""
    cert, key = Authority(tmp_path / "authority").issue("agent")
    folder = tmp_path / "credentials"
    folder.mkdir()
    moved = shutil.copy(cert, folder / "agent.pem"), shutil.copy(key, folder / "agent.key")
    for path in moved:
        path.chmod(0o440)
    folder.chmod(0o550)
    return moved


def test_a_credential_may_be_its_groups(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of mode 0440 is taken in the unit's credentials directory, also through a link; 0400 as everywhere."""
    cert, key = files
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(key.parent))
    client_context(None, cert, key)
    link = key.parent.with_name("agent.key")
    link.symlink_to(key)
    client_context(None, cert, link)
    key.chmod(0o400)
    client_context(None, cert, key)


@pytest.mark.parametrize("directory", ["", ".", "elsewhere", "above", "unset"])
def test_elsewhere_it_is_refused(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    """The same key is refused where no credentials directory is named, or another one, or only a folder above."""
    cert, key = files
    named = {"elsewhere": str(tmp_path / "authority"), "above": str(tmp_path)}.get(directory, directory)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", named)
    if directory == "unset":
        monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    monkeypatch.chdir(key.parent)
    with pytest.raises(PermissionError, match=rf"others may reach .*0440.*chmod 600 {key}"):
        client_context(None, cert, key)


@pytest.mark.parametrize(("mode", "folder"), [(0o444, 0o550), (0o460, 0o550), (0o440, 0o555), (0o440, 0o570)])
def test_an_open_credential_is_refused(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, mode: int, folder: int
) -> None:
    """A key or a credentials directory that others may read, or the group may write, is no credential."""
    cert, key = files
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(key.parent))
    key.chmod(mode)
    key.parent.chmod(folder)
    with pytest.raises(PermissionError, match=f"{mode:04o}"):
        client_context(None, cert, key)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user, which only root may")
@pytest.mark.parametrize("whose", ["key", "folder"])
def test_a_credential_of_another_user_is_refused(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Who else owns the key or the directory could change it."""
    cert, key = files
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(key.parent))
    os.chown(key if whose == "key" else key.parent, 65534, 0)
    with pytest.raises(PermissionError, match="0440"):
        client_context(None, cert, key)
