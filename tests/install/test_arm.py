"""The zip for aarch64: built here, started here under qemu as an ARMv8.0 processor, the oldest kind, judging with a
rule bundle that x86_64 made."""

from __future__ import annotations

import platform
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.agent import landed
from tests.install.conftest import RULE_ID, Inputs, dist, native_kernel, sha256
from tests.waits import DEADLINE, until
from vedette import __version__
from vedette.region.polyglot import PAYLOAD, read

pytestmark = [pytest.mark.install, pytest.mark.long]
EVENT = "<38>Nov 20 10:00:00 h p: install-test-marker"
EMULATED = """#!/bin/sh
exec qemu-aarch64-static -cpu cortex-a53 -0 "$0" "$0.aarch64" "$@"
"""
"""In place of the program, so that the agent's children are emulated, too."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory, inputs: Inputs) -> Path:
    """The release for aarch64, its loader's path written as install.sh does it."""
    folder = tmp_path_factory.mktemp("arm")
    dist(folder / "dist", inputs, "--arch", "aarch64")
    members = read(folder / "dist" / f"vedette-{__version__}-linux-aarch64.zip")
    (folder / PAYLOAD).write_bytes(members[PAYLOAD])
    assert sha256(members[PAYLOAD]) in members["SHA256SUMS"].decode()
    (folder / "release").mkdir()
    subprocess.run(["tar", "-xzf", folder / PAYLOAD, "-C", folder / "release"], check=True)
    runtime = folder / "release/runtime"
    offset, length, loader = (runtime / "interpreter").read_text().split()
    with (runtime / "bin/vedetted").open("r+b") as file:
        file.seek(int(offset))
        file.write(str(runtime / "lib" / loader).encode().ljust(int(length), b"\0"))
    if platform.machine() != "aarch64":
        program = runtime / "bin/vedetted"
        program.rename(f"{program}.aarch64")
        program.write_text(EMULATED)
        program.chmod(0o755)
    return folder / "release"


def command(release: Path, *arguments: str | Path, script: str = "launch.py") -> list[str | Path]:
    if platform.machine() != "aarch64" and shutil.which("qemu-aarch64-static") is None:
        pytest.skip("no qemu-aarch64-static here: sh tools/packages.sh tests")
    return [release / "runtime/bin/vedetted", "-X", "utf8", "-I", "-S", "-B", release / script, *arguments]


def run(release: Path, *arguments: str | Path, script: str = "launch.py") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(release, *arguments, script=script), capture_output=True, text=True, check=False)


def test_every_program_is_for_it(unpacked: Path) -> None:
    """No file for another processor is in it."""
    for path in unpacked.rglob("*"):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            assert path.read_bytes()[18:20] == b"\xb7\0", path
    assert "arch=aarch64" in (unpacked / "RELEASE").read_text()


def test_it_judges_with_a_bundle_of_another_architecture(
    unpacked: Path, starter: tuple[Path, str], tmp_path: Path
) -> None:
    """The bundle's precompiled databases are loaded and match; nothing is compiled again."""
    event = tmp_path / "event"
    event.write_text(f"{EVENT}\n<38>Nov 20 10:00:01 h p: nothing\n")
    done = run(unpacked, "scan", "--rules", starter[0], "--trusted-key", starter[1], event)
    assert done.stdout.count(RULE_ID) == 1, done.stderr
    assert "1 match" in done.stderr or done.stdout.count("\n") == 1


def test_it_verifies_bundles(unpacked: Path, starter: tuple[Path, str]) -> None:
    """Signatures are checked there, too: cryptography's own library works."""
    done = run(unpacked, "bundle", "verify", starter[0], "--trusted-key", starter[1])
    assert done.returncode == 0, done.stderr
    assert run(unpacked, "version").stdout.strip()


def test_an_event_becomes_an_alert(unpacked: Path, starter: tuple[Path, str], tmp_path: Path) -> None:
    """The agent itself: `check` takes its configuration, a line of a file becomes an alert in the landing, its status
    adds up, and it ends by SIGTERM."""
    (tmp_path / "log").write_text(f"{EVENT}\n<38>Nov 20 10:00:01 h p: nothing\n")
    config = tmp_path / "vedette.toml"
    config.write_text(
        f'[agent]\nid = "a"\ndata_dir = "{tmp_path}/data"\n'
        f'[bundles]\nfile = "{starter[0]}"\ntrusted_keys = ["{starter[1]}"]\n'
        f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{tmp_path}/log"]\nformat = "syslog"\n'
        'logsource = { product = "linux" }\n'
    )
    checked = run(unpacked, "check", "-c", config)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    said = tmp_path / "agent.log"
    with (
        said.open("wb") as output,
        subprocess.Popen(command(unpacked, "run", "-c", config), stdout=output, stderr=output) as agent,
    ):
        try:
            until("the alert", lambda: agent.poll() is not None or landed(tmp_path / "data/alerts-landing"))
            assert agent.poll() is None, said.read_text()
            assert [row["rule_id"] for row in landed(tmp_path / "data/alerts-landing")] == [RULE_ID]
            status = run(unpacked, "status", "-c", config)
            assert status.stdout.startswith("OK"), status.stdout + status.stderr
            assert "adds up" in status.stdout
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(DEADLINE) == 0, said.read_text()
        finally:
            agent.kill()


def test_it_uses_the_kernel(unpacked: Path, tmp_path: Path) -> None:
    """The native kernel, cross-built, is loaded there."""
    if missing := native_kernel.missing("aarch64"):
        pytest.skip(missing)
    config = tmp_path / "vedette.toml"
    config.write_text('[agent]\nid = "a"\n[[input]]\nname = "f"\ntype = "file"\npaths = ["/f"]\n')
    done = run(unpacked, "check", "-c", config)
    assert "native kernel: in use\n" in done.stdout, done.stderr


@pytest.mark.parametrize(("name", "module"), [("archive", "obstore.store, pyrage"), ("kafka", "confluent_kafka")])
def test_its_add_ons(unpacked: Path, name: str, module: str) -> None:
    """Unpacked where install.sh does it, they are found, and run with the release's own libraries."""
    members = read(unpacked.parent / "dist" / f"vedette-{__version__}-linux-aarch64-{name}.zip")
    assert b"\narch=aarch64\n" in members["ADDON"]
    folder = unpacked / "addons" / name
    folder.mkdir(parents=True)
    (unpacked.parent / PAYLOAD).write_bytes(members[PAYLOAD])
    subprocess.run(["tar", "-xzf", unpacked.parent / PAYLOAD, "-C", folder], check=True)
    (folder / "ADDON").write_bytes(members["ADDON"])
    (unpacked / "try.py").write_text(
        f"import runpy\nrunpy.run_path({str(unpacked / 'launch.py')!r})\nimport {module}\n"
    )
    done = run(unpacked, script="try.py")
    assert done.returncode == 0, done.stderr
