"""Who gets how many descriptors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.e2e.agent import VEDETTE
from tests.waits import DEADLINE
from vedette.inputs.settings import PER_PATH, FileInput, InputSettings, MqttInput, SyslogInput
from vedette.runtime.options.inputs import EACH, LEAST, OWN, remarks, share
from vedette.system.descriptors import OPEN_FILES, SPARE

INPUTS: tuple[InputSettings, ...] = (
    SyslogInput("tcp", tcp=":1"),
    SyslogInput("udp", udp=":1"),
    FileInput("paths", paths=("/a", "/b")),
    FileInput("globs", paths=("/a/*",)),
    MqttInput(name="mqtt"),
)


@pytest.mark.parametrize(
    ("limit", "files", "connections"),
    [
        (65_536, {"paths": 2 * PER_PATH, "globs": OPEN_FILES}, 1000),
        (1024, {"paths": 2 * PER_PATH, "globs": OPEN_FILES}, 656),
        (256, {"paths": 2, "globs": 73}, 77),
        (16, {"paths": 1, "globs": 1}, 1),
    ],
)
def test_shares(limit: int, files: dict[str, int], connections: int) -> None:
    """What the agent keeps for itself comes first, then files, then connections; each gets one at least."""
    shares = share(limit, INPUTS)
    assert (shares.files, shares.connections) == (files, {"tcp": connections})
    told = remarks(shares, INPUTS)
    assert len(told) == (limit < LEAST) + (connections < 1000)
    if connections < 1000:
        assert f"max_connections = 1000, of which {connections} fit the limit of open files, {limit}" in told[-1]


@given(
    st.integers(LEAST, 5000),
    st.lists(st.integers(1, 4000), max_size=4),
    st.lists(st.lists(st.sampled_from(["/a", "/b*"]), min_size=1, max_size=90), max_size=4),
)
def test_shares_fit(limit: int, connections: list[int], files: list[list[str]]) -> None:
    """Together they are never more than the limit, and never more than was asked for."""
    inputs: list[InputSettings] = [SyslogInput(f"s{i}", tcp=":1", max_connections=n) for i, n in enumerate(connections)]
    inputs += [FileInput(f"f{i}", paths=tuple(paths)) for i, paths in enumerate(files)]
    shares = share(limit, inputs)
    least = len(inputs)
    assert OWN + EACH * len(inputs) + sum(shares.files.values()) + sum(shares.connections.values()) <= limit + least
    assert all(shares.connections[f"s{i}"] <= n for i, n in enumerate(connections))


def test_check_says_what_fits(tmp_path: Path) -> None:
    """``vedette check`` tells the limit, and which input gets fewer connections than it asks for, and what to do."""
    config = tmp_path / "v.toml"
    config.write_text('[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:5140"\n')
    for hard, said in ((300, "max_connections = 1000, of which 228 fit the limit of open files, 300"), (4096, "")):
        limits = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (200, {hard})); "
        command = [sys.executable, "-c", limits + "os.execv(sys.argv[1], sys.argv[1:])"]
        done = subprocess.run(
            [*command, *VEDETTE, "check", "-c", config], capture_output=True, text=True, check=True, timeout=DEADLINE
        )
        assert f"open files: {hard} allowed here; 0 for files that are read" in done.stdout
        assert (said in done.stderr) if said else not done.stderr


def test_the_spare_one(tmp_path: Path) -> None:
    """A file is read with it when there is no other; it is there again when that is over."""
    (file := tmp_path / "a").write_text("x")
    program = f"""
import os, pathlib, resource
from vedette.runtime.options.inputs import EACH, LEAST, OWN, remarks, share
from vedette.system.descriptors import OPEN_FILES, SPARE
SPARE.keep()
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    pass
for _ in range(3):
    fd = SPARE.open(pathlib.Path({str(file)!r}))
    assert os.read(fd, 9) == b"x"
    try:
        SPARE.open(pathlib.Path({str(file)!r}))
    except OSError:
        SPARE.close(fd)
print("read")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.stdout == "read\n", done.stderr
    SPARE.close(SPARE.open(file))  # with others there, too
