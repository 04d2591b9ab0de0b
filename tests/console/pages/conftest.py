"""Consoles whose pages are looked at: over ordinary tables, over an attacker's, and with nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.kit import Console, console
from tests.console.pages import region
from tests.console.pages.fleet import Answers
from tests.console.pages.rows import HOSTILE, Words
from vedette_console.security.principal import Grant, Role


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A region's ordinary day."""
    yield from _over(tmp_path_factory.mktemp("plain"), hostile=False)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """The same, with markup and script in every text that a log, a rule or a label brings."""
    yield from _over(tmp_path_factory.mktemp("hostile"), hostile=True)


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """No table, no broker."""
    with console(tmp_path_factory.mktemp("nothing")) as served:
        yield served


def _over(folder: Path, hostile: bool) -> Iterator[Console]:
    region.write(folder / "tables", region.now(), hostile)
    words = Words(HOSTILE if hostile else ())
    with console(folder, reports=folder / "reports") as served:
        served.app.state.fleet = Answers(hostile)
        store = served.store
        store.searches.save("root", words("Reverse shells"), words("level:critical since:7d"))
        store.tokens.add("root", words("export to the archive"), (Grant(Role.VIEWER),))
        store.audit.add(
            "root", "triage", {"finding": words("c0"), words("reason"): words("a scanner")}, address="192.0.2.1"
        )
        yield served
