"""``vedette bundle rollback`` where something is in its way: what it reports is what happened."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.bundle.conftest import CHANNEL, CREATED, FLEET, Author
from tests.looptime import forward
from vedette.bundle.install import BundleDir
from vedette.cli import bundle as cli_bundle
from vedette.cli.main import main
from vedette.runtime.agent import control
from vedette.runtime.agent.control import Control
from vedette.store.store import own


class Host:
    """A data folder with three bundles, and no agent yet."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        author = Author(folder / "author.pem")
        self.config = folder / "vedette.toml"
        self.config.write_text(
            f'[agent]\ndata_dir = "{self.data}"\n[bundles]\ntrusted_keys = ["{author.public}"]\n'
            '[[input]]\ntype = "file"\nname = "f"\npaths = ["/x"]\n'
        )
        self.bundles = BundleDir(
            self.data / "bundles", [author.public], fleet=FLEET, channel=CHANNEL,
            agent_version="0.1.0", clock=lambda: CREATED,
        )  # fmt: skip
        for version in (1, 2, 3):
            self.bundles.install(author.bundle(version), lambda bundle: bundle)

    def rollback(self, *arguments: object) -> Result:
        return CliRunner().invoke(main, ["bundle", "rollback", "-c", str(self.config), *map(str, arguments)])

    def links(self) -> list[str | None]:
        return [path and path.name[:1] for path in (self.bundles.current(), self.bundles.previous())]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def served(host: Host, command: Any, work: Any) -> Any:
    """What ``work`` gives in a thread while ``command`` answers rollbacks."""

    async def run() -> Any:
        control = Control(host.data / "control.sock", {"rollback": command})
        await control.start()
        try:
            return await asyncio.to_thread(work)
        finally:
            await control.stop()

    return asyncio.run(run())


def test_an_agent_that_is_busy_is_waited_for(host: Host) -> None:
    """An answer that takes longer than a request may is the command's answer, and the agent was asked once, for the
    version that was current."""
    asked = []

    async def rollback(version: int | None = None) -> Any:
        asked.append(version)
        forward(asyncio.get_running_loop(), 2 * control.SECONDS)
        for _ in range(3):
            await asyncio.sleep(0)  # what is due comes first
        return {"bundle": "starter-2", "withdrawn": 3, "done": True}

    done = served(host, rollback, host.rollback)
    assert (done.exit_code, done.output) == (0, "starter-2 is current; no other bundle up to version 3 is accepted\n")
    assert asked == [3]


def test_no_answer_in_time_changes_nothing_twice(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that does not answer is not passed by: the disk is left alone, and the command says how to run it again
    so that it goes back once."""
    monkeypatch.setattr(cli_bundle, "ROLLBACK_SECONDS", 0.3)
    free = threading.Event()

    async def rollback(version: int | None = None) -> Any:
        await asyncio.to_thread(free.wait)
        raise ValueError("too late")

    def work() -> Result:
        try:
            return host.rollback()
        finally:
            free.set()

    done = served(host, rollback, work)
    assert done.exit_code == 2
    assert "no agent answers within 0.3 s" in done.output
    assert f"vedette bundle rollback -c {host.config} --from 3" in done.output
    assert host.links() == ["3", "2"]


def test_a_repeat_does_nothing(host: Host) -> None:
    """``--from`` a version that was gone back from says so and changes nothing; from one that is not current it is
    refused."""
    (host.data / "store").mkdir()
    host.bundles.rollback(lambda bundle: bundle)
    before = host.links()
    done = host.rollback("--from", 3)
    assert done.exit_code == 0
    assert done.output.startswith("nothing to do, version 3 was rolled back before: version 2 is current")
    for version in (1, 4):
        refused = host.rollback("--from", version)
        assert refused.exit_code == 2
        assert f"version 2 is current, not {version}" in refused.output
    assert host.links() == before == ["2", "1"]


def test_before_the_first_start(host: Host) -> None:
    """Where no agent has run there is nothing to go back from, and no folder is made that its user could not open."""
    done = host.rollback()
    assert done.exit_code == 2
    assert f"{host.data / 'store'}: the agent has not run here yet" in done.output
    assert "start it first" in done.output
    assert not (host.data / "store").exists()
    assert host.links() == ["3", "2"]


def test_the_agent_that_starts_is_not_passed_by(host: Host) -> None:
    """While an agent holds the store and does not listen yet, nothing is changed."""
    import os

    owner = own(host.data / "store")
    try:
        done = host.rollback()
    finally:
        os.close(owner)
    assert done.exit_code == 2
    assert "another agent runs with this data_dir" in done.output
    assert host.links() == ["3", "2"]
