"""Publishing bundles over a real mosquitto."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.broker import Broker
from tests.bundle.conftest import CREATED, Author
from tests.delivery.kit import block
from tests.fleet.kit import Centre, desired, group, target
from tests.mqtt.kit import connected
from tests.waits import eventually
from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import verify
from vedette.fleet.documents import Change
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.region import publish as module
from vedette.region.publish import publish, ruled

pytestmark = pytest.mark.peer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETAINED_SECONDS", 0.2)


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path / "author.pem")


@asynccontextmanager
async def agent(broker: Broker, name: str) -> AsyncIterator[dict[str, bytes]]:
    """What a client that subscribes now has of the fleet's bundles topics, by topic."""
    have: dict[str, bytes] = {}

    def take(message: Message) -> None:
        have[message.topic.removeprefix("vedette/v1/f1/bundles/stable/")] = message.payload

    async with connected(broker.url, name, subscriptions=["vedette/v1/f1/bundles/#"], on_message=take):
        yield have


async def everything(broker: Broker, have: dict[str, bytes]) -> None:
    """Until what the broker retains has come: what is published now comes after it."""
    async with connected(broker.url, "last") as client:
        await client.publish("vedette/v1/f1/bundles/stable/last", b"")
    await eventually("what comes last", lambda: "last" in have)
    del have["last"]


async def test_publish_and_replace(broker: Broker, author: Author, tmp_path: Path) -> None:
    """Agents present and later get blob and manifest; a newer bundle replaces both and clears the old blob."""
    first, second = author.bundle(1), author.bundle(2)
    settings = MqttSettings(url=broker.url)
    landing = tmp_path / "landing"
    async with agent(broker, "early") as have:
        done = await publish(settings, first, fleet="f1", trusted=[author.public], landing=landing)
        await eventually("both messages", lambda: len(have) == 2)
        assert have[f"blobs/{done.sha256}"] == first
        manifest = json.loads(have["manifest"])
        assert manifest == {
            "version": 1,
            "sha256": done.sha256,
            "size": len(first),
            "created": "2030-03-17T17:46:40Z",
            "expires": "2030-04-16T17:46:40Z",
            "replaced": None,
        }
        assert verify(have[f"blobs/{manifest['sha256']}"], [author.public], "0.1.0").version == 1
        again = await publish(settings, first, fleet="f1")
        assert again == done
        newer = await publish(settings, second, fleet="f1", landing=landing)
        assert newer.replaced == done.sha256
        await eventually("the old blob to go", lambda: have[f"blobs/{done.sha256}"] == b"")
    async with agent(broker, "late") as have:
        await eventually("both messages", lambda: len(have) == 2)
        assert set(have) == {"manifest", f"blobs/{newer.sha256}"}
        assert json.loads(have["manifest"])["version"] == 2
    assert sorted(path.name for path in (landing / "rules").iterdir()) == ["1.json", "2.json"]
    document = json.loads((landing / "rules" / "1.json").read_text())
    assert document["rules"] == [{"id": "r1", "title": "a rule", "level": "high"}]
    assert document["version"] == 1
    assert not list((landing / "rules").glob(".*"))


def test_rule_lists_of_a_fleet_land_too(author: Author, tmp_path: Path) -> None:
    """Of each bundle that the document in force names, one list, in which the Spark jobs find what is deployed."""
    centre, bundles = Centre(tmp_path / "centre"), [author.bundle(n) for n in (1, 2)]
    targets = [target(f"bundles/{n}.vbundle", data, n) for n, data in enumerate(bundles, 1)]
    groups = (group(f"g{n}", bundles={"default": Change(f"c{n}", to)}) for n, to in enumerate(targets))
    files = {to.target: data for to, data in zip(targets, bundles, strict=True)}
    centre.publish(desired(1, *groups), files)
    for _ in range(2):
        assert ruled(centre.repository.folder, centre.repository.desired(), tmp_path / "landing") == 2
    lists = [json.loads(path.read_text()) for path in (tmp_path / "landing" / "rules").iterdir()]
    assert sorted(each["version"] for each in lists) == [1, 2]
    assert all(each["rules"] == [{"id": "r1", "title": "a rule", "level": "high"}] for each in lists)


