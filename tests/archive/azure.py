"""A real server of Azure's blob storage for tests: Azurite, Microsoft's emulator, by node.

``sh tools/npm.sh azurite`` fetches it; ``VEDETTE_AZURITE`` names another ``main.js`` of it. Its account and
key are public (learn.microsoft.com, "Use the Azurite emulator"). GCS was not tried: fake-gcs-server answers
obstore's uploads with 404, and there is no other emulator.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.archive.s3 import ROOT
from tests.broker import own_port
from tests.waits import DEADLINE, until
from vedette.config.settings import ArchiveSettings

ACCOUNT, CONTAINER = "devstoreaccount1", "logs"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def azure(folder: Path) -> Iterator[ArchiveSettings]:
    """Settings of an empty container; skips the test when there is no Azurite."""
    program = Path(os.environ.get("VEDETTE_AZURITE", ROOT / "build/azurite/node_modules/azurite/dist/src/blob/main.js"))
    node = shutil.which("node")
    if node is None or not program.exists():
        pytest.skip("no Azurite: sh tools/npm.sh azurite fetches it, or VEDETTE_AZURITE=main.js; it needs node")
    port = own_port()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [node, str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder),
             "--skipApiVersionCheck", "--disableTelemetry"],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            until("a container", lambda: process.poll() is not None or _made(port))
            assert process.poll() is None, (folder / "server.log").read_text()
            options = folder / "options.toml"
            options.write_text(
                f'endpoint = "http://127.0.0.1:{port}/{ACCOUNT}"\naccount_name = "{ACCOUNT}"\naccount_key = "{KEY}"\n'
            )
            yield ArchiveSettings(f"az://{CONTAINER}/edge", options)
        finally:
            process.kill()
            process.wait()


def _made(port: int) -> bool:
    """Whether the container could be made (Shared Key: learn.microsoft.com, "Authorize with Shared Key")."""
    date, version = formatdate(usegmt=True), "2021-12-02"
    headers = f"x-ms-date:{date}\nx-ms-version:{version}\n"
    text = "PUT" + "\n" * 12 + headers + f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    sign = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        with closing(connection):
            connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers={
                "x-ms-date": date, "x-ms-version": version, "Content-Length": "0",
                "Authorization": f"SharedKey {ACCOUNT}:{sign}",
            })  # fmt: skip
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status in (201, 409), body
            return True
    return False
