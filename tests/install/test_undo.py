"""What fails or is interrupted leaves the host as it was: on a host of stand-ins, see ``stubbed``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.install.stubbed import Stubbed

pytestmark = pytest.mark.install

CURRENT = "/opt/vedette/current"


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release 1 is installed and runs. To be copied."""
    host = Stubbed(tmp_path_factory.mktemp("first"))
    done = host.run(host.release("1"))
    assert done.code == 0, done.text
    assert host.state("vedette.service")
    host.calls()
    return host.folder


@pytest.fixture
def host(first: Path, tmp_path: Path) -> Stubbed:
    """A host on which release 1 is installed and runs."""
    shutil.copytree(first, tmp_path / "host", symlinks=True)
    return Stubbed(tmp_path / "host")


def test_another_address_that_cannot_be_opened(host: Stubbed) -> None:
    """Moved to an address that this host does not have: every file is as before, the key that was given, too, and the
    agent takes syslog where it did."""
    before = host.files()
    config = host.config.read_text()
    host.config.write_text(config.replace("127.0.0.1:514", "10.9.9.9:514"))
    key = "ed25519:" + "B" * 43 + "="
    done = host.run(host.release("2"), "--listen", "10.9.9.9:514", "--release-key", key)
    host.config.write_text(config)
    assert done.code == 32, done.text
    assert "the sockets for 10.9.9.9:514 cannot be opened" in done.text
    assert "runs again" in done.text
    assert host.files() == before
    assert host.state("vedette-udp.socket") == host.state("vedette-tcp.socket") == "127.0.0.1:514"
    assert host.state("vedette.service")


def test_an_address_that_the_configuration_does_not_name(host: Stubbed) -> None:
    """--listen with a vedette.toml that names another address is refused before anything is done, as the agent would
    find no socket there; written there first, it moves, and may be given again."""
    before = host.files()
    done = host.run(CURRENT, "--listen", "127.0.0.2:514")
    assert done.code == 2, done.text
    assert "does not name 127.0.0.2:514" in done.text
    assert host.files() == before
    assert host.calls() == ["--version"]
    host.config.write_text(host.config.read_text().replace("127.0.0.1:514", "127.0.0.2:514"))
    for _ in range(2):
        done = host.run(CURRENT, "--listen", "127.0.0.2:514")
        assert done.code == 0, done.text
        assert host.state("vedette-udp.socket") == host.state("vedette-tcp.socket") == "127.0.0.2:514"
        assert host.state("vedette.service")
