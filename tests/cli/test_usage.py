"""Wrong usage: every command of the tree, without each thing that it requires, and with nonsense in each option."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from shutil import rmtree

import click
import pytest
from click.testing import CliRunner, Result

from tests.differences import differences
from vedette.cli.main import main

Path_ = tuple[str, ...]
NONSENSE = "n\x1b[2Jonsense"
MAKE = {
    ("bundle", "keygen"),
    ("member", "enroll"),
    ("region", "console", "user", "add"),
}
"""Commands that need nothing that is there before: with good usage they write."""
SERVE = {("run",), ("region", "console")}
"""Commands that may run until they are stopped; their bodies are not run here."""


TIMES = ("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "999999999999d", "9" * 400 + "d", "10000-01-01")
"""That cannot be shown."""


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("command", [("logs", "search"), ("logs", "export"), ("archive", "restore")])
@pytest.mark.parametrize("option", ["--since", "--until"])
def test_times_that_cannot_be_shown(command: tuple[str, ...], option: str, time: str) -> None:
    """They are wrong usage, said in a line."""
    done = CliRunner().invoke(main, [*command, option, time, "x"])
    assert done.exit_code == 2, done.output
    assert f"Invalid value for '{option}'" in done.output.splitlines()[-1]


def tree(group: click.Group, path: Path_ = ()) -> Iterator[tuple[Path_, click.Command]]:
    """Every command that does something."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*path, name), command
        if isinstance(command, click.Group):
            yield from tree(command, (*path, name))


def required(command: click.Command) -> list[click.Parameter]:
    return [parameter for parameter in command.params if parameter.required]


def words(parameter: click.Parameter, value: str) -> list[str]:
    """``parameter`` with ``value`` on a command line."""
    if isinstance(parameter, click.Argument):
        return [value]
    return [parameter.opts[-1], *([] if is_flag(parameter) else [value] * parameter.nargs)]


def is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)


def good(parameter: click.Parameter, folder: Path) -> str:
    """A value that the parameter's type takes."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.IntRange):
        return str(kind.min or 1)
    return str(folder) if isinstance(kind, click.Path) and kind.exists else "name"


def bad(parameter: click.Parameter) -> list[str]:
    """Values that the parameter's type refuses; none for a text that is only read when the command runs."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return [value for value in ("", NONSENSE) if value not in kind.choices]
    if isinstance(kind, click.Path) and kind.exists:
        return ["", NONSENSE]
    if kind.name in ("duration", "day", "time", "pair", "setting", "backend", "kept"):
        return ["", NONSENSE]
    numbers = ["", NONSENSE, "nan", "inf", "-inf", "-1", "0x10", "1;2"]
    if isinstance(kind, click.types.FloatParamType):
        return numbers
    if isinstance(kind, click.types.IntParamType):
        beyond = [str(kind.max + 1)] if isinstance(kind, click.IntRange) and kind.max is not None else []
        return [*numbers, "1.5", "9" * 5000, *beyond]
    return []


def line(parameters: list[click.Parameter], folder: Path) -> list[str]:
    """Options before arguments."""
    ordered = sorted(parameters, key=lambda parameter: isinstance(parameter, click.Argument))
    return [*chain.from_iterable(words(parameter, good(parameter, folder)) for parameter in ordered)]


class Ran(Exception):
    """The command's body began."""


def ran(**_: object) -> None:
    raise Ran


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with nothing in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_body(
    monkeypatch: pytest.MonkeyPatch, group: click.Group, path: Path_, command: click.Command, args: list[str]
) -> Result:
    with monkeypatch.context() as patched:
        patched.setattr(command, "callback", ran)
        return CliRunner().invoke(group, [*path, *args], input="")


def refused(result: Result, folder: Path, name: str = "", code: int = 2) -> None:
    """Exit code 2, or ``code``, a few lines that name the mistake, no traceback, and nothing written."""
    left = [*folder.iterdir()]
    for path in left:  # the next case begins with nothing
        rmtree(path) if path.is_dir() else path.unlink()
    assert (result.exit_code, type(result.exception)) == (code, SystemExit), (result.output, repr(result.exception))
    assert name in result.stderr
    assert result.stdout == "" or code == 1
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr
    assert len(result.stderr) < 6500
    assert len(result.stderr.splitlines()) <= 10, result.stderr
    assert left == []


