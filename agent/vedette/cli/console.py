"""What all commands share: how they end, what may reach a terminal, where the configuration is.

Exit codes: 0 done; 1 done, and what was examined has a fault; 2 not done: wrong usage or configuration, or something is
missing. Every message says what, where and what to do. Results go to standard output, messages to standard error. When
the reader of standard output goes away (``| head -1``) the exit code is 0; when it cannot be written (a full disk), 2.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from vedette.system.terminal import json_line as json_line
from vedette.system.terminal import safe as safe

if TYPE_CHECKING:
    from vedette.config.settings import Config, RulesetSettings


def fail(message: object) -> NoReturn:
    """End with exit code 2 and ``message``."""
    click.echo("\n".join(map(safe, f"vedette: {message}".split("\n"))), err=True)
    sys.exit(2)


def whom(fleet: str, channel: str) -> str:
    """For whom a bundle is signed."""
    return f"for fleet {fleet}, channel {channel}" if fleet else "for no fleet: only as a file on the host"


def data_folder(config: Path, folder: Path | None) -> Path:
    """The agent's data folder: the one given, else the configuration's."""
    if folder is not None:
        return folder
    from vedette.config.read import load

    return load(config).agent.data_dir


def ruleset_of(config: Config, name: str) -> RulesetSettings:
    """The settings of a rule set. Raises ValueError when there is none of that name."""
    by_name = {ruleset.name: ruleset for ruleset in config.rulesets}
    if name not in by_name:
        raise ValueError(f"no rule set {name!r} is configured; there are: {', '.join(by_name)}")
    return by_name[name]


config_option = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("/etc/vedette/vedette.toml"),
    show_default=True,
    help="The agent's configuration.",
)
data_option = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="The agent's data folder, instead of a configuration."
)


EXTRAS = {"sigma": "rules", "yaml": "rules", "pyarrow": "region", "ijson": "region", "confluent_kafka": "kafka"}
"""Libraries that some commands take, and the extra of the package that brings them."""


class Commands(click.Group):
    """A group whose further commands are imported when they are used.

    ``modules``: their names, and for each the module of ``cli/`` that has it, or MODULE:FUNCTION. ``region``: the same,
    of those that are there where the region's package is installed, which it is not on an edge.
    """

    def __init__(
        self, *args: Any, modules: Mapping[str, str] | None = None, region: Mapping[str, str], **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._modules = {**(modules or {}), **(region if importlib.util.find_spec("vedette.region") else {})}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"vedette.cli.{module}"), function or cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Those that are not imported yet are suggested, too."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise type(error)(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None


class Main(Commands):
    """The group of all commands: what one raises ends it with exit code 2 and the error's text."""

    def make_context(self, *args: Any, **attributes: Any) -> click.Context:
        with _printing():  # --help and mistakes in the command line
            return super().make_context(*args, **attributes)

    def invoke(self, ctx: click.Context) -> Any:
        with _printing():
            try:
                return super().invoke(ctx)
            except ImportError as error:
                library = (error.name or "").partition(".")[0]
                if library == "hyperscan":  # which this processor cannot run
                    fail(error)
                if library not in EXTRAS:
                    raise
                fail(f"this takes a library that is not installed ({error}): pip install 'vedette[{EXTRAS[library]}]'")
            except BrokenPipeError:  # the reader of our output has gone
                raise
            except (OSError, ValueError) as error:
                blocked = _unwritable()
                fail(f"standard output: {blocked.strerror}" if blocked is not None else error)


@contextmanager
def _printing() -> Iterator[None]:
    """Flush standard output before the command ends, however it ends: when the interpreter's own last flush fails, the
    exit code becomes 120."""
    try:
        yield
    except BrokenPipeError:
        raise SystemExit(0) from None
    finally:
        error = _unwritable()
        if isinstance(error, BrokenPipeError):
            raise SystemExit(0)
        if error is not None:
            fail(f"standard output: {error.strerror}")


def _unwritable() -> OSError | None:
    """Why standard output cannot be flushed, None when it can. What was buffered is dropped then."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            return error
    return None
