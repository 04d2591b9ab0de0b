"""``vedetted probe.py CONFIG``: exit code 1, and why on standard error, when the region's broker does not answer.

install.sh tells it as a warning: an agent without its region works, and its alerts wait in the outbox.
"""

import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "packages"))

from vedette.config.read import load

SECONDS = 3.0

settings = load(Path(sys.argv[1])).uplink
if settings.type == "mqtt":
    url = urlsplit(settings.broker.url)
    try:
        socket.create_connection((url.hostname, url.port or (8883 if url.scheme == "mqtts" else 1883)), SECONDS).close()
    except (OSError, ValueError) as error:
        sys.exit(f"the region {settings.broker.url} does not answer ({error}): alerts wait in the outbox until it does")