def walk_required(group: click.Group, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with differences() as case:
        for path, command in tree(group):
            whole = required(command)
            with case(*path, "whole"):
                done = without_body(monkeypatch, group, path, command, line(whole, folder))
                assert isinstance(done.exception, Ran), done.output
            for missing in whole:
                with case(*path, missing.name):
                    rest = [parameter for parameter in whole if parameter is not missing]
                    done = without_body(monkeypatch, group, path, command, line(rest, folder))
                    refused(done, folder, missing.opts[-1] if isinstance(missing, click.Option) else "")


def walk_nonsense(group: click.Group, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with differences() as case:
        for path, command in tree(group):
            for parameter in command.params:
                for value in bad(parameter):
                    with case(*path, parameter.name, value[:20]):
                        rest = [other for other in required(command) if other is not parameter]
                        args = [*line(rest, folder), *words(parameter, value)]
                        if isinstance(parameter, click.Option):
                            args = [*words(parameter, value), *line(rest, folder)]
                        refused(without_body(monkeypatch, group, path, command, args), folder)


def test_what_is_required(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line that lacks one required option or argument is refused before the command begins."""
    walk_required(main, empty, monkeypatch)


def test_nonsense(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one in which a number, a choice or a file that must be there is none."""
    walk_nonsense(main, empty, monkeypatch)


def test_nothing_is_there(empty: Path) -> None:
    """With names of nothing a command ends with one line, code 2, and leaves nothing behind; ``status`` answers with
    code 1 that no agent runs."""
    with differences() as case:
        for path, command in tree(main):
            if path in MAKE | SERVE | {("version",)}:
                continue
            for option in (None, *command.params):
                if option is not None and (is_flag(option) or isinstance(option, click.Argument)):
                    continue
                with case(*path, option and option.name):
                    extra = words(option, NONSENSE) if option is not None else []
                    args = [*path, *extra, *line(required(command), empty / "none")]
                    result = CliRunner().invoke(main, args, input="")
                    refused(result, empty, code=1 if "no agent runs" in result.stdout else 2)


def test_keys_of_a_fleet(empty: Path) -> None:
    """Private keys are left only where the fleet counts them, and a fleet that nobody has signed yet has no next
    root."""
    with differences() as case:
        for keys in (
            ("--root-key", "ann", "--targets-key", "ann"),
            ("--root-key", "ann", "--targets-key", "otto=ed25519:AAAA"),
            ("--root-key", "ann", "--targets-key", "otto", "--root-threshold", "2"),
            ("--root-key", "ann", "--targets-key", ".."),
        ):
            with case(*keys):
                refused(CliRunner().invoke(main, ["fleet", "init", "plants", *keys]), empty)
    public = CliRunner().invoke(main, ["bundle", "keygen", "otto.pem"]).stdout.strip()
    staged = CliRunner().invoke(
        main, ["fleet", "init", "plants", "--root-key", f"otto={public}", "--targets-key", "ann"]
    )
    assert staged.exit_code == 0, staged.output
    assert (empty / "keys" / "ann.pem").exists()
    done = CliRunner().invoke(main, ["fleet", "rotate", "--root-key", "vera"])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert "no fleet here" in done.stderr
    assert not (empty / "keys" / "vera.pem").exists()


def test_what_an_edge_has_instead(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that a region's package takes the place of: the same, with those."""
    fleet = main.get_command(click.Context(main), "fleet")
    assert isinstance(fleet, click.Group)
    edge = click.Group("edge", commands=fleet.commands)
    assert {"import", "export", "audit"} <= edge.commands.keys()
    walk_required(edge, empty, monkeypatch)


def test_of_the_jobs(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of the region refuse the same."""
    pytest.importorskip("pyspark")
    from spark_jobs.__main__ import main as jobs

    walk_required(jobs, empty, monkeypatch)
    walk_nonsense(jobs, empty, monkeypatch)
