"""An upgrade from a release of an older commit, which VEDETTE_BEFORE names, and back.

Its zip is built by its own recipe, with the keys of the tests, and installed with its own configuration; its agent
takes logs in. The release of these sources then goes on with all of that, and after a rollback the older one does.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.broker import own_port
from tests.install.conftest import ROOT, RULE_ID, Inputs, Place, call, dist, one_at_a_time
from tests.install.test_agent import running
from tests.waits import until

BEFORE = os.environ.get("VEDETTE_BEFORE", "")
pytestmark = [
    pytest.mark.install,
    pytest.mark.peer,
    pytest.mark.skipif(not BEFORE, reason="VEDETTE_BEFORE names no commit"),
]


@pytest.fixture
def older(inputs: Inputs, tmp_path: Path) -> Path:
    """The zip of the older commit."""
    folder = inputs.folder / f"before-{BEFORE}"
    with one_at_a_time():
        if not folder.exists():
            subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
            subprocess.run(["git", "checkout", "--quiet", BEFORE], cwd=tmp_path / "clone", check=True)
            dist(folder, inputs, "--arch", "x86_64", root=tmp_path / "clone")
    (path,) = folder.glob("vedette-*-linux-x86_64.zip")
    return path


def send(place: Place, port: int, message: str) -> None:
    """A line by syslog, which is then in the raw log."""
    done = call("logger", "--server", "127.0.0.1", "--port", str(port), "--tcp", "--tag", "demo", message)
    assert done.code == 0, done.text
    until(f"{message} in the raw log", lambda: message in stored(place))


def stored(place: Place) -> str:
    """The lines in the raw log that the tests have sent."""
    return call(place.vedette, "logs", "search", "-c", place.config, "landed-test").text


def alerts(place: Place) -> int:
    return call(place.vedette, "alerts", "-c", place.config, "--json").text.count(RULE_ID)


def test_there_and_back(older: Path, zip_file: Path, place: Place) -> None:
    """Configuration, raw logs, alerts and what an operator wrote stay over the upgrade and over the rollback, and each
    release works on what the other has left."""
    done = place.install(older)
    assert done.code == 0, done.text
    first, port = place.current(), own_port()
    text = place.config.read_text().replace("127.0.0.1:514", f"127.0.0.1:{port}")
    own = re.sub(r'"/var/log/', f'"{place.folder}/', text).replace('#site = "default"', 'site = "vienna"')
    place.config.write_text(own)
    with running(place):
        send(place, port, "landed-test one install-test-marker")
        until("its alert", lambda: alerts(place) == 1)

    done = place.install(zip_file, "--upgrade", "--allow-downgrade")
    assert done.code == 0, done.text
    assert place.current() != first
    assert place.config.read_text() == own
    with running(place):
        assert "landed-test one" in stored(place)
        send(place, port, "landed-test two install-test-marker")
        until("both alerts", lambda: alerts(place) == 2)

    done = call("sh", place.prefix / "current/install.sh", "--rollback")
    assert done.code == 0, done.text
    assert place.current() == first
    assert place.config.read_text() == own
    with running(place):
        send(place, port, "landed-test three install-test-marker")
        until("all alerts", lambda: alerts(place) == 3)
        assert stored(place).count("install-test-marker") == 3
