"""Run the programs of ``real_servers.toml``, by turns, in the Debian of ``real_lines.sh``, which starts this."""

from __future__ import annotations

import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SERVER = "192.0.2.1"
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def say(descriptor: int, lines: str) -> None:
    """Send each line when what is at the other end has said something, or nothing for a while."""
    waited = 0.5
    for line in [*re.split(r"(?<!\r)\n", lines), None] if lines else [None]:
        quiet = waited if line is not None else 1.0
        while select.select([descriptor], [], [], quiet)[0]:
            if not os.read(descriptor, 65536):
                return
            quiet = 0.1
        if line is not None:
            os.write(descriptor, line.encode("latin-1") + b"\r\n")
        waited = 6.0


def sh(script: str) -> None:
    subprocess.run(
        ["sh", "-c", script],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def run(program: Mapping[str, Any]) -> None:
    for path, text in program.get("files", {}).items():
        Path(path).write_text(text, "utf-8")
    sh(program["start"])
    for port in program.get("ports", ()):
        for _ in range(100):
            with socket.socket() as probe:
                if not probe.connect_ex((SERVER, port)):
                    break
            time.sleep(0.1)
        else:
            sys.stderr.write(f"{program['name']}: nothing at port {port}\n")
            return
    for ports, said in program.get("talks", ()):
        for port in ports:
            for lines in TABLE["talks"].get(said, (said,)):
                try:
                    with socket.create_connection((SERVER, port), 5) as server:
                        say(server.fileno(), lines)
                except OSError as error:
                    sys.stderr.write(f"{program['name']}: {lines[:20]!r}: {error}\n")
    for command in program.get("commands", ()):
        sh(command)
    for command, lines in program.get("typed", ()):
        child, terminal = pty.fork()
        if not child:
            os.execvp("sh", ["sh", "-c", command])
        try:
            say(terminal, lines)
            time.sleep(4)  # that it is refused takes as long
        except OSError:
            pass
        os.close(terminal)
        os.waitpid(child, 0)


for row in TABLE["program"]:
    if len(sys.argv) < 2 or row["name"] in sys.argv[1:]:
        run(row)
