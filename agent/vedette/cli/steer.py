"""The controller: region steer."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from vedette.cli.options import broker_options, broker_settings


@click.command("steer")
@click.argument("folder", type=click.Path(path_type=Path), default=Path("trust"))
@broker_options
def steer(folder: Path, **broker: object) -> None:
    """Move the changes of a fleet through their rings, and back where they do harm.

    FOLDER holds the fleet's metadata and its online keys (see `vedette fleet init`). Runs until SIGTERM or SIGINT;
    killed, it goes on where it was. A second one waits until the first has ended, or is refused in the same folder.
    It also renews what expires, so that `vedette fleet apply` is only needed to publish.

    Example: vedette region steer trust --broker mqtts://region.example:8883 --ca-file region-ca.pem
    --cert-file agent.pem --key-file agent.key
    """
    from vedette.config.settings import LogSettings
    from vedette.region.repository import Repository
    from vedette.region.steer.controller import Controller
    from vedette.runtime.agent.logs import configure_logging

    configure_logging(LogSettings())

    async def main() -> None:
        controller = Controller(broker_settings(broker), Repository(folder))
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
        work, stop = asyncio.create_task(controller.run()), asyncio.create_task(asked.wait())
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not work.done():
            await controller.stop()
            work.cancel()
        await asyncio.gather(work, return_exceptions=not work.done())

    asyncio.run(main())
