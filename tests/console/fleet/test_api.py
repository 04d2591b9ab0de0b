"""The fleet's side through the API with a broker that is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.fleet.kit import Region
from tests.console.kit import Console, console
from tests.fleet.kit import desired, group
from tests.waits import until

pytestmark = pytest.mark.peer
GETS = ("/fleet", "/rollouts", "/rollouts/proposals", "/hunts", "/backtests", "/evidence?alert=a-1")
API = "/api/v1"


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    region = Region(tmp_path / "region", desired(1, group("vienna", "site = vienna"), group("rest")))
    region.broker.start()
    yield region
    region.broker.kill()


@pytest.fixture
def served(region: Region, tmp_path: Path) -> Iterator[Console]:
    folder = region.folder
    with console(
        tmp_path, broker=region.settings, trust=folder / "trust", requests=folder / "requests", operator="otto",
        evidence=folder / "evidence", operator_key=folder / "otto.pem", authorities=folder / "ca.pem",
    ) as served:  # fmt: skip
        yield served


def test_a_broker_that_is_away(served: Console, region: Region) -> None:
    """Every page is there, and says so."""
    region.broker.kill()
    client = served.as_user("ada", "admin")
    link: dict[str, Any] = {}
    until("the outage", lambda: link.update(client.get(f"{API}/fleet").json()["link"]) or link["state"] == "away")
    assert link["reason"]
    for path in GETS:
        assert client.get(API + path).status_code == 200
    assert client.get(f"{API}/hunts/{'0' * 32}").status_code == 404
    assert client.get(f"{API}/fleet?after=x").status_code in (400, 422)