@pytest.mark.parametrize(("step", "again"), [(1, 2), (2, 2), (3, 2), (1, 3), (3, 3)])
def test_killed_between_two_steps(
    broker: Broker, author: Author, monkeypatch: pytest.MonkeyPatch, step: int, again: int
) -> None:
    """Wherever publishing is killed, publishing the same bundle again, or a newer one once the manifest was out, leaves
    one blob on the broker: that of the manifest. Until then the manifest's blob is there."""
    settings = MqttSettings(url=broker.url)
    real, count = MqttClient.publish, 0

    async def killed(self: MqttClient, topic: str, payload: bytes, **how: bool) -> None:
        nonlocal count
        count += 1
        if count == step:
            raise KeyboardInterrupt
        await real(self, topic, payload, **how)

    async def there() -> tuple[int, str, set[str]]:
        async with agent(broker, f"late-{count}") as have:
            await everything(broker, have)
            manifest = json.loads(have["manifest"])
            return manifest["version"], f"blobs/{manifest['sha256']}", set(have) - {"manifest"}

    asyncio.run(publish(settings, author.bundle(1), fleet="f1"))
    monkeypatch.setattr(MqttClient, "publish", killed)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(publish(settings, author.bundle(2), fleet="f1"))
    monkeypatch.undo()
    monkeypatch.setattr(module, "RETAINED_SECONDS", 0.2)
    version, blob, blobs = asyncio.run(there())
    assert (version, blob in blobs) == (1 if step < 3 else 2, True)
    for _ in range(2):
        asyncio.run(publish(settings, author.bundle(again), fleet="f1"))
        version, blob, blobs = asyncio.run(there())
        assert (version, blobs - {blob}) == (again, set())


async def test_refusals(broker: Broker, author: Author, tmp_path: Path) -> None:
    """Unsigned, foreign, expired, older and same-version-but-other bundles are refused, and nothing is published."""
    settings = MqttSettings(url=broker.url)
    stranger = Author(tmp_path / "stranger.pem")
    await publish(settings, author.bundle(5), fleet="f1")
    with pytest.raises(BundleRefused, match="not signed"):
        await publish(settings, author.build(6), fleet="f1")
    with pytest.raises(BundleRefused, match="trusted_keys"):
        await publish(settings, author.bundle(6), fleet="f1", trusted=[stranger.public])
    with pytest.raises(BundleRefused, match="expired"):
        await publish(settings, author.bundle(6), fleet="f1", clock=lambda: CREATED * 2)
    with pytest.raises(BundleRefused, match="zip"):
        await publish(settings, b"rubbish", fleet="f1")
    with pytest.raises(ValueError, match="holds version 5, this bundle is 4"):
        await publish(settings, author.bundle(4), fleet="f1")
    with pytest.raises(ValueError, match="another bundle of version 5"):
        await publish(settings, author.bundle(5, plan=b"changed"), fleet="f1")
    with pytest.raises(ValueError, match="signed for fleet f1, channel stable, not for fleet f2"):
        await publish(settings, author.bundle(6), fleet="f2")
    with pytest.raises(BundleRefused, match="not for fleet f1, channel test"):
        await publish(settings, author.bundle(6), channel="test")
    with pytest.raises(BundleRefused, match="not signed for a fleet"):
        await publish(settings, author.bundle(6, fleet="", channel=""))
    async with agent(broker, "late") as have:
        await eventually("both messages", lambda: len(have) == 2)
        assert json.loads(have["manifest"])["version"] == 5


async def test_failures_say_where(
    broker: Broker, author: Author, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is away and a landing that cannot be written raise with the address or path; nothing changes."""
    block(tmp_path / "landing")
    with pytest.raises(OSError, match="landing"):
        await publish(MqttSettings(url=broker.url), author.bundle(1), fleet="f1", landing=tmp_path / "landing")
    async with agent(broker, "late") as have:
        await everything(broker, have)
        assert not have
    broker.kill()
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.5)
    with pytest.raises(ConnectionError, match=broker.url + ".*refused"):
        await publish(MqttSettings(url=broker.url), author.bundle(1), fleet="f1")
