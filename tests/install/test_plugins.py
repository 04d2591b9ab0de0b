"""Plugins in the zip: unpacked beside the agent's packages, found there, and nothing is replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.agent import ROOT

sys.path.append(str(ROOT / "packaging"))

import plugins
from shell import BuildError

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "examples" / "plugins"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheels of two examples: one of a folder, one as a wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    (wheel,) = plugins.wheels([EXAMPLES / "sink"], folder / "a")
    wheels = plugins.wheels([EXAMPLES / "decoder", wheel], folder / "b")
    assert [file.name.partition("-")[0] for file in wheels] == ["vedette_example_decoder", "vedette_example_sink"]
    assert not [*EXAMPLES.glob("*/build"), *EXAMPLES.glob("*/src/*.egg-info")]
    return wheels


def test_unpacked(built: list[Path], tmp_path: Path) -> None:
    """Their modules and entry points are there, without a word of where they were built; an agent finds them by
    name."""
    unpacked, owners = plugins.unpack(tmp_path, "x86_64", built, ())
    assert {*owners} == {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {*owners.values()} == {*unpacked}
    assert unpacked == {f"vedette-example-{kind}==1.0.0": plugins.digest(wheel)
                        for kind, wheel in zip(("decoder", "sink"), built, strict=True)}  # fmt: skip
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"vedette_example_sink.py", "vedette_example_sink-1.0.0.dist-info/entry_points.txt"} <= names
    assert not [name for name in names if name.rpartition("/")[2] in plugins.NOTES]
    config = tmp_path / "vedette.toml"
    config.write_text(
        '[plugins]\nallow = ["vedette-example-sink", "vedette-example-decoder:gate"]\n[[sink]]\ntype = "spool"\n'
        'name = "s"\n[[input]]\ntype = "file"\nname = "i"\npaths = ["/x"]\nformat = "gate"\n'
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from pathlib import Path\n"
        "from vedette.config.read import load; from vedette.runtime.options import decoders\n"
        "from vedette.decode.decoder import record; from vedette.decode import codecs\n"
        f"config = load(Path({str(config)!r})); decoders.adopt(config)\n"
        "print(config.sink[0].to, record(b'GATE3 IN 00A1F1', codecs.plugged['gate']).get('badge'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.stdout == "plugin vedette-example-sink:spool 41457\n"


def test_what_is_there_already(built: list[Path], tmp_path: Path) -> None:
    """Nothing of the agent or another plugin is replaced."""
    (tmp_path / "vedette_example_sink.py").touch()
    with pytest.raises(BuildError, match=r"vedette_example_sink\.py is there already"):
        plugins.unpack(tmp_path, "x86_64", built, ())


def test_another_architecture(built: list[Path], tmp_path: Path) -> None:
    """A wheel for another one is left out where one fits, and else said to lack."""
    other = tmp_path / built[1].name.replace("-any.whl", "-manylinux_2_17_aarch64.whl")
    shutil.copy(built[1], other)
    assert len(plugins.unpack(tmp_path / "a", "x86_64", [other, built[1]], ())[0]) == 1
    with pytest.raises(BuildError, match=r"plugin vedette-example-sink==1\.0\.0: no wheel of it is for x86_64"):
        plugins.unpack(tmp_path / "b", "x86_64", [other], ())


def test_what_is_no_plugin(tmp_path: Path) -> None:
    """A file that is no wheel is refused before anything is built."""
    (tmp_path / "x.txt").touch()
    with pytest.raises(BuildError, match="expects a wheel, or a folder"):
        plugins.wheels([tmp_path / "x.txt"], tmp_path)
