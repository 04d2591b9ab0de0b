"""What all commands share: options of the release before, and what is said of a library that is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from tests.waits import DEADLINE
from vedette.cli.console import OPTIONS, renew
from vedette.cli.main import main


@pytest.mark.parametrize(
    ("before", "after", "warnings"),
    [
        ("alerts -c x --number 5", "alerts -c x --limit 5", 1),
        ("alerts --number=5 --limit=6", "alerts --limit=5 --limit=6", 1),
        ("region land --ca a --cert=b --folder c", "region land --ca-file a --cert-file=b --landing c", 3),
        ("region publish --folder c", "region publish --folder c", 0),
        ("member list --folder c", "member list --folder c", 0),
        ("region status -- --folder", "region status -- --folder", 0),
        ("", "", 0),
    ],
)
def test_renew(before: str, after: str, warnings: int) -> None:
    """The new name in the place of the old one, with its value; other commands and what follows "--" are left."""
    args, said = renew(before.split())
    assert (args, len(said)) == (after.split(), warnings)


def test_an_old_option_on_the_command_line() -> None:
    """It works, and standard error names the new one."""
    done = CliRunner().invoke(main, ["alerts", "--data-dir", "/nonexistent", "--number", "3"])
    assert done.exit_code == 2
    assert "vedette: --number is now --limit; the next release refuses the old name" in done.stderr
    assert "No such option" not in done.stderr


@pytest.mark.parametrize("path", OPTIONS)
def test_every_row_names_an_option_that_is_there(path: tuple[str, ...]) -> None:
    """And none that is still there under the old name."""
    shown = CliRunner().invoke(main, [*path, "--help"]).output
    for old, new in OPTIONS[path].items():
        assert f"{new} " in shown
        assert f"{old} " not in shown


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
