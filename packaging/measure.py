"""``python packaging/measure.py ZIP``: what a release costs a host, measured on this one.

Installs the zip into a folder of its own, starts the agent with the rules that come with it, on free ports of loopback
and reading no file, and prints one ``NAME VALUE UNIT`` per line. Seconds are wall clock and depend on what else runs;
CPU seconds do so less.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IDLE_SECONDS = 5.0
START_SECONDS = 60.0


def cpu(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """KiB of memory that a process has."""
    found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return as soon as a connection is taken; raises RuntimeError when that takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.005)
        else:
            return
    raise RuntimeError("the agent does not come up")


def measure(release: Path, folder: Path) -> dict[str, tuple[float, str]]:
    """The figures by name; ``folder`` is empty. Raises CalledProcessError, RuntimeError."""
    found = {"zip": (release.stat().st_size / 1e6, "MB")}
    port, before, began = free_port(), os.times(), time.monotonic()
    subprocess.run(
        ["sh", release, "--no-systemd", "--prefix", folder / "opt", "--config-dir", folder / "etc",
         "--data-dir", folder / "data", "--listen", f"127.0.0.1:{port}"], check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    found["install"] = (time.monotonic() - began, "s")
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    found["install_cpu"] = (spent, "s")
    used = subprocess.run(["du", "-sk", (folder / "opt/current").resolve()], check=True, capture_output=True, text=True)
    found["unpacked"] = (int(used.stdout.split()[0]) * 1024 / 1e6, "MB")
    config = folder / "etc/vedette.toml"
    config.write_text(config.read_text().replace('"/var/log/', f'"{folder}/'))
    for name in ("first_start", "start"):  # the first one takes the bundle over and syncs it to disk
        began = time.monotonic()
        process = subprocess.Popen([folder / "opt/bin/vedette", "run", "-c", config], stderr=subprocess.DEVNULL)
        try:
            listening(port, process)
            found[name] = (time.monotonic() - began, "s")
            found[f"{name}_cpu"] = (cpu(process.pid), "s")
            if name == "start":
                time.sleep(IDLE_SECONDS)
                found["idle_memory"] = (resident(process.pid) / 1024, "MiB")
        finally:
            process.terminate()
            process.wait()
    return found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python packaging/measure.py ZIP")
    with tempfile.TemporaryDirectory(prefix="vedette-measure-") as folder:
        for name, (value, unit) in measure(Path(sys.argv[1]), Path(folder)).items():
            sys.stdout.write(f"{name} {value:.2f} {unit}\n")


if __name__ == "__main__":
    main()
