"""``vedetted probe.py CONFIG``: exit code 1, and why on standard error, when the region's broker does not answer.

install.sh tells it as a warning: an agent without its region works, and its alerts wait in the outbox.
"""

import os
import runpy
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

SECONDS = 3.0


def main(config: str) -> None:
    runpy.run_path(os.path.join(os.path.dirname(os.path.realpath(__file__)), "launch.py"))  # the paths of all packages
    from vedette.config.read import load

    settings = load(Path(config)).uplink
    if settings.type != "mqtt":
        return
    url = urlsplit(settings.broker.url)
    try:
        socket.create_connection((url.hostname, url.port or (8883 if url.scheme == "mqtts" else 1883)), SECONDS).close()
    except (OSError, ValueError) as error:
        sys.exit(f"the region {settings.broker.url} does not answer ({error}): alerts wait in the outbox until it does")


main(*sys.argv[1:])
