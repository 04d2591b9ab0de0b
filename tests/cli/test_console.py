"""What all commands share: misspelt words, and the error for a library that is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from tests.waits import DEADLINE
from vedette.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "near"), [(["statsu"], "status"), (["rules", "lnit"], "lint"), (["status", "--jsno"], "--json")]
)
def test_a_misspelt_word(arguments: list[str], near: str) -> None:
    """Commands and options that are nearly right are suggested."""
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert near in done.stderr.partition("Error:")[2]


def test_without_the_rule_compiler() -> None:
    """A command that takes a library of an extra says which to install; others do not need it."""
    without = "import sys; sys.modules['sigma'] = sys.modules['yaml'] = None; from vedette.cli.main import main; main()"
    for arguments, code, says in ((["rules", "list", "x"], 2, "pip install 'vedette[rules]'"), (["version"], 0, "")):
        command = [sys.executable, "-c", without, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == code
        assert says in done.stderr
        assert "Traceback" not in done.stderr
