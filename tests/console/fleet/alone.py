"""A console's fleet as a process of its own, to be killed: makes one hunt, writes its id to a file, and goes on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.console.fleet.kit import ADMIN
from tests.waits import eventually
from vedette.mqtt.settings import MqttSettings
from vedette_console.fleet.models import RuleFile
from vedette_console.fleet.models_asked import HuntOrder
from vedette_console.fleet.service import Fleet
from vedette_console.settings import Settings


def settings_of(row: dict[str, Any]) -> Settings:
    """The settings of paths as JSON has them."""
    broker = {key: Path(value) if key.endswith("_file") else value for key, value in row["broker"].items()}
    paths: dict[str, Any] = {key: Path(value) for key, value in row.items() if key not in ("broker", "operator")}
    return Settings("", **paths, broker=MqttSettings(**broker), operator=row["operator"])


async def main(row: dict[str, Any], rule: str, agents: int, said: Path) -> None:
    fleet = Fleet(settings_of(row), "plants", lambda topic, data: None)
    await fleet.start()
    await eventually("all agents", lambda: len([*fleet.live.beats()]) >= agents)
    rules = [RuleFile(path="rule.yml", text=rule)]
    page = await fleet.hunts.start(ADMIN, HuntOrder(rules=rules, group="all", reason="case 17"))
    await asyncio.to_thread(said.write_text, page.hunt.id)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
