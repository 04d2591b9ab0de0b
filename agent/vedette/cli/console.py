"""What all commands share: how they end, what may reach a terminal, where the configuration is.

Exit codes: 0 done; 1 done, and what was examined has a fault; 2 not done: wrong usage or configuration, or something is
missing. Every message says what, where and what to do. Results go to standard output, messages to standard error. When
the reader of standard output goes away (``| head -1``) the exit code is 0; when it cannot be written (a full disk), 2.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from vedette.model.times import seconds, written_time
from vedette.mqtt.settings import MqttSettings
from vedette.system.terminal import json_line as json_line
from vedette.system.terminal import safe as safe
from vedette.system.wallclock import utc_now

if TYPE_CHECKING:
    from vedette.config.settings import Config, RulesetSettings
    from vedette.plan.plan import Plan
    from vedette.rules.ruleset import RuleSet
    from vedette.udf.host import Host


def fail(message: object) -> NoReturn:
    """End with exit code 2 and ``message``."""
    click.echo("\n".join(map(safe, f"vedette: {message}".split("\n"))), err=True)
    sys.exit(2)


def whom(fleet: str, channel: str) -> str:
    """For whom a bundle is signed."""
    return f"for fleet {fleet}, channel {channel}" if fleet else "for no fleet: only as a file on the host"


def data_folder(config: Path, given: Path | None) -> Path:
    """The agent's data folder: the one given, else the configuration's."""
    if given is not None:
        return given
    from vedette.config.read import load

    return load(config).agent.data_dir


def ruleset_of(config: Config, name: str) -> RulesetSettings:
    """The settings of a rule set. Raises ValueError when there is none of that name."""
    found = {one.name: one for one in config.rulesets}
    if name not in found:
        raise ValueError(f"no rule set {name!r} is configured; there are: {', '.join(found)}")
    return found[name]


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


def rule_set(
    paths: tuple[Path, ...], pipelines: tuple[Path, ...] = (), lookups: tuple[Path, ...] = (),
    functions: Host | None = None,
) -> tuple[RuleSet, Plan]:  # fmt: skip
    """Rule files as they were read, and their plan. Raises OSError and ValueError when it cannot be built."""
    from vedette.rules import build

    found = build.load(paths, pipelines, lookups, functions)
    return found, build.from_rules(found)


def rule_plan(
    paths: tuple[Path, ...], pipelines: tuple[Path, ...] = (), lookups: tuple[Path, ...] = (),
    functions: Host | None = None,
) -> Plan:  # fmt: skip
    return rule_set(paths, pipelines, lookups, functions)[1]


def host_of(settings: Config) -> Host | None:
    """What runs functions as the agent of this configuration does; ended with the command."""
    if not settings.functions.allow:
        return None
    from vedette.udf.host import Host, Limits

    host = Host(Limits(settings.functions.max_seconds, settings.functions.max_memory))
    click.get_current_context().call_on_close(host.close)
    return host


def functions_option(command: Callable[..., None]) -> Callable[..., None]:
    """``--functions``: what runs functions in Python, given as ``functions``, None without it; ended with the
    command."""

    def made(ctx: click.Context, param: click.Parameter, value: bool) -> Host | None:
        if not value:
            return None
        from vedette.udf.host import Host

        host = Host()
        ctx.call_on_close(host.close)
        return host

    text = "Run the functions in Python that SQL rules bring along, in isolated subprocesses."
    return click.option("--functions", is_flag=True, callback=made, help=text)(command)


def format_option(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--format``: the codec by which ``what`` is read, with ``--plugin`` also a decoder plugin's; ends with a message
    when there is none of that name."""
    from vedette.decode.codecs import CODECS, DECLARED, plugged

    def loaded(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
        if value:
            from vedette.runtime.decoders import plug
            from vedette.runtime.logs import log_to_stderr

            log_to_stderr()
            if wrong := plug(value):
                fail(f"--plugin {wrong[0].partition(']: ')[2] or wrong[0]}")

    def known(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if value not in CODECS and value not in plugged and not value.startswith(DECLARED):
            formats = f"{', '.join(CODECS)}, or {DECLARED}NAME of a format of the rules"
            fail(f"--format {safe(value)}: expects one of {formats}")
        return value

    text = f"How {what} read: {', '.join(CODECS)}; {DECLARED}NAME: as the rules' format of this name."
    by_format = click.option(
        "--format", "codec", metavar="NAME", default="auto", show_default=True, callback=known, help=text
    )
    plugin = click.option(
        "--plugin", metavar="DISTRIBUTION[:NAME]", multiple=True, is_eager=True, expose_value=False, callback=loaded,
        help="An installed plugin whose decoder --format names; may be repeated.",
    )  # fmt: skip
    return lambda command: by_format(plugin(command))


def pipeline_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--pipeline``, ``--lookup`` and ``--functions``, of all commands that read rule files."""
    for option in (
        functions_option,
        click.option("--lookup", "lookups", type=click.Path(path_type=Path), multiple=True,
                     help="Values of a placeholder (NAME.txt, .csv, .vlookup), or a folder of them; may be repeated."),
        click.option("--pipeline", "pipelines", type=click.Path(path_type=Path), multiple=True,
                     help="pySigma processing pipeline (YAML) that maps fields and log sources; may be repeated."),
    ):  # fmt: skip
        command = option(command)
    return command


def required_or_empty(required: bool) -> dict[str, Any]:
    """Attributes of an option that must be there, or is empty without being given. A required one has no default, not
    even None: click takes any default for a value."""
    return {"required": True} if required else {"default": ""}


def broker_options(command: Callable[..., None], *, required: bool = True) -> Callable[..., None]:
    """The options that reach a broker: the fields of ``MqttSettings``."""
    for option in reversed(
        [
            click.option(
                "--broker",
                "url",
                **required_or_empty(required),
                metavar="URL",
                help="mqtt://host:port, or mqtts://host:port for TLS.",
            ),
            click.option("--username", default="", metavar="NAME", help="User name at the broker."),
            click.option(
                "--password-file", type=click.Path(path_type=Path), help="File whose first line is its password."
            ),
            click.option(
                "--ca-file",
                type=click.Path(path_type=Path),
                help="Authority of the broker's certificate (PEM); default: those of the host.",
            ),
            click.option(
                "--cert-file",
                type=click.Path(path_type=Path),
                help="Client certificate (PEM), with --key-file.",
            ),
            click.option("--key-file", type=click.Path(path_type=Path), help="Its private key (PEM)."),
        ]
    ):
        command = option(command)
    return command


def broker_settings(options: Mapping[str, Any]) -> MqttSettings:
    """What ``broker_options`` were given; click gives each its type."""
    return MqttSettings(**options)


class Number(click.FloatRange):
    """A number; click's own range takes a NaN, and without a maximum infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """UTC microseconds from RFC 3339 or a duration back from now."""
    if value is None:
        return None
    with suppress(ValueError):
        return utc_now() - round(seconds(value) * 1_000_000)
    found = written_time(value)
    if found is None:
        raise click.BadParameter("expects RFC 3339, or a duration back from now such as 2h")
    return found
